"""Transposes of square tiles in vector registers."""

from __future__ import annotations

from collections.abc import Sequence

from .values import Value
from .writer import Writer

SHUFFLE_BITS = 128  # bits of a block within which a shuffle takes one cycle on x86; across blocks it takes three


def transposed(writer: Writer, rows: Sequence[Value], bits: int) -> list[Value]:
    """The columns of a square, given its rows: n vectors of n elements of `bits` bits, n a power of two.

    Each of log2(n) rounds shuffles neighbours in pairs: one result has the elements at even places of both, the other those at
    odd places. Round r decides bit r of the column, first in blocks of 128 bits, then of whole blocks. Each shuffle of elements
    of 32 or 64 bits is one instruction of AVX-512 (vshufps, vshuff32x4), n log2(n) in all: a quarter of an instruction an
    element, where a gather takes one or more.
    """
    n = len(rows)
    block = min(n, max(1, SHUFFLE_BITS // bits))

    def columns(vectors: Sequence[Value], place: int) -> list[Value]:
        if len(vectors) == 1:
            return list(vectors)
        unit, group = (1, block) if place < block else (block, n)
        even, odd = (
            columns(
                [_picked(writer, a, b, unit, group, first) for a, b in zip(vectors[::2], vectors[1::2], strict=True)], 2 * place
            )
            for first in (0, 1)
        )
        return [v for pair in zip(even, odd, strict=True) for v in pair]

    return columns(rows, 1)


def _picked(writer: Writer, a: Value, b: Value, unit: int, group: int, first: int) -> Value:
    """The units of `a`, then those of `b`, in each group of places whose number is even, or odd where `first` is 1."""
    n = a.lanes
    places = [
        source + start + number * unit + k
        for start in range(0, n, group)
        for source in (0, n)
        for number in range(first, group // unit, 2)
        for k in range(unit)
    ]
    return writer.shuffled(a, b, places)
