"""Rewriting of graphs by passes: a walk over the calls, in which a rule may put others in place of each."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import wraps
from typing import Any

import numpy as np

from ..builder import Builder
from ..ir import Attribute, Call, Graph, Value
from ..kinds import elementwise
from ..ops import function_name, result_types
from ..ops.convolution import SlidingWindow, windows
from .unread import remove_unread

FULL_RANGE = ("float32", "float64", "bfloat16")  # types whose products overflow only for numbers that networks do not have

Rule = Callable[["Rewriting", Call], Value | Sequence[Call] | None]


def rewrite(graph: Graph, rule: Rule) -> Graph:
    """The graph with `rule(rewriting, call)` in place of each call in turn, unless it is None, and without unread calls.

    A rule gives calls, which must make all outputs of the call that they replace. Or it writes calls with the `rewriting`, as
    with any builder, and gives the value of the last of them, which takes the place of the output.
    """
    rewriting = Rewriting(graph)
    calls: list[Call] = []
    for call in graph.calls:
        replacement = rewriting.replacement(rule, call)
        for new in [call] if replacement is None else replacement:
            calls.append(new)
            rewriting.producers |= dict.fromkeys(new.outputs, new)
    if len(calls) == len(graph.calls) and all(a is b for a, b in zip(calls, graph.calls, strict=True)):
        return graph
    return remove_unread(graph.with_(calls=tuple(calls), constants=rewriting.constants))


def each_call(rule: Rule) -> Callable[[Graph], Graph]:
    """The pass that rewrites a graph by a rule, with its name and description."""

    @wraps(rule)
    def run(graph: Graph) -> Graph:
        return rewrite(graph, rule)

    return run


class Rewriting(Builder):
    """The state of a rewrite. `producers` are the calls so far, by their outputs. `calls` are those that a rule writes instead of
    the call at hand; values are named after its output. Calls of constants are left as they are."""

    def __init__(self, graph: Graph):
        super().__init__(graph.name, fold=False)
        self.constants = dict(graph.constants)
        self.taken = graph.names()
        self.producers: dict[Value, Call] = {}
        self._outputs = set(graph.outputs)
        self._consumers = graph.consumers()
        self._derived: dict[tuple[Value, str], Value] = {}
        self._at = ""

    def replacement(self, rule: Rule, call: Call) -> Sequence[Call] | None:
        """The calls that a rule gives in place of a call."""
        self.calls.clear()
        self._at = call.outputs[0].name
        found = rule(self, call)
        if not isinstance(found, Value):
            return found
        return [*self.calls[:-1], replace(self.calls[-1], outputs=call.outputs)]

    def __call__(self, operator: str, /, *inputs: Value | None, **attributes: Any) -> Value:
        """The first output of the newest operator of that name."""
        self.applied(operator, inputs, attributes, f"{self._at}_{function_name(operator)}", self)
        self.calls[-1] = replace(self.calls[-1], outputs=self.calls[-1].outputs[:1])
        return self.calls[-1].outputs[0]

    def producer(self, value: Value | None, *operators: str) -> Call | None:
        """The call that makes a value, if it is of one of these operators; else None."""
        call = None if value is None else self.producers.get(value)
        return call if call is not None and call.operator in operators else None

    def read_once(self, value: Value) -> bool:
        """True where one call alone reads a value, and it is no output."""
        return value not in self._outputs and len(self._consumers.get(value, ())) <= 1

    def number(self, value: Value | None) -> float | None:
        """The only element of a value, if it is a constant with one."""
        array = self.known(value)
        return float(array.reshape(())) if array is not None and array.size == 1 else None

    def derived(self, value: Value, how: str, change: Callable[[np.ndarray], np.ndarray]) -> Value:
        """A constant that is made of a constant in a way, the same each time."""
        if (value, how) not in self._derived:
            self._derived[value, how] = self.constant(change(self.constants[value.name]), name=f"{value.name}_{how.split()[0]}")
        return self._derived[value, how]

    def transposed(self, matrix: Value) -> Value:
        """The transpose of a constant as a constant, the same each time."""
        return self.derived(matrix, "columns", lambda array: np.ascontiguousarray(array.T))


def fits_elementwise(call: Call) -> bool:
    """True where a call with exchanged operands is valid, has the types of its outputs, and is still elementwise."""
    try:
        types = result_types(call)
    except (TypeError, ValueError):
        return False
    return types == tuple((v.shape, v.dtype) for v in call.outputs) and elementwise(call)


def other(values: Collection[Value | None], one: Value) -> Value | None:
    """The one of two values that is not `one`; None unless there are two and `one` is among them."""
    if len(values) != 2 or one not in values:
        return None
    first, second = values
    return second if first == one else first


def parted(call: Call | None, wanted: Callable[[Value], bool]) -> tuple[Value, Value] | tuple[None, None]:
    """The first `wanted` input of a call of two, and the other one; None for both where no input is wanted."""
    one = None if call is None else next(filter(wanted, call.values), None)
    rest = None if call is None or one is None else other(call.inputs, one)
    return (None, None) if one is None or rest is None else (one, rest)


def reads_padding(call: Call) -> bool:
    """True where a convolution or a pool may read outside of its image."""
    return any(call.attribute("pads", ())) or call.attribute("auto_pad", "NOTSET") not in ("NOTSET", "VALID")


def windows_of(call: Call) -> list[SlidingWindow]:
    """The windows of a convolution."""
    given = {name: call.attribute(name, None) for name in ("strides", "dilations", "pads")}
    x, weight = call.values[:2]
    return windows(x.shape[2:], weight.shape[2:], **given, auto_pad=call.attribute("auto_pad", "NOTSET"))


def attributes_of(moved: Sequence[SlidingWindow]) -> dict[str, Attribute]:
    """The attributes that say how windows move."""
    pads = (*(w.before for w in moved), *(w.after for w in moved))
    return {"strides": tuple(w.stride for w in moved), "dilations": tuple(w.dilation for w in moved), "pads": pads}
