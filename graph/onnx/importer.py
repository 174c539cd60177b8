"""The nodes of an ONNX file as calls of a graph.

A node whose inputs are constant is folded, by the evaluator of the ONNX package, or, where that fails, by our operators. Of the
others, an operator of `ops` becomes a call. A composite, or a function that ONNX itself defines, is written out as calls.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Container, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tir import dtypes
from tir.traverse import fresh

from ..builder import Builder, Writer, first_fitting, need_tensors, trimmed
from ..ir import ELEMENT_TYPES, Call, Graph, GraphError, TensorSequence, Value, constant
from ..ops import Operator, alternatives, find
from ..ops.narrow_types import NARROW, held_as
from ..ops.registry import HOW_TO_ADD
from .computed import needs_shape, stated_shapes, with_stated_shape
from .functions import arguments, function_of, halves_of, names_read, needed, newest_opset, ordered, resolved
from .inputs import element_type, stated
from .refusals import (
    HOLDERS,
    OF_FIRST,
    OF_SEQUENCES,
    SEQUENCES,
    UNKNOWN,
    UNUSED,
    domain_of,
    folds,
    misfit,
    operator_of,
    refusal,
)  # fmt: skip
from .weights import weights

if TYPE_CHECKING:
    import onnx

FOR_ONE_PROCESSOR = "onnxruntime blocked the channels for one processor: optimise the file with ORT_ENABLE_EXTENDED at most"
FOLDING_ERRORS = (  # of ONNX's evaluator
    ArithmeticError, AttributeError, LookupError, NotImplementedError, RuntimeError, TypeError, ValueError,
)  # fmt: skip


@dataclass(frozen=True)
class NodeScope:
    """The scope of the nodes of one graph: the file's, that of a function, or one that a node holds.

    `values` are known by name, None for an omitted input, which has no name or is one of a function. `read` are the names that
    are read, `given` the attributes of the call of a function. `prefix` begins the names of new values; in the file's own graph
    it is empty, and names stay.
    """

    values: MutableMapping[str, Any]
    opsets: Mapping[str, int]
    read: Container[str]
    given: Mapping[str, onnx.AttributeProto] = field(default_factory=dict)
    prefix: str = ""

    def missing(self, node: onnx.NodeProto) -> str | None:
        """The first name that a node reads and nothing defines."""
        return next((name for name in node.input if name not in self.values), None)

    def prefix_of(self, node: onnx.NodeProto) -> str:
        """The prefix of names in the calls of a node that is written out."""
        name = next(filter(None, (node.name, *node.output)), node.op_type)
        return f"{self.prefix}_{name}" if self.prefix else name


class Importer(Builder):
    """The import of one file."""

    def __init__(self, model: onnx.ModelProto, file: str, folder: Path):
        super().__init__(model.graph.name or "network")
        self.proto, self.file, self.folder = model.graph, file, folder
        self.opsets = {domain_of(o.domain): o.version for o in model.opset_import}
        self.shapes: dict[str, tuple[int, ...]] = {}  # that the file states
        self.problems: list[str] = []
        products = [n for n in self.proto.node if any(o.integers for o in alternatives(operator_of(n)))]
        self.weights = {name for n in products for name in n.input[:2]}
        self.read = names_read(self.proto.node) | {o.name for o in self.proto.output}
        self.taken = {*self.read, *(name for n in self.proto.node for name in n.output), *(i.name for i in self.proto.input)}

    def check(self) -> None:
        """Raise GraphError for nodes that cannot be imported, as far as that is known without shapes."""
        try:
            self.order = ordered(self.proto.node, {i.name for i in (*self.proto.input, *self.proto.initializer)})
        except ValueError as error:
            raise GraphError(f"{self.file}: {error}") from None
        self._check_nodes()
        self._raise_problems()

    def imported(self, shapes: Mapping[str, Sequence[int] | int | str]) -> Graph:
        """The graph for these shapes of inputs that the file leaves open."""
        self.check()
        for name, array in weights(self.proto, self.file, self.folder).items():
            self.constant_named(name, array)
        given = [Value(v.name, v.known, v.dtype) for v in stated(self.proto, self.file, shapes)]
        self.narrow |= {v.name: v.dtype for v in given if v.dtype in NARROW}
        self.inputs = [replace(v, dtype=held_as(v.dtype)) for v in given]
        self.shapes = stated_shapes(self.proto, self.inputs)
        values = {name: constant(name, array) for name, array in self.constants.items()} | {v.name: v for v in self.inputs}
        scope = NodeScope({"": None, **values}, self.opsets, self.read)
        for number in self.order:
            node = self.proto.node[number]
            self.node = node.name or next(iter(node.output), "")
            if self.problems and scope.missing(node) is not None:  # it waits for a node that could not be imported
                continue
            try:
                self.write(node, scope)
            except (TypeError, ValueError) as error:
                self.problems.append(f"{self._node_text(node, number)}: {error}")
        self._raise_problems()
        return self.graph(*(self._output(o.name, scope) for o in self.proto.output))

    def _output(self, name: str, scope: NodeScope) -> Value:
        """An output of the file, which keeps its name."""
        match scope.values.get(name):
            case None:
                raise GraphError(f"{self.file}: no node makes the output `{name}`")
            case TensorSequence():
                raise GraphError(f"{self.file}: the output `{name}` is a sequence of tensors")
            case Value() as value if value.name in self.constants:
                return self.constant_named(name, self.constants[value.name])
            case Value() as value if value.name != name:
                own = replace(value, name=name)
                self.calls.append(Call("Identity", (value,), (own,)))
                return own
            case value:
                return value

    # --- refusals ------------------------------------------------------------------------------------------------------

    def _raise_problems(self) -> None:
        if self.problems:
            count = "1 node" if len(self.problems) == 1 else f"{len(self.problems)} nodes"
            hint = [HOW_TO_ADD] if any(UNKNOWN in problem for problem in self.problems) else []
            hint = [FOR_ONE_PROCESSOR] if any("com.microsoft.nchwc." in problem for problem in self.problems) else hint
            raise GraphError("\n  ".join([f"{self.file}: {count} cannot be imported", *self.problems, *hint]))

    def _node_text(self, node: onnx.NodeProto, number: int) -> str:
        label = f"`{node.name}`" if node.name else f"number {number}, of `{', '.join(filter(None, node.output))}`,"
        return f"node {label} {operator_of(node)} of opset {self.opsets.get(domain_of(node.domain), 'unknown')}"

    def _check_nodes(self) -> None:
        """Find the nodes that cannot be imported, without shapes (see `refusals`)."""
        known = {i.name for i in self.proto.initializer} | {i.values.name for i in self.proto.sparse_initializer}
        stated = {i.name for i in (*self.proto.value_info, *self.proto.output) if i.type.tensor_type.HasField("shape")}
        for number in self.order:
            node = self.proto.node[number]
            reason = refusal(node, known, self.opsets)
            if folds(node, known) or (node.op_type in OF_FIRST and node.input[0] in known):
                known |= set(node.output)
            if reason and not (needs_shape(node, known) and node.output[0] in stated):
                self.problems.append(f"{self._node_text(node, number)}: {reason}")

    # --- nodes ---------------------------------------------------------------------------------------------------------

    def write(self, node: onnx.NodeProto, scope: NodeScope) -> None:
        """Add the calls of a node, and its outputs to the scope. Raises TypeError or ValueError for a node that is refused."""
        if (missing := scope.missing(node)) is not None:
            raise ValueError(f"reads `{missing}`, which nothing defines")
        node = resolved(node, scope.given, {name for name in node.input if scope.values[name] is None})
        inputs = [scope.values[name] for name in node.input]
        known = {name for name, v in zip(node.input, inputs, strict=True) if self.known(v) is not None}
        if self._stated_shape(node, known, scope) is None and (reason := refusal(node, known, scope.opsets)):
            raise ValueError(reason)
        kind = self._narrow_result(node, inputs)
        foldable = folds(node, known) and node.op_type not in SEQUENCES and not any(self._kinds(inputs))
        foldable = foldable and not self._stays_quantised(node)
        folded = self._folded(node, inputs, scope) if foldable else None
        results = self._written(node, inputs, known, scope) if folded is None else folded
        scope.values.update({name: value for name, value in zip(node.output, results, strict=False) if name})
        if kind:
            self.narrow |= {v.name: kind for v in results if isinstance(v, Value)}

    def _stated_shape(self, node: onnx.NodeProto, known: Container[str], scope: NodeScope) -> tuple[int, ...] | None:
        """The shape that the file states for the result of a node, if its operands do not give it."""
        return self.shapes.get(node.output[0]) if needs_shape(node, known) and not scope.prefix else None

    def _stays_quantised(self, node: onnx.NodeProto) -> bool:
        """True where a node gives the weights of a product as floats, for which the integers may serve."""
        return node.op_type == "DequantizeLinear" and not self.weights.isdisjoint(node.output)

    def _kinds(self, inputs: Sequence[Any]) -> list[str]:
        """The narrow element types of inputs; empty for others."""
        return [self.narrow.get(v.name, "") if isinstance(v, Value) else "" for v in inputs]

    def _narrow_result(self, node: onnx.NodeProto, inputs: Sequence[Any]) -> str:
        """The narrow element type of a node's result; empty for another. ValueError for nodes that do not take such types."""
        kinds, named = self._kinds(inputs), [a.i for a in node.attribute if a.name in ("to", "output_dtype") and a.i]
        own = element_type(named[0], "its result") if named and domain_of(node.domain) == "" else ""
        match node.op_type:
            case "Cast" | "DequantizeLinear" | "GatherBlockQuantized" | "Shape" | "Size":
                return own if own in NARROW else ""
            case "CastLike":
                return kinds[1]
            case "QuantizeLinear":
                return own if own in NARROW else "".join(kinds[2:])
            case _ if not any(kinds) or any(o.keeps or o.moves for o in alternatives(operator_of(node))):
                return next(filter(None, kinds), "")
        raise ValueError(f"it does not take {next(filter(None, kinds))}; cast it")

    def inlined(self, nodes: Sequence[onnx.NodeProto], scope: NodeScope, outputs: Sequence[str]) -> tuple[Any, ...]:
        """The values of `outputs`, None for one that no node makes; only nodes on which these depend are written."""
        for node in needed([nodes[number] for number in ordered(nodes)], outputs):
            try:
                self.write(node, scope)
            except (TypeError, ValueError) as error:
                raise ValueError(f"it is written out with {node.op_type}: {error}") from None
        return tuple(scope.values.get(name) for name in outputs)

    def _folded(self, node: onnx.NodeProto, inputs: Sequence[Any], scope: NodeScope) -> list[Value | None] | None:
        """The outputs of a node of constants alone; None where ONNX's evaluator fails and we have the operator."""
        if node.op_type in ("Shape", "Size") and not domain_of(node.domain):
            need_tensors(inputs)
            shape = np.array(inputs[0].shape, np.int64)
            bounds = {a.name: a.i for a in node.attribute}
            whole, part = np.array(shape.prod()), shape[bounds.get("start", 0) : bounds.get("end", len(shape))]
            found: Any = [whole if node.op_type == "Size" else part]
        else:
            from onnx.reference import ReferenceEvaluator

            feeds = {name: self.known(v) for name, v in zip(node.input, inputs, strict=True) if name}
            try:
                found = ReferenceEvaluator(node, opsets=dict(scope.opsets)).run(None, feeds)
            except FOLDING_ERRORS as error:  # it has mistakes of its own
                if find(operator_of(node), scope.opsets[domain_of(node.domain)]) is None:
                    raise ValueError(f"it does not evaluate: {error}") from None
                return None
        if not all(isinstance(a, (np.ndarray, np.generic)) for a in found):
            raise ValueError("its result is no tensor")
        named = zip(node.output, found, strict=False)
        return [self.constant_named(self._name(name, scope), np.asarray(a)) if name else None for name, a in named]

    def _written(self, node: onnx.NodeProto, inputs: Sequence[Any], known: Container[str], scope: NodeScope) -> Sequence[Any]:
        """The outputs of a node, by its operator, or else by calls of others. `known` are the names of constant inputs."""
        if node.op_type == "Identity" and isinstance(inputs[0], TensorSequence):
            return inputs
        if node.op_type not in (*SEQUENCES, *HOLDERS):
            need_tensors(inputs)
        elif node.op_type in OF_SEQUENCES and not isinstance(inputs[0], TensorSequence):
            raise ValueError("its first input is no sequence of tensors")
        start, opset, prefix = len(self.calls), scope.opsets[domain_of(node.domain)], scope.prefix_of(node)
        if (shape := self._stated_shape(node, known, scope)) is not None:
            given = self._attributes(node, {}, scope, prefix)
            return self._outputs_of(node, scope, start, with_stated_shape(Writer(self, prefix), node, inputs, given, shape))

        def attempt(found: Operator) -> Any:
            operands, tensors = found.taken(inputs, lambda v: self.known(v) is not None)
            given = trimmed([inputs[n] for n in tensors])
            attributes = self._attributes(node, {a: _operand(self.constants[inputs[n].name]) for n, a in operands}, scope, prefix)
            if node.op_type == "QuantizeLinear" and (kind := self._narrow_result(node, inputs)):
                attributes["output_dtype"] = kind
            if not found.composite:
                return self.called(found, given, attributes, self._outputs(node, scope), opset, not self._stays_quantised(node))
            results = found.define(Writer(self, prefix), *given, **attributes)
            return self._outputs_of(node, scope, start, results if isinstance(results, tuple) else (results,))

        if found := alternatives(operator_of(node), opset):
            fitting = [o for o in found if not misfit(node, o, known)] or found[:1]
            most = max(len(o.operands) for o in fitting)  # a constant becomes an attribute where it can
            return first_fitting([o for o in fitting if len(o.operands) == most], attempt)
        return self._outputs_of(node, scope, start, self._function(node, inputs, scope))

    def _function(self, node: onnx.NodeProto, inputs: Sequence[Any], scope: NodeScope) -> tuple[Any, ...]:
        """The outputs of a node that ONNX defines by others. Halves are computed in float32 and rounded at the end."""
        opset = scope.opsets[domain_of(node.domain)]
        halves, write = halves_of(node, inputs, opset), Writer(self, scope.prefix_of(node))
        if any(halves):
            inputs = [write("Cast", v, to=dtypes.computed(v.dtype)) if v is not None else None for v in inputs]
        function = function_of(node, inputs, opset)
        values = dict.fromkeys(("", *function.input)) | dict(zip(function.input, inputs, strict=False))
        opsets = {domain_of(o.domain): o.version for o in function.opset_import} or scope.opsets
        opsets = {"": newest_opset(), **opsets}  # which a function of another domain need not say
        outputs = [inner for inner, outer in zip(function.output, node.output, strict=False) if outer in scope.read]
        read = names_read(function.node) | set(outputs)
        inner = NodeScope(values, opsets, read, arguments(node, function, opset), scope.prefix_of(node))
        self.inlined(function.node, inner, outputs)
        found = [inner.values.get(name) for name in function.output]
        rounded = zip(found, halves[: len(found)], strict=True)
        return tuple(v if v is None or half is None else write("Cast", v, to=half) for v, half in rounded)

    def _outputs_of(self, node: onnx.NodeProto, scope: NodeScope, start: int, results: Sequence[Any]) -> Sequence[Any]:
        """The outputs of a node, whose calls begin at `start`. Unread calls go; outputs in the file's graph keep their names."""
        outputs = [(name, v) for name, v in zip(node.output, results, strict=False) if name in scope.read]
        wanted = {v for _, r in outputs for v in (r.tensors if isinstance(r, TensorSequence) else (r,))}
        kept: list[Call] = []
        for call in reversed(self.calls[start:]):
            if not wanted.isdisjoint(call.outputs):
                kept.append(call)
                wanted |= set(call.values)
        named: dict[Value, Value] = {}
        if not scope.prefix and not any(isinstance(r, TensorSequence) for r in results):
            made = {v for c in kept for v in c.outputs}
            named = {v: replace(v, name=name) for name, v in reversed(outputs) if v in made}
        self.calls[start:] = [
            replace(c.with_inputs(named), outputs=tuple(named.get(v, v) for v in c.outputs)) for c in reversed(kept)
        ]
        return [named.get(r, r) for r in results]

    def _attributes(self, node: onnx.NodeProto, operands: Mapping[str, Any], scope: NodeScope, prefix: str) -> dict[str, Any]:
        """The attributes of a node as operators take them, with its operands. `prefix` is for names in graphs that it holds."""
        attributes = {a.name: _attribute(a) for a in node.attribute if a.name not in UNUSED} | dict(operands)
        for name in ELEMENT_TYPES & set(attributes) if not domain_of(node.domain) else ():
            attributes[name] = element_type(attributes[name], "its result")
        for a in node.attribute:
            if a.HasField("g"):
                attributes[a.name] = NodeBody(self, scope, prefix, a.g)
        if node.op_type == "Split" and "split" not in attributes:
            attributes["num_outputs"] = len(node.output)
        return attributes

    def _outputs(self, node: onnx.NodeProto, scope: NodeScope) -> list[str]:
        """The names of the outputs of a node, up to the last that is read; outputs without a name get one."""
        used = [n for n, name in enumerate(node.output) if name and name in scope.read]
        count = max(used, default=0) + 1
        return [self._name(name, scope) if name else fresh(self.taken, scope.prefix_of(node)) for name in node.output[:count]]

    def _name(self, name: str, scope: NodeScope) -> str:
        """The name in the graph for a name of a scope."""
        return fresh(self.taken, f"{scope.prefix}_{name}") if scope.prefix else name

    def constant_named(self, name: str, array: np.ndarray) -> Value:
        """A new constant of that name, which is taken for it."""
        self.taken.discard(name)
        return self.kept(array, name)


@dataclass(frozen=True)
class NodeBody:
    """A graph that a node holds, as the `ops.registry.Body` of composites."""

    file: Importer
    scope: NodeScope
    prefix: str
    graph: onnx.GraphProto

    @property
    def outputs(self) -> int:
        return len(self.graph.output)

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        from onnx import numpy_helper

        write = Writer(self.file, self.prefix)
        own: dict[str, Any] = {i.name: write.constant(numpy_helper.to_array(i)) for i in self.graph.initializer}
        own |= dict(zip((i.name for i in self.graph.input), inputs, strict=True))
        outputs = [o.name for o in self.graph.output]
        read = names_read(self.graph.node) | set(outputs)
        scope = replace(self.scope, values=ChainMap(own, self.scope.values), read=read, prefix=self.prefix)
        return self.file.inlined(self.graph.node, scope, outputs)

    def needed(self, output: int) -> set[int]:
        """The numbers of the inputs on which an output may depend: of all, where that goes through another graph."""
        nodes = needed(self.graph.node, [self.graph.output[output].name])
        names = names_read(nodes) | {self.graph.output[output].name}
        holds = any(a.HasField("g") for n in nodes for a in n.attribute)
        return {n for n, given in enumerate(self.graph.input) if holds or given.name in names}


def _attribute(attribute: onnx.AttributeProto) -> Any:
    """The value of an attribute, or the graph that it holds; ValueError for kinds that no operator takes."""
    import onnx

    value = onnx.helper.get_attribute_value(attribute)
    match value:
        case bytes():
            return value.decode()
        case int() | float() | onnx.GraphProto():
            return value
        case onnx.TensorProto():
            return onnx.numpy_helper.to_array(value)
        case list() if all(isinstance(v, (int, float)) for v in value):
            return tuple(value)
        case list() if all(isinstance(v, bytes) for v in value):
            return tuple(v.decode() for v in value)
        case _:
            raise ValueError(f"the attribute {attribute.name} is no number, text or list of them")


def _operand(array: np.ndarray) -> Any:
    """A constant as an attribute: a number, or a tuple of them."""
    return array.item() if array.ndim == 0 else tuple(array.reshape(-1).tolist())
