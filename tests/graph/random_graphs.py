"""Random networks in ONNX, on small odd shapes: what is known of each value as it is drawn (`random_nodes` draws).

A reference computes each node in float32, whatever the floats are, so that its numbers are nearly exact beside halves. It does so
again on copies of its operands, which are off by random roundings (Monte Carlo arithmetic: Parker, Pierce and Eggert 2000): some
copies by the roundings of their element types, some by those of the reference. How far copies are off says, element by element,
by how much a right result may be. A node whose result is too large, not finite where that is not asked for, decided by a rounding,
or known no better than to a part of its spread, is dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, helper
from onnx.shape_inference import infer_shapes

from graph.onnx.importer import FOLDING_ERRORS
from tir import dtypes

from .models import model, reference

OPSET = 23
MAX_ELEMENTS = 1500  # of a value
MAX_MAGNITUDE = 100.0  # of an element
MAX_INTEGER = 40_000  # of an element; the product of two is one of 32 bits
EXTENTS = (1, 2, 3, 4, 5, 7, 9)
FLOATS, INTEGERS = ("float64", "float32", "float16", "bfloat16"), ("int64", "int32")
SPECIAL = (np.nan, np.inf, -np.inf, 0.0, -0.0, 1000.0, -1000.0)  # in place of some elements of inputs
SINGLE = 2.0**-24  # the largest relative error of a rounding to float32
ENDS = (-1.0, 1.0)  # of what an element may be off by
TYPED, REFERRED = 8, 4  # copies with roundings of the element types, and of the reference
SAFETY = 4  # times what the copies are off by
INTERNAL = 8  # roundings to float32 within a node, of the largest element that it reads or makes
SINGLES = 2  # roundings to float32 of each element that is read or made
DOUBLE = 2.0**-29  # a rounding to float64 beside one to float32
LOOSE = 0.25  # of the spread of a result: the most that half of its elements may be off by
EXACT = {  # results are elements of operands, or a number that has no rounding
    "Abs", "Ceil", "Clip", "Concat", "DepthToSpace", "Expand", "Flatten", "Floor", "Gather", "GatherElements", "GatherND",
    "GlobalMaxPool", "Hardmax", "Identity", "Max", "MaxPool", "Min", "Mod", "Neg", "Pad", "ReduceMax", "ReduceMin", "Relu", "Reshape",
    "ReverseSequence", "Round", "Sign", "Slice", "SpaceToDepth", "Split", "Squeeze", "ThresholdedRelu", "Tile", "TopK", "Transpose",
    "Trilu", "Unsqueeze", "Where",
}  # fmt: skip
STEPS = {"Ceil", "Floor", "Hardmax", "Mod", "Round", "Shrink", "Sign", "ThresholdedRelu"}  # a rounding may decide
QUANTISING = {"DynamicQuantizeLinear", "QLinearConv", "QLinearMatMul", "QuantizeLinear"}  # one more or less, by a rounding
PARTLY_FOLDED = {"GRU", "LSTM", "RNN"}  # sums of biases that are constant, in their type, when a file is read
IN_FLOAT32 = {"GroupNormalization", "GridSample"}  # of doubles, too: the standard writes it out so; a reference
OVER_NAN = {"GlobalMaxPool": -np.inf, "MaxPool": -np.inf, "ReduceMax": -np.inf, "ReduceMin": np.inf}  # docs/networks.md
FINITE = {*QUANTISING, *PARTLY_FOLDED, "ArgMax", "ArgMin", "Cast", "GridSample", "LRN", "Resize"}  # of others references disagree
FINITE |= {"Hardmax"}  # a reference counts NaN as the first largest
FINITE |= {"ConvTranspose"}  # its kernel is filled up with zeros: docs/networks.md
Maker = Callable[[dict[str, np.ndarray]], list[np.ndarray]]
CHOOSING = ("max", "min")  # reductions of scatters


@dataclass(frozen=True)
class Known:
    """What is known of a value: its numbers by the reference, copies that are off (TYPED, then REFERRED ones), and by how much each
    element may be off where it is computed in its type (`slack`), and by the reference (`doubt`)."""

    numbers: np.ndarray
    copies: list[np.ndarray]
    slack: np.ndarray
    doubt: np.ndarray

    def moved(self, share: float) -> np.ndarray:
        """The numbers, floats off by a share of what they may be off by."""
        if not is_float(self.numbers):
            return self.numbers
        return np.where(np.isfinite(self.numbers), self.numbers + share * self.slack, self.numbers).astype(self.numbers.dtype)

    @staticmethod
    def of(numbers: np.ndarray, copies: list[np.ndarray], safety: float = SAFETY) -> Known:
        slack, doubt = (safety * off_by(some, numbers) for some in (copies[:TYPED], copies[TYPED:]))
        if not is_float(numbers):  # all copies show where the reference meets a tie
            return Known(numbers, copies, np.maximum(slack, doubt), np.maximum(slack, doubt))
        doubt = 2 * doubt  # there are fewer copies
        if doubt.any():  # a rounding to float32 may leave all of them where they were
            doubt = np.maximum(doubt, np.where(np.isfinite(plain(numbers)), np.abs(plain(numbers)), 0) * 2 * SINGLE)
        return Known(numbers, copies, slack + doubt * DOUBLE, doubt)

    @property
    def ill_conditioned(self) -> bool:
        """Some element may be off by a large part of the largest one."""
        return is_float(self.numbers) and largest(self.slack) > LOOSE * largest(self.numbers)

    @property
    def vague(self) -> bool:
        """Most elements may be off by a large part of what there is to tell apart."""
        there = np.isfinite(plain(self.numbers))
        if not there.any() or self.numbers.dtype == bool:
            return False
        spread = float(np.std(plain(self.numbers)[there])) or largest(self.numbers)
        return spread > 0 and float(np.median(self.slack[there])) > LOOSE * spread


@dataclass(frozen=True)
class Case:
    """A network with inputs, and what is known of its values: their elements as the reference has them, in their types, and more."""

    nodes: tuple[onnx.NodeProto, ...]
    inputs: dict[str, np.ndarray]
    constants: dict[str, np.ndarray]
    outputs: tuple[str, ...]
    values: dict[str, np.ndarray] = field(repr=False)
    known: dict[str, Known] = field(repr=False)

    @property
    def special(self) -> bool:
        return not all(finite(a) for a in self.values.values())

    def proto(self) -> onnx.ModelProto:
        return model(list(self.nodes), self.inputs, self.outputs, self.constants, OPSET)

    def single(self) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
        """The network with float32 in place of all floats, and its inputs."""
        inputs, constants = ({n: self.known[n].numbers for n in d} for d in (self.inputs, self.constants))
        return model([in_single(n) for n in self.nodes], inputs, self.outputs, constants, OPSET), inputs

    def __str__(self) -> str:
        def named(arrays: dict[str, np.ndarray]) -> str:
            return ", ".join(f"{n}: {a.dtype.name}{list(a.shape)}" for n, a in arrays.items())

        lines = [f"inputs {named(self.inputs)}", f"constants {named(self.constants)}", *map(_node_text, self.nodes)]
        return "\n".join([*lines, f"outputs {', '.join(self.outputs)}"])


def _node_text(node: onnx.NodeProto) -> str:
    attributes = "".join(f", {a.name}={helper.get_attribute_value(a)}" for a in node.attribute)
    return f"{', '.join(node.output)} = {node.op_type}({', '.join(node.input)}{attributes})"


def needed(case: Case, outputs: Sequence[str], cut: Sequence[str] = ()) -> Case:
    """What is needed of a network for some of its values, with the values `cut` as inputs. Raises Dropped."""
    nodes, read = read_for(case.nodes, outputs, cut)
    d = Drawing(np.random.default_rng(0))
    d.special, d.extents = True, (0, *EXTENTS)
    for n, a in case.values.items():
        if n in read and (n in case.inputs or n in cut):
            d.given(d.inputs, n, a)
        elif n in read and n in case.constants:
            d.given(d.constants, n, a)
    for node in nodes:
        d.run(node)
    return d.case(outputs)


def read_for(
    nodes: Sequence[onnx.NodeProto], outputs: Sequence[str], cut: Sequence[str] = ()
) -> tuple[list[onnx.NodeProto], set[str]]:
    """The nodes that make these values, from the values `cut`, and the names of all that they read or make."""
    read, found = set(outputs), list[onnx.NodeProto]()
    for node in reversed(nodes):
        if any(n in read and n not in cut for n in node.output):
            read |= {*node.input, *node.output}
            found.insert(0, node)
    return found, read


def finite(array: np.ndarray) -> bool:
    return not is_float(array) or bool(np.isfinite(array).all())


def is_float(array: np.ndarray) -> bool:
    return dtypes.is_float(array.dtype.name)


def plain(array: np.ndarray) -> np.ndarray:
    """Numbers to compute with: float64 in place of all floats, int64 of integers and bools."""
    return array.astype("float64" if is_float(array) else "int64")


def largest(array: np.ndarray) -> float:
    """The largest absolute value of an element that is finite."""
    there = np.abs(plain(array))
    return float(np.max(there, initial=0, where=np.isfinite(there)))


def rounding(dtype: str) -> float:
    """The largest relative error of a rounding to a type, none of float64 beside the others."""
    if not dtypes.is_float(dtype) or dtype == "float64":
        return 0.0
    return float(ml_dtypes.finfo(dtype).eps) / 2 * (1 if dtypes.is_half(dtype) else SINGLES)


def in_single(node: onnx.NodeProto) -> onnx.NodeProto:
    """A node with float32 in place of all floats."""
    result = onnx.NodeProto()
    result.CopyFrom(node)
    if node.op_type == "Cast" and dtypes.is_float(helper.tensor_dtype_to_np_dtype(node.attribute[0].i).name):
        result.attribute[0].i = TensorProto.FLOAT
    return result


def types_made(node: onnx.NodeProto, given: dict[str, np.ndarray]) -> list[str]:
    """The element types of what a node makes."""
    outputs = infer_shapes(model([node], given, list(node.output), None, OPSET)).graph.output
    found = [o.type.tensor_type.elem_type for o in outputs]
    if TensorProto.UNDEFINED in found:
        raise Dropped(node.op_type)
    return [helper.tensor_dtype_to_np_dtype(t).name for t in found]


def off_by(copies: Sequence[np.ndarray], exact: np.ndarray) -> np.ndarray:
    """How far the copies of each element are off at most, 0 where it is not finite."""
    with np.errstate(invalid="ignore"):
        off = np.max([np.abs(plain(c) - plain(exact)) for c in copies], axis=0).astype("float64")
    return np.where(np.isfinite(off), off, 0.0)


class Drawing:
    """A network that is being drawn."""

    def __init__(self, rng: np.random.Generator):
        self.rng = rng
        self.noise = np.random.default_rng(0)
        self.dtype = str(rng.choice(FLOATS, p=[0.2, 0.4, 0.2, 0.2]))
        self.special = bool(rng.random() < 0.15)
        self.extents = (0, *EXTENTS) if rng.random() < 0.1 else EXTENTS
        self.nodes: list[onnx.NodeProto] = []
        self.inputs: dict[str, np.ndarray] = {}
        self.constants: dict[str, np.ndarray] = {}
        self.values: dict[str, np.ndarray] = {}
        self.known: dict[str, Known] = {}
        self.folded: set[str] = set()  # constants, and what follows from these alone

    def case(self, outputs: Sequence[str]) -> Case:
        """The network that makes these values."""
        nodes, read = read_for(self.nodes, outputs)
        inputs, constants, values = (
            {n: a for n, a in d.items() if n in read} for d in (self.inputs, self.constants, self.values)
        )
        return Case(tuple(nodes), inputs, constants, tuple(outputs), values, {n: k for n, k in self.known.items() if n in read})

    # --- choices -------------------------------------------------------------------------------------------------------

    def one(self, choices):
        return choices[int(self.rng.integers(len(choices)))]

    def chance(self, share: float) -> bool:
        return bool(self.rng.random() < share)

    def axis(self, name: str) -> int:
        return int(self.rng.integers(self.values[name].ndim))

    def divisor(self, extent: int) -> int:
        return self.one([n for n in range(1, extent + 1) if extent % n == 0] or [1])

    def shape(self, rank: int) -> tuple[int, ...]:
        return tuple(int(self.one(self.extents)) for _ in range(rank))

    def array(self, shape: Sequence[int], dtype: str, low: float = -1.0, high: float = 1.0) -> np.ndarray:
        if dtype == "bool":
            return np.asarray(self.rng.random(shape) < 0.5)
        if dtypes.is_int(dtype):
            return np.asarray(self.rng.integers(0 if dtype[0] == "u" else -5, 6 if dtype in INTEGERS else 30, shape)).astype(
                dtype
            )
        return np.asarray(self.rng.uniform(low, high, shape)).astype("float32").astype(dtype)

    # --- values --------------------------------------------------------------------------------------------------------

    def input(self, shape: Sequence[int], dtype: str | None = None) -> str:
        name = f"x{len(self.inputs)}"
        array = self.array(shape, dtype or self.dtype)
        if self.special and dtypes.is_float(array.dtype.name):
            array = np.where(self.rng.random(shape) < 0.1, self.rng.choice(SPECIAL, shape), array).astype(array.dtype)
        return self.given(self.inputs, name, array)

    def constant(self, array: np.ndarray | Sequence[int]) -> str:
        name = f"c{len(self.constants)}"
        return self.given(self.constants, name, np.asarray(array))

    def given(self, among: dict[str, np.ndarray], name: str, array: np.ndarray) -> str:
        """An input, or a constant, which the reference may have to round."""
        among[name] = self.values[name] = array
        exact = array.astype("float32") if is_float(array) else array
        near = [exact] * REFERRED
        if is_float(array) and not np.array_equal(plain(exact), plain(array), equal_nan=True):
            ulp = np.spacing(exact)
            near = [exact + self.noise.choice([-1, 1], exact.shape).astype("float32") * ulp for _ in near]
        copies = [exact] * TYPED + near
        self.known[name] = Known(exact, copies, np.zeros(exact.shape), 2 * SAFETY * off_by(near, exact))
        if among is self.constants:
            self.folded.add(name)
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
        return dtypes.is_float(array.dtype.name) and bool((array >= low).all() and (array <= high).all())

    def some(self, *ranks: int, dtype: str | None = None, suits: Callable[[np.ndarray], bool] = lambda a: True) -> str:
        """A value of one of these ranks (any where none is given) that suits: mostly a late one; where there is none, an input."""
        dtype = dtype or self.dtype
        fits = [n for n, a in self.values.items() if a.dtype == dtype and (not ranks or a.ndim in ranks) and suits(a)]
        fits = [n for n in fits if n not in self.constants] or fits
        if fits and self.chance(0.93):
            late = min(len(fits), 1 + int(self.rng.exponential(2)))
            return fits[-late]
        return self.input(self.shape(self.one(ranks or (0, 1, 2, 3, 4))), dtype)

    # --- nodes ---------------------------------------------------------------------------------------------------------

    def add(self, operator: str, inputs: Sequence[str], count: int = 1, **attributes) -> str:
        """A node; the name of its first output. Raises Dropped where what it makes does not suit."""
        names = [f"v{len(self.values)}_{n}" if n else f"v{len(self.values)}" for n in range(count)]
        self.run(helper.make_node(operator, inputs, names, **attributes))
        return names[0]

    def run(self, node: onnx.NodeProto) -> None:
        """Take a node, with all that is known of what it makes. Raises Dropped where that does not suit."""
        operator, names = node.op_type, [n for n in node.input if n]
        dilated = any(a.name == "dilations" and max(a.ints) > 1 for a in node.attribute)  # a reference fills kernels with zeros
        rounded = operator == "Attention" and self.values[names[0]].dtype == "float64"  # a reference has weights in float32
        if (operator in FINITE or dilated or rounded) and not all(finite(self.values[n]) for n in names):
            raise Dropped(operator)
        if operator in ("MaxPool", "ReduceMean") and self.values[names[0]].size == 0:  # a reference pads other axes, or makes 0
            raise Dropped(operator)
        how = next((a.s.decode() for a in node.attribute if a.name == "reduction"), "")
        if how in CHOOSING and any(np.isnan(plain(self.values[n])).any() for n in names):
            raise Dropped(operator)
        known = {n: self.known[n] for n in names}
        try:
            types = types_made(node, {n: self.values[n] for n in names})
            made = self.maker(node)
            arrays = made({n: k.numbers for n, k in known.items()})
            self.suit(operator, arrays)
            if undecided(operator, [k for k in known.values() if is_float(k.numbers)], arrays):
                raise Dropped(operator)
            copies = [self.copy(node, types, arrays, made, n) for n in range(TYPED + REFERRED)]
        except FOLDING_ERRORS:  # what the references cannot do
            raise Dropped(operator) from None
        found = []
        for exact, *others in zip(arrays, *copies, strict=True):
            found.append(Known.of(exact, others, 1 if operator in QUANTISING and not is_float(exact) else SAFETY))
        if any(k.vague for k in found):
            raise Dropped(operator)
        self.nodes.append(node)
        self.folded |= set(node.output) if self.folded.issuperset(names) else set()
        self.known |= dict(zip(node.output, found, strict=True))
        self.values |= {n: k.numbers.astype(t) for n, k, t in zip(node.output, found, types, strict=True)}

    def maker(self, node: onnx.NodeProto) -> Maker:
        """The reference for a node."""
        given = {n: self.known[n].numbers for n in node.input if n}
        run = reference(model([in_single(node)], given, list(node.output), None, OPSET))
        other = OVER_NAN.get(node.op_type)

        def made(given: dict[str, np.ndarray]) -> list[np.ndarray]:
            if other is not None:
                given = {n: np.where(np.isnan(plain(a)), np.float32(other), a) if is_float(a) else a for n, a in given.items()}
            return [np.asarray(a) for a in run(given)]

        return made

    def suit(self, operator: str, arrays: Sequence[np.ndarray]) -> None:
        """Raise Dropped where results are too large, too many, or not finite in a network of numbers."""
        most = MAX_MAGNITUDE * (200 if self.special else 1)
        for array in arrays:
            large = largest(array) > (most if is_float(array) else MAX_INTEGER)
            if large or array.size > MAX_ELEMENTS or (array.size == 0 and 0 not in self.extents):
                raise Dropped(operator)
            if not self.special and not finite(array):
                raise Dropped(operator)

    def copy(
        self, node: onnx.NodeProto, types: Sequence[str], arrays: Sequence[np.ndarray], made: Maker, n: int
    ) -> list[np.ndarray]:
        """The copies with the number `n` of what a node makes. Raises Dropped where a rounding decides."""
        operator, names = node.op_type, [name for name in node.input if name]
        known = {name: self.known[name] for name in names}
        deciding = operator in STEPS or not all(map(is_float, arrays))
        folded = operator in PARTLY_FOLDED or self.folded.issuperset(names)

        def unit(dtype: str) -> float:
            if operator in EXACT:
                return 0.0
            if n >= TYPED:
                return max(SINGLES * SINGLE, rounding(dtype) if folded else 0.0)
            return max(rounding(dtype), SINGLE) if operator in IN_FLOAT32 else rounding(dtype)

        given = {name: k.copies[n] for name, k in known.items()}
        if not deciding or operator in QUANTISING:
            given = {name: self.rounded(a, unit(self.values[name].dtype.name)) for name, a in given.items()}
        if all(given[name] is k.numbers for name, k in known.items()) and not any(map(unit, types)):
            return list(arrays)
        results = made(given)
        if any(not alike(a, b) for a, b in zip(arrays, results, strict=True)):
            raise Dropped(operator)
        if deciding:
            far = {name: beyond(k.numbers, given[name]) for name, k in known.items()}
            if operator in QUANTISING and n < len(ENDS):  # of copies near a tie, all may be on one side of it
                off = 1 + ENDS[n] * SAFETY * unit(self.values[names[0]].dtype.name)
                far = {name: k.moved(ENDS[n]) * (off if name == names[0] else 1) for name, k in known.items()}
            further = made(far)
            loose = any(is_float(a) and not np.array_equal(a, known[name].numbers, equal_nan=True) for name, a in far.items())
            for exact, a, b in zip(arrays, results, further, strict=True):
                if decided(operator, exact, a, b, loose):
                    raise Dropped(operator)
            results = [b if operator in QUANTISING and not is_float(b) else a for a, b in zip(results, further, strict=True)]
        floats = [a for a in (*(k.numbers for k in known.values()), *arrays) if is_float(a)]
        inner = INTERNAL * SINGLE * max(map(largest, floats), default=0.0)
        return [self.rounded(a, unit(t), inner if unit(t) else 0.0) for a, t in zip(results, types, strict=True)]

    def rounded(self, array: np.ndarray, unit: float, floor: float = 0.0) -> np.ndarray:
        """Floats that are off by random parts of themselves, and of `floor`."""
        if not is_float(array) or not (unit or floor):
            return array
        off = array * (1 + unit * self.noise.standard_normal(array.shape)) + floor * self.noise.standard_normal(array.shape)
        return np.asarray(off).astype(array.dtype)


def alike(a: np.ndarray, b: np.ndarray) -> bool:
    """Results have the same shape, and the same infinities and NaN."""
    if a.shape != b.shape:
        return False
    there = np.isfinite(plain(a))
    return np.array_equal(there, np.isfinite(plain(b))) and np.array_equal(plain(a)[~there], plain(b)[~there], equal_nan=True)


def beyond(exact: np.ndarray, off: np.ndarray) -> np.ndarray:
    """Floats that are off by SAFETY times as much."""
    if off is exact or not is_float(exact):
        return off
    with np.errstate(invalid="ignore"):
        return np.where(np.isfinite(exact), exact + SAFETY * (off - exact), exact).astype(exact.dtype)


def decided(operator: str, exact: np.ndarray, near: np.ndarray, far: np.ndarray, loose: bool) -> bool:
    """A rounding decides a result: of operands that are off, and further off, a number jumps, or an integer is another."""
    if exact.shape != far.shape:
        return True
    with np.errstate(invalid="ignore"):
        little, much = plain(near) - plain(exact), plain(far) - plain(exact)
    if is_float(exact):
        jump = largest(much - SAFETY * little)
        return operator in STEPS and jump > SAFETY * largest(little) / 8 + 16 * SINGLE * largest(exact)
    if operator in QUANTISING:
        return largest(much) > 16
    return bool(much.any()) and (loose or exact.dtype == bool)


def undecided(operator: str, operands: Sequence[Known], arrays: Sequence[np.ndarray]) -> bool:
    """A rounding decides what no copy that is off shows: whether numbers are equal, or what is a tie in a scale of its own."""
    if operator == "Equal" and len(operands) == 2:
        a, b = operands
        apart = np.abs(plain(a.numbers) - plain(b.numbers))
        return bool(np.any((apart <= a.slack + b.slack) & (a.slack + b.slack > 0)))
    if operator == "DynamicQuantizeLinear":
        steps = plain(operands[0].numbers) / plain(arrays[1])
        return bool(np.any(np.abs(steps - np.floor(steps) - 0.5) < 1024 * SINGLE))
    return False


class Dropped(Exception):
    """A node is not wanted."""
