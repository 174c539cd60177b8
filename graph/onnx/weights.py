"""The constants of an ONNX file, where they lie: in the file that was read, or in files beside it, which are mapped."""

from __future__ import annotations

from math import prod
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tir import dtypes

from ..ir import GraphError
from ..ops.narrow_types import narrow_name

if TYPE_CHECKING:
    import onnx


def weights(graph: onnx.GraphProto, name: str, folder: Path) -> dict[str, np.ndarray]:
    """The arrays of all initializers, read-only, by name.

    Raises GraphError for one with fewer bytes than its shape needs, for a missing or too short file beside, and for element
    types that are not supported.
    """
    if graph.sparse_initializer:
        raise GraphError(f"{name}: the constant `{graph.sparse_initializer[0].values.name}` is sparse, which is not supported")
    return {t.name: _array(t, f"{name}: the constant `{t.name}`", folder) for t in graph.initializer}


def _array(tensor: onnx.TensorProto, what: str, folder: Path) -> np.ndarray:
    import onnx
    from onnx import numpy_helper

    try:
        dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)
    except KeyError:
        raise GraphError(f"{what} has an element type, {tensor.data_type}, that is not supported") from None
    if dtype.name not in dtypes.TABLE and not narrow_name(dtype):
        raise GraphError(f"{what} has the element type {dtype.name}, which is not supported")
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        return _mapped(tensor, dtype, what, folder)
    try:
        array = numpy_helper.to_array(tensor)
    except ValueError:
        raise GraphError(f"{what} is cut off: it has not the {prod(tensor.dims)} elements of {list(tensor.dims)}") from None
    array.flags.writeable = False
    return array


def _mapped(tensor: onnx.TensorProto, dtype: np.dtype, what: str, folder: Path) -> np.ndarray:
    """A constant in a file beside, mapped into memory. Files elsewhere are refused, since a model may come from anyone."""
    entries = {e.key: e.value for e in tensor.external_data}
    file = (folder / entries.get("location", "")).resolve()
    if not file.is_relative_to(folder.resolve()):
        raise GraphError(f"{what} lies in `{entries.get('location')}`, which is not beside the model")
    if not file.is_file():
        raise GraphError(f"{what} lies in `{entries.get('location')}`, and there is no such file beside the model")
    offset, size = int(entries.get("offset", 0)), prod(tensor.dims) * dtype.itemsize
    if int(entries.get("length", size)) != size:
        raise GraphError(f"{what} of {list(tensor.dims)} needs {size} bytes, but has {entries['length']}")
    end = file.stat().st_size
    if offset + size > end:
        raise GraphError(f"{what} is cut off: it ends at byte {offset + size} of `{file.name}`, which has {end}")
    if not size:
        return np.empty(tuple(tensor.dims), dtype)
    return np.memmap(file, dtype, "r", offset, tuple(tensor.dims)).view(np.ndarray)
