"""DLPack: the memory layout of the tensors that libraries export."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from contextlib import suppress
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


def exported(a: Any, stream: int | None = None) -> tuple[DLTensor, object]:
    """The tensor that an object with `__dlpack__` exports, in the order of a stream, and the objects that keep it alive."""
    a = a.detach() if hasattr(a, "detach") else a
    order = {} if stream is None else {"stream": stream or 1}  # 1 is the legacy stream
    made = None
    for options in ({"max_version": (1, 0), **order}, order, {}):  # some libraries know no versions, or no streams
        with suppress(TypeError):
            made = a.__dlpack__(**options)
            break
    else:
        raise TypeError(f"{type(a).__name__}.__dlpack__ cannot be called without arguments")
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    name = ctypes.pythonapi.PyCapsule_GetName
    name.restype, name.argtypes = ctypes.c_char_p, [ctypes.py_object]
    if (called := name(made)) == b"dltensor_versioned":
        return _Versioned.from_address(get(made, called)).tensor, (a, made)
    return DLTensor.from_address(get(made, called)), (a, made)


_DELETER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_DESTRUCTOR = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class _Managed(ctypes.Structure):
    """DLManagedTensor: the tensor, a field of the producer, and the function that ends its use."""

    _fields_ = [("tensor", DLTensor), ("context", ctypes.c_void_p), ("deleter", _DELETER)]


_lent: dict[int, tuple[object, ...]] = {}  # what must live, by the address of the structure that a capsule holds


@_DELETER
def _given_back(address: int) -> None:
    _lent.pop(address, None)


@_DESTRUCTOR
def _dropped(capsule: int) -> None:
    """The end of a capsule; a consumer has renamed it, and ends the use of the tensor itself."""
    is_valid = ctypes.pythonapi.PyCapsule_IsValid
    is_valid.restype, is_valid.argtypes = ctypes.c_int, [ctypes.c_void_p, ctypes.c_char_p]
    get = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(("PyCapsule_GetPointer", ctypes.pythonapi))
    if is_valid(capsule, b"dltensor"):
        _lent.pop(get(capsule, b"dltensor"), None)


def capsule(owner: object, address: int, shape: Sequence[int], dtype: str, device_type: int) -> object:
    """The capsule by which `owner` lends a row-major array on device 0 to another library."""
    kind = dtype.rstrip("0123456789")
    bits = 8 if dtype == "bool" else int(dtype[len(kind) :])
    lengths = (ctypes.c_int64 * max(1, len(shape)))(*shape)
    code = next(code for code, name in CODES.items() if name == kind)
    tensor = DLTensor(address, device_type, 0, len(shape), code, bits, 1, lengths, None, 0)
    managed = _Managed(tensor, None, _given_back)
    place = ctypes.addressof(managed)
    _lent[place] = (owner, lengths, managed)
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, _DESTRUCTOR]
    return new(place, b"dltensor", _dropped)
