"""Graphs in the making: what importers, passes, tests and users write them with.

    builder = Builder("perceptron")
    x = builder.input("x", (7, 13), "float32")
    y = builder("Relu", builder("MatMul", x, builder.constant(weights)))
    graph = builder.graph(y)

Names are made unique, and shapes and element types follow from the operators. A builder, and a `Writer` in one, is the
`ops.registry.Apply` of composites, which are written out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np

from tir import dtypes
from tir.traverse import fresh

from .ir import Attribute, Call, Graph, GraphError, TensorSequence, Value, constant, numpy_type, type_text, typed, verify
from .ops import Operator, alternatives, find, function_name, result_types, unknown
from .ops.loops import BEGIN
from .ops.narrow_types import held_as, narrow_name
from .ops.registry import HOW_TO_ADD
from .reference import run_call


class Builder:
    """The calls, inputs and constants of a graph so far. A call of constants alone is computed, and its results are constants,
    unless `fold` is false.

    `taken` are the names in use, and others that new values must not have. `narrow` has the element types of values whose
    numbers a wider type holds, by name (see `ops.narrow_types`). New calls are from `node` (see `Call`).
    """

    def __init__(self, name: str = "network", *, fold: bool = True):
        self.name, self.fold = name, fold
        self.inputs: list[Value] = []
        self.calls: list[Call] = []
        self.constants: dict[str, np.ndarray] = {}
        self.taken: set[str] = set()
        self.narrow: dict[str, str] = {}
        self.node = ""

    # --- values --------------------------------------------------------------------------------------------------------

    def input(self, name: str, shape: Sequence[int], dtype: str) -> Value:
        """A new input of the graph. Raises GraphError for a name that is taken, and an element type that is not supported."""
        self._need_type(f"the input `{name}`", dtype)
        if name in self.taken:
            raise GraphError(f"graph {self.name}: the name `{name}` is taken")
        self.taken.add(name)
        self.inputs.append(Value(name, tuple(map(int, shape)), dtype))
        return self.inputs[-1]

    def constant(self, array: Any, dtype: str | None = None, name: str = "constant") -> Value:
        """A new constant, an array that is not copied, or numbers. Raises GraphError for an unsupported element type."""
        array = np.asarray(array)
        for kind in (array.dtype.name, dtype):
            if kind is not None and not narrow_name(array.dtype):
                self._need_type("a constant", kind)
        if dtype is not None and array.dtype.name != dtype:
            array = array.astype(numpy_type(dtype))
        return self.kept(array, name)

    def kept(self, array: np.ndarray, name: str) -> Value:
        """A new constant of any element type, which calls that read it may refuse."""
        name = self.fresh(name)
        if kind := narrow_name(array.dtype):
            self.narrow[name], array = kind, array.astype(held_as(kind))
        self.constants[name] = array
        return constant(name, array)

    def _need_type(self, what: str, dtype: str) -> None:
        if dtype not in dtypes.TABLE:
            raise GraphError(f"graph {self.name}: {what} has the element type {dtype}, which is not supported")

    def value(self, name: str, shape: tuple[int, ...], dtype: str) -> Value:
        """A new value, for a call that is still to be made."""
        return Value(self.fresh(name), shape, dtype)

    def known(self, value: Value | TensorSequence | None) -> np.ndarray | None:
        """The elements of a value that is constant, else None. TypeError for what is no value."""
        if not isinstance(value, TensorSequence):
            need_tensors([value])
        return self.constants.get(value.name) if isinstance(value, Value) else None

    def dtype(self, value: Value) -> str:
        """The element type of a value, which may be a narrow one."""
        return self.narrow.get(value.name, value.dtype)

    def fresh(self, name: str) -> str:
        """The name, or one that begins with it and is not taken; it then is."""
        return fresh(self.taken, name)

    # --- calls ---------------------------------------------------------------------------------------------------------

    def __call__(self, operator: str, /, *inputs: Value | None, **attributes: Any) -> Any:
        """The output of the newest operator of that name, or the tuple of them. Inputs and attributes that are None are left out.

        Raises GraphError for an unknown operator, and for operands that do not fit it.
        """
        try:
            return self.applied(operator, inputs, attributes, function_name(operator), self)
        except (TypeError, ValueError) as error:
            given = ", ".join("none" if v is None else type_text(v) if isinstance(v, Value) else str(v) for v in inputs)
            raise GraphError(f"graph {self.name}: {operator}({given}): {error}") from None

    def applied(self, operator: str, inputs: Sequence[Value | None], attributes: Mapping[str, Any], name: str, apply: Any) -> Any:
        """The results of a call, with outputs named after `name`. `apply` writes out composites."""
        given = {key: value for key, value in attributes.items() if value is not None}

        def attempt(found: Operator) -> Any:
            if found.composite:
                return found.define(apply, *inputs, **given)
            results = self.called(found, inputs, given, name)
            return results[0] if len(results) == 1 else results

        if not (operators := alternatives(operator)):
            raise ValueError(f"{unknown(operator)}; {HOW_TO_ADD}")
        return first_fitting(operators, attempt)

    def called(
        self,
        found: Operator,
        inputs: Sequence[Value | None],
        attributes: Mapping[str, Any],
        outputs: Sequence[str] | str,
        opset: int = 0,
        fold: bool = True,
    ) -> tuple[Value, ...]:
        """The outputs of a new call of an operator, of given names, or new ones after a name.

        With `fold`, those of a call of constants alone are constants. Raises TypeError or ValueError where operands do not fit.
        """
        need_tensors(inputs)
        given = trimmed(inputs)
        if reason := found.misfit(given, attributes):
            raise ValueError(reason)
        version = 0 if found == find(found.name) else opset
        call = Call(found.name, tuple(given), (), tuple(sorted(attributes.items())), version, self.node)
        types = result_types(call)
        if isinstance(outputs, str):
            outputs = [self.fresh(outputs) for _ in types]
        if len(outputs) > len(types):
            raise ValueError(f"its output {len(types)}, `{outputs[len(types)]}`, is not supported")
        values = tuple(Value(name, *type_) for name, type_ in zip(outputs, types, strict=False))
        call, arrays = replace(call, outputs=values), [self.known(v) for v in given]
        if fold and self.folds(found, given) and all(v is None or a is not None for v, a in zip(given, arrays, strict=True)):
            for value, array in zip(values, run_call(call, arrays), strict=True):
                self.constants[value.name] = typed(array, value.dtype)
        else:
            self.calls.append(call)
        return values

    def folds(self, operator: Operator, inputs: Sequence[Value | None]) -> bool:
        """True where a call is computed if all its inputs are constants."""
        return self.fold and operator.name != BEGIN

    def call(
        self, operator: str, inputs: Sequence[Value | None], outputs: str | Sequence[Value], **attributes: Attribute
    ) -> Call:
        """A call that is not added to the graph. Its outputs are given as values, or as a name for new ones."""
        call = Call(operator, tuple(inputs), (), tuple(sorted(attributes.items())))
        if isinstance(outputs, str):
            outputs = [self.value(outputs, *t) for t in result_types(call)]
        return replace(call, outputs=tuple(outputs))

    def graph(self, *outputs: Value, **named: Value) -> Graph:
        """The graph with these outputs, `named` ones after the others, by other names, and the constants that are read.

        Raises GraphError for a name that is taken, a named output that no call makes or that is another one, too, and
        a malformed graph.
        """
        renamed = {v: replace(v, name=name) for name, v in named.items()}
        made = {v for c in self.calls for v in c.outputs}
        for value, new in renamed.items():
            reasons = {
                "no call makes it": value not in made,
                f"the name `{new.name}` is taken": new.name in self.taken,
                "it is another output, too; Identity makes a value of its own": [*outputs, *named.values()].count(value) > 1,
            }
            if why := next((reason for reason, holds in reasons.items() if holds), None):
                raise GraphError(f"graph {self.name}: `{value.name}` cannot be the output `{new.name}`: {why}")
        calls = [c.with_inputs(renamed) for c in self.calls]
        calls = [replace(c, outputs=tuple(renamed.get(v, v) for v in c.outputs)) for c in calls]
        outputs = (*outputs, *renamed.values())
        read = {v.name for c in calls for v in c.values} | {v.name for v in outputs}
        kept = {name: array for name, array in self.constants.items() if name in read}
        return verify(Graph(self.name, tuple(self.inputs), tuple(calls), outputs, kept))


class Writer:
    """The `ops.registry.Apply` of the composites in place of one call, after whose name new values are named."""

    def __init__(self, builder: Builder, name: str):
        self.builder, self.name = builder, name

    def __call__(self, operator: str, /, *inputs: Value | None, **attributes: Any) -> Any:
        try:
            return self.builder.applied(operator, inputs, attributes, f"{self.name}_{function_name(operator)}", self)
        except (TypeError, ValueError) as error:
            raise ValueError(f"it is written out with {operator}: {error}") from None

    def constant(self, array: Any, dtype: str | None = None) -> Value:
        return self.builder.constant(array, dtype, f"{self.name}_constant")

    def fresh(self, name: str) -> str:
        return self.builder.fresh(f"{self.name}_{name}")

    def known(self, value: Value) -> np.ndarray | None:
        return self.builder.known(value)

    def dtype(self, value: Value) -> str:
        return self.builder.dtype(value)


def first_fitting(operators: Sequence[Operator], attempt: Callable[[Operator], Any]) -> Any:
    """The result of the first operator that raises no TypeError or ValueError; where all do, the error of the first."""
    (found, *others) = operators
    try:
        return attempt(found)
    except (TypeError, ValueError):
        for other in others:
            with suppress(TypeError, ValueError):
                return attempt(other)
        raise


def need_tensors(inputs: Sequence[Any]) -> None:
    """Refuse sequences of tensors, and all else that is no value."""
    if any(isinstance(v, TensorSequence) for v in inputs):
        raise ValueError("it reads a sequence of tensors")
    if (other := next((v for v in inputs if v is not None and not isinstance(v, Value)), None)) is not None:
        raise TypeError(f"its inputs are values, got {type(other).__name__}; `Builder.constant` makes a value of an array")


def trimmed(inputs: Sequence[Any]) -> list[Any]:
    """Inputs without omitted ones at the end."""
    count = max((n + 1 for n, given in enumerate(inputs) if given), default=0)
    return list(inputs[:count])
