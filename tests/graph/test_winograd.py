"""Convolutions by minimal filtering: the matrices, the operator, its schedules, and when it is chosen."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

import tir
from codegen import Target
from graph.compilation import assembled
from graph.fusion import fuse
from graph.ir import Call, Graph, Value, constant, numpy_type
from graph.ops import result_types
from graph.ops.winograd import exact_for, filtering, transformed_weights
from graph.passes.check import widened
from graph.passes.winograd import fastest, filter_minimally, tiles
from graph.reference import evaluate
from schedule import OpenSchedule, templates
from schedule.templates import low_precision, winograd
from tests.sweeps import one_in
from tir import dtypes

TARGET = Target("llvm -num-cores 1 -mcpu x86-64-v4 -l1 49152 -l2 1048576 -l3 33554432")
FILTERS = [(2, 3), (4, 3), (3, 2), (5, 2), (2, 5)]
PADS = {"pads": (1, 1, 1, 1)}
# Images, channels, output channels, extents, kernel, attributes: tails of tiles, one tile, no channels for a vector, no padding.
CASES = [
    (1, 5, 7, (13, 11), (3, 3), PADS),
    (2, 3, 19, (4, 4), (3, 3), PADS),
    (1, 17, 3, (9, 2), (3, 3), {"pads": (2, 0, 1, 2)}),
    (3, 2, 5, (7, 3), (3, 3), {}),
    (1, 4, 6, (5, 21), (5, 5), {"auto_pad": "SAME_UPPER"}),
    (1, 4, 33, (6, 10), (1, 3), {"pads": (0, 1, 0, 1)}),
    (2, 18, 4, (7, 1), (3, 1), {"pads": (1, 0, 1, 0)}),
    (1, 3, 2, (23,), (3,), {"pads": (1, 2)}),
]


def network(case, dtype="float32") -> tuple[Graph, np.ndarray]:
    """A convolution with bias, a ReLU, and an input: the same numbers in any type."""
    images, channels, outputs, extents, kernel, attributes = case
    rng = np.random.default_rng(0)
    arrays = {"w": rng.uniform(-1, 1, (outputs, channels, *kernel)), "b": rng.uniform(-1, 1, outputs)}
    arrays = {name: array.astype("float32").astype(numpy_type(dtype)) for name, array in arrays.items()}
    x = Value("x", (images, channels, *extents), dtype)
    inputs = (x, *(constant(name, array) for name, array in arrays.items()))
    conv = Call("Conv", inputs, (), tuple(sorted(attributes.items())))
    ((shape, _),) = result_types(conv)
    made, result = Value("c", shape, dtype), Value("y", shape, dtype)
    calls = (replace(conv, outputs=(made,)), Call("Relu", (made,), (result,)))
    return Graph("test", (x,), calls, (result,), arrays), rng.uniform(-1, 1, x.shape).astype("float32").astype(numpy_type(dtype))


def sized(graph: Graph, number: int) -> Graph:
    """The graph with its convolution by tiles, those of this number for its kernel."""
    return filter_minimally(graph, lambda call: tiles(call.values[1].shape[2:])[number])


def amplified(kernel, tile) -> float:
    """How many times the rounding of a term may be found in a result: the sums of the absolute values of the matrices."""
    factor = 1.0
    for m, r in zip(tile, kernel, strict=True):
        if m > 1:
            a, g, b = (
                np.abs(np.array(x, float)) for x in (filtering(m, r).outputs, filtering(m, r).taps, filtering(m, r).inputs)
            )
            factor *= float((a @ (g.sum(axis=1) * b.sum(axis=1))).max())
    return factor


def close(found: np.ndarray, wanted: np.ndarray, case, tile) -> None:
    """Within the roundings of all sums: of the channels, of two transforms of six points an axis, and the bias."""
    _, channels, _, _, kernel, _ = case
    roundings = channels + 2 * 6 * len(kernel) + 2
    bound = roundings * np.finfo(found.dtype).eps * channels * amplified(kernel, tile)
    assert np.abs(found - wanted).max() <= bound < np.abs(wanted).max(), bound


@pytest.mark.parametrize("integral", [False, True])
@pytest.mark.parametrize(("m", "r"), FILTERS)
def test_minimal_filters_are_exact(m, r, integral):
    f = filtering(m, r, integral)
    assert not integral or all(x.denominator == 1 for matrix in (f.outputs, f.taps, f.inputs) for row in matrix for x in row)
    rng = np.random.default_rng(0)
    d, g = ([Fraction(int(n)) for n in rng.integers(-9, 10, count)] for count in (m + r - 1, r))

    def times(matrix, vector):
        return [sum((a * b for a, b in zip(row, vector, strict=True)), Fraction(0)) for row in matrix]

    made = times(f.outputs, [a * b for a, b in zip(times(f.taps, g), times(f.inputs, d), strict=True)])
    assert made == [f.scale * sum(d[i + k] * g[k] for k in range(r)) for i in range(m)]


def test_points_that_are_not_there():
    x, weight = Value("x", (1, 5, 9, 9), "float32"), Value("w", (5, 5, 5, 7), "float32")
    with pytest.raises(ValueError, match=r"F\(3, 3\) is not supported"):
        result_types(Call("WinogradConv", (x, weight), (), (("kernel", (3, 3)), ("tile", (3, 3)))))


@one_in(2)
@pytest.mark.parametrize("number", [0, -1])
@pytest.mark.parametrize("case", CASES)
def test_outputs(case, number):
    """The definition in float64, and in float32 the schedules for one thread and for several."""
    graph, x = network(case, "float64")
    after = sized(graph, number)
    assert [c.operator for c in after.calls] == ["WinogradConv", "Relu"]
    tile = after.calls[0].attribute("tile")
    ((wanted,), (found,)) = (evaluate(g, [x]) for g in (graph, after))
    close(found, wanted, case, tile)
    after, x = sized(network(case)[0], number), x.astype("float32")
    for cores in (1, 3):
        target = Target("llvm", num_cores=cores)
        s = OpenSchedule(fuse(after)[0].func, target, at_seed=True)
        assert templates.build(s) == [] and s.rules == ["products: Winograd"]
        (found,) = assembled(after, target, None, None)(x)
        close(found, wanted.astype("float32"), case, tile)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("number", [0, -1])
def test_halves_are_filtered_in_float32(number, dtype):
    """Rounded once: the error is half a unit of the result, and that of filtering in float32."""
    graph, x = network(CASES[4], dtype)
    after = sized(graph, number)
    assert after.calls[0].values[1].dtype == "float32"
    case, tile = CASES[4], after.calls[0].attribute("tile")
    ((wanted,),) = [evaluate(*widened(graph, [x]))]
    s = OpenSchedule(fuse(after)[0].func, Target("llvm", num_cores=1), at_seed=True)
    assert templates.build(s) == [] and s.rules == ["products: Winograd"]
    (found,) = assembled(after, Target("llvm", num_cores=1), None, None)(x)
    error = np.abs(found.astype("float64") - wanted)
    filtering_error = (case[1] + 2 * 6 * 2 + 2) * np.finfo("float32").eps * case[1] * amplified(case[4], tile)
    bound = dtypes.unit(dtype) * np.abs(wanted) + filtering_error
    assert (error <= bound).all() and (np.abs(wanted) > bound).any()


# 5 x 5 taps may take more than 16 bits. Output channels are of whole vectors, or not.
BYTES = [
    ((*c[:2], o, *c[3:]), kind)
    for n, c in enumerate(CASES)
    if c[4] != (5, 5)
    for o in [(c[2], 16, 32)[n % 3]]
    for kind in ("uint8", "int8")
]  # 5 x 5 taps may take more than 16 bits


def sums(case, kind: str, number: int, numbers=None) -> tuple[Graph, np.ndarray, np.ndarray]:
    """A convolution of bytes by tiles, whose input and weights are random, of some `numbers` or any; an input, and the sums."""
    images, channels, outputs, extents, kernel, attributes = case
    rng, zero = np.random.default_rng(0), -7 if kind == "int8" else 119
    low, high = dtypes.limits(kind)
    x = (
        rng.integers(low, high + 1, (images, *extents, channels))
        if numbers is None
        else rng.choice(numbers, (images, *extents, channels))
    )
    weight = (
        rng.integers(-128, 128, (outputs, channels, *kernel))
        if numbers is None
        else rng.choice((-128, 127), (outputs, channels, *kernel))
    )
    tile, weight = tiles(kernel)[number], weight.astype("int8")
    assert exact_for(weight, tile, kind)
    pads = attributes.get("pads", (0,) * 2 * len(kernel))
    made = {"points": transformed_weights(weight, tile)}
    inputs = (Value("x", x.shape, kind), constant("points", made["points"]))
    call = Call("WinogradSums", inputs, (), tuple(sorted({"tile": tile, "kernel": kernel, "pads": pads, "zero": zero}.items())))
    ((shape, dtype),) = result_types(call)
    call = replace(call, outputs=(Value("y", shape, dtype),))
    around = ((0, 0), *zip(pads[: len(kernel)], pads[len(kernel) :], strict=True), (0, 0))
    padded, wanted = np.pad(x, around, constant_values=zero), np.zeros(shape, np.int64)
    for tap in np.ndindex(*kernel):
        window = padded[(slice(None), *(slice(t, t + n) for t, n in zip(tap, shape[1:-1], strict=True)))]
        wanted += window @ weight[(..., *tap)].astype(np.int64).T
    return Graph("test", inputs[:1], (call,), call.outputs, made), x.astype(kind), wanted


@one_in(3)
@pytest.mark.parametrize("number", [0, -1])
@pytest.mark.parametrize(("case", "kind"), BYTES)
def test_sums_of_bytes_are_exact(case, kind, number):
    """The definition, and the schedules for one thread and for several."""
    graph, x, wanted = sums(case, kind, number)
    (found,) = evaluate(graph, [x])
    assert (found == wanted).all() and np.ptp(wanted)
    for cores in (1, 3):
        target = Target("llvm", num_cores=cores)
        s = OpenSchedule(fuse(graph)[0].func, target, at_seed=True)
        if low_precision.has_pairs(target.machine) and wanted.shape[-1] % 16 == 0:
            assert templates.build(s) == [] and s.rules == ["products: Winograd"]
        (found,) = assembled(graph, target, None, None)(x)
        assert (found == wanted).all()


@pytest.mark.parametrize("number", [0, -1])
@pytest.mark.parametrize("kind", ["uint8", "int8"])
def test_the_largest_numbers_do_not_overflow(kind, number):
    """Images of the ends of their type by weights of -128 and 127, of as many channels as the largest sums allow."""
    case = (1, 112, 16, (10, 9), (3, 3), PADS)
    graph, x, wanted = sums(case, kind, number, dtypes.limits(kind))
    (found,) = assembled(graph, Target("llvm", num_cores=1), None, None)(x)
    assert (found == wanted).all()


@pytest.mark.parametrize(("tile", "most"), [((4, 4), 2**25), ((2, 2), 2**29)])
def test_sums_that_may_wrap_around_are_not_filtered(tile, most):
    """A sum is known up to the powers of two that are shifted out: 24 and 2 to the second have six and two."""
    each = 9 * 255 * 127
    few, many = (np.full((1, n, 3, 3), 127, "int8") for n in (most // each, most // each + 1))
    assert exact_for(few, tile, "uint8") and not exact_for(many, tile, "uint8")
    assert exact_for(np.zeros((1, 3, 3, 2), "int8"), (4, 5), "uint8")
    assert not exact_for(np.zeros((1, 3, 5, 5), "int8"), (2, 2), "uint8"), "31 x 31 times as large weights take over 16 bits"


def large(channels, extent, outputs, **attributes):
    return network((1, channels, outputs, (extent, extent), (3, 3), {"pads": (1, 1, 1, 1)} | attributes))[0]


def chosen(graph: Graph, target: Target = TARGET) -> tuple[int, ...] | None:
    return fastest(target)(graph.calls[0])


def test_the_fewest_cycles_are_chosen():
    """Larger tiles save more where there are outputs enough to fill them, and channels enough to pay for the transforms."""
    assert chosen(large(64, 56, 64)) == chosen(large(256, 14, 256)) == (4, 4)
    assert chosen(large(64, 6, 64)) == (2, 2)
    assert chosen(large(1, 56, 1)) == chosen(large(64, 2, 64)) == ()
    assert chosen(network((1, 64, 64, (35, 35), (5, 5), {}))[0]) == (2, 2)
    assert chosen(network((1, 192, 192, (17, 17), (1, 7), {}))[0]) == (), "no points for seven taps"


def test_blocks_of_tiles_stay_in_the_second_level_cache():
    func = fuse(sized(large(64, 56, 64), -1))[0].func
    s = OpenSchedule(func, TARGET, at_seed=True)
    (found,) = (w for b in s.unscheduled() if (w := winograd.matches(s, b)) is not None)
    assert found.tile == (4, 4) and (len(found.inputs), len(found.outputs)) == (2, 2)
    t = winograd.tiles(found, TARGET.machine)
    assert t.rows * t.columns * 36 * (64 + 64) * 4 <= TARGET.l2 // 2 and t.across * t.channels // 16 <= 28
    shared = winograd.tiles(found, replace(TARGET.machine, cores=2))
    assert -(-14 // shared.rows) % 2 == 0, "threads share the blocks equally"


@pytest.mark.parametrize(("channels", "extents"), [(64, (56, 56)), (256, (14, 14)), (64, (2, 7, 7))])
def test_threads_share_what_is_enough_for_them(channels, extents):
    """Blocks of tiles, or all stages of the only block; rows of the image are no whole number of squares."""
    target = Target("llvm -num-cores 2 -mcpu x86-64-v4 -l2 1048576")
    ones = (1,) * len(extents)
    graph, _ = network((1, channels, channels, extents, 3 * np.array(ones), {"pads": (*ones, *ones)}))
    s = OpenSchedule(fuse(sized(graph, -1))[0].func, target, at_seed=True)
    assert templates.build(s) == [] and s.rules == ["products: Winograd"]
    assert "T.parallel" in s.func.script()


@pytest.mark.parametrize("attributes", [{"strides": (2, 2)}, {"dilations": (2, 2)}])
def test_what_is_left_alone(attributes):
    graph = large(64, 56, 64, **attributes)
    assert sized(graph, 0) is graph


def test_integers_are_left_alone():
    graph, _ = network((1, 3, 4, (6, 5), (3, 3), PADS), "int32")
    assert chosen(graph) == ()
    x = np.random.default_rng(0).integers(-9, 9, graph.inputs[0].shape).astype("int32")
    here = Target("llvm", num_cores=1)
    np.testing.assert_array_equal(tir.compile(graph, here, cache=None)(x)[0], evaluate(graph, [x])[0])


def test_float64_and_weights_that_are_computed_are_left_alone():
    case = (1, 64, 64, (28, 28), (3, 3), PADS)
    assert chosen(network(case, "float64")[0]) == () and chosen(network(case)[0]) == (4, 4)
    graph, _ = network(case)
    weight = graph.calls[0].values[1]
    assert sized(graph.with_(inputs=(*graph.inputs, weight), constants={"b": graph.constants["b"]}), 0).calls == graph.calls


def test_a_network_does_without():
    graph, _ = network((1, 64, 64, (28, 28), (3, 3), PADS))
    names = [[g.func.name for g in tir.compile(graph, TARGET, cache=None, winograd=w).groups] for w in (True, False)]
    assert names == [["winogradconv_relu"], ["conv_relu"]]
