"""Common parts of templates for GPUs: tiles that all threads fetch, and loops bound to blocks and threads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from types import MappingProxyType

from schedule.machine import MAX_ACCESS_BYTES
from schedule.open_schedule import OpenSchedule
from schedule.open_trace import Role
from tir import dtypes
from tir.arith.polynomial import polynomial
from tir.arith.symbolic import map_choice
from tir.ir import Binary, Block, Call, Const, Expr, Load, Store, Var
from tir.traverse import loads, stores, variables, walk

from ..block_analysis import epilogue
from ..marks import fuse_all

MAX_GROUPED_ROWS = 8  # most rows of blocks that run together
LEAST_COPY_BYTES = 4  # that `cp.async` moves
MIN_ROW_FOR_WARP = 32  # least elements of a row that are worth a warp
APART = ((1, 1), (2, 4))  # factors that split eight rows of a tile: copied in their order, or in pairs of rows four apart
RESIDENT_BLOCKS = (1, 2, 3)  # blocks for which an SM has registers


def innermost(x: Load) -> Expr:
    """The index that walks the memory of a buffer: the last one but for dimensions of one element."""
    indexed = zip(x.indices, x.buffer.shape, strict=True)
    return ([i for i, d in indexed if not (isinstance(d, Const) and d.is_one)] or x.indices)[-1]


def has_threads(s: OpenSchedule, block: str) -> bool:
    """True where a loop around the block is bound to threads already."""
    return any(s.loop(x).thread for x in s.get_loops(block))


def reduces_along_memory(b: Block) -> bool:
    """True where the innermost reduction axis walks the memory of all operands that it indexes, and is long enough for a warp."""
    reduce_axes = b.reduction
    if not reduce_axes or not isinstance(b.body, Store):
        return False
    inner = reduce_axes[-1]
    read = [x for x in loads(b.body.value) if x.buffer.name != b.body.buffer.name and x.indices]
    using = [x for x in read if inner.var.name in variables(*x.indices)]
    walks = all(inner.var.name in variables(innermost(x)) for x in using)
    return bool(using) and walks and isinstance(inner.extent, Const) and int(inner.extent.value) >= MIN_ROW_FOR_WARP


def accumulate(s: OpenSchedule, block: str, scope: str) -> str:
    """Let a block accumulate in a buffer of a scope; returns the block that writes the result: its epilogue, or a copy."""
    after = epilogue(s, block, anywhere=True)
    if after is not None and after not in s.scheduled:
        s.set_scope(block, 0, scope)
        return after
    return s.cache_write(block, 0, scope)


def inline_producers(s: OpenSchedule, copy: str) -> None:
    """Compute an operand's elementwise stages, such as padding, as it is loaded; not costly stages of a reduction's result."""
    for name in s.get_producers(copy):
        b = s.block(name)
        if b.init is not None or name in s.scheduled or s.get_consumers(name) != [copy]:
            continue
        if any(isinstance(n, Call) for n in walk(b.body)) and any(s.block(p).is_reduction for p in s.get_producers(name)):
            continue
        if s.attempt(inline_stage, name):
            inline_producers(s, copy)
            return


def inline_stage(s: OpenSchedule, name: str) -> None:
    """Inline a stage, and record that as the rule `inline`."""
    s.compute_inline(name)
    s.rules.append(f"{name}: inline")
    s.pending = [b for b in s.pending if b != name]


def pad(
    s: OpenSchedule, block: str, lengths: Mapping[str, Sequence[int]], units: Mapping[str, int] = MappingProxyType({})
) -> None:
    """Pad the axes of a block to multiples of their tiles: the product of the `lengths` of all levels, in `units` of elements."""
    axes = [it.var.name for it in s.block(block).iters]
    s.pad_einsum(block, [prod(lengths[name]) * units.get(name, 1) if name in lengths else 1 for name in axes])


def grouped(blocks: int) -> int:
    """The number of rows of blocks that run together, so that L2 holds the tiles of a wave; it divides the number of all rows."""
    return max(g for g in range(1, MAX_GROUPED_ROWS + 1) if blocks % g == 0)


def choose_pipeline(
    s: OpenSchedule, block: str, grid: str, step: str, stages: tuple[int, ...], seed: int | None = None, resident: int = 1
) -> None:
    """Leave open the stages of the software pipeline, each with a tile in shared memory, and the blocks of an SM that registers
    are kept for. Without asynchronous copies there are at most three stages. `seed` and `resident` are the seeds."""
    known = stages if s.target.machine.modern else tuple(n for n in stages if n <= 3)
    s.annotate(step, "pipeline_stages", s.choose(f"{block} stages", known, seed=seed, block=block, role=Role.STAGES))
    resident = s.choose(f"{block} resident", RESIDENT_BLOCKS, seed=resident, block=block, role=Role.RESIDENT)
    s.annotate(grid, "resident_blocks", resident)


def choose_row_order(s: OpenSchedule, block: str, copy: str, nbytes: int) -> None:
    """Leave open the order in which the rows of a tile are copied. 128 bytes are stored at once. Where these are two rows, rows
    four apart are better: the next row begins 80 bytes on, so that it ends in banks of the first."""
    row, _ = s.get_loops(copy)[-2:]
    apart = s.choose(f"{copy} rows apart", APART, seed=APART[2 * nbytes == 128], block=block)
    _, two, four = s.split(row, [None, map_choice(apart, lambda v: v[0]), map_choice(apart, lambda v: v[1])])
    s.reorder(four, two)


def load_together(
    s: OpenSchedule, block: str, copy: str, buffer: str, threads: Sequence[int], lanes: int = 1, around: int = 2
) -> None:
    """Have all threads of a block load a tile of an operand `buffer` together, neighbours side by side. Each loads an open number
    of elements at once, `lanes` at the seed.

    `threads` are the extents of the thread axes, x last. The first `around` loops of the copy, of blocks and steps, stay; threads
    share the others.
    """
    own = s.get_loops(copy)[around:]
    nbytes = dtypes.nbytes(stores(s.block(copy).body)[0].buffer.dtype)
    widths = tuple(w for w in (1, 2, 4, 8, 16) if w * nbytes <= MAX_ACCESS_BYTES)
    width = s.choose(f"{copy} vector", widths, seed=lanes, block=block, role=Role.COPY_WIDTH, buffer=buffer)
    *own, lane = [*own[:-1], *s.split(own[-1], [None, width])]
    fused = fuse_all(s, own)
    _, *names = s.split(fused, [None, *threads])
    for axis, loop in zip("xyz", reversed(names), strict=False):
        s.bind(loop, f"threadIdx.{axis}")
    s.vectorize(lane)


def lanes_of(source: Load | None, shape: Sequence[int], threads: int) -> int:
    """The number of elements that a thread loads at once from `source` into a tile of some shape: the same for all threads, but
    where they are less than an asynchronous copy moves, so that fewer threads copy."""
    nbytes = dtypes.nbytes(source.dtype) if source is not None else MAX_ACCESS_BYTES
    lanes, least = MAX_ACCESS_BYTES // nbytes, LEAST_COPY_BYTES // nbytes
    while lanes > 1 and (shape[-1] % lanes or (lanes > least and prod(shape) % (lanes * threads)) or not _aligned(source, lanes)):
        lanes //= 2
    return lanes


def source_of(s: OpenSchedule, copy: str) -> Load | None:
    """The load of a copy; None if it has none."""
    return next(iter(loads(s.block(copy).body)), None)


def _aligned(source: Load | None, lanes: int) -> bool:
    """True where the elements loaded lie in groups of `lanes`, which start where vectors may."""
    if source is None:
        return False
    dims = [(i, d) for i, d in zip(source.indices, source.buffer.shape, strict=True) if not (isinstance(d, Const) and d.is_one)]
    if not dims or not isinstance(dims[-1][1], Const):
        return False
    return int(dims[-1][1].value) % lanes == 0 and _moves_by_lanes(dims[-1][0], lanes)


def _moves_by_lanes(index: Expr, lanes: int) -> bool:
    """True where an index follows one axis through whole groups of `lanes`."""
    match index:
        case Var():
            return True
        case Binary("%", a, Const(c)):
            return c % lanes == 0 and _moves_by_lanes(a, lanes)
        case Binary("+" | "-"):
            rest = [(m, c) for m, c in polynomial(index).items() if c % lanes]
            return len(rest) == 1 and rest[0][1] == 1 and len(rest[0][0]) == 1 and _moves_by_lanes(rest[0][0][0], lanes)
        case _:
            return False


def bind_group(s: OpenSchedule, loops: list[str], kind: str) -> None:
    """Bind the last of some nested loops to x, and the others, fused, to y."""
    s.bind(loops[-1], f"{kind}.x")
    if len(loops) > 1:
        s.bind(s.fuse(*loops[:-1]) if len(loops) > 2 else loops[0], f"{kind}.y")


def bind_blocks(s: OpenSchedule, loops: list[str]) -> str:
    """Bind the outermost loops of a nest to blockIdx.x, fused: other axes of a grid have at most 65535 blocks."""
    fused = fuse_all(s, loops)
    s.bind(fused, "blockIdx.x")
    return fused
