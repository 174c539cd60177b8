"""Messages between the coordinating process and its workers: a JSON header and raw bytes, both prefixed by their length.

One message is `<header length: 4 bytes> <blob length: 8 bytes> <header: UTF-8 JSON object> <blob>`, lengths big-endian.
"""

from __future__ import annotations

import json
import struct
from typing import Any, BinaryIO

_LENGTHS = struct.Struct(">IQ")

Message = dict[str, Any]


def encode(header: Message, blob: bytes = b"") -> bytes:
    """The bytes of one message."""
    text = json.dumps(header, separators=(",", ":")).encode()
    return _LENGTHS.pack(len(text), len(blob)) + text + blob


def read(stream: BinaryIO) -> tuple[Message, bytes] | None:
    """The next message of a blocking stream, or None where the stream has ended."""
    lengths = stream.read(_LENGTHS.size)
    if len(lengths) < _LENGTHS.size:
        return None
    header, blob = _LENGTHS.unpack(lengths)
    text = stream.read(header)
    body = stream.read(blob)
    if len(text) < header or len(body) < blob:
        return None
    return json.loads(text), body


class Decoder:
    """Collects bytes as they arrive from a pipe and gives back the messages that are complete."""

    def __init__(self) -> None:
        self._data = bytearray()

    def feed(self, data: bytes) -> list[Message]:
        """Add `data`; the headers of all messages that it completes (blobs, which only the parent sends, are dropped). ValueError
        where it is no message."""
        self._data += data
        messages = []
        while len(self._data) >= _LENGTHS.size:
            header, blob = _LENGTHS.unpack_from(self._data)
            end = _LENGTHS.size + header + blob
            if len(self._data) < end:
                break
            message = json.loads(bytes(self._data[_LENGTHS.size : _LENGTHS.size + header]))
            if not isinstance(message, dict):
                raise ValueError(f"{message!r} is no message")
            messages.append(message)
            del self._data[:end]
        return messages
