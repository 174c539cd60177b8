"""Powers of small exponents become products."""

from __future__ import annotations

from tir.traverse import fresh

from ..ir import Call, Graph, Value

EXPONENTS = (2.0, 3.0)


def expand_powers(graph: Graph) -> Graph:
    """x ** 2 becomes x * x and x ** 3 becomes x * x * x, where the exponent is one constant number.

    x ** 0.5 stays: of -0 and -inf the square root is another.
    """
    taken = graph.names()
    calls: list[Call] = []
    for call in graph.calls:
        exponent = _exponent(graph, call)
        if exponent not in EXPONENTS:
            calls.append(call)
            continue
        (base, _), (result,) = call.inputs, call.outputs
        left = base
        if exponent == 3:
            left = Value(fresh(taken, f"{result.name}_square"), result.shape, result.dtype)
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
