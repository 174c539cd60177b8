"""Messages between the coordinating process and its workers: JSON objects, each prefixed by its length (8 bytes, big-endian)."""

from __future__ import annotations

import json
import struct
from typing import Any, BinaryIO

_LENGTH = struct.Struct(">Q")

Message = dict[str, Any]


def encode(message: Message) -> bytes:
    """The bytes of one message."""
    text = json.dumps(message, separators=(",", ":")).encode()
    return _LENGTH.pack(len(text)) + text


def read(stream: BinaryIO) -> Message | None:
    """The next message of a blocking stream, or None where the stream has ended."""
    length = stream.read(_LENGTH.size)
    if len(length) < _LENGTH.size:
        return None
    (size,) = _LENGTH.unpack(length)
    text = stream.read(size)
    return json.loads(text) if len(text) == size else None


class Decoder:
    """Collects bytes as they arrive from a pipe and gives back the messages that are complete."""

    def __init__(self) -> None:
        self._data = bytearray()

    def feed(self, data: bytes) -> list[Message]:
        """Add `data`; all messages that it completes. ValueError where it is no message."""
        self._data += data
        messages = []
        while len(self._data) >= _LENGTH.size:
            (size,) = _LENGTH.unpack_from(self._data)
            end = _LENGTH.size + size
            if len(self._data) < end:
                break
            message = json.loads(bytes(self._data[_LENGTH.size : end]))
            if not isinstance(message, dict):
                raise ValueError(f"{message!r} is no message")
            messages.append(message)
            del self._data[:end]
        return messages
