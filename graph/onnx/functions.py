"""Operators that ONNX defines as functions of others, nodes of such functions as nodes of a file, and the order of nodes."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from graphlib import CycleError
from typing import TYPE_CHECKING, Any

from tir import dtypes

from ..ir import Value, stable_order

if TYPE_CHECKING:
    import onnx


def has_function(name: str, opset: int, domain: str = "") -> bool:
    """True where ONNX defines an operator of that version by others."""
    schema = _schema(name, opset, domain)
    return schema is not None and (schema.has_function or schema.has_context_dependent_function)


def newest_opset() -> int:
    """The newest version of the operator set that the ONNX package knows."""
    import onnx.defs

    return onnx.defs.onnx_opset_version()


def function_of(node: onnx.NodeProto, inputs: Sequence[Value | None], opset: int) -> onnx.FunctionProto:
    """ONNX's definition of a node by others. Raises ValueError where it has none for these inputs."""
    import onnx

    schema = _schema_of(node, opset)
    assert schema is not None, "the caller asked `has_function`"
    if schema.has_function:
        version = max((v for v in schema.function_opset_versions if v <= opset), default=None)
        found = None if version is None else schema.get_function_with_opset_version(version)
    else:
        version = max((v for v in schema.context_dependent_function_opset_versions if v <= opset), default=None)
        types = [onnx.TypeProto() if v is None else _type(v) for v in inputs]
        found = None if version is None else schema.get_context_dependent_function_with_opset_version(
            version, node.SerializeToString(), [t.SerializeToString() for t in types]
        )  # fmt: skip
    if not found:
        raise ValueError("ONNX has no definition of it by other operators for these inputs")
    function = onnx.FunctionProto()
    function.ParseFromString(found)
    return function


def halves_of(node: onnx.NodeProto, inputs: Sequence[Value | None], opset: int) -> list[str | None]:
    """The half type of each output: that of the inputs of its type variable, else that of any input if it fits; or None."""
    schema = _schema_of(node, opset)
    bound = {f.type_str: v.dtype for f, v in zip(schema.inputs, inputs, strict=False) if v is not None}
    half = next(filter(dtypes.is_half, bound.values()), None)
    types = [bound.get(o.type_str, half if f"tensor({half})" in o.types else None) for o in schema.outputs]
    return [t if t is not None and dtypes.is_half(t) else None for t in types]


def arguments(node: onnx.NodeProto, function: onnx.FunctionProto, opset: int) -> dict[str, onnx.AttributeProto]:
    """The attributes of a call of a function by name: those of the node, else their defaults."""
    defaults = [a.default_value for a in _schema_of(node, opset).attributes.values()]
    return {a.name: a for a in (*defaults, *function.attribute_proto, *node.attribute) if a.name}


def resolved(node: onnx.NodeProto, given: Mapping[str, onnx.AttributeProto], absent: Container[str]) -> onnx.NodeProto:
    """A node of a function with the attributes of its call in place of references. Attributes that the call omits and `absent`
    inputs are left out.
    """
    import onnx

    if not any(a.ref_attr_name for a in node.attribute) and not any(name in absent for name in node.input if name):
        return node
    found = onnx.NodeProto()
    found.CopyFrom(node)
    del found.attribute[:], found.input[:]
    found.input.extend("" if name in absent else name for name in node.input)
    for attribute in node.attribute:
        source = given.get(attribute.ref_attr_name) if attribute.ref_attr_name else attribute
        if source is not None:
            found.attribute.append(source)
            found.attribute[-1].name = attribute.name
    return found


def needed(nodes: Sequence[onnx.NodeProto], outputs: Iterable[str]) -> list[onnx.NodeProto]:
    """The nodes on which some values depend, in order."""
    kept, wanted = [], set(outputs)
    for node in reversed(nodes):
        if not wanted.isdisjoint(node.output):
            kept.append(node)
            wanted |= names_read([node])
    return kept[::-1]


def names_read(nodes: Iterable[onnx.NodeProto]) -> set[str]:
    """The names that nodes read, also inside of the graphs that they hold, without names that these define themselves."""
    found = set[str]()
    for node in nodes:
        found |= set(node.input)
        for inner in (a.g for a in node.attribute if a.HasField("g")):
            own = {given.name for given in (*inner.input, *inner.initializer)} | {name for n in inner.node for name in n.output}
            found |= (names_read(inner.node) | {o.name for o in inner.output}) - own
    return found


def ordered(nodes: Sequence[onnx.NodeProto], defined: Container[str] = ()) -> list[int]:
    """The positions of nodes such that each comes after the makers of its operands, otherwise in the order of the file.

    Raises ValueError for a cycle of nodes, and for a name that two nodes make or that is `defined` before."""
    makers: dict[str, int] = {}
    for number, node in enumerate(nodes):
        for name in filter(None, node.output):
            if name in makers or name in defined:
                raise ValueError(f"`{name}`, which a node of {node.op_type} makes, is defined already")
            makers[name] = number
    needs = [sorted({makers[name] for name in names_read([node]) if name in makers}) for node in nodes]
    try:
        return stable_order(needs)
    except CycleError as error:
        names = [next(filter(None, nodes[n].output)) for n in error.args[1]]
        raise ValueError(f"nodes form a cycle: {' -> '.join(f'`{name}`' for name in names)}") from None


def _schema_of(node: onnx.NodeProto, opset: int) -> Any:
    return _schema(node.op_type, opset, "" if node.domain == "ai.onnx" else node.domain)


def _schema(name: str, opset: int, domain: str) -> Any:
    import onnx.defs

    try:
        return onnx.defs.get_schema(name, opset, domain)
    except onnx.defs.SchemaError:
        return None


def _type(value: Value) -> onnx.TypeProto:
    import onnx

    number = onnx.TensorProto.DataType.Value({"float32": "FLOAT", "float64": "DOUBLE"}.get(value.dtype, value.dtype.upper()))
    return onnx.helper.make_tensor_type_proto(int(number), value.shape)
