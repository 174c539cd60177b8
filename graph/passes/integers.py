"""Products of quantised numbers as products of integers, whose sums are exact, scaled afterwards.

    sum of (a - p) s * (b - q) t  =  s t (sum of a b  -  p * sum of (b - q)  -  q * sum of a)

The sums of constant weights are constants. Weights less their zero points are integers of 8 bits again, mostly, so that the last
term is gone. A convolution becomes one of integers, channels last, or a product whose rows are copies of the image's windows:
around the image is the zero point, whose products the second term takes away, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, reduce
from math import prod
from operator import mul
from typing import TYPE_CHECKING, Any

import numpy as np

from schedule import templates
from schedule.machine import CPU
from tir import dtypes

from ..fusion import group_of
from ..ir import Attribute, Call, Graph, Value
from ..ops import definition
from ..ops.channels_last import CHANNELS_OF_PIXEL, sign_offset
from ..ops.convolution import SlidingWindow
from ..ops.winograd import exact_for, transformed_weights
from .rewriting import Rewriting, attributes_of, rewrite, windows_of
from .winograd import filterable, least_cycles, tiles

if TYPE_CHECKING:
    from codegen import Target

BYTES = ("int8", "uint8")
SUMS = ("IntegerProduct", "ChannelsLastConv", "WinogradSums")  # the operators of sums of products of integers
MAX_BIAS = 2**30  # of a bias in sums of int32: half of their range
# Least ratio of estimated cycles, of floats to bytes, whose widening is not estimated. On a Zen 4 limited to SSE2, products
# estimated at 1.00 to 1.01 (97 x 128 x 96, 16 x 2048 x 2048) are at 0.6 to 1.1, those from 1.27 (2 x 1024 x 1024) at 1.1 to 1.8.
MIN_GAIN_OF_BYTES = 1.05
WHOLE_VECTORS = 16  # output channels that minimal filtering takes at once: lanes of int32 in a vector of 512 bits
Choice = Callable[[Call, Call], bool]  # of a product of integers in place of a call


def multiply_integers(graph: Graph, choose: Choice, pairs: bool = False) -> Graph:
    """Make Conv, MatMul and Gemm of quantised numbers products of integers, where `choose` prefers these. Quantised are results
    of DequantizeLinear, and integers of 32 bits that are made of 8, less a zero point. With `pairs`, weights are marked whose
    products add up within 16 bits, as some processors do."""
    return rewrite(graph, lambda r, call: _rule(r, call, choose, pairs))


def _narrow(weights: np.ndarray | None, pairs: bool) -> dict[str, Attribute]:
    """The mark of weights (..., K, N) whose products by any uint8 add up within 16 bits, each two neighbours along K."""
    if not pairs or weights is None or weights.dtype != np.int8:
        return {}
    low, high = (limit // dtypes.limits("uint8")[1] for limit in dtypes.limits("int16"))
    return {"narrow_pairs": True} if largest_pairs(weights, -2).max() <= min(high, -1 - low) else {}


def largest_pairs(weights: np.ndarray, along: int) -> np.ndarray:
    """The largest magnitudes of the sums of two neighbours of one sign along an axis, a last one alone."""
    moved = np.moveaxis(weights, along, 0).astype(np.result_type(weights, np.int32))
    padded = np.concatenate([moved, np.zeros_like(moved[: len(moved) % 2])])
    signs = (np.maximum(padded, 0), np.maximum(-padded, 0))
    return np.maximum(*(x[::2] + x[1::2] for x in signs))


def in_fewer_cycles(target: Target) -> Choice:
    """The choice of fewer cycles, as the templates estimate them: integers take fewer where the processor has instructions that
    add several of their products at once. One row of products takes as long as its weights come from memory, in which integers
    are a fourth of floats. The rows of a product in place of a convolution are copied; of halves, images and results are
    transposed to have their channels last."""

    @cache
    def anonymous_cycles(call: Call) -> float:
        return templates.cycles(group_of([call], call.values[1:]).func, target)

    def integer_cycles(call: Call) -> float:
        a, b, result = (Value(n, v.shape, v.dtype) for n, v in zip("abc", (*call.values, call.outputs[0]), strict=True))
        return anonymous_cycles(replace(call, inputs=(a, b), outputs=(result,)))

    def choose(integer: Call, today: Call) -> bool:
        *_, rows, _ = integer.outputs[0].shape
        processor, elements = target.machine_as(CPU), prod(today.values[0].shape)
        if today.operator in SUMS:
            copied = elements * processor.pack_cycles(8, elements) if today.operator == "IntegerProduct" else 0.0
            one, other = (integer_cycles(call) + first_read_cycles(call.values[1], processor) for call in (integer, today))
            return one < other + copied
        if integer.values[0].dtype == "float16":
            return False  # no processor's template adds products of these at once
        if integer.values[0].dtype == "bfloat16":
            elements += prod(today.outputs[0].shape)
            return integer_cycles(integer) + elements * processor.transpose_cycles(16, elements) < least_cycles(today, target)
        gain = 1.0 if today.values[0].dtype == "int32" else MIN_GAIN_OF_BYTES
        return rows == 1 or gain * integer_cycles(integer) < least_cycles(today, target)

    return choose


def first_read_cycles(weights: Value, processor: CPU) -> float:
    """Cycles by which weights take longer to read from memory than from a cache, as in a network since its last call."""
    nbytes = prod(weights.shape) * dtypes.nbytes(weights.dtype)
    return nbytes * (processor.read_cycles(8, processor.l2 + processor.l3 + 1) - processor.read_cycles(8, nbytes))


@dataclass(frozen=True)
class Quantised:
    """A tensor as (numbers - zero) * scale. `numbers` are integers of 8 bits, a constant or not. Scale and zero point are arrays,
    of one number or of one for each index along `axis`, or values of one number where they are not constant. A zero point of
    None is 0, a scale of None is 1, in int32."""

    numbers: Value
    scale: Value | np.ndarray | None
    zero: Value | np.ndarray | None
    axis: int

    def by(self, axis: int | None) -> bool:
        """True where scale and zero point are one number each, or have one for each index along that axis."""
        one = all(not isinstance(x, np.ndarray) or x.size == 1 for x in (self.scale, self.zero))
        return one or self.axis == axis

    @property
    def known_zero(self) -> int | None:
        """The zero point, where it is one constant number; None else."""
        if self.zero is None:
            return 0
        return int(self.zero.reshape(())) if isinstance(self.zero, np.ndarray) and self.zero.size == 1 else None


def quantised(r: Rewriting, value: Value) -> Quantised | None:
    """A value as quantised numbers, if it is made of them."""
    if value.dtype == "int32":
        return _integers(r, value)
    call = r.producer(value, "DequantizeLinear")
    if call is None or call.values[0].dtype not in BYTES or call.attribute("block_size", 0) or value.dtype != "float32":
        return None
    scale, zero, *_ = (*(_known(r, v) for v in call.inputs[1:]), None)
    if any(isinstance(x, Value) and x.shape not in ((), (1,)) for x in (scale, zero)):
        return None
    axis = call.attribute("axis", 1)
    return Quantised(call.values[0], scale, zero, axis + len(value.shape) if axis < 0 else axis)


def _integers(r: Rewriting, value: Value) -> Quantised | None:
    """An int32 tensor that is made of integers of 8 bits."""
    if (array := r.known(value)) is not None:
        zero = None if _fitting(array) else dtypes.limits("int8")[0] - array.min()
        numbers = array if zero is None else array + zero
        kind = _fitting(numbers)
        return None if kind is None else Quantised(r.constant(numbers.astype(kind), name=value.name), None, zero, 0)
    shifted = r.producer(value, "Sub")
    wide, *zeros = (value,) if shifted is None else shifted.values
    cast = r.producer(wide, "Cast")
    if cast is None or cast.values[0].dtype not in BYTES or wide.shape != value.shape:
        return None
    if any(zero.shape not in ((), (1,)) for zero in zeros):
        return None
    return Quantised(cast.values[0], None, _known(r, zeros[0]) if zeros else None, 0)


def _known(r: Rewriting, value: Value | None) -> Value | np.ndarray | None:
    array = r.known(value)
    return value if array is None else array


def _fitting(array: np.ndarray) -> str | None:
    """The type of 8 bits that holds integers, if there is one."""
    return next((k for k in BYTES if dtypes.limits(k)[0] <= array.min() and array.max() <= dtypes.limits(k)[1]), None)


def _rule(r: Rewriting, call: Call, choose: Choice, pairs: bool) -> Value | None:
    if not definition(call).integers or any(0 in v.shape for v in call.values):
        return None
    a, b = (quantised(r, v) for v in call.values[:2])
    if a is None or b is None:
        return None
    return (_convolution if call.operator == "Conv" else _product)(r, call, a, b, choose, pairs)


def _convolution(write: Rewriting, call: Call, x: Quantised, weight: Quantised, choose: Choice, pairs: bool) -> Value | None:
    """Write a convolution of up to three dimensions by constant weights, a product for each group; None for another one."""
    array, zero, groups = unshifted(write, weight), x.known_zero, call.attribute("group", 1)
    if array is None or zero is None or not 3 <= array.ndim <= 5 or not x.by(None) or not weight.by(0):
        return None
    if groups > 1 and array.shape[1] == 1:  # each channel by itself has nothing to add up several products of at once
        return None
    outputs, to_last = call.outputs[0].shape[1] // groups, (0, *range(2, array.ndim), 1)
    packs = groups == 1 and 1 < array.shape[1] <= CHANNELS_OF_PIXEL and not _in_place(windows_of(call))
    if packs:  # a window of so few channels is copied by pixels
        array = np.pad(array, [(0, 0), (0, CHANNELS_OF_PIXEL - array.shape[1]), *[(0, 0)] * (array.ndim - 2)])
    image = x.numbers if packs else write("Transpose", x.numbers, perm=to_last)
    sums, columns, moved, held = list[Value](), list[np.ndarray](), windows_of(call), x.numbers.dtype
    for group in range(groups):
        own = array[group * outputs : (group + 1) * outputs]
        columns.append(np.ascontiguousarray(own.transpose(*range(2, array.ndim), 1, 0).reshape(-1, outputs)))
        first, last = group * own.shape[1], (group + 1) * own.shape[1]
        part = image if groups == 1 else write("Slice", image, starts=(first,), ends=(last,), axes=(array.ndim - 1,))
        rows = _windows(write, call, part, own.shape[2:], zero, packs)
        sums.append(write("IntegerProduct", rows, write.constant(columns[-1]), **_narrow(columns[-1], pairs)))
        product = write.calls[-1]
        if not _in_place(moved):
            pixels = write("Bytes", write("PackChannels", part), to=part.dtype) if packs else part
            last = columns[-1].reshape(*own.shape[2:], own.shape[1], outputs)
            how = attributes_of(moved) | _narrow(last, pairs)
            for to in BYTES[::-1]:
                made = write("ChannelsLastConv", pixels, write.constant(last), zero=zero, to=to, **how)
                if choose(write.calls[-1], product):
                    product, sums[-1], held = write.calls[-1], made, to
                    break
        for tile in tiles(own.shape[2:]) if pairs and filterable(call) and not packs and not outputs % WHOLE_VECTORS else []:
            how = {"tile": tile, "kernel": own.shape[2:], "pads": attributes_of(moved)["pads"], "zero": zero}
            if exact_for(own, tile, part.dtype) and choose(_filtered(write, part, own, how), product):
                sums[-1] = write("WinogradSums", part, write.constant(transformed_weights(own, tile)), **how)
                product, held = write.calls[-1], x.numbers.dtype
        if not choose(product, call if groups == 1 else _of_one_group(call, groups)):
            return None
    if held != x.numbers.dtype:
        x = replace(x, zero=np.array(zero + sign_offset(x.numbers.dtype, held)))
    total = sums[0] if groups == 1 else write("Concat", *sums, axis=len(sums[0].shape) - 1)
    made = _with_bias(write, total, x, weight, np.concatenate(columns, axis=1), call.values[2:])
    images, channels, *spatial = call.outputs[0].shape
    to_first = (0, len(spatial) + 1, *range(1, len(spatial) + 1))
    return write("Transpose", write("Reshape", made, shape=(images, *spatial, channels)), perm=to_first)


def _filtered(write: Rewriting, image: Value, weight: np.ndarray, how: Mapping[str, Any]) -> Call:
    """A convolution by minimal filtering, to be estimated: its weights are not transformed yet."""
    outputs, channels, *kernel = weight.shape
    points = [m + r - 1 for m, r in zip(how["tile"], kernel, strict=True) if m > 1]
    write("WinogradSums", image, Value("points", (*points, channels + channels % 2, outputs), "int16"), **how)
    return write.calls[-1]


def _in_place(moved: Sequence[SlidingWindow]) -> bool:
    """True where each window is one pixel, in order."""
    return all((w.kernel, w.stride, w.before, w.after) == (1, 1, 0, 0) for w in moved)


def _windows(write: Rewriting, call: Call, image: Value, kernel: tuple[int, ...], zero: int, packs: bool) -> Value:
    """The windows of an image as rows: its channels are last, or with `packs` first, and copied as one int32."""
    moved = windows_of(call)
    window = {"kernel": kernel, **attributes_of(moved)}
    if packs:
        zeros = np.full(CHANNELS_OF_PIXEL, zero).astype(image.dtype).view(np.int32)
        rows = write("ImageRows", write("PackChannels", image), zero=int(zeros[0]), **window)
        rows = write("Bytes", rows, to=image.dtype)
    else:
        rows = image if _in_place(moved) else write("ImageRows", image, zero=zero, **window)
    count = call.outputs[0].shape[0] * prod(call.outputs[0].shape[2:])
    return write("Reshape", rows, shape=(count, prod(rows.shape) // count))


def _of_one_group(call: Call, groups: int) -> Call:
    """The convolution of one of the groups of a convolution."""
    x, weight = call.values[:2]
    x = replace(x, shape=(x.shape[0], x.shape[1] // groups, *x.shape[2:]))
    weight = replace(weight, shape=(weight.shape[0] // groups, *weight.shape[1:]))
    images, channels, *spatial = call.outputs[0].shape
    result = replace(call.outputs[0], shape=(images, channels // groups, *spatial))
    return Call("Conv", (x, weight), (result,), tuple((n, a) for n, a in call.attributes if n != "group"))


def _product(write: Rewriting, call: Call, a: Quantised, b: Quantised, choose: Choice, pairs: bool) -> Value | None:
    """Write a product by a matrix, or of as many matrices as its left operand has; None for another one."""
    transposed = bool(call.attribute("transB", 0))
    plain = not call.attribute("transA", 0) and all(call.attribute(n, 1.0) == 1.0 for n in ("alpha", "beta"))
    many = len(b.numbers.shape) > 2
    if not plain or len(b.numbers.shape) < 2 or len(a.numbers.shape) < 2 or not a.by(None):
        return None
    if not b.by(None if many else not transposed) or (many and a.numbers.shape[:-2] != b.numbers.shape[:-2]):
        return None
    array, columns = None if many else unshifted(write, b), b.numbers
    if array is not None:
        array = np.ascontiguousarray(array.T) if transposed else array
        columns = write.constant(array)
    elif transposed:
        columns = write("Transpose", columns, perm=(1, 0))
    rows = a.numbers if many else write("Reshape", a.numbers, shape=(prod(a.numbers.shape[:-1]), a.numbers.shape[-1]))
    sums = write("IntegerProduct", rows, columns, **_narrow(array, pairs))
    if not choose(write.calls[-1], call):
        return None
    if array is None:
        made = _scaled(write, _corrected_at_each_call(write, sums, a, b, columns), a, b, *call.values[2:])
    else:
        made = _with_bias(write, sums, a, b, array, call.values[2:])
    return write("Reshape", made, shape=call.outputs[0].shape)


def _with_bias(write: Rewriting, sums: Value, a: Quantised, b: Quantised, columns: np.ndarray, bias: Sequence[Value]) -> Value:
    """Sums of products of integers and these columns, corrected and scaled, plus a bias."""
    offset = _bias_of_sums(write, a, b, bias)
    corrected = _corrected(write, sums, a, columns, np.zeros(1, np.int32) if offset is None else offset)
    return _scaled(write, corrected, a, b, *(bias if offset is None else ()))


def _corrected(write: Rewriting, sums: Value, a: Quantised, columns: np.ndarray, offset: np.ndarray) -> Value:
    """Sums of products of integers and these columns, less the zero point times the columns, plus an offset."""
    totals = columns.sum(axis=0, dtype=np.int32)
    if a.known_zero is None:
        sums = write("Sub", sums, write("Mul", write.constant(totals), _number(write, a.zero)))
    else:
        offset = offset - a.known_zero * totals
    return write("Add", sums, write.constant(offset)) if offset.any() else sums


def _corrected_at_each_call(write: Rewriting, sums: Value, a: Quantised, b: Quantised, columns: Value) -> Value:
    """Sums of products of integers, less what the zero points of both operands add, of which the second is not constant, or has
    weights that are no integers of 8 bits without their zero point."""
    rows, length = write.calls[-1].values[0], columns.shape[-2]
    if a.known_zero != 0:
        totals = write("ReduceSum", write("Cast", columns, to="int32"), axes=(len(columns.shape) - 2,), keepdims=1)
        if b.known_zero != 0:
            totals = write("Sub", totals, write("Mul", _number(write, b.zero), write.constant(np.array(length, np.int32))))
        sums = write("Sub", sums, write("Mul", totals, _number(write, a.zero)))
    if b.known_zero != 0:
        totals = write("ReduceSum", write("Cast", rows, to="int32"), axes=(len(rows.shape) - 1,), keepdims=1)
        sums = write("Sub", sums, write("Mul", totals, _number(write, b.zero)))
    return sums


def _number(write: Rewriting, zero: Value | np.ndarray | None) -> Value:
    """A zero point in int32."""
    assert zero is not None, "a zero point of None is known"
    return write("Cast", zero, to="int32") if isinstance(zero, Value) else write.constant(zero.astype(np.int32))


def _scaled(write: Rewriting, sums: Value, a: Quantised, b: Quantised, *bias: Value) -> Value:
    """Sums of products of integers times both scales, plus a bias."""
    result = sums
    if a.scale is not None and b.scale is not None:
        result = write("Cast", result, to="float32")
        result = write("Mul", result, write.constant(_known_scale(a, b).astype(np.float32)))
        for scale in (a.scale, b.scale):
            result = write("Mul", result, scale) if isinstance(scale, Value) else result
    for added in bias:
        result = write("Add", result, added)
    return result


def _known_scale(a: Quantised, b: Quantised) -> np.ndarray:
    """The product of both scales, of those that are known, for each column or for all."""
    known = [x.astype(np.float64).reshape(-1) for x in (a.scale, b.scale) if isinstance(x, np.ndarray)]
    return reduce(mul, known, np.ones(1))


def _bias_of_sums(r: Rewriting, a: Quantised, b: Quantised, bias: Sequence[Value]) -> np.ndarray | None:
    """A bias as integers that are added to sums before both scales, within its rounding, as quantisers make it; 0 for none."""
    arrays = [r.known(v) for v in bias]
    if not arrays:
        return np.zeros(1, np.int32)
    (array,) = arrays
    if array is None or isinstance(a.scale, Value) or isinstance(b.scale, Value) or array.shape[:-1] != (1,) * (array.ndim - 1):
        return None
    scale = _known_scale(a, b)
    with np.errstate(all="ignore"):
        numbers = np.rint(array.reshape(-1) / scale)
        exact = np.abs(numbers * scale - array.reshape(-1)) <= np.finfo(np.float32).eps * np.abs(array.reshape(-1))
    return numbers.astype(np.int32) if exact.all() and np.abs(numbers).max() < MAX_BIAS else None


def unshifted(r: Rewriting, weight: Quantised) -> np.ndarray | None:
    """Constant weights less their zero points, if these are integers of 8 bits."""
    array = r.known(weight.numbers)
    if array is None or isinstance(weight.zero, Value):
        return None
    shifted = array.astype(np.int32) - along(weight.zero, weight.axis, array.ndim)
    kind = _fitting(shifted)
    return None if kind is None else shifted.astype(kind)


def along(given: np.ndarray | None, axis: int, rank: int) -> np.ndarray:
    """Scales or zero points of the indices along an axis, shaped to broadcast; 0 for None."""
    if given is None or given.size == 1:
        return np.zeros((), np.int32) if given is None else given.reshape(())
    return given.reshape(*(-1 if n == axis else 1 for n in range(rank)))
