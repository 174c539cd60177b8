"""Division of the tiles of an axis into blocks, so that the last block is nearly full."""

from __future__ import annotations

from math import ceil, inf

MIN_EACH = 4  # least units a thread of which shares are about equal, however they divide: the largest is 1.25 x the mean at most


def doubled(most: int) -> list[int]:
    """The powers of two up to a number."""
    return [1 << n for n in range(max(most, 0).bit_length())]


def tried(first: int, most: int, unit: int = 1, limit: float = inf) -> list[int]:
    """Sizes that are tried: `first`, which a formula gives, and the powers of two up to `most`, in units, up to a limit."""
    return list(dict.fromkeys(int(min(n * unit, limit)) for n in (first, *doubled(most))))


def shares_are_equal(units: int, threads: int) -> bool:
    """True where threads have the same shares of some units, or about the same."""
    return units % threads == 0 or units >= MIN_EACH * threads


def balanced(tiles: int, most: int, multiple: int) -> int:
    """The number of tiles of a block, between half of `most` and `most`, with the least empty room in the blocks, whose number is
    a multiple of `multiple`. Empty room needs guards, or is computed in vain."""

    def room(count: int) -> int:
        return ceil(ceil(tiles / count) / multiple) * multiple * count - tiles

    counts = {ceil(tiles / (ceil(ceil(tiles / n) / multiple) * multiple)) for n in range(max(1, (most + 1) // 2), most + 1)}
    return min(counts, key=lambda n: (room(n), -n))
