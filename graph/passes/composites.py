"""Operators that are defined by others become calls of those."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ..ir import Call, Graph, Value
from ..ops import find
from ..reference import run_call
from .rewriting import Rewriting, rewrite


def expand_composites(graph: Graph) -> Graph:
    """Write every call of a composite, such as a recurrence, as the calls that its definition makes; what those do with constants
    alone is done now."""
    return rewrite(graph, _expanded)


def _expanded(rewriting: Rewriting, call: Call) -> list[Call] | None:
    found = find(call.operator, call.opset)
    return None if found is None or found.parts is None else _calls(rewriting, call, found.parts)


def _calls(rewriting: Rewriting, call: Call, parts: Callable[..., Any]) -> list[Call]:
    """The calls that the definition of a composite makes for one call of it, and that make the outputs of that."""
    calls: list[Call] = []

    def apply(operator: str, *inputs: Value | None, **attributes: Any) -> Value | tuple[Value, ...]:
        while inputs and inputs[-1] is None:
            inputs = inputs[:-1]
        given = {name: value for name, value in attributes.items() if value is not None}
        new = rewriting.call(operator, inputs, f"{call.outputs[0].name}_{len(calls)}", **given)
        arrays = [rewriting.array(v) for v in inputs]
        if all(a is not None for a in arrays):
            first, *others = (rewriting.constant(v.name, a) for v, a in zip(new.outputs, run_call(new, arrays), strict=True))
        else:
            calls.append(new)
            first, *others = new.outputs
        return (first, *others) if others else first

    results = parts(apply, *call.inputs, **dict(call.attributes))
    made_here, named = {v for c in calls for v in c.outputs}, dict[Value, Value]()
    for wanted, made in zip(call.outputs, results if isinstance(results, tuple) else (results,), strict=False):
        if made not in made_here or made in named:
            calls.append(Call("Identity", (made,), (wanted,)))
        else:
            named[made] = wanted
    return [replace(c.with_inputs(named), outputs=tuple(named.get(v, v) for v in c.outputs)) for c in calls]
