"""Large reductions: partial results in the lanes of some registers, and in each thread, combined at the end."""

from __future__ import annotations

from math import ceil

from schedule.machine import CPU
from schedule.open_schedule import Declined, OpenSchedule, extent, is_spatial, lane_bits
from schedule.open_trace import Role
from tir.ir import Binary, Block, Const, Iter, Store, Var
from tir.traverse import loads, stored_names, stores

from .block_analysis import counted, divisible, epilogue, loop_of, merged, regular, reused, size
from .division import MIN_EACH, doubled, shares_are_equal, tried
from .lanes import in_lanes, partial_results
from .marks import done, one_of, share, teams

# Rows of memory added to many results at a time, each a stream: four move the results twice as often. On a Zen 4 a row of 4096
# times a matrix takes 1.04 x as long with four, on a Zen 5 eight rows of 1 KiB came at 51 GB/s from memory, four at 37.
ROWS_PER_PASS = 8


def matches(block: Block) -> bool:
    """True where a block is a reduction at axes with constant extents, each with a loop of its own, that stores at axes: of a
    value, or of several that come together, in parts."""
    if not block.is_reduction or block.init is None or not (isinstance(block.body, Store) or divisible(block)):
        return False
    return regular(block) and all(isinstance(i, Var | Const) for x in stores(block.body) for i in x.indices)


def build(s: OpenSchedule, block: str) -> None:
    """Schedule a reduction that has its loops to itself. Declined where lanes would combine terms that have an order.

    Where it runs along the memory that it reads, lanes hold partial results, some vectors of them. Where it runs across, each
    lane has a result of its own, as where all that is read serves many results. Threads share the results, or, if there are
    too few, parts of the reduction.
    """
    _as_one_axis(s, s.block(block))
    b = s.block(block)
    work, bits = size(b.iters), lane_bits(b)
    machine = s.target.machine
    threads = machine.threads(work * machine.copy_cycles(bits))
    along = None if reused(b) else _contiguous_axis(b)
    if along is not None and not divisible(b):
        raise Declined(f"the terms of `{block}` are to be combined in their order")
    if along is None:
        teams(s, block, threads, work, lambda new, team: _reduce_across(new, b, team, machine.lanes(bits)))
    else:
        kept = [loop_of(it) for it in b.spatial]
        others = [loop_of(it) for it in b.iters if not is_spatial(it) and it is not along]
        s.reorder(*kept, *others, loop_of(along))
        teams(s, block, threads, work, lambda new, team: _reduce_along(new, b, along, team, machine.lanes(bits)))
    done(s, block)


def _as_one_axis(s: OpenSchedule, b: Block) -> None:
    """Make the reduction's axes one that counts through the last dimensions read: together they walk memory."""
    for load in loads(b.body):
        along: list[Iter] = []
        for index, length in reversed(list(zip(load.indices, load.buffer.shape, strict=True))):
            found = next((it for it in b.iters if not is_spatial(it) and index == it.var), None)
            if found is None or load.buffer.name in stored_names(b.body):
                break
            along.insert(0, found)
            if length != found.extent:
                break
        if len(along) > 1 and size(along) > 1:  # axes of one element would become spatial
            s.transform_block_layout(b.name, counted(b.iters, [it for it in b.iters if it not in along], along))
            return


def _contiguous_axis(block: Block) -> Iter | None:
    """The reduction axis that is the last index of a load, or by its remainder; None if there is none."""
    reduce_axes = [it for it in block.iters if not is_spatial(it)]
    for load in loads(block.body):
        if load.buffer.name not in stored_names(block.body) and load.indices:
            last = load.indices[-1].a if isinstance(load.indices[-1], Binary) and load.indices[-1].op == "%" else load.indices[-1]
            found = next((it for it in reduce_axes if last == it.var), None)
            if found is not None:
                return found
    return None


def _reduce_along(s: OpenSchedule, b: Block, along: Iter, threads: int, lanes: int) -> None:
    """Reduce along memory: threads share the results, or parts of the longest axis of the reduction."""
    results = size(b.spatial)
    longest = max((it for it in b.iters if not is_spatial(it)), key=extent)
    ways = {
        "results": lambda new: _share_results(new, b, along, threads, lanes),
        "parts": lambda new: _share_parts(new, b, along, longest, threads, lanes),
    }
    if threads == 1 or results >= MIN_EACH**2 * threads:
        ways.pop("parts")
    seed = "parts" if threads > 1 and results < MIN_EACH * threads else "results"
    one_of(s, f"threads share of {b.name}", ways, seed=seed, block=b.name, role=Role.PARALLEL)


def _share_results(s: OpenSchedule, b: Block, along: Iter, threads: int, lanes: int) -> None:
    """Compute each result by one thread."""
    kept = [loop_of(it) for it in b.spatial]
    if extent(along) < 2 * lanes:
        after = epilogue(s, b.name, anywhere=True)
        if threads > 1 and kept:
            share(s, b.name, kept[:1])
        s.annotate(loop_of(along), "combine_lanes", True)
        if after is not None and s.is_unscheduled(after) and kept:  # results are not many times fewer than terms
            s.reverse_compute_at(after, kept[-1])
            done(s, b.name)
        return
    width = partial_results(s, b.name, extent(along), lanes)

    def one_row(new: OpenSchedule) -> None:
        partial = in_lanes(new, b.name, width)
        _share_merged(new, partial, b.name, len(kept), threads)

    def side_by_side(new: OpenSchedule) -> None:
        _, row = new.split(kept[-1], [None, new.choose(f"{b.name} rows", (2, 4), block=b.name)])
        partial = in_lanes(new, b.name, width)
        _, lane = new.get_loops(partial)[-2:]
        new.reorder(*(x for x in new.get_loops(partial)[len(kept) :] if x not in (row, lane)), new.get_loops(partial)[len(kept)])
        _share_merged(new, partial, b.name, len(kept), threads)
        for block in (partial, b.name):
            new.unroll(new.get_loops(block)[-2])

    wide = kept and extent(next(it for it in b.iters if loop_of(it) == kept[-1])) > 1
    one_of(s, f"{b.name} side by side", {"one row": one_row} | ({"some rows": side_by_side} if wide else {}), block=b.name)


def _share_parts(s: OpenSchedule, b: Block, along: Iter, longest: Iter, threads: int, lanes: int) -> None:
    """Compute a partial result of each part, by any thread."""
    part, partial = _in_parts(s, b, longest, threads, lanes)
    kept = [part, *(loop_of(it) for it in b.spatial)]
    s.reorder(*kept, *(loop for loop in s.get_loops(partial) if loop not in kept))
    length = ceil(extent(longest) / threads) if longest is along else extent(along)
    if length < 2 * lanes:
        share(s, partial, kept[:1])
    else:
        lane = in_lanes(s, partial, partial_results(s, partial, length, lanes))
        _share_merged(s, lane, partial, len(kept), threads)
    done(s, partial)


def _in_parts(s: OpenSchedule, b: Block, longest: Iter, threads: int, lanes: int) -> tuple[str, str]:
    """Divide a reduction axis into parts, some for each thread; returns their loop, and the block of their results."""
    most = max(1, extent(longest) // (2 * threads * lanes))  # two vectors a part, or more
    counts = [n for n in doubled(most) if n == 1 or extent(longest) % (n * threads) == 0]
    count = threads * s.choose(f"{b.name} parts", counts, block=b.name, role=Role.PARALLEL)
    part, _ = s.split(loop_of(longest), [count, None])
    return part, s.rfactor(part, 0)


def _share_merged(s: OpenSchedule, first: str, second: str, count: int, threads: int) -> None:
    """Merge the `count` outermost loops of two blocks, pair by pair, and have threads share the first."""
    around = merged(s, first, second, count)
    if threads > 1 and around:
        share(s, first, around[:1])
    done(s, first)


def _reduce_across(s: OpenSchedule, b: Block, threads: int, lanes: int) -> None:
    """Reduce across memory: threads share rows of results, or, if too few, parts of the longest axis of the reduction."""
    place = stores(b.body)[0].indices
    vector = next((it for it in b.spatial if place and it.var == place[-1]), None)
    if vector is None:
        return
    longest = max((it for it in b.iters if not is_spatial(it)), key=extent)

    def in_parts(new: OpenSchedule) -> None:
        _, partial = _in_parts(new, b, longest, threads, lanes)
        _share_rows(new, new.block(partial), vector, threads, lanes)
        done(new, partial)
        _share_rows(new, new.block(b.name), vector, 1, lanes)

    ways = {"parts": in_parts, "results": lambda new: _share_rows(new, b, vector, threads, lanes)}
    # One thread adds up the results of the parts, in 1 / MIN_EACH of the time of a part at most.
    few = extent(longest) < MIN_EACH * threads**2
    if few or shares_are_equal(size(b.spatial) // extent(vector), threads) or not divisible(b):
        ways.pop("parts")
    one_of(s, f"threads share of {b.name}", ways, block=b.name, role=Role.PARALLEL)


def _share_rows(s: OpenSchedule, b: Block, last: Iter, threads: int, lanes: int) -> None:
    """Compute each result by one thread; each lane has one, of the axis `last`. Where half of the registers hold a row of
    results, or the reduction is short, it is done at once, else some rows at a time: so memory is read in its order."""
    vector = next(it for it in b.spatial if it.var == last.var)
    reduce_axes = [it for it in b.iters if not is_spatial(it)]
    outer = [loop_of(it) for it in b.spatial if it is not vector]
    columns, rows = extent(vector), extent(reduce_axes[-1])
    machine: CPU = s.target.machine

    def step(new: OpenSchedule, vectors: int) -> int:
        return new.choose(f"{b.name} columns", tried(vectors, machine.registers // 2, lanes, columns), block=b.name)

    def by_rows(new: OpenSchedule) -> None:
        width = step(new, machine.step_vectors)
        share = ceil(columns / (width * (1 if shares_are_equal(size(b.spatial) // columns, threads) else threads)))
        j0, j1, j2 = new.split(loop_of(vector), [None, share, width], preserve_unit_iters=False)
        counts = tried(ROWS_PER_PASS, 4 * ROWS_PER_PASS, limit=rows)
        k0, k1 = new.split(loop_of(reduce_axes[-1]), [None, new.choose(f"{b.name} rows", counts, block=b.name)])
        new.reorder(*outer, j0, *(loop_of(it) for it in reduce_axes[:-1]), k0, j1, k1, j2)
        finish(new, j0, j2)

    def at_once(new: OpenSchedule) -> None:
        j0, j2 = new.split(loop_of(vector), [None, step(new, machine.registers // 2)], preserve_unit_iters=False)
        new.reorder(*outer, j0, *(loop_of(it) for it in reduce_axes), j2)
        finish(new, j0, j2)

    def finish(new: OpenSchedule, j0: str, j2: str) -> None:
        new.vectorize(j2)
        if threads > 1:
            share(new, b.name, [*outer, j0])

    many = columns > machine.registers // 2 * lanes and rows >= 2 * ROWS_PER_PASS
    ways = {"some rows at a time": by_rows, "all rows": at_once}
    one_of(s, f"order of {b.name}", ways, seed="some rows at a time" if many else "all rows", block=b.name)
