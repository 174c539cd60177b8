"""Attention, softmax(Q Kᵀ) V, as one kernel: scores of a tile of rows by a tile of keys live in registers, and nowhere else.

A block has some rows of queries, a warp some of these. It goes through the keys tile by tile, and corrects its sums where a
maximum grows (`rolling_update`). Source: Dao, FlashAttention-2, ICLR 2024.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from schedule.open_schedule import Declined, OpenSchedule, Stage, extent
from tir import dtypes
from tir.ir.buffers import Load
from tir.ir.statements import Store
from tir.memory import WARP, WARP_SCOPE
from tir.traverse import loads, variables

from .. import attention
from ..block_analysis import Contraction, at_axes, contraction, driven_axes, is_elementwise, last_axis, size, stored
from ..row_normalisation import allow_reciprocals
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
from .products import REGISTER_BYTES

MAX_WARPS = 4  # warps of a block, each with a fragment of rows
MAX_KEY_BYTES = 128  # of a tile's keys in an element each: scores and weights take half of a lane's registers with the results
MAX_RESULTS = 128  # most registers of a lane that hold the results
STAGES = (2, 1, 3)  # tiles of keys and values that take turns


class AttentionInOneKernel(Template):
    """Products of floats with a softmax of rows between them, from sm_80 on: by tensor cores, or for float32 by multiply-adds."""

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
    known = all(tensor_cores.matches(s.block(c.block), exact=True) for c in found.products)
    widest = max(size(found.scores.reduction), size(found.result.columns))
    return found if known and _registers(found.result, widest) <= MAX_RESULTS else None


def _registers(c: Contraction, width: int) -> int:
    """The registers of a lane that hold so many columns of a result, for a fragment of rows."""
    return tensor_cores.FRAGMENT * width // WARP * -(-dtypes.nbytes(c.store.buffer.dtype) // REGISTER_BYTES)


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
    matched = tensor_cores.matches(s.block(first), exact=True)
    assert matched is not None
    _, how = matched
    (row,), (column,), (depth,) = scores.rows, scores.columns, scores.reduction
    (own,), (width,), (key,) = result.rows, result.columns, result.reduction
    fragment, results = tensor_cores.FRAGMENT, _registers(result, extent(width))
    lanes_multiply, wide = how.factors == "f32", results > MAX_RESULTS // 2
    warps = min(MAX_WARPS, -(-extent(row) // fragment))
    height, nbytes = warps * fragment, dtypes.nbytes(scores.right.buffer.dtype)
    most = min(MAX_KEY_BYTES // nbytes // (2 if wide else 1), -(-extent(key) // fragment) * fragment)
    inside, across = (-(-extent(x) // fragment) * fragment for x in (depth, width))

    def fits(keys: int, stages: int) -> bool:
        tiles = tensor_cores.tile_bytes(scores.right, depth.var.name, inside, keys)
        tiles += tensor_cores.tile_bytes(result.right, key.var.name, keys, across)
        own = tensor_cores.tile_bytes(scores.left, depth.var.name, inside, height)
        return own + stages * tiles <= s.target.machine.shared

    sizes = range(max(most, fragment), 0, -fragment)
    keys, stages = next(((k, n) for n in STAGES[:2] for k in sizes if fits(k, n)), (0, 0))
    if not keys:
        raise Declined("the tiles do not fit shared memory")

    sources = ((first, scores.left), (first, scores.right), (last, result.right))
    shared = [s.cache_read(b, x.buffer.name, "shared") for b, x in sources]
    s.set_scope(first, 0, WARP_SCOPE)
    after = accumulate(s, last, WARP_SCOPE)
    for copy in shared:
        inline_producers(s, copy)
    pad(s, first, {row.var.name: [height], column.var.name: [keys], depth.var.name: [fragment]})
    pad(s, last, {own.var.name: [height], width.var.name: [fragment], key.var.name: [keys]})
    held = [s.cache_read(b, stored(s.block(x)).buffer.name, WARP_SCOPE) for x, (b, _) in zip(shared, sources, strict=True)]
    between = [*rows.stages, rows.last]
    for name in between:
        s.set_scope(name, 0, WARP_SCOPE)

    steps = list[str]()
    for name, across in ((first, rank + 1), *((x, -1) for x in (*between, last))):
        steps += _tile(s, name, rank, across, (height, keys), name in rows.reductions)
    step = s.rolling_update(*steps)
    last = f"{last}_update"
    if lanes_multiply:  # each lane of a row has the weights of the row
        held.insert(2, s.cache_read(last, stored(s.block(rows.last)).buffer.name, WARP_SCOPE))
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
        shape = [length, inside if inner is depth else across]
        lanes = lanes_of(source_of(s, copy), shape if last_axis(x) == inner.var.name else shape[::-1], warps * WARP)
        load_together(s, result.block, copy, x.buffer.name, [warps, WARP], lanes, around)
        tensor_cores.align(s, copy, x, c.reduction[0].var.name)
    choose_pipeline(s, result.block, blocks, step, STAGES, stages, 1 if wide else 2)
    for name in s.get_child_blocks(blocks):
        if s.block(name).init is not None:
            s.decompose_reduction(name, next(x for x in s.get_loops(name) if x not in (blocks, step)))
    for name in s.get_child_blocks(blocks):
        if not any("threadIdx" in s.loop(x).thread for x in s.get_loops(name)):
            _share_rows(s, name, rank, (blocks, step), warps)
            allow_reciprocals(s, name, s.get_loops(name)[-1])
        s.scheduled[name] = Stage.BOUND
    for name in (*between, first, result.block, after):
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
    s.reorder(warp, kk, across, tile, half, ii, jj, ki)
    for copy in held:
        s.compute_at(copy, across if copy == held[-1] else kk)
    if s.block(block).init is not None:
        start = s.get_loops(s.decompose_reduction(block, warp))
        s.bind(start[start.index(step) + 1], "threadIdx.y")
    s.bind(warp, "threadIdx.y")
    factors = (c.left, c.right)[-len(held) :]
    tensor_cores.load_fragments(s, held, factors, c.reduction[0].var.name, how)
    s.tensorize(ii, how.name(c))
    s.unroll(kk)
