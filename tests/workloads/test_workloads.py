"""Workloads against formulas written apart from them, at odd shapes, and the error bounds against programs that are wrong."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tir import dtypes, interpreter, workloads
from tir.ir import ARITHMETIC, Binary, Call, For, Stmt, Store
from tir.traverse import walk

SHAPES = {
    "mlp": [(7, 13, 109, 5), (1, 1, 1, 1), (64, 1, 7, 13), (3, 200, 2, 1)],
    "gmm": [(7, 13, 109), (1, 1, 1), (7, 13, 5, 3), (1, 64, 1, 1), (5, 300, 4)],
    "conv2d": [
        (1, 7, 7, 3, 5, 3, 3, 1, 1),
        (2, 13, 7, 4, 3, 3, 1, 2, 0),
        (1, 1, 1, 1, 1, 1, 1, 1, 0),
        (1, 7, 13, 3, 2, 1, 1, 1, 0),
        (1, 7, 7, 2, 3, 1, 1, 1, 1),
        (1, 5, 5, 2, 2, 5, 4, 3, 2),
        (1, 1, 2, 1, 2, 3, 3, 1, 1),
    ],
    "depthwise": [
        (1, 7, 13, 5, 3, 3, 1, 1),
        (2, 13, 7, 3, 3, 2, 2, 0),
        (1, 1, 1, 1, 1, 1, 1, 0),
        (1, 9, 9, 3, 5, 5, 3, 4),
        (1, 150, 150, 5, 3, 3, 1, 1),
    ],
    "conv1d": [(2, 13, 3, 5, 3, 2, 1), (1, 7, 1, 1, 1, 1, 0), (1, 5, 2, 3, 7, 1, 1)],
    "conv2d_nhwc": [
        (1, 7, 13, 3, 5, 3, 1, 1),
        (2, 13, 7, 4, 3, 3, 2, 0),
        (1, 7, 7, 3, 2, 1, 1, 0),
        (1, 5, 5, 1, 1, 5, 3, 2),
        (2, 9, 7, 3, 5, 3, 2, 1, 2),
        (1, 5, 7, 6, 9, 3, 1, 1, 1, 3),
        (1, 9, 9, 4, 2, 2, 1, 0, 3, 2),
    ],
    "conv3d": [(1, 3, 5, 7, 2, 3, 3, 1, 1), (2, 5, 5, 5, 1, 2, 2, 2, 0), (1, 2, 3, 2, 3, 1, 1, 1, 0)],
    "conv_bn_relu": [(1, 7, 13, 3, 5, 3, 1, 1), (2, 5, 7, 2, 3, 2, 2, 0)],
    "depthwise_nhwc": [(1, 7, 13, 5, 3, 1, 1), (2, 13, 7, 3, 2, 2, 0), (1, 40, 40, 61, 3, 1, 1)],
    "conv2d_transpose": [
        (1, 3, 5, 7, 2, 4, 2, 1),
        (2, 2, 3, 3, 5, 3, 2, 0),
        (1, 4, 3, 2, 3, 3, 1, 1),
        (1, 3, 2, 2, 1, 5, 3, 2),
        (1, 1, 1, 1, 1, 1, 1, 0),
        (1, 3, 3, 2, 2, 2, 3, 0),
    ],
    "capsule": [(1, 3, 5, 2, 3, 3, 1, 1), (2, 5, 3, 1, 2, 2, 2, 0)],
    "softmax": [(7, 109), (13, 1), (1, 1), (300, 301)],
    "layernorm": [(7, 109), (13, 1), (1, 2), (300, 301)],
    "norm": [(3, 7, 109), (1, 1, 1), (2, 300, 301)],
    "attention_weights": [(2, 7, 3, 13), (1, 1, 1, 1), (1, 13, 2, 109)],
}
CASES = [(name, shape) for name, shapes in SHAPES.items() for shape in shapes]
SMALL = [(name, shape) for name, shape in CASES if np.prod(shape) < 50_000]


def convolution(x, kernel, stride, padding, subscripts):
    """Sum over the kernel of shifted images; `subscripts` says how one kernel element meets the channels."""
    n, c, h, w = x.shape
    *_, kh, kw = kernel.shape
    padded = np.zeros((n, c, h + 2 * padding, w + 2 * padding))
    padded[:, :, padding : padding + h, padding : padding + w] = x
    oh, ow = (h + 2 * padding - kh) // stride + 1, (w + 2 * padding - kw) // stride + 1
    total = 0
    for i in range(kh):
        for j in range(kw):
            shifted = padded[:, :, i : i + (oh - 1) * stride + 1 : stride, j : j + (ow - 1) * stride + 1 : stride]
            total = total + np.einsum(subscripts, shifted, kernel[..., i, j])
    return np.maximum(total, 0)


def channels_last(x, kernel, stride, padding, dilation=1, groups=1):
    """A convolution of one to three dimensions, an output at a time."""
    dims, size = x.ndim - 2, kernel.shape[0]
    padded = np.pad(x, ((0, 0), *[(padding, padding)] * dims, (0, 0)))
    spatial = [(n + 2 * padding - dilation * (size - 1) - 1) // stride + 1 for n in x.shape[1:-1]]
    out = np.zeros((x.shape[0], *spatial, kernel.shape[-1]))
    ci, co = x.shape[-1] // groups, kernel.shape[-1] // groups
    for place in np.ndindex(*spatial):
        seen = padded[:, *(slice(p * stride, p * stride + dilation * (size - 1) + 1, dilation) for p in place)]
        for g in range(groups):
            channels = slice(g * co, (g + 1) * co)
            window = seen[..., g * ci : (g + 1) * ci].reshape(len(x), -1)
            out[:, *place, channels] = window @ kernel[..., channels].reshape(-1, co)
    return out


def transposed(x, kernel, stride, padding):
    """Every element of the image adds a multiple of the kernel to the result."""
    n, h, w, _ = x.shape
    size, _, _, co = kernel.shape
    whole = np.zeros((n, (h - 1) * stride + size, (w - 1) * stride + size, co))
    for i, j, a, b in np.ndindex(h, w, size, size):
        whole[:, i * stride + a, j * stride + b] += x[:, i, j] @ kernel[a, b]
    return whole[:, padding : whole.shape[1] - padding, padding : whole.shape[2] - padding]


def capsules(x, kernel, stride, padding):
    """A convolution whose products are products of 4 by 4 matrices."""
    size = kernel.shape[0]
    padded = np.pad(x, ((0, 0), (padding, padding), (padding, padding), (0, 0), (0, 0), (0, 0)))
    oh, ow = ((n + 2 * padding - size) // stride + 1 for n in x.shape[1:3])
    out = np.zeros((x.shape[0], oh, ow, 4, 4, kernel.shape[-1]))
    for h, w in np.ndindex(oh, ow):
        seen = padded[:, h * stride : h * stride + size, w * stride : w * stride + size]
        out[:, h, w] = np.einsum("nabikc,abkjco->nijo", seen, kernel)
    return out


def formula(name, inputs, shape):
    """The computation in float64, straight from its definition."""
    inputs = [a.astype(np.float64) for a in inputs]
    match name:
        case "mlp":
            a, b, e = inputs
            return np.einsum("ml,ln->mn", np.exp(np.einsum("mk,kl->ml", a, b)), e)
        case "gmm":
            return np.einsum("...mk,...kn->...mn", *inputs)
        case "conv2d":
            return convolution(*inputs, shape[-2], shape[-1], "nchw,oc->nohw")
        case "depthwise":
            return convolution(*inputs, shape[-2], shape[-1], "nchw,c->nchw")
        case "conv1d" | "conv3d":
            return channels_last(*inputs, *shape[-2:])
        case "conv2d_nhwc":
            return channels_last(*inputs, *shape[6:])
        case "conv_bn_relu":
            x, kernel, bias, scale, offset = inputs
            return np.maximum((channels_last(x, kernel, *shape[-2:]) + bias) * scale + offset, 0)
        case "depthwise_nhwc":
            x, kernel = inputs
            return channels_last(x, np.einsum("ijc,ck->ijck", kernel, np.eye(x.shape[-1])), *shape[-2:])
        case "conv2d_transpose":
            return transposed(*inputs, *shape[-2:])
        case "capsule":
            return capsules(*inputs, *shape[-2:])
        case "norm":
            return np.linalg.norm(*inputs, axis=(1, 2))
        case "attention_weights":
            scores = np.einsum("nihd,njhd->nhij", *inputs)
            return 1 / np.exp(scores[..., None, :] - scores[..., None]).sum(axis=-1)
        case "softmax":
            (x,) = inputs
            return 1 / np.exp(x[:, None, :] - x[:, :, None]).sum(axis=2)
        case "layernorm":
            x, weight, bias = inputs
            return (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5) * weight + bias
    raise AssertionError(name)


def test_every_workload_has_cases():
    assert tuple(SHAPES) == workloads.names()


@pytest.mark.parametrize(("name", "shape"), CASES)
def test_reference_is_the_formula(name, shape):
    instance = workloads.make(name, shape)
    inputs = instance.inputs(np.random.default_rng(1))
    assert all(a.dtype == np.float32 and a.flags.c_contiguous for a in inputs)
    (expected,) = instance.reference(inputs)
    exact = formula(name, inputs, shape)
    assert expected.value.shape == expected.scale.shape == exact.shape == instance.outputs()[0].shape
    assert np.all(np.abs(expected.value - exact) <= 2 * workloads.gamma(expected.roundings, "float64") * expected.scale)
    assert np.all(np.abs(exact) <= expected.scale * (1 + workloads.gamma(expected.roundings, "float64")))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("name", "shape"), CASES)
def test_numpy_is_within_the_bound(name, shape, dtype):
    instance = workloads.make(name, shape, dtype)
    inputs, outputs = instance.inputs(np.random.default_rng(2)), instance.outputs()
    assert [a.shape for a in (*inputs, *outputs)] == [tuple(n.value for n in b.shape) for b in instance.func.buffers]
    check = instance.checker(inputs)
    before = [a.copy() for a in inputs]
    for _ in range(2):  # a second run finds a used workspace
        outputs[0].fill(np.nan)
        instance.numpy(inputs, outputs)
        error, tolerance, ok = check(outputs)
        assert ok and error <= tolerance
    assert all(np.array_equal(a, b) for a, b in zip(inputs, before, strict=True))


@pytest.mark.parametrize(("name", "shape"), SMALL)
def test_interpreter_is_within_the_bound(name, shape):
    instance = workloads.make(name, shape)
    inputs, outputs = instance.inputs(np.random.default_rng(3)), instance.outputs()
    interpreter.run(instance.func, *inputs, *outputs)
    assert instance.check(outputs, inputs).ok


def flop_in(node: Stmt) -> int:
    """Floating-point operations in the values stored by a statement, loops counted."""
    if isinstance(node, For):
        return node.extent.value * flop_in(node.body)
    if isinstance(node, Store):
        values = [n for n in walk(node.value) if dtypes.is_float(getattr(n, "dtype", "bool"))]
        return sum(isinstance(n, Call) or (isinstance(n, Binary) and n.op in ARITHMETIC) for n in values)
    stmts = getattr(node, "stmts", None) or (node.body,)
    return sum(flop_in(s) for s in stmts)


@pytest.mark.parametrize(("name", "shape"), [*CASES, *((name, None) for name in workloads.names())])
def test_flop_counts_the_operations_of_the_program(name, shape):
    instance = workloads.make(name, shape)
    assert instance.flop == flop_in(instance.func.body)


# For each workload a shape, and inputs changed such that the last iteration of one reduction has no effect.
LOST = {
    "mlp, inner product": ("mlp", (5, 509, 61, 7), lambda a, b, e: (np.where(np.arange(509) == 508, 0, a), b, e)),
    "mlp, outer product": ("mlp", (5, 61, 509, 7), lambda a, b, e: (a, b, np.where(np.arange(509)[:, None] == 508, 0, e))),
    "gmm": ("gmm", (7, 509, 13), lambda a, b: (np.where(np.arange(509) == 508, 0, a), b)),
    "conv2d": ("conv2d", (1, 7, 7, 64, 5, 3, 3, 1, 1), lambda x, k: (x, np.where(np.arange(9).reshape(3, 3) == 8, 0, k))),
    "depthwise": ("depthwise", (1, 7, 7, 3, 3, 3, 1, 1), lambda x, k: (x, np.where(np.arange(9).reshape(3, 3) == 8, 0, k))),
    "conv1d": ("conv1d", (1, 13, 64, 5, 3, 1, 1), lambda x, k: (x, np.where(np.arange(3)[:, None, None] == 2, 0, k))),
    "conv2d_nhwc": ("conv2d_nhwc", (1, 7, 7, 64, 5, 3, 1, 1), lambda x, k: (x, np.where(np.arange(64)[:, None] == 63, 0, k))),
    "conv3d": ("conv3d", (1, 3, 5, 7, 13, 5, 2, 1, 0), lambda x, k: (x, np.where(np.arange(13)[:, None] == 12, 0, k))),
    "conv_bn_relu": (
        "conv_bn_relu",
        (1, 7, 7, 13, 5, 3, 1, 1),
        lambda x, k, *more: (x, np.where(np.arange(13)[:, None] == 12, 0, k), *more),
    ),
    "depthwise_nhwc": (
        "depthwise_nhwc",
        (1, 7, 7, 3, 3, 1, 1),
        lambda x, k: (x, np.where(np.arange(9).reshape(3, 3, 1) == 8, 0, k)),
    ),
    "conv2d_transpose": ("conv2d_transpose", (1, 5, 5, 61, 7, 4, 2, 1), lambda x, k: (np.where(np.arange(61) == 60, 0, x), k)),
    "capsule": ("capsule", (1, 5, 5, 7, 3, 3, 1, 1), lambda x, k: (np.where(np.arange(7) == 6, 0, x), k)),
    "norm": ("norm", (1, 13, 109), lambda a: (np.where(np.arange(109) == 108, 0, a),)),
    "norm, a large one": ("norm", (1, 1021, 1023), lambda a: (np.where(np.arange(1021)[:, None] == 1020, 0, a),)),
    "attention_weights": ("attention_weights", (1, 13, 2, 109), lambda q, k: (np.where(np.arange(109) == 108, 0, q), k)),
    "softmax": ("softmax", (7, 509), lambda x: (np.where(np.arange(509) == 508, -np.inf, x),)),
    "layernorm": ("layernorm", (7, 509), lambda x, w, b: (np.where(np.arange(509) == 508, 0, x), w, b)),
}


@pytest.mark.parametrize("case", LOST)
def test_a_lost_iteration_exceeds_the_bound(case):
    name, shape, lose = LOST[case]
    instance = workloads.make(name, shape)
    inputs, outputs = instance.inputs(np.random.default_rng(4)), instance.outputs()
    instance.numpy(tuple(np.ascontiguousarray(a, "float32") for a in lose(*inputs)), outputs)
    assert not instance.check(outputs, inputs).ok
    instance.numpy(inputs, outputs)
    assert instance.check(outputs, inputs).ok


@pytest.mark.parametrize("name", workloads.names())
def test_an_element_never_written_or_written_wrong_is_seen(name):
    instance = workloads.make(name, SHAPES[name][0])
    inputs, outputs = instance.inputs(np.random.default_rng(5)), instance.outputs()
    assert np.isnan(outputs[0]).all()
    instance.numpy(inputs, outputs)
    check = instance.checker(inputs)
    for wrong in (np.nan, np.inf, -1e30):
        changed = outputs[0].copy()
        changed.flat[-1] = wrong
        error, _, ok = check((changed,))
        assert not ok and error > 1
    with pytest.raises(ValueError, match=r"shape"):
        check((outputs[0][:-1],))


def test_gamma_is_the_bound_of_higham():
    u = 2.0**-24
    assert workloads.gamma(1000, "float32") == 1000 * u / (1 - 1000 * u)
    with pytest.raises(ValueError, match="leave no correct digit"):
        workloads.gamma(2.0**24, "float32")


@pytest.mark.parametrize(("arguments", "message"), [
    (("mpl",), f"no workload is named 'mpl'; did you mean mlp? there are: {', '.join(SHAPES)}"),
    (("zzz",), f"no workload is named 'zzz'; there are: {', '.join(SHAPES)}"),
    (("mlp", (1, 2, 3)), "mlp takes 4 sizes M,K,L,N (got 3: 1,2,3)"),
    (("conv2d_nhwc", (1, 5)), "conv2d_nhwc takes 8 to 10 sizes N,H,W,CI,CO,K,stride,padding[,dilation[,groups]] (got 2: 1,5)"),
    (("gmm", ()), "gmm takes 3 or 4 sizes M,K,N[,batch] (got 0: none)"),
    (("gmm", (7, 0, 5)), "gmm: K, the number of columns of A, must be a positive integer (got 0 in M,K,N[,batch] = 7,0,5)"),
    (("softmax", (7, 2.5)),
     "softmax: columns, the number of columns, must be a positive integer (got 2.5 in rows,columns = 7,2.5)"),
    (("softmax", (7, True)),
     "softmax: columns, the number of columns, must be a positive integer (got True in rows,columns = 7,True)"),
    (("depthwise", (1, 7, 7, 3, 3, 3, 1, -1)),
     "depthwise: padding, the padding on each side, must be an integer of at least 0 " "(got -1 in N,H,W,C,KH,KW,stride,padding = 1,7,7,3,3,3,1,-1)"),
    (
        ("conv2d", (1, 2, 9, 1, 1, 5, 5, 1, 1)),
        "conv2d: a kernel that reaches over 5x5 elements does not fit the padded image of 4x11 "
        "(got N,H,W,CI,CO,KH,KW,stride,padding = 1,2,9,1,1,5,5,1,1)",
    ),
    (
        ("conv2d_nhwc", (1, 5, 5, 4, 6, 3, 1, 0, 3)),
        "conv2d_nhwc: a kernel that reaches over 7x7 elements does not fit the padded image of 5x5 "
        "(got N,H,W,CI,CO,K,stride,padding[,dilation[,groups]] = 1,5,5,4,6,3,1,0,3)",
    ),
    (("conv2d_nhwc", (1, 5, 5, 4, 6, 3, 1, 0, 1, 4)),
     "conv2d_nhwc: 4 and 6 channels can't be divided into 4 groups " "(got N,H,W,CI,CO,K,stride,padding[,dilation[,groups]] = 1,5,5,4,6,3,1,0,1,4)"),
    (("conv2d_transpose", (1, 5, 5, 4, 6, 3, 1, 3)),
     "conv2d_transpose: the padding must be less than the extent of the kernel, 3 " "(got N,H,W,CI,CO,K,stride,padding = 1,5,5,4,6,3,1,3)"),
    (("conv2d_transpose", (1, 1, 5, 4, 6, 4, 1, 2)),
     "conv2d_transpose: nothing is left of the result without its padding " "(got N,H,W,CI,CO,K,stride,padding = 1,1,5,4,6,4,1,2)"),
    (("capsule", (1, 1, 5, 4, 6, 4, 1, 1)),
     "capsule: a kernel that reaches over 4x4 elements does not fit the padded image of 3x7 " "(got N,H,W,CI,CO,K,stride,padding = 1,1,5,4,6,4,1,1)"),
    (("gmm", (7, 13, 5), "float16"), "gmm: workloads compute in float32 or float64, got dtype 'float16'"),
])  # fmt: skip
def test_bad_arguments_say_what_was_expected(arguments, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        workloads.make(*arguments)


def test_shapes_may_hold_numpy_integers():
    assert workloads.make("gmm", np.array([7, 13, 5])).shape == (7, 13, 5)


def test_defaults():
    assert workloads.make("mlp").shape == (1024, 2048, 1024, 3072)
    assert workloads.get("gmm").usage == "M,K,N[,batch]"


def test_long_sums_are_exact_so_that_one_lost_term_of_many_is_seen():
    instance = workloads.make("gmm", (3, 1 << 16, 5))
    a, b = instance.inputs(np.random.default_rng(0))
    right = (a.astype("float64") @ b).astype("float32")
    assert instance.check((right,), (a, b)) == (0.0, 0.0, True)
    last = np.flatnonzero((a[0] != 0) & (b[:, 0] != 0))[-1]
    right[0, 0] -= a[0, last] * b[last, 0]
    assert not instance.check((right,), (a, b)).ok


def test_a_bound_within_which_any_result_is_is_refused():
    instance = workloads.make("gmm", (3, 1 << 16, 5))
    rng = np.random.default_rng(0)
    inputs = tuple(rng.uniform(-1, 1, a.shape).astype("float32") for a in instance.inputs(rng))
    with pytest.raises(ValueError, match=r"^rounding may change results in float32 by more than 0.1 of their scale; use a wider"):
        instance.checker(inputs)


@pytest.mark.parametrize("name", workloads.names())
def test_zeros_a_sign_and_other_elements_are_refused(name):
    for dtype in ("float32", "float64"):
        instance = workloads.make(name, SHAPES[name][0], dtype)
        inputs, outputs = instance.inputs(np.random.default_rng(6)), instance.outputs()
        instance.numpy(inputs, outputs)
        check = instance.checker(inputs)
        assert check(outputs).ok
        for wrong in (0 * outputs[0], -outputs[0], np.roll(outputs[0].ravel(), 1).reshape(outputs[0].shape)):
            assert np.array_equal(wrong, outputs[0]) or not check((wrong,)).ok
