"""The table of operators: by name and version of the operator set, a function from tensors to tensors.

    @operator("Softmax", since=13)
    def softmax(x, *, axis=-1): ...

Positional parameters are inputs, keyword ones attributes, named as in ONNX; what has no default must be given. Shapes, element
types, the number of operations and the reference follow from the tensor expressions that the function returns.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from tir import te
from tir.ir import PrimFunc

from ..ir import Call, Value

NEWEST = 1 << 30  # a version above all


@dataclass(frozen=True)
class Operator:
    """An operator in the versions `since` to `until` of the operator set.

    `operands` are the positions of inputs that must be constants, and become the attributes of those names. A `view` has the
    elements of its first input in their order, so that it needs no kernel.
    """

    name: str
    since: int
    until: int
    define: Callable[..., te.Tensor | tuple[te.Tensor, ...]]
    operands: Mapping[int, str]
    view: bool

    @property
    def attributes(self) -> tuple[str, ...]:
        """The names of the attributes that it takes."""
        return tuple(p.name for p in _parameters(self.define) if p.kind is p.KEYWORD_ONLY)

    @property
    def required(self) -> tuple[str, ...]:
        """The names of the attributes that must be given."""
        return tuple(p.name for p in _parameters(self.define) if p.kind is p.KEYWORD_ONLY and p.default is p.empty)

    def arity(self) -> tuple[int, int]:
        """The least and the largest number of inputs that are tensors."""
        inputs = [p for p in _parameters(self.define) if p.kind is not p.KEYWORD_ONLY]
        if any(p.kind is p.VAR_POSITIONAL for p in inputs):
            return 1, NEWEST
        return sum(p.default is p.empty for p in inputs), len(inputs)


_TABLE: dict[str, list[Operator]] = {}


def operator(
    name: str, since: int = 1, until: int = NEWEST, operands: Mapping[int, str] | None = None, view: bool = False
) -> Callable[[Callable], Callable]:
    """Register a function as the definition of an operator in some versions of the operator set; see `Operator`."""

    def register(define: Callable) -> Callable:
        _TABLE.setdefault(name, []).append(Operator(name, since, until, define, operands or {}, view))
        return define

    return register


def find(name: str, opset: int = 0) -> Operator | None:
    """The operator of that name in a version of the operator set (0 for the newest); None where there is none."""
    version = opset or NEWEST
    return next((o for o in _TABLE.get(name, ()) if o.since <= version <= o.until), None)


def versions(name: str) -> str:
    """The versions of the operator set for which there is an operator of that name, in words; empty where there are none."""
    spans = sorted((o.since, o.until) for o in _TABLE.get(name, ()))
    return " and ".join(f"{low} and later" if high == NEWEST else f"{low} to {high}" for low, high in spans)


def names() -> tuple[str, ...]:
    """The names of all operators."""
    return tuple(sorted(_TABLE))


def tensors(call: Call, inputs: Sequence[te.Tensor | None]) -> tuple[te.Tensor, ...]:
    """The outputs of a call on these tensors, as many as its operator has.

    Raises ValueError or TypeError where the tensors or the attributes do not fit the operator, LookupError where there is none.
    """
    found = find(call.operator, call.opset)
    if found is None:
        raise LookupError(f"there is no operator {call.operator} of version {call.opset}")
    outputs = found.define(*inputs, **dict(call.attributes))
    return outputs if isinstance(outputs, tuple) else (outputs,)


def is_view(call: Call) -> bool:
    """Whether a call only renames the elements of its first input."""
    found = find(call.operator, call.opset)
    return found is not None and found.view


def result_types(call: Call) -> tuple[tuple[tuple[int, ...], str], ...]:
    """The shapes and element types of what the operator of a call gives; errors as of `tensors`."""
    places = [None if v is None else placeholder(v, f"p{n}") for n, v in enumerate(call.inputs)]
    return tuple((shape_of(t), t.dtype) for t in tensors(call, places))


def function(call: Call) -> PrimFunc:
    """One call as a function of its different inputs and its outputs, in order; loops and blocks as `ops` wrote them."""
    different = list(dict.fromkeys(call.values))
    renamed = {v: Value(f"p{n}", v.shape, v.dtype) for n, v in enumerate(different)}
    outputs = tuple(Value(f"out{n}", v.shape, v.dtype) for n, v in enumerate(call.outputs))
    return _function(replace(call.with_inputs(renamed), outputs=outputs))


@cache
def _function(call: Call) -> PrimFunc:
    places = {v: placeholder(v, v.name) for v in dict.fromkeys(call.values)}
    results = tensors(call, [None if v is None else places[v] for v in call.inputs])
    return te.create_prim_func([*places.values(), *results[: len(call.outputs)]], name=call.operator.lower())


def placeholder(value: Value, name: str) -> te.Tensor:
    """An input tensor of the type of a value."""
    return te.placeholder(value.shape, value.dtype, name=name)


def shape_of(tensor: te.Tensor) -> tuple[int, ...]:
    return tuple(int(d) for d in tensor.shape)  # type: ignore[arg-type]


def _parameters(define: Callable[..., Any]) -> list[inspect.Parameter]:
    return list(inspect.signature(define).parameters.values())
