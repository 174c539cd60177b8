"""Powers of small exponents become products and roots."""

from __future__ import annotations

from ..ir import Call, Graph, Value, fresh

EXPONENTS = (0.5, 2.0, 3.0)


def expand_powers(graph: Graph) -> Graph:
    """x ** 2 becomes x * x, x ** 3 becomes x * x * x and x ** 0.5 the square root, where the exponent is one constant number."""
    taken = {v.name for c in graph.calls for v in c.outputs} | {v.name for v in graph.inputs} | set(graph.constants)
    calls: list[Call] = []
    for call in graph.calls:
        exponent = _exponent(graph, call)
        if exponent not in EXPONENTS:
            calls.append(call)
            continue
        (base, _), (result,) = call.inputs, call.outputs
        if exponent == 0.5:
            calls.append(Call("Sqrt", (base,), (result,)))
            continue
        left = base
        if exponent == 3:
            left = Value(fresh(taken, f"{result.name}_square"), result.shape, result.dtype)
            taken.add(left.name)
            calls.append(Call("Mul", (base, base), (left,)))
        calls.append(Call("Mul", (left, base), (result,)))
    return graph.with_(calls=tuple(calls))


def _exponent(graph: Graph, call: Call) -> float | None:
    """The exponent of a power of floats, if it is one number and does not change the shape."""
    if call.operator != "Pow":
        return None
    base, exponent = call.values
    if exponent.name not in graph.constants or base.shape != call.outputs[0].shape or not base.dtype.startswith("float"):
        return None
    array = graph.constants[exponent.name]
    return float(array.reshape(())) if array.size == 1 else None
