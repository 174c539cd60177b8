"""What every door of the package takes: kinds of arrays, in every dtype, at kernels, bound calls, jit, models, the interpreter, what
is measured, exported and pickled. Each cell of the table is the right numbers, or the one right error."""

from __future__ import annotations

import ctypes
import pickle
import warnings
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pytest

import tir
from graph.ir import Call, Graph, Value
from search.measure.reference import given_inputs
from tests.arrays import narrowed, widened
from tests.codegen.c_programs import needs_cc
from tir import dtypes, te
from tir.arrays import from_float, host_array, to_float

ONE = "llvm -num-cores 1"
VALUES = np.array([1, 0, 3, 2, 5, 4, 7])  # of bool: whether they are odd


def numbers(dtype: str) -> np.ndarray:
    """VALUES as a kernel takes them."""
    return narrowed(VALUES % 2 if dtype == "bool" else VALUES, dtype)


def doubled(dtype: str) -> tir.PrimFunc:
    """Twice the elements; of bool, the elements."""
    A = te.placeholder((7,), dtype, name="A")
    B = te.compute((7,), lambda i: A[i] if dtype == "bool" else A[i] + A[i], name="B")
    return te.create_prim_func([A, B], name="doubled")


@tir.jit(target=ONE, cache=None)
def jitted(A):
    return te.compute((7,), lambda i: A[i] if A.dtype == "bool" else A[i] + A[i], name="B")


@cache
def kernel(dtype: str) -> Any:
    return tir.build(doubled(dtype), ONE)


@cache
def pickled(dtype: str) -> Any:
    return pickle.loads(pickle.dumps(kernel(dtype)))


@cache
def model(dtype: str) -> Any:
    x, y = Value("A", (7,), dtype), Value("B", (7,), dtype)
    call = Call("Or" if dtype == "bool" else "Add", (x, x), (y,))
    return tir.compile(Graph("doubled", (x,), (call,), (y,)), ONE, cache=None)


def into(call: Callable, dtype: str, a: Any) -> np.ndarray:
    out = np.zeros(7, dtypes.storage(dtype))
    assert call(a, out) is None
    return out


class Door(NamedTuple):
    """A call by dtype and argument; what its errors begin with; and whether it takes elements with gaps, and only the right dtype."""

    call: Callable[[str, Any], Any]
    prefix: str
    gaps: bool = False
    typed: bool = True


DOORS = {
    "kernel": Door(lambda d, a: kernel(d)(a), "doubled: A "),
    "into": Door(lambda d, a: into(kernel(d), d, a), "doubled: A "),
    "bind": Door(lambda d, a: kernel(d).bind(a)(), "doubled: A "),
    "pickled": Door(lambda d, a: pickled(d)(A=a), "doubled: A "),
    "jit": Door(lambda d, a: jitted(a), "jitted: A ", typed=False),
    "model": Door(lambda d, a: model(d)(a)[0], "input `A` ", gaps=True),
    "model.bind": Door(lambda d, a: model(d).bind({"A": a})()[0], "input `A` ", gaps=True),
    "run": Door(lambda d, a: into(lambda *x: tir.run(doubled(d), *x), d, a), "doubled: `A` ", gaps=True),
    "measured": Door(lambda d, a: kernel(d)(given_inputs(doubled(d), {"A": a})[0].copy()), "inputs: `A` ", gaps=True),
}
BACK = ("kernel", "bind", "pickled", "jit", "model", "model.bind")  # that make results like what they are given


class Only:
    """An array with one interface alone."""

    def __init__(self, array: np.ndarray, name: str):
        self.array = array
        if name == "__array_interface__":
            self.__array_interface__ = array.__array_interface__


class DLPack(Only):
    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


class Copies(Only):
    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return self.array.copy()


class Library(DLPack, Copies):
    """An array of a library with the standard's `__array_namespace__`."""

    def __array_namespace__(self) -> Any:
        return Library

    @staticmethod
    def asarray(array: np.ndarray, copy: bool) -> Library:
        return Library(array.copy() if copy else array, "library")


def read_only(a: np.ndarray) -> np.ndarray:
    a.flags.writeable = False
    return a


def with_ml_dtypes(a: np.ndarray, dtype: str) -> np.ndarray:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    return a.view(ml_dtypes.bfloat16) if dtype == "bfloat16" else a


def with_torch(a: np.ndarray, dtype: str) -> Any:
    torch = pytest.importorskip("torch")
    return torch.from_numpy(a.view(np.int16)).view(torch.bfloat16) if dtype == "bfloat16" else torch.from_numpy(a)


KINDS: dict[str, Callable[[np.ndarray, str], Any]] = {
    "numpy": lambda a, d: a,
    "read-only": lambda a, d: read_only(a),
    "subclass": lambda a, d: a.view(type("Sub", (np.ndarray,), {})),
    "ml_dtypes": with_ml_dtypes,
    "torch": with_torch,
    "DLPack": lambda a, d: DLPack(a, ""),
    "__array_interface__": lambda a, d: Only(a, "__array_interface__"),
    "__array__": lambda a, d: Copies(a, ""),
    "library": lambda a, d: Library(a, ""),
}


def as_bits(found: Any) -> np.ndarray:
    """A result of any kind in numpy's storage."""
    array = host_array(found)
    assert array is not None
    return array.array


@pytest.mark.parametrize("dtype", dtypes.TABLE)
@pytest.mark.parametrize("kind", KINDS)
def test_every_door_takes_every_kind_in_every_dtype(kind: str, dtype: str) -> None:
    wanted = widened(numbers(dtype), dtype) * (1 if dtype == "bool" else 2)
    for name, door in DOORS.items():
        if name == "jit" and dtype == "bfloat16" and kind not in ("ml_dtypes", "torch"):
            continue  # bits in uint16 are uint16 there
        argument = KINDS[kind](numbers(dtype), dtype)
        found = door.call(dtype, argument)
        assert widened(as_bits(found), dtype).tolist() == wanted.tolist(), name
        if name in BACK:
            library = type(argument) if kind in ("torch", "library") else np.ndarray
            assert type(found) is library, name
            if kind in ("torch", "ml_dtypes"):
                assert found.dtype == argument.dtype, name


def swapped(a: np.ndarray) -> np.ndarray:
    return a.astype(a.dtype.newbyteorder(">"))


def misaligned(a: np.ndarray) -> np.ndarray:
    memory = np.zeros(a.nbytes + 1, np.uint8)[1:].view(a.dtype)
    memory[...] = a
    return memory


STRIDED = r"must be C-contiguous, got strides \({}\); use np\.ascontiguousarray"
NUMPY = r"must be an array that numpy can read, got {}: "
# Each row: an argument made of an array of float32; the error, a regular expression; whether what takes gaps takes it.
ODD: dict[str, tuple[Callable[[np.ndarray], Any], str, bool]] = {
    "gaps": (lambda a: np.repeat(a, 2)[::2], STRIDED.format("8,"), True),
    "backwards": (lambda a: a[::-1].copy()[::-1], STRIDED.format("-4,"), True),
    "misaligned": (misaligned, r"must be aligned to its 4-byte elements, address 0x[0-9a-f]+", True),
    "byte order": (swapped, r"must be in this machine's byte order, got >f4", False),
    "mask": (np.ma.masked_array, r"must be an array without a mask, got MaskedArray; \.filled\(\) makes one", False),
    "device": (
        lambda a: type("Device", (), {"__cuda_array_interface__": {}})(), r"must be in the host's memory, got a Device on a device",
        False,
    ),
}  # fmt: skip
# The same, at doors that know the dtype and shape.
MISFITS: dict[str, tuple[Callable[[np.ndarray], Any], str]] = {
    "dtype": (lambda a: a.astype("f8"), r"must have dtype float32, got float64"),
    "complex": (lambda a: a.astype("c8"), r"must have dtype float32, got complex64"),
    "text": (lambda a: a.astype("U"), r"must have dtype float32, got str\d+"),
    "objects": (lambda a: a.astype(object), r"must have dtype float32, got object"),
    "extent": (lambda a: a[:6], r"must have shape \(7,\), got \(6,\)"),
    "rank": (lambda a: a[None], r"must have shape \(7,\), got \(1, 7\)"),
    "no rank": (lambda a: a[0, ...], r"must have shape \(7,\), got \(\)"),
    "None": (lambda a: None, r"must be an array, got NoneType"),
    "a type": (lambda a: np.float32, r"must be an array, got type"),
    "a text": (lambda a: "A", r"must be an array, got str"),
}


def refused(door: Door, argument: Any, message: str, dtype: str = "float32") -> None:
    with pytest.raises((TypeError, ValueError), match=f"^{door.prefix}{message}$"):
        door.call(dtype, argument)


@pytest.mark.parametrize("name", DOORS)
def test_odd_arrays(name: str) -> None:
    door = DOORS[name]
    for make, message, gaps in ODD.values():
        argument = make(numbers("float32"))
        if gaps and door.gaps:
            assert door.call("float32", argument).tolist() == (2 * VALUES).tolist()
        else:
            refused(door, argument, message)


@pytest.mark.parametrize("name", [n for n, d in DOORS.items() if d.typed])
def test_arrays_that_do_not_fit(name: str) -> None:
    for make, message in MISFITS.values():
        refused(DOORS[name], make(numbers("float32")), message)
    bits = r" \(numpy holds its bits as uint16, ml_dtypes and torch have it\)"
    refused(DOORS[name], numbers("float16"), rf"must have dtype bfloat16, got float16{bits}", "bfloat16")
    for kind in (with_ml_dtypes, with_torch):
        refused(DOORS[name], kind(numbers("bfloat16"), "bfloat16"), "must have dtype uint16, got bfloat16", "uint16")


@pytest.mark.parametrize("name", DOORS)
def test_tensors_that_are_no_plain_memory(name: str) -> None:
    torch = pytest.importorskip("torch")
    from torch._subclasses.fake_tensor import FakeTensorMode

    plain, door = torch.arange(7.0), DOORS[name]
    for of in (lambda t: t, lambda t: t.bfloat16()):
        dtype = "bfloat16" if of(plain).dtype is torch.bfloat16 else "float32"
        tensor = rf"{NUMPY.format('Tensor')}.*"
        refused(door, of(plain).clone().requires_grad_(), rf"{tensor}Use tensor\.detach\(\)\.numpy\(\) instead\.", dtype)
        refused(door, torch._neg_view(of(plain)), rf"{tensor}negative bit.*", dtype)
        refused(door, of(torch.eye(7)).to_sparse(), tensor, dtype)
        refused(door, of(torch.empty(7, device="meta")), tensor, dtype)
        refused(door, FakeTensorMode().from_tensor(of(plain)), rf"{NUMPY.format('FakeTensor')}.*", dtype)
    refused(door, torch.zeros(7, dtype=torch.float8_e4m3fn), f"{NUMPY.format('Tensor')}.*")
    if door.gaps:
        assert as_bits(door.call("float32", torch.arange(14.0)[::2])).tolist() == [4.0 * n for n in range(7)]
    else:
        refused(door, torch.arange(14.0)[::2], STRIDED.format("8,"))


def test_numbers_and_lists() -> None:
    for name in ("model", "model.bind", "measured"):
        door = DOORS[name]
        assert door.call("int64", VALUES.tolist()).tolist() == (2 * VALUES).tolist()
        assert door.call("float64", tuple(map(float, VALUES))).tolist() == (2.0 * VALUES).tolist()
        refused(door, VALUES.tolist(), "must have dtype float32, got int64")
        refused(door, [1.0, [2.0]], r"must be an array, got list: setting an array element with a sequence.*")
    for name in ("kernel", "into", "bind", "pickled"):
        for argument in (VALUES.tolist(), 3, 2.5, np.float32(3)):
            refused(DOORS[name], argument, f"must be an array, got {type(argument).__name__}; np.asarray makes one")


def test_jit_knows_the_dtypes_of_the_ir_alone() -> None:
    known = ", ".join(dtypes.TABLE)
    for array in (np.zeros(7, "c8"), np.zeros(7, "U1"), np.zeros(7, object), np.zeros(7, "g")):
        refused(DOORS["jit"], array, f"must have one of the dtypes {known}, got {array.dtype.name}")
    ml_dtypes = pytest.importorskip("ml_dtypes")
    refused(DOORS["jit"], np.zeros(7, ml_dtypes.int4), f"must have one of the dtypes {known}, got int4")


@pytest.mark.parametrize("dtype", dtypes.TABLE)
def test_results_are_written_where_they_are_given(dtype: str) -> None:
    a, wanted = numbers(dtype), widened(numbers(dtype), dtype) * (1 if dtype == "bool" else 2)
    for kind in ("numpy", "subclass", "ml_dtypes", "torch", "DLPack", "__array_interface__", "library"):
        for call in (kernel(dtype), kernel(dtype).bind, lambda *x: tir.run(doubled(dtype), *x)):
            memory = np.zeros(7, dtypes.storage(dtype))
            done = call(a, KINDS[kind](memory, dtype))
            if done is not None:
                assert not memory.any()
                done()
            assert widened(memory, dtype).tolist() == wanted.tolist(), kind


def test_results_that_cannot_be_written() -> None:
    a = numbers("float32")
    for call, name in ((kernel("float32"), "B"), (lambda *x: tir.run(doubled("float32"), *x), "`B`")):
        for out, message in (
            (read_only(np.zeros(7, "f")), "is written but the array is read-only"),
            (Copies(a, ""), "is written, but Copies gives a copy of its elements; pass an array of numpy"),
        ):
            with pytest.raises((TypeError, ValueError), match=f"^doubled: {name} {message}$"):
                call(a, out)


def test_the_first_library_that_is_not_numpy_decides() -> None:
    torch = pytest.importorskip("torch")
    A, B = (te.placeholder((7,), "float32", name=n) for n in "AB")
    both = tir.build(te.create_prim_func([A, B, te.compute((7,), lambda i: A[i] + B[i], name="C")]), ONE)
    a, t = numbers("float32"), with_torch(numbers("float32"), "float32")
    assert type(both(a, a)) is np.ndarray and type(both(t, a)) is type(both(a, t)) is torch.Tensor
    call = both.bind(a, t)
    assert call() is call() and call().tolist() == (2 * VALUES).tolist()
    t += 1
    assert call().tolist() == (2 * VALUES + 1).tolist()
    copied = both.bind(a, Library(a, ""))
    assert copied() is not copied() and copied().array.tolist() == (2 * VALUES).tolist()


def test_bfloat16_that_is_made_of_others() -> None:
    """Where no argument has the type, its bits come in uint16."""
    A = te.placeholder((7,), "float32", name="A")
    narrow = tir.build(te.create_prim_func([A, te.compute((7,), lambda i: A[i].astype("bfloat16"), name="B")]), ONE)
    found = narrow(numbers("float32"))
    assert found.dtype == np.uint16 and widened(found, "bfloat16").tolist() == VALUES.tolist()
    torch = pytest.importorskip("torch")
    assert narrow(with_torch(numbers("float32"), "float32")).dtype is torch.bfloat16


def test_values_that_jit_is_given_are_told_apart() -> None:
    @tir.jit(target=ONE, cache=None)
    def sign(A, x, pair=()):
        return te.compute(A.shape, lambda i: A[i] + float(np.copysign(1.0, x)) + float(type(x) is bool) + len(str(pair)))

    a = np.zeros(7, "f")
    for x, one in ((0.0, 1), (-0.0, -1), (0, 1), (False, 2), (np.float32(-0.0), -1), (np.float32(0.0), 1)):
        assert sign(a, x)[0] == one + 2
    assert len(sign.kernels) == 6
    assert sign(a, 0, (1,))[0] == 5 and sign(a, 0, (1.0,))[0] == 7 and sign(a, 0, (True,))[0] == 8
    for wrong in ([1], (1, [2]), {}, memoryview(bytearray(3))):
        with pytest.raises(TypeError, match=f"^sign: x must be an array, or a value that .* for, got {type(wrong).__name__}$"):
            sign(a, wrong)


@needs_cc
def test_an_exported_kernel_in_every_dtype(tmp_path) -> None:
    for dtype in dtypes.TABLE:
        kernel(dtype).export(tmp_path / f"of_{dtype}.so")
        function = getattr(ctypes.CDLL(str(tmp_path / f"of_{dtype}.so")), f"of_{dtype}")
        a, found = numbers(dtype), np.zeros(7, dtypes.storage(dtype))
        assert function(ctypes.c_void_p(a.ctypes.data), ctypes.c_void_p(found.ctypes.data)) == 0
        assert widened(found, dtype).tolist() == (widened(a, dtype) * (1 if dtype == "bool" else 2)).tolist(), dtype


def test_floats_beyond_a_type_are_infinite_and_nan_stays():
    """Without a warning; a NaN of any bits, of which some round up to those of zero."""
    nan = np.array([0x7FFFFFFF, 0xFFFFFFFF, 0x7FC00000, 0x7F800001], "uint32").view("float32")
    for dtype, infinite in (("float16", 7e4), ("bfloat16", 3.4e38)):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            found = to_float(from_float(np.float32([infinite, -infinite, *nan]), dtype), dtype)
        np.testing.assert_array_equal(found, [np.inf, -np.inf, *[np.nan] * 4])
