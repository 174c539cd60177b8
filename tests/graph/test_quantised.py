"""Networks of quantised numbers: products of integers, and integers between them, against the definition in floats."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper

import tir
from codegen import Target
from graph.compilation import assembled, final, passes_for
from graph.fusion import fuse
from graph.ir import Graph, GraphError
from graph.passes import integers as graph_integers
from graph.passes import optimize
from graph.passes.channels import TO_FIRST, TO_LAST
from graph.passes.check import check_passes
from graph.passes.conv_transpose import expand_transposed
from graph.passes.quantised import keep_quantised, stay_quantised
from graph.reference import evaluate
from tests.emulation import arm
from tests.sweeps import one_in
from tir import load_onnx

from .models import model

ONE = "llvm -num-cores 1"
TILES = Target("llvm -num-cores 1 -mcpu sapphirerapids -l1 49152 -l2 2097152 -l3 33554432")
LANES = Target("llvm -num-cores 1 -mcpu cascadelake -l1 32768 -l2 1048576 -l3 33554432")
PAIRS = Target("llvm -num-cores 1 -mcpu haswell -l1 32768 -l2 262144 -l3 33554432")
PLAIN = Target("llvm -num-cores 1 -mcpu x86-64 -l1 32768 -l2 262144 -l3 33554432")
TYPES = {"u8": ("uint8", 119), "s8": ("int8", -7), "symmetric": ("int8", 0)}
EXACT = 2.0**-5  # a scale of which all sums of a test are exact in float32


class Network:
    """A network whose values are quantised, as quantisers write it: QuantizeLinear and DequantizeLinear after each node."""

    def __init__(self, shape=(2, 5, 7, 6), types="u8", weights="int8", scale=EXACT, largest=9):
        self.largest = largest  # of the weights' magnitudes
        self.rng, self.kind, self.weights, self.scale = np.random.default_rng(0), types, weights, scale
        self.nodes, self.constants, self.shape = list[onnx.NodeProto](), dict[str, np.ndarray](), shape
        self.x = self.quantised("x")

    def add(self, operator: str, *inputs: str, **attributes) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, list(inputs), [name], **attributes))
        return name

    def constant(self, array, dtype=None) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = np.asarray(array, dtype)
        return name

    def quantised(self, x: str, scale: float | None = None) -> str:
        """A value, quantised and dequantised."""
        dtype, zero = TYPES[self.kind]
        by = (self.constant(self.scale if scale is None else scale, "float32"), self.constant(zero, dtype))
        return self.add("DequantizeLinear", self.add("QuantizeLinear", x, *by), *by)

    def weight(self, *shape: int, axis: int | None = 0) -> str:
        """Dequantised weights, by one scale for each index along an axis, or by one. Unsigned ones have a zero point."""
        count = () if axis is None else (shape[axis],)
        zeros = np.full(count, 128 if self.weights == "uint8" else 0, self.weights)
        scales = self.rng.choice([0.5, 1, 2], count) * self.scale
        numbers = self.rng.integers(-self.largest, self.largest + 1, shape) + (128 if self.weights == "uint8" else 0)
        by = (self.constant(scales, "float32"), self.constant(zeros))
        return self.add("DequantizeLinear", self.constant(numbers, self.weights), *by, axis=axis or 0)

    def conv(self, x: str, *shape: int, axis: int | None = 0, **attributes) -> str:
        bias = self.constant(self.rng.integers(-40, 40, shape[0]) * EXACT, "float32")
        return self.add("Conv", x, self.weight(*shape, axis=axis), bias, **attributes)

    def graph(self, *outputs: str) -> Graph:
        return load_onnx(model(self.nodes, {"x": np.empty(self.shape, "float32")}, outputs, self.constants))

    def input(self) -> np.ndarray:
        return self.rng.uniform(-4, 4, self.shape).astype("float32")


def operators(graph: Graph) -> list[str]:
    return [c.operator for c in graph.calls]


def sums(graph: Graph) -> list[str]:
    """The operators of sums of products of integers in a graph."""
    return [name for name in operators(graph) if name in graph_integers.SUMS]


def always(graph: Graph, in_place: bool = False) -> Graph:
    """The graph as for tile registers, but each product is one of integers, however small. The windows of images are copied, or
    read `in_place`."""
    return optimize(stay_quantised(graph, lambda integer, today: in_place or integer.operator != "ChannelsLastConv"))


def signed(graph: Graph) -> Graph:
    """The graph with windows that are read in place, of images made int8, as for processors that multiply such alone."""
    return optimize(stay_quantised(graph, lambda integer, today: integer.attribute("to", "int8") == "int8"))


def agree(network: Network, *outputs: str, quanta: float = 0.0, products: int = 1) -> Graph:
    """The graph in integers with copies of windows, whose compiled outputs are those of the definition, up to some quanta, with
    or without these copies."""
    graph, x = network.graph(*outputs), network.input()
    wanted, copied = evaluate(graph, [x]), always(graph)
    for made in {id(g): g for g in (copied, always(graph, in_place=True), signed(graph))}.values():
        assert len(sums(made)) == products
        assert "ImageRows" not in operators(made) or made is copied
        for a, b in zip(wanted, assembled(made, Target(ONE), None, None)(x), strict=True):
            assert np.ptp(a) > 0, "the case says something"
            assert np.abs(a - b).max() <= quanta * network.scale
    return copied


WINDOWS = {
    "1 x 1": (1, {}),
    "strided 1 x 1": (1, {"strides": (2, 3)}),
    "padded": (3, {"pads": (1, 1, 1, 1)}),
    "uneven pads": (3, {"pads": (2, 0, 1, 3), "strides": (2, 1)}),
    "dilated": (3, {"pads": (1, 2, 1, 2), "dilations": (1, 2)}),
    "same": (2, {"auto_pad": "SAME_LOWER"}),
}


@one_in(3)
@pytest.mark.parametrize("types", TYPES)
@pytest.mark.parametrize("window", WINDOWS)
def test_a_convolution_is_a_product_of_integers(window, types):
    kernel, attributes = WINDOWS[window]
    network = Network(types=types)
    y = network.add("Relu", network.conv(network.x, 7, 5, kernel, kernel, **attributes))
    agree(network, network.quantised(y))


@one_in(3)
@pytest.mark.parametrize("channels", [1, 2, 3, 4])
@pytest.mark.parametrize("types", TYPES)
def test_images_of_few_channels_are_copied_by_pixels(channels, types):
    network = Network((2, channels, 7, 6), types)
    y = network.conv(network.x, 7, channels, 3, 2, pads=(1, 1, 1, 1), strides=(1, 2))
    made = agree(network, network.quantised(y))
    assert ("PackChannels" in operators(made)) == (channels > 1)


@pytest.mark.parametrize(("weights", "axis"), [("int8", None), ("uint8", 0), ("uint8", None)])
def test_weights_have_one_scale_or_one_for_each_channel(weights, axis):
    network = Network(weights=weights)
    agree(network, network.quantised(network.conv(network.x, 7, 5, 3, 3, axis=axis, pads=(1, 1, 1, 1))))


@pytest.mark.parametrize("types", ["u8", "s8"])
@pytest.mark.parametrize(
    ("shape", "channels", "kernel"), [((2, 5, 11), 5, (3,)), ((1, 3, 9), 3, (2,)), ((1, 5, 4, 5, 6), 5, (1, 3, 2))]
)
def test_images_of_one_and_three_dimensions(shape, channels, kernel, types):
    network = Network(shape, types)
    pads, strides = (1,) * (2 * len(kernel)), (2, *[1] * (len(kernel) - 1))
    agree(network, network.quantised(network.conv(network.x, 7, channels, *kernel, pads=pads, strides=strides)))


@pytest.mark.parametrize("shape", [(2, 6, 7, 5), (1, 6, 9)])
def test_groups_are_a_product_each(shape):
    network = Network(shape)
    kernel, pads = (3,) * (len(shape) - 2), (1,) * (2 * len(shape) - 4)
    y = network.add("Relu", network.conv(network.x, 10, 3, *kernel, pads=pads, group=2))
    agree(network, network.quantised(y), products=2)


def test_results_are_one_quantum_off_at_most():
    network = Network(scale=0.0371)
    agree(network, network.quantised(network.conv(network.x, 17, 5, 3, 3, pads=(1, 1, 1, 1))), quanta=1.001)


@pytest.mark.parametrize("transposed", [0, 1])
def test_a_gemm_is_a_product_of_integers(transposed):
    network = Network((7, 13))
    weight = network.weight(19, 13, axis=0) if transposed else network.weight(13, 19, axis=1)
    y = network.add("Gemm", network.x, weight, network.constant(np.arange(19) * EXACT, "float32"), transB=transposed)
    agree(network, network.quantised(y))


def test_a_product_of_many_matrices_is_one_of_integers():
    network = Network((2, 3, 7, 13))
    agree(network, network.quantised(network.add("MatMul", network.x, network.weight(13, 5, axis=1))))


@pytest.mark.parametrize("types", TYPES)
def test_products_of_two_activations_are_of_integers(types):
    """As in attention, of many matrices; zero points of both are taken away at each call."""
    network = Network((2, 3, 7, 13), types)
    other = network.quantised(network.add("Relu", network.x), 2 * EXACT)
    y = network.add("MatMul", network.x, network.add("Transpose", other, perm=(0, 1, 3, 2)))
    agree(network, network.quantised(y, 8 * EXACT))


def test_images_stay_integers_with_their_channels_last():
    """Through a shortcut, pools, a clamp, a concatenation, a convolution of each channel, and a mean, in int8 between kernels."""
    network = Network()
    a = network.quantised(network.add("Relu", network.conv(network.x, 8, 5, 3, 3, pads=(1, 1, 1, 1))))
    a = network.quantised(network.add("MaxPool", a, kernel_shape=(3, 3), strides=(2, 2), pads=(1, 1, 1, 1)))
    b = network.quantised(network.conv(a, 8, 1, 3, 3, group=8, pads=(1, 1, 1, 1)))
    low, high = network.constant(-1, "float32"), network.constant(1.5, "float32")
    c = network.quantised(network.add("Clip", network.conv(b, 8, 8, 1, 1), low, high))
    d = network.quantised(network.add("Add", a, c))
    e = network.quantised(network.add("Concat", d, a, axis=1))
    f = network.quantised(network.add("AveragePool", e, kernel_shape=(2, 2)))
    g = network.quantised(network.add("GlobalAveragePool", f))
    h = network.quantised(network.add("Flatten", g))
    y = network.quantised(network.add("Gemm", h, network.weight(9, 16), transB=1))
    made = agree(network, y, quanta=1.001, products=3)
    assert operators(made).count("Transpose") == 1  # of the input
    assert "DepthwiseConv" in operators(made)
    real = [g.func.name for g in fuse(made) if g.outputs[0].dtype == "float32"]
    assert all(name.endswith("dequantizelinear") for name in real), "for means, and the output"


@pytest.mark.parametrize("types", TYPES)
@pytest.mark.parametrize(
    ("kernel", "stride", "attributes"), [((2, 2), (2, 2), {}), ((4, 3), (2, 1), {"pads": (1, 0, 2, 1)}), ((3, 3), (3, 2), {})]
)
def test_transposed_convolutions_and_concatenations_keep_channels_last(kernel, stride, attributes, types):
    """The phases are interleaved, and cut, with the channels last, beside a shortcut."""
    network = Network((1, 5, 7, 6), types)
    a = network.quantised(network.conv(network.x, 8, 5, 1, 1))
    up = network.add("ConvTranspose", a, network.weight(8, 4, *kernel, axis=None), strides=stride, **attributes)
    y = network.quantised(network.conv(network.quantised(up), 4, 4, 1, 1))
    expanded = expand_transposed(network.graph(y))
    x, made = network.input(), always(keep_quantised(expanded))
    (wanted,), (found,) = evaluate(expanded, [x]), assembled(made, Target(ONE), None, None)(x)
    assert np.ptp(wanted) > 0 and np.array_equal(wanted, found)
    assert sum(c.operator == "Transpose" and c.attribute("perm") in (TO_LAST, TO_FIRST) for c in made.calls) <= 2, "in, and out"


LIMITS = {"Relu": None, "Clip": (0.0, 6.0), "below": (-99.0, -50.0), "above": (40.0, 80.0), "reversed": (1.5, -1.0)}


@pytest.mark.parametrize("types", TYPES)
@pytest.mark.parametrize("limits", LIMITS)
def test_limits_of_an_activation_are_those_of_a_quantisation(limits, types):
    """Also such that lie outside of those of the integers, and after a shortcut, whose scale takes the factor, too."""
    network = Network((7, 13), types)
    a = network.quantised(network.add("MatMul", network.x, network.weight(13, 19, axis=1)), 2 * EXACT)
    a = network.add("Add", network.add("MatMul", a, network.weight(19, 13, axis=1)), network.quantised(network.x))
    given = [network.constant(limit, "float32") for limit in LIMITS[limits] or ()]
    y = network.add("Clip" if given else "Relu", a, *given)
    graph = network.graph(network.quantised(y), network.quantised(network.add("Sigmoid", network.x)))
    made, x = always(graph), network.input()
    found = operators(made)
    assert not {"Relu", "Clip"} & set(found) and found.count("IntegerProduct") == 2
    assert min(len(c.inputs) for c in made.calls if c.operator == "QuantizeByFactor") == 1
    for a, b in zip(evaluate(graph, [x]), assembled(made, Target(ONE), None, None)(x), strict=True):
        assert np.abs(a - b).max() <= 1.001 * EXACT


@pytest.mark.parametrize("keepdims", [0, 1])
@pytest.mark.parametrize("axes", [(2, 3), (-1, -2), (3, 1)])
def test_means_of_images_with_their_channels_last(axes, keepdims):
    network = Network()
    a = network.add("Relu", network.conv(network.x, 8, 5, 3, 3))
    y = network.add("ReduceMean", a, network.constant(axes, "int64"), keepdims=keepdims)
    made = agree(network, y, quanta=1e-3)
    moved = [c.values[0].shape for c in made.calls if c.operator == "Transpose"]
    assert ((2, 5, 4, 8) in moved) == ((axes, keepdims) == ((3, 1), 1) or not keepdims)


def test_activations_between_products_are_recognised():
    """The factor of a quantisation goes into the scale of sums, and not into constants of an activation."""
    network = Network((7, 13))
    a = network.add("MatMul", network.x, network.weight(13, 19, axis=1))
    b = network.add("Erf", network.add("Div", a, network.constant(2**0.5, "float32")))
    c = network.add("Mul", a, network.add("Add", b, network.constant(1, "float32")))
    d = network.quantised(network.add("Mul", c, network.constant(0.5, "float32")))
    e = network.quantised(network.add("Relu", network.add("MatMul", d, network.weight(19, 5, axis=1))))
    made = agree(network, e, quanta=1.001, products=2)
    assert "Gelu" in operators(made)
    factors = [len(c.inputs) for c in made.calls if c.operator == "QuantizeByFactor"]
    assert factors == [2, 2, 1], "the last one's is in the scale"


def test_what_is_not_quantised_or_has_other_groups_stays():
    network = Network()
    y = network.conv(network.x, 10, 1, 3, 3, group=5)
    assert not sums(always(network.graph(network.quantised(y))))
    network = Network()
    z = network.add("Conv", network.x, network.constant(np.ones((7, 5, 1, 1)), "float32"))
    assert not sums(always(network.graph(network.quantised(z))))


def test_weights_without_a_product_of_integers_are_floats():
    network = Network(weights="uint8")
    graph = network.graph(network.quantised(network.conv(network.x, 7, 5, 3, 3, pads=(1, 1, 1, 1))))
    assert operators(graph).count("DequantizeLinear") == 3, "of the input, the weights, and the output"
    made, x = optimize(graph), network.input()
    (conv,) = (c for c in made.calls if c.operator == "Conv")
    assert {made.constants[v.name].dtype.name for v in conv.inputs[1:]} == {"float32"}
    assert np.array_equal(evaluate(made, [x])[0], evaluate(graph, [x])[0])


PRODUCTS_OF_INTEGERS = [
    ("MatMulInteger", (7, 13), (13, 9), True, 0),
    ("MatMulInteger", (7, 13), (13, 9), True, -5),  # weights less it are no integers of 8 bits
    ("MatMulInteger", (2, 3, 13), (13, 9), False, 3),
    ("ConvInteger", (1, 3, 9, 7), (5, 3, 2, 3), True, 0),
]


@pytest.mark.parametrize(("operator", "shape", "weight", "known", "weight_zero"), PRODUCTS_OF_INTEGERS)
def test_products_of_integers_are_exact(operator, shape, weight, known, weight_zero):
    rng = np.random.default_rng(0)
    given = {"x": rng.integers(0, 256, shape).astype("uint8")}
    constants = {"w": rng.integers(-128, 128, weight).astype("int8"), "weight_zero": np.array(weight_zero, "int8")}
    constants |= {"zero": np.array(117, "uint8")}
    if not known:
        given, constants = given | constants, {}
    nodes = [helper.make_node(operator, ["x", "w", "zero", "weight_zero"], ["y"])]
    graph = load_onnx(model(nodes, given, ["y"], constants))
    (wanted,), made = evaluate(graph, given), always(graph)
    assert operators(made).count("IntegerProduct") == 1
    (found,) = assembled(made, Target(ONE), None, None)(given)
    assert np.array_equal(found, wanted)


@pytest.mark.parametrize(
    ("target", "largest", "instruction"),
    [
        (TILES, 9, "tdpbusd"), (LANES, 9, "vpdpbusd"), (PAIRS, 9, "vpmaddubsw"), (PAIRS, 120, "vpmaddwd"), (PLAIN, 9, ""),
        (arm("neoverse-v2"), 9, "usdot"), (arm("cortex-a76"), 9, "dot"),  # SDOT or UDOT
    ],
)  # fmt: skip
@pytest.mark.parametrize("product", ["Conv", "strided Conv", "MatMul", "MatMulInteger"])
def test_products_reach_the_instruction_of_the_processor(product, target, largest, instruction):
    """Products of integers reach the instruction of a processor that has one. Elsewhere those of floats stay, but those of int32
    become products of bytes: on a Zen 4 limited to SSE2, 97 x 96 x 128 take 0.65 x as long, in floats 0.8 x as long as in bytes."""
    if product == "strided Conv" and not instruction:
        pytest.skip("bytes or floats, by their estimates")
    network = Network((1, 64, 14, 14) if "Conv" in product else (97, 128), largest=largest)
    match product:
        case "Conv" | "strided Conv":
            step = 1 if product == "Conv" else 2
            y = network.quantised(network.conv(network.x, 64, 64, 3, 3, pads=(1, 1, 1, 1), strides=(step, step)))
        case "MatMul":
            y = network.quantised(network.add("MatMul", network.x, network.weight(128, 96, axis=1)))
        case _:
            numbers = network.nodes[0].output[0]
            y = network.add(
                "MatMulInteger", numbers, network.constant(np.full((128, 96), largest), "int8"), network.constant(7, "uint8")
            )
    groups = fuse(final(network.graph(y), target))
    products = [g.func for g in groups if any(c.operator in graph_integers.SUMS for c in g.calls)]
    if product == "Conv" and target is PAIRS:
        assert "winogradsums" in products[0].name, "there are 16 bits for each factor anyway, so fewer multiplications pay"
        instruction = "vpmaddwd"
    elif instruction and (product == "Conv" or (product == "strided Conv" and not target.mtriple)):
        assert ("channelslastconv" in products[0].name) == (instruction not in ("tdpbusd", "vpmaddwd")), (
            "the windows of the image are read in place"
        )
    assert len(products) == bool(instruction or product == "MatMulInteger")
    assert all(f'{instruction}"' in tir.default_schedule(func, target).func.script() for func in products if instruction)


@pytest.mark.parametrize(
    ("pair", "fits"), [((127, 1), True), ((127, 2), False), ((-128, 0), True), ((-128, -1), False), ((-128, 127), True)]
)
@pytest.mark.parametrize("at", [0, 1])
def test_weights_are_marked_whose_pairs_fit_16_bits(pair, fits, at):
    """Each two neighbours from the first one on, for any uint8: the limits are those of the least and the largest int16."""
    sums = [sum(255 * w for w in pair if sign * w > 0) for sign in (-1, 1)]
    assert fits == (-(2**15) <= sums[0] and sums[1] < 2**15)
    weights = np.zeros((5, 3), np.int8)
    weights[at : at + 2, 1] = pair
    network = Network((2, 5))
    y = network.add("MatMulInteger", network.nodes[0].output[0], network.constant(weights))
    marks = [c.attribute("narrow_pairs", False) for c in stay_quantised(network.graph(y), lambda *calls: True, True).calls]
    assert any(marks) == (fits or at == 1)


@pytest.mark.parametrize("kind", ["correct", "wrong"])
def test_passes_are_checked_within_a_quantum(kind, monkeypatch):
    network = Network(scale=0.0371)
    graph = network.graph(network.quantised(network.conv(network.x, 7, 5, 3, 3, pads=(1, 1, 1, 1))))
    x, passes = network.input(), passes_for(TILES)
    if kind == "correct":
        check_passes(graph, [x], passes)
        return
    monkeypatch.setattr(graph_integers, "_corrected", lambda write, sums, *_: sums)
    with pytest.raises(GraphError, match="the pass always changes the output"):
        check_passes(graph, [x], (always,))
