"""Attention, softmax(Q Kᵀ) V, as one kernel: scores of a tile of rows by a tile of keys live in registers, and nowhere else.

A block has some rows of queries, a warp some of these. It goes through the keys tile by tile, and corrects its sums where a
maximum grows (`rolling_update`). Source: Dao, FlashAttention-2, ICLR 2024.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from schedule.open_schedule import OpenSchedule, Stage, extent
from tir.ir.buffers import Load
from tir.ir.statements import Store
from tir.memory import WARP, WARP_SCOPE
from tir.traverse import loads, variables

from .. import attention
from ..block_analysis import Contraction, at_axes, contraction, driven_axes, is_elementwise, last_axis, size, stored
from ..rowwise import allow_reciprocals
from ..template import Template, Verdict
from . import tensor_cores
from .launch import (
    accumulate,
    bind_blocks,
    choose_pipeline,
    inline_producers,
    inline_stage,
    lanes_of,
    load_together,
    pad,
    source_of,
)

MAX_WARPS = 4  # warps of a block, each with a fragment of rows
MAX_KEYS = 64  # keys of a tile: scores, weights and results of a warp's rows are about 200 registers a lane
MAX_WIDTH = 256  # most elements of a vector of a value: 128 registers a lane hold the results
STAGES = (2, 1, 3)  # tiles of keys and values that take turns


class AttentionInOneKernel(Template):
    """Products of float16 and bfloat16 with a softmax of rows between them, from sm_80 on."""

    name = "attention in one kernel"

    def applies(self, s: OpenSchedule, block: str) -> Verdict:
        if block in s.scheduled or not s.target.machine.modern or contraction(s.block(block)) is None:
            return Verdict.SKIP
        return Verdict.SKIP if matches(s.copy(), block) is None else Verdict.ONLY

    def change(self, new: OpenSchedule, block: str) -> None:
        found = matches(new, block)
        assert found is not None
        build(new, found)


def matches(s: OpenSchedule, block: str) -> attention.Attention | None:
    """The attention that ends with the product `block`, once its factors have axes as indices."""
    found = attention.matches(s, _by_axes(s, block))
    if (
        found is None
        or found.weights is None
        or any(not s.own_loops(b) or b in s.scheduled for b in (block, *found.weights.stages))
    ):
        return None
    for name in dict.fromkeys(p for b in (*found.weights.stages, found.weights.last) for p in s.get_producers(b)):
        _by_axes(s, name)
    for name in found.weights.stages:
        if is_elementwise(s.block(name)) and len(s.get_consumers(name)) == 1:
            s.attempt(inline_stage, name)
    found = attention.matches(s, block)
    if found is None or found.scores is None or found.weights is None or len(found.weights.reductions) != 2:
        return None
    widest = max(size(found.scores.reduction), size(found.result.columns))
    return found if widest <= MAX_WIDTH and all(tensor_cores.matches(s.block(c.block)) for c in found.products) else None


def _by_axes(s: OpenSchedule, block: str) -> str:
    """Have a product read its factors where they lie, without copies before it, and at its own axes; copies are inlined later."""
    for name in s.get_producers(block) if contraction(s.block(block)) is not None else ():
        if is_elementwise(s.block(name)) and isinstance(stored(s.block(name)).value, Load) and s.get_consumers(name) == [block]:
            s.attempt(inline_stage, name)
    c = contraction(s.block(block))
    for factor in () if c is None else (c.left, c.right):
        if not at_axes(factor):
            s.attempt(lambda new, name=factor.buffer.name: new.reindex(block, name))  # type: ignore[misc]
    return block


def build(s: OpenSchedule, found: attention.Attention) -> None:
    """Schedule the products and the stages between them."""
    scores, result, rows = found.scores, found.result, found.weights
    assert scores is not None and rows is not None
    first, last, rank = scores.block, result.block, len(result.batch)
    matched = tensor_cores.matches(s.block(first))
    assert matched is not None
    _, how = matched
    (row,), (column,), (depth,) = scores.rows, scores.columns, scores.reduction
    (own,), (width,), (key,) = result.rows, result.columns, result.reduction
    fragment = tensor_cores.FRAGMENT
    warps = min(MAX_WARPS, -(-extent(row) // fragment))
    height, wide = warps * fragment, extent(width) > MAX_WIDTH // 2
    keys = min(MAX_KEYS // 2 if wide else MAX_KEYS, -(-extent(key) // fragment) * fragment)

    sources = ((first, scores.left), (first, scores.right), (last, result.right))
    shared = [s.cache_read(b, x.buffer.name, "shared") for b, x in sources]
    s.set_scope(first, 0, WARP_SCOPE)
    after = accumulate(s, last, WARP_SCOPE)
    for copy in shared:
        inline_producers(s, copy)
    pad(s, first, {row.var.name: [height], column.var.name: [keys], depth.var.name: [fragment]})
    pad(s, last, {own.var.name: [height], width.var.name: [fragment], key.var.name: [keys]})
    held = [s.cache_read(b, stored(s.block(x)).buffer.name, WARP_SCOPE) for x, (b, _) in zip(shared, sources, strict=True)]
    stages = [*rows.stages, rows.last]
    for name in stages:
        s.set_scope(name, 0, WARP_SCOPE)

    steps = list[str]()
    for name, across in ((first, rank + 1), *((x, -1) for x in (*stages, last))):
        steps += _tile(s, name, rank, across, (height, keys), name in rows.reductions)
    step = s.rolling_update(*steps)
    last = f"{last}_update"
    grid = s.get_loops(last)[: rank + 1]
    _multiply(s, first, scores, held[:2], step, warps, how)
    _multiply(s, last, result, held[2:], step, warps, how)
    for copy, place in zip(shared, (grid[-1], step, step), strict=True):
        s.compute_at(copy, place, index=-2)
    s.reverse_compute_at(after, grid[-1])
    s.split(s.get_loops(after)[-1], [None, fragment])
    blocks = bind_blocks(s, grid)
    for copy, (_, x), length in zip(shared, sources, (height, keys, keys), strict=True):
        c, around = (result, 2) if x is result.right else (scores, 1 if x is scores.left else 2)
        inner = width if x is result.right else depth
        shape = [length, -(-extent(inner) // fragment) * fragment]
        lanes = lanes_of(source_of(s, copy), shape if last_axis(x) == inner.var.name else shape[::-1], warps * WARP)
        load_together(s, result.block, copy, x.buffer.name, [warps, WARP], lanes, around)
        tensor_cores.align(s, copy, x, c.reduction[0].var.name)
    choose_pipeline(s, result.block, blocks, step, STAGES, STAGES[0], 1 if wide else 2)
    for name in s.get_child_blocks(blocks):
        if s.block(name).init is not None:
            s.decompose_reduction(name, next(x for x in s.get_loops(name) if x not in (blocks, step)))
    for name in s.get_child_blocks(blocks):
        if not any("threadIdx" in s.loop(x).thread for x in s.get_loops(name)):
            _share_rows(s, name, rank, (blocks, step), warps)
            allow_reciprocals(s, name, s.get_loops(name)[-1])
        s.scheduled[name] = Stage.BOUND
    for name in (*stages, first, result.block, after):
        s.scheduled[name] = Stage.BOUND
        s.pending = [x for x in s.pending if x != name]


def _tile(s: OpenSchedule, block: str, rank: int, across: int, tile: tuple[int, int], reduces: bool) -> list[str]:
    """Divide the rows and the keys of a stage, its loop number `across`, in tiles; returns the loops over tiles of keys. A stage
    that `reduces` a row has partial results for each tile, and another such loop over these."""
    loops = s.get_loops(block)
    outer, inner = s.split(loops[rank], [None, tile[0]])
    step, key = s.split(loops[across], [None, tile[1]])
    rest = [x for x in loops[rank + 1 :] if x != loops[across]]
    s.reorder(outer, step, inner, *([key, *rest] if across >= 0 else [*rest, key]))
    if not reduces:
        return [step]
    s.rfactor(step, rank + 1)
    return [step, s.get_loops(block)[rank + 1]]


def _share_rows(s: OpenSchedule, block: str, rank: int, around: Collection[str], warps: int) -> None:
    """Have each warp do its rows of a stage, which are dimension `rank` of what it holds."""
    b = s.block(block)
    accesses: list[Load | Store] = [stored(b), *loads(b.body)]
    place = next(x.indices[rank] for x in accesses if x.buffer.scope == WARP_SCOPE)
    (axis,), driven = variables(place), driven_axes(b)
    loop = next(x for x in s.get_loops(block) if x not in around and driven.get(x) == axis)
    warp, _ = s.split(loop, [warps, tensor_cores.FRAGMENT])
    s.bind(warp, "threadIdx.y")


def _multiply(
    s: OpenSchedule,
    block: str,
    c: Contraction,
    held: Sequence[str],
    step: str,
    warps: int,
    how: tensor_cores.TensorCoreInstruction,
) -> None:
    """Have warps multiply the tiles of a step by tensor cores, with fragments of the factors `held` in registers."""
    driven, below = driven_axes(s.block(block)), s.get_loops(block)
    loops = {driven[x]: x for x in below[below.index(step) + 1 :]}
    row, column, depth = (loops[x[0].var.name] for x in (c.rows, c.columns, c.reduction))
    warp, tile, ii = s.split(row, [warps, None, tensor_cores.FRAGMENT])
    across, half, jj = s.split(column, [None, 2, tensor_cores.FRAGMENT // 2])
    kk, ki = s.split(depth, [None, how.depth])
    s.reorder(warp, kk, tile, across, half, ii, jj, ki)
    for copy in held:
        s.compute_at(copy, kk)
    if s.block(block).init is not None:
        start = s.get_loops(s.decompose_reduction(block, warp))
        s.bind(start[start.index(step) + 1], "threadIdx.y")
    s.bind(warp, "threadIdx.y")
    factors = (c.left, c.right)[-len(held) :]
    tensor_cores.load_fragments(s, held, factors, c.reduction[0].var.name, how)
    s.tensorize(ii, how.name(c))
    s.unroll(kk)
