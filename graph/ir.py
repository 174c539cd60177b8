"""The nodes of a graph: values, and calls of operators on them.

A graph is in static single assignment form: each value is an input, a constant or the output of one call. Names are unique, and
calls stand in topological order. Nodes are frozen; a pass makes a new graph. The meanings of operators are in `ops`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from graphlib import TopologicalSorter
from heapq import heappop, heappush
from math import prod
from typing import Any

import numpy as np

from tir import dtypes
from tir.arrays import from_float

from .text import Line, attribute_text, name_text

Attribute = int | float | str | tuple[int, ...] | tuple[float, ...] | tuple[str, ...]
ELEMENT_TYPES = frozenset({"dtype", "output_dtype", "precision", "to"})  # the attributes that name element types


class GraphError(ValueError):
    """A graph, or a file that should hold one, that is malformed or asks for something unknown."""


@dataclass(frozen=True, slots=True)
class Value:
    """A tensor in a graph: a name, a shape without symbols, and the name of an element type (see `tir.dtypes`)."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    @property
    def nbytes(self) -> int:
        return prod(self.shape) * dtypes.nbytes(self.dtype)

    def __str__(self) -> str:
        return f"{name_text(self.name)}: {type_text(self)}"


@dataclass(frozen=True, slots=True)
class TensorSequence:
    """Tensors that are one value of a file; in a graph each is a value of its own."""

    tensors: tuple[Value, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """An operator applied to values. An omitted input is None; `attributes` are sorted by name.

    `node` names what it is from, a node of a file or of a program, for profiles and errors. Equal calls may differ in it. Those
    with the attributes 1 and True, or 0.0 and -0.0, are not equal, as their results differ.
    """

    operator: str
    inputs: tuple[Value | None, ...]
    outputs: tuple[Value, ...]
    attributes: tuple[tuple[str, Attribute], ...] = ()
    opset: int = 0  # the version of the operator set that defines the operator; 0 for the newest
    node: str = ""

    @property
    def _key(self) -> tuple[Hashable, ...]:
        return self.operator, self.inputs, self.outputs, repr(self.attributes), self.opset

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Call) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    @property
    def values(self) -> tuple[Value, ...]:
        """The inputs that are not omitted."""
        return tuple(v for v in self.inputs if v is not None)

    def attribute(self, name: str, default: Any = None) -> Any:
        return dict(self.attributes).get(name, default)

    def with_inputs(self, found: Mapping[Value, Value]) -> Call:
        """This call with the inputs that are keys of `found` exchanged; itself if it has none of them."""
        inputs = tuple(v if v is None else found.get(v, v) for v in self.inputs)
        return self if inputs == self.inputs else replace(self, inputs=inputs)

    def __str__(self) -> str:
        arguments = ["none" if v is None else name_text(v.name) for v in self.inputs]
        arguments += [f"{name}={attribute_text(value)}" for name, value in self.attributes]
        operator = f"{self.operator}@{self.opset}" if self.opset else self.operator
        return f"{', '.join(map(str, self.outputs))} = {operator}({', '.join(arguments)})"


@dataclass(frozen=True, eq=False)
class Graph:
    """A network. `constants` are arrays by the names of their values; they are never written. Values `apart` end a kernel."""

    name: str
    inputs: tuple[Value, ...]
    calls: tuple[Call, ...]
    outputs: tuple[Value, ...]
    constants: Mapping[str, np.ndarray] = field(default_factory=dict)
    apart: frozenset[Value] = frozenset()

    def with_(self, **changes: Any) -> Graph:
        """A copy with the given fields changed."""
        return replace(self, **changes)

    def producers(self) -> dict[Value, Call]:
        """The call that makes each value."""
        return {v: c for c in self.calls for v in c.outputs}

    def consumers(self) -> dict[Value, list[Call]]:
        """The calls that read each value, in order, each once. A value without readers has no entry."""
        found: dict[Value, list[Call]] = {}
        for c in self.calls:
            for v in dict.fromkeys(c.values):
                found.setdefault(v, []).append(c)
        return found

    def from_nodes_of(self, before: Graph) -> Graph:
        """This graph with nodes for its new calls: that of the only call before of the operator on their first input, as of a
        convolution with another weight; else of the call that made their outputs, else of a reader."""
        if self is before or not any(c.node for c in before.calls):
            return self
        made = {v: c.node for c in before.calls for v in c.outputs}
        times = Counter((c.operator, *c.inputs[:1]) for c in before.calls)
        alike = {key: c.node for c in before.calls if times[key := (c.operator, *c.inputs[:1])] == 1}
        found, read = list(self.calls), dict[Value, str]()
        for n, call in reversed([*enumerate(self.calls)]):
            own = call.node or alike.get((call.operator, *call.inputs[:1]))
            node = own or next(filter(None, (made.get(v) or read.get(v) for v in call.outputs)), "")
            read |= dict.fromkeys(call.values, node)
            found[n] = call if call.node else replace(call, node=node)
        return self.with_(calls=tuple(found))

    def names(self) -> set[str]:
        """The names of all values."""
        return {v.name for v in self.inputs} | set(self.constants) | {v.name for c in self.calls for v in c.outputs}

    def text(self) -> str:
        """The graph in lines: inputs, constants that are read, calls in order, outputs."""
        read = {v for c in self.calls for v in c.values} | set(self.outputs)
        constants = [constant(n, a) for n, a in self.constants.items() if constant(n, a) in read]
        return "\n".join(
            [
                f"graph {name_text(self.name)}",
                *(f"    input {v}" for v in self.inputs),
                *(f"    constant {v}" for v in constants),
                *(f"    {c}" for c in self.calls),
                f"    output {', '.join(name_text(v.name) for v in self.outputs)}",
            ]
        )

    @staticmethod
    def parse(text: str, constants: Mapping[str, np.ndarray] | None = None) -> Graph:
        """The graph of a text such as `text` gives, with the arrays of its constants, by name; others are left out.

        Raises GraphError for a malformed text, whose line it names, and for a graph that is not well formed.
        """
        return verify(_Parser(constants or {}).graph(text))

    def show(self) -> None:
        """Print the graph."""
        print(self.text())

    __str__ = text


def constant(name: str, array: np.ndarray) -> Value:
    """The value of a constant array."""
    return Value(name, tuple(map(int, array.shape)), array.dtype.name)


def typed(array: np.ndarray, dtype: str) -> np.ndarray:
    """Storage of an element type as an array whose dtype has its name, as constants are: bfloat16 is that of ml_dtypes."""
    return array if dtype != "bfloat16" else array.view(numpy_type(dtype))


def numpy_type(dtype: str) -> np.dtype:
    """numpy's type of an element type, of its name."""
    if dtype != "bfloat16":
        return np.dtype(dtype)
    import ml_dtypes

    return np.dtype(ml_dtypes.bfloat16)


def rounded(values: np.ndarray, dtype: str) -> np.ndarray:
    """Floats as a constant of an element type."""
    return typed(from_float(values, dtype), dtype)


def type_text(value: Value) -> str:
    """An element type and a shape, as in `float32[7, 13]`."""
    return f"{value.dtype}{list(value.shape)}"


def stable_order(needs: Sequence[Sequence[int]], ranks: Sequence[int] | None = None) -> list[int]:
    """The positions of nodes, each after those that it needs, else by rank, or as they are. Raises graphlib.CycleError."""
    sorter = TopologicalSorter(dict(enumerate(needs)))
    sorter.prepare()
    ready, found = list[tuple[int, int]](), list[int]()
    while sorter.is_active():
        for n in sorter.get_ready():
            heappush(ready, (n if ranks is None else ranks[n], n))
        found.append(heappop(ready)[1])
        sorter.done(found[-1])
    return found


def verify(graph: Graph) -> Graph:
    """The graph, if it is well formed: each value is defined once, before it is read, and read with its own type. Element types
    are those of `dtypes.TABLE`, extents at least 0. Otherwise raises GraphError that names the call and the value."""
    defined: dict[str, Value] = {}

    def define(value: Value, where: str) -> None:
        if value.name in defined:
            raise GraphError(f"graph {graph.name}: {where} defines `{value.name}`, which is defined already")
        if value.dtype not in dtypes.TABLE:
            raise GraphError(f"graph {graph.name}: {where} has the element type {value.dtype}, which is not supported")
        if any(d < 0 for d in value.shape):
            raise GraphError(f"graph {graph.name}: {where} has the shape {list(value.shape)}; extents must be at least 0")
        defined[value.name] = value

    def read(value: Value, where: str) -> None:
        found = defined.get(value.name)
        if found is None:
            raise GraphError(f"graph {graph.name}: {where} reads `{value.name}`, which is not defined before it")
        if found != value:
            raise GraphError(
                f"graph {graph.name}: {where} reads `{value.name}` as {type_text(value)}, but it is {type_text(found)}"
            )

    for value in graph.inputs:
        define(value, f"input `{value.name}`")
    for name, array in graph.constants.items():
        if not array.dtype.isnative:
            other = f"{array.dtype.name} in another byte order than this machine's"
            raise GraphError(f"graph {graph.name}: constant `{name}` has elements of type {other}")
        define(constant(name, array), f"constant `{name}`")
    for call in graph.calls:
        where = f"call {call.operator} of `{call.outputs[0].name}`" if call.outputs else f"a call of {call.operator}"
        if not call.outputs:
            raise GraphError(f"graph {graph.name}: {where} has no output")
        for value in call.values:
            read(value, where)
        for value in call.outputs:
            define(value, where)
    if not graph.outputs:
        raise GraphError(f"graph {graph.name} has no output")
    for value in graph.outputs:
        read(value, "the list of outputs")
    return graph


class _Parser:
    """A parser of the text of a graph. `values` are the values of the lines so far, by name."""

    def __init__(self, constants: Mapping[str, np.ndarray]):
        self.arrays, self.values = constants, dict[str, Value]()
        self.name: str | None = None
        self.inputs: list[Value] = []
        self.constants: dict[str, np.ndarray] = {}
        self.calls: list[Call] = []
        self.outputs: list[Value] = []

    def graph(self, text: str) -> Graph:
        for number, content in enumerate(text.splitlines(), 1):
            if content.strip():
                try:
                    self._line(Line(content))
                except ValueError as error:
                    raise GraphError(f"line {number}: {error}: {content.strip()}") from None
        if self.name is None:
            raise GraphError("a graph begins with a line `graph NAME`, got an empty text")
        return Graph(self.name, tuple(self.inputs), tuple(self.calls), tuple(self.outputs), self.constants)

    def _line(self, line: Line) -> None:
        if self.name is None:
            line.expect(r"graph(?=\s)", "`graph NAME`")
            self.name = line.name()
        elif line.accept(r"input(?=\s)"):
            self.inputs.append(self._defined(line))
        elif line.accept(r"constant(?=\s)"):
            value = self._defined(line)
            array = self.arrays.get(value.name)
            if array is None or constant(value.name, array) != value:
                found = "it is not given" if array is None else f"got {type_text(constant(value.name, array))}"
                raise ValueError(f"the constant `{value.name}` must be {type_text(value)}, and {found}")
            self.constants[value.name] = array
        elif line.accept(r"output(?=\s)"):
            self.outputs += line.several(lambda: self._read(line))
        else:
            self.calls.append(self._call(line))
        line.end()

    def _defined(self, line: Line) -> Value:
        value = Value(*line.typed())
        self.values[value.name] = value
        return value

    def _read(self, line: Line) -> Value:
        name = line.name()
        if name not in self.values:
            raise ValueError(f"`{name}` is not defined before it")
        return self.values[name]

    def _call(self, line: Line) -> Call:
        outputs = line.several(lambda: Value(*line.typed()))
        line.expect("=", "`=`")
        operator = line.expect(r"\w[\w.-]*", "an operator")
        opset = int(line.expect(r"\d+", "a version")) if line.accept("@") else 0
        line.expect(r"\(", "`(`")
        inputs: list[Value | None] = []
        attributes: list[tuple[str, Attribute]] = []
        while not line.accept(r"\)"):
            if inputs or attributes:
                line.expect(",", "`,` or `)`")
            if name := line.accept(r"\w+(?==)"):
                line.expect("=", "`=`")
                attributes.append((name, line.attribute()))
            else:
                inputs.append(None if line.accept(r"none(?=[,)])") else self._read(line))
        self.values |= {v.name: v for v in outputs}
        return Call(operator, tuple(inputs), tuple(outputs), tuple(attributes), opset)
