"""Long sums of products with few results (split-K): parts of the sum are products of their own, whose results are added up."""

from __future__ import annotations

from schedule.primitive import find_block
from schedule.schedule import Schedule
from tir.ir import Axis, Var
from tir.traverse import loads

from ..library.structure import Contraction, extent, loop_of, size
from .launch import PROCESSORS

EDGE = 64  # rows and columns of a tile that uses a processor well
LEAST = 256  # steps of a part


def parts(c: Contraction) -> int:
    """Into how many parts of equal length to split the sum of a product of matrices, so that there is work for all processors."""
    blocks = -(-size(c.rows) // EDGE) * -(-size(c.columns) // EDGE) * size(c.batch)
    steps = extent(c.sums[0])
    if blocks >= PROCESSORS // 2:
        return 1
    return max(n for n in range(1, max(2, 2 * PROCESSORS // blocks + 1)) if steps % n == 0 and (n == 1 or steps // n >= LEAST))


def apply(s: Schedule, c: Contraction) -> None:
    """Make the parts of a sum a batch of products, which one kernel computes, and whose results another one adds.

    Rewrite   C[i, j] += A[i, k] * B[k, j]
           => C_rf[p, i, j] += A'[p, i, k] * B'[p, k, j];   C[i, j] += C_rf[p, i, j]      # A', B' inlined where loaded
    """
    n = parts(c)
    if n == 1:
        return
    outer, _ = s.split(loop_of(c.sums[0]), [n, None])
    product = s.rfactor(outer)
    axes = find_block(s.func, product).iters
    old = {it.var.name for it in (*c.batch, *c.rows, *c.columns)}
    part = next(it.var.name for it in axes if it.axis is Axis.SPATIAL and it.var.name not in old)
    step = next(it.var.name for it in axes if it.axis is Axis.REDUCE)
    for factor in (c.left, c.right):
        load = next(x for x in loads(find_block(s.func, product).body) if x.buffer.name == factor.buffer.name)
        order = [i.name if isinstance(i, Var) else step for i in load.indices]
        s.reindex_cache_read(product, factor.buffer.name, "global", _index_map([it.var.name for it in axes], [part, *order]))


def _index_map(axes: list[str], chosen: list[str]) -> str:
    return f"lambda {', '.join(axes)}: ({', '.join(chosen)})"
