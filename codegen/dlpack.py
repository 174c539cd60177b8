"""Arrays of other libraries as numpy's, without a copy: DLPack and numpy's own array interface."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

ON_HOST = (1, 3)  # kDLCPU, kDLCUDAHost
CODES = {0: "int", 1: "uint", 2: "float", 4: "bfloat", 6: "bool"}
READ_ONLY = 1  # in the flags of a versioned tensor


class DLTensor(ctypes.Structure):
    """DLTensor of DLPack."""

    _fields_ = [
        ("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32), ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)), ("offset", ctypes.c_uint64),
    ]  # fmt: skip

    @property
    def dtype(self) -> str:
        """The name of the element type."""
        kind = CODES.get(self.code, f"code{self.code}")
        return "bool" if kind == "bool" else f"{kind}{self.bits}"

    @property
    def lengths(self) -> tuple[int, ...]:
        return tuple(self.shape[n] for n in range(self.ndim))

    @property
    def address(self) -> int:
        return int(self.data or 0) + int(self.offset)

    @property
    def contiguous(self) -> bool:
        """Whether its elements are row-major without gaps."""
        return not self.strides or contiguous(self.lengths, [self.strides[n] for n in range(self.ndim)], 1)


class _Versioned(ctypes.Structure):
    """DLManagedTensorVersioned: the version, what belongs to the producer, flags, and the tensor."""

    _fields_ = [
        ("version", ctypes.c_uint32 * 2), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p), ("flags", ctypes.c_uint64),
        ("tensor", DLTensor),
    ]  # fmt: skip


def contiguous(shape: Sequence[int], strides: Sequence[int], unit: int) -> bool:
    """Whether these strides are those of a row-major array whose elements are `unit` apart."""
    for n, stride in zip(reversed(shape), reversed(strides), strict=True):
        if n != 1 and stride != unit:
            return False
        unit *= n
    return True


def exported(a: Any) -> tuple[DLTensor, bool, object]:
    """The tensor that an object with `__dlpack__` exports, whether it may be written, and what keeps it alive."""
    a = a.detach() if hasattr(a, "detach") else a
    try:
        capsule = a.__dlpack__(max_version=(1, 0))
    except TypeError:  # of a library that knows no versions
        capsule = a.__dlpack__()
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    name = ctypes.pythonapi.PyCapsule_GetName
    name.restype, name.argtypes = ctypes.c_char_p, [ctypes.py_object]
    if (called := name(capsule)) == b"dltensor_versioned":
        found = _Versioned.from_address(get(capsule, called))
        return found.tensor, not found.flags & READ_ONLY, (a, capsule)
    return DLTensor.from_address(get(capsule, called)), False, (a, capsule)


class _Exported:
    """What numpy makes an array of, by its interface, and what keeps that alive."""

    def __init__(self, interface: dict[str, Any], owner: object):
        self.__array_interface__, self.owner = interface, owner


def host_array(a: Any) -> np.ndarray | None:
    """The elements of an array in the host's memory as a numpy array; None for what is no array.

    bfloat16 of DLPack, which numpy has not, becomes uint16 bit patterns. Raises TypeError for an array on a device, and for one
    that its library does not export.
    """
    if isinstance(a, np.ndarray):
        return a
    if isinstance(a, np.generic):
        return None
    if hasattr(a, "__dlpack__"):
        try:
            return np.from_dlpack(a)
        except (BufferError, RuntimeError, TypeError, ValueError) as error:
            return _bits(a, error)
    return np.asarray(a) if hasattr(a, "__array_interface__") else None


def _bits(a: Any, error: Exception) -> np.ndarray:
    """The bit patterns of bfloat16, where numpy took the array for that not."""
    kind = type(a).__name__
    try:
        where = int(a.__dlpack_device__()[0])
    except (BufferError, RuntimeError, TypeError, ValueError):
        where = ON_HOST[0]
    if where not in ON_HOST:
        raise TypeError(f"must be in the host's memory, got a {kind} on a device") from None
    if getattr(a, "requires_grad", False):
        raise TypeError(f"must be an array that is no part of a gradient, got {kind}: {error}") from None
    try:
        tensor, writable, owner = exported(a)
    except (BufferError, RuntimeError, TypeError, ValueError):
        raise TypeError(f"must be an array that DLPack can export, got {kind}: {error}") from None
    if tensor.dtype != "bfloat16":
        raise TypeError(f"must be an array that numpy can read, got {kind} of {tensor.dtype}: {error}") from None
    shape, unit = tensor.lengths, 2
    strides = [unit * tensor.strides[n] for n in range(tensor.ndim)] if tensor.strides else None
    interface = {"shape": shape, "typestr": "<u2", "version": 3, "data": (tensor.address, not writable)}
    interface["strides"] = None if strides is None else tuple(strides)
    return np.asarray(_Exported(interface, owner)) if prod(shape) else np.empty(shape, np.uint16)
