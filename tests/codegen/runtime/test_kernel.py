"""What a kernel checks of its arguments, and how it is timed."""

import numpy as np
import pytest

import codegen
from codegen import ArgumentError, Timing
from codegen.runtime.timing import duration
from schedule import Schedule
from tests.codegen.harness import ONE
from tir import te
from tir.ir import Buffer, Const, For, Load, PrimFunc, Store, Var


def double(dtype: str = "float32", rows: int = 7, columns: int = 13):
    """B = A + A"""
    a = te.placeholder((rows, columns), dtype, name="A")
    return codegen.build(te.create_prim_func([a, te.compute((rows, columns), lambda i, j: a[i, j] + a[i, j], name="B")]), ONE)


@pytest.fixture(scope="module")
def kernel():
    return double()


@pytest.fixture(scope="module")
def symbolic():
    """B = 2 A, of n + 1 elements."""
    n = te.var("n")
    a = te.placeholder((n + 1,), name="A")
    return codegen.build(te.create_prim_func([a, te.compute((n + 1,), lambda i: a[i] * 2.0, name="B"), n]), ONE)


def arrays(dtype="float32"):
    return np.ones((7, 13), dtype), np.zeros((7, 13), dtype)


def refused(kernel, args, message):
    before = [a.copy() if isinstance(a, np.ndarray) else a for a in args]
    with pytest.raises(ArgumentError) as caught:
        kernel(*args)
    assert str(caught.value) == message
    assert isinstance(caught.value, TypeError) and isinstance(caught.value, ValueError)
    for old, new in zip(before, args, strict=True):
        assert not isinstance(old, np.ndarray) or np.array_equal(old, new)


def test_a_call_writes_in_place(kernel):
    a, b = arrays()
    assert kernel(a, b) is None
    assert (b == 2).all() and (a == 1).all()


def test_the_number_of_arguments(kernel, symbolic):
    a, b = arrays()
    refused(kernel, (), "main takes 2 argument(s) (A, B), of which B may be left out, got 0")
    refused(kernel, (a, b, b), "main takes 2 argument(s) (A, B), of which B may be left out, got 3")
    refused(symbolic, (), "main takes 3 argument(s) (A, B, n), of which B, n may be left out, got 0")


def test_arrays_are_arrays(kernel):
    a, b = arrays()
    refused(kernel, ([[1.0]], b), "main: A must be an array, got list; np.asarray makes one")
    refused(kernel, (a, 3.0), "main: B must be an array, got float; np.asarray makes one")


def test_shapes(kernel):
    a, b = arrays()
    refused(kernel, (a.T.copy(), b), "main: A must have shape (7, 13), got (13, 7)")
    refused(kernel, (a, b.ravel()), "main: B must have shape (7, 13), got (91,)")
    refused(kernel, (a[:6].copy(), b), "main: A must have shape (7, 13), got (6, 13)")


@pytest.mark.parametrize("other", ["float64", "float16", "int32", "uint32", "bool"])
def test_dtypes(kernel, other):
    _, b = arrays()
    refused(kernel, (np.ones((7, 13), other), b), f"main: A must have dtype float32, got {other}")


def test_bfloat16_is_given_as_bits():
    kernel = double("bfloat16")
    a, b = np.full((7, 13), 0x3FC0, np.uint16), np.zeros((7, 13), np.uint16)
    kernel(a, b)
    assert (b == 0x4040).all()  # 1.5 + 1.5
    hint = " (numpy holds its bits as uint16, ml_dtypes and torch have it)"
    refused(kernel, (np.ones((7, 13), np.float32), b), f"main: A must have dtype bfloat16, got float32{hint}")


def test_foreign_byte_order(kernel):
    _, b = arrays()
    refused(kernel, (np.ones((7, 13), ">f4"), b), "main: A must be in this machine's byte order, got >f4")


def test_layouts(kernel):
    a, b = arrays()
    hint = "use np.ascontiguousarray"
    refused(kernel, (np.asfortranarray(a), b), f"main: A must be C-contiguous, got strides (4, 28); {hint}")
    refused(kernel, (np.ones((7, 26), "f")[:, ::2], b), f"main: A must be C-contiguous, got strides (104, 8); {hint}")
    refused(kernel, (a[::-1], b), f"main: A must be C-contiguous, got strides (-52, 4); {hint}")
    kernel(np.ones((14, 13), "f")[7:], b)
    assert (b == 2).all()


def test_alignment(kernel):
    _, b = arrays()
    memory = np.zeros(4 * 91 + 4, np.uint8)
    shift = next(n for n in range(4) if (memory.ctypes.data + n) % 4 == 2)
    odd = memory[shift : shift + 4 * 91].view("f").reshape(7, 13)
    refused(kernel, (odd, b), f"main: A must be aligned to its 4-byte elements, address {odd.ctypes.data:#x}")


def test_any_address_that_is_aligned_to_its_elements():
    """Vectors ask for no more than that."""
    a, b = np.ones(7 * 13 + 1, "f")[1:].reshape(7, 13), np.ones(7 * 13 + 3, "f")[3:].reshape(7, 13)
    kernel = double()
    kernel(a, b)
    assert (b == 2).all()


def test_read_only(kernel):
    a, b = arrays()
    a.flags.writeable = False
    kernel(a, b)
    assert (b == 2).all()
    b.flags.writeable = False
    refused(kernel, (a, b), "main: B is written but the array is read-only")


def test_overlap(kernel):
    memory = np.ones((14, 13), "f")
    refused(kernel, (memory[:7], memory[:7]), "main: A and B overlap in memory, and B is written; pass a copy")
    refused(kernel, (memory[:7], memory[6:13]), "main: A and B overlap in memory, and B is written; pass a copy")
    kernel(memory[:7], memory[7:])
    assert (memory[7:] == 2).all()


def test_inputs_may_be_one_array():
    a, b = te.placeholder((13,), name="A"), te.placeholder((13,), name="B")
    kernel = codegen.build(te.create_prim_func([a, b, te.compute((13,), lambda i: a[i] * b[i], name="C")]), ONE)
    x, y = np.full(13, 3, "f"), np.zeros(13, "f")
    kernel(x, x, y)
    assert (y == 9).all()


def test_sizes(symbolic):
    a, b = np.ones(8, "f"), np.zeros(8, "f")
    symbolic(a, b, 7)
    symbolic(a, b, np.int64(7))
    assert (b == 2).all()
    refused(symbolic, (a, b, 8), "main: A must have shape (9,), got (8,)")
    refused(symbolic, (a, b, 7.0), "main: n is a size and must be an int, got float")
    refused(symbolic, (a, b, True), "main: n is a size and must be an int, got bool")
    refused(symbolic, (a, b, "7"), "main: n is a size and must be an int, got str")


def test_a_size_that_is_not_a_parameter():
    n, i = Var("n"), Var("i")
    a, b = Buffer("A", (n,)), Buffer("B", (Const(7),))
    func = PrimFunc("main", (a, b), For(i, Const(7), Store(b, (i,), Load(a, (i,)))))
    kernel = codegen.build(func, ONE)
    message = "main: the shape (n,) of A depends on sizes that are not parameters of the function; list them there, too (te.var)"
    refused(kernel, (np.ones(7, "f"), np.zeros(7, "f")), message)


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1])
def test_a_size_beyond_a_machine_word(symbolic, value):
    refused(symbolic, (np.ones(8, "f"), np.zeros(8, "f"), value), f"main: n is a size and must fit int32, got {value}")


def test_rank_0_and_no_elements():
    a = te.placeholder((), name="A")
    kernel = codegen.build(te.create_prim_func([a, te.compute((), lambda: a() * 2.0, name="B")]), ONE)
    x, y = np.array(3, "f"), np.array(0, "f")
    kernel(x, y)
    assert y == 6
    refused(kernel, (np.float32(3), y), "main: A must be an array, got float32; np.asarray makes one")


def test_no_elements(symbolic):
    symbolic(np.ones(0, "f"), np.ones(0, "f"), -1)


def test_time(kernel):
    a, b = arrays()
    timing = kernel.time(a, b, seconds=0.01, runs=7)
    assert isinstance(timing, Timing)
    assert timing.runs == len(timing.samples) >= 7 and timing.calls > 1
    low, high = timing.quartiles
    assert 0 < min(timing.samples) <= low <= timing.median <= high <= max(timing.samples)
    assert (b == 2).all()
    assert kernel.time(a, b, seconds=10, max_runs=9).runs == 9
    assert kernel.time(a, seconds=0.001).median > 0
    with pytest.raises(ArgumentError):
        kernel.time(b[:1])


@pytest.mark.parametrize(("seconds", "text"), [(2.5, "2.5 s"), (0.00125, "1.25 ms"), (3.2e-6, "3.2 us"), (4.5e-8, "45 ns")])
def test_the_text_of_a_timing(seconds, text):
    timing = Timing(seconds, (seconds, seconds), 5, 2)
    assert str(timing) == f"{text} (quartiles {text} .. {text}, 5 runs of 2)"


def test_texts(kernel):
    assert "define i32 @tir_main(ptr noalias" in kernel.llvm_ir()
    assert "tir_main:" in kernel.asm()
    assert kernel.lowered.script().count("T.block") == 0


def test_build_refuses_what_is_no_function():
    with pytest.raises(TypeError) as caught:
        codegen.build("main")
    assert str(caught.value) == "build takes a PrimFunc, got str"


def test_build_takes_a_schedule():
    a = te.placeholder((7,), name="A")
    s = Schedule(te.create_prim_func([a, te.compute((7,), lambda i: a[i] + a[i], name="B")]))
    s.vectorize("i")
    assert codegen.build(s, ONE).func == s.func and codegen.dump(s) == codegen.dump(s.func)


@pytest.mark.parametrize(
    ("seconds", "text"), [(1.5, "1.5 s"), (0.0112, "11.2 ms"), (4.5e-5, "45 us"), (2e-8, "20 ns"), (123.456, "123.5 s")]
)
def test_durations_have_a_fitting_unit(seconds, text):
    assert duration(seconds) == text
