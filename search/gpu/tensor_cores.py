"""Products of matrices on tensor cores: tiles in shared memory, fragments in the registers of warps."""

from __future__ import annotations

from schedule.library_cuda import products
from schedule.library_cuda.tensor_cores import TF32, Instruction, align, instruction, load_fragments
from schedule.open_schedule import OpenSchedule, Stage
from schedule.templates.structure import Contraction, extent, last_axis, loop_of
from tir.ir import Block, annotation
from tir.memory import WARP

from ..rules.rule import Verdict
from .tiling import accumulate, bind_blocks, fetch, inline_producers, pad, run_ahead

FRAGMENT = 16  # rows and columns of what `ldmatrix` loads; an instruction makes half as many columns of the result
STAGES = (3, 2, 4, 5, 1)


class TileForTensorCores:
    """Products of matrices, or batches of them, for the instruction m16n8k16 (float16, bfloat16) or m16n8k8 (float32, where the
    block is annotated `tf32`), from sm_80 on.

    As `schedule.library_cuda.tensor_cores` does it, with open numbers: the axes are padded to whole tiles; a block loads tiles
    into shared memory some steps ahead; its warps load fragments with `ldmatrix` and multiply them; blocks of some rows go
    through the columns together.
    """

    name = "tiling for tensor cores"

    def applies(self, state: OpenSchedule, block: str) -> Verdict:
        known = block in state.scheduled or state.get_loops(block) != [loop for _, loop in state.axes(block)]
        return Verdict.SKIP if known or _how(state, state.block(block)) is None else Verdict.ONLY

    def apply(self, state: OpenSchedule, block: str) -> list[OpenSchedule]:
        found = _how(state, state.block(block))
        assert found is not None
        new = state.fired(self.name, block)
        _tile(new, *found)
        return [new]


def _how(state: OpenSchedule, block: Block) -> tuple[Contraction, Instruction] | None:
    """What a block multiplies, and the instruction that can do it."""
    c = products.matches(block) if state.target.machine.modern else None
    if c is None or not products.suits(c) or not products.is_matrices(c):
        return None
    how = instruction(c, bool(annotation(block.annotations, TF32, False)))
    return None if how is None else (c, how)


def _tile(state: OpenSchedule, c: Contraction, how: Instruction) -> None:
    s, block = state, c.block
    shared = [s.cache_read(block, x.buffer.name, "shared") for x in (c.left, c.right)]
    after = accumulate(state, block, "warp")
    for copy in shared:
        inline_producers(state, copy)
    (row,), (column,), (step,) = c.rows, c.columns, c.sums
    roles = {row.var.name: "gwf", column.var.name: "wf", step.var.name: "r"}
    units = {row.var.name: FRAGMENT, column.var.name: FRAGMENT, step.var.name: how.depth}
    lengths = {}
    for it in (*c.batch, row, column, step):
        if it.var.name in roles:
            count = -(-extent(it) // units[it.var.name])
            lengths[it.var.name] = state.sizes(
                block, it.var.name, len(roles[it.var.name]), extent=count, roles=roles[it.var.name], padded=True,
                unit=units[it.var.name], missing=count * units[it.var.name] - extent(it),
            )  # fmt: skip
    pad(state, block, lengths, units)
    held = [s.cache_read(block, state.block(copy).body.buffer.name, "warp") for copy in shared]  # type: ignore[attr-defined]
    loops: dict[str, list[str]] = {}
    for it in state.block(block).iters:
        if (name := it.var.name) not in roles:
            continue
        inner = (2, FRAGMENT // 2) if name == column.var.name else (units[name],)
        loops[name] = state.split(loop_of(it), [None, *lengths[name], *inner])
    (by, group, wy, ti, ii), (bx, wx, tj, half, jj), (ko, kk, ki) = (loops[it.var.name] for it in (row, column, step))
    (_, warp_rows, down), (warp_columns, across), _ = (lengths[it.var.name] for it in (row, column, step))
    grid = [*(loop_of(it) for it in c.batch), by, bx, group]
    s.reorder(*grid, ko, wy, wx, kk, ti, tj, half, ii, jj, ki)
    for copy in held:
        s.compute_at(copy, kk)
    for copy in shared:
        s.compute_at(copy, ko)
    s.reverse_compute_at(after, group)
    first = s.decompose_reduction(block, ko)
    blocks = bind_blocks(s, grid)
    _bind_warps(state, s.get_loops(first)[1:3])
    _bind_warps(state, [wy, wx])
    for copy, factor in zip(shared, (c.left, c.right), strict=True):
        fetch(state, block, copy, factor.buffer.name, [warp_columns, warp_rows, WARP])
        align(s, copy, factor, step.var.name)
    load_fragments(s, held, (c.left, c.right), step.var.name, how)
    order = ("n" if last_axis(c.left) == step.var.name else "t") + ("t" if last_axis(c.right) == step.var.name else "n")
    s.tensorize(ii, f"mma_m16n8k{how.depth}_{order}_{how.factors}_{how.sums}")
    s.unroll(kk)
    run_ahead(state, block, blocks, ko, STAGES)
    i, j = s.get_loops(after)[-2:]
    outer, rows = state.split(i, [warp_rows, down * FRAGMENT])
    across_warps, rest = state.split(j, [warp_columns, across * FRAGMENT])
    s.reorder(outer, across_warps, rows, rest)
    _bind_warps(state, [outer, across_warps])
    for name in (block, f"{block}_update", first, after, *shared, *held):
        state.scheduled[name] = Stage.BOUND


def _bind_warps(state: OpenSchedule, loops: list[str]) -> None:
    """Bind the warps along rows and columns; the lanes of a warp are threadIdx.x."""
    for loop, axis in zip(loops, "yz", strict=True):
        state.bind(loop, f"threadIdx.{axis}")
