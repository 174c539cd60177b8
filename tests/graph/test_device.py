"""Networks on a GPU: compiled by NVRTC, and run by the emulation beside a driver without a GPU."""

from __future__ import annotations

import pickle
import re
import threading
from functools import cache, partial

import numpy as np
import onnx
import pytest
from onnx import helper

import tir
from cli.run import main
from codegen.cuda import driver
from codegen.cuda.compile import available
from graph import Graph, GraphError
from graph.builder import Builder
from graph.device import DeviceModel
from graph.model import kernel_label
from graph.passes.precision import Precision
from graph.reference import evaluate, random_inputs
from tests.codegen.cuda.fake import inside, outside, run_inside
from tests.graph.models import model as onnx_model
from tests.graph.test_quantised import Network
from tir.arrays import to_float

TARGET = "cuda -arch sm_90"
no_nvrtc = pytest.mark.skipif(bool(available()), reason=available() or "NVRTC is there")


def numbers(*shape: int, dtype: str = "float32") -> np.ndarray:
    return (np.random.default_rng(len(shape)).integers(-4, 5, shape) / 8).astype(dtype)


def images() -> Graph:
    """Two convolutions whose results are joined at a place that is not aligned, pooled, and classified."""
    b = Builder("images")
    x = b.input("x", (1, 3, 9, 7), "float32")
    left = b("Relu", b("Conv", x, b.constant(numbers(5, 3, 3, 3)), b.constant(numbers(5)), pads=(1, 1, 1, 1)))
    right = b("Conv", x, b.constant(numbers(7, 3, 1, 1)))
    joined = b("Concat", left, right, axis=1)
    small, _ = b("MaxPool", joined, kernel_shape=(2, 2), strides=(2, 2))
    flat = b("Flatten", b("GlobalAveragePool", small))
    return b.graph(b("Softmax", b("Gemm", flat, b.constant(numbers(12, 10)), b.constant(numbers(10)))), joined)


def sequence() -> Graph:
    """An embedding, attention, a norm and a product, as in a transformer."""
    b = Builder("sequence")
    ids = b.input("ids", (1, 13), "int64")
    x = b("Gather", b.constant(numbers(29, 16)), ids, axis=0)
    q, k, v = (b("MatMul", x, b.constant(numbers(16, 16) + n)) for n in (0, 1, 2))
    weights = b("Softmax", b("Mul", b("MatMul", q, b("Transpose", k, perm=(0, 2, 1))), b.constant(np.float32(0.01))))
    y = b("Add", x, b("MatMul", weights, v))
    y, *_ = b("LayerNormalization", y, b.constant(numbers(16)), b.constant(numbers(16)))
    return b.graph(b("Tanh", b("MatMul", y, b.constant(numbers(16, 24)))))


def halves() -> Graph:
    """Two products on tensor cores."""
    b = Builder("halves")
    x = b.input("x", (33, 32), "float16")
    y = b("Relu", b("MatMul", x, b.constant(numbers(32, 48, dtype="float16"))))
    return b.graph(b("MatMul", y, b.constant(numbers(48, 16, dtype="float16"))))


def heads() -> Graph:
    """Attention of halves with a mask, in heads of which two share keys."""
    b = Builder("heads")
    q, k, v = (b.input(name, (1, n, 20, 16), "float16") for name, n in (("q", 4), ("k", 2), ("v", 2)))
    k, v = (
        b("Reshape", b("Expand", b("Unsqueeze", x, axes=(2,)), shape=(1, 2, 2, 20, 16)), shape=(1, 4, 20, 16)) for x in (k, v)
    )
    scores = b("Mul", b("MatMul", q, b("Transpose", k, perm=(0, 1, 3, 2))), b.constant(np.float16(0.5)))
    later = b.constant(np.triu(np.ones((20, 20), bool), 1))
    scores = b("Where", later, b.constant(np.float16(-np.inf)), scores)
    return b.graph(b("MatMul", b("Softmax", scores, axis=3), v))


def rounding() -> Graph:
    """A convolution and a product of float32 that are large enough for tensor cores, and attention."""
    b = Builder("rounding")
    x = b.input("x", (1, 16, 9, 7), "float32")
    y = b("Relu", b("Conv", x, b.constant(numbers(24, 16, 3, 3)), pads=(1, 1, 1, 1)))
    rows = b("Reshape", y, shape=(24, 63))
    q, k, v = (b("MatMul", rows, b.constant(numbers(63, 32) + n)) for n in (0, 1, 2))
    weights = b("Softmax", b("Mul", b("MatMul", q, b("Transpose", k, perm=(1, 0))), b.constant(np.float32(0.01))))
    return b.graph(b("Gemm", b("MatMul", weights, v), b.constant(numbers(32, 40))))


def chain() -> Graph:
    """Convolutions of halves, of which the first reads few channels: pooled, with a residual, and one of each channel by itself."""
    b = Builder("chain")
    half = partial(numbers, dtype="float16")
    x = b.input("x", (1, 3, 19, 17), "float16")
    x = b("Relu", b("Conv", x, b.constant(half(16, 3, 3, 3)), b.constant(half(16)), strides=(2, 2), pads=(1, 1, 1, 1)))
    x = b("AveragePool", x, kernel_shape=(2, 2), strides=(2, 2))
    y = b("Relu", b("Conv", x, b.constant(half(24, 16, 3, 3)), b.constant(half(24)), pads=(1, 1, 1, 1)))
    y = b("Conv", y, b.constant(half(24, 1, 3, 3)), group=24, pads=(1, 1, 1, 1))
    x = b("Relu", b("Add", x, b("Conv", y, b.constant(half(16, 24, 1, 1)), b.constant(half(16)))))
    return b.graph(b("Flatten", b("GlobalAveragePool", x)))


def quantised() -> Graph:
    """Convolutions of bytes with a residual, quantised after each as quantisers write it."""
    n = Network((1, 16, 9, 7))
    x = n.quantised(n.conv(n.x, 16, 16, 3, 3, pads=(1, 1, 1, 1)))
    y = n.quantised(n.add("Relu", n.conv(x, 32, 16, 3, 3, pads=(1, 1, 1, 1))))
    x = n.quantised(n.add("Add", x, n.quantised(n.conv(y, 16, 32, 3, 3, pads=(1, 1, 1, 1)))))
    return n.graph(n.conv(x, 24, 16, 1, 1))


GRAPHS = {g.__name__: g for g in (images, sequence, halves, heads, rounding, chain, quantised)}
PRECISIONS: dict[str, Precision] = {"rounding": "tf32"}


@cache
def compiled(name: str) -> DeviceModel:
    made = tir.compile(GRAPHS[name](), TARGET, precision=PRECISIONS.get(name))
    assert isinstance(made, DeviceModel)
    return made


@outside
def test_networks_beside_a_driver_without_a_gpu(tmp_path) -> None:
    programs = {k.name: k.kernel.program for name in GRAPHS for k in compiled(name).kernels}
    run_inside(__file__, tmp_path, 17, *programs.values())


@no_nvrtc
def test_a_network_is_compiled_without_a_gpu() -> None:
    model = compiled("halves")
    report = model.report()
    assert "mma_m16n8k16" in model.kernels[0].kernel.source and report.launches == 2 and report.spills == 0
    assert "matmul_relu(33x32, 32x48) -> 33x48" in str(report) and "2 launches a call" in str(report)
    again = pickle.loads(pickle.dumps(model))
    assert [k.name for k in again.kernels] == [k.name for k in model.kernels]


@no_nvrtc
def test_attention_of_a_network_is_one_kernel() -> None:
    kernel = compiled("heads").kernels[-1].kernel
    assert len(kernel.program.kernels) == 1 and not kernel.program.temporaries and kernel.report().spills == 0
    assert kernel.source.count("mma_m16n8k16") > 1 and "__shfl_xor_sync" in kernel.source


@no_nvrtc
def test_convolutions_of_halves_have_their_channels_last() -> None:
    """One transpose, of the image: sixteen bytes are copied at once between convolutions, and weights lie as they are read."""
    model = compiled("chain")
    labels = [kernel_label(k.func) for k in model.kernels]
    assert [x.startswith("transpose") for x in labels] == [True] + [False] * (len(labels) - 1), labels
    products = [k.kernel for k in model.kernels if "channelslastconv" in kernel_label(k.func)]
    assert len(products) == 3 and "copy_async<16>" in products[1].source, labels
    assert all(len(k.program.kernels) == 1 and k.report().spills == 0 for k in products)


@no_nvrtc
def test_quantised_products_are_those_of_integers() -> None:
    """On tensor cores; the corrections for zero points, scales, residual and quantisation are computed in the same kernel."""
    model = compiled("quantised")
    products = [k.kernel for k in model.kernels if re.search("channelslastconv|integerproduct", kernel_label(k.func))]
    assert len(products) == 4 and all("mma_m16n8k32_u8s8_s32(" in k.source for k in products)
    assert all(len(k.program.kernels) == 1 and k.report().spills == 0 for k in products)
    assert {v.dtype for g in model.groups[:-2] for v in g.outputs} == {"uint8"}, model.groups


@no_nvrtc
def test_products_are_rounded_to_tf32_by_leave_alone() -> None:
    """The convolution and both products of weights; attention, whose sums and weights are float32, is not rounded."""
    for precision, count in (("tf32", 3), (None, 0)):
        model = tir.compile(rounding(), TARGET, precision=precision)
        assert isinstance(model, DeviceModel)
        kernels = {k.name: k.kernel for k in model.kernels}.values()
        assert sum("mma_m16n8k8_tf32_f32(" in k.source for k in kernels) == count, [k.source for k in kernels]
        assert all(k.report().spills == 0 for k in kernels)
    with pytest.raises(ValueError, match="precision must be bfloat16 or float16, got 'tf32'; tf32 is for target cuda"):
        tir.compile(rounding(), precision="tf32")


@outside
def test_the_command_line_prints_what_it_compiled(tmp_path, capsys) -> None:
    x, w = np.zeros((1, 3, 9, 7), "float32"), numbers(5, 3, 3, 3)
    nodes = [helper.make_node("Conv", ["x", "w"], ["c"]), helper.make_node("Relu", ["c"], ["y"])]
    onnx.save(onnx_model(nodes, {"x": x}, ["y"], {"w": w}), tmp_path / "net.onnx")
    assert main([str(tmp_path / "net.onnx"), "--target", TARGET]) == 0
    printed = capsys.readouterr()
    assert "conv_relu(1x3x9x7, 5x3x3x3) -> 1x5x7x5" in printed.out
    assert driver.missing(tir.Target(TARGET)) == "" or "the network is compiled, and not run" in printed.err


def expected(name: str, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
    return evaluate(GRAPHS[name](), inputs)


def close(name: str, found: list[np.ndarray], inputs: dict[str, np.ndarray]) -> bool:
    """Outputs are those of the interpreter, but for the order of sums."""
    epsilon = {"halves": 2.0**-9, "heads": 2.0**-9, "rounding": 2.0**-9, "chain": 2.0**-7}.get(name, 2.0**-18)
    pairs = zip(compiled(name).outputs, found, expected(name, inputs), strict=True)
    wide = [(to_float(a, v.dtype), to_float(b, v.dtype)) for v, a, b in pairs]
    return all(np.abs(a - b).max() <= epsilon * np.abs(b).max() for a, b in wide)


@inside
@pytest.mark.parametrize("name", GRAPHS)
def test_arrays_of_the_host(name) -> None:
    model = compiled(name)
    for seed in (0, 1):
        inputs = random_inputs(GRAPHS[name]())
        inputs = {k: np.roll(a, seed) for k, a in inputs.items()}
        found = model(inputs)
        assert close(name, found, inputs) and not close(name, [np.roll(a, 1) for a in found], inputs)


@inside
def test_arrays_of_the_device_by_dlpack() -> None:
    """On a stream that does not block: outputs are lent to another library, in the order of its stream."""
    model, inputs = compiled("images"), random_inputs(images())
    with driver.current_context():
        stream = int(driver.call("cuStreamCreate", 1))
    given = [driver.DeviceArray.of(a) for a in inputs.values()]
    results = model(*given, stream=stream)
    assert [r.__dlpack_device__() for r in results] == [(2, 0)] * 2
    assert close("images", [r.numpy(stream) for r in results], inputs)
    out = [driver.DeviceArray(r.shape, r.dtype) for r in results]
    assert model(*given, out=out, stream=stream) == out
    again = [driver.array_description(OnlyDLPack(r), 0)[0] for r in out]  # the legacy stream waits
    assert again == [r.pointer for r in out] and close("images", [r.numpy(0) for r in out], inputs)


class OnlyDLPack:
    """An array as a library without CUDA's own protocol sees it."""

    def __init__(self, array: driver.DeviceArray):
        self.__dlpack__, self.__dlpack_device__ = array.__dlpack__, array.__dlpack_device__


@inside
def test_threads_call_one_model() -> None:
    model = compiled("sequence")
    wrong = []

    def work(seed: int) -> None:
        inputs = {"ids": np.random.default_rng(seed).integers(0, 29, (1, 13))}
        for _ in range(3):
            if not close("sequence", model(inputs), inputs):
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and 1 <= len(model._runs) <= 3


@inside
def test_calls_overlap_on_streams() -> None:
    """A run that an earlier call on another stream still uses is waited for on the device."""
    model, inputs = compiled("halves"), random_inputs(halves())
    with driver.current_context():
        streams = [int(driver.call("cuStreamCreate", 1)) for _ in range(2)]
    made = []
    for n, stream in enumerate((*streams, *streams)):
        mine = {k: np.roll(a, n) for k, a in inputs.items()}
        given = [driver.DeviceArray.of(a) for a in mine.values()]
        made.append((mine, given, model(*given, stream=stream), stream))
    for mine, _, results, stream in reversed(made):
        assert close("halves", [r.numpy(stream) for r in results], mine)


@inside
def test_a_call_is_captured() -> None:
    model, inputs = compiled("images"), random_inputs(images())
    given = [driver.DeviceArray.of(a) for a in inputs.values()]
    out = [driver.DeviceArray(v.shape, v.dtype) for v in model.outputs]
    captured = driver.Captured([lambda stream: model(*given, out=out, stream=stream)])
    with driver.current_context():
        captured.launch(0)
    assert close("images", [a.numpy() for a in out], inputs)
    with pytest.raises(GraphError, match="on a stream that is captured, inputs and `out` must be arrays on the device"):
        driver.Captured([lambda stream: model(inputs, stream=stream)])


@inside
def test_a_profile_and_wrong_arguments() -> None:
    model, inputs = compiled("images"), random_inputs(images())
    profile = model.profile(inputs, runs=2)
    assert sum(k.calls for k in profile.kernels) == len(model.groups) and "copies" in str(profile)
    with pytest.raises(GraphError, match="`x` is missing"):
        model({"y": inputs["x"]})
    with pytest.raises(GraphError, match=r"input `x` must have shape \(1, 3, 9, 7\), got \(3, 9, 7\)"):
        model(driver.DeviceArray.of(inputs["x"][0]))
