"""Random networks in ONNX: chains and diamonds of what networks are made of, on small odd shapes.

Each node is run by ONNX's evaluator as it is drawn, so that the shapes and the values of all that is there are known; a node whose
result is too large, or not finite, is dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import helper

from graph.onnx.importer import FOLDING_ERRORS

from .models import exact, model

OPSET = 20
NODES = 12  # the most that are drawn, without those that belong to them
MAX_ELEMENTS = 1500  # of a value
MAX_MAGNITUDE = 100.0  # of an element
EXTENTS = (1, 2, 3, 4, 5, 7, 9)
FLOATS, INTEGERS = ("float64", "float32"), ("int64", "int32")


@dataclass(frozen=True)
class Case:
    """A network with inputs; `values` are the arrays of all values by ONNX's evaluator."""

    nodes: tuple[onnx.NodeProto, ...]
    inputs: dict[str, np.ndarray]
    constants: dict[str, np.ndarray]
    outputs: tuple[str, ...]
    values: dict[str, np.ndarray] = field(repr=False)

    def proto(self) -> onnx.ModelProto:
        return model(list(self.nodes), self.inputs, self.outputs, self.constants, OPSET)

    def __str__(self) -> str:
        def named(arrays: dict[str, np.ndarray]) -> str:
            return ", ".join(f"{n}: {a.dtype.name}{list(a.shape)}" for n, a in arrays.items())

        lines = [f"inputs {named(self.inputs)}", f"constants {named(self.constants)}", *map(_node_text, self.nodes)]
        return "\n".join([*lines, f"outputs {', '.join(self.outputs)}"])


def _node_text(node: onnx.NodeProto) -> str:
    attributes = "".join(f", {a.name}={helper.get_attribute_value(a)}" for a in node.attribute)
    return f"{', '.join(node.output)} = {node.op_type}({', '.join(node.input)}{attributes})"


def needed(case: Case, outputs: Sequence[str], cut: Sequence[str] = ()) -> Case:
    """What is needed of a network for some of its values, with the values `cut` as inputs."""
    read, nodes = set(outputs), list[onnx.NodeProto]()
    for node in reversed(case.nodes):
        if any(n in read and n not in cut for n in node.output):
            read |= set(node.input)
            nodes.insert(0, node)
    inputs = {n: a for n, a in case.values.items() if n in read and (n in case.inputs or n in cut)}
    constants = {n: a for n, a in case.constants.items() if n in read and n not in inputs}
    return Case(tuple(nodes), inputs, constants, tuple(outputs), case.values)


class Drawing:
    """A network that is being drawn."""

    def __init__(self, rng: np.random.Generator):
        self.rng = rng
        self.dtype = str(rng.choice(FLOATS))
        self.nodes: list[onnx.NodeProto] = []
        self.inputs: dict[str, np.ndarray] = {}
        self.constants: dict[str, np.ndarray] = {}
        self.values: dict[str, np.ndarray] = {}

    # --- choices -------------------------------------------------------------------------------------------------------

    def one(self, choices):
        return choices[int(self.rng.integers(len(choices)))]

    def chance(self, share: float) -> bool:
        return bool(self.rng.random() < share)

    def shape(self, rank: int) -> tuple[int, ...]:
        return tuple(int(self.one(EXTENTS)) for _ in range(rank))

    def array(self, shape: Sequence[int], dtype: str, low: float = -1.0, high: float = 1.0) -> np.ndarray:
        if dtype == "bool":
            return np.asarray(self.rng.random(shape) < 0.5)
        if dtype in INTEGERS:
            return np.asarray(self.rng.integers(-5, 6, shape)).astype(dtype)
        return np.asarray(self.rng.uniform(low, high, shape)).astype(dtype)

    # --- values --------------------------------------------------------------------------------------------------------

    def input(self, shape: Sequence[int], dtype: str | None = None) -> str:
        name = f"x{len(self.inputs)}"
        self.inputs[name] = self.values[name] = self.array(shape, dtype or self.dtype)
        return name

    def constant(self, array: np.ndarray | Sequence[int]) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = self.values[name] = np.asarray(array)
        return name

    def weight(self, *shape: int, dtype: str | None = None, low: float = -1.0, high: float = 1.0) -> str:
        """A constant, or one that is there already, or, rarely, an input."""
        dtype = dtype or self.dtype
        same = [n for n, a in self.constants.items() if a.shape == shape and a.dtype == dtype and self.within(a, low, high)]
        if same and self.chance(0.3):
            return self.one(same)
        if low == -1.0 and self.chance(0.1):
            return self.input(shape, dtype)
        return self.constant(self.array(shape, dtype, low, high))

    @staticmethod
    def within(array: np.ndarray, low: float, high: float) -> bool:
        return array.dtype.kind == "f" and bool((array >= low).all() and (array <= high).all())

    def some(self, *ranks: int, dtype: str | None = None, suits: Callable[[np.ndarray], bool] = lambda a: True) -> str:
        """A value of one of these ranks (any where none is given) that suits: mostly a late one; where there is none, an input."""
        dtype = dtype or self.dtype
        fits = [n for n, a in self.values.items() if a.dtype == dtype and (not ranks or a.ndim in ranks) and suits(a)]
        fits = [n for n in fits if n not in self.constants] or fits
        if fits and self.chance(0.93):
            late = min(len(fits), 1 + int(self.rng.exponential(2)))
            return fits[-late]
        return self.input(self.shape(self.one(ranks or (0, 1, 2, 3, 4))), dtype)

    def add(self, operator: str, inputs: Sequence[str], count: int = 1, **attributes) -> str:
        """A node; the name of its first output. Raises Dropped where what it makes does not suit."""
        names = [f"v{len(self.values)}_{n}" if n else f"v{len(self.values)}" for n in range(count)]
        node = helper.make_node(operator, inputs, names, **attributes)
        given = {n: np.asarray(self.values[n]) for n in inputs if n}
        try:
            arrays = exact(model([node], given, names, None, OPSET), given)
        except FOLDING_ERRORS:  # what the evaluator cannot do
            raise Dropped(operator) from None
        for array in map(np.asarray, arrays):
            large = array.dtype.kind in "fi" and np.abs(array).max(initial=0) > MAX_MAGNITUDE
            if not 1 <= array.size <= MAX_ELEMENTS or large or (array.dtype.kind == "f" and not np.isfinite(array).all()):
                raise Dropped(operator)
        self.nodes.append(node)
        self.values |= {n: np.asarray(a) for n, a in zip(names, arrays, strict=True)}
        return names[0]


class Dropped(Exception):
    """A node is not wanted."""


# --- nodes: each function draws one, or a few that belong together ---------------------------------------------------------


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
    dilations = [d.one([1, 1, 1, 2]) for _ in shape]
    pads = [[int(d.rng.integers(0, k)) for k in sizes] for _ in range(2)]
    if d.chance(0.5):
        pads = [[k // 2 for k in sizes]] * 2
    strides = [d.one([1, 1, 2, 3]) for _ in shape]
    return {"kernel_shape": sizes, "dilations": dilations, "pads": pads[0] + pads[1], "strides": strides}


def conv(d: Drawing) -> str:
    x = d.some(3, 4, 4, 5)
    channels, image = d.values[x].shape[1], d.values[x].shape[2:]
    group = d.one([g for g in range(1, channels + 1) if channels % g == 0])
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
    at = int(d.rng.integers(1, max(shape[axis], 2)))
    sizes = [s for s in (at, shape[axis] - at) if s]
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
    mode = d.one(["constant", "constant", "edge", "reflect"])
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


KINDS: tuple[tuple[Callable[[Drawing], str], int], ...] = (
    (unary, 4), (clip, 1), (binary, 8), (division, 2), (where, 1), (silu, 1), (gelu, 1), (written_norm, 1), (written_softmax, 1),
    (conv, 5), (batch_norm, 2), (pool, 2), (matmul, 4), (gemm, 2), (transpose, 3), (reshape, 3), (unit, 1), (concat, 3), (split, 2),
    (cut, 2), (pad, 1), (gather, 1), (spread, 1), (reduction, 3), (softmax, 1), (norm, 1), (integers, 2), (logic, 1), (cast, 1),
)  # fmt: skip


def drawn(rng: np.random.Generator) -> Case:
    """A random network."""
    d = Drawing(rng)
    d.input(d.shape(d.one([2, 3, 4, 4])))
    shares = np.array([share for _, share in KINDS], float)
    wanted = int(rng.integers(1, NODES + 1))
    made = 0
    for _ in range(4 * wanted):
        make, _share = KINDS[int(rng.choice(len(KINDS), p=shares / shares.sum()))]
        try:
            with np.errstate(all="ignore"):
                make(d)
            made += 1
        except Dropped:
            continue
        if made == wanted:
            break
    read = {name for node in d.nodes for name in node.input}
    inner = [name for name, array in d.values.items() if name in read and array.size]
    outputs = [n for n in d.values if n not in read and n not in d.constants]
    outputs += [n for n in inner if rng.random() < 0.1]
    rng.shuffle(outputs)
    case = Case(tuple(d.nodes), d.inputs, d.constants, tuple(outputs or [next(iter(d.values))]), d.values)
    return needed(case, case.outputs)
