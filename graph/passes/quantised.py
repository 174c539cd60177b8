"""Quantised numbers stay integers where nothing is computed: DequantizeLinear moves behind calls that only move or compare."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tir import dtypes

from ..ir import Call, Graph, Value
from ..ops import definition
from .channels import keep_channels_last
from .identities import remove_identities
from .integers import SUMS, Choice, multiply_integers
from .rewriting import Rewriting, each_call, rewrite


def stay_quantised(graph: Graph, choose: Choice, pairs: bool = False) -> Graph:
    """The graph with products of integers where `choose` prefers them, and integers of 8 bits, channels last, between them; the
    graph itself where there is none. `pairs` is as in `multiply_integers`."""
    products = multiply_integers(remove_identities(keep_quantised(graph)), choose, pairs)
    if not any(c.operator in SUMS for c in products.calls):
        return graph
    return rewrite(remove_identities(keep_channels_last(products)), _scaled_before)


@each_call
def keep_quantised(r: Rewriting, call: Call) -> list[Call] | None:
    """f(dequantised x) becomes dequantised f(x), for an f that moves or compares, and a single scale above 0. A result that is
    quantised again by the same numbers is x, and other quantisation by known numbers multiplies instead of dividing, with one
    rounding more."""
    if keeps_elements(call) or call.operator == "Concat":
        return _sunk(r, call)
    return _quantised(r, call) if call.operator == "QuantizeLinear" else None


def keeps_elements(call: Call) -> bool:
    """True where the elements of the only output are some of the only input's."""
    o = definition(call)
    same = len(call.values) == len(call.outputs) == 1 and call.values[0].dtype == call.outputs[0].dtype
    return same and (o.view or o.moves or o.monotone)


def _sunk(r: Rewriting, call: Call) -> list[Call] | None:
    """A call before the DequantizeLinear of its operands, which must be the same for all of them."""
    made = [r.producer(v, "DequantizeLinear") for v in call.values]
    first, result = made[0], call.outputs[0]
    if first is None or any(m is None or _parameters(r, m) != _parameters(r, first) for m in made) or not _parameters(r, first):
        return None
    numbers = tuple(m.values[0] for m in made if m is not None)
    if not dtypes.is_int(numbers[0].dtype):
        return None
    moved = r.value(f"{result.name}_numbers", result.shape, numbers[0].dtype)
    return [replace(call, inputs=numbers, outputs=(moved,)), replace(first, inputs=(moved, *first.inputs[1:]), outputs=(result,))]


def _parameters(r: Rewriting, call: Call) -> tuple[float, float, str] | None:
    """The single scale and zero point of a call, and the type of its integers; None where they are not single, or unknown."""
    _, scale, *zeros = call.inputs
    numbers = [r.number(v) if v is not None else 0.0 for v in (scale, *zeros)]
    kind = (call.outputs if call.operator == "QuantizeLinear" else call.values)[0].dtype
    if numbers[0] is None or None in numbers or not 0 < numbers[0] < np.inf:
        return None
    return numbers[0], (numbers[1] or 0.0) if zeros else 0.0, kind


def _quantised(r: Rewriting, call: Call) -> list[Call] | None:
    (x, scale, *_), result = call.inputs, call.outputs[0]
    found = _parameters(r, call)
    if found is None or x is None or scale is None or {x.dtype, scale.dtype} != {"float32"}:
        return None
    if call.attribute("precision") not in (None, "float32") or call.attribute("output_dtype") not in (None, result.dtype):
        return None
    before = r.producer(x, "DequantizeLinear")
    if before is not None and _parameters(r, before) == found:
        return [Call("Identity", before.values[:1], call.outputs)]
    with np.errstate(all="ignore"):
        inverse = np.float32(1) / np.float32(found[0])
    if not np.isfinite(inverse) or inverse < np.finfo(np.float32).tiny or result.dtype not in ("int8", "uint8"):
        return None
    factor = r.constant(np.array(inverse), name=f"{result.name}_factor")
    return [r.call("QuantizeByFactor", [x, factor], call.outputs, zero=int(found[1]), to=result.dtype)]


def _scaled_before(r: Rewriting, call: Call) -> list[Call] | None:
    """A quantisation whose factor is in constants before it; the limits of an activation that clips become its own."""
    factor = r.known(call.inputs[1]) if call.operator == "QuantizeByFactor" and len(call.inputs) > 1 else None
    found = None if factor is None else _scaled(r, call.values[0], factor)
    if found is None:
        return None
    calls, x = found
    if calls[-1].operator not in ("Relu", "Clip"):
        return [*calls, replace(call, inputs=(x,))]
    last = calls.pop()
    low, high = (0.0, None) if last.operator == "Relu" else (last.attribute("min"), last.attribute("max"))
    limits = tuple((name, limit) for name, limit in (("low", low), ("high", high)) if limit is not None)
    return [*calls, replace(call, inputs=last.values, attributes=(*call.attributes, *limits))]


def _scaled(r: Rewriting, value: Value, factor: np.ndarray) -> tuple[list[Call], Value] | None:
    """A value times a factor, and the calls that make it with no more work; None where there are none."""
    if value.name in r.constants:
        return [], _times(r, value, factor)
    call = r.producers.get(value)
    if call is None or not r.read_once(value):
        return None
    inputs, attributes = list(call.values), dict(call.attributes)
    match call.operator:
        case "Relu" | "Reshape":
            places = [0]
        case "Clip" if len(inputs) == 1:
            places = [0]
            limits = ((n, call.attribute(n)) for n in ("min", "max"))
            attributes |= {n: float(limit * factor) for n, limit in limits if limit is not None}
        case "Add":
            places = sorted((0, 1), key=lambda n: inputs[n].name in r.constants)
        case "DequantizeLinear" if _parameters(r, call) is not None:
            places = [1]
        case "Mul" | "DepthwiseConv" if inputs[1].name in r.constants and _sums_integers(r, call):
            places = [1]
        case _:
            return None
    calls: list[Call] = []
    for place in places:
        found = _scaled(r, inputs[place], factor)
        if found is None:
            return None
        calls += found[0]
        inputs[place] = found[1]
    new = r.call(call.operator, inputs, f"{value.name}_scaled", **attributes)
    return [*calls, new], new.outputs[0]


def _sums_integers(r: Rewriting, call: Call) -> bool:
    """True where a call scales sums of integers. Other factors may be part of an activation."""
    return call.operator == "DepthwiseConv" or r.producer(call.values[0], "Cast") is not None


def _times(r: Rewriting, value: Value, factor: np.ndarray) -> Value:
    """A constant times a factor."""
    array = r.constants[value.name]
    return r.constant((array * factor).astype(array.dtype), name=f"{value.name}_scaled")
