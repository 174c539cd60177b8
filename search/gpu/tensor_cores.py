"""Products of matrices on tensor cores: tiles in shared memory, fragments in the registers of warps."""

from __future__ import annotations

from schedule.library.structure import Contraction, extent, last_axis, loop_of
from schedule.library_cuda import products
from schedule.library_cuda.tensor_cores import TF32, Instruction, align, instruction, load_fragments
from tir.ir import Block, annotation
from tir.memory import WARP

from ..rules.rule import Verdict
from ..sketch import Hole, Product, State, Tile
from .device import device
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

    def applies(self, state: State, block: str) -> Verdict:
        known = block in state.marks or state.schedule.get_loops(block) != [loop for _, loop in state.axes(block)]
        return Verdict.SKIP if known or _how(state, state.block(block)) is None else Verdict.ONLY

    def apply(self, state: State, block: str) -> list[State]:
        found = _how(state, state.block(block))
        assert found is not None
        new = state.fired(self.name, block)
        _tile(new, *found)
        return [new]


def _how(state: State, block: Block) -> tuple[Contraction, Instruction] | None:
    """What a block multiplies, and the instruction that can do it."""
    c = products.matches(block) if device(state.target).modern else None
    if c is None or not products.suits(c) or not products.is_matrices(c):
        return None
    how = instruction(c, bool(annotation(block.annotations, TF32, False)))
    return None if how is None else (c, how)


def _tile(state: State, c: Contraction, how: Instruction) -> None:
    s, block = state.schedule, c.block
    shared = [s.cache_read(block, x.buffer.name, "shared") for x in (c.left, c.right)]
    after = accumulate(state, block, "warp")
    for copy in shared:
        inline_producers(state, copy)
    (row,), (column,), (step,) = c.rows, c.columns, c.sums
    roles = {row.var.name: "gwf", column.var.name: "wf", step.var.name: "r"}
    units = {row.var.name: FRAGMENT, column.var.name: FRAGMENT, step.var.name: how.depth}
    pad(state, block, roles, units)
    held = [s.cache_read(block, state.block(copy).body.buffer.name, "warp") for copy in shared]  # type: ignore[attr-defined]
    loops: dict[str, list[str]] = {}
    columns: dict[str, tuple[int, ...]] = {}
    for it in state.block(block).iters:
        if (name := it.var.name) not in roles:
            continue
        unit, length = units[name], extent(next(old for old in (row, column, step) if old.var.name == name))
        inner = (2, FRAGMENT // 2) if name == column.var.name else (unit,)
        loops[name], columns[name] = state.split(loop_of(it), len(roles[name]) + 1, inner)
        count = -(-length // unit)
        state.tiles.append(
            Tile(
                block, name, count, name == step.var.name, columns[name], roles=roles[name], padded=True, unit=unit,
                missing=count * unit - length,
            )
        )  # fmt: skip
    (by, group, wy, ti, ii), (bx, wx, tj, half, jj), (ko, kk, ki) = (loops[it.var.name] for it in (row, column, step))
    (_, warp_rows, down), (warp_columns, across), _ = (columns[it.var.name] for it in (row, column, step))
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
        fetch(state, block, copy, factor.buffer.name, [Hole(warp_columns), Hole(warp_rows), WARP])
        align(s, copy, factor, step.var.name)
    load_fragments(s, held, (c.left, c.right), step.var.name, how)
    order = ("n" if last_axis(c.left) == step.var.name else "t") + ("t" if last_axis(c.right) == step.var.name else "n")
    s.tensorize(ii, f"mma_m16n8k{how.depth}_{order}_{how.factors}_{how.sums}")
    s.unroll(kk)
    run_ahead(state, block, blocks, ko, STAGES)
    i, j = s.get_loops(after)[-2:]
    outer, rows = state.split_open(i, [Hole(warp_rows), Product((down,), FRAGMENT)])
    across_warps, rest = state.split_open(j, [Hole(warp_columns), Product((across,), FRAGMENT)])
    s.reorder(outer, across_warps, rows, rest)
    _bind_warps(state, [outer, across_warps])
    for name in (block, f"{block}_update", first, after, *shared, *held):
        state.marks[name] = "tiled"


def _bind_warps(state: State, loops: list[str]) -> None:
    """Bind the warps along rows and columns; the lanes of a warp are threadIdx.x."""
    for loop, axis in zip(loops, "yz", strict=True):
        state.schedule.bind(loop, f"threadIdx.{axis}")
