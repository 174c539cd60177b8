"""tile: two nested loops become a loop over tiles and a loop within them."""

from __future__ import annotations

from tir.ir import PrimFunc

from ...primitive import LoopName, fixed_factors, primitive
from .reorder import reorder
from .split import split


@primitive
def tile(func: PrimFunc, x: LoopName, y: LoopName, x_factor: int, y_factor: int) -> tuple[PrimFunc, list[str]]:
    """Split two nested loops and order them outer x, outer y, inner x, inner y; returns these four names.

    The extents of the inner loops are `x_factor` (below: f) and `y_factor` (g).

    Rewrite   for i, j in T.grid(M, N): S(i, j)
           => for i_0, j_0, i_1, j_1 in T.grid(ceil(M / f), ceil(N / g), f, g):
                  S(i_0 * f + i_1, j_0 * g + j_1)      # where these are less than M and N, unless that is proved
    Legal     if `split` of both by [None, factor], and then `reorder` of the four loops, are legal.
    Example   matmul: s.tile("i", "j", 4, 4)
    """
    fixed_factors([x_factor, y_factor], example=f"tile({x!r}, {y!r}, 4, 16)")
    func, (x_outer, x_inner) = split(func, x, [None, x_factor])
    func, (y_outer, y_inner) = split(func, y, [None, y_factor])
    func, _ = reorder(func, x_outer, y_outer, x_inner, y_inner)
    return func, [x_outer, y_outer, x_inner, y_inner]
