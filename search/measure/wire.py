"""Messages between the coordinating process and its workers: JSON objects, each a line."""

from __future__ import annotations

import json
from typing import Any, BinaryIO

Message = dict[str, Any]


def encode(message: Message) -> bytes:
    """The bytes of one message."""
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


def decoded(text: bytes | str) -> Message:
    """The message of one line. ValueError for any other text."""
    try:
        message = json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(message, dict):
        raise ValueError(f"{message!r} is no message")
    return message


def read(stream: BinaryIO) -> Message | None:
    """The next message of a blocking stream, or None at its end."""
    line = stream.readline()
    return decoded(line) if line.endswith(b"\n") else None


class Decoder:
    """A decoder of bytes from a pipe into messages."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[Message]:
        """Add `data`; returns all messages that it completes. ValueError for a line that is no message."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [decoded(line) for line in lines]
