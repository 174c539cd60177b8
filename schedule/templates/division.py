"""Numbers of tiles: how an axis is divided so that the last tile is nearly full."""

from __future__ import annotations

from math import ceil


def balanced(tiles: int, most: int, multiple: int) -> int:
    """Tiles of a block, at most `most` and not much fewer, so that the blocks, whose number is a multiple of `multiple`, have
    as little room as possible for tiles that there are not: those need guards."""

    def room(count: int) -> int:
        return ceil(ceil(tiles / count) / multiple) * multiple * count - tiles

    least = max(1, (most + 1) // 2)
    counts = {ceil(tiles / (ceil(ceil(tiles / n) / multiple) * multiple)) for n in range(least, most + 1)}
    return min(counts, key=lambda n: (room(n), -n))
