"""Operators that ONNX defines as functions of others: the nodes of the definition."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..ir import Value
from .body import Body, all_nodes, element_type, renamed_node

if TYPE_CHECKING:
    import onnx


def has_function(name: str, opset: int) -> bool:
    """Whether ONNX defines an operator of that version by others."""
    schema = _schema(name, opset)
    return schema is not None and (schema.has_function or schema.has_context_dependent_function)


def write_function(body: Body, node: onnx.NodeProto, values: Sequence[Value | None], opset: int) -> None:
    """Add the nodes of the definition of a node, and set the version that they mean. Raises ValueError where there is none for
    inputs like these."""
    function = _function(node, values, opset)
    renamed = {"": ""}
    renamed |= dict(zip(function.input, node.input, strict=False))
    renamed |= dict.fromkeys(function.input[len(node.input) :], "")
    renamed |= {inner: outer for inner, outer in zip(function.output, node.output, strict=False) if outer}
    defaults = [a.default_value for a in _schema(node.op_type, opset).attributes.values()]
    given = {a.name: a for a in (*defaults, *function.attribute_proto, *node.attribute) if a.name}
    for inner in all_nodes(function.node):
        renamed |= {name: body.name(name) for name in inner.output if name not in renamed}
    body.nodes += [renamed_node(inner, renamed, given) for inner in function.node]
    body.opset = max((o.version for o in function.opset_import if o.domain in ("", "ai.onnx")), default=opset)


def _schema(name: str, opset: int) -> Any:
    import onnx.defs

    try:
        return onnx.defs.get_schema(name, opset, "")
    except onnx.defs.SchemaError:
        return None


def _function(node: onnx.NodeProto, values: Sequence[Value | None], opset: int) -> onnx.FunctionProto:
    import onnx

    schema = _schema(node.op_type, opset)
    assert schema is not None, "the caller asked `has_function`"
    if schema.has_function:
        version = max((v for v in schema.function_opset_versions if v <= opset), default=None)
        found = None if version is None else schema.get_function_with_opset_version(version)
    else:
        version = max((v for v in schema.context_dependent_function_opset_versions if v <= opset), default=None)
        types = [onnx.TypeProto() if v is None else _type(v) for v in values]
        found = None if version is None else schema.get_context_dependent_function_with_opset_version(
            version, node.SerializeToString(), [t.SerializeToString() for t in types]
        )  # fmt: skip
    if not found:
        raise ValueError("ONNX has no definition of it by other operators for these inputs")
    function = onnx.FunctionProto()
    function.ParseFromString(found)
    return function


def _type(value: Value) -> onnx.TypeProto:
    import onnx

    return onnx.helper.make_tensor_type_proto(element_type(value.dtype), value.shape)
