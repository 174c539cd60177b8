"""What tensor expressions mean: each is turned into a function, verified, run in the interpreter and compared with numpy."""

from __future__ import annotations

import numpy as np
import pytest

from schedule import Schedule, ScheduleError
from tests.codegen.harness import same
from tests.programs import matmul
from tir import dtypes, te
from tir.interpreter import run
from tir.ir import Axis, PrimFunc
from tir.traverse import blocks, loops
from tir.verify import check

DTYPES = ("float16", "bfloat16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "bool")
SHAPES = ((7, 13, 109), (1, 1, 1), (13, 1, 7), (1, 109, 1))


def result(func: PrimFunc, *inputs: np.ndarray, seed: int = 0) -> list[np.ndarray]:
    """The outputs of a verified function, the parameters after the inputs; they start out as ones."""
    check(func)
    outputs = [np.ones([d.value for d in b.shape], dtypes.storage(b.dtype)) for b in func.buffers[len(inputs) :]]
    run(func, *inputs, *outputs, seed=seed)
    return outputs


def integers(shape, dtype: str, seed: int = 0) -> np.ndarray:
    """Small integers, exact in every dtype."""
    values = np.random.default_rng(seed).integers(0 if dtype in ("uint8", "bool") else -3, 2 if dtype == "bool" else 4, shape)
    if dtype == "bfloat16":
        return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    return values.astype(dtype)


def plain(array: np.ndarray, dtype: str) -> np.ndarray:
    return (array.astype(np.uint32) << 16).view(np.float32) if dtype == "bfloat16" else array


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", DTYPES[:-1])
def test_matmul_in_every_dtype(shape, dtype):
    n, m, r = (min(d, 13) for d in shape) if dtype != "float32" else shape
    a, b = integers((n, r), dtype), integers((r, m), dtype, 1)
    (c,) = result(matmul(n, r, m, dtype), a, b)
    expected = plain(a, dtype).astype(np.int64) @ plain(b, dtype).astype(np.int64)
    np.testing.assert_array_equal(plain(c, dtype), expected.astype(plain(c, dtype).dtype))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [1, 7, 109])
def test_max_and_min(dtype, n):
    A = te.placeholder((n, 13), dtype, name="A")
    k, q = te.reduce_axis((0, 13), name="k"), te.reduce_axis((0, 13), name="q")
    high = te.compute((n,), lambda i: te.max(A[i, k], axis=k), name="high")
    low = te.compute((n,), lambda i: te.min(A[i, q], axis=q), name="low")
    a = integers((n, 13), dtype)
    x, y = result(te.create_prim_func([A, high, low]), a)
    np.testing.assert_array_equal(plain(x, dtype), plain(a, dtype).max(1))
    np.testing.assert_array_equal(plain(y, dtype), plain(a, dtype).min(1))


def test_prod_over_two_axes_of_which_one_starts_elsewhere():
    A = te.placeholder((7, 13, 5), "int64", name="A")
    k, q = te.reduce_axis((2, 11), name="k"), te.reduce_axis((0, 5), name="q")
    B = te.compute((7,), lambda i: te.prod(A[i, k, q], axis=[k, q]), name="B")
    a = np.random.default_rng(0).choice([-2, -1, 1, 3], (7, 13, 5))
    (b,) = result(te.create_prim_func([A, B]), a)
    np.testing.assert_array_equal(b, a[:, 2:11].reshape(7, -1).prod(1))  # wraps alike


def test_axes_have_the_dtype_of_their_sizes():
    n = te.var("n", "int64")
    A = te.placeholder((n, 13), name="A")
    k = te.reduce_axis((0, n), name="k")
    func = te.create_prim_func([A, te.compute((13,), lambda j: te.sum(A[k, j], axis=k), name="B")])
    assert "Cast" not in func.script() and [x.var.dtype for x in loops(func)] == ["int32", "int64"]
    a = np.arange(7 * 13, dtype="float32").reshape(7, 13)
    b = np.empty(13, "float32")
    run(func, a, b, 7)
    np.testing.assert_array_equal(b, a.sum(0))


def test_rank_0():
    A = te.placeholder((109,), name="A")
    k = te.reduce_axis((0, 109), name="k")
    total = te.compute((), lambda: te.sum(A[k], axis=k), name="total")
    mean = te.compute((), lambda: total / 109.0, name="mean")
    centred = te.compute((109,), lambda i: A[i] - mean[()], name="centred")
    a = integers((109,), "float32")
    m, c = result(te.create_prim_func([A, mean, centred]), a)
    assert m == a.sum() / np.float32(109)
    np.testing.assert_array_equal(c, a - m)


def test_rank_0_input_and_output():
    x = te.placeholder((), name="x")
    y = te.compute((), lambda: x + 1.0, name="y")
    (out,) = result(te.create_prim_func([x, y]), np.array(2, np.float32))
    assert out == 3


def test_several_outputs():
    A, B = te.placeholder((7, 13), name="A"), te.placeholder((7, 13), name="B")
    plus, minus = te.compute((7, 13), lambda i, j: (A[i, j] + B[i, j], A[i, j] - B[i, j]), name="both")
    a, b = integers((7, 13), "float32"), integers((7, 13), "float32", 1)
    p, m = result(te.create_prim_func([A, B, plus, minus]), a, b)
    np.testing.assert_array_equal(p, a + b)
    np.testing.assert_array_equal(m, a - b)


def test_several_outputs_of_different_dtypes_one_of_them_temporary():
    A = te.placeholder((7,), name="A")
    whole, half = te.compute((7,), lambda i: (A[i].astype("int32"), A[i] * 0.5), name="parts")
    C = te.compute((7,), lambda i: whole[i].astype("float32") + half[i], name="C")
    a = np.linspace(-3, 3, 7, dtype=np.float32)
    (c,) = result(te.create_prim_func([A, C]), a)
    np.testing.assert_array_equal(c, np.trunc(a) + a * np.float32(0.5))


@pytest.mark.parametrize("name", ["argmax", "argmin"])
@pytest.mark.parametrize(("shape", "dtype"), [((7, 109), "float32"), ((1, 1), "int8"), ((13, 1), "float64"), ((1, 13), "uint8")])
def test_argmax_and_argmin(name, shape, dtype):
    n, m = shape
    A = te.placeholder((n, m), dtype, name="A")
    k = te.reduce_axis((0, m), name="k")
    where, value = te.compute((n,), lambda i: getattr(te, name)((k, A[i, k]), axis=k), name="best")
    func = te.create_prim_func([A, where, value])
    a = integers((n, m), dtype)  # with many ties: the first counts
    w, v = result(func, a)
    np.testing.assert_array_equal(w, getattr(a, name)(1))
    np.testing.assert_array_equal(v, getattr(a, name[3:])(1))
    assert w.dtype == np.int32 and v.dtype == dtype


@pytest.mark.parametrize(
    ("left", "right"),
    [((7, 13), (13, 5)), ((13,), (13, 5)), ((7, 13), (13,)), ((13,), (13,)), ((3, 7, 13), (13, 5)), ((3, 1, 7, 2), (5, 2, 1)),
     ((1, 7, 13), (3, 13, 5)), ((2, 1, 3), (2, 3, 1)), ((1, 1), (1, 1))],
)  # fmt: skip
def test_products_are_those_of_numpy(left, right):
    A, B = te.placeholder(left, "int64", name="A"), te.placeholder(right, "int64", name="B")
    a, b = integers(left, "int64"), integers(right, "int64", 1)
    C = A @ B
    assert C.shape == (a @ b).shape
    np.testing.assert_array_equal(result(te.create_prim_func([A, B, C]), a, b)[0], a @ b)


@pytest.mark.parametrize("shape", [(), (7,), (7, 13), (2, 3, 5)])
def test_transposed(shape):
    A = te.placeholder(shape, name="A")
    a = integers(shape, "float32")
    np.testing.assert_array_equal(result(te.create_prim_func([A, A.T]), a)[0], a.T)


def test_a_product_of_symbolic_sizes():
    n, m = te.var("n"), te.var("m")
    A, B = te.placeholder((n, m), name="A"), te.placeholder((7, m), name="B")
    func = te.create_prim_func([A, B, A @ B.T])
    a, b, c = integers((5, 13), "float32"), integers((7, 13), "float32", 1), np.empty((5, 7), "float32")
    run(func, a, b, c, 5, 13)
    np.testing.assert_array_equal(c, a @ b.T)
    with pytest.raises(ValueError, match="the last dimension"):
        A @ te.placeholder((n, m), name="C")


def test_reductions_inside_a_formula_have_blocks_of_their_own():
    """Twice the same one is one block; of pairs, each output; a tuple of other reductions, too."""
    X = te.placeholder((7, 13), name="X")
    Y = te.compute(
        (7,),
        lambda i: (
            te.sum(X[i, k], axis=k) * 3.0 + te.max(X[i, k], axis=k) - te.sum(X[i, k], axis=k),
            te.argmax((k, X[i, k]), axis=k)[0] * 2,
        ),
        name="Y",
    )
    func = te.create_prim_func([X, *Y])
    assert [b.name for b in blocks(func)] == ["Y_sum", "Y_max", "Y_argmax", "Y"]
    x = integers((7, 13), "float32")
    y, place = result(func, x)
    np.testing.assert_array_equal(y, x.sum(1) * 2 + x.max(1))
    np.testing.assert_array_equal(place, x.argmax(1) * 2)
    same(func)
    low, high = te.compute((7,), lambda i: (te.min(X[i, k], axis=k), te.max(X[i, k], axis=k)), name="ends")
    y, z = result(te.create_prim_func([X, low, high]), x)
    np.testing.assert_array_equal(y, x.min(1))
    np.testing.assert_array_equal(z, x.max(1))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_mean(dtype):
    """Of sums that are exact, so that only the division rounds; a half's sum may exceed the half."""
    X, n = te.placeholder((7, 16, 4), dtype, name="X"), te.reduce_axis((0, 16), name="n")
    p = te.reduce_axis((0, 4), name="p")
    mean = te.compute((7,), lambda i: te.mean(X[i, n, p], axis=[n, p]), name="mean")
    some = te.compute((7,), lambda i: te.mean(X[i, n, p], [n, p], where=X[i, n, p] > 0) + te.mean(X[i, 0, p], p), name="some")
    x = integers((7, 16, 4), dtype)
    numbers = plain(x, dtype).astype(np.float64)
    unit = dtypes.unit(dtype)
    for found, wanted in zip(
        result(te.create_prim_func([X, mean, some]), x),
        (numbers.mean((1, 2)), numbers.mean((1, 2), where=numbers > 0) + numbers[:, 0].mean(1)),
        strict=True,
    ):
        assert (abs(plain(found, dtype) - wanted) <= 4 * unit * abs(numbers).mean()).all()
    if dtype == "float16":
        assert result(te.create_prim_func([X, mean]), np.full((7, 16, 4), 60_000, dtype))[0][0] == np.float16(60_000)


def test_a_mean_over_a_symbolic_size_and_over_nothing():
    m = te.var("m")
    X, n = te.placeholder((7, m), name="X"), te.reduce_axis((0, m), name="n")
    func = te.create_prim_func([X, te.compute((7,), lambda i: te.mean(X[i, n], axis=n), name="Y")])
    for extent in (4, 0):
        x, y = integers((7, extent), "float32"), np.empty(7, "float32")
        run(func, x, y, extent)
        np.testing.assert_array_equal(y, x.sum(1) / 4 if extent else np.full(7, np.nan, "float32"))


def test_where_chooses_and_reads_nothing_else():
    X = te.placeholder((7,), name="X")
    func = te.create_prim_func([X, te.compute((9,), lambda i: te.where(te.all(i > 0, i < 8), X[i - 1], 3.0), name="Y")])
    x = integers((7,), "float32")
    np.testing.assert_array_equal(result(func, x)[0], np.pad(x, 1, constant_values=3))


def test_where_leaves_iterations_out():
    """The sum of the lower triangle; the part left out is not even read, though it is out of bounds."""
    A = te.placeholder((13, 13), name="A")
    k = te.reduce_axis((0, 20), name="k")
    B = te.compute((13,), lambda i: te.sum(A[i, k], axis=k, where=k <= i), name="B")
    a = integers((13, 13), "float32")
    (b,) = result(te.create_prim_func([A, B]), a)
    np.testing.assert_array_equal(b, np.tril(a).sum(1))


def test_where_on_data():
    A = te.placeholder((7, 13), name="A")
    k = te.reduce_axis((0, 13), name="k")
    B = te.compute((7,), lambda i: te.max(A[i, k], axis=k, where=A[i, k] < 2.0), name="B")
    a = integers((7, 13), "float32")
    (b,) = result(te.create_prim_func([A, B]), a)
    np.testing.assert_array_equal(b, np.where(a < 2, a, -np.inf).max(1))


@pytest.mark.parametrize("n", [1, 7, 109])
def test_padding(n):
    A = te.placeholder((n, 13), name="A")

    def pad(i, j):
        return te.if_then_else(te.all(i >= 2, i < n + 2, j >= 1, j < 14), A[i - 2, j - 1], 0.0)

    P = te.compute((n + 4, 15), pad, name="P")
    a = integers((n, 13), "float32")
    (p,) = result(te.create_prim_func([A, P]), a)
    np.testing.assert_array_equal(p, np.pad(a, ((2, 2), (1, 1))))


def test_padded_convolution():
    A, W = te.placeholder((13, 7, 3), name="A"), te.placeholder((3, 3, 3, 5), name="W")
    padded = te.compute(
        (15, 9, 3), lambda h, w, c: te.if_then_else(te.all(h >= 1, h < 14, w >= 1, w < 8), A[h - 1, w - 1, c], 0.0), name="padded"
    )
    p, q, r = te.reduce_axis((0, 3), name="p"), te.reduce_axis((0, 3), name="q"), te.reduce_axis((0, 3), name="r")
    out = te.compute(
        (7, 4, 5), lambda h, w, f: te.sum(padded[2 * h + p, 2 * w + q, r] * W[p, q, r, f], axis=[p, q, r]), name="out"
    )
    a, w = integers((13, 7, 3), "float32"), integers((3, 3, 3, 5), "float32", 1)
    (o,) = result(te.create_prim_func([A, W, out]), a, w)
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(a, ((1, 1), (1, 1), (0, 0))), (3, 3), (0, 1))[::2, ::2]
    np.testing.assert_array_equal(o, np.einsum("hwrpq,pqrf->hwf", windows, w))


def test_select_and_comparisons():
    A, B = te.placeholder((109,), "int32", name="A"), te.placeholder((109,), "int32", name="B")
    comparisons = {
        "less": lambda a, b: a < b,
        "less_equal": lambda a, b: a <= b,
        "greater": lambda a, b: a > b,
        "greater_equal": lambda a, b: a >= b,
        "equal": te.equal,
        "not_equal": te.not_equal,
    }
    a, b = integers((109,), "int32"), integers((109,), "int32", 1)

    def chosen(compare):
        return lambda i: te.select(compare(A[i], B[i]), A[i] * 10, B[i])

    for name, compare in comparisons.items():
        C = te.compute((109,), chosen(compare), name="C")
        (c,) = result(te.create_prim_func([A, B, C]), a, b)
        np.testing.assert_array_equal(c, np.where(getattr(np, name)(a, b), a * 10, b))


@pytest.mark.parametrize("target", DTYPES)
@pytest.mark.parametrize("origin", DTYPES)
def test_cast_between_all_dtypes(origin, target):
    A = te.placeholder((13,), origin, name="A")
    B = te.compute((13,), lambda i: A[i].astype(target), name="B")
    a = integers((13,), origin)
    (b,) = result(te.create_prim_func([A, B]), a)
    numbers = plain(a, origin)
    if numbers.dtype.kind == "f" and np.dtype("float32" if target == "bfloat16" else target).kind in "iu":
        numbers = np.clip(numbers, np.iinfo(target).min, np.iinfo(target).max)  # what does not fit saturates
    expected = numbers.astype("float32" if target == "bfloat16" else target)
    np.testing.assert_array_equal(plain(b, target), expected)


def test_values_of_the_axes():
    B = te.compute((7, 13), lambda i, j: (i * 13 + j) // 4 * 4 + (i * 13 + j) % 4 - (0 - i) // 3, name="B")
    (b,) = result(te.create_prim_func([B]))
    i, j = np.indices((7, 13))
    np.testing.assert_array_equal(b, i * 13 + j - (-i) // 3)


def test_a_tensor_that_is_output_and_read_again():
    A = te.placeholder((7, 13), name="A")
    B = te.compute((7, 13), lambda i, j: A[i, j] + 1.0, name="B")
    C = te.compute((13, 7), lambda i, j: B[j, i] * B[0, 0], name="C")
    a = integers((7, 13), "float32")
    b, c = result(te.create_prim_func([A, B, C]), a)
    np.testing.assert_array_equal(b, a + 1)
    np.testing.assert_array_equal(c, b.T * b[0, 0])


def test_softmax():
    A = te.placeholder((7, 109), "float64", name="A")
    k, q = te.reduce_axis((0, 109), name="k"), te.reduce_axis((0, 109), name="q")
    high = te.compute((7,), lambda i: te.max(A[i, k], axis=k), name="high")
    e = te.compute((7, 109), lambda i, j: te.exp(A[i, j] - high[i]), name="e")
    total = te.compute((7,), lambda i: te.sum(e[i, q], axis=q), name="total")
    out = te.compute((7, 109), lambda i, j: e[i, j] / total[i], name="out")
    a = np.random.default_rng(0).standard_normal((7, 109))
    (o,) = result(te.create_prim_func([A, out]), a)
    x = np.exp(a - a.max(1, keepdims=True))
    # n roundings in the sum and a few elsewhere, each of half an eps
    np.testing.assert_allclose(o, x / x.sum(1, keepdims=True), rtol=(109 + 8) * np.finfo(np.float64).eps / 2)


def test_blocks_are_named_like_tensors_and_axes_are_truthful():
    A = te.placeholder((7, 13), name="A")
    k = te.reduce_axis((0, 13), name="k")
    B = te.compute((7,), lambda i: te.sum(A[i, k], axis=k), name="B")
    func = te.create_prim_func([A, B])
    (block,) = blocks(func)
    assert (block.name, [(it.var.name, it.axis) for it in block.iters]) == ("B", [("v_i", Axis.SPATIAL), ("v_k", Axis.REDUCE)])


def test_sizes_that_are_not_listed_are_the_last_parameters():
    n = te.var("n")
    A = te.placeholder((n, 7), name="A")
    B = te.compute((n, 7), lambda i, j, factor=3.0: A[i, j] * factor, name="B")
    func = te.create_prim_func([A, B])
    assert [p.name for p in func.params] == ["A", "B", "n"]
    a = np.arange(14, dtype="float32").reshape(2, 7)
    b = np.zeros_like(a)
    run(func, a, b, 2)
    np.testing.assert_array_equal(b, 3 * a)


def test_names_that_collide_are_told_apart():
    """Tensors, axes and inputs called alike, twice."""
    i = te.placeholder((7,), name="i")
    v_i = te.compute((7,), lambda i_: i[i_] + 1.0, name="v_i")
    j = te.compute((7,), lambda v_i_: v_i[v_i_] * 2.0, name="j")
    again = te.compute((7,), lambda j_: j[j_] + i[j_], name="j")
    a = integers((7,), "float32")
    (x,) = result(te.create_prim_func([i, again]), a)
    np.testing.assert_array_equal(x, (a + 1) * 2 + a)


def test_a_block_called_like_its_axis():
    A = te.placeholder((7,), name="A")
    B = te.compute((7,), lambda B: A[B] + 1.0, name="B")
    a = integers((7,), "float32")
    (b,) = result(te.create_prim_func([A, B]), a)
    np.testing.assert_array_equal(b, a + 1)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("shape", [(7, 13), (1, 5), (109, 1)])
def test_scan(shape, axis):
    """Running products, modulo a number: they depend on the order, along the axis alone."""
    A = te.placeholder(shape, "int32", name="A")

    def formula(y, i, j):
        before = y[i - 1, j] if axis == 0 else y[i, j - 1]
        return (te.if_then_else((i, j)[axis] >= 1, before, 1) * 3 + A[i, j]) % 101

    Y = te.scan(shape, formula, axis, "int32", name="Y")
    func = te.create_prim_func([A, Y, te.compute(shape, lambda i, j: Y[i, j] + 1, name="Z")])
    assert [it.axis for it in blocks(func)[0].iters] == [Axis.OPAQUE if n == axis else Axis.SPATIAL for n in range(2)]
    a = integers(shape, "int32")
    y, z = result(func, a)
    for n, row in enumerate(np.moveaxis(a, axis, 0)):
        row = (row + 3 * (wanted if n else 1)) % 101
        wanted = row
        np.testing.assert_array_equal(np.moveaxis(y, axis, 0)[n], wanted)
    np.testing.assert_array_equal(z, y + 1)
    same(func)


@pytest.mark.parametrize("add", [False, True])
def test_scatter(add):
    """Rows at places that recur, and some that lie outside; the last one stays, or all are added."""
    X, I, U = te.placeholder((7, 13), name="X"), te.placeholder((9,), "int64", name="I"), te.placeholder((9, 13), name="U")

    def formula(y, k, j):
        inside = te.all(I[k] >= te.const(0, "int64"), I[k] < te.const(7, "int64"))
        return (I[k], j), y[I[k], j] + U[k, j] if add else U[k, j], inside

    Y = te.scatter(X, (9, 13), formula, name="Y")
    func = te.create_prim_func([X, I, U, te.compute((7, 13), lambda i, j: Y[i, j] * 2.0, name="Z")])
    copy, put, _ = blocks(func)
    assert (copy.name, put.name) == ("Y_copy", "Y") and [it.axis for it in put.iters] == [Axis.OPAQUE, Axis.SPATIAL]
    x, u = integers((7, 13), "float32"), integers((9, 13), "float32", 1)
    places = np.array([3, 0, 3, 7, 6, -1, 3, 0, 1])
    wanted = x.copy()
    for place, row in zip(places, u, strict=True):
        if 0 <= place < 7:
            wanted[place] = wanted[place] + row if add else row
    (z,) = result(func, x, places, u)
    np.testing.assert_array_equal(z, 2 * wanted)
    same(func, [x, places, u, np.empty_like(x)])


def test_a_reordered_scan_is_refused():
    X = te.placeholder((13,), name="X")
    s = Schedule(
        te.create_prim_func([X, te.scan((13,), lambda y, i: X[i] + te.if_then_else(i >= 1, y[i - 1], 0.0), 0, name="Y")])
    )
    with pytest.raises(ScheduleError, match="drives the opaque axis"):
        s.vectorize("i0")


# --- refusals ----------------------------------------------------------------------------------------------------------


def added(e, times: int):
    for _ in range(times):
        e = 1.0 + e
    return e


def endless(i):
    return 1.0 + endless(i)


def doubled(e, times: int):
    for _ in range(times):
        e = e * e
    return e


COMPARED = "`==` and `!=` compare structure; te.equal and te.not_equal compare values"

A = te.placeholder((7, 13), name="A")
k, q = te.reduce_axis((0, 13), name="k"), te.reduce_axis((0, 5), name="q")
N = te.placeholder((7,), "int32", name="N")
MISTAKES = (
    (lambda: A[1], IndexError, "A has 2 dimension(s) (7, 13), but was indexed with 1"),
    (lambda: te.placeholder((-1,), name="Z"), ValueError, "Z: extents must be at least 0, got shape (-1,)"),
    (lambda: te.placeholder((7,), "float31"), TypeError, None),
    (
        lambda: te.compute((7,), lambda i, j: A[i, j], name="B"),
        TypeError,
        "B: the shape has 1 dimension(s), but the function takes 2 index(es)",
    ),
    (
        lambda: te.compute((7,), lambda i: te.max(te.sum(A[i, k], axis=k), axis=q), name="B"),
        TypeError,
        "B: `sum` is inside a reduction; give it a compute of its own",
    ),
    (
        lambda: te.compute((7,), lambda i: te.exp(te.max(te.sum(A[i, k], axis=k), axis=q)), name="B"),
        TypeError,
        "B: `sum` is inside a reduction; give it a compute of its own",
    ),
    (
        lambda: te.compute((7,), lambda i: te.if_then_else(i > 0, te.sum(A[i - 1, k], axis=k), 0.0), name="B"),
        TypeError,
        "B: `sum` is under if_then_else; give it a compute of its own",
    ),
    (
        lambda: te.compute((7,), lambda i: te.sum(A[i, k], axis=k) + A[i, k], name="B"),
        TypeError,
        "B: nothing reduces over `k`; put it in, as in te.sum(..., axis=k)",
    ),
    (lambda: te.mean(N[k], axis=k), TypeError, "mean needs a floating argument, got int32; use .astype('float32')"),
    (lambda: te.mean(A[0, k]), TypeError, "mean: an axis to reduce over is missing: k = te.reduce_axis((0, n)), then axis=k"),
    (lambda: A @ N, ValueError, "A @ N: the last dimension of (7, 13) must be the one of (7,)"),
    (lambda: A @ A, ValueError, "A @ A: the last dimension of (7, 13) must be the last but one of (7, 13)"),
    (lambda: A @ te.placeholder((), name="x"), ValueError, "A @ x: a tensor without dimensions is a number; write `*`"),
    (
        lambda: te.placeholder((2, 5, 7), name="X") @ te.placeholder((3, 7, 5), name="Y"),
        ValueError,
        "X @ Y: the batches of (2, 5, 7) and (3, 7, 5) differ",
    ),
    (lambda: A @ 3, TypeError, "unsupported operand type(s) for @: 'Tensor' and 'int'"),
    (
        lambda: te.compute((7,), lambda i: A[i, k], name="B"),
        TypeError,
        "B: nothing reduces over `k`; put it in, as in te.sum(..., axis=k)",
    ),
    (lambda: te.exp(N[0]), TypeError, "exp needs a floating argument, got int32; use .astype('float32')"),
    (lambda: te.sum(A[0, k], axis=[]), TypeError, "sum: at least one axis is needed"),
    (
        lambda: te.sum(A[te.reduce_axis((0, 3)), te.reduce_axis((0, 5))], axis=[te.reduce_axis((0, 3)), te.reduce_axis((0, 5))]),
        ValueError,
        "sum: two axes are named `rv`; give each its own: te.reduce_axis((0, n), name='k')",
    ),
    (lambda: te.sum(A[0, k]), TypeError, "sum: an axis to reduce over is missing: k = te.reduce_axis((0, n)), then axis=k"),
    (
        lambda: te.compute((7,), lambda i: "x", name="B"),
        TypeError,
        "B: the function gives 'x': cannot make an expression of 'x' (str); use numbers, indices, elements A[i, j]",
    ),
    (lambda: te.sum(A[0, k], axis=k, where=3), TypeError, "a condition must be bool, got `3` of dtype int32; compare it: x != 0"),
    (
        lambda: te.sum(A[0, k] > 0, axis=k),
        TypeError,
        "sum needs numbers, got bool; use .astype('int32'), or te.max for any and te.min for all",
    ),
    (
        lambda: te.prod(A[0, k] > 0, axis=k),
        TypeError,
        "prod needs numbers, got bool; use .astype('int32'), or te.max for any and te.min for all",
    ),
    (lambda: list(A), TypeError, "A has elements only where it is indexed, so it cannot be iterated over"),
    (lambda: te.var("n", "float32"), TypeError, "var n: a size must be an integer, got dtype float32"),
    (lambda: te.placeholder((7,), name=3), ValueError, "a name must be a Python identifier, got 3"),
    (lambda: te.placeholder((7,), name="lambda"), ValueError, "a name must be a Python identifier, got 'lambda'"),
    (lambda: te.reduce_axis((0, 7), name="\ufb01"), ValueError, "a name must be a Python identifier, got '\ufb01'"),
    (lambda: te.var("n" * 20_000), ValueError, "a name has at most 255 letters, got 20000: nnnnnnnnnnnnnnnnnnnn..."),
    (
        lambda: te.compute((7,), lambda i: doubled(A[i, 0], 40), name="B"),
        ValueError,
        "B: written out, the body has 4398046511103 nodes, and at most 100000 can be compiled; give parts of it a "
        "compute of their own",
    ),
    (
        lambda: te.compute((7,), lambda i: added(A[i, 0], 3000), name="B"),
        ValueError,
        "B: written out, the body has 3002 levels of nodes, and at most 2000 can be compiled; give parts of it a compute of their own",
    ),
    (
        lambda: te.compute((7,), endless, name="B"),
        ValueError,
        "B: the body is nested too deeply for Python (maximum recursion depth exceeded); give parts of it a compute of their own",
    ),
    (lambda: te.placeholder((7,), float), TypeError, "a dtype is a string such as 'float32', or numpy's, got <class 'float'>"),
    (
        lambda: te.placeholder((7, 2.5), name="X"),
        TypeError,
        "X: a shape is a tuple of integers and sizes (te.var), got (7, 2.5): an index must be an integer, got T.float32(2.5) of "
        "dtype float32",
    ),
    (lambda: te.compute((7,), lambda i: None, name="B"), TypeError, "B: the function gives None; does it lack a `return`?"),
    (
        lambda: te.compute((7,), A, name="B"),
        TypeError,
        "B: fcompute is a function of the indices, such as `lambda i, j: A[j, i]`, got Tensor(A, shape=(7, 13), dtype=float32)",
    ),
    (lambda: te.comm_reducer(3, 4), TypeError, "comm_reducer reduce: fcombine must be a function, got 3"),
    (
        lambda: te.comm_reducer(lambda a, b: a + b, lambda dtype: dtype)(A[0, k], axis=k),
        TypeError,
        "reduce: the identity of a dtype must be a number of that dtype; 'float32' is not a number, and cannot be a constant of "
        "dtype float32",
    ),
    (lambda: te.scan((7,), lambda y, i: 1.0, 1), ValueError, "scan: the axis 1 does not exist; the tensor has 1 dimension(s)"),
    (lambda: te.placeholder(np.zeros(2), name="Z"), TypeError, None),
    (
        lambda: te.compute((7,), lambda i: A[i, 0], name="B", attrs=[1]),
        TypeError,
        "B: attrs is a dict of names and JSON data, got [1]",
    ),
    (
        lambda: te.scan((7,), 3, 0),
        TypeError,
        "scan: fcompute is a function of the tensor and the indices, such as `lambda y, i: ...`, got 3",
    ),
    (
        lambda: te.scan((7,), lambda y, i: 1.0, None),
        TypeError,
        "scan: the axis is the number of a dimension, from 0 on, got None",
    ),
    (lambda: te.scan((7,), lambda y, i: 1.0, 0, dtype="f"), TypeError, None),
    (lambda: te.scatter(3, (7,), lambda y, i: ((i,), 1.0, True)), TypeError, "scatter: the target is a tensor, got 3"),
    (
        lambda: te.scatter(A, (7,), lambda y, i: 3),
        TypeError,
        "scatter: fscatter is a function of the tensor and the point that gives (indices, value, condition), got 3",
    ),
    (
        lambda: te.create_prim_func(
            [A, te.compute((7,), lambda i: te.comm_reducer(lambda a, b: (a, b), lambda d: 0)(A[i, k], axis=k))]
        ),
        TypeError,
        "reduce: fcombine gives 2 value(s) for 1",
    ),
    (
        lambda: te.create_prim_func([A, te.compute((7,), lambda i: A[i, 0])], constants=3),
        TypeError,
        "create_prim_func: constants is a list of inputs, got 3",
    ),
    (
        lambda: te.scatter(A, (7,), lambda y, i: ((i,), 1.0, True)),
        ValueError,
        "scatter: A has 2 dimension(s), but the place has 1",
    ),
    *(
        (call, TypeError, f"{where}got {value}, no expression: {COMPARED}")
        for where, value, call in (
            ("", False, lambda: te.compute((7, 5), lambda i, j: te.if_then_else(i == j, 1.0, 0.0))),
            ("", True, lambda: te.compute((7, 5), lambda i, j: te.select(te.all(i > 0, i != j), 1.0, 0.0))),
            ("", False, lambda: te.compute((7, 5), lambda i, j: (i == j) * A[i, j])),
            ("", False, lambda: te.sum(A[0, k], axis=k, where=k == 3)),
            ("B: the function gives False: ", False, lambda: te.compute((7, 5), lambda i, j: i == j, name="B")),
        )
    ),
    (
        lambda: te.if_then_else(A[0, 0], 1.0, 2.0),
        TypeError,
        "a condition must be bool, got `A[0, 0]` of dtype float32; compare it: x != 0",
    ),
)


@pytest.mark.parametrize(("call", "error", "message"), MISTAKES)
def test_mistakes_are_refused_where_they_are_made(call, error, message):
    with pytest.raises(error) as caught:
        call()
    assert message is None or str(caught.value) == message


def test_inputs_are_listed_and_elements_have_no_truth_value():
    B = te.compute((7,), lambda i: A[i, 0], name="B")
    with pytest.raises(ValueError, match="the input A is read but not in the argument list"):
        te.create_prim_func([B])
    with pytest.raises(TypeError, match="has no truth value before it runs"):
        te.compute((7,), lambda i: A[i, 0] if i < 3 else A[i, 1], name="B")


def test_a_tensor_without_dimensions_is_a_number():
    x = te.placeholder((), name="x")
    assert [str(e) for e in (x + 1.0, 2.0 * x, 1.0 - x, 1.0 / x)] == [
        "x[()] + T.float32(1.0)", "T.float32(2.0) * x[()]", "T.float32(1.0) - x[()]", "T.float32(1.0) / x[()]",
    ]  # fmt: skip
    with pytest.raises(TypeError, match=r"^A of shape \(7,\) is not a scalar; index it$"):
        2.0 * te.placeholder((7,), name="A")


def elementwise(function, *arrays):
    """A function of expressions applied to each element of arrays by a program."""
    tensors = [te.placeholder(a.shape, str(a.dtype), name=f"A{n}") for n, a in enumerate(arrays)]
    out = te.compute(arrays[0].shape, lambda i: function(*(t[i] for t in tensors)), name="B")
    (found,) = result(te.create_prim_func([*tensors, out]), *arrays)
    return found


REALS = np.array([-np.inf, -2.5, -1.5, -0.5, -0.25, -0.0, 0.0, 0.5, 0.75, 2.5, 1e30, np.inf, np.nan], "float32")
WHOLE = np.array([-128, -7, -1, 0, 1, 2, 5, 127], "int8")


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (te.isnan, np.isnan), (te.isinf, np.isinf), (te.isfinite, np.isfinite), (te.trunc, np.trunc), (te.nearbyint, np.rint),
        (te.round, lambda x: np.trunc(x + np.copysign(np.float32(0.5), x))), (lambda x: te.clip(x, -1, 2), lambda x: x.clip(-1, 2)),
        (lambda x: te.copysign(1.0, x), lambda x: np.copysign(np.float32(1), x)), (abs, abs), (lambda x: -x, lambda x: -x),
        (lambda x: te.select(te.isnan(x), 0.0, x) ** 2, lambda x: np.where(np.isnan(x), 0, x) ** 2),
    ],
)  # fmt: skip
def test_functions_of_numbers(function, expected):
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(elementwise(function, REALS), expected(REALS))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x & 3, lambda x: x & 5, lambda x: x & -2, lambda x: 6 | x, lambda x: x ^ 9, lambda x: ~x, lambda x: x << 3,
        lambda x: x >> 2, lambda x: x >> 7, lambda x: x // 3, lambda x: x % -3, lambda x: abs(x // 2), lambda x: np.int8(1) << (x & 3),
    ],
)  # fmt: skip
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_operators_on_bits(function, dtype):
    numbers = WHOLE if dtype == "int8" else WHOLE.view("uint8")
    try:
        expected = function(numbers)
    except OverflowError:  # -2 is no uint8, and -3 neither
        return
    np.testing.assert_array_equal(elementwise(function, numbers), expected)


def test_functions_of_integers():
    numbers, divisors = np.arange(-7, 8), np.array([3, -2, 5] * 5)
    for function, expected in (
        (te.floordiv, np.floor_divide), (te.floormod, np.mod), (lambda a, b: te.ceildiv(a, abs(b)), lambda a, b: -(-a // abs(b))), (te.bitwise_xor, np.bitwise_xor),
        (lambda a, b: te.isnan(a), lambda a, b: a != a), (lambda a, b: te.isfinite(a), lambda a, b: a == a),
    ):  # fmt: skip
        np.testing.assert_array_equal(elementwise(function, numbers, divisors), expected(numbers, divisors))
    assert te.ceildiv(7, 2) == 4 and te.min_value("int8") == te.const(-128, "int8") and te.infinity("float16").value == np.inf
    for dtype in ("bool", "int32"):
        with pytest.raises(TypeError, match=f"infinity is for floats, not {dtype}"):
            te.infinity(dtype)
    a, b = te.placeholder((1,), "bool", "a")[0], te.placeholder((1,), "bool", "b")[0]
    assert [str(e) for e in (a & b, a | b, ~a, a ^ b)] == ["a[0] and b[0]", "a[0] or b[0]", "not a[0]", "a[0] != b[0]"]


def test_functions_of_numpy_apply_to_expressions():
    x, n, s = te.placeholder((7,), name="x")[0], te.placeholder((7,), "int32", name="n")[0], te.placeholder((), name="s")
    same = [
        (np.exp(x), te.exp(x)), (np.maximum(x, 0), te.maximum(x, 0)), (np.arctan2(x, s), te.atan2(x, s)), (np.rint(s), te.nearbyint(s)),
        (np.power(2.0, x), te.pow(2.0, x)), (np.float32(2) * x, 2.0 * x), (np.array(2.0) * x, 2.0 * x), (np.absolute(n), te.abs(n)),
        (np.less(n, 3), n < 3), (np.logical_and(n < 3, n > 1), te.all(n < 3, n > 1)), (np.float32(1) - s, 1.0 - s), (np.isnan(x), te.isnan(x)),
    ]  # fmt: skip
    for found, expected in same:
        assert found == expected
    assert list(np.array([1.0, 2.0]) * x) == [1.0 * x, 2.0 * x]
    with pytest.raises(TypeError, match=r"^np.gcd has no counterpart on expressions; the functions of te are abs, acos, "):
        np.gcd(n, 2)
    with pytest.raises(TypeError, match=r"^np.add has no counterpart"):
        np.add.outer(x, x)
