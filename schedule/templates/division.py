"""Division of the tiles of an axis into blocks, so that the last block is nearly full."""

from __future__ import annotations

from math import ceil, log2

HALF_COST = 1 / 40  # fraction of the tiles that blocks of half the size have to save
MAX_EMPTY = 1 / 16  # fraction of the tiles that may be empty room before other sizes of blocks are tried
MIN_EACH = 4  # least units a thread of which shares are about equal, however they divide


def shares_are_equal(units: int, threads: int) -> bool:
    """True where threads have the same shares of some units, or about the same."""
    return units % threads == 0 or units >= MIN_EACH * threads


def balanced(tiles: int, most: int, multiple: int) -> int:
    """The number of tiles of a block, about `most`, with the least empty room in the blocks, whose number is a multiple of
    `multiple`. Empty room needs guards, or is computed in vain. Where there is much, a block may be a quarter larger than `most`.
    Where threads share blocks (`multiple` > 1), it may also be smaller, if that saves enough."""

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
