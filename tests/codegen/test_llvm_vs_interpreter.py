"""Every dtype and operation, compiled and interpreted: the numbers are the same."""

import numpy as np
import pytest

import tir
from schedule import Schedule
from tests.arrays import integers, narrowed
from tests.codegen import fuzz
from tests.codegen.accuracy import BOUNDS
from tests.codegen.harness import ONE, same
from tests.programs import matmul
from tests.sweeps import one_in
from tir import dtypes, te
from tir.intrinsics import INTRINSICS
from tir.ir import Call, PrimFunc, cast

FLOATS = ("float16", "bfloat16", "float32", "float64")
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
N = 37  # two vectors of 16 lanes and a tail, for 32-bit types


def scheduled(func: PrimFunc, how: str) -> PrimFunc:
    """Every block's only loop left as it is, vectorised whole, or in strips, the strips in parallel."""
    s = Schedule(func)
    for name in s.get_child_blocks("root"):
        (loop,) = s.get_loops(name)
        match how:
            case "vector":
                s.vectorize(loop)
            case "strips":
                outer, inner = s.split(loop, [None, 7])
                s.vectorize(inner)
                s.parallel(outer)
    return s.func


HOW = ("scalar", "vector", "strips")


def elementwise(dtype: str, formulas, n: int = N) -> PrimFunc:
    """The formulas of two inputs of one dtype, each an output."""
    a, b = te.placeholder((n,), dtype, name="A"), te.placeholder((n,), dtype, name="B")
    return te.create_prim_func([a, b, *te.compute((n,), lambda i: tuple(f(a[i], b[i]) for f in formulas), name="C")])


def wide_integers(dtype: str, seed: int, n: int = N) -> np.ndarray:
    """Integers of the whole range, its ends and small ones."""
    rng = np.random.default_rng(seed)
    low, high = dtypes.limits(dtype)
    some = rng.integers(low, high, n, dtype=dtype, endpoint=True)
    small = rng.integers(max(low, -9), 9, n).astype(dtype)
    result = np.where(rng.random(n) < 0.5, some, small)
    result[:3] = low, high, 1
    return result


@one_in(3)
@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("dtype", INTEGERS)
def test_integer_arithmetic_wraps(dtype, how):
    formulas = [
        lambda x, y: x + y,
        lambda x, y: x - y,
        lambda x, y: x * y,
        lambda x, y: te.maximum(x, y),
        lambda x, y: te.minimum(x, y),
        lambda x, y: te.abs(x) + (x - y) * 3,
        lambda x, y: (x + y) // te.maximum(y, te.const(1, dtype)),
        lambda x, y: (x - y) % te.maximum(y, te.const(1, dtype)),
        lambda x, y: x // te.const(7, dtype) + x % te.const(7, dtype),
    ]
    if dtype.startswith("int"):
        formulas += [lambda x, y: -x, lambda x, y: x // te.minimum(y, te.const(-2, dtype)), lambda x, y: x % te.const(-5, dtype)]
    func = scheduled(elementwise(dtype, formulas), how)
    args = integers(func, 0)
    args[0], args[1] = wide_integers(dtype, 1), wide_integers(dtype, 2)
    same(func, args)


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("dtype", [d for d in INTEGERS if d.startswith("int")])
def test_the_least_number_by_minus_one_wraps(dtype, how):
    """A processor's own division ends the process there."""
    func = scheduled(elementwise(dtype, [lambda x, y: x // y, lambda x, y: x % y]), how)
    args = integers(func, 0)
    args[0], args[1] = wide_integers(dtype, 1), np.full(N, -1, dtype)
    expected = same(func, args)
    assert expected[2][0] == dtypes.limits(dtype)[0]


@one_in(3)
@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("dtype", FLOATS)
def test_float_arithmetic(dtype, how):
    """Bitwise equal on integers; what is not exact there (quotients) rounds once, in both."""
    formulas = [
        lambda x, y: x + y,
        lambda x, y: x - y,
        lambda x, y: x * y,
        lambda x, y: x / (y + 8),
        lambda x, y: te.maximum(x, y),
        lambda x, y: te.minimum(x, y),
        lambda x, y: -x,
        lambda x, y: te.abs(x),
        lambda x, y: x // (y + 8),
        lambda x, y: x % (y + 8),
        lambda x, y: x * y + 3,
        lambda x, y: x * y - y,
        lambda x, y: y - x * y,
        lambda x, y: te.floor(x / (y + 8)) + te.ceil(x / (y + 8)),
    ]
    func = scheduled(elementwise(dtype, formulas), how)
    same(func, integers(func, 0, low=-7, high=8))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_16_bit_floats_round_after_each_operation(dtype):
    n = 16
    func = scheduled(elementwise(dtype, [lambda x, y: x * y + x, lambda x, y: (x + y) / (x - y + 64)], n), "vector")
    rng = np.random.default_rng(0)
    x, y = (rng.uniform(-30, 30, n).astype(np.float32) for _ in range(2))
    args = integers(func, 0)
    args[0], args[1] = narrowed(x, dtype), narrowed(y, dtype)
    same(func, args)


@one_in(3)
@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS, "bool"])
def test_comparisons_and_logic(dtype, how):
    formulas = [
        lambda x, y: te.equal(x, y),
        lambda x, y: te.not_equal(x, y),
        lambda x, y: x < y,
        lambda x, y: x <= y,
        lambda x, y: x > y,
        lambda x, y: x >= y,
        lambda x, y: te.all(x < y, te.any(te.equal(x, y), te.logical_not(x < y)), x <= y),
        lambda x, y: te.select(te.any(x < y, te.equal(x, y)), x, y),
        lambda x, y: te.if_then_else(te.logical_not(x < y), x, y),
    ]
    if dtype == "bool":
        formulas += [lambda x, y: te.all(x, y), lambda x, y: te.any(x, te.logical_not(y)), lambda x, y: te.maximum(x, y)]
    func = scheduled(elementwise(dtype, formulas), how)
    args = integers(func, 3)
    if dtypes.is_int(dtype):
        args[0], args[1] = wide_integers(dtype, 1), wide_integers(dtype, 2)
        args[1][10:20] = args[0][10:20]
    same(func, args)


def test_comparisons_with_nan():
    formulas = [lambda x, y: te.equal(x, y), lambda x, y: te.not_equal(x, y), lambda x, y: x < y, lambda x, y: x >= y]
    for dtype in FLOATS:
        func = elementwise(dtype, formulas, 4)
        args = integers(func, 0)
        nan = narrowed(np.array([np.nan, 1.0, np.nan, 0.0]), dtype)
        args[0], args[1] = nan, narrowed(np.array([np.nan, np.nan, 1.0, -0.0]), dtype)
        same(func, args)


@one_in(2)
@pytest.mark.parametrize("how", ("scalar", "vector"))
@pytest.mark.parametrize("source", [*FLOATS, *INTEGERS, "bool"])
def test_casts(source, how):
    a = te.placeholder((N,), source, name="A")
    every = [d for d in dtypes.TABLE if d != source]
    func = scheduled(te.create_prim_func([a, *te.compute((N,), lambda i: tuple(cast(a[i], d) for d in every), name="C")]), how)
    args = integers(func, 0)
    rng = np.random.default_rng(4)
    if source == "bool":
        pass
    elif dtypes.is_int(source):
        args[0] = wide_integers(source, 5)
    else:  # within the range of every integer type: what is out of range is not specified
        args[0] = narrowed(rng.integers(0, 126, N) + rng.integers(0, 4, N) / 4, source)
        args[0][:2] = 0
    same(func, args)


@pytest.mark.parametrize("source", ["float32", "float64"])
@pytest.mark.parametrize("cpu", ["", "x86-64"], ids=["host", "baseline"])
def test_rounding_to_16_bits(source, cpu):
    """Ties, subnormals, overflow, infinities and NaN; float64 rounds once, not by way of float32."""
    info = [np.finfo(np.float16).smallest_subnormal, np.finfo(np.float16).tiny, 2.0**-133, 2.0**-126, 1.0, 65504.0, 3.3e38]
    values = [
        sign * x * (1 + k * 2.0**-12 + e * 2.0**-40) for x in info for k in range(-9, 10) for e in (-1, 0, 1) for sign in (1, -1)
    ]
    values += [0.0, -0.0, 65519.99, 65520.0, 1e9, np.inf, -np.inf, np.nan]
    with np.errstate(over="ignore"):
        data = np.array(values, source)
    n = len(data)
    a = te.placeholder((n,), source, name="A")
    down = te.compute((n,), lambda i: (cast(a[i], "float16"), cast(a[i], "bfloat16")), name="C")
    up = te.compute((n,), lambda i: (cast(down[0][i], source), cast(down[1][i], source)), name="D")
    func = scheduled(te.create_prim_func([a, *down, *up]), "vector")
    target = "llvm -num-cores 1" + (f" -mcpu {cpu}" if cpu else "")
    args = integers(func, 0)
    args[0] = data
    same(func, args, targets=[target], tolerance=lambda p, x: np.where(np.abs(x) <= 2.0**-126, 2.0**-126, 0))
    # Subnormal bfloat16 are left out above, for processors that flush them; float16 ones are normal numbers in float32.


def ulp(values: np.ndarray, dtype: str) -> np.ndarray:
    """The distance between neighbours of `dtype` around each value."""
    digits, smallest = {"float16": (10, -24), "bfloat16": (7, -133), "float32": (23, -149), "float64": (52, -1074)}[dtype]
    with np.errstate(all="ignore"):
        exponent = np.frexp(np.where(np.isfinite(values), values, 0))[1] - 1
    return np.ldexp(1.0, np.maximum(exponent - digits, smallest))


@one_in(4)
@pytest.mark.parametrize("op", [i.name for i in INTRINSICS.values() if "float" in i.kinds])
@pytest.mark.parametrize("dtype", FLOATS)
def test_intrinsics(op, dtype):
    """Within the bound of the library, and half a unit for the rounding of the reference."""
    a, b = te.placeholder((N,), dtype, name="A"), te.placeholder((N,), dtype, name="B")
    formula = te.compute((N,), lambda i: Call(op, (a[i], b[i])[: INTRINSICS[op].arity], dtype), name="C")
    rng = np.random.default_rng(6)
    low = {"log": 0.1, "sqrt": 0.1, "rsqrt": 0.1, "pow": 0.1, "acosh": 1.0, "asin": -1.0, "acos": -1.0, "atanh": -1.0}.get(
        op, -3.0
    )
    high = 1.0 if op in ("asin", "acos", "atanh") else 3.0
    for how in ("scalar", "vector"):
        func = scheduled(te.create_prim_func([a, b, formula]), how)
        args = integers(func, 0)
        args[0], args[1] = (narrowed(rng.uniform(low, high, N).astype(np.float32), dtype) for _ in range(2))
        wide = dtype if dtype in ("float32", "float64") else "float32"
        units = BOUNDS[op, wide] + 0.5 if wide == dtype else 1.0
        same(func, args, tolerance=lambda p, x: units * ulp(x, dtype))  # noqa: B023


@one_in(3)
@pytest.mark.parametrize("op", [i.name for i in INTRINSICS.values() if i.arity == 2 and "int" in i.kinds])
@pytest.mark.parametrize("dtype", [d for d in dtypes.TABLE if dtypes.is_int(d)])
def test_operations_on_bits(op, dtype):
    a, b = te.placeholder((N,), dtype, name="A"), te.placeholder((N,), dtype, name="B")
    formula = te.compute((N,), lambda i: te.intrinsic(op)(a[i], b[i]), name="C")
    rng, (low, high) = np.random.default_rng(6), dtypes.limits(dtype)
    for how in ("scalar", "vector"):
        func = scheduled(te.create_prim_func([a, b, formula]), how)
        args = integers(func, 0)
        args[0] = rng.integers(low, high, N, dtype=dtype, endpoint=True)
        args[1] = rng.integers(0, dtypes.bits(dtype), N).astype(dtype) if op in ("shl", "shr") else args[0][::-1].copy()
        same(func, args)


@one_in(2)
@pytest.mark.parametrize("dtype", [d for d in dtypes.TABLE if dtypes.is_int(d)])
def test_bits_are_counted(dtype):
    a = te.placeholder((N,), dtype, name="A")
    func = te.create_prim_func([a, te.compute((N,), lambda i: te.popcount(a[i]), name="B")])
    low, high = dtypes.limits(dtype)
    numbers = np.random.default_rng(8).integers(low, high, N, dtype=dtype, endpoint=True)
    numbers[:3] = low, high, 0
    bits = [f"{int(x) % 2 ** dtypes.bits(dtype):b}".count("1") for x in numbers]
    for fast in (False, True):
        found = np.empty(N, dtype)
        tir.run(func, numbers, found, fast=fast)
        assert found.tolist() == bits
    for how in ("scalar", "vector"):
        same(scheduled(func, how), [numbers, found])


@one_in(3)
@pytest.mark.parametrize("index", ["int32", "int64", "uint8", "int8", "uint16"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int8", "bool"])
def test_gather(dtype, index):
    rows, n = 150 if index != "int8" else 100, 13
    table = te.placeholder((rows, n), dtype, name="table")
    where = te.placeholder((N,), index, name="where")
    by_row = te.compute((N, n), lambda i, j: table[where[i], j], name="by_row")
    by_lane = te.compute((n, N), lambda j, i: table[where[i], j], name="by_lane")
    s = Schedule(te.create_prim_func([table, where, by_row, by_lane]))
    for name in ("by_row", "by_lane"):
        s.vectorize(s.get_loops(name)[1])
    args = integers(s.func, 0)
    args[1] = np.random.default_rng(7).integers(0, rows, N).astype(index)
    args[1][0] = rows - 1  # beyond 127: an unsigned byte is not a negative index
    same(s.func, args)


def test_gather_with_arithmetic_on_a_narrow_index():
    """The sum of bytes wraps before it is an index."""
    table = te.placeholder((256,), name="table")
    where = te.placeholder((13,), "uint8", name="where")
    c = te.compute((13,), lambda i: table[where[i] + te.const(100, "uint8")], name="C")
    s = Schedule(te.create_prim_func([table, where, c]))
    s.vectorize("i")
    args = integers(s.func, 0, low=-99, high=99)
    args[1] = np.arange(130, 143, dtype=np.uint8)[::1] + np.uint8(20)
    same(s.func, args)


@pytest.mark.parametrize("how", ["serial", "rows parallel", "lanes over rows"])
def test_argmax_is_two_outputs_of_one_reduction(how):
    a = te.placeholder((7, 13), name="A")
    k = te.reduce_axis((0, 13), name="k")

    def better(x, y):
        wins = te.any(x[1] > y[1], te.all(te.equal(x[1], y[1]), x[0] < y[0]))
        return te.select(wins, x[0], y[0]), te.select(wins, x[1], y[1])

    argmax = te.comm_reducer(better, lambda i, v: (te.const(2**30, i), te.const(float("-inf"), v)), name="argmax")
    out = te.compute((7,), lambda i: argmax((k.value, a[i, k]), axis=k), name="C")
    s = Schedule(te.create_prim_func([a, *out]))
    if how == "rows parallel":
        s.parallel("i")
    elif how == "lanes over rows":
        s.reorder("k", "i")
        s.vectorize("i")
    args = integers(s.func, 1)
    assert (same(s.func, args)[1] == np.argmax(args[0], axis=1)).all()


@one_in(2)
@pytest.mark.parametrize("reducer", ["sum", "max", "min", "prod"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int8", "uint16", "int64"])
def test_reducers_with_where(dtype, reducer):
    a = te.placeholder((13, 7), dtype, name="A")
    k = te.reduce_axis((0, 13), name="k")
    c = te.compute((7,), lambda i: getattr(te, reducer)(a[k, i], axis=k, where=te.not_equal((k + i) % 3, 1)), name="C")
    func = te.create_prim_func([a, c])
    same(func, integers(func, 0, low=-2, high=3))
    s = Schedule(func)
    s.reorder("k", "i")
    s.vectorize("i")
    same(s.func, integers(func, 0, low=-2, high=3))


def test_a_reducer_of_ones_own_and_a_shifted_axis():
    a = te.placeholder((20,), name="A")
    k = te.reduce_axis((3, 20), name="k")
    last = te.comm_reducer(lambda x, y: te.maximum(x * 1.0, y) + 0.0, lambda dtype: te.const(-100.0, dtype), name="last")
    func = te.create_prim_func([a, te.compute((1,), lambda i: last(a[k - 3] + a[k], axis=k), name="C")])
    same(func)


def test_rank_0():
    a, b = te.placeholder((), name="A"), te.placeholder((), "int8", name="B")
    k = te.reduce_axis((0, 13), name="k")
    total = te.compute((), lambda: te.sum(a() * k.value.astype("float32"), axis=k), name="C")
    func = te.create_prim_func([a, b, total, te.compute((), lambda: total() + b().astype("float32"), name="D")])
    same(func)


@one_in(3)
@pytest.mark.parametrize("extent", [1, 7, 13, 109, 48, 1000])
@pytest.mark.parametrize("lanes", [None, 1, 3, 8, 13, 16, 48])
def test_vector_lengths(extent, lanes):
    a = te.placeholder((extent,), name="A")
    func = te.create_prim_func([a, te.compute((extent,), lambda i: a[i] * 2 + te.if_then_else(i > 0, a[i - 1], 5.0), name="C")])
    s = Schedule(func)
    if lanes is None:
        s.vectorize("i")
    else:
        outer, inner = s.split("i", [None, lanes])
        s.vectorize(inner)
        if extent > 100:
            s.parallel(outer)
    same(s.func, reference=func)


@pytest.mark.parametrize("order", [("i", "j", "k"), ("k", "i", "j"), ("j", "i", "k")])
def test_serial_loops_inside_a_vector(order):
    """Lanes go together through the loops inside, a reduction among them; the guard of the last strip is a mask."""
    func = matmul()
    s = Schedule(func)
    s.reorder(*order)
    _, inner = s.split("j", [None, 4])
    s.vectorize(inner)
    same(s.func, reference=func)


def test_lanes_that_run_different_numbers_of_iterations():
    """A guard on lane and loop together is a mask in each iteration."""
    a = te.placeholder((31, 17), name="A")
    func = te.create_prim_func([a, te.compute((31, 17), lambda i, j: a[30 - i, j] + 1.0, name="C")])
    s = Schedule(func)
    outer, inner = s.split("i", [None, 3])
    s.reorder("j", outer, inner)
    s.vectorize(outer)
    same(s.func, reference=func)


def convolution(x, kernel, h: int, w: int, oh: int, ow: int, stride: int):
    """A 3 x 3 window over an image with a border of zeros."""
    r, q = te.reduce_axis((0, 3), name="r"), te.reduce_axis((0, 3), name="q")

    def padded(i, j):
        inside = te.all(i >= 1, i < h + 1, j >= 1, j < w + 1)
        return te.if_then_else(inside, x[i - 1, j - 1], 0.0)

    return te.compute((oh, ow), lambda i, j: te.sum(padded(i * stride + r, j * stride + q) * kernel[r, q], axis=[r, q]), name="C")


@one_in(4)
@pytest.mark.parametrize("stride", [-4, -1, 2, 3, 4, 5])
@pytest.mark.parametrize("n", [13, 16, 48])
@pytest.mark.parametrize("dtype", ["float32", "int8", "bfloat16", "float64"])
def test_strided_loads(stride, n, dtype):
    """Picked from rows of which every element is there: the first and the last one read are the ends of the array."""
    length = abs(stride) * (n - 1) + 1
    a = te.placeholder((length,), dtype, name="A")
    start = 0 if stride > 0 else length - 1
    plain = te.compute((n,), lambda i: a[i * stride + start], name="C")
    inside = te.compute((n + 6,), lambda i: te.if_then_else(te.all(i >= 3, i < n + 3), a[(i - 3) * stride + start], 1), name="D")
    s = Schedule(te.create_prim_func([a, plain, inside]))
    s.vectorize("i")
    s.vectorize("i_1")
    for cpu in ("", " -mcpu haswell", " -mcpu x86-64"):
        same(s.func, targets=[ONE + cpu] * 2, fences=True)


def test_padding_as_a_mask():
    """Windows that reach beyond the image, in strips of lanes, with strides of 1 and 2."""
    h, w = 9, 21
    x = te.placeholder((h, w), name="X")
    kernel = te.placeholder((3, 3), name="K")
    for stride in (1, 2):
        oh, ow = (h - 1) // stride + 1, (w - 1) // stride + 1
        out = convolution(x, kernel, h, w, oh, ow, stride)
        func = te.create_prim_func([x, kernel, out])
        s = Schedule(func)
        s.reorder("i", "r", "q", "j")
        _, inner = s.split("j", [None, 8])
        s.vectorize(inner)
        s.parallel("i")
        same(s.func, reference=func, fences=True)


def test_a_uniform_place_that_no_lane_wants_is_not_read():
    """Far outside, and a division by what is there: no lane asks for it, so nothing happens."""
    n = 13
    a, x = te.placeholder((1,), "int32", name="A"), te.placeholder((n,), "int32", name="X")
    far = -100_000_000
    c = te.compute((7, n), lambda i, j: te.if_then_else(x[j] > 99, 5 // a[i + far] + a[i + far], x[j]), name="C")
    s = Schedule(te.create_prim_func([a, x, c]))
    s.vectorize("j")
    same(s.func, fences=True)


def test_predicates_on_reduce_axes():
    a = te.placeholder((7, 13), name="A")
    k = te.reduce_axis((0, 13), name="k")
    func = te.create_prim_func([a, te.compute((7,), lambda i: te.sum(a[i, k], axis=k), name="C")])
    for order in ((0, 1, 2), (1, 0, 2), (1, 2, 0)):
        s = Schedule(func)
        loops = ["i", *s.split("k", [None, 4])]
        s.reorder(*(loops[n] for n in order))
        same(s.func, reference=func)


def test_unrolled_and_fused_with_guards():
    m, n = 7, 13
    a = te.placeholder((m, n), name="A")
    func = te.create_prim_func([a, te.compute((m, n), lambda i, j: a[i, j] * 3.0 + a[m - 1 - i, n - 1 - j], name="C")])
    s = Schedule(func)
    fused = s.fuse("i", "j")
    outer, middle, inner = s.split(fused, [None, 3, 4])
    s.unroll(middle)
    s.vectorize(inner)
    s.parallel(outer)
    same(s.func, reference=func)


@one_in(4)
@pytest.mark.parametrize("start", range(0, 12, 3))
@pytest.mark.parametrize("cpu", ["x86-64", "haswell"])
def test_lesser_processors(cpu, start):
    """What lacks fused multiply-add, 16-bit floats, masks or gathers in hardware computes the same."""
    for seed in range(start, start + 3):
        fuzz.run(seed, cpu)


@one_in(4)
@pytest.mark.parametrize("start", range(0, 100, 5))
def test_random_programs(start):
    for seed in range(start, start + 5):
        fuzz.run(seed)
