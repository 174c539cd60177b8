"""The inputs of an ONNX file, with the shapes that it leaves open."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from tir import dtypes

from ..ir import GraphError
from ..ops.narrow import NARROW
from ..sizes import OpenInput

if TYPE_CHECKING:
    import onnx


def stated(graph: onnx.GraphProto, file: str, given: Mapping[str, Sequence[int] | int]) -> tuple[OpenInput, ...]:
    """The inputs that are no constants, with the shapes that the file states, in which `given` shapes of inputs and sizes are
    filled in. An open dimension without a name is called by its input and axis.

    Raises GraphError for an input that is no tensor, and for a shape that is unknown, contradicts the file or names no input.
    """
    constants = {i.name for i in graph.initializer} | {i.values.name for i in graph.sparse_initializer}
    found = [_stated(file, i, given.get(i.name)) for i in graph.input if i.name not in constants]
    tensors = {v.name for v in found}
    numbers = {name: (n,) if isinstance(n, int) else tuple(n) for name, n in given.items() if name not in tensors}
    sizes: dict[str, tuple[int, str]] = {name: (n[0], "shapes") for name, n in numbers.items() if len(n) == 1}
    for v in found:
        shape = given.get(v.name)
        for d, n in zip(v.shape, shape if isinstance(shape, Sequence) else (), strict=False):
            if isinstance(d, str) and sizes.setdefault(d, (n, v.name))[0] != n:
                other, where = sizes[d]
                raise GraphError(f"{file}: the size `{d}` is {other} in the input `{where}`, but {n} in `{v.name}`")
    names = tensors | {d for v in found for d in v.shape if isinstance(d, str)}
    if several := next((name for name, n in numbers.items() if name in names and len(n) != 1), None):
        raise GraphError(f"{file}: the size `{several}` is one number, got {list(numbers[several])}")
    if unknown := [name for name in given if name not in names]:
        inputs = ", ".join(v.name for v in found) or "none"
        raise GraphError(f"{file}: shapes names `{unknown[0]}`; the inputs are {inputs}{_open(names - tensors)}")
    known = {name: n for name, (n, _) in sizes.items()}
    return tuple(OpenInput(v.name, tuple(known.get(d, d) if isinstance(d, str) else d for d in v.shape), v.dtype) for v in found)


def _open(sizes: Collection[str]) -> str:
    return f", open sizes {', '.join(sorted(sizes))}" if sizes else ""


def _stated(file: str, info: onnx.ValueInfoProto, shape: Sequence[int] | int | None) -> OpenInput:
    """An input with the shape of the file, which a given one must fit; with that one where the file has none."""
    if not info.type.HasField("tensor_type"):
        raise GraphError(f"{file}: the input `{info.name}` is no tensor")
    tensor = info.type.tensor_type
    dtype = element_type(tensor.elem_type, f"{file}: the input `{info.name}`")
    found: tuple[int | str, ...] | None = None
    if tensor.HasField("shape"):
        lengths = enumerate(tensor.shape.dim)
        found = tuple(d.dim_value if d.HasField("dim_value") else d.dim_param or f"{info.name}.{n}" for n, d in lengths)
    given = None if shape is None or isinstance(shape, int) else tuple(map(int, shape))
    if given is not None and any(e < 0 for e in given):
        raise GraphError(f"{file}: the shape {list(given)} for the input `{info.name}` has a negative extent")
    if found is None and given is None:
        raise GraphError(
            f"{file}: the shape of the input `{info.name}` is open, unknown; "
            f"give it: shapes={{{info.name!r}: (...)}}, or in a shell --shape {info.name}=..."
        )
    if found is None or given is None:
        return OpenInput(info.name, given if found is None else found, dtype)  # type: ignore[arg-type]
    if len(found) != len(given) or any(not isinstance(d, str) and d != e for d, e in zip(found, given, strict=True)):
        text = f"[{', '.join(map(str, found))}]"
        raise GraphError(f"{file}: the shape {list(given)} for the input `{info.name}` contradicts the file: {text}")
    return OpenInput(info.name, found, dtype)


def element_type(number: int | str, what: str) -> str:
    """The element type for a number of ONNX, or for its name there; GraphError if it is not supported."""
    import onnx

    name = onnx.TensorProto.DataType.Name(number) if number in onnx.TensorProto.DataType.values() else str(number)
    name = name.lower()
    name = {"float": "float32", "double": "float64"}.get(name, name)
    if name not in dtypes.TABLE and name not in NARROW:
        raise GraphError(f"{what} has the element type {name}, which is not supported")
    return name
