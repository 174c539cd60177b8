"""ONNX files to graphs.

What can be computed while reading is: shapes are static, so that all arithmetic on them, and whatever else depends on constants
alone, is folded, node by node, by the operators' definitions in numpy that the ONNX package has, or, where those fail, by ours.
What is left are operators of `ops`, and what `expansions` writes out as those. All nodes that are not there are named in one
error before anything else is done.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tir import dtypes
from tir.nearest import nearest
from tir.traverse import fresh

from . import expansions
from .ir import ELEMENT_TYPES, Attribute, Call, Graph, GraphError, Value, constant, type_text, verify
from .ops import find, names, versions
from .ops.registry import NEWEST, Operator, is_internal, result_types
from .reference import run_call
from .weights import weights

if TYPE_CHECKING:
    import onnx

OF_CONSTANTS = ("ConstantOfShape", "Range")  # whose result has a shape that its inputs say
MEASURES = ("Shape", "Size")  # constant, whatever their input is, as shapes are static
OF_FIRST = ("If", "CastLike")  # constant where their first input is: what a branch makes may be
SEQUENCES = ("SequenceAt", "SplitToSequence")  # these become slices
RANDOM = ("Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike")
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


class _Import:
    """One file on its way to a graph."""

    def __init__(self, model: onnx.ModelProto, name: str, folder: Path):
        self.proto, self.name = model.graph, name
        self.opsets = {_domain(o.domain): o.version for o in model.opset_import}
        self.constants: dict[str, np.ndarray] = {}
        self.values: dict[str, Value] = {}
        self.sequences: dict[str, Sequence[expansions.Part]] = {}
        self.problems: list[str] = []
        self.folder = folder
        nodes = list(expansions.all_nodes(self.proto.node))
        self.taken = {name for n in nodes for name in (*n.input, *n.output)} | {i.name for i in self.proto.input}
        self.read = {name for n in nodes for name in n.input} | {o.name for o in self.proto.output}

    def graph(self, shapes: dict[str, Sequence[int]]) -> Graph:
        self._check_nodes()
        self._raise()
        self.constants |= weights(self.proto, self.name, self.folder)
        self.values |= {name: constant(name, array) for name, array in self.constants.items()}
        inputs = self._inputs(shapes)
        self.values |= {v.name: v for v in inputs}
        calls: list[Call] = []
        for number, node in enumerate(self.proto.node):
            if all(name in self.values or name in self.sequences for name in node.input if name):
                try:
                    calls += self._node(node, self.opsets)
                except (TypeError, ValueError) as error:
                    self.problems.append(f"{self._where(node, number)}: {error}")
            elif not self.problems:  # otherwise it waits for a node that could not be imported
                missing = next(n for n in node.input if n and n not in self.values and n not in self.sequences)
                self.problems.append(f"{self._where(node, number)}: reads `{missing}`, which is not defined before it")
        self._raise()
        missing_outputs = [o.name for o in self.proto.output if o.name not in self.values]
        if missing_outputs:
            raise GraphError(f"{self.name}: no node makes the output `{missing_outputs[0]}`")
        outputs = tuple(self.values[o.name] for o in self.proto.output)
        read = {v.name for c in calls for v in c.values} | {v.name for v in outputs}
        kept = {name: array for name, array in self.constants.items() if name in read}
        return verify(Graph(self.proto.name or "network", tuple(inputs), tuple(calls), outputs, kept))

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
            folds = _folds(node, known)
            if folds or (node.op_type in OF_FIRST and node.input[0] in known):
                known |= set(node.output)
            reason = self._reason(node, known, folds, self.opsets)
            if reason:
                self.problems.append(f"{self._where(node, number)}: {reason}")

    def _reason(self, node: onnx.NodeProto, known: set[str], folds: bool, opsets: Mapping[str, int]) -> str:
        """Why a node cannot be imported; empty if it can, as far as is known without shapes."""
        domain = _domain(node.domain)
        if domain not in opsets:
            return "the file does not say which version of this domain it means"
        if any(a.type in SUBGRAPHS for a in node.attribute) and (domain or expansions.find(node.op_type, opsets[domain]) is None):
            return "graphs inside of nodes are not there"
        if folds:
            return ""
        opset = opsets[domain]
        for name in node.input if node.op_type in OF_CONSTANTS and not domain else ():
            if name not in known:
                return f"its input `{name}` must be constant"
        found = None if domain else find(node.op_type, opset)
        if found is None and not domain:
            expansion = expansions.find(node.op_type, opset)
            if expansion is not None:
                return _open_operand(node, expansion.operands, known)
            if expansions.has_function(node.op_type, opset):
                return ""
        if found is None:
            there = "" if domain else versions(node.op_type)
            near = "" if there or domain else nearest(node.op_type, (*names(), *expansions.names()))
            hint = f"; it is for versions {there}" if there else f"; did you mean {near}?" if near else ""
            return f"there is no such operator{hint}"
        if reason := _open_operand(node, found.operands, known):
            return reason
        given = {a.name for a in node.attribute} | {a for _, a in _operands(node, found.operands)}
        if unknown := sorted(given - set(found.attributes)):
            return f"the attribute {unknown[0]} is not there"
        if missing := [a for a in found.required if a not in given]:
            return f"the attribute {missing[0]} is missing"
        least, most = found.arity()
        inputs = _tensor_inputs(node, found)
        if not least <= len(inputs) <= most or not all(inputs[:least]):
            return f"it has {len(inputs)} input(s)"
        return ""

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

    def _node(self, node: onnx.NodeProto, opsets: Mapping[str, int]) -> list[Call]:
        """The calls that a node becomes; none where it is folded. Raises TypeError or ValueError for what is wrong with it."""
        results = self._folded(node, opsets)
        if results is None:
            return self._written(node, opsets[""])
        for name, array in zip(node.output, results, strict=False):
            if name:
                self.constants[name] = array
                self.values[name] = constant(name, array)
        return []

    def _written(self, node: onnx.NodeProto, opset: int) -> list[Call]:
        """A call of the operator; where that is not there, or refuses, the calls that the node is written out as."""
        found, other = find(node.op_type, opset), expansions.find(node.op_type, opset)
        for operands in (k.operands for k in (found, other) if k is not None):
            if reason := _open_operand(node, operands, self.constants):
                raise ValueError(reason)
        if found is None:
            return self._expanded(node, opset)
        try:
            return [self._call(node, opset)]
        except (TypeError, ValueError) as error:
            if other is None:
                raise
            try:
                return self._expanded(node, opset)
            except (TypeError, ValueError):
                raise error from None

    def _expanded(self, node: onnx.NodeProto, opset: int) -> list[Call]:
        """The calls that a node becomes which is written out as others."""
        values = [self.values.get(name) for name in node.input]
        body = expansions.Body(opset, self.taken, node.name or node.output[0], self.sequences)
        found = expansions.find(node.op_type, opset)
        if found is not None:
            constants = {a: self.constants[node.input[n]] for n, a in _operands(node, found.operands)}
            found.define(body, node, values, **constants)
        elif expansions.has_function(node.op_type, opset):
            expansions.write_function(body, node, values, opset)
        else:
            raise ValueError(f"it is written out with {node.op_type}, which is not there")
        self.constants |= body.constants
        self.values |= {name: constant(name, array) for name, array in body.constants.items()}
        self.read |= {name for n in expansions.all_nodes(body.nodes) for name in n.input}
        calls: list[Call] = []
        for inner in body.needed(self.read & set(node.output)):
            try:
                opsets = {"": NEWEST if is_internal(inner.op_type) else body.opset}
                if reason := self._reason(inner, set(self.constants), _folds(inner, self.constants), opsets):
                    raise ValueError(reason)
                calls += self._node(inner, opsets)
            except (TypeError, ValueError) as error:
                raise ValueError(f"it is written out with {inner.op_type}: {error}") from None
        return calls

    def _folded(self, node: onnx.NodeProto, opsets: Mapping[str, int]) -> list[np.ndarray] | None:
        """The outputs of a node that depends on nothing but constants; None for others."""
        if node.op_type in MEASURES and not _domain(node.domain):
            shape = np.array(self.values[node.input[0]].shape, np.int64)
            if node.op_type == "Size":
                return [np.array(shape.prod())]
            bounds = {a.name: a.i for a in node.attribute}
            return [shape[bounds.get("start", 0) : bounds.get("end", len(shape))]]
        if not _folds(node, self.constants):
            return None
        from onnx.reference import ReferenceEvaluator

        feeds = {name: self.constants[name] for name in node.input if name}
        try:
            found = ReferenceEvaluator(node, opsets=dict(opsets)).run(None, feeds)
        except FOLDING_ERRORS as error:  # it has mistakes of its own
            if _domain(node.domain) or find(node.op_type, opsets[""]) is None:
                raise ValueError(f"it does not evaluate: {error}") from None
            call = self._call(node, opsets[""])
            return run_call(call, [None if v is None else self.constants[v.name] for v in call.inputs])
        if not all(isinstance(a, (np.ndarray, np.generic)) for a in found):
            raise ValueError("its result is no tensor")
        return [np.asarray(a) for a in found]

    def _call(self, node: onnx.NodeProto, opset: int) -> Call:
        found = find(node.op_type, opset)
        assert found is not None, "the scan lets no other node pass"
        attributes: dict[str, Attribute] = {a.name: _attribute(a) for a in node.attribute}
        attributes |= {a: _operand(self.constants[node.input[n]]) for n, a in _operands(node, found.operands)}
        for name in ELEMENT_TYPES & set(attributes):
            attributes[name] = self._dtype(int(attributes[name]), "the result")  # type: ignore[arg-type]
        if node.op_type == "Split" and "split" not in attributes:
            attributes["num_outputs"] = len(node.output)
        inputs = tuple(self.values[name] if name else None for name in _tensor_inputs(node, found))
        if node.op_type == "Concat":  # empty parts are constants, and nothing
            inputs = tuple(v for v in inputs if v is None or 0 not in v.shape)
        types = result_types(Call(node.op_type, inputs, (), tuple(sorted(attributes.items())), opset))
        outputs = self._outputs(node)
        if len(outputs) > len(types):
            raise ValueError(f"its output {len(types)}, `{outputs[len(types)]}`, is not there")
        values = tuple(Value(name, *types[n]) for n, name in enumerate(outputs))
        for value in values:
            if min(value.shape, default=1) < 1:
                raise ValueError(f"its result {type_text(value)} is empty")
        self.values |= {v.name: v for v in values}
        version = 0 if found == find(node.op_type) else opset
        return Call(node.op_type, inputs, values, tuple(sorted(attributes.items())), version)

    def _outputs(self, node: onnx.NodeProto) -> list[str]:
        """The names of the outputs of a node, up to the last that is read; those that have none get one."""
        used = [n for n, name in enumerate(node.output) if name and name in self.read]
        count = max(used, default=0) + 1
        return [name or fresh(self.taken, f"{node.output[0]}_{n}") for n, name in enumerate(node.output[:count])]


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


def _tensor_inputs(node: onnx.NodeProto, found: Operator) -> list[str]:
    """The names of the inputs that stay tensors; those at the end that are left out are not there."""
    inputs = [name for n, name in enumerate(node.input) if n not in found.operands]
    while inputs and not inputs[-1]:
        inputs.pop()
    return inputs


def _dtype_name(number: int) -> str:
    """The name of an element type of ONNX, as `dtypes` has it where it is there."""
    import onnx

    name = onnx.TensorProto.DataType.Name(number).lower() if number in onnx.TensorProto.DataType.values() else str(number)
    return {"float": "float32", "double": "float64"}.get(name, name)


def _attribute(attribute: onnx.AttributeProto) -> Attribute:
    """The value of an attribute; ValueError for kinds that no operator takes."""
    import onnx

    value: Any = onnx.helper.get_attribute_value(attribute)
    match value:
        case bytes():
            return value.decode()
        case int() | float():
            return value
        case list() if all(isinstance(v, (int, float)) for v in value):
            return tuple(value)
        case list() if all(isinstance(v, bytes) for v in value):
            return tuple(v.decode() for v in value)
        case _:
            raise ValueError(f"the attribute {attribute.name} is no number, text or list of them")


def _operand(array: np.ndarray) -> Attribute:
    """A constant as an attribute: a number, or a tuple of them."""
    return array.item() if array.ndim == 0 else tuple(array.reshape(-1).tolist())
