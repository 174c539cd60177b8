"""Into how many parts loops are divided, so that little is left over."""

from __future__ import annotations

from math import ceil


def partial_results(length: int, lanes: int, registers: int) -> int:
    """How many partial results a reduction of so many steps is to have: up to `registers` vectors of them, such that they divide
    it into two rounds or more, or so many that the last, partial round does not count, or one vector."""
    for count in range(registers, 1, -1):
        if length % (count * lanes) == 0 and length >= 2 * count * lanes:
            return count * lanes
    return registers * lanes if length >= 4 * registers * lanes else lanes


def balanced(tiles: int, most: int, multiple: int) -> int:
    """Tiles of a block, at most `most` and not much fewer, so that the blocks, whose number is a multiple of `multiple`, have
    as little room as possible for tiles that there are not: those need guards."""

    def room(count: int) -> int:
        return ceil(ceil(tiles / count) / multiple) * multiple * count - tiles

    least = max(1, (most + 1) // 2)
    counts = {ceil(tiles / (ceil(ceil(tiles / n) / multiple) * multiple)) for n in range(least, most + 1)}
    return min(counts, key=lambda n: (room(n), -n))
