"""Arrays of numpy and other libraries as arguments of calls, and results as arrays of the same library."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np

from . import dtypes

ON_HOST = (1, 3)  # of DLPack's devices: kDLCPU, kDLCUDAHost
BITS = "numpy holds its bits as uint16, ml_dtypes and torch have it"  # a hint on bfloat16


class ArgumentError(TypeError, ValueError):
    """An argument of a call that does not fit its parameter."""


class HostArray(NamedTuple):
    """An array in the host's memory: numpy elements (bfloat16 as uint16) and dtype; `shared` with the caller if not copied."""

    array: np.ndarray
    dtype: str
    shared: bool = True


class Conversion(NamedTuple):
    """A conversion from numpy's storage of a dtype to an array of another library; `copies` if it copies the elements."""

    of: Callable[[np.ndarray, str], Any]
    copies: bool = False


def host_array(a: Any) -> HostArray | None:
    """The elements of an array; None for anything else, such as Python's numbers and lists.

    It may be numpy's, torch's, or have DLPack, `__array_interface__` or `__array__`. Raises TypeError for an array on a device,
    with a mask, of foreign byte order, or that its library does not share (sparse, with gradients).
    """
    shared = True
    if isinstance(a, np.ndarray):
        found = np.asarray(a)
        if found is not a and isinstance(a, np.ma.MaskedArray):
            raise TypeError("must be an array without a mask, got MaskedArray; .filled() makes one")
    elif isinstance(a, (np.generic, type)):
        return None
    elif (torch := sys.modules.get("torch")) is not None and isinstance(a, torch.Tensor):
        return _of_torch(a, torch)
    elif hasattr(a, "__dlpack__") or hasattr(a, "__array_interface__") or hasattr(a, "__array__"):
        found, shared = _of_library(a)
    elif hasattr(a, "__cuda_array_interface__"):
        raise _elsewhere(a)
    else:
        return None
    if not found.dtype.isnative:
        raise TypeError(f"must be in this machine's byte order, got {found.dtype.str}")
    name = _name(found.dtype)
    return HostArray(found.view(np.uint16) if name == "bfloat16" else found, name, shared)


@lru_cache(64)
def _name(dtype: np.dtype) -> str:
    """The name of a dtype. Cached: numpy builds it at each access, the largest cost of an argument."""
    return dtype.name


def read(a: Any, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    """The elements of a read-only argument: an array, a number or nested lists. Raises TypeError for another dtype or shape."""
    found = host_array(a)
    if found is None and isinstance(a, (bool, int, float, list, tuple, np.generic)):
        try:
            found = host_array(np.asarray(a))
        except ValueError as error:
            raise TypeError(f"must be an array, got {type(a).__name__}: {error}") from None
    if found is None:
        raise TypeError(f"must be an array, got {type(a).__name__}")
    refuse_other(found, dtype, shape)
    return found.array


def refuse_other(found: HostArray, dtype: str, shape: tuple[int, ...]) -> None:
    """Raise TypeError unless an array has this shape and dtype; uint16 bits stand for bfloat16."""
    if found.array.shape != shape:
        raise TypeError(f"must have shape {shape}, got {found.array.shape}")
    if found.dtype != dtype and (dtype, found.dtype) != ("bfloat16", "uint16"):
        raise TypeError(f"must have dtype {dtype}, got {found.dtype}{f' ({BITS})' if dtype == 'bfloat16' else ''}")


def refuse_written(found: HostArray, a: Any) -> None:
    """Raise TypeError unless an array can be written in place."""
    if not found.shared:
        raise TypeError(f"is written, but {type(a).__name__} gives a copy of its elements; pass an array of numpy")
    if not found.array.flags.writeable:
        raise TypeError("is written but the array is read-only")


def need_dtype(found: HostArray) -> str:
    """The dtype of an array; TypeError if the IR does not have it."""
    if found.dtype not in dtypes.TABLE:
        raise TypeError(f"must have one of the dtypes {', '.join(dtypes.TABLE)}, got {found.dtype}")
    return found.dtype


def result_conversion(arrays: Iterable[Any]) -> Conversion | None:
    """The conversion of results to the first library among the arguments, or ml_dtypes' bfloat16; None for plain numpy."""
    back: Conversion | None = None
    for a in arrays:
        if isinstance(a, np.ndarray):
            if back is None and a.dtype.isbuiltin == 2 and a.dtype.name == "bfloat16":
                back = Conversion(partial(_typed, bfloat16=a.dtype))
        elif (torch := sys.modules.get("torch")) is not None and isinstance(a, torch.Tensor):
            return Conversion(partial(as_torch, torch=torch))
        elif not isinstance(a, (np.generic, type)) and hasattr(a, "__array_namespace__"):
            return Conversion(partial(_as_library, namespace=a.__array_namespace__()), copies=True)
    return back


def _typed(array: np.ndarray, dtype: str, bfloat16: np.dtype) -> np.ndarray:
    return array.view(bfloat16) if dtype == "bfloat16" else array


def _as_library(array: np.ndarray, dtype: str, namespace: Any) -> Any:
    bfloat16 = np.dtype(getattr(sys.modules.get("ml_dtypes"), "bfloat16", np.uint16))
    return namespace.asarray(_typed(array, dtype, bfloat16), copy=True)


def as_torch(array: np.ndarray, dtype: str, torch: Any) -> Any:
    """A torch tensor on the memory of an array of storage of `dtype`."""
    return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16) if dtype == "bfloat16" else torch.from_numpy(array)


def _elsewhere(a: Any) -> TypeError:
    return TypeError(f"must be in the host's memory, got a {type(a).__name__} on a device")


def _of_torch(a: Any, torch: Any) -> HostArray:
    """The elements of a torch tensor. Its own `numpy()` refuses those without plain memory: sparse, fake, with gradients."""
    if a.device.type not in ("cpu", "meta"):
        raise _elsewhere(a)
    try:
        if a.dtype is not torch.bfloat16:
            array = a.numpy()
            return HostArray(array, array.dtype.name)
        if a.requires_grad:
            a.numpy()  # refuses, as `view` does not
        return HostArray(a.view(torch.int16).numpy().view(np.uint16), "bfloat16")
    except (RuntimeError, TypeError) as error:
        raise TypeError(f"must be an array that numpy can read, got {type(a).__name__}: {str(error).splitlines()[0]}") from None


def _of_library(a: Any) -> tuple[np.ndarray, bool]:
    """A numpy array of an object with one of the interfaces; True with it if both share memory."""
    reason: Exception | str = "it has none of its interfaces"
    if hasattr(a, "__dlpack__"):
        try:
            return np.from_dlpack(a), True
        except (BufferError, RuntimeError, TypeError, ValueError) as error:
            reason = error
        try:
            if int(a.__dlpack_device__()[0]) not in ON_HOST:
                raise _elsewhere(a)
        except (AttributeError, BufferError, RuntimeError, ValueError):
            pass
    if hasattr(a, "__array_interface__") or hasattr(a, "__array__"):
        try:
            return np.asarray(a), hasattr(a, "__array_interface__")
        except (BufferError, RuntimeError, TypeError, ValueError) as error:
            reason = error
    raise TypeError(f"must be an array that numpy can read, got {type(a).__name__}: {reason}")


def content(array: np.ndarray) -> np.ndarray:
    """The bytes of an array, in its memory if that has no gaps and is aligned to elements."""
    return np.require(array, requirements=("C", "A")).reshape(-1).view(np.uint8)


def to_float(array: np.ndarray, dtype: str) -> np.ndarray:
    """An array of storage of `dtype` as float64."""
    if dtype == "bfloat16":
        array = np.asarray(array.view("uint16").astype("uint32") << 16).view("float32")
    return np.array(array, "float64")


def from_float(values: np.ndarray, dtype: str) -> np.ndarray:
    """Floats in the storage of `dtype`, to nearest even; those beyond its range are infinite, and a NaN stays one."""
    with np.errstate(over="ignore"):
        if dtype != "bfloat16":
            return values.astype(dtypes.storage(dtype))
        narrow = values.astype("float32")
    bits = narrow.view("uint32")
    bits = np.where(np.isnan(narrow), bits & 0xFFFF0000 | 0x00400000, bits)
    return np.asarray((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16, "uint16")


def nearest(value: float, dtype: str) -> float:
    """The nearest number of a floating dtype to a value."""
    with np.errstate(over="ignore"):
        return float(to_float(from_float(np.array(value, "float64"), dtype), dtype))
