"""Nodes that hold graphs, as composites of the calls of their branches, and of one step or of all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from ..ir import Value
from .loops import MIN_LOOPED_STEPS, looped
from .registry import Apply, Body, composite, known_number
from .sequences import joined

T = TypeVar("T")

MAX_STEPS = 256  # steps of a loop that are written out; a graph of more is too large to compile
MAX_NUMBERS = 1 << 16  # steps whose numbers are a constant, of 8 bytes each; beyond, each step counts
UNBOUNDED = (1 << 63) - 1  # the count of a loop that its condition alone ends


@composite("If")
def branch(apply, condition, *, then_branch, else_branch):
    """The branch that a condition chooses. Of one that is not constant both branches run."""
    if (known := known_number(apply, "the condition", condition)) is not None:
        return then_branch() if known else else_branch()
    both = zip(then_branch(), else_branch(), strict=True)
    return tuple(_chosen(apply, condition, a, b, "the branches") for a, b in both)


def _chosen(apply: Apply, condition: Value, a: Any, b: Any, what: str) -> Value:
    """The first of two values where a condition, one number, holds, else the second."""
    if not (isinstance(a, Value) and isinstance(b, Value) and (a.shape, a.dtype) == (b.shape, b.dtype)):
        raise ValueError(f"its condition is not constant, and {what} differ in type: {a} and {b}")
    return a if a == b else apply("Where", apply("Reshape", condition, shape=()), a, b)


@composite("Scan", 9)
def scan(
    apply, *inputs, body, num_scan_inputs, scan_input_axes=None, scan_input_directions=None, scan_output_axes=None,
    scan_output_directions=None,
):  # fmt: skip
    """The steps of a loop over slices of its last inputs."""
    states, scanned = inputs[:-num_scan_inputs], inputs[-num_scan_inputs:]
    axes, backward = scan_input_axes or (0,) * num_scan_inputs, scan_input_directions or (0,) * num_scan_inputs
    outputs = body.outputs - len(states)
    order, rows_backward = scan_output_axes or (0,) * outputs, scan_output_directions or (0,) * outputs
    steps = scanned[0].shape[axes[0]]

    def step(states: Sequence[Any], slices: Sequence[Value]) -> tuple[Sequence[Any], Sequence[Any]]:
        results = body(*states, *slices)
        return results[: len(states)], results[len(states) :]

    def as_loop() -> tuple[Any, ...]:
        arrays = [_with_axis(apply, x, axis, 0) for x, axis in zip(scanned, axes, strict=True)]
        last, rows = looped(apply, steps, states, arrays, step, backward, rows_backward)
        return (*last, *(_with_axis(apply, x, 0, axis) for x, axis in zip(rows, order, strict=True)))

    def written_out() -> tuple[Any, ...]:
        made, last = list[Any](), list(states)
        if steps > MAX_STEPS:
            raise ValueError(_too_many(steps))
        for n in range(steps):
            indices = (apply.constant(steps - 1 - n if reverse else n, "int64") for reverse in backward)
            slices = [apply("Gather", x, index, axis=axis) for x, index, axis in zip(scanned, indices, axes, strict=True)]
            new, rest = step(last, slices)
            last = [*new]
            made.append(rest)
        if not made:
            slices = [apply.constant(np.zeros(np.delete(x.shape, axis), x.dtype)) for x, axis in zip(scanned, axes, strict=True)]
            return (*last, *_no_rows(apply, step(last, slices)[1], order))
        rows = zip(zip(*made, strict=True), order, rows_backward, strict=True)
        return (*last, *(joined(apply, parts[::-1] if reverse else parts, axis) for parts, axis, reverse in rows))

    return _first_possible(as_loop, written_out, steps)


def _with_axis(apply: Apply, x: Value, axis: int, place: int) -> Value:
    """A tensor with one of its axes at another place, and the others in their order."""
    axis, place = axis % len(x.shape), place % len(x.shape)
    order = [n for n in range(len(x.shape)) if n != axis]
    order.insert(place, axis)
    return x if axis == place else apply("Transpose", x, perm=tuple(order))


def _first_possible(as_loop: Callable[[], T], written_out: Callable[[], T], steps: int) -> T:
    """The results of so many steps as a loop; of few steps, and where that is refused, of the steps one after the other."""
    if steps < MIN_LOOPED_STEPS:
        return written_out()
    try:
        return as_loop()
    except (TypeError, ValueError) as error:
        try:
            return written_out()
        except ValueError as other:
            raise other if str(other) == str(error) else ValueError(f"{other}; as a loop, {error}") from None


@composite("Loop")
def loop(apply, count=None, condition=None, *states, body):
    """The steps of a loop, until its condition is false. Without a count there are as many as that says."""
    number = UNBOUNDED if count is None else known_number(apply, "the count", count)
    if number is None:
        return _looped(apply, condition, states, body, apply("Reshape", apply("Cast", count, to="int64"), shape=()))
    steps = int(number)
    return _first_possible(
        lambda: _looped(apply, condition, states, body, max(steps, 0)),
        lambda: _written_out(apply, condition, states, body, steps),
        steps,
    )


def _looped(apply: Apply, condition: Value | None, states: Sequence[Value], body: Body, count: int | Value) -> tuple[Any, ...]:
    """The steps as a loop. Its condition is a state where it is not known to hold, and so is the number of the step where there
    is no array of all numbers."""
    known = None if condition is None else apply.known(condition)
    if known is not None and not known.all():
        return _written_out(apply, condition, states, body, 0)
    ends = known is None and condition is not None  # else this is seen in the step
    always, numbered = apply.constant(True), any(0 in body.needed(n) for n in range(body.outputs))

    def attempt(ends: bool) -> tuple[Any, ...]:
        counted = numbered and (ends or not isinstance(count, int) or count > MAX_NUMBERS)
        before = ([apply("Reshape", always if condition is None else condition, shape=())] if ends else []) + (
            [apply.constant(0, "int64")] if counted else []
        )
        numbers = [apply.constant(np.arange(count))] if numbered and not counted and isinstance(count, int) else []

        def step(given: Sequence[Value], slices: Sequence[Value]) -> tuple[Sequence[Any], Sequence[Any]]:
            number = given[len(before) - 1] if counted else slices[0] if numbered else apply.constant(0, "int64")
            goes, *results = body(number, always, *given[len(before) :])
            holds = apply.known(goes)
            if condition is None and (holds is None or not holds.all()):
                raise ValueError(_UNSEEN)
            if not ends and (holds is None or not holds.all()):
                raise _Ends
            own = ([apply("Reshape", goes, shape=())] if ends else []) + (
                [apply("Add", number, apply.constant(1, "int64"))] if counted else []
            )
            return [*own, *results[: len(states)]], results[len(states) :]

        last, rows = looped(apply, count, [*before, *states], numbers, step, conditional=ends)
        return (*last[len(before) :], *rows)

    try:
        return attempt(ends)
    except _Ends:
        return attempt(True)


class _Ends(Exception):
    """A body whose condition is not known to hold."""


_UNSEEN = "its body says when it ends, but it is given no condition, which then is not looked at"


def _written_out(apply: Apply, condition: Value | None, states: Sequence[Any], body: Body, steps: int) -> tuple[Any, ...]:
    """The steps in a row, until their condition is known to be false; where a computed one is false, states stay."""
    going = apply.constant(True) if condition is None else condition
    made: list[Sequence[Any]] = []
    outputs = body.outputs - 1 - len(states)
    for step in range(min(steps, MAX_STEPS + 1)):
        goes_on = apply.known(going)
        if goes_on is not None and not goes_on.all():
            break
        same = step == 1 and body.needed(0) <= {1}  # the condition of all steps, which follows from no state
        if steps > MAX_STEPS and (step == MAX_STEPS or goes_on is None or same):
            raise ValueError(_too_many("more" if steps == UNBOUNDED else steps))
        goes, *results = body(apply.constant(step, "int64"), going, *states)
        if condition is None and ((holds := apply.known(goes)) is None or not holds.all()):
            raise ValueError(_UNSEEN)
        new = list(results[: len(states)])
        if goes_on is None:
            if outputs:
                raise ValueError("its condition is not constant, on which the shape of its scan outputs depends")
            new = [_chosen(apply, going, a, b, "the states of two steps") for a, b in zip(new, states, strict=True)]
            goes = apply("And", going, goes)
        made.append(results[len(states) :])
        states, going = list(new), goes
    if not made and outputs:
        _, *first = body(apply.constant(0, "int64"), apply.constant(True), *states)
        return (*states, *_no_rows(apply, first[len(states) :], (0,) * outputs))
    return (*states, *(joined(apply, parts, 0) for parts in zip(*made, strict=True)))


def _too_many(steps: int | str) -> str:
    return f"up to {MAX_STEPS} steps are written out, this loop has {steps}"


def _no_rows(apply: Apply, results: Sequence[Value], axes: Sequence[int]) -> list[Value]:
    """The scan outputs of a loop without steps: those of a step, with extent 0 along a new axis."""
    rows = (np.expand_dims(np.empty(v.shape, v.dtype), axis).take([], axis) for v, axis in zip(results, axes, strict=True))
    return list(map(apply.constant, rows))
