"""Convolutions of halves: each by a template that converts operands once and sums in float32, within the rounding of its type."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import tir
from graph.ir import Call, Value
from graph.ops.registry import function, result_types
from schedule import templates
from search.measure.rounding import Reference
from tests.arrays import narrowed
from tests.sweeps import one_in
from tir import dtypes, te
from tir.arrays import to_float
from tir.constants import with_constants
from tir.interpreter import run
from tir.traverse import blocks, loads

HALVES = ("float16", "bfloat16")
AROUND = {"pads": (1, 1, 1, 1)}

# Image, weights and attributes of convolutions, by the template of float32 that they should have in halves, too.
FAMILY = {
    "3x3": ((1, 19, 13, 11), (33, 19, 3, 3), AROUND),
    "3x3, few pixels": ((1, 64, 7, 7), (109, 64, 3, 3), AROUND),
    "3x3, stride 2": ((2, 17, 15, 14), (31, 17, 3, 3), {**AROUND, "strides": (2, 2)}),
    "3x3, dilated": ((1, 8, 17, 16), (24, 8, 3, 3), {"dilations": (2, 2)}),
    "first layer": ((1, 3, 37, 40), (20, 3, 7, 7), {"pads": (3, 3, 3, 3), "strides": (2, 2)}),
    "first layer, rows of whole vectors": ((1, 3, 64, 64), (32, 3, 3, 3), {**AROUND, "strides": (2, 2)}),
    "1x1": ((1, 40, 9, 7), (97, 40, 1, 1), {}),
    "1x1, many pixels": ((1, 13, 31, 33), (64, 13, 1, 1), {}),
    "1x1, stride 2": ((1, 24, 13, 13), (48, 24, 1, 1), {"strides": (2, 2)}),
    "grouped": ((1, 36, 11, 13), (45, 4, 3, 3), {**AROUND, "group": 9}),
    "grouped, rows of whole vectors": ((1, 32, 28, 28), (32, 4, 3, 3), {**AROUND, "group": 8}),
    "depthwise": ((1, 19, 17, 21), (19, 1, 3, 3), {**AROUND, "group": 19}),
    "depthwise, stride 2": ((1, 7, 23, 33), (7, 1, 5, 5), {"pads": (2, 2, 2, 2), "strides": (2, 2), "group": 7}),
    "along one axis": ((1, 16, 97), (33, 16, 5), {"pads": (2, 2)}),
    "along three axes": ((1, 5, 6, 9, 10), (17, 5, 3, 3, 3), {"pads": (1, 1, 1, 1, 1, 1)}),
}


def convolution(image, weights, attributes, dtype, operator="Conv", constant=True):
    """A convolution as a function, and its inputs."""
    call = Call(operator, (Value("x", image, dtype), Value("w", weights, dtype)), (), tuple(sorted(attributes.items())))
    ((shape, kind),) = result_types(call)
    func = function(replace(call, outputs=(Value("y", shape, kind),)))
    rng = np.random.default_rng(sum(image))
    inputs = [narrowed(rng.uniform(-1, 1, s).astype(np.float32), dtype) for s in (image, weights)]
    return (with_constants(func, [func.buffers[1].name]) if constant else func), inputs


def check(func, inputs, schedule):
    """The largest error of a schedule against float64, as a part of the bound by dtype."""
    out = func.buffers[-1]
    found = np.zeros([int(d.value) for d in out.shape], dtypes.storage(out.dtype))
    expected = Reference(func)([*inputs, found.copy()])[2]
    tir.build(schedule.func, tir.Target("llvm", num_cores=schedule.target.num_cores))(*inputs, found)
    assert not expected.loose and not expected.wrong(to_float(found, out.dtype)).any()
    assert expected.wrong(to_float(np.zeros_like(found), out.dtype)).any()


def scheduled(func, cores=1):
    target = tir.Target("llvm", num_cores=cores)
    found = templates.decided(func, target)
    assert found is not None, "a block falls to the generic schedule"
    return found


@one_in(2)
@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("kind", FAMILY)
def test_convolutions_of_halves_have_the_template_of_float32(kind, dtype):
    func, inputs = convolution(*FAMILY[kind], dtype)
    found = scheduled(func)
    conv = next(rule for rule in found.rules if rule.startswith("conv:"))
    assert not any(word in conv for word in ("reduction", "rows", "elementwise"))
    check(func, inputs, found)


@one_in(2)
@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize("kind", ["3x3", "first layer", "1x1, many pixels", "1x1, stride 2", "along three axes"])
def test_bfloat16_by_dot_products(kind, constant):
    """In vectors where the processor has them, else by the interpreter; and tile registers."""
    func, inputs = convolution(*FAMILY[kind], "bfloat16", constant=constant)
    out = np.zeros([int(d.value) for d in func.buffers[-1].shape], np.uint16)
    expected = Reference(func)([*inputs, out])[2]
    for processor, intrinsic in (("znver4", "dot_16x2_bf16"), ("sapphirerapids", "amx_16x16x32_bf16")):
        target = tir.Target("llvm", num_cores=1, mcpu=processor, vector_bits=512)
        found = templates.decided(func, target)
        assert found is not None and "conv: pixels by dot products" in found.rules and intrinsic in str(found.trace)
        if kind != "first layer":  # of which the interpreter takes seconds
            result = out.copy()
            run(found.func, *inputs, result)
            assert not expected.wrong(to_float(result, "bfloat16")).any()


@one_in(2)
@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("kind", ["3x3", "1x1, many pixels", "grouped", "depthwise"])
def test_weights_may_be_given_at_each_call(kind, dtype):
    func, inputs = convolution(*FAMILY[kind], dtype, constant=False)
    check(func, inputs, scheduled(func, cores=2))


@pytest.mark.parametrize("dtype", HALVES)
def test_transposed_convolutions(dtype):
    func, inputs = convolution((1, 24, 9, 7), (24, 32, 4, 4), {**AROUND, "strides": (2, 2)}, dtype, "ConvTranspose")
    check(func, inputs, scheduled(func))


@pytest.mark.parametrize("dtype", HALVES)
def test_images_of_one_channel_of_which_a_part_is_read(dtype):
    """Channels last, which normal form drops: windows of 2 with a stride of 2 leave out a row and a column."""
    shapes = (1, 9, 5, 1), (2, 2, 1, 16)
    x, w = (te.placeholder(shape, dtype, name=name) for name, shape in zip("xw", shapes, strict=True))
    r, q = te.reduce_axis((0, 2), "r"), te.reduce_axis((0, 2), "q")

    def windows(n, i, j, o):
        return te.sum(x[n, 2 * i + r, 2 * j + q, 0].astype("float32") * w[r, q, 0, o].astype("float32"), axis=(r, q))

    func = te.create_prim_func([x, w, te.compute((1, 4, 2, 16), windows, name="conv")])
    rng = np.random.default_rng(0)
    check(func, [narrowed(rng.uniform(-1, 1, shape).astype(np.float32), dtype) for shape in shapes], scheduled(func))


@pytest.mark.parametrize("kind", ["first layer, rows of whole vectors", "grouped, rows of whole vectors", "depthwise", "3x3"])
def test_what_a_register_tile_broadcasts_is_converted_before(kind):
    func, _ = convolution(*FAMILY[kind], "float16")
    broadcast = func.buffers[0 if kind == "3x3" else 1].name
    for block in blocks(scheduled(func).func):
        assert not block.is_reduction or broadcast not in {x.buffer.name for x in loads(block.body)}
