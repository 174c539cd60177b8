"""Loops that are not written out: two operators around the calls of one step, which a graph has once.

LoopBegin makes what a step reads: states, and slices of arrays along their first dimension. LoopEnd takes what a step makes: new
states, and rows of stacked results. The calls between, which depend on LoopBegin, are the step. Values that depend on nothing in
the loop are computed before it. `graph.loops` orders the calls. The definitions here, of a first step, give shapes and types.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tir import te

from ..ir import Value
from .registry import NEWEST, Apply, operator

BEGIN, END = "LoopBegin", "LoopEnd"
MIN_LOOPED_STEPS = 9  # least steps of a loop; fewer are written out: their constants fold, and first steps read no state


@operator(BEGIN, NEWEST)
def loop_begin(count, *given, loop, states, backward=(), conditional=0, steps=None):
    """The `count` of steps, so many `states`, arrays -> a token, which LoopEnd reads, the states and a slice of each array.

    `loop` is a name, `steps` the count where that is constant. Slices of an array that is read `backward` begin with the last. A
    loop that is `conditional` ends before a step where its first state, one bool, is false."""
    token = te.compute((), lambda: te.const(0, "uint8"), name="token")
    carried = [te.compute(x.shape, lambda *i, x=x: x[i], name="state") for x in given[:states]]
    return token, *carried, *(te.compute(x.shape[1:], lambda *i, x=x: x[(te.const(0), *i)], name="slice") for x in given[states:])


@operator(END, NEWEST)
def loop_end(token, *given, loop, states, backward=(), conditional=0, steps=None):
    """New states and rows -> the token, the last states, and arrays of all rows (steps, ...)."""
    last = [te.compute(x.shape, lambda *i, x=x: x[i], name="last") for x in given[:states]]
    rows = [te.compute((steps, *x.shape), lambda _, *i, x=x: x[i], name="rows") for x in given[states:]]
    return te.compute((), lambda: token[()], name="token"), *last, *rows


def looped(
    apply: Apply,
    count: Value | int,
    states: Sequence[Value],
    arrays: Sequence[Value],
    step: Callable[[Sequence[Value], Sequence[Value]], tuple[Sequence[Any], Sequence[Any]]],
    backward: Sequence[bool] = (),
    rows_backward: Sequence[bool] = (),
    conditional: bool = False,
) -> tuple[tuple[Value, ...], tuple[Value, ...]]:
    """The last states and the stacked rows of a loop of `count` steps. `step` gives new states and rows for states and slices.

    Raises ValueError where a state changes its type, a row is no tensor, or the number of rows is unknown."""
    known = {"steps": count} if isinstance(count, int) else {}
    common = {"loop": apply.fresh("loop"), "states": len(states), "conditional": int(conditional), **known}
    number = apply.constant(count, "int64") if isinstance(count, int) else count
    token, *given = apply(BEGIN, number, *states, *arrays, backward=tuple(map(int, backward)), **common)
    new, rows = step(given[: len(states)], given[len(states) :])
    if rows and (conditional or not known):
        raise ValueError("the number of its steps is not constant, on which the shape of its scan outputs depends")
    for n, (a, b) in enumerate(zip(new, states, strict=True)):
        if not isinstance(a, Value) or (a.shape, a.dtype) != (b.shape, b.dtype):
            raise ValueError(f"a step changes the type of state {n}: {b} becomes {a}")
    if not all(isinstance(row, Value) for row in rows):
        raise ValueError("a step gives a row that is no tensor")
    _, *results = apply(END, token, *new, *rows, backward=tuple(map(int, rows_backward)), **common)
    return tuple(results[: len(states)]), tuple(results[len(states) :])
