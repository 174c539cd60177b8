"""DLPack: the memory layout of the tensors that libraries export."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

CODES = {0: "int", 1: "uint", 2: "float", 4: "bfloat", 6: "bool"}


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
        """True where its elements are row-major without gaps."""
        return not self.strides or is_row_major(self.lengths, [self.strides[n] for n in range(self.ndim)], 1)


class _Versioned(ctypes.Structure):
    """DLManagedTensorVersioned: the version, fields of the producer, flags, and the tensor."""

    _fields_ = [
        ("version", ctypes.c_uint32 * 2), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p), ("flags", ctypes.c_uint64),
        ("tensor", DLTensor),
    ]  # fmt: skip


def is_row_major(shape: Sequence[int], strides: Sequence[int], unit: int) -> bool:
    """True where these strides are those of a row-major array whose elements are `unit` apart."""
    for n, stride in zip(reversed(shape), reversed(strides), strict=True):
        if n != 1 and stride != unit:
            return False
        unit *= n
    return True


def exported(a: Any) -> tuple[DLTensor, object]:
    """The tensor that an object with `__dlpack__` exports, and the objects that keep it alive."""
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
        return _Versioned.from_address(get(capsule, called)).tensor, (a, capsule)
    return DLTensor.from_address(get(capsule, called)), (a, capsule)
