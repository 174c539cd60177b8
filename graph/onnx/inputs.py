"""The inputs of an ONNX file, with the shapes that it leaves open."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tir import dtypes

from ..ir import GraphError
from ..ops.narrow_types import NARROW
from ..sizes import Dimension, OpenInput, with_sizes

if TYPE_CHECKING:
    import onnx


def stated(graph: onnx.GraphProto, file: str, given: Mapping[str, Sequence[int] | int | str]) -> tuple[OpenInput, ...]:
    """The inputs that are no constants, with the shapes that the file states, in which `given` shapes of inputs and sizes are
    filled in. An open dimension without a name is called by its input and axis.

    Raises GraphError for an input that is no tensor, for a shape that is unknown, and as `with_sizes` does.
    """
    constants = {i.name for i in graph.initializer} | {i.values.name for i in graph.sparse_initializer}
    found = [_stated(file, i, given.get(i.name)) for i in graph.input if i.name not in constants]
    return with_sizes(file, found, given)


def _stated(file: str, info: onnx.ValueInfoProto, shape: Sequence[int] | int | str | None) -> OpenInput:
    """An input with the shape of the file, which a given one must fit; with that one where the file has none."""
    if not info.type.HasField("tensor_type"):
        raise GraphError(f"{file}: the input `{info.name}` is no tensor")
    tensor = info.type.tensor_type
    dtype = element_type(tensor.elem_type, f"{file}: the input `{info.name}`")
    found = dimensions(info)
    given = None if shape is None or isinstance(shape, (int, str)) else tuple(map(int, shape))
    if given is not None and any(e < 0 for e in given):
        raise GraphError(f"{file}: the shape {list(given)} for the input `{info.name}` has a negative extent")
    if found is None and given is None:
        raise GraphError(
            f"{file}: the shape of the input `{info.name}` is open, unknown; "
            f"give it: shapes={{{info.name!r}: (...)}}, or in a shell --shape {info.name}=..."
        )
    return OpenInput(info.name, given if found is None else found, dtype)  # type: ignore[arg-type]


def dimensions(info: onnx.ValueInfoProto) -> tuple[Dimension, ...] | None:
    """The dimensions that a file states for a tensor, None where it states none. An open one without a name has the tensor's."""
    tensor = info.type.tensor_type
    lengths = enumerate(tensor.shape.dim)
    named = (d.dim_value if d.HasField("dim_value") else d.dim_param or f"{info.name}.{n}" for n, d in lengths)
    return tuple(named) if tensor.HasField("shape") else None


def element_type(number: int | str, what: str) -> str:
    """The element type for a number of ONNX, or for its name there; GraphError if it is not supported."""
    import onnx

    name = onnx.TensorProto.DataType.Name(number) if number in onnx.TensorProto.DataType.values() else str(number)
    name = name.lower()
    name = {"float": "float32", "double": "float64"}.get(name, name)
    if name not in dtypes.TABLE and name not in NARROW:
        raise GraphError(f"{what} has the element type {name}, which is not supported")
    return name
