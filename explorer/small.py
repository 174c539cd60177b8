"""A small instance of a schedule: the same steps on short axes with small tiles, so that each iteration can be watched."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from schedule import ScheduleError
from schedule.trace import Step
from tir.ir import Block, Buffer, Const, For, If, Kind, Node, PrimFunc
from tir.traverse import blocks, loops, rewrite, walk
from tir.verify import verify

from .stages import programs

LENGTHS = (8, 9, 12, 16, 17, 24, 32)  # new lengths of long axes, tried in this order
MIN_LONG = 8  # least length of a long axis
MAX_DIFFERENCE = 4  # largest difference of lengths that is kept, as that of a padded and a plain axis
SHOWN_ITERATIONS = 4  # iterations of a loop, where no small instance is found
SPLITS = ("split", "tile", "sample_perfect_tile", "sample_tile")  # steps whose numbers are sizes


def small(func: PrimFunc, steps: Sequence[Step]) -> list[PrimFunc]:
    """The programs before the steps and after each, of an instance with short axes and small tiles. It has the loops and guards
    of the real one if such an instance is found; empty where the steps fit no small instance."""
    try:
        wanted = _shape(programs(func, steps)[-1] if steps else func)
    except ScheduleError:
        return []
    fallback: list[PrimFunc] = []
    fewer = [_smaller(s) for s in steps]
    for length in LENGTHS:
        first = next((f for r in (False, True) if not verify(f := shortened(func, length, r)).errors), None)
        if first is None:
            continue
        try:
            found = [first, *programs(first, fewer)]
        except ScheduleError:
            continue
        if _shape(found[-1]) == wanted:
            return found
        fallback = fallback or found
    return fallback


def _shape(func: PrimFunc) -> tuple[list[tuple[str, Kind]], int]:
    """The loops in their order, and the number of guards."""
    guards = sum(isinstance(n, If) for n in walk(func)) + sum(len(list(walk(b.predicate))) > 1 for b in blocks(func))
    return [(x.name, x.kind) for x in loops(func.body)], guards


def shortened(func: PrimFunc, length: int, ratios: bool = False) -> PrimFunc:
    """The function with `length` in place of each long extent, wherever that number is written. Numbers a little larger, such as
    the bounds of a padded axis, stay as much larger. With `ratios` multiples of the shortest extent stay multiples, as those of a
    convolution with a stride."""
    starts: list[int] = []
    for extent in sorted({n.value for x in walk(func) for n in _extents(x) if isinstance(n, Const) and n.value >= MIN_LONG}):
        if not starts or extent - starts[-1] > MAX_DIFFERENCE:
            starts.append(extent)

    def visit(n: Node) -> Node | None:
        if not isinstance(n, Const) or type(n.value) is not int:
            return None
        start = next((s for s in starts if s <= n.value <= s + MAX_DIFFERENCE), None)
        if start is None:
            return None
        return n.with_(value=length * (max(1, start // starts[0]) if ratios else 1) + n.value - start)

    return rewrite(func, visit)


def _extents(n: Node) -> tuple:
    match n:
        case Buffer(shape=shape):
            return shape
        case For(extent=extent):
            return (extent,)
        case Block(iters=iters):
            return tuple(it.extent for it in iters)
    return ()


def _smaller(step: Step) -> Step:
    """The step with small sizes."""
    if step.name not in SPLITS:
        return step

    def size(value: object) -> object:
        if isinstance(value, tuple):
            return tuple(map(size, value))
        if type(value) is int and value > 2:
            return 2 if value <= MIN_LONG else 4
        return value

    return replace(step, args=tuple((k, v if k == "loop" else size(v)) for k, v in step.args))


def first_iterations(func: PrimFunc) -> PrimFunc:
    """The function with only the first iterations of each loop, for want of a small instance."""

    def visit(n: Node) -> Node | None:
        if isinstance(n, For) and isinstance(n.extent, Const):
            return n.with_(extent=n.extent.with_(value=min(n.extent.value, SHOWN_ITERATIONS)), body=rewrite(n.body, visit))
        return None

    return rewrite(func, visit)
