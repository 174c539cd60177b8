"""Annotations of finished loops: how threads divide the iterations, unrolling, prefetching, and stores past the caches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Unpack

from schedule.error import ScheduleError, listing
from schedule.machine import CACHE_LINE_BYTES, PAGE_BYTES
from schedule.open_schedule import Continuation, OpenSchedule, Stage, extent
from schedule.open_trace import ChoiceKey, Role
from schedule.schedule import Schedule
from tir.ir import NOT_SPATIAL, Block, Kind, PrimFunc, Store, buffer_nbytes
from tir.traverse import axis_loops, blocks, loaded_names, loads, loops, loops_to, stores, variables, walk_stmts

from .block_analysis import stored
from .division import doubled

UNROLL_LIMITS = (0, 16, 64, 512)  # most statements that an unrolled innermost reduction makes, or an iteration of it
# Statements at the seed, enough that jumps take little, also where another thread shares the front end of a core. On such a
# rented machine, a tile of 12 accumulators that jumped at each step of the sum ran at 0.7 of its speed.
UNROLLED_STATEMENTS = 64
PACKED_DISTANCE = PAGE_BYTES // (2 * CACHE_LINE_BYTES)  # iterations of two lines: a page, at whose end hardware prefetchers stop
ANNOTATION_DEFAULTS = {"schedule": "static", "chunk": 0, "prefetch": ()}  # behaviour of a loop without these annotations
CHUNK_SIZES = (0, 1, 16)  # iterations that a thread takes at a time; 0: all its iterations at once


def plain_loops(s: Schedule) -> None:
    """Remove the kinds and annotations of loops around blocks, but for the kinds that `serial` refuses to remove."""
    for loop in loops(s.func):
        if blocks(loop):
            for key, _ in loop.annotations:
                s.unannotate(loop.name, key)
            if loop.kind is not Kind.SERIAL:
                with suppress(ScheduleError):
                    s.serial(loop.name)


def done(s: OpenSchedule, *names: str) -> None:
    """Close the nests of some blocks to all other rules and to annotation."""
    for name in names:
        nest = next(iter(loops_to(s.func.body, name)), None)
        inside = [name] if nest is None else [b.name for b in walk_stmts(nest) if isinstance(b, Block)]
        s.scheduled |= dict.fromkeys(inside, Stage.DONE)


def one_of(
    s: OpenSchedule, name: str, ways: Mapping[str, Continuation], seed: str | None = None, **about: Unpack[ChoiceKey]
) -> None:
    """Add a branch with at least one legal way; ScheduleError if none is."""
    if not s.branch(name, ways, seed=seed, **about):
        raise ScheduleError(f"{name}: no way is legal; there are {listing(list(ways))}")


def teams(s: OpenSchedule, block: str, seed: int, work: int, build: Callable[[OpenSchedule, int], object]) -> None:
    """Branch over the numbers of threads that the nest of a block is built for, `seed` at the seed. `work` is the number of its
    steps. One thread is tried, too, where waking another may cost more than it saves."""
    machine = s.target.machine
    cores = machine.threads(work * machine.core.latency)  # each step may wait for the one before it
    tried = {seed, cores} | ({1} if work * machine.fma_cycles(32) < machine.memory.wake else set())

    def way(threads: int) -> Continuation:
        return lambda new: build(new, threads)

    ways = {_threads_label(threads): way(threads) for threads in sorted(tried, reverse=True)}
    one_of(s, f"parallel loops of {block}", ways, seed=_threads_label(seed), block=block, role=Role.PARALLEL)


def _threads_label(threads: int) -> str:
    return "none parallel" if threads == 1 else f"{threads} threads"


def share_out(s: OpenSchedule, block: str, loops: Sequence[str], work: int, each: float, first: str | None = None) -> None:
    """Have threads share the outermost loops around a block, at the seed where waking them pays. The block has `work` steps of
    `each` cycles; `first` is the first block in the loops, if that is another."""

    def build(new: OpenSchedule, threads: int) -> None:
        if threads > 1:
            share(new, first or block, loops)

    teams(s, block, s.target.machine.threads(work * each), work, build)


def share(s: OpenSchedule, block: str, loops: Sequence[str]) -> None:
    """Have threads share the outermost loops around a block."""
    parallel(s, loops)
    annotate_shares(s, block, block)


def fuse_all(s: Schedule, loops: Sequence[str]) -> str:
    """Fuse nested loops, if there are several; returns the one loop."""
    return s.fuse(*loops) if len(loops) > 1 else loops[0]


def parallel(s: Schedule, loops: Sequence[str]) -> None:
    """Fuse nested loops, and have threads share their iterations."""
    s.parallel(fuse_all(s, loops))


def annotate_shares(s: OpenSchedule, block: str, owner: str, alike: bool = False, uneven: bool = False) -> None:
    """Leave open whether threads take iterations of the parallel loop around a block as they get free, or a share each. The seed
    is the first where iterations are `uneven`. The number taken at a time is open, too, unless they are `alike`: then tile sizes
    decide it."""
    loop = next(x for x in loops_to(s.func.body, block) if x.kind is Kind.PARALLEL).name
    about: ChoiceKey = {"block": owner, "role": Role.PARALLEL}
    schedules = ("dynamic", "static") if uneven else ("static", "dynamic")
    annotate_choice(s, loop, "schedule", f"{block} schedule", schedules, **about)
    if not alike:
        annotate_choice(s, loop, "chunk", f"{block} share", CHUNK_SIZES, **about)


def annotate_choice(s: OpenSchedule, loop: str, key: str, name: str, options: Sequence[Any], **about: Unpack[ChoiceKey]) -> None:
    """Annotate a loop with one of a few values, the seed's first. At the seed, the default of a loop needs no annotation."""
    if not s.at_seed or options[0] != ANNOTATION_DEFAULTS[key]:
        s.annotate(loop, key, s.choose(name, options, **about))


def choose_unroll(
    s: OpenSchedule, block: str, loop: str | None, options: Sequence[int] = UNROLL_LIMITS, seed: int | None = None
) -> None:
    """Leave open the most statements that unrolling in a loop of a block, if there is one, may make."""
    if loop is not None:
        most = s.choose(f"{block} unroll", options, seed=seed, block=block, role=Role.PRAGMA)
        s.annotate(loop, "pragma_auto_unroll_max_step", most)


def stream(s: OpenSchedule, name: str, stages: Sequence[str] = ()) -> None:
    """Leave open whether a block stores a parameter past the caches, where the data of its loops may be too large for L3."""
    block = s.block(name)
    if not isinstance(block.body, Store) or block.is_reduction or not s.get_loops(name):
        return
    size, machine = traffic(s.func, block, *map(s.block, stages)), s.target.machine
    if size <= machine.l2:
        return
    values: tuple[str | tuple[str, ...], ...] = ((), stored(block).buffer.name)
    if 2 * size > machine.l3_bytes:  # other data, and other processes, have the rest
        values = values[::-1]
    seed = () if s.scheduled.get(name) == Stage.FUSED else values[0]
    past = s.choose(f"{name} stores", values, seed=seed, block=name, role=Role.PRAGMA)
    if past != ():
        s.annotate(s.get_loops(name)[0], "non_temporal", past)


def prefetch(s: OpenSchedule, block: str) -> None:
    """Choose how far ahead a reduction prefetches packed constants with the vectorised axis, or else parameters that it reads
    once. Other kernels have evicted the constants since the last call; the parameters are larger than L2."""
    b = s.block(block)
    long = {it.var.name for it in b.iters if extent(it) > 1}
    parameters = {p.name for p in s.func.buffers}
    read = {x.buffer.name: x for x in loads(b.body)}
    large = [
        n for n, x in read.items()
        if n in parameters and buffer_nbytes(x.buffer) > s.target.machine.l2 and long <= variables(*x.indices)
    ]  # fmt: skip
    reduce_loops = axis_loops(b, *NOT_SPATIAL)
    serial = (x for x in loops_to(s.func.body, block) if x.kind is Kind.SERIAL and not x.extent.is_one)
    inner = [x.name for x in serial if x.name in reduce_loops]
    packed = _packed_constants(s, block)
    if inner and packed:
        values = ((), *(tuple((n, ahead) for n in packed) for ahead in doubled(PACKED_DISTANCE)[:1:-1]))
        ahead = s.choose(f"{block} prefetch", values, seed=values[1], block=block, role=Role.PRAGMA)
        s.annotate(inner[-1], "prefetch", ahead)
    elif large and inner:
        values = ((), *(tuple((n, ahead) for n in large) for ahead in doubled(PACKED_DISTANCE)[2:]))
        annotate_choice(s, inner[-1], "prefetch", f"{block} prefetch", values, block=block, role=Role.PRAGMA)


def prefetch_rows(s: OpenSchedule, copy: str) -> None:
    """Have a copy prefetch the rows of a matrix larger than L2 of which it reads a piece each. A hardware prefetcher stops at the
    end of a page, and the next piece is mostly beyond it."""
    b = s.block(copy)
    (source,) = loads(b.body)
    matrix, rows = source.buffer, variables(*source.indices[:-1])
    over = {name for it in b.iters if it.var.name in rows for name in variables(it.binding)}
    nest = loops_to(s.func.body, copy)
    walked = [x.name for x in nest if x.name in over and x.kind is Kind.SERIAL and not x.extent.is_one]
    large = matrix.has_const_shape and buffer_nbytes(matrix) > s.target.machine.l2
    if walked and large and matrix.name not in s.constants:
        s.annotate(walked[-1], "prefetch", [[matrix.name, PACKED_DISTANCE]])


def _packed_constants(s: OpenSchedule, block: str) -> list[str]:
    """The packed copies of constants, larger than L1, that a block reads in vectors."""
    known = {b.name: b for b in (*s.func.buffers, *s.func.allocs) if b.name in s.constants}
    vector = s.vector_axes(block)
    axes = {x.buffer.name: variables(*x.indices) for x in loads(s.block(block).body)}
    found = []
    for copy in s.get_producers(block):
        sources = loaded_names(s.block(copy).body)
        for made in {x.buffer.name: None for x in stores(s.block(copy))}:
            if sources and sources <= known.keys() and axes.get(made, set()) & vector:
                found += [made] if buffer_nbytes(*(known[n] for n in sources)) > s.target.machine.l1 else []
    return found


def traffic(func: PrimFunc, block: Block, *stages: Block) -> int:
    """Bytes of the parameters that a block and the stages in its loops touch; 0 if it writes none, or a shape is symbolic."""
    names = {stored(block).buffer.name, *(x.buffer.name for b in (block, *stages) for x in loads(b.body))}
    touched = [p for p in func.buffers if p.name in names]
    if not any(p.name == stored(block).buffer.name for p in touched) or not all(p.has_const_shape for p in touched):
        return 0
    return buffer_nbytes(*touched)
