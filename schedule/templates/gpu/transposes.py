"""Elementwise blocks that read an array across its rows, as transposes do: squares in shared memory, both sides by whole lines.

A block of threads loads the square that its results need along the rows of the array, and writes along the rows of the result.
Rows of the square have an odd number of elements, so that threads that walk a column meet different banks.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from math import prod

from schedule.machine import STATIC_SHARED_BYTES
from schedule.open_schedule import OpenSchedule, extent
from schedule.open_trace import Role
from tir import dtypes
from tir.ir import Block, Const, Iter, Load, Var
from tir.memory import WARP
from tir.traverse import loads, variables

from ..block_analysis import counted, is_elementwise, size, stored
from ..marks import fuse_all
from .launch import bind_blocks

THREADS = (256, 128, 64, 512)
SQUARES = (1, 2)  # lengths of a square's edges, by the seed's: longer ones take more shared memory, and may be less full
WORD = 4  # bytes that a thread moves at once, so that a warp moves a line
LINE_BYTES = WARP * WORD
ODD = (2, 1)  # lengths of the rows of a square: a multiple of the first plus the second


@dataclass(frozen=True, slots=True)
class Transpose:
    """A block's axes in groups that lie together in the result and in the loads across, in the order of the result. `along` is
    the number of the group that walks the memory of these `loads`; the last group walks the result."""

    groups: tuple[tuple[Iter, ...], ...]
    along: int
    loads: tuple[Load, ...]
    nbytes: int  # of the narrowest element


def matches(block: Block) -> Transpose | None:
    """The block as a transpose, if it reads arrays along another axis than it writes."""
    if not is_elementwise(block) or not all(isinstance(it.extent, Const) for it in block.iters):
        return None
    body = stored(block)
    axes = {it.var.name: it for it in block.iters if extent(it) > 1}
    order = [i.name for i in body.indices if isinstance(i, Var) and i.name in axes]
    found = list(dict.fromkeys(loads(body.value)))
    across: dict[Load, list[str]] = {}
    for x in found:
        walked = [i.name for i in x.indices if isinstance(i, Var) and i.name in axes]
        rest = [i for i in x.indices if not (isinstance(i, Var) and i.name in axes)]
        plain = all(isinstance(i, (Var, Const)) for i in rest) and len(set(walked)) == len(walked)
        if plain and walked and walked[-1] != order[-1] and order[-1] in walked and sum(y.buffer == x.buffer for y in found) == 1:
            across[x] = walked
    if len({tuple(walked) for walked in across.values()}) != 1:
        return None
    walked = next(iter(across.values()))
    together = set(pairwise(walked))
    groups: list[list[str]] = []
    for name in order:
        if groups and (groups[-1][-1], name) in together:
            groups[-1].append(name)
        else:
            groups.append([name])
    narrowest = min(dtypes.nbytes(b.dtype) for b in (body.buffer, *(x.buffer for x in across)))
    along = next(n for n, group in enumerate(groups) if walked[-1] in group)
    return Transpose(tuple(tuple(axes[name] for name in group) for group in groups), along, tuple(across), narrowest)


def edges(t: Transpose) -> tuple[int, int]:
    """The elements of a square along the rows of the loads and of the result: a line each, and an
    element of each thread of a warp at least; more of one where the other is short."""
    line = max(WARP, LINE_BYTES // t.nbytes)
    along, columns = size(t.groups[t.along]), size(t.groups[-1])
    first, second = min(along, line), min(columns, line)
    return (first, min(columns, line * line // first)) if first < line else (min(along, line * line // second), second)


def build(s: OpenSchedule, block: str, t: Transpose) -> None:
    """Bind squares of a transpose to blocks, and their elements to threads. ScheduleError where a step is refused."""
    axes = s.block(block).iters
    single = tuple(it for it in axes if extent(it) == 1)
    batch = [group for n, group in enumerate(t.groups[:-1]) if n != t.along]
    along, last = t.groups[t.along], t.groups[-1]
    copies = [
        s.reindex_cache_read(block, x.buffer.name, "shared", counted(axes, (), *_read(x, batch), last, along)) for x in t.loads
    ]
    s.transform_block_layout(block, counted(axes, single, *batch, along, last))
    for copy, x in zip(copies, t.loads, strict=True):
        own = [it for it in axes if it.var.name in variables(*x.indices)]
        s.transform_block_layout(copy, counted(own, (), *_read(x, batch), last, along))
    down, across = edges(t)
    down, across = (
        s.choose(f"{block} {name}", tuple(n * edge for n in SQUARES), block=block)
        for name, edge in (("rows", down), ("columns", across))
    )
    s.at_most(STATIC_SHARED_BYTES // (2 * sum(dtypes.nbytes(x.dtype) for x in t.loads)), down, across)
    threads = s.choose(f"{block} threads", THREADS, block=block, role=Role.PARALLEL)
    *outer, row, column = s.get_loops(block)
    row_block, row = s.split(row, [None, down])
    column_block, column = s.split(column, [None, across])
    s.reorder(*outer, row_block, column_block, row, column)
    grid = bind_blocks(s, [*outer, row_block, column_block])
    for copy, x in zip(copies, t.loads, strict=True):
        s.compute_at(copy, grid)
        s.storage_align(copy, 0, -2, *ODD)
        _bind_elements(s, s.get_loops(copy)[1:], threads, _lanes(x, along))
    _bind_elements(s, s.get_loops(block)[1:], threads, _lanes(stored(s.block(block)), last))


def _read(x: Load, batch: list[tuple[Iter, ...]]) -> list[tuple[Iter, ...]]:
    """The groups of a batch that a load has as indices."""
    names = {i.name for i in x.indices if isinstance(i, Var)}
    return [group for group in batch if group[0].var.name in names]


def _bind_elements(s: OpenSchedule, loops: list[str], threads: int, lanes: int) -> None:
    """Bind the elements of a square to threads, `lanes` neighbours to each."""
    _, thread, lane = s.split(fuse_all(s, loops), [None, threads, lanes])
    s.bind(thread, "threadIdx.x")
    s.vectorize(lane)


def _lanes(x, group: tuple[Iter, ...]) -> int:
    """The elements of a word, if rows of the array consist of whole words."""
    n = max(1, WORD // dtypes.nbytes(x.buffer.dtype))
    return n if prod(map(extent, group)) % n == 0 else 1
