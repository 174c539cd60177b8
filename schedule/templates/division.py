"""Numbers of tiles: how an axis is divided so that the last tile is nearly full."""

from __future__ import annotations

from math import ceil, log2

HALF_COST = 1 / 40  # part of the tiles that blocks of half the size have to save
MAX_EMPTY = 1 / 16  # part of the tiles that blocks may have room for in vain, rather than be larger than asked for


def balanced(tiles: int, most: int, multiple: int) -> int:
    """Tiles of a block, at most `most` and not much fewer, so that the blocks, whose number is a multiple of `multiple`, have as
    little room as possible for missing tiles: those need guards, or are computed in vain. A block may be up to a quarter larger
    where there would be much such room, or, if threads share the blocks, smaller where that saves enough."""

    def room(count: int) -> int:
        return ceil(ceil(tiles / count) / multiple) * multiple * count - tiles

    def best(most: int) -> int:
        least = max(1, (most + 1) // 2)
        counts = {ceil(tiles / (ceil(ceil(tiles / n) / multiple) * multiple)) for n in range(least, most + 1)}
        return min(counts, key=lambda n: (room(n), -n))

    found = best(most)
    if room(found) <= MAX_EMPTY * tiles:
        return found
    smaller = [most >> n for n in range(1, most.bit_length())] if multiple > 1 else []
    others = map(best, (most * 5 // 4, *smaller))
    return min((found, *others), key=lambda n: room(n) + max(0, log2(found / n)) * HALF_COST * tiles)
