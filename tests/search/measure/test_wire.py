"""Messages between processes: whole, or said to be none."""

from __future__ import annotations

import gc

import pytest

from search.measure import wire


def test_messages_arrive_whole_however_they_are_cut():
    messages = [{"op": "build", "id": 1, "text": "× 7"}, {}, {"samples": [0.1, 1e-9]}]
    data = b"".join(wire.encode(m) for m in messages)
    for step in (1, 7, 13, len(data)):
        decoder = wire.Decoder()
        received = [m for i in range(0, len(data), step) for m in decoder.feed(data[i : i + step])]
        assert received == messages


@pytest.mark.parametrize("text", [b"5", b"[1]", b"{", b"\xff", b"[" * 100_000])
def test_what_is_no_message_is_said_to_be_none(text):
    gc.collect()  # finalisers of other tests' garbage would run at the limit of Python's calls
    decoder = wire.Decoder()
    with pytest.raises(ValueError):
        decoder.feed(wire.encode({}) + text + b"\n")
