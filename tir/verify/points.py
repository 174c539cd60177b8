"""Points: iterations tried one by one, all at once as arrays."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from ..ir import Expr
from ..points import Opaque, evaluate
from ..traverse import variables

POINTS = 100_000  # iterations that are tried where no proof is found


@dataclass(frozen=True)
class _Points:
    """Iterations: each variable's value in each of them. `whole` if these are all there are, `certain` if all really happen."""

    values: dict[str, np.ndarray]
    whole: bool
    certain: bool
    count: int

    def __len__(self) -> int:
        return self.count

    def evaluate(self, exprs: Iterable[Expr]) -> list[np.ndarray] | None:
        """The value of each expression at every point; None where one is not known before the program runs."""
        try:
            return [np.broadcast_to(evaluate(e, self.values), len(self)) for e in exprs]
        except Opaque:
            return None

    def at(self, n: int, names: Iterable[str]) -> str:
        """The variables at point `n`, as text."""
        return ", ".join(f"{name}={int(self.values[name][n])}" for name in names if name in self.values)


def points_of(
    extents: Mapping[str, int | None], needed: set[str], conditions: Sequence[Expr], limit: int = POINTS
) -> _Points | None:
    """The iterations of the loops that `needed` and the conditions depend on, where the conditions hold; the first and the last
    of them if there are too many. None if a loop has no constant extent."""
    used = set(needed)
    for c in conditions:
        used |= variables(c)
    names = [n for n in extents if n in used]
    sizes = []
    for name in names:
        extent = extents[name]
        if extent is None:
            return None
        sizes.append(extent)
    full = list(sizes)
    while prod(sizes) > limit:
        largest = sizes.index(max(sizes))
        sizes[largest] = (sizes[largest] + 1) // 2
    count = prod(sizes)
    grid = np.indices(sizes, dtype=np.int64).reshape(len(sizes), count) if sizes else np.zeros((0, 1), np.int64)
    values = dict(zip(names, grid, strict=True))
    whole, certain = full == sizes, True
    if not whole:  # the last iterations too, where mistakes are most likely
        ends = {n: v + (f - s) for (n, v), f, s in zip(values.items(), full, sizes, strict=True)}
        values = {n: np.concatenate([values[n], ends[n]]) for n in values}
    keep = np.ones(len(next(iter(values.values()))) if values else 1, bool)
    for c in conditions:
        try:
            keep &= evaluate(c, values)
        except Opaque:
            certain = False
    return _Points({n: v[keep] for n, v in values.items()}, whole, certain, int(np.count_nonzero(keep)))
