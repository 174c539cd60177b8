"""ONNX files to graphs.

What can be computed while reading is: shapes are static, so that all arithmetic on them, and whatever else depends on constants
alone, is folded, node by node, by the operators' definitions in numpy that the ONNX package has, or, where those fail, by ours.
What is left are operators of `ops`; composites, and what ONNX itself defines as a function of others, are written out as calls of
those. All nodes that are not there are named in one error before anything else is done.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Container, Mapping, MutableMapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tir import dtypes
from tir.nearest import nearest
from tir.traverse import fresh

from .ir import ELEMENT_TYPES, Call, Graph, GraphError, TensorSequence, Value, constant, verify
from .onnx_functions import arguments, function_of, has_function, names_read, needed, resolved
from .ops import Operator, alternatives, find, names, result_types, versions
from .reference import run_call
from .weights import as_onnx, weights

if TYPE_CHECKING:
    import onnx

OF_CONSTANTS = ("ConstantOfShape", "Range")  # whose result has a shape that its inputs say
MEASURES = ("SequenceLength", "Shape", "Size")  # constant, whatever their input is, as shapes are static
OF_FIRST = ("If", "CastLike")  # constant where their first input is: what a branch makes may be
SEQUENCES = (
    "ConcatFromSequence", "SequenceAt", "SequenceConstruct", "SequenceEmpty", "SequenceErase", "SequenceInsert", "SequenceLength",
    "SplitToSequence",
)  # fmt: skip
RANDOM = ("Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike")
HOLDERS = ("If", "Loop", "Scan")  # hold graphs, through which sequences go as they are
SUBGRAPHS = (5, 10)  # the types of attributes that hold graphs
FOLDING_ERRORS = (  # of ONNX's evaluator
    ArithmeticError, AttributeError, LookupError, NotImplementedError, RuntimeError, TypeError, ValueError,
)  # fmt: skip

Shapes = Mapping[str, Sequence[int]]


def load_onnx(source: str | Path | onnx.ModelProto, shapes: Shapes | None = None) -> Graph:
    """The graph that an ONNX file holds, or an `onnx.ModelProto`.

    `shapes` gives, by the names of inputs, the shapes that the file leaves open. Constants are read from where they lie. Raises
    GraphError for a file that is none, weights that are cut off, shapes that are missing or contradict the file, and, with a list
    of all of them, for nodes that are not there; FileNotFoundError where there is no file; ImportError without the package onnx.
    """
    model, folder = _model(source)
    name = str(source) if isinstance(source, (str, Path)) else model.graph.name or "the model"
    return _Import(model, name, folder).graph(dict(shapes or {}))


def _model(source: str | Path | onnx.ModelProto) -> tuple[onnx.ModelProto, Path]:
    """The model, external weights not yet loaded, and the folder beside which those lie."""
    try:
        import onnx
        import onnx.inliner
        from google.protobuf.message import DecodeError
    except ImportError:
        raise ImportError("reading ONNX files needs the package onnx: pip install onnx") from None
    if isinstance(source, onnx.ModelProto):
        model, folder = source, Path()
    else:
        folder = Path(source).parent
        try:
            model = onnx.load_model_from_string(Path(source).read_bytes())
        except DecodeError:
            raise GraphError(f"{source} is no ONNX file, or is cut off") from None
    texts = (text for n in model.graph.node for text in (n.name, n.op_type, n.domain, *n.input, *n.output))
    if any(isinstance(text, bytes) for text in texts):  # protobuf gives bytes where text is not UTF-8
        raise GraphError(f"{source} is no ONNX file, or is damaged: a name in it is no text")
    if not model.opset_import or not model.HasField("graph"):
        raise GraphError(f"{source if isinstance(source, (str, Path)) else 'the model'} is no ONNX file: it holds no graph")
    return (onnx.inliner.inline_local_functions(model) if model.functions else model), folder


@dataclass(frozen=True)
class Scope:
    """What the nodes of one graph see: the file's, that of a function, or one that a node holds.

    `values` are known by name, None for an input that is left out, of no name or of one of a function; `read` are the names that
    are read, `given` the attributes of the call of a function. `prefix` begins the names of what is made here; in the file's own
    graph it is empty, and names stay.
    """

    values: MutableMapping[str, Any]
    opsets: Mapping[str, int]
    read: Container[str]
    given: Mapping[str, onnx.AttributeProto] = field(default_factory=dict)
    prefix: str = ""

    def missing(self, node: onnx.NodeProto) -> str | None:
        """The first name that a node reads and nothing defines."""
        return next((name for name in node.input if name not in self.values), None)

    def below(self, node: onnx.NodeProto) -> str:
        """The prefix of what a node is written out as."""
        name = next(filter(None, (node.name, *node.output)), node.op_type)
        return f"{self.prefix}_{name}" if self.prefix else name


class _Import:
    """One file on its way to a graph."""

    def __init__(self, model: onnx.ModelProto, name: str, folder: Path):
        self.proto, self.name, self.folder = model.graph, name, folder
        self.opsets = {_domain(o.domain): o.version for o in model.opset_import}
        self.constants: dict[str, np.ndarray] = {}
        self.calls: list[Call] = []
        self.problems: list[str] = []
        self.read = names_read(self.proto.node) | {o.name for o in self.proto.output}
        self.taken = {*self.read, *(name for n in self.proto.node for name in n.output), *(i.name for i in self.proto.input)}

    def graph(self, shapes: dict[str, Sequence[int]]) -> Graph:
        self._check_nodes()
        self._raise()
        self.constants |= weights(self.proto, self.name, self.folder)
        inputs = self._inputs(shapes)
        values = {name: constant(name, array) for name, array in self.constants.items()} | {v.name: v for v in inputs}
        scope = Scope({"": None, **values}, self.opsets, self.read)
        for number, node in enumerate(self.proto.node):
            missing = scope.missing(node)
            if missing is None:
                try:
                    self.write(node, scope)
                except (TypeError, ValueError) as error:
                    self.problems.append(f"{self._where(node, number)}: {error}")
            elif not self.problems:  # otherwise it waits for a node that could not be imported
                self.problems.append(f"{self._where(node, number)}: reads `{missing}`, which is not defined before it")
        self._raise()
        outputs = tuple(self._output(o.name, scope) for o in self.proto.output)
        read = {v.name for c in self.calls for v in c.values} | {v.name for v in outputs}
        kept = {name: array for name, array in self.constants.items() if name in read}
        return verify(Graph(self.proto.name or "network", tuple(inputs), tuple(self.calls), outputs, kept))

    def _output(self, name: str, scope: Scope) -> Value:
        """An output of the file, which keeps its name."""
        match scope.values.get(name):
            case None:
                raise GraphError(f"{self.name}: no node makes the output `{name}`")
            case TensorSequence():
                raise GraphError(f"{self.name}: the output `{name}` is a sequence of tensors")
            case Value() as value if value.name in self.constants:
                return self.constant(name, self.constants[value.name])
            case Value() as value if value.name != name:
                own = replace(value, name=name)
                self.calls.append(Call("Identity", (value,), (own,)))
                return own
            case value:
                return value

    def constant(self, name: str, array: np.ndarray) -> Value:
        """The constant of that name."""
        self.constants[name] = array
        return constant(name, array)

    # --- what is not there ---------------------------------------------------------------------------------------------

    def _raise(self) -> None:
        if self.problems:
            count = "1 node" if len(self.problems) == 1 else f"{len(self.problems)} nodes"
            raise GraphError("\n  ".join([f"{self.name}: {count} cannot be imported", *self.problems]))

    def _where(self, node: onnx.NodeProto, number: int) -> str:
        domain = _domain(node.domain)
        operator = f"{domain}.{node.op_type}" if domain else node.op_type
        label = f"`{node.name}`" if node.name else f"number {number}, of `{', '.join(filter(None, node.output))}`,"
        return f"node {label} {operator} of opset {self.opsets.get(domain, 'unknown')}"

    def _check_nodes(self) -> None:
        """Find the nodes that have no operator, from what they say alone: whether values are constant is known without shapes."""
        known = {i.name for i in self.proto.initializer} | {i.values.name for i in self.proto.sparse_initializer}
        for number, node in enumerate(self.proto.node):
            reason = self._reason(node, known, self.opsets)
            if _folds(node, known) or (node.op_type in OF_FIRST and node.input[0] in known):
                known |= set(node.output)
            if reason:
                self.problems.append(f"{self._where(node, number)}: {reason}")

    def _reason(self, node: onnx.NodeProto, known: Container[str], opsets: Mapping[str, int]) -> str:
        """Why a node cannot be imported; empty if it can, as far as is known without shapes."""
        domain = _domain(node.domain)
        if domain not in opsets:
            return "the file does not say which version of this domain it means"
        opset = opsets[domain]
        found = [] if domain else alternatives(node.op_type, opset)
        if any(a.type in SUBGRAPHS for a in node.attribute) and not any(o.composite for o in found):
            return "graphs inside of nodes are not there"
        if _folds(node, known):
            return ""
        for name in node.input if node.op_type in OF_CONSTANTS and not domain else ():
            if name not in known:
                return f"its input `{name}` must be constant"
        if reasons := [_misfit(node, o, known) for o in found]:
            return "" if "" in reasons else reasons[0]
        if not domain and has_function(node.op_type, opset):
            return ""
        there = "" if domain else versions(node.op_type)
        near = "" if there or domain else nearest(node.op_type, names())
        hint = f"; it is for versions {there}" if there else f"; did you mean {near}?" if near else ""
        return f"there is no such operator{hint}"

    # --- inputs --------------------------------------------------------------------------------------------------------

    def _inputs(self, shapes: dict[str, Sequence[int]]) -> list[Value]:
        given = [i for i in self.proto.input if i.name not in self.constants]
        for name in shapes:
            if name not in [i.name for i in given]:
                raise GraphError(
                    f"{self.name}: shapes names `{name}`; the inputs are {', '.join(i.name for i in given) or 'none'}"
                )
        symbols: dict[str, tuple[int, str]] = {}
        return [self._input(i, shapes.get(i.name), symbols) for i in given]

    def _input(self, info: onnx.ValueInfoProto, shape: Sequence[int] | None, symbols: dict[str, tuple[int, str]]) -> Value:
        """An input with the shape that is given for it, or that the file has. `symbols` are the sizes that names stand for."""
        if not info.type.HasField("tensor_type"):
            raise GraphError(f"{self.name}: the input `{info.name}` is no tensor")
        tensor = info.type.tensor_type
        dtype = self._dtype(tensor.elem_type, f"the input `{info.name}`")
        stated: list[int | str] | None = None
        if tensor.HasField("shape"):
            stated = [d.dim_value if d.HasField("dim_value") else d.dim_param or "?" for d in tensor.shape.dim]
        text = "unknown" if stated is None else f"[{', '.join(map(str, stated))}]"
        if shape is None:
            if stated is None or not all(isinstance(d, int) for d in stated):
                raise GraphError(
                    f"{self.name}: the shape of the input `{info.name}` is open, {text}; "
                    f"give it: shapes={{{info.name!r}: (...)}}, or in a shell --shape {info.name}=..."
                )
            shape = [int(d) for d in stated]
        found = tuple(int(d) for d in shape)
        fits = stated is None or (
            len(stated) == len(found) and all(isinstance(d, str) or d == e for d, e in zip(stated, found, strict=True))
        )
        if not fits or min(found, default=1) < 1:
            raise GraphError(f"{self.name}: the shape {list(found)} for the input `{info.name}` contradicts the file: {text}")
        for symbol, size in zip(stated or (), found, strict=False):
            if isinstance(symbol, str) and symbol != "?":
                other, where = symbols.setdefault(symbol, (size, info.name))
                if other != size:
                    raise GraphError(
                        f"{self.name}: the size `{symbol}` is {other} in the input `{where}`, but {size} in `{info.name}`"
                    )
        return Value(info.name, found, dtype)

    def _dtype(self, number: int, what: str) -> str:
        name = _dtype_name(number)
        if name not in dtypes.TABLE:
            raise GraphError(f"{self.name}: {what} has the element type {name}, which is not there")
        return name

    # --- nodes ---------------------------------------------------------------------------------------------------------

    def write(self, node: onnx.NodeProto, scope: Scope) -> None:
        """Add the calls that a node becomes, and its outputs to the scope. TypeError or ValueError says what is wrong with it."""
        if (missing := scope.missing(node)) is not None:
            raise ValueError(f"reads `{missing}`, which is not defined before it")
        node = resolved(node, scope.given, {name for name in node.input if scope.values[name] is None})
        inputs = [scope.values[name] for name in node.input]
        known = {name for name, v in zip(node.input, inputs, strict=True) if self._array(v) is not None}
        if reason := self._reason(node, known, scope.opsets):
            raise ValueError(reason)
        folded = self._folded(node, inputs, scope) if _folds(node, known) else None
        results = self._written(node, inputs, scope) if folded is None else folded
        scope.values.update({name: value for name, value in zip(node.output, results, strict=False) if name})

    def inlined(self, nodes: Sequence[onnx.NodeProto], scope: Scope, outputs: Sequence[str]) -> tuple[Any, ...]:
        """Some values that nodes make, None for one that they do not; nodes on which none depends are left out."""
        for node in needed(nodes, outputs):
            try:
                self.write(node, scope)
            except (TypeError, ValueError) as error:
                raise ValueError(f"it is written out with {node.op_type}: {error}") from None
        return tuple(scope.values.get(name) for name in outputs)

    def _array(self, value: Value | TensorSequence | None) -> np.ndarray | None:
        return self.constants.get(value.name) if isinstance(value, Value) else None

    def _folded(self, node: onnx.NodeProto, inputs: Sequence[Any], scope: Scope) -> list[Value | None] | None:
        """The outputs of a node that depends on nothing but constants; None where ONNX does not evaluate it, but we do."""
        if node.op_type in ("Shape", "Size") and not _domain(node.domain):
            shape = np.array(inputs[0].shape, np.int64)
            bounds = {a.name: a.i for a in node.attribute}
            whole, part = np.array(shape.prod()), shape[bounds.get("start", 0) : bounds.get("end", len(shape))]
            found: Any = [whole if node.op_type == "Size" else part]
        else:
            from onnx.reference import ReferenceEvaluator

            feeds = {name: self._array(v) for name, v in zip(node.input, inputs, strict=True) if name}
            try:
                found = ReferenceEvaluator(node, opsets=dict(scope.opsets)).run(None, feeds)
            except FOLDING_ERRORS as error:  # it has mistakes of its own
                if _domain(node.domain) or find(node.op_type, scope.opsets[""]) is None:
                    raise ValueError(f"it does not evaluate: {error}") from None
                return None
        if not all(isinstance(a, (np.ndarray, np.generic)) for a in found):
            raise ValueError("its result is no tensor")
        named = zip(node.output, found, strict=False)
        return [self.constant(self._name(name, scope), np.asarray(a)) if name else None for name, a in named]

    def _written(self, node: onnx.NodeProto, inputs: Sequence[Any], scope: Scope) -> Sequence[Any]:
        """The outputs of a node, by a call of its operator; where that is not there, or refuses, by calls of others."""
        if node.op_type == "Identity" and isinstance(inputs[0], TensorSequence):
            return inputs
        if node.op_type not in (*SEQUENCES, *HOLDERS) and any(isinstance(v, TensorSequence) for v in inputs):
            raise ValueError("it reads a sequence of tensors")
        start, opset = len(self.calls), scope.opsets[""]

        def attempt(found: Operator) -> Any:
            given = _trimmed([v for n, v in enumerate(inputs) if n not in found.operands])
            attributes = self._attributes(node, inputs, found)
            if not found.composite:
                return self.called(found, given, attributes, self._outputs(node, scope), opset)
            results = found.define(Writer(self, scope, scope.below(node)), *given, **attributes)
            return self._settled(node, scope, start, results if isinstance(results, tuple) else (results,))

        if known := alternatives(node.op_type, opset):
            return _first(known, attempt)
        return self._settled(node, scope, start, self._function(node, inputs, scope))

    def _function(self, node: onnx.NodeProto, inputs: Sequence[Any], scope: Scope) -> tuple[Any, ...]:
        """The outputs of a node that ONNX defines by others."""
        opset = scope.opsets[""]
        function = function_of(node, inputs, opset)
        values = dict.fromkeys(("", *function.input)) | dict(zip(function.input, inputs, strict=False))
        opsets = {_domain(o.domain): o.version for o in function.opset_import} or scope.opsets
        outputs = [inner for inner, outer in zip(function.output, node.output, strict=False) if outer in scope.read]
        read = names_read(function.node) | set(outputs)
        inner = Scope(values, opsets, read, arguments(node, function, opset), scope.below(node))
        self.inlined(function.node, inner, outputs)
        return tuple(inner.values.get(name) for name in function.output)

    def _settled(self, node: onnx.NodeProto, scope: Scope, start: int, results: Sequence[Any]) -> Sequence[Any]:
        """The outputs of a node that became the calls from one on: of these stay what the outputs that are read depend on, and
        outputs of the file's graph have the names that they have there."""
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

    def called(
        self,
        found: Operator,
        inputs: Sequence[Value | None],
        attributes: Mapping[str, Any],
        outputs: Sequence[str] | str,
        opset: int = 0,
    ) -> tuple[Value, ...]:
        """The outputs of a call of an operator: those of these names, or all of them with new names after the one given. What
        depends on constants alone is a constant."""
        parts = [v for v in inputs if v is None or 0 not in v.shape]
        given = _trimmed(parts if found.name == "Concat" else inputs)  # empty parts are nothing
        version = 0 if found == find(found.name) else opset
        call = Call(found.name, tuple(given), (), tuple(sorted(attributes.items())), version)
        types = result_types(call)
        if isinstance(outputs, str):
            outputs = [fresh(self.taken, outputs) for _ in types]
        if len(outputs) > len(types):
            raise ValueError(f"its output {len(types)}, `{outputs[len(types)]}`, is not there")
        values = tuple(Value(name, *type_) for name, type_ in zip(outputs, types, strict=False))
        call, arrays = replace(call, outputs=values), [self._array(v) for v in given]
        if all(v is None or a is not None for v, a in zip(given, arrays, strict=True)):
            return tuple(self.constant(v.name, as_onnx(a, v.dtype)) for v, a in zip(values, run_call(call, arrays), strict=True))
        self.calls.append(call)
        return values

    def _attributes(self, node: onnx.NodeProto, inputs: Sequence[Any], found: Operator) -> dict[str, Any]:
        """The attributes that an operator takes, with its operands."""
        attributes = {a.name: _attribute(a) for a in node.attribute}
        attributes |= {a: _operand(self.constants[inputs[n].name]) for n, a in _operands(node, found.operands)}
        for name in ELEMENT_TYPES & set(attributes):
            attributes[name] = self._dtype(int(attributes[name]), "the result")
        if node.op_type == "Split" and "split" not in attributes:
            attributes["num_outputs"] = len(node.output)
        return attributes

    def _outputs(self, node: onnx.NodeProto, scope: Scope) -> list[str]:
        """The names of the outputs of a node, up to the last that is read; those that have none get one."""
        used = [n for n, name in enumerate(node.output) if name and name in scope.read]
        count = max(used, default=0) + 1
        return [self._name(name, scope) if name else fresh(self.taken, scope.below(node)) for name in node.output[:count]]

    def _name(self, name: str, scope: Scope) -> str:
        """The name in the graph of what a scope calls so."""
        return fresh(self.taken, f"{scope.prefix}_{name}") if scope.prefix else name


@dataclass(frozen=True)
class Writer:
    """What composites are written with, as `ops.registry.Apply` says, in the place of a node of a scope."""

    file: _Import
    scope: Scope
    prefix: str

    def __call__(self, operator: str, /, *inputs: Value | None, **attributes: Any) -> Any:
        given = {name: value for name, value in attributes.items() if value is not None}

        def attempt(found: Operator) -> Any:
            if found.composite:
                return found.define(self, *inputs, **given)
            results = self.file.called(found, inputs, given, f"{self.prefix}_{operator.lower()}")
            return results[0] if len(results) == 1 else results

        try:
            return _first(alternatives(operator), attempt)
        except (TypeError, ValueError) as error:
            raise ValueError(f"it is written out with {operator}: {error}") from None

    def constant(self, array: Any, dtype: str | None = None) -> Value:
        return self.file.constant(fresh(self.file.taken, f"{self.prefix}_constant"), np.asarray(array, dtype))

    def inline(self, graph: onnx.GraphProto, inputs: Sequence[Any] = ()) -> tuple[Any, ...]:
        from onnx import numpy_helper

        own: dict[str, Any] = {i.name: self.constant(numpy_helper.to_array(i)) for i in graph.initializer}
        own |= dict(zip((i.name for i in graph.input), inputs, strict=True))
        outputs = [o.name for o in graph.output]
        read = names_read(graph.node) | set(outputs)
        scope = replace(self.scope, values=ChainMap(own, self.scope.values), read=read, prefix=self.prefix)
        return self.file.inlined(graph.node, scope, outputs)


def _first(operators: Sequence[Operator], attempt: Callable[[Operator], Any]) -> Any:
    """What the first operator makes, or the next one where that raises TypeError or ValueError; raises what the first did."""
    (found, *others) = operators
    try:
        return attempt(found)
    except (TypeError, ValueError):
        for other in others:
            with suppress(TypeError, ValueError):
                return attempt(other)
        raise


def _domain(name: str) -> str:
    return "" if name == "ai.onnx" else name


def _folds(node: onnx.NodeProto, known: Container[str]) -> bool:
    """Whether a node depends on nothing but values that are known."""
    if node.op_type in MEASURES and not _domain(node.domain):
        return True
    plain = node.op_type not in (*RANDOM, *SEQUENCES) and not any(a.type in SUBGRAPHS for a in node.attribute)
    return plain and all(name in known for name in node.input if name)


def _operands(node: onnx.NodeProto, operands: Mapping[int, str]) -> list[tuple[int, str]]:
    """The operands that a node has: their positions, and the names of the attributes that they become."""
    return [(n, a) for n, a in operands.items() if n < len(node.input) and node.input[n]]


def _open_operand(node: onnx.NodeProto, operands: Mapping[int, str], known: Container[str]) -> str:
    """What is wrong with the operands of a node that must be constant; empty if nothing is."""
    for n, attribute in _operands(node, operands):
        if node.input[n] not in known:
            return f"its {attribute}, `{node.input[n]}`, must be constant"
    return ""


def _trimmed(inputs: Sequence[Any]) -> list[Any]:
    """Inputs without those at the end that are left out."""
    count = max((n + 1 for n, given in enumerate(inputs) if given), default=0)
    return list(inputs[:count])


def _misfit(node: onnx.NodeProto, found: Operator, known: Container[str]) -> str:
    """Why an operator does not take a node; empty if it does."""
    if reason := _open_operand(node, found.operands, known):
        return reason
    given = {a.name for a in node.attribute} | {a for _, a in _operands(node, found.operands)}
    if unknown := found.unknown(given):
        return f"the attribute {unknown[0]} is not there"
    if missing := [a for a in found.required if a not in given]:
        return f"the attribute {missing[0]} is missing"
    inputs = _trimmed([name for n, name in enumerate(node.input) if n not in found.operands])
    least, most = found.arity()
    return f"it has {len(inputs)} input(s)" if not least <= len(inputs) <= most or not all(inputs[:least]) else ""


def _dtype_name(number: int) -> str:
    """The name of an element type of ONNX, as `dtypes` has it where it is there."""
    import onnx

    name = onnx.TensorProto.DataType.Name(number).lower() if number in onnx.TensorProto.DataType.values() else str(number)
    return {"float": "float32", "double": "float64"}.get(name, name)


def _attribute(attribute: onnx.AttributeProto) -> Any:
    """The value of an attribute, or the graph that it holds; ValueError for kinds that no operator takes."""
    import onnx

    value = onnx.helper.get_attribute_value(attribute)
    match value:
        case bytes():
            return value.decode()
        case int() | float() | onnx.GraphProto():
            return value
        case list() if all(isinstance(v, (int, float)) for v in value):
            return tuple(value)
        case list() if all(isinstance(v, bytes) for v in value):
            return tuple(v.decode() for v in value)
        case _:
            raise ValueError(f"the attribute {attribute.name} is no number, text or list of them")


def _operand(array: np.ndarray) -> Any:
    """A constant as an attribute: a number, or a tuple of them."""
    return array.item() if array.ndim == 0 else tuple(array.reshape(-1).tolist())
