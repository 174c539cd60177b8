"""Networks of float32 computed in 16 bits: what is rounded, what stays float32, and the error against float64."""

from __future__ import annotations

import numpy as np
import pytest

import tir
from graph import Builder
from graph.compilation import assembled, final
from graph.fusion import fuse
from graph.ops import definition
from graph.passes import optimize
from graph.passes.channels import convolve_channels_last
from graph.passes.check import difference, widened
from graph.passes.precision import PRECISIONS, in_precision
from graph.reference import evaluate, random_inputs
from tir import dtypes, te

RNG = np.random.default_rng(0)
TARGET = tir.Target("llvm", num_cores=1)


def weights(*shape):
    return RNG.uniform(-1, 1, shape).astype("float32") / np.float32(np.sqrt(shape[-1]))


def first(results):
    """The first result of an operator of one or several."""
    return results[0] if isinstance(results, tuple) else results


def images():
    """Convolutions with a shortcut, pooling, and a layer."""
    b = Builder("images")
    x = b.input("x", (1, 3, 17, 15), "float32")
    stem = b("Relu", b("Conv", x, b.constant(weights(16, 3, 3, 3)), b.constant(weights(16)), pads=(1, 1, 1, 1)))
    deep = b("Conv", stem, b.constant(weights(16, 1, 3, 3)), group=16, pads=(1, 1, 1, 1))
    deep = b("Conv", b("Clip", deep, min=0.0, max=6.0), b.constant(weights(16, 16, 1, 1)))
    pooled = first(b("MaxPool", b("Relu", b("Add", stem, deep)), kernel_shape=(2, 2), strides=(2, 2)))
    rows = b("Reshape", b("GlobalAveragePool", pooled), shape=(1, 16))
    return b.graph(b("Gemm", rows, b.constant(weights(16, 10)), b.constant(weights(10))))


def tokens():
    """A layer of a transformer over embedded tokens, with what stays float32 between: GELU, scales and sums."""
    b = Builder("tokens")
    ids = b.input("ids", (1, 19), "int64")
    ones, zeros = (b.constant(np.full(32, n, "float32")) for n in (1, 0))
    x = b("Gather", b.constant(weights(50, 32)), ids)
    normal = first(b("LayerNormalization", x, ones, zeros))
    q, k, v = (b("MatMul", normal, b.constant(weights(32, 32))) for _ in range(3))
    scores = b("Mul", b("MatMul", q, b("Transpose", k, perm=(0, 2, 1))), b.constant(np.float32(0.25)))
    x = b("Add", x, b("MatMul", b("Softmax", scores), v))
    wide = b(
        "Gelu",
        b(
            "Add",
            b("MatMul", first(b("LayerNormalization", x, ones, zeros)), b.constant(weights(32, 64))),
            b.constant(weights(64)),
        ),
    )
    return b.graph(b("Add", x, b("MatMul", wide, b.constant(weights(64, 32)))))


NETWORKS = {"images": images, "tokens": tokens}


def inputs_of(graph):
    return random_inputs(graph) if graph.name == "images" else {"ids": RNG.integers(0, 50, (1, 19))}


@pytest.mark.parametrize("dtype", PRECISIONS[:2])
@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_in_16_bits(name, dtype):
    graph = NETWORKS[name]()
    given = inputs_of(graph)
    (wanted,) = evaluate(*widened(graph, given))
    model = tir.compile(graph, TARGET, precision=dtype, cache=None)
    (found,) = model(given)
    assert found.dtype == np.float32 and [v.dtype for v in model.graph.inputs] == [v.dtype for v in graph.inputs]

    def size(a):
        return float(np.sqrt(np.mean(a * a)))

    bound = 8 * dtypes.unit(dtype)
    assert difference(found.astype("float64"), wanted, size, size) <= bound
    assert difference(np.zeros_like(wanted), wanted, size, size) > bound
    exact = tir.compile(graph, TARGET, cache=None)(given)[0]
    assert difference(exact.astype("float64"), wanted, size, size) < dtypes.unit(dtype) / 8


@pytest.mark.parametrize("dtype", PRECISIONS[:2])
@pytest.mark.parametrize("name", NETWORKS)
def test_what_kernels_pass_on_has_16_bits(name, dtype):
    graph = NETWORKS[name]()
    after = in_precision(graph, dtype)
    assert after.inputs == graph.inputs and after.outputs == graph.outputs
    compiled = final(after, TARGET)
    ends = {
        *after.outputs,
        *(v for c in compiled.calls if set(c.outputs) <= set(after.outputs) and definition(c).view for v in c.values),
    }
    ends |= {v for c in compiled.calls if c.operator in ("Softmax", "LayerNormalization") for v in c.values}
    passed = [v for g in fuse(compiled) for v in g.outputs if v not in ends and v in compiled.consumers()]
    assert {v.dtype for v in passed} == {dtype}
    products = [c for c in after.calls if c.operator in ("Conv", "MatMul", "MaxPool")]
    assert {v.dtype for c in products for v in c.values} == {dtype}
    assert {c.outputs[0].dtype for c in products if c.operator not in ("Conv", "MatMul")} <= {dtype}


def small_integers(*shape, most=1):
    return RNG.integers(-most, most + 1, shape).astype("float32")


def few_pixels():
    """Convolutions of integers that 16 bits hold, also of each channel, with a shortcut, pooling, parts and a mean."""
    b = Builder("few")
    x = b.input("x", (2, 6, 13, 7), "float32")
    how = {"pads": (1, 0, 1, 2), "strides": (2, 1), "dilations": (1, 2)}
    stem = b("Relu", b("Conv", x, b.constant(small_integers(20, 6, 3, 3)), b.constant(small_integers(20, most=9)), **how))
    each = b("Conv", stem, b.constant(small_integers(20, 1, 3, 3)), b.constant(small_integers(20)), group=20, pads=(1, 1, 1, 1))
    flat = b("Clip", b("Conv", each, b.constant(small_integers(20, 20, 1, 1))), min=-9.0, max=9.0)
    joined = b("Concat", b("Add", stem, flat), b("Slice", flat, starts=(1,), ends=(20,), axes=(1,)), axis=1)
    pooled = first(b("MaxPool", joined, kernel_shape=(3, 3), pads=(1, 1, 1, 1), strides=(2, 2)))
    return b.graph(pooled, b("ReduceMean", pooled, axes=(2, 3), keepdims=1))


@pytest.mark.parametrize("target", [TARGET, tir.Target("llvm -num-cores 1 -mcpu x86-64-v3")])
def test_channels_of_halves_are_last_from_one_convolution_to_the_next(target):
    """The results are the same, bit for bit, and nothing is transposed between the first convolution and the pooling."""
    graph = optimize(in_precision(few_pixels(), "bfloat16"))
    given = {"x": small_integers(2, 6, 13, 7, most=3)}
    wanted, made = evaluate(graph, given), optimize(convolve_channels_last(graph, lambda last, today: True))
    names = [c.operator for c in made.calls]
    assert names.count("ChannelsLastConv") == 2 and names.count("DepthwiseConv") == 1 and "Conv" not in names
    assert names.count("Transpose") == 2, "of the input, and of one output"
    for a, b in zip(wanted, assembled(made, target, None, None)(given), strict=True):
        assert np.ptp(a) > 0 and np.array_equal(a, b)


def test_channels_of_halves_are_last_where_that_takes_fewer_cycles():
    """At few pixels, where the processor has dot products of halves alone."""
    zen = "llvm -num-cores 1 -mcpu {} -l1 32768 -l2 1048576 -l3 33554432"

    def chosen(size, mcpu):
        b = Builder("one")
        x = b.input("x", (1, 256, size, size), "float32")
        graph = b.graph(b("Conv", x, b.constant(weights(256, 256, 1, 1))))
        return "ChannelsLastConv" in [c.operator for c in final(graph, tir.Target(zen.format(mcpu)), precision="bfloat16").calls]

    assert chosen(7, "znver4") and not chosen(7, "znver3")


def test_a_chain_is_rounded_once_at_its_end():
    b = Builder("chain")
    x = b.input("x", (5, 7), "float32")
    y = b("MatMul", x, b.constant(weights(7, 7)))
    y = b("Tanh", b("Add", b("Exp", y), b.constant(weights(7))))
    after = in_precision(b.graph(b("MatMul", y, b.constant(weights(7, 3)))), "bfloat16")
    made = [(c.operator, c.outputs[0].dtype) for c in after.calls]
    assert made == [
        ("Cast", "bfloat16"), ("MatMul", "float32"), ("Exp", "float32"), ("Add", "float32"),
        ("Tanh", "float32"), ("Cast", "bfloat16"), ("MatMul", "bfloat16"), ("Cast", "float32"),
    ]  # fmt: skip
    assert {a.dtype.name for a in after.constants.values()} == {"bfloat16", "float32"}


@pytest.mark.parametrize("dtype", PRECISIONS[:2])
def test_rows_that_a_mask_hides_wholly_are_finite(dtype):
    """Masks that are the least float32 stay finite, as constants and as results; other rows are right."""
    least = float(np.finfo("float32").min)
    b = Builder("masked")
    x, keep = b.input("x", (2, 5, 7), "float32"), b.input("keep", (5, 7), "float32")
    mask = np.zeros((5, 7), "float32")
    mask[1], mask[2, 3:] = least, least
    hidden = b("Mul", b("Sub", b.constant(np.ones(1, "float32")), keep), b.constant(np.array(least, "float32")))
    scores = [b("Add", b("MatMul", x, b.constant(weights(7, 7))), m) for m in (b.constant(mask), hidden, hidden)]
    graph = b.graph(*(b("Softmax", s, axis=-1) for s in scores))
    given = [RNG.standard_normal((2, 5, 7)).astype("float32"), (mask == 0).astype("float32")]
    for found, wanted in zip(
        tir.compile(graph, TARGET, precision=dtype, cache=None)(*given), evaluate(graph, given), strict=True
    ):
        assert np.isfinite(wanted).all() and np.abs(found.sum(axis=-1) - 1).max() <= 8 * dtypes.unit(dtype)
        assert np.abs(found - wanted)[:, [0, 2, 3, 4]].max() <= 8 * dtypes.unit(dtype)


def test_other_types_are_left_alone():
    b = Builder("others")
    x = b.input("x", (5, 7), "float64")
    graph = b.graph(b("MatMul", x, b.constant(RNG.uniform(-1, 1, (7, 3)))))
    assert in_precision(graph, "float16").text() == graph.text()


def test_what_is_no_precision():
    with pytest.raises(ValueError, match=r"precision must be bfloat16 or float16, got 'int8'; tir\.quantise makes networks"):
        tir.compile(images(), TARGET, precision="int8")
    x = te.placeholder((3,), name="A")
    func = te.create_prim_func([x, te.compute((3,), lambda i: x[i], name="B")])
    with pytest.raises(ValueError, match="precision is for networks"):
        tir.compile(func, TARGET, precision="float16")
