"""What a node of an ONNX file is written out as where no operator of `ops` is it: other nodes.

    @expansion("CastLike", 15)
    def cast_like(body, node, values): ...

The function adds nodes to a body, the last of which make the outputs of the node. What has no expansion here, but is a function
of other operators in ONNX's own definition, is written out as that says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from tir.traverse import fresh

from ..ops.registry import NEWEST

if TYPE_CHECKING:
    import onnx


@dataclass(frozen=True, slots=True)
class Part:
    """A tensor of a sequence: what lies from `begin` to `end` along an axis of a value, which goes where `squeezed`."""

    source: str
    axis: int
    begin: int
    end: int
    squeezed: bool


@dataclass
class Body:
    """Nodes in an order in which they can run, and the constants that they read. `opset` says what they mean; `taken` are the
    names that there are, and `prefix` begins those of its values. `sequences` of tensors are those of the whole file, by name."""

    opset: int
    taken: set[str]
    prefix: str
    sequences: dict[str, Sequence[Part]] = field(default_factory=dict)
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: dict[str, np.ndarray] = field(default_factory=dict)

    def name(self, wanted: str) -> str:
        """A new name."""
        return fresh(self.taken, f"{self.prefix}_{wanted}")

    def constant(self, array: Any, dtype: str | None = None) -> str:
        """The name of a new constant."""
        name = self.name("constant")
        self.constants[name] = np.asarray(array, dtype)
        return name

    def add(self, operator: str, *inputs: str, output: str | None = None, **attributes: Any) -> str:
        """A node of one output; returns its name, which is `output` where that is given."""
        import onnx

        name = self.name(operator.lower()) if output is None else output
        self.nodes.append(onnx.helper.make_node(operator, list(inputs), [name], **attributes))
        return name

    def needed(self, outputs: set[str]) -> list[onnx.NodeProto]:
        """The nodes on which some values depend, in order."""
        kept, wanted = [], set(outputs)
        for node in reversed(self.nodes):
            if not wanted.isdisjoint(node.output):
                kept.append(node)
                wanted |= {name for inner in all_nodes([node]) for name in inner.input}
        return kept[::-1]

    def cast(self, x: str, dtype: str, output: str | None = None) -> str:
        """A conversion to an element type of `dtypes`."""
        return self.add("Cast", x, output=output, to=element_type(dtype))


@dataclass(frozen=True)
class Expansion:
    """How nodes of an operator are written out in the versions `since` to `until`: `define(body, node, values, **constants)`.

    `operands` are, as of `ops.Operator`, the positions of inputs that must be constants, and their names."""

    since: int
    until: int
    define: Callable[..., None]
    operands: Mapping[int, str]


_TABLE: dict[str, list[Expansion]] = {}


def expansion(
    name: str, since: int = 1, until: int = NEWEST, operands: Mapping[int, str] | None = None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Register a function `define(body, node, values, **constants)` as the expansion of an operator: `values` are its inputs,
    None for one that is left out, `constants` the arrays of its operands by name."""

    def register(define: Callable[..., None]) -> Callable[..., None]:
        _TABLE.setdefault(name, []).append(Expansion(since, until, define, operands or {}))
        return define

    return register


def find(name: str, opset: int) -> Expansion | None:
    """The expansion of an operator in a version of the operator set; None where there is none."""
    return next((e for e in _TABLE.get(name, ()) if e.since <= opset <= e.until), None)


def names() -> tuple[str, ...]:
    """The operators that have an expansion."""
    return tuple(sorted(_TABLE))


def all_nodes(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """Nodes, and those in the graphs that they hold."""
    for node in nodes:
        yield node
        for attribute in node.attribute:
            yield from all_nodes(attribute.g.node)


def renamed_node(
    node: onnx.NodeProto, renamed: Mapping[str, str], given: Mapping[str, onnx.AttributeProto] | None = None
) -> onnx.NodeProto:
    """A node with other names, also of what the graphs that it holds read and make; attributes that refer to those of a function
    become the ones `given` by name."""
    import onnx

    found = onnx.NodeProto()
    found.CopyFrom(node)
    del found.input[:], found.output[:], found.attribute[:]
    found.input.extend(renamed.get(name, name) for name in node.input)
    found.output.extend(renamed.get(name, name) for name in node.output)
    for attribute in node.attribute:
        if attribute.ref_attr_name:
            if attribute.ref_attr_name in (given or {}):
                found.attribute.append((given or {})[attribute.ref_attr_name])
                found.attribute[-1].name = attribute.name
            continue
        found.attribute.append(attribute)
        if attribute.g.node:
            graph = found.attribute[-1].g
            inner = [renamed_node(n, renamed, given) for n in graph.node]
            del graph.node[:]
            graph.node.extend(inner)
            for output in graph.output:
                output.name = renamed.get(output.name, output.name)
    return found


def element_type(dtype: str) -> int:
    """The number that ONNX has for an element type of `dtypes`."""
    import onnx

    return int(onnx.TensorProto.DataType.Value({"float32": "FLOAT", "float64": "DOUBLE"}.get(dtype, dtype.upper())))


def attributes(node: onnx.NodeProto) -> dict[str, Any]:
    """The attributes of a node by name, texts decoded."""
    import onnx

    found = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    return {name: a.decode() if isinstance(a, bytes) else a for name, a in found.items()}
