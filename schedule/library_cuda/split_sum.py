"""Long reductions with few results: parts of them are reduced by one kernel, and their results by another one (`rfactor`)."""

from __future__ import annotations

from schedule.machine import GPU, H100
from schedule.primitive import find_block, loops_of
from schedule.schedule import Schedule
from tir.ir import Axis, Const, Var

from ..templates.structure import Contraction, extent, loop_of, size
from . import rows
from .products import matches

EDGE = 64  # rows and columns of a tile that uses a processor well
LEAST = 256  # steps of a part of a product
STEPS = 64  # steps of a part of any other reduction, for each thread
STEP = 32  # parts are multiples of it, as tiles are


def parts(c: Contraction, gpu: GPU = H100) -> int:
    """Into how many parts to split the sum of a product, so that there is work for all processors."""
    blocks = -(-size(c.rows) // EDGE) * -(-size(c.columns) // EDGE) * size(c.batch)
    if blocks >= gpu.sms // 2:
        return 1
    return max(1, min(2 * gpu.sms // blocks, size(c.sums) // LEAST))


def apply(s: Schedule, c: Contraction, n: int) -> Contraction:
    """Make n parts of the sum of a product of temporaries a batch of products, which one kernel computes; another adds their
    results. Returns the batch.

    Rewrite   C[i, j] += A[i, k] * B[k, j]
           => C_rf[p, i, j] += A[i, p * m + k] * B[p * m + k, j];   C[i, j] += C_rf[p, i, j]   # the sum filled up to n * m steps
    """
    (step,) = c.sums
    length = -(-extent(step) // (n * STEP)) * STEP
    n = -(-extent(step) // length)
    if extent(step) % length:
        s.pad_einsum(c.block, [length * n if it.var.name == step.var.name else 1 for it in find_block(s.func, c.block).iters])
    part, _ = s.split(loop_of(step), [n, None])
    partial = s.rfactor(part)
    product = matches(find_block(s.func, partial))
    assert product is not None
    return product


def in_stages(s: Schedule, block: str, gpu: GPU = H100) -> None:
    """Reduce a block in two stages where one would leave processors idle: parts, over the outermost of its reduce axes, and then
    the parts. Nothing changes for a block that has enough results, few steps, or a prime number of them."""
    b = find_block(s.func, block)
    if b.init is None or not all(isinstance(it.extent, Const) and isinstance(it.binding, Var) for it in b.iters):
        return
    results = size(tuple(it for it in b.iters if it.axis is Axis.SPATIAL))
    sums = tuple(it for it in b.iters if it.axis is Axis.REDUCE)
    row = rows.along(b)
    together = rows.STREAMING if row else 1  # threads that reduce one result
    most = min(gpu.sms * rows.STREAMING // (results * together), size(sums) // (STEPS * together), extent(sums[0]))
    n = max((d for d in range(2, most + 1) if extent(sums[0]) % d == 0), default=1)
    if n == 1:
        return
    outer, _ = s.split(loop_of(sums[0]), [n, None])
    partial = s.rfactor(outer, len(b.iters) - len(sums) if row else 0)
    order = {x.name: i for i, x in enumerate(loops_of(s.func, partial))}
    axes = find_block(s.func, partial).iters
    s.reorder_block_iter_var(partial, sorted(range(len(axes)), key=lambda i: order[loop_of(axes[i])]))
