"""`tir.quantise`: networks of floats as networks of integers, calibrated, with a report of the errors."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

import tir
from graph.compilation import final
from graph.ir import Graph, GraphError
from graph.quantisation.errors import LayerNoise, alone
from graph.quantisation.layers import layers_of, places_of, quantised
from graph.quantisation.ranges import BINS, RANGES, Histogram, point_of
from graph.quantisation.samples import samples_of
from graph.quantisation.weights import BLOCKS, by_blocks, by_channel
from graph.reference import evaluate
from tir import load_onnx

from .models import model

LANES = "llvm -num-cores 1 -mcpu cascadelake -l1 32768 -l2 1048576 -l3 33554432"
PLAIN = "llvm -num-cores 1 -mcpu x86-64 -l1 32768 -l2 262144 -l3 33554432"
EXTENT = 10  # of the image of a test


def network() -> Graph:
    """A stem, a pool, a shortcut, a convolution of each channel by itself, a mean and a head."""
    rng = np.random.default_rng(0)

    def weights(*shape: int) -> np.ndarray:
        return (rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype("float32")

    constants = {"w1": weights(16, 3, 3, 3), "b1": weights(16), "w2": weights(16, 1, 3, 3), "w3": weights(16, 16, 1, 1)}
    constants |= {"head": weights(10, 16), "bias": weights(10)}
    nodes = [
        helper.make_node("Conv", ["image", "w1", "b1"], ["c1"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c1"], ["r1"]),
        helper.make_node("MaxPool", ["r1"], ["p1"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Conv", ["p1", "w2"], ["c2"], pads=[1, 1, 1, 1], group=16),
        helper.make_node("Conv", ["c2", "w3"], ["c3"]),
        helper.make_node("Add", ["c3", "p1"], ["a"]),
        helper.make_node("GlobalAveragePool", ["a"], ["g"]),
        helper.make_node("Flatten", ["g"], ["f"]),
        helper.make_node("Gemm", ["f", "head", "bias"], ["y"], transB=1),
    ]
    return load_onnx(model(nodes, {"image": np.empty((1, 3, EXTENT, EXTENT), "float32")}, ["y"], constants))


def product(rows: int = 3, steps: int = 70, columns: int = 24) -> Graph:
    rng = np.random.default_rng(0)
    constants = {"w": rng.standard_normal((steps, columns)).astype("float32")}
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    return load_onnx(model(nodes, {"x": np.empty((rows, steps), "float32")}, ["y"], constants))


def images(count: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((count, 3, EXTENT, EXTENT)).astype("float32")


def operators(graph: Graph) -> list[str]:
    return [c.operator for c in graph.calls]


@pytest.fixture
def no_measure(monkeypatch):
    """No target that cannot run here is compiled for: every layer is 30 dB."""
    from graph.quantisation import quantise as module

    observer = module.observer
    monkeypatch.setattr(
        module, "alone", lambda graph, weights, *_: {x: LayerNoise(30.0, np.zeros(x.weight.shape[x.axis])) for x in weights}
    )
    monkeypatch.setattr(module, "in_network", lambda values, *_: dict.fromkeys(values, 30.0))
    monkeypatch.setattr(
        module, "observer", lambda graph, values, target: observer(graph, values, tir.Target("llvm -num-cores 1"))
    )


def test_a_network_is_computed_in_integers(no_measure):
    """Every layer reads bytes; a pool and a shortcut do, too; the outputs are those of floats within the reported ratio."""
    graph = network()
    made = tir.quantise(graph, {"image": images(8)}, target=LANES)
    integers = operators(final(made, tir.Target(LANES)))
    assert integers.count("IntegerProduct") + integers.count("ChannelsLastConv") == 3
    assert integers.count("DepthwiseConv") == 1
    assert not {"Conv", "MatMul"} & set(integers)
    assert [v.name for v in made.outputs] == ["y"]
    image = images(1, seed=2)
    (exact,), (found,) = (tir.compile(g, "llvm -num-cores 1")(image) for g in (graph, made))
    assert np.square(found - exact).sum() < 1e-3 * np.square(exact).sum(), "30 dB"
    assert (found != exact).any()


def test_the_report_is_of_each_layer_and_output():
    """Ratios are those of the definition, on the samples."""
    graph, data = product(columns=130), np.random.default_rng(1).standard_normal((5, 3, 70)).astype("float32")
    made = tir.quantise(graph, {"x": data}, target="llvm -num-cores 1")
    (layer,) = made.report.layers
    assert (layer.name, layer.operator, layer.weight) == ("y", "MatMul", (70, 130))
    if layer.why_float:  # where the processor has no instruction for it
        assert (layer.why_float, layer.network) == ("integers would not be faster", None)
        assert made.calls == graph.calls
        return
    exact, found = (np.concatenate([evaluate(g, [x])[0] for x in data]) for g in (graph, made))
    ratio = 10 * np.log10(np.square(exact).sum(dtype="f8") / np.square(found - exact).sum(dtype="f8"))
    assert 30 < ratio < 60
    assert [layer.own, layer.network, made.report.outputs["y"]] == pytest.approx([ratio] * 3, rel=1e-3)
    text = str(made.report).splitlines()
    assert text[0] == "1 of 1 layer quantised: uint8 activations (mse of 5 samples), int8 weights by output channel"
    assert text[3].split() == ["y", "MatMul", "70", "x", "130", *[f"{ratio:.1f}", "dB"] * 2]
    assert text[4] == f"output y: {ratio:.1f} dB"


def test_layers_stay_float_for_a_reason(no_measure):
    graph = network()
    made = tir.quantise(graph, {"image": images(2)}, keep_float=["c3"], target=LANES)
    assert [e.why_float for e in made.report.layers] == ["", "", "asked for", ""]
    assert any(c.outputs[0].name == "c3" and c.inputs[1].name == "w3" for c in made.calls)
    made = tir.quantise(product(97, 128, 96), {"x": np.ones((1, 97, 128), "f4")}, target=PLAIN)
    assert [e.why_float for e in made.report.layers] == ["integers would not be faster"]
    made = tir.quantise(graph, {"image": images(2)}, min_ratio=31, target=LANES)
    assert {e.why_float for e in made.report.layers} == {"alone below 31 dB"}
    assert not {"QuantizeLinear", "DequantizeLinear"} & set(operators(made))


CONVOLUTIONS = [  # shapes of image and weights, and attributes
    ((2, 6, 9, 7), (4, 6, 3, 3), {"strides": [2, 1], "pads": [1, 0, 2, 1]}),
    ((1, 6, 13, 5), (6, 1, 3, 2), {"group": 6, "dilations": [2, 1], "auto_pad": "SAME_UPPER"}),
    ((1, 6, 8), (9, 2, 3), {"group": 3, "auto_pad": "SAME_LOWER"}),
    ((1, 2, 3, 4, 5), (3, 2, 1, 2, 3), {"pads": [0, 1, 2, 0, 0, 1]}),
]


@pytest.mark.parametrize("shape,weights,attributes", CONVOLUTIONS)
def test_a_layer_alone_is_its_operator_on_rounded_operands(shape, weights, attributes):
    rng = np.random.default_rng(0)
    w = rng.standard_normal(weights).astype("float32")
    x, q, point = rng.standard_normal(shape).astype("float32"), by_channel(w, 0), point_of(-4.0, 3.5)
    made = load_onnx(model([helper.make_node("Conv", ["x", "w"], ["y"], **attributes)], {"x": x}, ["y"], {"w": w}))
    (layer,) = layers_of(made)
    integers = np.clip(np.rint(x / point[0]) + point[1], 0, 255)
    real = ((integers - point[1]) * point[0]).astype("float32")
    (exact,), (found,) = evaluate(made, [x]), evaluate(quantised(made, {layer: q}, {}), [real])
    wanted = 10 * np.log10(np.square(exact, dtype="f8").sum() / np.square(found - exact, dtype="f8").sum())
    values = {layer.x: x, layer.call.outputs[0]: exact}
    (noise,) = alone(made, {layer: q}, {layer.x: point}, lambda sample: values, [{}]).values()
    assert noise.ratio == pytest.approx(wanted, abs=0.01) and 20 < noise.ratio < 60
    axes = (0, *range(2, exact.ndim))
    mean, error = (found - exact).mean(axis=axes), (found - exact).std(axis=axes) / np.sqrt(exact[:, 0].size)
    assert (np.abs(noise.shift) <= np.abs(mean) + 1e-6).all() and (np.abs(noise.shift - mean) <= error + 1e-6)[
        np.abs(mean) > 2 * error
    ].all()
    (less,) = evaluate(quantised(made, {layer: q}, {layer.x: point}, (), {layer: mean.astype("float32")}), [x])
    assert np.abs((less - exact).mean(axis=axes)).max() < 0.51 * (q.scales * point[0]).max()  # as biases are rounded


@pytest.mark.parametrize("rows", [1, 4, 4096])
def test_few_rows_do_not_fit_the_bias_to_their_noise(rows):
    """Of one row no shift is known, of some that scatter around 0 about none; of many, that of inputs with a mean."""
    rng = np.random.default_rng(0)
    w, mean = rng.standard_normal((64, 48)).astype("float32"), np.float32(3.0 * (rows > 4))
    x = (rng.standard_normal((rows, 64)) + mean).astype("float32")
    made = load_onnx(model([helper.make_node("Gemm", ["x", "w"], ["y"])], {"x": x}, ["y"], {"w": w}))
    (layer,), q, point = layers_of(made), by_channel(w, 1), point_of(-8.0, 8.0)
    (noise,) = alone(made, {layer: q}, {layer.x: point}, lambda sample: {layer.x: x, layer.call.outputs[0]: x @ w}, [{}]).values()
    fresh = (rng.standard_normal((4096, 64)) + mean).astype("float32")
    integers = np.clip(np.rint(fresh / point[0]) + point[1], 0, 255)
    errors = ((integers - point[1]) * point[0]) @ q.real - fresh @ w
    before, after = np.square(errors).sum(), np.square(errors - noise.shift).sum()
    assert not noise.shift.any() if rows == 1 else after < before * (0.9 if rows > 4 else 1.1)


def test_images_are_quantised_for_all_readers_and_rows_for_products():
    places = places_of(network(), layers_of(network()))
    assert [[v.name for v in group] for group in places.groups] == [["image"], ["r1"], ["c2"], ["f"]]
    assert {v.name for v in places.for_all} == {"image", "r1", "c2"}


def test_samples_lie_in_front_or_in_place_of_the_batch():
    graph, data = network(), images(4)
    single = [{"image": image[None]} for image in data]
    for given in ({"image": data}, {"image": data[:, None]}, {"image": data.astype("float64")}, single, iter(single)):
        found = samples_of(graph, given)
        assert [list(sample) for sample in found] == [["image"]] * 4
        assert all(
            np.array_equal(s["image"], image[None]) and s["image"].dtype == "f4" for s, image in zip(found, data, strict=True)
        )


SHAPE = f"[samples, 1, 3, {EXTENT}, {EXTENT}]"
REFUSED = [
    ({"data": {}}, "test: the inputs are image; `image` is missing"),
    ({"data": []}, "test: calibration needs at least one sample, got none"),
    ({"data": {"image": images(0)}}, "test: calibration needs at least one sample, got none"),
    ({"data": {"image": images(1), "mask": 1}}, "test: the inputs are image; got `mask`"),
    ({"data": {"image": images(2)[:, :2]}}, f"test: samples of `image` must have the shape {SHAPE}, got [2, 2, 10, 10]"),
    ({"data": [{"image": images(2)}]}, "test: samples of `image` must have the shape [1, 3, 10, 10], got [2, 3, 10, 10]"),
    ({"data": {"image": images(1) * np.nan}}, "test: samples of `image` have elements that are not finite"),
    ({"data": {"image": images(1).astype("c8")}}, "test: samples of `image` must be of float32, got complex64"),
    ({"data": images(1)}, "test: data must be a mapping of input names (`image`) to arrays, or an iterable of them, got ndarray"),
    ({"data": [images(1)]}, "test: sample 0 must be arrays by the names of inputs, got ndarray"),
    ({"weights": "int3"}, "weights are of int8 or int4, got 'int3'"),
    ({"weights": "int4", "block": 48}, "a block has 32, 64 or 128 inputs, got 48"),
    ({"block": 32}, "blocks are of weights of int4; weights of int8 have one scale for each output channel"),
    ({"calibration": "kl"}, "calibration is one of mse, minmax, percentile, got 'kl'"),
    ({"keep_float": ["c"]}, "keep_float: test has no layer 'c'; did you mean 'c3'?"),
    ({"data": {"image": images(1)}, "weights": "int4"},
     "weights of int4 are multiplied by floats, which need no data; leave out the data, or the int4"),
]  # fmt: skip


@pytest.mark.parametrize(("options", "message"), REFUSED)
def test_refusals(options, message):
    with pytest.raises(ValueError) as raised:
        tir.quantise(network(), **options)
    assert str(raised.value) == message


def test_a_network_without_layers_is_refused():
    graph = load_onnx(model([helper.make_node("Relu", ["x"], ["y"])], {"x": np.empty(3, "f4")}, ["y"]))
    with pytest.raises(GraphError, match="no Conv, MatMul or Gemm of float32"):
        tir.quantise(graph)
    with pytest.raises(TypeError, match=r"quantise takes a Graph, such as .*, got str"):
        tir.quantise("net.onnx")


# --- ranges ------------------------------------------------------------------------------------------------------------


def test_histograms_widen_and_join():
    rng = np.random.default_rng(0)
    arrays = [rng.uniform(-1, 1, 1000).astype("f4") * 2.0**n for n in (-3, 0, 2, 5)]
    grown, whole, joined = Histogram(), Histogram(), Histogram()
    for array in arrays:
        grown.add(array)
        one = Histogram()
        one.add(array)
        joined = joined.joined(one)
    whole.add(np.concatenate(arrays))
    for h in (grown, joined):
        assert (h.low, h.high, h.reach) == (whole.low, whole.high, whole.reach)
        assert np.array_equal(h.counts, whole.counts)
    assert whole.counts.sum() == 4000
    middle = whole.centres[np.flatnonzero(whole.counts)]
    assert middle.min() - whole.low < whole.reach / BINS * 2


@pytest.mark.parametrize("scale", [1e-45, 1e-38, 3e-36, 1e-30, 3e38])
def test_histograms_of_numbers_at_the_ends_of_the_range(scale):
    h, array = Histogram(), np.array([-1, 0, 0.5, 1]) * scale
    h.add(array.astype("f4"))
    assert h.counts.sum() == 4
    width = h.reach / (BINS / 2)
    assert (np.abs(np.repeat(h.centres, h.counts) - array) <= width).all()
    if scale > 1e-30:
        assert width < scale / 500


def test_a_rare_outlier_is_cut_off_where_that_is_closer():
    """The choices differ by how much of a tail they keep; "mse" is the closest."""
    array = np.random.default_rng(0).standard_normal(50_000).astype("f4")
    array[0] = 60
    h = Histogram()
    h.add(array)

    def error(choice: str) -> float:
        scale, zero = point_of(*RANGES[choice](h))
        found = (np.clip(np.rint(array / scale) + zero, 0, 255) - zero) * scale
        return float(np.square(found - array).sum())

    ends = {choice: ends for choice, choose in RANGES.items() if (ends := choose(h))}
    assert ends["minmax"] == (float(array.min()), 60)
    assert 3 < ends["percentile"][1] < 5
    assert error("mse") <= min(error("minmax"), error("percentile"))


@pytest.mark.parametrize("ends", [(0.0, 0.0), (0.0, 3.0), (-2.0, 0.0), (-1.0, 3.0), (0.0, 1e-44)])
def test_zero_is_exact(ends):
    scale, zero = point_of(*ends)
    assert scale > 0
    assert zero.dtype == "uint8"
    numbers = np.clip(np.rint(np.array([*ends, 0.0]) / scale) + zero, 0, 255)
    found = (numbers - zero) * scale
    assert found[2] == 0
    assert np.abs(found[:2] - ends).max() <= scale


# --- weights -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("axis", [0, 1])
def test_weights_by_channel_are_off_by_half_a_step(axis):
    w = np.random.default_rng(0).standard_normal((7, 13)).astype("f4")
    w[:, 3] = w[2] = 0
    q = by_channel(w, axis)
    scales = q.scales[:, None] if axis == 0 else q.scales
    assert q.numbers.dtype == "int8"
    assert (np.abs(q.numbers * scales - w) <= scales * 0.501).all()


@pytest.mark.parametrize("axis", [0, 1])
def test_pairs_of_weights_fit_16_bits_where_products_are_added_so(axis):
    """Along the inputs; and no smaller than that needs."""
    w = np.random.default_rng(0).standard_normal((27, 26)[:: 1 - 2 * axis]).astype("f4")
    q = by_channel(w, axis, 1 - axis)
    numbers = np.moveaxis(q.numbers, axis, 0).astype(int)
    padded = np.pad(numbers, ((0, 0), (0, numbers.shape[1] % 2))).reshape(len(numbers), -1, 2)
    sums = np.maximum(np.maximum(padded, 0).sum(axis=-1), np.maximum(-padded, 0).sum(axis=-1)).max(axis=1)
    assert (sums <= 128).all() and (sums >= 126).all()
    scales = q.scales[:, None] if axis == 0 else q.scales
    assert (np.abs(q.numbers * scales - w) <= scales * 0.501).all()


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("block", BLOCKS)
def test_weights_by_blocks_are_no_worse_than_their_whole_range(block, symmetric):
    """Where the last block is short, too. A block of zeros is exact."""
    w = np.random.default_rng(0).standard_normal((200, 5)).astype("f4")
    w[:block, 2] = 0
    q = by_blocks(w, 0, block, symmetric)
    assert q.scales.shape == (-(-200 // block), 5)
    low, high = (-8, 7) if symmetric else (0, 15)
    assert q.numbers.min() >= low
    assert q.numbers.max() <= high
    scales, zeros = (0 if a is None else np.repeat(a, block, axis=0)[:200].astype("f4") for a in (q.scales, q.zeros))
    error = np.square((q.numbers - zeros) * scales - w)
    assert not error[:block, 2].any()
    for n, at in enumerate(range(0, 200, block)):
        own = w[at : at + block]
        step = (
            np.abs(own).max(axis=0) / 8 if symmetric else (np.maximum(own.max(axis=0), 0) - np.minimum(own.min(axis=0), 0)) / 15
        )
        # Half a step each, but for the largest weight of the other sign than -8's, which may be a whole step off.
        assert (error[at : at + block].sum(axis=0) <= (block / 4 + 1) * np.square(step) + 1e-12).all(), n


@pytest.mark.parametrize("symmetric", [True, False])
def test_weights_alone(symmetric):
    """A product of floats by weights of 4 bits, whose report is of random inputs."""
    graph = product()
    made = tir.quantise(graph, weights="int4", block=32, symmetric=symmetric, target="llvm -num-cores 1")
    assert operators(made) == ["DequantizeLinear", "MatMul"]
    (layer,) = made.report.layers
    assert 15 < layer.own < 30
    assert "weights of int4, in blocks of 32; ratios are for random inputs" in str(made.report)
    x = np.random.default_rng(1).standard_normal((3, 70)).astype("f4")
    (found,), (wanted,) = tir.compile(made, "llvm -num-cores 1")(x), evaluate(made, [x])
    assert np.abs(found - wanted).max() <= 1e-4
