"""Random networks in ONNX: the nodes that are drawn. Each function draws one, or a few that belong together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np
from onnx import TensorProto, helper

from tir import dtypes

from .models import onnxruntime
from .random_graphs import EXTENTS, FLOATS, INTEGERS, Case, Drawing, Dropped

NODES = 12  # the most that are drawn, without those that belong to them
UNDRAWABLE = (IndexError, ValueError)  # of choices from nothing, where an extent is 0


def unary(d: Drawing) -> str:
    operator, attributes = d.one(
        [
            ("Relu", {}), ("Tanh", {}), ("Sigmoid", {}), ("Abs", {}), ("Neg", {}), ("Exp", {}), ("Erf", {}), ("HardSwish", {}),
            ("HardSigmoid", {"alpha": 0.25}), ("LeakyRelu", {"alpha": 0.1}), ("Elu", {}), ("Softplus", {}), ("Identity", {}),
            ("Gelu", {}), ("Gelu", {"approximate": "tanh"}), ("Softsign", {}), ("Sin", {}), ("Mish", {}), ("Selu", {}),
        ]
    )  # fmt: skip
    return d.add(operator, [d.some()], **attributes)


def clip(d: Drawing) -> str:
    low, high = (d.weight(dtype=d.dtype, low=a, high=b) if d.chance(0.8) else "" for a, b in ((-0.6, -0.5), (0.5, 6.0)))
    return d.add("Clip", [d.some(), low, high])


def broadcast(d: Drawing, shape: Sequence[int], dtype: str) -> str:
    """An operand that goes with this shape: of the same one, or spread to it, or beyond it."""
    same = [n for n, a in d.values.items() if a.dtype == dtype and a.shape == shape]
    if same and d.chance(0.4):
        return d.one(same)
    other = [1 if d.chance(0.35) else e for e in shape][int(d.rng.integers(len(shape) + 1)) if d.chance(0.5) else 0 :]
    if d.chance(0.1) and len(other) < 4:
        other = [int(d.one(EXTENTS)), *other]
    wanted = tuple(other)
    fits = [n for n, a in d.values.items() if a.dtype == dtype and a.shape == wanted]
    if fits and d.chance(0.5):
        return d.one(fits)
    return d.weight(*wanted, dtype=dtype)


def pair(d: Drawing, x: str) -> list[str]:
    inputs = [x, broadcast(d, d.values[x].shape, d.values[x].dtype.name)]
    return inputs if d.chance(0.6) else inputs[::-1]


def binary(d: Drawing) -> str:
    return d.add(d.one(["Add", "Sub", "Mul", "Max", "Min", "Add", "Mul", "Sum", "Mean"]), pair(d, d.some()))


def division(d: Drawing) -> str:
    x = d.some()
    shape = d.one([(), (1,), d.values[x].shape])
    if d.chance(0.3):
        positive = d.add("Add", [d.add("Abs", [x]), d.constant(np.asarray(1.0, d.dtype))])
        return d.add(d.one(["Sqrt", "Reciprocal", "Log"]), [positive])
    if d.chance(0.3):
        return d.add("Pow", [x, d.constant(np.asarray(d.one([1.0, 2.0, 3.0]), d.dtype))])
    return d.add("Div", [x, d.weight(*shape, low=0.5, high=2.0)])


def where(d: Drawing) -> str:
    x = d.some()
    shape = d.values[x].shape
    return d.add("Where", [mask(d, shape), *pair(d, x)])


def mask(d: Drawing, shape: Sequence[int]) -> str:
    wanted = tuple(1 if d.chance(0.3) else e for e in shape)
    return d.input(wanted, "bool") if d.chance(0.5) else d.constant(d.array(wanted, "bool"))


def silu(d: Drawing) -> str:
    x = d.some()
    return d.add("Mul", [x, d.add(d.one(["Sigmoid", "HardSigmoid", "Tanh", "Softplus"]), [x])])


def gelu(d: Drawing) -> str:
    x = d.some()
    gate = d.add("Erf", [d.add("Div", [x, d.constant(np.asarray(2**0.5, d.dtype))])])
    gate = d.add("Add", [gate, d.constant(np.asarray(1.0, d.dtype))])
    return d.add("Mul", [d.add("Mul", [x, gate]), d.constant(np.asarray(d.one([0.5, 0.5, 0.3]), d.dtype))])


def written_norm(d: Drawing) -> str:
    """A layer norm from its parts, some of which are read again."""
    x = d.some(2, 3, 4)
    axes = d.constant([d.one([-1, d.values[x].ndim - 1, 1])])
    centred = d.add("Sub", [x, d.add("ReduceMean", [x, axes])])
    square = d.one(
        [lambda: d.add("Mul", [centred, centred]), lambda: d.add("Pow", [centred, d.constant(np.asarray(2.0, d.dtype))])]
    )()
    spread = d.add("Add", [d.add("ReduceMean", [square, axes]), d.constant(np.asarray(0.1, d.dtype))])
    y = d.add("Div", [centred, d.add("Sqrt", [spread])])
    shape = d.values[x].shape[-1:]
    return d.add("Add", [d.add("Mul", [y, d.weight(*shape)]), d.weight(*shape)])


def written_softmax(d: Drawing) -> str:
    x = d.some(1, 2, 3, 4)
    axes = d.constant([int(d.rng.integers(d.values[x].ndim))])
    e = d.add("Exp", [d.add("Sub", [x, d.add("ReduceMax", [x, axes])])])
    return d.add("Div", [e, d.add("ReduceSum", [e, axes])])


def window(d: Drawing, shape: Sequence[int], least: int = 1) -> dict:
    """Attributes of a kernel that fits into an image of this shape."""
    sizes = [int(min(e, d.one([1, 2, 3, 3]))) for e in shape]
    dilations = [d.one([1, 1, 1, 2]) if 2 * k - 1 <= e else 1 for k, e in zip(sizes, shape, strict=True)]
    pads = [[int(d.rng.integers(0, k)) for k in sizes] for _ in range(2)]
    if d.chance(0.5):
        pads = [[k // 2 for k in sizes]] * 2
    strides = [d.one([1, 1, 2, 3]) for _ in shape]
    return {"kernel_shape": sizes, "dilations": dilations, "pads": pads[0] + pads[1], "strides": strides}


def conv(d: Drawing) -> str:
    x = d.some(3, 4, 4, 5)
    channels, image = d.values[x].shape[1], d.values[x].shape[2:]
    group = d.divisor(channels)
    outer = group * d.one([1, 1, 2, 3])
    attributes = window(d, image)
    if d.chance(0.15):
        w = d.weight(channels, outer // group, *attributes["kernel_shape"])
        y = d.add("ConvTranspose", [x, w], group=group, **attributes)
    else:
        if d.chance(0.1):
            del attributes["pads"]
            attributes["auto_pad"] = d.one(["SAME_UPPER", "SAME_LOWER", "VALID"])
        inputs = [x, d.weight(outer, channels // group, *attributes["kernel_shape"])]
        y = d.add("Conv", [*inputs, d.weight(outer)] if d.chance(0.5) else inputs, group=group, **attributes)
    if d.chance(0.4):
        y = batch_norm(d, y)
    if d.chance(0.3):
        y = d.add("Add", pair(d, y))
    return d.add("Relu", [y]) if d.chance(0.3) else y


def batch_norm(d: Drawing, x: str = "") -> str:
    x = x or d.some(2, 3, 4)
    n = d.values[x].shape[1]
    return d.add(
        "BatchNormalization", [x, d.weight(n), d.weight(n), d.weight(n), d.weight(n, low=0.5, high=2.0)], epsilon=2.0**-10
    )


def pool(d: Drawing) -> str:
    x = d.some(3, 4, 4)
    attributes = window(d, d.values[x].shape[2:])
    if d.chance(0.2):
        return d.add(d.one(["GlobalAveragePool", "GlobalMaxPool"]) if d.values[x].ndim == 4 else "GlobalAveragePool", [x])
    if d.chance(0.5):  # of uneven pads, and of ceil_mode, the evaluator makes other shapes than the standard
        half = [k // 2 for k in attributes["kernel_shape"]]
        return d.add("MaxPool", [x], **attributes | {"pads": half * 2, "dilations": [1] * len(half)})
    return d.add("AveragePool", [x], count_include_pad=d.one([0, 1]), ceil_mode=int(d.chance(0.2)), **attributes)


def matmul(d: Drawing) -> str:
    x = d.some(1, 2, 3, 4)
    *batch, k = d.values[x].shape
    n = d.one(EXTENTS)
    fits = [m for m, a in d.values.items() if a.ndim and a.dtype == d.dtype and a.shape[-2 if a.ndim > 1 else 0] == k]
    if fits and d.chance(0.4):
        y = d.add("MatMul", [x, d.one(fits)])
    else:
        lead = [1 if d.chance(0.4) else e for e in batch[:-1]] if d.chance(0.4) else []
        y = d.add("MatMul", [x, d.weight(*d.one([(*lead, k, n), (k, n), (k,)]))])
    return d.add("Add", pair(d, y)) if d.chance(0.5) else y


def gemm(d: Drawing) -> str:
    x = d.some(2)
    ta, tb = int(d.chance(0.3)), int(d.chance(0.5))
    k, m = d.values[x].shape if ta else d.values[x].shape[::-1]
    n = d.one(EXTENTS)
    inputs = [x, d.weight(*((n, k) if tb else (k, n)))]
    if d.chance(0.7):
        inputs.append(d.weight(*d.one([(), (1,), (n,), (m, n), (m, 1), (1, n)])))
    factors = {a: d.one([1.0, 1.0, 0.5, 0.0]) for a in ("alpha", "beta")}
    return d.add("Gemm", inputs, transA=ta, transB=tb, **factors)


def anything(d: Drawing, *ranks: int) -> str:
    """A value of any element type."""
    return d.some(*ranks, dtype=d.one([d.dtype] * 4 + ["int64", "bool", "float32"]))


def transpose(d: Drawing) -> str:
    x = anything(d, 1, 2, 3, 4)
    return d.add("Transpose", [x], perm=d.rng.permutation(d.values[x].ndim).tolist())


def reshape(d: Drawing) -> str:
    x = anything(d)
    rest, shape = d.values[x].size, []
    for _ in range(d.one([0, 1, 1, 2, 3]) if rest == 1 else d.one([0, 1, 2, 3])):
        shape.append(int(d.one([e for e in range(1, rest + 1) if rest % e == 0])))
        rest //= shape[-1]
    if rest > 1 or d.chance(0.2):
        shape.append(d.one([rest, -1]))
    if d.chance(0.15):
        return d.add("Flatten", [x], axis=int(d.rng.integers(d.values[x].ndim + 1)))
    return d.add("Reshape", [x, d.constant(np.array(shape, "int64"))])


def unit(d: Drawing) -> str:
    x = anything(d)
    ones = [n for n, e in enumerate(d.values[x].shape) if e == 1]
    if ones and d.chance(0.5):
        return d.add("Squeeze", [x, d.constant([d.one(ones)])])
    return d.add("Unsqueeze", [x, d.constant([int(d.rng.integers(d.values[x].ndim + 1))])])


def concat(d: Drawing) -> str:
    x = anything(d, 1, 2, 3, 4)
    a = d.values[x]
    axis = int(d.rng.integers(a.ndim)) if d.chance(0.6) else 0
    other = a.shape[:axis] + a.shape[axis + 1 :]
    fits = [
        n for n, b in d.values.items()
        if b.dtype == a.dtype and b.ndim == a.ndim and b.shape[:axis] + b.shape[axis + 1 :] == other
    ]  # fmt: skip
    parts = [x, *(d.one(fits) for _ in range(d.one([0, 1, 1, 2, 3])))]
    if d.chance(0.3):
        parts.append(d.weight(*a.shape[:axis], d.one([1, 2, 3]), *a.shape[axis + 1 :], dtype=a.dtype.name))
    d.rng.shuffle(parts)
    return d.add("Concat", parts, axis=axis - d.one([0, a.ndim]))


def split(d: Drawing) -> str:
    x = d.some(1, 2, 3, 4, dtype=d.one([d.dtype] * 3 + ["int64"]), suits=lambda a: max(a.shape) > 1)
    shape = d.values[x].shape
    axis = int(d.one([n for n, e in enumerate(shape) if e > 1] or [0]))
    at = int(d.rng.integers(1, max(shape[axis], 2))) if shape[axis] else 0
    sizes = [s for s in (at, shape[axis] - at) if s] or [0]
    first = d.add("Split", [x, d.constant(sizes)], count=len(sizes), axis=axis)
    return d.add("Mul", [first, f"{first}_1"]) if len(sizes) == 2 and sizes[0] == sizes[1] and d.chance(0.5) else first


def cut(d: Drawing) -> str:
    x = anything(d, 1, 2, 3, 4)
    shape = d.values[x].shape
    axes = [n for n in range(len(shape)) if d.chance(0.6)] or [0]
    steps = [d.one([1, 1, 1, 2, -1, -2]) for _ in axes]
    begins = [int(d.rng.integers(shape[a])) if d.chance(0.6) else (0 if s > 0 else -1) for a, s in zip(axes, steps, strict=True)]
    ends = [d.one([1000, shape[a], -1 if shape[a] > 2 else 1000]) if s > 0 else -1000 for a, s in zip(axes, steps, strict=True)]
    return d.add("Slice", [x, *map(d.constant, (begins, ends, axes, steps))])


def pad(d: Drawing) -> str:
    x = d.some(1, 2, 3, 4, dtype=d.one([d.dtype] * 3 + ["int64"]))
    a = d.values[x]
    mode = d.one(["constant", "constant", "edge", "reflect", "wrap"])
    low = -1 if mode == "constant" and d.chance(0.3) else 0
    pads = [int(d.rng.integers(low, 3 if mode != "reflect" else min(3, e))) for e in a.shape * 2]
    inputs = [x, d.constant(pads)]
    if mode == "constant" and d.chance(0.5):
        inputs.append(d.constant(np.asarray(d.one([0, 1, -1]), a.dtype)))
    return d.add("Pad", inputs, mode=mode)


def gather(d: Drawing) -> str:
    x = anything(d, 1, 2, 3)
    axis = int(d.rng.integers(d.values[x].ndim))
    extent = d.values[x].shape[axis]
    indices = d.rng.integers(-extent, extent, d.one([(), (1,), (3,), (2, 2)]))
    return d.add("Gather", [x, d.constant(indices)], axis=axis)


def spread(d: Drawing) -> str:
    x = anything(d, 0, 1, 2, 3)
    shape = d.values[x].shape
    if d.chance(0.4):
        return d.add("Tile", [x, d.constant(np.array([d.one([1, 1, 2, 3]) for _ in shape], "int64"))])
    wanted = [d.one(EXTENTS) if e == 1 else e for e in shape]
    return d.add("Expand", [x, d.constant(np.array(d.one([wanted, [d.one([1, 2, 3]), *wanted]]), "int64"))])


def reduction(d: Drawing) -> str:
    operator = d.one(
        [
            "ReduceMean",
            "ReduceMean",
            "ReduceSum",
            "ReduceMax",
            "ReduceMin",
            "ReduceL2",
            "ReduceSumSquare",
            "ReduceL1",
            "ReduceLogSumExp",
        ]
    )
    x = d.some()
    axes = [n for n in range(d.values[x].ndim) if d.chance(0.5)]
    if operator == "ReduceL2":
        x = d.add("Add", [d.add("Abs", [x]), d.constant(np.asarray(1.0, d.dtype))])
    inputs = [x, d.constant(axes)] if axes else [x]
    return d.add(operator, inputs, keepdims=d.one([0, 1]))


def softmax(d: Drawing) -> str:
    x = d.some(1, 2, 3, 4)
    return d.add(d.one(["Softmax", "Softmax", "LogSoftmax"]), [x], axis=int(d.rng.integers(-d.values[x].ndim, d.values[x].ndim)))


def norm(d: Drawing) -> str:
    x = d.some(2, 3, 4)
    shape = d.values[x].shape
    if d.chance(0.3) and len(shape) > 2:
        return d.add("InstanceNormalization", [x, d.weight(shape[1]), d.weight(shape[1])], epsilon=0.1)
    axis = int(d.one([-1, -1, d.rng.integers(len(shape))]))
    inputs = [x, d.weight(*shape[axis:])]
    return d.add("LayerNormalization", [*inputs, d.weight(*shape[axis:])] if d.chance(0.6) else inputs, axis=axis, epsilon=0.1)


def integers(d: Drawing) -> str:
    x = d.some(dtype=d.one(INTEGERS))
    match d.one(["binary", "compare", "cast", "reduce", "argmax", "where"]):
        case "binary":
            return d.add(d.one(["Add", "Sub", "Mul", "Max", "Min"]), pair(d, x))
        case "compare":
            return d.add(d.one(["Less", "Equal", "GreaterOrEqual"]), pair(d, x))
        case "cast":
            return d.add("Cast", [x], to=helper.np_dtype_to_tensor_dtype(np.dtype(d.one([*FLOATS, *INTEGERS]))))
        case "reduce":
            return d.add(d.one(["ReduceSum", "ReduceMax", "ReduceMin"]), [x], keepdims=d.one([0, 1]))
        case "argmax":
            if d.values[x].ndim == 0:
                raise Dropped("ArgMax")
            return d.add(d.one(["ArgMax", "ArgMin"]), [x], axis=int(d.rng.integers(d.values[x].ndim)), keepdims=d.one([0, 1]))
    return d.add("Where", [mask(d, d.values[x].shape), *pair(d, x)])


def logic(d: Drawing) -> str:
    x = d.some(dtype="bool")
    if d.chance(0.3):
        return d.add("Not", [x])
    if d.chance(0.4):
        return d.add("Cast", [x], to=helper.np_dtype_to_tensor_dtype(np.dtype(d.one([d.dtype, "int64"]))))
    return d.add(d.one(["And", "Or", "Xor"]), pair(d, x))


def cast(d: Drawing) -> str:
    return d.add("Cast", [d.some(dtype=d.one(FLOATS))], to=helper.np_dtype_to_tensor_dtype(np.dtype(d.dtype)))


# Operators of one float that are told apart by attributes alone.
ACTIVATIONS: tuple[tuple[str, dict], ...] = (
    ("Celu", {"alpha": 0.5}), ("Elu", {"alpha": 0.25}), ("Selu", {"alpha": 1.5, "gamma": 1.25}), ("Softplus", {}), ("Mish", {}),
    ("HardSwish", {}), ("LeakyRelu", {"alpha": 0.125}), ("Softsign", {}), ("Gelu", {}), ("Gelu", {"approximate": "tanh"}),
    ("Shrink", {"lambd": 0.5, "bias": 0.25}), ("ThresholdedRelu", {"alpha": 0.25}), ("HardSigmoid", {"alpha": 0.25}), ("Sign", {}),
    ("Floor", {}), ("Ceil", {}), ("Round", {}), ("Sin", {}), ("Cos", {}), ("Atan", {}), ("Asinh", {}), ("Sinh", {}), ("Cosh", {}),
    ("Sigmoid", {}), ("Tanh", {}), ("Relu", {}), ("Exp", {}), ("IsNaN", {}), ("IsInf", {}), ("IsInf", {"detect_negative": 0}),
    ("Abs", {}), ("Neg", {}), ("Identity", {}), ("LpNormalization", {"p": 1, "axis": -1}), ("MeanVarianceNormalization", {"axes": [-1]}),
    ("LRN", {"size": 3}), ("Hardmax", {}), ("Softmax", {"axis": 0}), ("LogSoftmax", {"axis": -1}),
    ("SpaceToDepth", {"blocksize": 2}), ("DepthToSpace", {"blocksize": 2}),
    ("DepthToSpace", {"blocksize": 2, "mode": "CRD"}), ("Trilu", {}), ("Trilu", {"upper": 0}),
    ("Sqrt", {}), ("Log", {}), ("Reciprocal", {}), ("Erf", {}), ("ReduceProd", {}),
)  # fmt: skip
REDUCTIONS = ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")
COMPARISONS = ("Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Equal")


def activation(d: Drawing) -> str:
    operator, attributes = d.one(ACTIVATIONS)
    ranks = {"Trilu": (2, 3, 4), "LpNormalization": (1, 2, 3, 4), "MeanVarianceNormalization": (1, 2, 3, 4)}
    x = d.some(*ranks.get(operator, ()))
    channels, *image = d.values[x].shape[1:] or (1,)
    if (operator == "DepthToSpace" and channels % 4) or (operator == "SpaceToDepth" and any(e % 2 for e in image)):
        raise Dropped(operator)  # a reference may take it where there are no elements
    return d.add(operator, [x], **attributes)


def operator_of_two(d: Drawing) -> str:
    x = d.some()
    match d.one(["compare", "compare", "mod", "prelu", "cumsum", "max"]):
        case "compare":
            return d.add(d.one(COMPARISONS), pair(d, x))
        case "mod":
            return d.add("Mod", [x, d.weight(low=0.5, high=2.0)], fmod=1)
        case "prelu":
            return d.add("PRelu", [x, d.weight(*d.values[x].shape[-1:])])
        case "cumsum":
            axis = d.constant(np.asarray(d.axis(x)))
            return d.add("CumSum", [x, axis], exclusive=d.one([0, 1]), reverse=d.one([0, 1]))
    return d.add(d.one(["Max", "Min", "Sum", "Mean"]), [*pair(d, x), x])


def any_reduction(d: Drawing) -> str:
    x = d.some(1, 2, 3, 4, dtype=d.one([d.dtype] * 3 + ["int32"]))
    axes = [n for n in range(d.values[x].ndim) if d.chance(0.5)]
    inputs = [x, d.constant(np.array(axes, "int64"))] if axes or d.chance(0.3) else [x]
    operator = d.one(REDUCTIONS if dtypes.is_float(d.values[x].dtype.name) else ("Max", "Min", "Prod", "Sum"))
    return d.add(f"Reduce{operator}", inputs, keepdims=d.one([0, 1]), noop_with_empty_axes=d.one([0, 0, 1]))


def chosen(d: Drawing) -> str:
    """The largest or the smallest elements, or where they are."""
    x = d.some(1, 2, 3)
    axis = d.axis(x)
    if d.chance(0.5):
        return d.add(d.one(["ArgMax", "ArgMin"]), [x], axis=axis, keepdims=d.one([0, 1]), select_last_index=d.one([0, 1]))
    extent = d.values[x].shape[axis]
    k = d.constant([min(int(d.rng.integers(1, max(extent, 1) + 1)), extent)])
    return d.add("TopK", [x, k], count=2, axis=axis, largest=d.one([0, 1]))


def on_a_tie(extent: int, size: int, whole: bool, half_pixel: bool) -> bool:
    """Some pixel is as near to two others, or (`whole`) just on one, and the reference's scale, which is rounded, decides."""
    scale = Fraction(size, extent)
    exact = scale.denominator & (scale.denominator - 1) == 0
    places = (2 * (n + Fraction(half_pixel, 2)) / scale - half_pixel for n in range(size) if n or half_pixel)  # in halves
    return not exact and any(place.denominator == 1 and (place % 2 == 0) is whole for place in places)


def resize(d: Drawing) -> str:
    x = d.some(3, 4)
    extents = d.values[x].shape[2:]
    scales = [d.one([0.5, 1.0, 1.5, 2.0]) for _ in extents]
    mode = d.one(["nearest", "linear", "cubic"])
    how = d.one(["half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"])
    attributes: dict = {"mode": mode, "coordinate_transformation_mode": how}
    if mode == "nearest":
        attributes["nearest_mode"] = d.one(["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"])
    elif mode == "cubic":
        attributes |= {"cubic_coeff_a": d.one([-0.75, -0.5]), "exclude_outside": d.one([0, 1])}
    sizes = [d.one([1, 2, 3, 5, 8]) for _ in extents] if d.chance(0.3) else []
    lengths = sizes or [int(e * s) for e, s in zip(extents, scales, strict=True)]
    if mode == "cubic" and how == "pytorch_half_pixel" and 1 in lengths:  # the standard begins at 0, a reference at -0.5
        raise Dropped("Resize")
    if not sizes:
        if mode == "linear" and d.chance(0.3):
            attributes["antialias"] = 1
        return d.add("Resize", [x, "", d.constant(np.array([1.0, 1.0, *scales], "float32"))], **attributes)
    if 0 in extents:  # of nothing only nothing can be made
        raise Dropped("Resize")
    whole = attributes.get("nearest_mode") in ("floor", "ceil")
    if mode == "nearest" and any(on_a_tie(*ends, whole, "half" in how) for ends in zip(extents, sizes, strict=True)):
        raise Dropped("Resize")
    return d.add("Resize", [x, "", "", d.constant([*d.values[x].shape[:2], *sizes])], **attributes)


def sampled(d: Drawing) -> str:
    x = d.some(4)
    grid = d.weight(d.values[x].shape[0], d.one([1, 2, 3]), d.one([1, 2, 4]), 2, low=-1.25, high=1.25)
    modes = {"mode": d.one(["linear", "nearest", "cubic"]), "padding_mode": d.one(["zeros", "border", "reflection"])}
    if onnxruntime is None and modes == {"mode": "cubic", "padding_mode": "border"}:  # ONNX's evaluator clamps points, not pixels
        raise Dropped("GridSample")
    return d.add("GridSample", [x, grid], align_corners=d.one([0, 1]), **modes)


def scattered(d: Drawing) -> str:
    """Elements that are read from, or written to, places of their own."""
    x = d.some(1, 2, 3)
    a, axis = d.values[x], d.axis(x)
    extent = a.shape[axis]
    places = d.constant(d.rng.integers(-extent, extent, a.shape))
    match d.one(["elements", "nd", "scatter", "scatter nd", "one hot", "reverse"]):
        case "elements":
            return d.add("GatherElements", [x, places], axis=axis)
        case "nd":
            return d.add("GatherND", [x, d.constant(d.rng.integers(0, a.shape[0], (d.one([1, 3]), 1)))])
        case "scatter":
            once = d.constant(np.broadcast_to(np.arange(extent).reshape(-1, *[1] * (a.ndim - 1 - axis)), a.shape).copy())
            how = d.one(["none", "add", "mul", "max", "min"])
            return d.add("ScatterElements", [x, once if how == "none" else places, d.weight(*a.shape)], axis=axis, reduction=how)
        case "scatter nd":
            rows = d.rng.permutation(a.shape[0])[: d.one([1, 2])].reshape(-1, 1)
            how = d.one(["none", "add", "mul", "max", "min"])
            return d.add("ScatterND", [x, d.constant(rows), d.weight(len(rows), *a.shape[1:])], reduction=how)
        case "one hot":
            depth = d.constant(np.asarray(d.one([2, 4])))
            return d.add("OneHot", [d.constant(d.rng.integers(-3, 5, (3,))), depth, d.constant(np.array([0, 1], d.dtype))])
    time = min(axis, 1)
    lengths = d.constant(d.rng.integers(1, max(a.shape[time], 1) + 1, a.shape[1 - time] if a.ndim > 1 else 1))
    return d.add("ReverseSequence", [x, lengths], time_axis=time, batch_axis=1 - time)


def any_norm(d: Drawing) -> str:
    x = d.some(2, 3, 4)
    shape = d.values[x].shape
    if d.chance(0.5):
        return d.add("RMSNormalization", [x, d.weight(shape[-1])], epsilon=0.125)
    return d.add("GroupNormalization", [x, d.weight(shape[1]), d.weight(shape[1])], epsilon=0.125, num_groups=d.divisor(shape[1]))


def attention(d: Drawing) -> str:
    x = d.some(4)
    batch, heads, _, size = d.values[x].shape
    if 0 in (heads, size):  # the standard writes it out with shapes in which 0 is another extent
        raise Dropped("Attention")
    length, outer, kept = d.one([1, 2, 5]), d.one([size, 3]), d.divisor(heads)
    inputs = [x, d.weight(batch, kept, length, size), d.weight(batch, kept, length, outer)]
    if d.chance(0.3):
        inputs.append(d.constant(d.array((d.values[x].shape[2], length), "bool")))
    elif d.chance(0.3):  # opsets differ in whether the mask comes before it
        return d.add("Attention", inputs, softcap=2.0)
    return d.add("Attention", inputs, is_causal=d.one([0, 0, 1]), **d.one([{}, {"scale": 0.5}]))


def recurrent(d: Drawing) -> str:
    operator, gates = d.one([("RNN", 1), ("GRU", 3), ("LSTM", 4)])
    x = d.some(3)
    steps, batch, size = d.values[x].shape
    if not steps * batch * size:  # onnxruntime aborts
        raise Dropped(operator)
    direction, hidden = d.one(["forward", "reverse", "bidirectional"]), d.one([1, 3, 4])
    ways = 1 + (direction == "bidirectional")
    inputs = [x, d.weight(ways, gates * hidden, size), d.weight(ways, gates * hidden, hidden)]
    optional = [d.weight(ways, 2 * gates * hidden), d.constant(d.rng.integers(1, max(steps, 1) + 1, batch).astype("int32"))]
    if d.dtype != "float32" or onnxruntime is None:  # ONNX's evaluator does not read lengths
        optional[1] = ""
    inputs += [name if d.chance(0.5) else "" for name in (*optional, d.weight(ways, batch, hidden))]
    attributes = {"linear_before_reset": d.one([0, 1])} if operator == "GRU" else {}
    return d.add(operator, inputs, count=2, direction=direction, hidden_size=hidden, **attributes)


def scale(d: Drawing, *shape: int) -> str:
    return d.constant(d.rng.choice([0.0625, 0.125, 0.1, 0.03, 0.25], shape).astype("float32"))


def zero(d: Drawing, dtype: str, *shape: int) -> str:
    return d.constant(d.rng.integers(0 if dtype[0] == "u" else -3, 4, shape).astype(dtype))


def quantised(d: Drawing) -> str:
    """An operator of integers of 8 bits with scales, of the whole tensor or by channel; its result is made a float again, or not."""
    kinds = ("int8", "uint8")
    match d.one(["quantise", "quantise", "dynamic", "dequantise", "matmul", "conv", "matmul integer", "conv integer"]):
        case "quantise":
            x, to = d.some(1, 2, 3, 4), d.one(kinds)
            axis = d.axis(x)
            shape = d.one([(), d.values[x].shape[axis : axis + 1]])
            by = [d.constant(d.values[scale(d, *shape)].astype(d.dtype)), zero(d, to, *shape)]
            q = d.add("QuantizeLinear", [x, *by], axis=axis)
            return d.add("DequantizeLinear", [q, *by], axis=axis) if d.chance(0.6) else q
        case "dynamic":
            x = d.some(dtype="float32")
            if not d.values[x].any():  # the standard gives no scale
                raise Dropped("DynamicQuantizeLinear")
            q = d.add("DynamicQuantizeLinear", [x], count=3)
            return d.add("DequantizeLinear", [q, f"{q}_1", f"{q}_2"]) if d.chance(0.6) else q
        case "dequantise":
            x = d.some(1, 2, 3, dtype=d.one([*kinds, "int32"]))
            axis = d.axis(x)
            shape = d.one([(), d.values[x].shape[axis : axis + 1]])
            zeros = [zero(d, d.values[x].dtype.name, *shape)] if d.values[x].dtype != np.int32 else []
            return d.add("DequantizeLinear", [x, scale(d, *shape), *zeros], axis=axis)
        case "matmul" | "matmul integer" as which:
            x, other, n = d.some(2, 3, dtype=d.one(kinds)), d.one(kinds), d.one(EXTENTS)
            kind = d.values[x].dtype.name
            w, shape = d.constant(d.array((d.values[x].shape[-1], n), other)), d.one([(), (n,)])
            if which == "matmul":
                out = [scale(d), zero(d, kind)]
                return d.add("QLinearMatMul", [x, scale(d), zero(d, kind), w, scale(d, *shape), zero(d, other, *shape), *out])
            y = d.add("MatMulInteger", [x, w, zero(d, kind), zero(d, other, *shape)][: d.one([2, 3, 4])])
            return d.add("Mul", [d.add("Cast", [y], to=TensorProto.FLOAT), scale(d)]) if d.chance(0.5) else y
    x, other = d.some(4, dtype=d.one(kinds)), d.one(kinds)
    kind, channels = d.values[x].dtype.name, d.values[x].shape[1]
    group, window_ = d.divisor(channels), window(d, d.values[x].shape[2:])
    outer = group * d.one([1, 2])
    w, shape = d.constant(d.array((outer, channels // group, *window_["kernel_shape"]), other)), d.one([(), (outer,)])
    if d.chance(0.5):
        out = [scale(d), zero(d, kind), *([d.constant(d.array((outer,), "int32"))] if d.chance(0.5) else [])]
        by = [x, scale(d), zero(d, kind), w, scale(d, *shape), d.constant(np.zeros(shape, other)), *out]
        return d.add("QLinearConv", by, group=group, **window_)
    return d.add("ConvInteger", [x, w, zero(d, kind), zero(d, other)][: d.one([2, 3, 4])], group=group, **window_)


KINDS: tuple[tuple[Callable[[Drawing], str], int], ...] = (
    (unary, 4), (clip, 1), (binary, 8), (division, 2), (where, 1), (silu, 1), (gelu, 1), (written_norm, 1), (written_softmax, 1),
    (conv, 5), (batch_norm, 2), (pool, 2), (matmul, 4), (gemm, 2), (transpose, 3), (reshape, 3), (unit, 1), (concat, 3), (split, 2),
    (cut, 2), (pad, 1), (gather, 1), (spread, 1), (reduction, 3), (softmax, 1), (norm, 1), (integers, 2), (logic, 1), (cast, 1),
    (activation, 8), (operator_of_two, 3), (any_reduction, 4), (chosen, 2), (resize, 2), (sampled, 1), (scattered, 4), (any_norm, 2),
    (attention, 2), (recurrent, 2), (quantised, 8),
)  # fmt: skip


def drawn(rng: np.random.Generator) -> Case:
    """A random network."""
    d = Drawing(rng)
    d.input(d.shape(d.one([2, 3, 4, 4])))
    shares = np.array([share for _, share in KINDS], float)
    wanted = int(rng.integers(1, (NODES if not d.special else 3) + 1))
    made = 0
    for _ in range(4 * wanted):
        make, _share = KINDS[int(rng.choice(len(KINDS), p=shares / shares.sum()))]
        try:
            with np.errstate(all="ignore"):
                make(d)
            made += 1
        except (Dropped, *UNDRAWABLE):
            continue
        if made == wanted:
            break
    read = {name for node in d.nodes for name in node.input}
    inner = [name for name, array in d.values.items() if name in read]
    outputs = [n for n in d.values if n not in read and n not in d.constants]
    outputs += [n for n in inner if rng.random() < 0.1]
    rng.shuffle(outputs)
    return d.case(outputs or [next(iter(d.values))])
