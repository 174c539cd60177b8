"""The nodes of a graph that torch traced as calls of a graph.

A traced graph is functional: its nodes call ATen's operators on tensors, without views that are written. Nodes of constants
alone, as of parameters, are computed by torch. Others are written out by the composites of `aten`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from tir import dtypes

from ..builder import Builder, Writer, first_fitting
from ..ir import GraphError, Value, type_text, typed
from ..ops import Operator, alternatives
from ..passes.integers import BYTES
from ..sizes import OpenInput
from . import aten  # noqa: F401 (registers the operators)

IGNORED = ("copy", "device", "layout", "memory_format", "non_blocking", "pin_memory")  # of keywords: a graph has no such choices
WITHOUT_RESULT = ("aten._assert_async", "aten._assert_scalar", "aten._assert_tensor_metadata", "aten.sym_constrain_range")
DEQUANTISE = (
    "quantized_decomposed.dequantize_per_tensor",
    "quantized_decomposed.dequantize_per_channel",
    "quantized_decomposed.dequantize_per_channel_group",
    "torchao.dequantize_affine",
)
PRODUCTS = ("aten.mm", "aten.addmm", "aten.linear")
HOW_TO_ADD = 'an operator can be added: @graph.composite("NAME.OVERLOAD", domain="aten"), docs/torch.md'
LONGEST_SOURCE = 80  # letters of a line of source in an error


class Missing:
    """A result of a node that is not supported, of an unknown type."""


class UnsupportedNodes(GraphError):
    """Nodes of a traced graph that are not supported, with the `reasons` in lines."""

    def __init__(self, name: str, reasons: Sequence[str], nodes: Sequence[torch.fx.Node]):
        super().__init__("\n  ".join([f"{name}: the program cannot be imported", *reasons]))
        self.reasons, self.nodes = reasons, nodes


class Importer(Builder):
    """The import of one traced graph. `bound` has a value, a tensor that is constant, a number, or Missing for each of its
    inputs; `names` has those of constant tensors in the model, by the inputs."""

    def __init__(self, name: str, module: torch.fx.GraphModule, bound: Mapping[str, Any], names: Mapping[str, str] | None = None):
        super().__init__(name)
        self.module, self.bound = module, bound
        self.names = {id(bound[node]): own for node, own in (names or {}).items()}
        self.missing: Counter[str] = Counter()
        self.problems: list[str] = []
        self.refused: list[torch.fx.Node] = []
        self.sizes: dict[Any, int] = {}  # by the symbols of open sizes
        self.tensors: dict[int, tuple[torch.Tensor, Value]] = {}  # constants by identity, with the tensor, so that it stays
        self.taken |= {v.name for v in bound.values() if isinstance(v, Value)}
        self.inputs = [v for v in bound.values() if isinstance(v, Value)]

    def run(self) -> Sequence[Any]:
        """The outputs of the traced graph. Raises UnsupportedNodes that names all operators and nodes that are not supported."""
        known: dict[torch.fx.Node, Any] = {}
        outputs: Sequence[Any] = ()
        for node in self.module.graph.nodes:
            match node.op:
                case "placeholder":
                    known[node] = self.bound[node.name]
                    self._note_sizes(node)
                case "get_attr":
                    known[node] = _attribute(self.module, node.target)
                case "output":
                    outputs = self._looked_up(node.args[0], known)
                case _:
                    known[node] = self._called(node, known)
        if not (self.missing or self.problems) and any(isinstance(v, Missing) for v in torch.utils._pytree.tree_leaves(outputs)):
            self.problems.append("a size, or another number, depends on data")
        self._raise_problems()
        return outputs

    def value(self, given: Any) -> Value:  # type: ignore[override]
        """The value of a tensor that is constant, one for each tensor; a value stays."""
        if isinstance(given, Value):
            return given
        if id(given) not in self.tensors:
            self.tensors[id(given)] = given, self.constant(array_of(given), name=self.names.get(id(given), "constant"))
        return self.tensors[id(given)][1]

    def folds(self, operator: Operator, inputs: Sequence[Value | None]) -> bool:
        """As in `Builder`, but weights of 8 bits stay integers, which products may read."""
        dequantised = operator.name == "DequantizeLinear" and inputs[0] is not None and inputs[0].dtype in BYTES
        return super().folds(operator, inputs) and not dequantised

    def _looked_up(self, argument: Any, known: Mapping[torch.fx.Node, Any]) -> Any:
        """An argument of a node with what is known in place of nodes."""
        return torch.fx.node.map_arg(argument, lambda n: known[n])

    def _called(self, node: torch.fx.Node, known: Mapping[torch.fx.Node, Any]) -> Any:
        args, kwargs = self._looked_up((node.args, node.kwargs), known)
        leaves = torch.utils._pytree.tree_leaves((args, kwargs))
        if any(isinstance(v, Missing) for v in leaves) or isinstance(node.target, torch._ops.HigherOrderOperator):
            return self._stand_in(node)
        if not isinstance(node.target, torch._ops.OpOverload):  # a function of a tuple or of numbers
            if any(isinstance(v, Value) for v in (*args, *kwargs.values())):  # arithmetic on a number that is not known
                return self._stand_in(node)
            return node.target(*args, **kwargs)  # type: ignore[operator]
        name = operator_name(node)
        pure = not node.target._schema.is_mutable and torch.Tag.nondeterministic_seeded not in node.target.tags
        if pure and not any(isinstance(v, Value) for v in leaves):
            if _casts_weights(node, args):
                return self("DequantizeLinear", self.value(args[0]), self.constant(1.0, "float32"))
            if name not in DEQUANTISE:
                with torch.no_grad():
                    return node.target(*args, **kwargs)
        if name.startswith(WITHOUT_RESULT):
            return None
        if not alternatives(name):
            return self._stand_in(node)
        start, self.node = len(self.calls), _node_name(node)
        try:
            return self._written(node, name, args, kwargs)
        except (TypeError, ValueError) as error:
            del self.calls[start:]
            given = ", ".join(map(_argument_text, (*args, *kwargs.values())))
            self.problems.append(f"{name}({given}){_source(node)}: {error}")
            return self._stand_in(node)

    def _written(self, node: torch.fx.Node, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """The results of an operator, which are as torch has them."""
        if name.startswith("aten.as_strided") and not _whole(node.all_input_nodes[0].meta.get("val"), (*args, *kwargs.values())):
            raise ValueError("places in the memory of a tensor with gaps, or of another that it is a part of, are not supported")
        operands, attributes = self._by_schema(node.target, args, kwargs)
        apply = Writer(self, node.name)
        result = first_fitting(alternatives(name), lambda found: found.define(apply, *operands, **attributes))
        wanted = node.meta.get("val")
        results, expected = (result, wanted) if isinstance(result, tuple) else ((result,), (wanted,))
        for n, (value, tensor) in enumerate(zip(results, expected, strict=False) if wanted is not None else ()):
            if node_reads(node, n if isinstance(result, tuple) else None) and not _is_like(value, tensor):
                raise ValueError(
                    f"its result {n} is {type_text(value)}, but {dtype_name(tensor.dtype)}{list(tensor.shape)} in torch"
                )
        return result

    def _by_schema(self, target: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """Operands in the order of the schema, up to the last that is given, and those that have to be named."""
        operands: list[Any] = []
        named: dict[str, Any] = {}
        given = dict(kwargs)
        for n, argument in enumerate(target._schema.arguments):
            found = args[n] if n < len(args) else given.get(argument.name, argument.default_value)
            if argument.name in IGNORED:
                continue
            if argument.kwarg_only:
                named |= {argument.name: self._operand(found)} if argument.name in given else {}
            elif n < len(args) or any(a.name in given for a in target._schema.arguments[n:] if not a.kwarg_only):
                operands.append(self._operand(found))
        return operands, named

    def _operand(self, given: Any) -> Any:
        match given:
            case torch.Tensor():
                return self.value(given)
            case torch.dtype():
                return dtype_name(given)
            case list() | tuple():
                return tuple(map(self._operand, given))
            case torch.SymInt() | torch.SymFloat():
                return given.node.maybe_as_int() if isinstance(given, torch.SymInt) else float(given)
            case _:
                return given

    # --- refusals ------------------------------------------------------------------------------------------------------

    def _stand_in(self, node: torch.fx.Node) -> Any:
        """Values like the results of a node that is not supported, so that the nodes after it are seen."""
        self.refused.append(node)
        if isinstance(node.target, torch._ops.OpOverload | torch._ops.HigherOrderOperator):
            name = operator_name(node)
            if not alternatives(name) and not name.startswith(WITHOUT_RESULT):
                self.missing[name] += 1
        return torch.utils._pytree.tree_map(lambda v: self._like(node.name, v), node.meta.get("val", Missing()))

    def _like(self, name: str, traced: Any) -> Any:
        """A value of the type of a traced tensor; Missing where that type is not supported or depends on data."""
        if not isinstance(traced, torch.Tensor):
            return Missing()
        shape = [e.node.expr.xreplace(self.sizes) if isinstance(e, torch.SymInt) else e for e in traced.shape]
        try:
            return Value(self.fresh(name), tuple(map(int, shape)), dtype_name(traced.dtype))
        except TypeError:
            return Missing()

    def _note_sizes(self, node: torch.fx.Node) -> None:
        """Take the symbols of an input's sizes as what they are in this import."""
        traced, given = node.meta.get("val"), self.bound[node.name]
        pairs = zip(traced.shape, given.shape, strict=True) if isinstance(given, (Value, torch.Tensor)) else [(traced, given)]
        for symbol, size in pairs:
            if isinstance(symbol, torch.SymInt) and symbol.node.expr.is_Symbol and isinstance(size, int):
                self.sizes[symbol.node.expr] = size

    def _raise_problems(self) -> None:
        lines = [f"{name}: there is no such operator ({n} {'call' if n == 1 else 'calls'})" for name, n in self.missing.items()]
        lines += self.problems + ([HOW_TO_ADD] if lines else [])
        if lines:
            raise UnsupportedNodes(self.name, lines, self.refused)


def open_inputs(tensors: Mapping[str, torch.Tensor]) -> tuple[list[OpenInput], dict[str, Any]]:
    """Inputs of traced tensors, and the expressions of their open sizes by name: that of the first input and axis."""
    names: dict[Any, str] = {}
    found = []
    for name, tensor in tensors.items():
        shape = [e.node.expr if isinstance(e, torch.SymInt) else e for e in tensor.shape]
        shape = [
            int(e) if isinstance(e, int) or e.is_Integer else names.setdefault(e, f"{name}.{n}") for n, e in enumerate(shape)
        ]
        found.append(OpenInput(name, tuple(shape), dtype_name(tensor.dtype)))
    return found, {name: expression for expression, name in names.items()}


def decompositions(table: Any) -> Any:
    """A table of torch's decompositions to core ATen without those of operators that are supported as they are."""
    for operator in list(table):
        if alternatives(str(operator).removesuffix(".default")):
            del table[operator]
    return table


def operator_name(node: torch.fx.Node) -> str:
    """The name of a node's operator, without `default`."""
    return str(node.target).removesuffix(".default")


def node_reads(node: torch.fx.Node, number: int | None) -> bool:
    """True where the result of a node, or that of a number, is read."""
    if number is None:
        return bool(node.users)
    return any(len(user.args) < 2 or user.args[1] == number for user in node.users)


def dtype_name(dtype: torch.dtype) -> str:
    """The name of an element type; TypeError if it is not supported."""
    name = str(dtype).removeprefix("torch.")
    if name not in dtypes.TABLE:
        raise TypeError(f"the element type {name} is not supported")
    return name


def array_of(tensor: torch.Tensor) -> np.ndarray:
    """The elements of a tensor as an array that shares its memory."""
    if tensor.layout is not torch.strided or tensor.device.type != "cpu":
        raise TypeError(f"a tensor must be dense and in the host's memory, got {tensor.layout} on {tensor.device}")
    tensor = tensor.detach().resolve_conj().resolve_neg()
    if dtype_name(tensor.dtype) != "bfloat16":
        return tensor.numpy()
    return typed(tensor.view(torch.int16).numpy(), "bfloat16")


def _is_like(value: Any, tensor: Any) -> bool:
    """True where a value has the type of a tensor, as far as that is known without sizes."""
    if not isinstance(tensor, torch.Tensor) or not isinstance(value, Value):
        return True
    shape = [e if isinstance(e, int) else None for e in tensor.shape]
    same = len(shape) == len(value.shape) and all(e in (None, f) for e, f in zip(shape, value.shape, strict=True))
    return same and dtype_name(tensor.dtype) == value.dtype


def _whole(tensor: Any, strided: Sequence[Any]) -> bool:
    """True for a tensor without gaps that begins where `strided`, arguments of as_strided, count from."""
    *_, offset = (*strided, None) if len(strided) < 4 else strided
    return isinstance(tensor, torch.Tensor) and tensor.is_contiguous() and (offset is None or tensor.storage_offset() == 0)


def _casts_weights(node: torch.fx.Node, args: Sequence[Any]) -> bool:
    """True for a node by which products alone read a constant tensor of bytes as floats."""
    cast = operator_name(node) == "aten._to_copy" and node.kwargs.get("dtype") is torch.float32
    return cast and args[0].dtype in (torch.int8, torch.uint8) and all(operator_name(user) in PRODUCTS for user in node.users)


def _attribute(module: torch.nn.Module, target: Any) -> Any:
    found: Any = module
    for part in str(target).split("."):
        found = getattr(found, part)
    return found


def _argument_text(argument: Any) -> str:
    match argument:
        case Value():
            return type_text(argument)
        case torch.Tensor():
            return f"{str(argument.dtype).removeprefix('torch.')}{list(argument.shape)}"
        case list() | tuple():
            return f"[{', '.join(map(_argument_text, argument))}]"
        case _:
            return str(argument)


def _node_name(node: torch.fx.Node) -> str:
    """The name of a node, after the path of the module whose `forward` it is from, where torch knows that."""
    paths = [path for path, _ in (node.meta.get("nn_module_stack") or {}).values()]
    module = paths[-1].removeprefix("L['self'].") if paths else ""
    return f"{module}/{node.name}" if module else node.name


def _source(node: torch.fx.Node) -> str:
    """The place in a user's program that a node is of, where torch knows it."""
    lines = [line for line in (node.meta.get("stack_trace") or "").strip().splitlines() if line.strip(" ^~")]
    if len(lines) < 2:
        return ""
    place, text = lines[-2].strip(), lines[-1].strip()
    file, _, rest = place.removeprefix('File "').partition('", line ')
    return f", {file.rpartition('/')[2]}:{rest.partition(',')[0]}, `{text[:LONGEST_SOURCE]}`"
