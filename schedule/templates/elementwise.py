"""Blocks that compute each element once: vectors along the memory they write, rows among the threads."""

from __future__ import annotations

from itertools import pairwise
from math import ceil, gcd

from schedule.error import ScheduleError
from schedule.machine import CACHE_LINE_BYTES
from schedule.open_schedule import OpenSchedule, element_bits, extent, lane_bits
from schedule.primitive import blocks_below, find_block, loops_of
from schedule.schedule import Schedule
from tir.arith.polynomial import linear, names_in, polynomial
from tir.ir import Binary, Block, Const, Expr, Iter, Load, Store, Var
from tir.traverse import loads, tree_size, variables, walk

from ..rewriting.index_map import IndexMap
from ..rewriting.predicates import Bound, bound_on
from .block_analysis import (
    address,
    epilogue,
    is_elementwise,
    loop_length,
    loop_of,
    regular,
    size,
    store_last,
    stored,
    transpose_in_squares,
)
from .division import tried
from .marks import done, share, stream, teams

MAX_INLINED_NODES = 500  # most nodes of a block after inlining: each step over it takes longer, and two reads double a producer
MAX_PIECES = 5  # most pieces of a loop that is cut where conditions change
SQUARES_DOWN, SQUARES_ACROSS = 4, 16  # squares in a block of a transpose


def matches(block: Block) -> bool:
    """True where a block computes each element of its output once, at axes with constant extents, each with a loop of its own."""
    return is_elementwise(block) and regular(block)


def inline_chain(s: Schedule, block: str) -> None:
    """Inline into an elementwise block its elementwise producers that nothing else reads, and theirs in turn, up to
    MAX_INLINED_NODES. It reads them at its own points, or with all dimensions but the last in another order."""
    while True:
        own = find_block(s.func, block)
        for producer in s.get_producers(block):
            made = find_block(s.func, producer)
            if (
                matches(made)
                and epilogue(s, producer, rows=True) == block
                and tree_size(own) + tree_size(made) * sum(x.buffer.name == stored(made).buffer.name for x in loads(own))
                <= MAX_INLINED_NODES
            ):
                try:
                    s.compute_inline(producer)
                except ScheduleError:  # other blocks write its buffer, too
                    continue
                break
        else:
            return


def build(s: OpenSchedule, block: str) -> None:
    """Schedule an elementwise block that has its loops to itself: the axis that walks its output innermost, in vectors.

    ScheduleError where a step is refused.
    """
    _merge_short_rows(s, block)
    b = s.block(block)
    order = _written_axes(b)
    if order and extent(order[-1]) == 1:  # the last axis of more than one element walks the memory
        order.sort(key=lambda it: extent(it) > 1)
    loops = [loop_of(it) for it in order]
    line = size(order[:-1]) == 1  # all elements are one row
    if [x.name for x in loops_of(s.func, block)] != loops:
        s.reorder(*loops)
    machine, bits, work = s.target.machine, lane_bits(b), size(order)
    lanes = machine.lanes(bits)
    around = {block: loops}  # the loops around the vectors, by the first block in them
    lines = True  # consecutive stores fill cache lines
    if (column := _transposed_axis(b, order, lanes)) is not None:
        side = max(lanes, machine.lanes(32))
        around = {block: _transpose_operand(s, block, loops, column, order[-1], side)}
        lines = side * element_bits(b) >= 8 * CACHE_LINE_BYTES
    elif len(loops) > 1 and extent(order[-1]) < lanes:
        around = {block: _rows_in_vectors(s, loops, lanes)}
    elif loops:
        pieces = {blocks_below(s.loop(piece))[0].name: piece for piece in _cut_pieces(s, b, order, loops)}
        if not line:
            lengths = (loop_length(s, piece) or 0 for piece in pieces.values())
            lines = len(pieces) == 1 or not any(n * element_bits(b) % (8 * CACHE_LINE_BYTES) for n in lengths)
            for piece in pieces.values():
                s.vectorize(piece)
            around = {next(iter(pieces)): loops[:-1]}
        else:
            around = {name: _vector_steps(s, name, piece, lanes) for name, piece in pieces.items()}

    def threads(new: OpenSchedule, count: int) -> None:
        for name, shared in around.items():
            if count > 1 and shared:
                share(new, name, shared)

    teams(s, block, machine.threads(work * machine.copy_cycles(bits)), work, threads)
    for name in around:
        if lines:
            stream(s, name)
        done(s, name)


def _written_axes(b: Block) -> list[Iter]:
    """The axes of an elementwise block in the order of its result, without those of one element that have no loop."""
    axes = {it.var.name: it for it in b.iters}
    names = [list(variables(i)) for i in stored(b).indices]
    found = dict.fromkeys(axes[name] for name, *others in filter(None, names) if not others)
    return [it for it in found if isinstance(it.binding, Var)]


def _merge_short_rows(s: OpenSchedule, block: str) -> None:
    """Make one axis of the last two of a result, as the pixels of a small image, while the last is shorter than a vector, lies
    across the memory of an operand, and is one row with the other wherever the block reads or writes."""
    while len(order := _written_axes(b := s.block(block))) > 1:
        outer, inner = order[-2:]
        count, lanes = extent(inner), s.target.machine.lanes(lane_bits(b))
        accesses: list[Load | Store] = [stored(b), *loads(b.body)]
        places = [polynomial(address(b, x)) for x in accesses]
        steps = [(p.pop((outer.var,), 0), p.pop((inner.var,), 0)) for p in places]
        elsewhere = {name for p in places for name in names_in(p)} & {outer.var.name, inner.var.name}
        if (
            count >= lanes
            or max(step for _, step in steps) < lanes
            or any(across != count * step for across, step in steps)
            or elsewhere
        ):
            return
        merged = outer.var * count + inner.var
        kept = [it.var for it in b.iters if it is not outer and it is not inner]
        s.transform_block_layout(block, IndexMap(tuple(it.var for it in b.iters), (*kept, merged)))


def copy_transposed(s: OpenSchedule, block: str, operand: Load, axis: str) -> None:
    """Let a block read an operand through a copy whose last dimension is that of `axis`."""
    copy = s.cache_read(block, operand.buffer.name, "global", [block])
    store_last(s, copy, operand.indices, axis)
    build(s, copy)


def _vector_steps(s: OpenSchedule, block: str, loop: str, lanes: int) -> list[str]:
    """Walk a single loop in strips of some vectors; returns the loop around them, if there are several."""
    elements = loop_length(s, loop) or 0
    usual = s.target.machine.step_vectors * lanes
    if elements <= usual:
        s.vectorize(loop)
        return []
    widths = tried(usual // lanes, s.target.machine.registers // 2, lanes, elements)
    outer, strip = s.split(loop, [None, s.choose(f"{block} vectors", widths, block=block)])
    s.vectorize(strip)
    return [outer]


def _rows_in_vectors(s: OpenSchedule, loops: list[str], lanes: int) -> list[str]:
    """Walk short rows in vectors of as many elements as fill registers whole; returns the loops around them."""
    while len(loops) > 1 and (length := loop_length(s, loops[-1]) or lanes) < lanes:
        rows = lanes // gcd(lanes, length)
        if (loop_length(s, loops[-2]) or 0) > rows:
            loops[-2:-1] = s.split(loops[-2], [None, rows])
        loops[-2:] = [s.fuse(*loops[-2:])]
    s.vectorize(loops[-1])
    return loops[:-1]


def _cut_pieces(s: Schedule, block: Block, order: list[Iter], loops: list[str]) -> list[str]:
    """Cut the last loop of a block where conditions on it in the formula change, as between the parts of a concatenation; returns
    its pieces. It is also cut where quotients of it change, as where a rotated row begins again."""
    name, cuts = order[-1].var.name, set[int]()
    for c in walk(stored(block).value):
        if isinstance(c, Expr) and variables(c) == {name}:
            match bound_on(c, name):
                case Bound(1, Const(first)):
                    cuts.add(-int(first))
                case Bound(-1, Const(last)):
                    cuts.add(int(last) + 1)
            cuts |= _quotient_changes(c, extent(order[-1]))
    inside = [0, *sorted(c for c in cuts if 0 < c < extent(order[-1])), extent(order[-1])]
    if not 2 < len(inside) <= MAX_PIECES + 1:
        return loops[-1:]
    lengths = [b - a for a, b in pairwise(inside)]
    longest = lengths.index(max(lengths))  # it grows with the axis; conditions cut the others off
    return s.loop_partition(loops[-1], [None if n == longest else length for n, length in enumerate(lengths)])


def _quotient_changes(e: Expr, length: int) -> set[int]:
    """The values of an axis of this length at which a quotient of it, plus an offset, changes, if these are few."""
    match e:
        case Binary("//" | "%", a, Const(int(n))) if (found := linear(polynomial(a))) is not None and found[1] == 1:
            offset = found[2]
            first = offset // n + 1
            changes = [k * n - offset for k in range(first, first + MAX_PIECES)]
            return {x for x in changes if x < length} if changes[-1] >= length else set()
    return set()


def _transposed_axis(block: Block, order: list[Iter], lanes: int) -> Iter | None:
    """The axis along the memory of an operand that lies across the last axis of `order`, if both have `lanes` elements."""
    for load in loads(block.body) if order else ():
        place = polynomial(address(block, load))
        if place.get((order[-1].var,), 0) >= lanes:
            along = next((it for it in order[:-1] if place.get((it.var,)) == 1), None)
            return along if along is not None and min(extent(along), extent(order[-1])) >= lanes else None
    return None


def _transpose_operand(s: OpenSchedule, block: str, loops: list[str], column: Iter, row: Iter, side: int) -> list[str]:
    """Walk `column` and `row`, the last of some loops, in squares of `side` elements a side, which are transposed in registers.
    The squares of a block, at the seed 4 by 16, follow each other, so that they are on the same pages. Returns the loops around
    the blocks."""
    tall, wide = (
        s.choose(f"{block} {name}", tried(n, 2 * n, limit=ceil(extent(it) / side)), block=block)
        for name, n, it in (("columns", SQUARES_DOWN, column), ("rows", SQUARES_ACROSS, row))
    )
    c0, c1 = s.split(loop_of(column), [None, tall * side], preserve_unit_iters=False)
    r0, r1 = s.split(loops[-1], [None, wide * side], preserve_unit_iters=False)
    around = [*(loop for loop in loops[:-1] if loop != loop_of(column)), c0, r0]
    s.reorder(*around, c1, r1)
    transpose_in_squares(s, c1, r1, side, side)
    return around
