"""The inputs of an ONNX file, with the shapes that it leaves open."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import TYPE_CHECKING

from tir import dtypes

from ..ir import GraphError, Value
from ..ops.narrow import NARROW

if TYPE_CHECKING:
    import onnx


def inputs(graph: onnx.GraphProto, file: str, shapes: Mapping[str, Sequence[int]], constants: Container[str]) -> list[Value]:
    """The inputs that are no constants, with their shapes. Raises GraphError for a shape that is missing, contradicts the file or
    names no input, and for an input that is no tensor."""
    given = [i for i in graph.input if i.name not in constants]
    for name in shapes:
        if name not in [i.name for i in given]:
            raise GraphError(f"{file}: shapes names `{name}`; the inputs are {', '.join(i.name for i in given) or 'none'}")
    symbols: dict[str, tuple[int, str]] = {}
    return [_input(file, i, shapes.get(i.name), symbols) for i in given]


def _input(file: str, info: onnx.ValueInfoProto, shape: Sequence[int] | None, symbols: dict[str, tuple[int, str]]) -> Value:
    """An input with the given shape, or that of the file. `symbols` are the sizes of named dimensions so far."""
    if not info.type.HasField("tensor_type"):
        raise GraphError(f"{file}: the input `{info.name}` is no tensor")
    tensor = info.type.tensor_type
    dtype = element_type(tensor.elem_type, f"{file}: the input `{info.name}`")
    stated: list[int | str] | None = None
    if tensor.HasField("shape"):
        stated = [d.dim_value if d.HasField("dim_value") else d.dim_param or "?" for d in tensor.shape.dim]
    text = "unknown" if stated is None else f"[{', '.join(map(str, stated))}]"
    if shape is None:
        if stated is None or not all(isinstance(d, int) for d in stated):
            raise GraphError(
                f"{file}: the shape of the input `{info.name}` is open, {text}; "
                f"give it: shapes={{{info.name!r}: (...)}}, or in a shell --shape {info.name}=..."
            )
        shape = [int(d) for d in stated]
    found = tuple(int(d) for d in shape)
    if any(e < 0 for e in found):
        raise GraphError(f"{file}: the shape {list(found)} for the input `{info.name}` has a negative extent")
    if stated is not None and (
        len(stated) != len(found) or any(not isinstance(d, str) and d != e for d, e in zip(stated, found, strict=True))
    ):
        raise GraphError(f"{file}: the shape {list(found)} for the input `{info.name}` contradicts the file: {text}")
    for symbol, size in zip(stated or (), found, strict=False):
        if isinstance(symbol, str) and symbol != "?":
            other, where = symbols.setdefault(symbol, (size, info.name))
            if other != size:
                raise GraphError(f"{file}: the size `{symbol}` is {other} in the input `{where}`, but {size} in `{info.name}`")
    return Value(info.name, found, dtype)


def element_type(number: int | str, what: str) -> str:
    """The element type for a number of ONNX, or for its name there; GraphError if it is not supported."""
    import onnx

    name = onnx.TensorProto.DataType.Name(number) if number in onnx.TensorProto.DataType.values() else str(number)
    name = name.lower()
    name = {"float": "float32", "double": "float64"}.get(name, name)
    if name not in dtypes.TABLE and name not in NARROW:
        raise GraphError(f"{what} has the element type {name}, which is not supported")
    return name
