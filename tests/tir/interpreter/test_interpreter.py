"""The interpreter: values, wrapping and rounding, traps, and that numba gives the same as plain Python."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.programs import matmul
from tests.sweeps import one_in
from tir import interpreter, te
from tir.interpreter import DivisionByZero, InterpreterError, OutOfBounds, Uninitialised, run, source
from tir.interpreter.python_functions import shuffle
from tir.ir import (
    Allocate,
    Axis,
    Binary,
    Block,
    Buffer,
    Call,
    Cast,
    Const,
    Expr,
    For,
    If,
    Iter,
    Kind,
    Let,
    Load,
    PrimFunc,
    Select,
    Store,
    Unary,
    Var,
    cast,
    const,
    seq,
)
from tir.traverse import rewrite

PATHS = (False, True)  # plain Python, numba


def buffer(name: str, *shape: int, dtype: str = "float32") -> Buffer:
    return Buffer(name, tuple(const(d) for d in shape), dtype)


def bfloat16(values) -> np.ndarray:
    """Bit patterns of the nearest bfloat16 numbers, ties to even, of finite values."""
    bits = np.asarray(values, np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def from_bfloat16(bits: np.ndarray) -> np.ndarray:
    return (bits.astype(np.uint32) << 16).view(np.float32)


def marked(func: PrimFunc, kind: Kind, *names: str) -> PrimFunc:
    """The function with the loops of these names run as `kind`."""
    return rewrite(func, lambda n: n.with_(kind=kind) if isinstance(n, For) and n.name in names else None)


def apply_all(formulas, *inputs: np.ndarray, dtype: str | None = None, out=None, fast: bool = False) -> list[np.ndarray]:
    """Each formula on each element of the inputs, through the interpreter, as one function."""
    n, dtype = len(inputs[0]), dtype or inputs[0].dtype.name
    tensors = [te.placeholder((n,), dtype, name=f"A{i}") for i in range(len(inputs))]

    def element(formula):
        return lambda i: formula(*(a[i] for a in tensors))

    outs = [te.compute((n,), element(f), name=f"B{m}") for m, f in enumerate(formulas)]
    results = [np.empty(n, out or inputs[0].dtype) for _ in formulas]
    run(te.create_prim_func([*tensors, *outs]), *inputs, *results, fast=fast)
    return results


def apply(formula, *inputs: np.ndarray, **options) -> np.ndarray:
    return apply_all([formula], *inputs, **options)[0]


# --- values ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fast", PATHS)
@pytest.mark.parametrize("shape", [(7, 13, 109), (1, 1, 1), (13, 1, 7)])
def test_matmul_adds_in_order(shape, fast):
    n, m, r = shape
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((n, r)).astype(np.float32), rng.standard_normal((r, m)).astype(np.float32)
    c = np.empty((n, m), np.float32)
    run(matmul(n, r, m), a, b, c, fast=fast)
    expected = np.zeros((n, m), np.float32)
    for k in range(r):
        expected += a[:, k : k + 1] * b[k]
    np.testing.assert_array_equal(c, expected)


@pytest.mark.parametrize("fast", PATHS)
def test_each_float32_operation_rounds(fast):
    x = np.array([1.0, 1e-3, 3e38], np.float32)
    got = apply(lambda a: (a + 2.0**-24) * 3.0 - a * 3.0, x, fast=fast)
    with np.errstate(over="ignore", invalid="ignore"):
        expected = (x + np.float32(2.0**-24)) * np.float32(3) - x * np.float32(3)
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("fast", PATHS)
def test_float16_is_computed_in_float32_and_rounded(fast):
    rng = np.random.default_rng(1)
    x, y = rng.standard_normal((2, 109)).astype(np.float16)
    x[:5] = [65504, 6e-8, -0.0, np.inf, np.nan]
    y[:5] = [65504, 0.5, 0.0, 1, 1]
    with np.errstate(all="ignore"):
        formulas = (lambda a, b: a + b, lambda a, b: a - b, lambda a, b: a * b, lambda a, b: a / b)
        for formula, got in zip(formulas, apply_all(formulas, x, y, fast=fast), strict=True):
            expected = formula(x.astype(np.float32), y.astype(np.float32)).astype(np.float16)
            np.testing.assert_array_equal(got, expected)
            np.testing.assert_array_equal(np.signbit(got[~np.isnan(got)]), np.signbit(expected[~np.isnan(expected)]))


@pytest.mark.parametrize("fast", PATHS)
def test_bfloat16_rounds_ties_to_even(fast):
    rng = np.random.default_rng(2)
    x, y = bfloat16(rng.standard_normal((2, 109)))
    formulas = (lambda a, b: a + b, lambda a, b: a * b, lambda a, b: a / b)
    for formula, got in zip(formulas, apply_all(formulas, x, y, dtype="bfloat16", fast=fast), strict=True):
        np.testing.assert_array_equal(got, bfloat16(formula(from_bfloat16(x), from_bfloat16(y))))
    # 1 + 2**-8 lies between 1 and 1 + 2**-7: to even, down; 1 + 3 * 2**-8 likewise, up.
    got = apply(lambda a: a * 0.00390625 + 1.0, bfloat16([1, 3]), dtype="bfloat16", fast=fast)
    np.testing.assert_array_equal(from_bfloat16(got), np.float32([1.0, 1.015625]))


@pytest.mark.parametrize("fast", PATHS)
def test_the_largest_float64_is_infinite_as_bfloat16(fast):
    x = np.finfo("float64").max * np.array([1.0, -1.0])
    got = apply(lambda a: a.astype("bfloat16").astype("float64"), x, fast=fast)
    np.testing.assert_array_equal(got, [np.inf, -np.inf])


@pytest.mark.parametrize("fast", PATHS)
def test_every_half_precision_number_passes_unchanged(fast):
    bits = np.arange(65536, dtype=np.uint16)
    same = apply(lambda a: a, bits, dtype="bfloat16", fast=fast)
    number = ~np.isnan(from_bfloat16(bits))
    np.testing.assert_array_equal(same[number], bits[number])
    halves = bits.view(np.float16)
    got = apply(lambda a: a, halves, fast=fast)
    np.testing.assert_array_equal(got.view(np.uint16)[~np.isnan(halves)], bits[~np.isnan(halves)])
    assert np.isnan(got[np.isnan(halves)]).all()


@one_in(2)
@pytest.mark.parametrize("fast", PATHS)
@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"])
def test_integer_arithmetic_wraps(dtype, fast):
    info = np.iinfo(dtype)
    x = np.array([info.min, info.max, info.max, 3, 7], dtype)
    y = np.array([info.max, info.max, 1, 5, 2], dtype)
    formulas = {
        lambda a, b: a + b: lambda a, b: a + b,
        lambda a, b: a - b: lambda a, b: a - b,
        lambda a, b: a * b + a: lambda a, b: a * b + a,
        lambda a, b: -a: lambda a, b: -a,
        lambda a, b: te.abs(a): lambda a, b: np.abs(a),
        lambda a, b: (a + b) // 2: lambda a, b: (a + b) // np.array(2, dtype),  # the sum wraps before the division sees it
    }
    with np.errstate(over="ignore"):
        for got, expected in zip(apply_all(formulas, x, y, fast=fast), formulas.values(), strict=True):
            np.testing.assert_array_equal(got, expected(x, y).astype(dtype))


@pytest.mark.parametrize("fast", PATHS)
def test_division_of_integers_floors(fast):
    x = np.array([7, -7, 7, -7, -128, 0], np.int8)
    y = np.array([2, 2, -2, -2, 3, -5], np.int8)
    np.testing.assert_array_equal(apply(lambda a, b: a // b, x, y, fast=fast), [3, -4, -4, 3, -43, 0])
    np.testing.assert_array_equal(apply(lambda a, b: a % b, x, y, fast=fast), [1, 1, -1, -1, 1, 0])
    np.testing.assert_array_equal(apply(lambda a: (a + 0) // 4 * 4 + a % 4, x, fast=fast), x)


@pytest.mark.parametrize("fast", PATHS)
def test_index_arithmetic_is_exact(fast):
    """Variables and constants do not wrap at 32 bit: i * 2**20 * 2**20 // 2**40 is i."""
    B = buffer("B", 7, dtype="int32")
    i = Var("i")
    far = Binary("*", Binary("*", i, const(2**20)), const(2**20))
    func = PrimFunc("main", (B,), For(i, const(7), Store(B, (i,), Binary("//", far, Cast("int32", const(2**40))))))
    with pytest.raises(InterpreterError):  # the cast to int32 wraps: 2**40 becomes 0
        run(func, np.zeros(7, np.int32), fast=fast)
    func = PrimFunc("main", (B,), For(i, const(7), Store(B, (i,), far // const(2**20) // const(2**20))))
    out = np.zeros(7, np.int32)
    run(func, out, fast=fast)
    np.testing.assert_array_equal(out, np.arange(7))
    func = PrimFunc("main", (B,), For(i, const(7), Store(B, (i,), far + 1)))
    run(func, out, fast=fast)  # what is stored is brought into range
    np.testing.assert_array_equal(out, (np.arange(7, dtype=np.int64) * 2**40 + 1).astype(np.int32))


@pytest.mark.parametrize("fast", PATHS)
def test_float_division_by_zero_and_overflow(fast):
    x = np.array([1, -1, 0, 3e38], np.float32)
    y = np.array([0, 0, 0, 1e-5], np.float32)
    np.testing.assert_array_equal(apply(lambda a, b: a / b, x, y, fast=fast), [np.inf, -np.inf, np.nan, np.inf])
    x = np.array([1e300, -1.0, 0.0], np.float64)
    np.testing.assert_array_equal(apply(te.exp, x, fast=fast), [np.inf, np.exp(-1.0), 1.0])
    np.testing.assert_array_equal(apply(te.log, x, fast=fast)[1:], [np.nan, -np.inf])
    np.testing.assert_array_equal(apply(te.rsqrt, x, fast=fast)[1:], [np.nan, np.inf])


_erf = np.vectorize(math.erf)
MATH = {
    "exp": np.exp,
    "log": np.log,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "tanh": np.tanh,
    "erf": _erf,
    "sigmoid": lambda x: np.where(x >= 0, 1 / (1 + np.exp(-np.abs(x))), np.exp(-np.abs(x)) / (1 + np.exp(-np.abs(x)))),
    "abs": np.abs,
    "floor": np.floor,
    "ceil": np.ceil,
}


@one_in(2)
@pytest.mark.parametrize("fast", PATHS)
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_intrinsics_are_computed_in_float64_and_rounded_once(dtype, fast):
    x = np.linspace(-5, 5, 109).astype(dtype)
    positive = np.abs(x) + np.array(0.125, dtype)
    for y, intrinsics in (
        (x, (te.exp, te.tanh, te.erf, te.sigmoid, te.abs, te.floor, te.ceil)),
        (positive, (te.log, te.sqrt, te.rsqrt)),
    ):
        for intrinsic, got in zip(intrinsics, apply_all(intrinsics, y, fast=fast), strict=True):
            expected = MATH[intrinsic.__name__](y.astype(np.float64)).astype(dtype)
            if fast or dtype == "float64":  # another libm may differ by an ulp of float64, and so may the rounding of a near tie
                np.testing.assert_allclose(got, expected, rtol=2 * np.finfo(dtype).eps, atol=0)
            else:
                np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("fast", PATHS)
def test_pow(fast):
    x, y = np.array([2, 9, -8, 0, -np.inf, -0.0], np.float32), np.array([10, 0.5, 3, -1, 0.5, 0.5], np.float32)
    powers = apply(te.pow, x, y, fast=fast)
    np.testing.assert_array_equal(powers, [1024, 3, -512, np.inf, np.inf, 0])
    assert not np.signbit(powers[5])  # pow(-0, 0.5) is 0, and sqrt(-0) is -0


@pytest.mark.parametrize("fast", PATHS)
def test_casts(fast):
    x = np.array([2.9, -2.9, 0.0, 127.0], np.float32)
    np.testing.assert_array_equal(apply(lambda a: a.astype("int8"), x, out=np.int8, fast=fast), [2, -2, 0, 127])
    np.testing.assert_array_equal(apply(lambda a: a.astype("bool"), x, out=np.bool_, fast=fast), [True, True, False, True])
    np.testing.assert_array_equal(apply(lambda a: (a > 0.0).astype("float32"), x, fast=fast), [1, 0, 0, 1])
    wide = np.array([300, -1, 2**31 - 1], np.int32)
    np.testing.assert_array_equal(apply(lambda a: a.astype("uint8"), wide, out=np.uint8, fast=fast), wide.astype(np.uint8))
    np.testing.assert_array_equal(apply(lambda a: a.astype("uint64"), wide, out=np.uint64, fast=fast), wide.astype(np.uint64))
    np.testing.assert_array_equal(apply(lambda a: a.astype("float32"), wide, out=np.float32, fast=fast), wide.astype(np.float32))
    for value in (np.nan, np.inf):  # unspecified, but not an exception
        apply(lambda a: a.astype("int32"), np.array([value], np.float32), out=np.int32, fast=fast)


@pytest.mark.parametrize("fast", PATHS)
def test_bool_logic(fast):
    x, y = np.array([1, 1, 0, 0], bool), np.array([1, 0, 1, 0], bool)
    np.testing.assert_array_equal(apply(lambda a, b: te.all(a, b), x, y, fast=fast), x & y)
    np.testing.assert_array_equal(apply(lambda a, b: te.any(a, te.logical_not(b)), x, y, fast=fast), x | ~y)
    np.testing.assert_array_equal(apply(te.maximum, x, y, fast=fast), x | y)


# --- statements --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fast", PATHS)
def test_lowered_program_without_blocks(fast):
    """Flat loops with let, allocate, if and else: B[i] = 2 A[i] for even i, else -A[i]."""
    A, B, T = buffer("A", 91), buffer("B", 91), buffer("T", 91)
    i, j, at = Var("i"), Var("j"), Var("at")
    branch = If((at % 2).equal(0), Store(B, (at,), T[at] * 2.0), Store(B, (at,), -T[at]))
    nest = For(i, const(7), For(j, const(13), Let(at, i * 13 + j, branch)))
    copy = For(Var("c"), const(91), Store(T, (Var("c"),), A[Var("c")]))
    func = PrimFunc("main", (A, B), Allocate(T, seq(copy, nest)))
    a, b = np.arange(91, dtype=np.float32), np.zeros(91, np.float32)
    run(func, a, b, fast=fast)
    np.testing.assert_array_equal(b, np.where(np.arange(91) % 2 == 0, 2 * a, -a))


@pytest.mark.parametrize("fast", PATHS)
def test_predicate_guards_what_the_split_adds(fast):
    """7 = 2 x 4 - 1: the block is skipped for the last iteration, whose binding is outside the domain."""
    A, B = buffer("A", 7), buffer("B", 7)
    o, i, v = Var("i_0"), Var("i_1"), Var("v_i")
    block = Block("B", (Iter(v, const(7), Axis.SPATIAL, o * 4 + i),), Store(B, (v,), A[v] + 1.0), predicate=o * 4 + i < 7)
    nest = For(o, const(2), For(i, const(4), block))
    a, b = np.arange(7, dtype=np.float32), np.zeros(7, np.float32)
    run(PrimFunc("main", (A, B), nest), a, b, fast=fast)
    np.testing.assert_array_equal(b, a + 1)
    unguarded = rewrite(
        PrimFunc("main", (A, B), nest), lambda n: n.with_(predicate=Const(True, "bool")) if isinstance(n, Block) else None
    )
    with pytest.raises(OutOfBounds, match=r"`v_i` of block `B` is bound to 7, outside its domain, 0 \.\. 6"):
        run(unguarded, a, b, fast=fast)


@pytest.mark.parametrize("fast", PATHS)
def test_more_loops_than_python_nests(fast):
    """24 nested loops; CPython allows 20."""
    B = buffer("B", 2**12)
    loops = [(Var(f"i{n}"), 2 if n % 2 else 1) for n in range(24)]
    index = sum((v * (2 ** (n // 2)) for n, (v, e) in enumerate(loops) if e == 2), const(0))
    from tir.ir import nest

    func = PrimFunc("main", (B,), nest(loops, Store(B, (index,), cast(index, "float32"))))
    b = np.zeros(2**12, np.float32)
    run(func, b, fast=fast)
    np.testing.assert_array_equal(b, np.arange(2**12))


@pytest.mark.parametrize("fast", PATHS)
def test_symbolic_size(fast):
    n = te.var("n")
    A = te.placeholder((n, 13), name="A")
    B = te.compute((n, 13), lambda i, j: A[n - 1 - i, j], name="B")
    func = te.create_prim_func([A, B, n])
    a = np.arange(91, dtype=np.float32).reshape(7, 13)
    b = np.zeros_like(a)
    run(func, a, b, 7, fast=fast)
    np.testing.assert_array_equal(b, a[::-1])
    with pytest.raises(ValueError, match=r"main: `A` must have shape \(8, 13\), got \(7, 13\)"):
        run(func, a, b, 8, fast=fast)


def test_names_that_python_uses():
    """Buffers and loops may be called like Python's builtins, its keywords, or what the generated code calls."""
    A, B = buffer("int", 7, dtype="int32"), buffer("float32", 7, dtype="int32")
    i = Var("range")
    func = PrimFunc("exp", (A, B), For(i, const(7), Store(B, (i,), Load(A, (i,)) * 2)))
    a, b = np.arange(7, dtype=np.int32), np.zeros(7, np.int32)
    run(func, a, b)
    np.testing.assert_array_equal(b, 2 * a)


def test_source_is_readable():
    assert source(matmul(7, 109, 13), traps=False) == (
        "def main(A, B, C, rng):\n"
        "    for i in range(7):\n"
        "        for j in range(13):\n"
        "            for k in range(109):\n"
        "                # block C\n"
        "                v_i = i\n"
        "                v_j = j\n"
        "                v_k = k\n"
        "                if v_k == 0:\n"
        "                    C[v_i, v_j] = float32(0.0)\n"
        "                C[v_i, v_j] = C[v_i, v_j] + A[v_i, v_k] * B[v_k, v_j]\n"
    )


def test_compiled_is_reusable():
    f = interpreter.compile(matmul(7, 1, 13), fast=True)
    for seed in range(3):
        rng = np.random.default_rng(seed)
        a, b = rng.standard_normal((7, 1)).astype(np.float32), rng.standard_normal((1, 13)).astype(np.float32)
        c = np.empty((7, 13), np.float32)
        f(a, b, c)
        np.testing.assert_array_equal(c, a * b)


# --- traps -------------------------------------------------------------------------------------------------------------


def test_out_of_bounds_names_everything():
    A = te.placeholder((7, 13), name="A")
    B = te.compute((7, 13), lambda i, j: A[i, j + 1], name="B")
    func = te.create_prim_func([A, B])
    a, b = np.zeros((2, 7, 13), np.float32)
    with pytest.raises(OutOfBounds) as caught:
        run(func, a, b)
    assert str(caught.value) == (
        "main: index 13 of dimension 1 of `A` is outside 0 .. 12, in `B[v_i, v_j] = A[v_i, v_j + 1]`, "
        "where i=0, j=12, v_i=0, v_j=12"
    )
    assert isinstance(caught.value, IndexError)
    with pytest.raises(OutOfBounds, match=r"index 13 of dimension 1 of `A` is outside 0 \.\. 12"):
        run(func, a, b, fast=True)


@pytest.mark.parametrize("fast", PATHS)
def test_negative_index_does_not_wrap_around(fast):
    A = te.placeholder((13,), name="A")
    B = te.compute((13,), lambda i: A[i - 1], name="B")
    with pytest.raises(OutOfBounds, match="index -1 of dimension 0 of `A`"):
        run(te.create_prim_func([A, B]), np.zeros(13, np.float32), np.zeros(13, np.float32), fast=fast)


@pytest.mark.parametrize("fast", PATHS)
def test_lazy_select_evaluates_one_side(fast):
    A = te.placeholder((13,), name="A")
    B = te.compute((13,), lambda i: te.if_then_else(i >= 1, A[i - 1], 0.0), name="B")
    a, b = np.arange(13, dtype=np.float32), np.zeros(13, np.float32)
    run(te.create_prim_func([A, B]), a, b, fast=fast)
    np.testing.assert_array_equal(b, [0, *range(12)])
    B = te.compute((13,), lambda i: te.select(i >= 1, A[i - 1], 0.0), name="B")
    with pytest.raises(OutOfBounds):
        run(te.create_prim_func([A, B]), a, b, fast=fast)


@pytest.mark.parametrize("fast", PATHS)
def test_both_sides_of_and_are_evaluated(fast):
    A = te.placeholder((13,), name="A")
    B = te.compute((13,), lambda i: te.select(te.all(i >= 1, A[i - 1] > 0.0), 1.0, 0.0), name="B")
    with pytest.raises(OutOfBounds):
        run(te.create_prim_func([A, B]), np.zeros(13, np.float32), np.zeros(13, np.float32), fast=fast)


@pytest.mark.parametrize("fast", PATHS)
@pytest.mark.parametrize("op", ["//", "%"])
def test_integer_division_by_zero(op, fast):
    A, B = buffer("A", 2, dtype="int32"), buffer("B", 2, dtype="int32")
    i = Var("i")
    func = PrimFunc("main", (A, B), For(i, const(2), Store(B, (i,), Binary(op, A[i], B[i]))))
    with pytest.raises(DivisionByZero, match=rf"main: `A\[i\] {op} B\[i\]` divides 5 by zero"):
        run(func, np.array([5, 5], np.int32), np.zeros(2, np.int32), fast=fast)


@one_in(2)
@pytest.mark.parametrize("fast", PATHS)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "int8", "int64", "uint16", "bool"])
def test_allocations_start_as_garbage(dtype, fast):
    B, T = buffer("B", 7, dtype=dtype), buffer("T", 7, dtype=dtype)
    i = Var("i")
    func = PrimFunc("main", (B,), For(i, const(7), Store(B, (i,), T[i])), allocs=(T,))
    storage = np.uint16 if dtype == "bfloat16" else dtype
    b = np.zeros(7, storage)
    run(func, b, fast=fast)
    expected = {"bfloat16": 0x7FC0, "int8": 0x7B, "uint16": 0x7B7B, "int64": 0x7B7B7B7B7B7B7B7B, "bool": True}.get(dtype, np.nan)
    np.testing.assert_array_equal(b, np.full(7, expected, storage))


@one_in(2)
@pytest.mark.parametrize("fast", PATHS)
@pytest.mark.parametrize("kind", [Kind.PARALLEL, Kind.VECTORIZED, Kind.THREAD])
def test_loops_in_any_order_expose_a_carried_dependence(kind, fast):
    """A running sum is right in order, and wrong in every shuffled order."""
    A = buffer("A", 109)
    i = Var("i")
    serial = PrimFunc("main", (A,), For(i, const(108), Store(A, (i + 1,), A[i] + 1.0)))
    a = np.zeros(109, np.float32)
    run(serial, a, fast=fast)
    np.testing.assert_array_equal(a, np.arange(109))
    for seed in range(3):
        a = np.zeros(109, np.float32)
        run(marked(serial, kind, "i"), a, seed=seed, fast=fast)
        assert (a != np.arange(109)).any()
    a = np.zeros(109, np.float32)
    run(marked(serial, kind, "i"), a, traps=False, fast=fast)
    np.testing.assert_array_equal(a, np.arange(109))


def test_shuffled_order_is_never_ascending():
    for n in (2, 3, 7):
        for seed in range(50):
            order = shuffle(n, np.random.default_rng(seed))
            assert sorted(order) == list(range(n))
            assert list(order) != list(range(n))


def test_update_before_init():
    """A shuffled reduction whose first iteration comes later; the NaN of a temporary would show it only afterwards."""
    func = marked(matmul(1, 13, 7), Kind.VECTORIZED, "k")
    a, b, c = np.ones((1, 13), np.float32), np.ones((13, 7), np.float32), np.zeros((1, 7), np.float32)
    with pytest.raises(
        Uninitialised, match="block `C` updates its output before its init has run for this spatial point, where i=0, j=0, k="
    ):
        run(func, a, b, c)


def test_nothing_is_checked_without_traps():
    A = te.placeholder((13,), name="A")
    B = te.compute((13,), lambda i: A[i - 1], name="B")
    a, b = np.arange(13, dtype=np.float32), np.zeros(13, np.float32)
    run(te.create_prim_func([A, B]), a, b, traps=False)
    np.testing.assert_array_equal(b, np.roll(a, 1))


# --- refusals ----------------------------------------------------------------------------------------------------------


def test_arguments_that_do_not_fit():
    func = matmul()
    a, b, c = np.zeros((7, 5), np.float32), np.zeros((5, 13), np.float32), np.zeros((7, 13), np.float32)
    for args, error, message in (
        ((a, b), TypeError, "main(A, B, C) takes 3 argument(s), got 2"),
        ((a, b.tolist(), c), TypeError, "main: `B` must be an array, got list"),
        ((a, b.astype(np.float64), c), TypeError, "main: `B` must have dtype float32, got float64"),
        ((a, b.T, c), ValueError, "main: `B` must have shape (5, 13), got (13, 5)"),
        ((c[:, :5], b, c), ValueError, "main: `A` and `C` share memory, and one of them is written"),
    ):
        with pytest.raises(error) as caught:
            run(func, *args)
        assert str(caught.value) == message
    c.flags.writeable = False
    with pytest.raises(ValueError, match="main: `C` is written but the array is read-only"):
        run(func, a, b, c)


def test_programs_without_a_meaning():
    A, B = buffer("A", 7), buffer("B", 7)
    i = Var("i")
    for body, message in (
        (Store(A, (i,), const(0.0)), "main: the variable `i` is used where nothing binds it"),
        (
            Store(B, (const(0),), const(0.0)),
            "main: the buffer `B` is used, but is neither a parameter nor allocated around its use",
        ),
        (Store(A, (const(0), const(0)), const(0.0)), "main: `A` has 1 dimension(s), but is indexed with 2: `A[0, 0]`"),
    ):
        with pytest.raises(InterpreterError) as caught:
            run(PrimFunc("main", (A,), body), np.zeros(7, np.float32))
        assert str(caught.value) == message


# --- both paths agree --------------------------------------------------------------------------------------------------


def random_expression(rng: np.random.Generator, leaves: list[Expr], dtype: str, depth: int) -> Expr:
    """A random tree over the leaves; divisors are nonzero constants."""
    if depth == 0 or rng.random() < 0.2:
        return leaves[rng.integers(len(leaves))] if rng.random() < 0.7 else const(int(rng.integers(1, 6)), dtype)
    a, b, c = (random_expression(rng, leaves, dtype, depth - 1) for _ in range(3))
    floating = dtype.startswith(("float", "bfloat"))
    match rng.integers(8):
        case 0:
            return Binary("-", a, b)
        case 1:
            return Binary("*", a, b)
        case 2:
            return Binary("max", a, b)
        case 3:
            return Select(Binary("<", a, b), b, c, lazy=bool(rng.integers(2)))
        case 4:
            return Unary("neg", a)
        case 5 if not floating:
            return Binary(str(rng.choice(["//", "%"])), a, const(int(rng.integers(1, 9)), dtype))
        case 5:
            return Call("tanh", (a,), dtype)
        case 6:
            return Call("abs", (a,), dtype)
        case _:
            return Binary("+", a, b)


@one_in(2)
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "uint64", "float16", "float32", "float64"])
def test_numba_agrees_with_python(dtype):
    rng = np.random.default_rng(7)
    A, B, C = (buffer(n, 13, dtype=dtype) for n in "ABC")
    i = Var("i")
    stores = [Store(C, (i,), random_expression(rng, [A[i], B[i]], dtype, 4)) for _ in range(3)]
    body = seq(
        *(For(Var(f"i{n}"), const(13), rewrite(s, lambda x, n=n: Var(f"i{n}") if x == i else None)) for n, s in enumerate(stores))
    )
    outs = [buffer(f"C{n}", 13, dtype=dtype) for n in range(3)]
    body = seq(*(rewrite(s, lambda x, n=n: outs[n] if x == C else None) for n, s in enumerate(body.stmts)))
    func = PrimFunc("main", (A, B, *outs), body)
    if dtype.startswith("float"):
        a, b = rng.standard_normal((2, 13)).astype(dtype)
    else:
        info = np.iinfo(dtype)
        a, b = rng.integers(info.min, info.max, (2, 13), dtype=dtype, endpoint=True)
    results = []
    for fast in PATHS:
        results.append([np.zeros(13, dtype) for _ in range(3)])
        run(func, a, b, *results[-1], fast=fast)
    for x, y in zip(*results, strict=True):
        np.testing.assert_allclose(x, y, rtol=4 * np.finfo(dtype).eps if dtype.startswith("float") else 0, atol=0)
