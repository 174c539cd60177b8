"""Quantised tensors as torch's PT2E and torchao write them, (integer - zero point) * scale, by the operators of ONNX."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from tir import dtypes

from ...ir import Value
from ...ops.registry import Apply
from .moving import reshaped
from .types import Table, aten, cast

PT2E, TORCHAO = "quantized_decomposed", "torchao"


def _quantised(apply: Apply, x: Value, scale: Any, zero: Any, low: int, high: int, dtype: str, **blocks: int) -> Value:
    """x / scale, rounded to even, + zero, from `low` to `high`."""
    numbers = apply("QuantizeLinear", x, cast(apply, scale, "float32"), cast(apply, zero, dtype), **blocks)
    if (low, high) == dtypes.limits(dtype):
        return numbers
    return apply("Clip", numbers, apply.constant(low, dtype), apply.constant(high, dtype))


def _dequantised(apply: Apply, x: Value, scale: Any, zero: Any, dtype: str | None, **blocks: int) -> Value:
    zero = None if zero is None else cast(apply, zero, x.dtype)
    return cast(apply, apply("DequantizeLinear", x, cast(apply, scale, "float32"), zero, **blocks), dtype or "float32")


def _in_blocks(apply: Apply, x: Value, sizes: Sequence[int], *parameters: Any) -> tuple[dict[str, int], list[Any]]:
    """The attributes of ONNX for blocks of `sizes`, and the parameters, one of each for a block, in the shape for these."""
    across = [n for n, (size, extent) in enumerate(zip(sizes, x.shape, strict=True)) if size != extent]
    split = [n for n, size in enumerate(sizes) if size != 1]
    shape: tuple[int, ...]
    if not across:
        attributes, shape = {}, ()
    elif len(across) == 1 and sizes[across[0]] == 1:
        attributes, shape = {"axis": across[0]}, (x.shape[across[0]],)
    elif len(split) <= 1:
        axis = split[0] if split else across[0]
        attributes = {"axis": axis, "block_size": sizes[axis]}
        shape = tuple(extent // size for extent, size in zip(x.shape, sizes, strict=True))
    else:
        raise ValueError(f"blocks of {list(sizes)} are not supported: they may extend along one axis, or along all but one")
    given = [None if p is None or (isinstance(p, Value) and not prod(p.shape)) else p for p in parameters]
    return attributes, [p if p is None or p.shape == shape else reshaped(apply, p, shape) for p in given]


@aten(f"{PT2E}.choose_qparams.tensor")
def choose_parameters(apply, x, low, high, eps, dtype):
    """The scale, in float64, and the zero point, in int64, for which the integers from `low` to `high` hold a tensor and 0."""
    x = cast(apply, x, "float32")
    zero = apply.constant(0.0, x.dtype)
    least = apply("Min", apply("ReduceMin", x, keepdims=0), zero)
    most = apply("Max", apply("ReduceMax", x, keepdims=0), zero)
    steps, finest = (apply.constant(n, x.dtype) for n in (high - low, eps))
    scale = apply("Max", apply("Div", apply("Sub", most, least), steps), finest)
    below = apply("Round", apply("Div", least, scale))
    shifted = apply("Sub", apply.constant(low, x.dtype), below)
    point = apply("Clip", shifted, apply.constant(low, x.dtype), apply.constant(high, x.dtype))
    return tuple(reshaped(apply, cast(apply, v, to), (1,)) for v, to in ((scale, "float64"), (point, "int64")))


@aten(f"{TORCHAO}.dequantize_affine")
def dequantize_blocks(apply, x, sizes, scale, zero, dtype, low=None, high=None, output_dtype="float32"):
    attributes, (scale, zero) = _in_blocks(apply, x, sizes, scale, zero)
    return _dequantised(apply, x, scale, zero, output_dtype, **attributes)


OPERATORS: Table = {
    f"{PT2E}.quantize_per_tensor {PT2E}.quantize_per_tensor.tensor": _quantised,
    f"{PT2E}.quantize_per_channel": lambda apply, x, scales, zeros, axis, low, high, dtype: _quantised(
        apply, x, scales, zeros, low, high, dtype, axis=axis
    ),
    f"{PT2E}.dequantize_per_tensor {PT2E}.dequantize_per_tensor.tensor": lambda apply, x, scale, zero, *limits, out_dtype=None: (
        _dequantised(apply, x, scale, zero, out_dtype)
    ),
    f"{PT2E}.dequantize_per_channel": lambda apply, x, scales, zeros, axis, *limits, out_dtype=None: _dequantised(
        apply, x, scales, zeros, out_dtype, axis=axis
    ),
    f"{PT2E}.dequantize_per_channel_group": lambda apply, x, scales, zeros, low, high, dtype, size, to: dequantize_blocks(
        apply, x, (1, min(size, x.shape[1])), scales, zeros, dtype, low, high, to
    ),
    "_int_mm torchao.int_matmul": lambda apply, a, b: apply("MatMulInteger", a, b),
    "_weight_int8pack_mm": lambda apply, x, weight, scales: apply(
        "MatMul", x, apply("Transpose", _dequantised(apply, weight, scales, None, x.dtype, axis=0), perm=(1, 0))
    ),
}
