"""Networks of float32 computed in 16 bits, by leave of the caller.

Products, norms, pooling and all that only moves elements have operands and results of 16 bits. Their sums, and what else they
compute, are in float32. All other calls are computed in float32, and their results are rounded where another kernel may read
them: chains of elementwise calls are rounded once, at their end. Inputs and outputs keep their types.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, get_args

from ..ir import Call, Graph, Value, rounded, verify
from ..kinds import elementwise, moves
from ..ops import result_types
from . import PASSES, Pass, optimize
from .rewriting import Rewriting, rewrite

Precision = Literal["bfloat16", "float16"]
PRECISIONS = get_args(Precision)
WIDE = "float32"
# Operators that compute in float32 what they read and write in halves, beside those that only move elements.
IN_HALVES = {
    "AveragePool", "BatchNormalization", "Conv", "ConvTranspose", "Gemm", "GlobalAveragePool", "GlobalMaxPool",
    "GroupNormalization", "InstanceNormalization", "LayerNormalization", "LogSoftmax", "LpNormalization", "MatMul", "MaxPool",
    "RMSNormalization", "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin",
    "ReduceSum", "ReduceSumSquare", "Softmax", "Split",
}  # fmt: skip


def in_precision(graph: Graph, dtype: str, passes: Sequence[Pass] = PASSES) -> Graph:
    """The graph after `passes`, with activations and weights of float32 in a type of PRECISIONS. Other types are left alone.

    Raises ValueError for another type.
    """
    if dtype not in PRECISIONS:
        raise ValueError(f"precision must be {' or '.join(PRECISIONS)}, got {dtype!r}; tir.quantise makes networks of integers")
    graph = optimize(graph, passes)
    narrowing = _Narrowing(graph, dtype)
    return verify(rewrite(graph, narrowing.rule))


class _Narrowing:
    """The values of 16 bits in place of those of float32, as they are made."""

    def __init__(self, graph: Graph, dtype: str):
        self.dtype, self.outputs, self.narrow = dtype, set(graph.outputs), dict[Value, Value]()

    def rule(self, r: Rewriting, call: Call) -> list[Call] | None:
        if all(v.dtype != WIDE for v in (*call.values, *call.outputs)):
            return None
        casts: list[Call] = []
        found = () if self._ends_wide(r, call) else _results(call, self.dtype)
        if not found:
            wide = {v: self._widened(r, v, casts) for v in call.values if v.dtype == WIDE}
            return [*casts, call.with_inputs(wide)]
        narrow = {v: self._narrowed(r, v, casts) for v in call.values if v.dtype == WIDE}
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

    def _narrowed(self, r: Rewriting, value: Value, casts: list[Call]) -> Value:
        """A value of float32 in 16 bits: a constant, the result of a call, or of a new one."""
        if value not in self.narrow:
            name = f"{value.name}_{self.dtype}"
            if (array := r.known(value)) is not None:
                self.narrow[value] = r.constant(rounded(array, self.dtype), name=name)
            else:
                casts.append(r.call("Cast", [value], name, to=self.dtype))
                self.narrow[value] = casts[-1].outputs[0]
        return self.narrow[value]

    def _widened(self, r: Rewriting, value: Value, casts: list[Call]) -> Value:
        """A value as a call in float32 reads it: as it was made, if this call alone reads it, or else of 16 bits. Each call has a
        conversion of its own, which becomes a part of its kernel."""
        maker = r.producers.get(value)
        if value not in self.narrow and (maker is None or (r.read_once(value) and elementwise(maker))):
            return value
        if r.known(value) is not None:
            return value
        casts.append(r.call("Cast", [self._narrowed(r, value, casts)], f"{value.name}_{WIDE}", to=WIDE))
        return casts[-1].outputs[0]


def _results(call: Call, dtype: str) -> tuple[str, ...]:
    """The element types of the results of a call that is to have operands of 16 bits, if its operator takes them; none else."""
    if call.operator not in IN_HALVES and (call.operator == "Cast" or not moves(call)):
        return ()
    inputs = tuple(v if v is None or v.dtype != WIDE else replace(v, dtype=dtype) for v in call.inputs)
    try:
        return tuple(kind for _, kind in result_types(replace(call, inputs=inputs)))
    except (TypeError, ValueError):
        return ()
