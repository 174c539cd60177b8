"""Networks of float32 computed in 16 bits, or with products of factors rounded to tf32, by leave of the caller.

Products, pooling, sums and all that only moves elements have operands and results of 16 bits, and compute in float32. All other
calls are computed in float32, and their results are rounded where another kernel may read them: a product and the chain of
elementwise calls after it are rounded once, at their end, and not before a softmax or a norm that alone reads them. Inputs and
outputs keep their types.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, get_args

import numpy as np

from ..ir import Call, Graph, Value, rounded, verify
from ..kinds import elementwise, moves
from ..ops import definition, result_types
from . import PASSES, Pass, optimize
from .rewriting import Rewriting, rewrite

Precision = Literal["bfloat16", "float16", "tf32"]
PRECISIONS = get_args(Precision)
TF32 = "tf32"  # a precision of GPUs, and the attribute of products whose factors may be rounded to 10 bits of mantissa
WIDE = "float32"


def in_precision(graph: Graph, dtype: str, passes: Sequence[Pass] = PASSES, device: bool = False) -> Graph:
    """The graph after `passes`, with activations and weights of float32 in a type of PRECISIONS. Other types are left alone. In
    tf32, which a `device` has, they stay float32, and products may round their factors.

    Raises ValueError for another type.
    """
    known = PRECISIONS if device else tuple(x for x in PRECISIONS if x != TF32)
    if dtype not in known:
        hint = "tf32 is for target cuda" if dtype == TF32 else "tir.quantise makes networks of integers"
        raise ValueError(f"precision must be {' or '.join(known)}, got {dtype!r}; {hint}")
    graph = optimize(graph, passes)
    if dtype == TF32:
        return verify(rewrite(graph, _rounding_factors))
    narrowing = _Narrowing(graph, dtype)
    return verify(rewrite(graph, narrowing.rule))


def _rounding_factors(r: Rewriting, call: Call) -> list[Call] | None:
    if definition(call).unknown([TF32]) or call.values[0].dtype != WIDE or call.attribute(TF32):
        return None
    return [replace(call, attributes=(*call.attributes, (TF32, 1)))]


LARGEST = {"bfloat16": 2.0**128 - 2.0**120, "float16": 65504.0}  # finite number of each type


class _Narrowing:
    """The values of 16 bits in place of those of float32, as they are made."""

    def __init__(self, graph: Graph, dtype: str):
        self.dtype, self.outputs, self.narrow = dtype, set(graph.outputs), dict[Value, Value]()
        self.consumers, self.wide, self.large = graph.consumers(), set[Value](), set[Value]()

    def rule(self, r: Rewriting, call: Call) -> list[Call] | None:
        if all(v.dtype != WIDE for v in (*call.values, *call.outputs)):
            return None
        if (elementwise(call) or moves(call)) and any(self._is_large(r, v) for v in call.values):
            self.large |= set(call.outputs)
        casts: list[Call] = []
        found = () if self._ends_wide(r, call) else _results(call, self.dtype)
        if not found:
            wide = {v: self._widened(r, v, casts) for v in call.values if v.dtype == WIDE}
            return [*casts, call.with_inputs(wide)]
        narrow = {v: self._narrowed(r, v, casts) for v in call.values if v.dtype == WIDE}
        if not definition(call).unknown(["output_dtype"]) and self._read_in_float(r, call.outputs[0]):
            self.wide |= set(call.outputs)
            return [*casts, replace(call.with_inputs(narrow), attributes=(*call.attributes, ("output_dtype", WIDE)))]
        made = {
            v: r.value(f"{v.name}_{self.dtype}", v.shape, self.dtype)
            for v, dtype in zip(call.outputs, found, strict=False)
            if (v.dtype, dtype) == (WIDE, self.dtype)
        }
        self.narrow |= made
        new = replace(call.with_inputs(narrow), outputs=tuple(made.get(v, v) for v in call.outputs))
        return [*casts, new, *(r.call("Cast", [n], (v,), to=WIDE) for v, n in made.items() if v in self.outputs)]

    def _ends_wide(self, r: Rewriting, call: Call) -> bool:
        """True where a call moves the end of a chain of float32 to an output, which is float32, too."""
        ends = set(call.outputs) <= self.outputs and moves(call)
        return ends and all(v not in self.narrow and r.producers.get(v) is not None and r.read_once(v) for v in call.values)

    def _read_in_float(self, r: Rewriting, value: Value) -> bool:
        """True where one call alone reads a value, in float32."""
        readers = self.consumers.get(value, [])
        return r.read_once(value) and all(not moves(c) and not _results(c, self.dtype) for c in readers)

    def _is_large(self, r: Rewriting, value: Value) -> bool:
        """True for numbers that 16 bits may not hold, as masks are: constants, and what is computed of them."""
        array = r.known(value)
        return value in self.large if array is None else value.dtype == WIDE and self._saturated(array) is not array

    def _saturated(self, array: np.ndarray) -> np.ndarray:
        """The array, its finite numbers within those of 16 bits."""
        most = LARGEST[self.dtype]
        beyond = np.isfinite(array) & (np.abs(array) > most)
        return np.where(beyond, np.copysign(np.float32(most), array), array) if beyond.any() else array

    def _narrowed(self, r: Rewriting, value: Value, casts: list[Call]) -> Value:
        """A value of float32 in 16 bits: a constant, the result of a call, or of a new one. Large numbers stay finite."""
        if value not in self.narrow:
            name, given = f"{value.name}_{self.dtype}", value
            if (array := r.known(value)) is not None:
                self.narrow[value] = r.constant(rounded(self._saturated(array), self.dtype), name=name)
            else:
                if value in self.large:
                    most = LARGEST[self.dtype]
                    casts.append(r.call("Clip", [value], f"{value.name}_finite", min=-most, max=most))
                    given = casts[-1].outputs[0]
                casts.append(r.call("Cast", [given], name, to=self.dtype))
                self.narrow[value] = casts[-1].outputs[0]
        return self.narrow[value]

    def _widened(self, r: Rewriting, value: Value, casts: list[Call]) -> Value:
        """A value as a call in float32 reads it: as it was made, if this call alone reads it, or else of 16 bits. Each call has a
        conversion of its own, which becomes a part of its kernel."""
        maker = r.producers.get(value)
        if value in self.wide or (value not in self.narrow and (maker is None or (r.read_once(value) and elementwise(maker)))):
            return value
        if r.known(value) is not None:
            return value
        casts.append(r.call("Cast", [self._narrowed(r, value, casts)], f"{value.name}_{WIDE}", to=WIDE))
        return casts[-1].outputs[0]


def _results(call: Call, dtype: str) -> tuple[str, ...]:
    """The element types of the results of a call that is to have operands of 16 bits; none if its operator takes no such. A
    norm has its factors in float32, unless it has several results, and is a kernel by itself."""
    if not (least := definition(call).halves) and (call.operator == "Cast" or not moves(call)):
        return ()
    if len(call.outputs) < least:
        return ()
    inputs = tuple(v if v is None or v.dtype != WIDE else replace(v, dtype=dtype) for v in call.inputs)
    try:
        return tuple(kind for _, kind in result_types(replace(call, inputs=inputs)))
    except (TypeError, ValueError):
        return ()
