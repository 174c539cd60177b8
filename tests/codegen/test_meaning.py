"""What arithmetic means, near the ends of each type: the interpreter and compiled code against exact numbers of Python."""

import operator
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest

import tir
from codegen.cuda import lower_cuda
from search.measure.reference import from_float
from tests.arrays import widened
from tests.codegen.cuda.emulation import compiler, emulate
from tests.codegen.harness import ONE, same
from tests.codegen.test_llvm_vs_interpreter import HOW, INTEGERS, scheduled
from tests.sweeps import one_in
from tir import dtypes, te
from tir.interpreter import run
from tir.ir import PrimFunc
from tir.script import parse


def ends(dtype: str) -> list[int]:
    """Numbers of an integer dtype: next to its ends, around half of the largest, and small ones."""
    low, high = map(int, dtypes.limits(dtype))
    found = {low, low + 1, low + 7, low // 2, high // 2, high // 2 + 1, high - 7, high - 1, high, *range(max(low, -8), 9)}
    return sorted(found)


def wrapped(value: int, dtype: str) -> int:
    """An exact integer as its dtype has it."""
    low, high = map(int, dtypes.limits(dtype))
    return (value - low) % (high - low + 1) + low


def toward_zero(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


# Of expressions, and of Python's numbers.
OPERATIONS: dict[str, tuple[Callable, Callable]] = {
    "+": (operator.add, operator.add), "-": (operator.sub, operator.sub), "*": (operator.mul, operator.mul),
    "max": (te.maximum, max), "min": (te.minimum, min), "neg": (lambda a, b: -a, lambda a, b: -a),
    "abs": (lambda a, b: te.abs(a), lambda a, b: abs(a)), "not": (lambda a, b: te.bitwise_not(a), lambda a, b: ~a),
    "and": (te.bitwise_and, operator.and_), "or": (te.bitwise_or, operator.or_), "xor": (te.bitwise_xor, operator.xor),
    "<": (operator.lt, operator.lt), ">=": (operator.ge, operator.ge), "==": (te.equal, operator.eq),
}  # fmt: skip
DIVISIONS: dict[str, tuple[Callable, Callable]] = {
    "//": (operator.floordiv, operator.floordiv),
    "%": (operator.mod, operator.mod),
    "ceildiv": (te.ceildiv, lambda a, b: -(-a // b)),
}
SHIFTS: dict[str, tuple[Callable, Callable]] = {"<<": (te.shift_left, operator.lshift), ">>": (te.shift_right, operator.rshift)}


def check(func: PrimFunc, pairs: list[tuple[int, int]], dtype: str, meanings: list[Callable], how: str = "scalar") -> None:
    """Assert that each output of a program of one loop is what Python's numbers say, in the interpreter and compiled."""
    args = [np.array(column, dtype) for column in zip(*pairs, strict=True)]
    outputs = func.buffers[2:]
    found = same(scheduled(func, how), [*args, *(np.zeros(len(pairs), b.dtype) for b in outputs)], targets=[ONE])
    for b, meaning, array in zip(outputs, meanings, found[2:], strict=True):
        expected = [meaning(x, y) for x, y in pairs]
        assert array.tolist() == (expected if b.dtype == "bool" else [wrapped(v, b.dtype) for v in expected]), (dtype, meaning)


def program(dtype: str, count: int, formulas: list[Callable]) -> PrimFunc:
    a, b = te.placeholder((count,), dtype, name="A"), te.placeholder((count,), dtype, name="B")
    return te.create_prim_func([a, b, *te.compute((count,), lambda i: tuple(f(a[i], b[i]) for f in formulas), name="C")])


@one_in(2)
@pytest.mark.parametrize("how", ["scalar", "vector"])
@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_near_the_ends_of_their_type(dtype, how):
    bits = dtypes.bits(dtype)
    formulas, meanings = (list(column) for column in zip(*OPERATIONS.values(), strict=True))
    for formula, meaning in DIVISIONS.values():
        formulas.append(lambda a, b, f=formula: f(a, te.select(te.equal(b, 0), 3, b)))
        meanings.append(lambda a, b, m=meaning: m(a, b or 3))
    for formula, meaning in SHIFTS.values():
        formulas.append(lambda a, b, f=formula: f(a, te.bitwise_and(b, bits - 1)))
        meanings.append(lambda a, b, m=meaning: m(a, b & bits - 1))
    pairs = [(a, b) for a in ends(dtype) for b in ends(dtype)]
    check(program(dtype, len(pairs), formulas), pairs, dtype, meanings, how)


@pytest.mark.parametrize("dtype", ["int8", "uint32", "int64"])
def test_integers_beside_constants(dtype):
    """What is known of a constant chooses other instructions: shifts, products, no test for zero."""
    low, high = map(int, dtypes.limits(dtype))
    pairs = [(a, 0) for a in ends(dtype)]
    formulas: list[Callable] = []
    meanings: list[Callable] = []
    for formula, meaning in DIVISIONS.values():
        for c in (c for c in {low, low + 1, -3, -1, 1, 3, 8, high} if c and low <= c):
            formulas.append(lambda a, b, f=formula, c=c: f(a, te.const(c, dtype)))
            meanings.append(lambda a, b, m=meaning, c=c: m(a, c))
    check(program(dtype, len(pairs), formulas), pairs, dtype, meanings)


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64"])
def test_division_toward_zero(dtype):
    pairs = [(a, b) for a in ends(dtype) for b in ends(dtype) if b]
    n = len(pairs)
    func = parse(
        f"""
@T.prim_func
def main(A: T.Buffer(({n},), "{dtype}"), B: T.Buffer(({n},), "{dtype}"), Q: T.Buffer(({n},), "{dtype}"), R: T.Buffer(({n},), "{dtype}")):
    for i in range({n}):
        with T.block("C"):
            v = T.axis.spatial({n}, i)
            Q[v] = T.truncdiv(A[v], B[v])
            R[v] = T.truncmod(A[v], B[v])
"""
    )
    check(func, pairs, dtype, [toward_zero, lambda a, b: a - b * toward_zero(a, b)])


def test_quotients_of_indices_are_rounded_up_for_divisors_of_both_signs():
    i, n = te.var("i"), te.var("n")
    assert str(te.ceildiv(i, 4)) == "(i + 4 - 1) // 4" and str(te.ceildiv(i, n)) == "-(-i // n)"
    func = te.create_prim_func(
        [te.compute((13,), lambda i: te.ceildiv(i - 6, -4) * 100 + te.ceildiv(i - 6, 0 * i - 3), name="C")]
    )
    found = same(func)[0].tolist()
    assert found == [-((6 - i) // -4) * 100 - ((6 - i) // -3) for i in range(13)]
    with pytest.raises(TypeError, match=r"^ceildiv needs integer arguments, got float32; use te.ceil\(a / b\)$"):
        te.ceildiv(te.placeholder((1,))[0], 2)


# --- floats -------------------------------------------------------------------------------------------------------------

INF = float("inf")
FLOATS = (
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.1,
    0.7,
    1.5,
    -2.0,
    3.0,
    5.5,
    -7.5,
    1e-3,
    12345.0,
    INF,
    -INF,
    float("nan"),
    2.0**31,
    1e20,
    -1e20,
    1e-30,
    1e38,
)


def float_pairs(dtype: str) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
    """Two arrays of all pairs of some floats, as kernels take them, and what numpy makes of them; of halves in float32."""
    with np.errstate(all="ignore"):
        x, y = (c.ravel() for c in np.meshgrid(widened(from_float(np.array(FLOATS), dtype), dtype), FLOATS))
        x, y = (from_float(v, dtype) for v in (x, y))
        a, b = (widened(v, dtype).astype(dtypes.computed(dtype)) for v in (x, y))
        found = {"//": a // b, "%": a % b, "fmod": np.fmod(a, b)}
        return x, y, {op: from_float(v, dtype) for op, v in found.items()}


def division_of_floats(dtype: str, n: int) -> PrimFunc:
    return program(dtype, n, [operator.floordiv, operator.mod, te.fmod])


def need_equal(found: np.ndarray, expected: np.ndarray, dtype: str, what: str) -> None:
    """Assert that floats are the same, zeros of the same sign."""
    x, y = widened(found, dtype), widened(expected, dtype)
    wrong = ~((x == y) & (np.signbit(x) == np.signbit(y)) | np.isnan(x) & np.isnan(y))
    assert not wrong.any(), f"{what}: {x[wrong][:5]} found, {y[wrong][:5]} expected"


@one_in(2)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_floor_division_of_floats_is_that_of_numpy(dtype):
    """2147483648.0 % 3.0 is 2, 5.5 % inf is 5.5, 1 % 0.1 is next to 0.1: whatever the quotient, the remainder is exact."""
    x, y, expected = float_pairs(dtype)
    func = division_of_floats(dtype, len(x))
    runs = {f"interpreter, fast={fast}": partial(run, func, fast=fast) for fast in (False, True)}
    for target in (ONE, f"{ONE} -mcpu x86-64"):  # the latter has no fused multiply-add
        runs |= {f"{how} on {target}": tir.build(scheduled(func, how), target) for how in ("scalar", "strips")}
    for name, call in runs.items():
        outputs = [np.zeros_like(x) for _ in expected]
        call(x, y, *outputs)
        for (op, wanted), found in zip(expected.items(), outputs, strict=True):
            need_equal(found, wanted, dtype, f"{op} in {name}")


def converted(value: float, dtype: str) -> int | bool:
    """A number as a dtype that is no float: toward 0, to one end of the type where it lies beyond, 0 for NaN; integers wrap."""
    if dtype == "bool":
        return value != 0
    if isinstance(value, int):
        return wrapped(value, dtype)
    low, high = map(int, dtypes.limits(dtype))
    return 0 if value != value else low if value <= low else high if value >= high else int(value)


@one_in(2)
@pytest.mark.parametrize("dtype", [*INTEGERS, "float16", "bfloat16", "float32", "float64"])
def test_conversions(dtype):
    if dtypes.is_float(dtype):
        numbers = [
            *FLOATS,
            *(sign * (2.0**n + d) for n in (7, 8, 15, 16, 31, 32, 53, 63, 64) for d in (-0.5, 0.0, 0.75) for sign in (1, -1)),
        ]
        with np.errstate(over="ignore"):
            x = from_float(np.array(numbers), dtype)
    else:
        x = np.array(ends(dtype), dtype)
    values = [v if dtypes.is_float(dtype) else int(v) for v in widened(x, dtype).tolist()]

    def need(func: PrimFunc, runs: dict[str, Callable]) -> None:
        for name, call in runs.items():
            outputs = [np.zeros(len(x), b.dtype) for b in func.buffers[2:]]
            call(x, x.copy(), *outputs)
            for found in outputs:
                assert found.tolist() == [converted(v, found.dtype.name) for v in values], (name, found.dtype)

    targets = [d for d in (*INTEGERS, "bool") if d != dtype]
    formulas: list[Callable] = [lambda a, b, d=d: a.astype(d) for d in targets]
    if dtypes.is_float(dtype):  # as networks are quantised
        formulas.append(lambda a, b: te.minimum(te.maximum(a, -128.0), 127.0).astype("int8"))
    func = program(dtype, len(x), formulas)
    need(func, {"interpreter": partial(run, func)} | {how: tir.build(scheduled(func, how), ONE) for how in ("scalar", "vector")})
    if dtype == "float32":  # these take long to compile
        func = program(dtype, len(x), [lambda a, b: a.astype("int8"), lambda a, b: a.astype("uint64")])
        need(func, {"numba": partial(run, func, fast=True)})
        target = tir.Target("cuda")
        need(
            func,
            dict(zip(["cuda"], emulate(lower_cuda(tir.default_schedule(func, target).func, target)), strict=True))
            if compiler
            else {},
        )


@pytest.mark.skipif(compiler is None, reason="there is no g++ to run emitted CUDA C with")
def test_arithmetic_of_cuda():
    """Integers near the ends of their types, and division of floats."""
    integer = {dtype: [(a, b) for a in ends(dtype) for b in ends(dtype) if b] for dtype in ("int8", "int64")}
    table = {op: OPERATIONS[op] for op in ("*", "neg", "abs")} | DIVISIONS
    formulas = [formula for formula, _ in table.values()]
    funcs = [program(dtype, len(pairs), formulas) for dtype, pairs in integer.items()]
    floats = {dtype: float_pairs(dtype) for dtype in ("float16", "float64")}
    funcs += [division_of_floats(dtype, len(x)) for dtype, (x, _, _) in floats.items()]
    target = tir.Target("cuda")
    kernels = dict(
        zip((*integer, *floats), emulate(*(lower_cuda(tir.default_schedule(f, target).func, target) for f in funcs)), strict=True)
    )
    for dtype, pairs in integer.items():
        args = [np.array(column, dtype) for column in zip(*pairs, strict=True)]
        outputs = [np.zeros(len(pairs), dtype) for _ in table]
        kernels[dtype](*args, *outputs)
        for (op, (_, meaning)), found in zip(table.items(), outputs, strict=True):
            assert found.tolist() == [wrapped(meaning(x, y), dtype) for x, y in pairs], (dtype, op)
    for dtype, (x, y, expected) in floats.items():
        outputs = [np.zeros_like(x) for _ in expected]
        kernels[dtype](x, y, *outputs)
        for (op, wanted), found in zip(expected.items(), outputs, strict=True):
            need_equal(found, wanted, dtype, op)


# --- conditions ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", HOW)
def test_conditions_in_arithmetic_are_conditions(how):
    """As in numpy: a sum is `or`, a product `and`; beside an integer, a condition is 0 or 1."""
    table: dict[Callable, Callable] = {
        lambda a, b: a + b: operator.or_, lambda a, b: a * b: operator.and_, te.maximum: operator.or_, te.minimum: operator.and_,
        lambda a, b: a & b: operator.and_, lambda a, b: a ^ b: operator.xor, lambda a, b: a < b: lambda a, b: not a and b,
        lambda a, b: a + 1: lambda a, b: a + 1, lambda a, b: te.const(3, "int8") * b: lambda a, b: 3 * b,
        lambda a, b: (a + b).astype("int32") + b: lambda a, b: (a | b) + b, lambda a, b: te.select(a + b, 7, 8): lambda a, b: 7 if a | b else 8,
    }  # fmt: skip
    pairs = [(n // 2 % 2, n % 2) for n in range(36)]
    check(program("bool", len(pairs), [*table]), pairs, "bool", [*table.values()], how)


def test_arithmetic_that_conditions_have_not():
    a, b = (te.placeholder((3,), "bool", name=name)[0] for name in "AB")
    for op in ("-", "//", "%"):
        with pytest.raises(TypeError, match=rf"^`{op}` does not take bool, in `A\[0\] {op} B\[0\]`; use .astype\('int32'\)$"):
            eval(f"a {op} b", {"a": a, "b": b})
    with pytest.raises(TypeError, match=r"^`-` does not take bool, in `-A\[0\]`; use te.logical_not or .astype\('int32'\)$"):
        operator.neg(a)
    for refused in (
        lambda: a / b,
        lambda: a << b,
        lambda: te.abs(a),
        lambda: te.ceildiv(a, b),
        lambda: te.sum(a, axis=te.reduce_axis((0, 3))),
    ):
        with pytest.raises(TypeError, match="bool"):
            refused()


@pytest.mark.parametrize("reducer", ["max", "min", "user"])
@pytest.mark.parametrize("how", ["default", "combine_lanes", "rfactor"])
def test_reductions_of_conditions(reducer, how):
    made = te.comm_reducer(lambda x, y: x + y, lambda dtype: te.const(0, dtype)) if reducer == "user" else getattr(te, reducer)
    X, k = te.placeholder((7, 45), "bool", name="X"), te.reduce_axis((0, 45), name="k")
    func = te.create_prim_func([X, te.compute((7,), lambda i: made(X[i, k], axis=k), name="Y")])
    s = tir.default_schedule(func, ONE) if how == "default" else tir.Schedule(func)
    if how == "rfactor":
        _, inner = s.split("k", [None, 8])
        s.rfactor(inner, 1)
    elif how == "combine_lanes":
        s.decompose_reduction("Y", "k")
        _, inner = s.split("k", [None, 16])
        s.annotate(inner, "combine_lanes", True)
    x = np.zeros((7, 45), bool)
    x[1, 44] = x[2] = x[3, 0] = True
    x[4, 1:] = True
    found = same(s.func, [x, np.zeros(7, bool)], reference=func)
    assert found[1].tolist() == (x.all(axis=1) if reducer == "min" else x.any(axis=1)).tolist()
