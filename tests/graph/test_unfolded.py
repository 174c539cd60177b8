"""Exports of one network end as the same kernels, however much was folded when they were written, and in whatever version."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from onnx import helper, numpy_helper

from graph.fusion import fuse
from graph.onnx import load_onnx
from graph.passes import optimize
from tests.sweeps import one_in

from .models import model, same_outputs

ROWS, WIDTH, HEADS = 6, 16, 2


class Writer:
    """A network on its way to a model: `folded` as an exporter that folds writes it, else call by call."""

    def __init__(self, folded: bool, opset: int):
        self.folded, self.opset, self.rng = folded, opset, np.random.default_rng(0)
        self.nodes, self.constants = [], {}

    def add(self, operator, *inputs, count=1, **attributes):
        names = [f"v{len(self.nodes)}_{n}" for n in range(count)]
        self.nodes.append(helper.make_node(operator, inputs, names, **attributes))
        return names[0] if count == 1 else names

    def constant(self, array):
        if self.folded:
            name = f"c{len(self.constants)}"
            self.constants[name] = np.asarray(array)
            return name
        tensor = numpy_helper.from_array(np.asarray(array))
        return self.add("Constant", value=tensor)

    def weight(self, *shape, low=-1.0, high=1.0):
        return self.rng.uniform(low, high, shape).astype("float32")

    def number(self, value):
        return self.constant(np.float32(value))

    def axes(self, operator, x, axes):
        """A call whose axes are an attribute before version 13, or 18 for means, and an input from then on."""
        if self.opset < (18 if operator == "ReduceMean" else 13):
            return self.add(operator, x, axes=axes)
        return self.add(operator, x, self.constant(np.array(axes)))

    def conv(self, x, inner, outer, kernel, group=1, **attributes):
        w = self.weight(outer, inner // group, kernel, kernel)
        scale, shift, mean = (self.weight(outer) for _ in range(3))
        variance = self.weight(outer, low=0.5, high=2.0)
        attributes |= {"pads": [kernel // 2] * 4, "group": group}
        if self.folded:
            factor = scale / np.sqrt(variance + 1e-5)
            bias = self.constant((shift - mean * factor).astype("float32"))
            return self.add("Conv", x, self.constant(w * factor.reshape(-1, 1, 1, 1)), bias, **attributes)
        y = self.add("Conv", x, self.constant(w), **attributes)
        if group > 1:  # written as a product and a sum
            factor = (scale / np.sqrt(variance + 1e-5)).reshape(-1, 1, 1)
            y = self.add("Mul", y, self.constant(factor.astype("float32")))
            return self.add("Add", y, self.constant(shift.reshape(-1, 1, 1) - mean.reshape(-1, 1, 1) * factor))
        return self.add("BatchNormalization", y, *map(self.constant, (scale, shift, mean, variance)), epsilon=1e-5)

    def hard_swish(self, x):
        if self.folded and self.opset >= 14:
            return self.add("HardSwish", x)
        y = self.add("Add", x, self.number(3))
        y = self.add("Clip", y, min=0.0, max=6.0) if self.opset < 11 else self.add("Clip", y, self.number(0), self.number(6))
        return self.add("Div", self.add("Mul", x, y), self.number(6))

    def average(self, x):
        return self.add("GlobalAveragePool", x) if self.folded else self.axes("ReduceMean", x, [2, 3])

    def linear(self, x, inner, outer):
        w, bias = self.weight(outer, inner), self.weight(outer)
        turned = self.constant(w.T) if self.folded else self.add("Transpose", self.constant(w), perm=[1, 0])
        return self.add("Add", *((self.add("MatMul", x, turned), self.constant(bias))[:: 1 if self.folded else -1]))

    def norm(self, x):
        scale, shift = self.weight(WIDTH), self.weight(WIDTH)
        if self.folded and self.opset >= 17:
            return self.add("LayerNormalization", x, self.constant(scale), self.constant(shift), epsilon=2.0**-16)
        centred = self.add("Sub", x, self.axes("ReduceMean", x, [-1]))
        variance = self.axes("ReduceMean", self.add("Pow", centred, self.number(2)), [-1])
        root = self.add("Sqrt", self.add("Add", variance, self.number(2.0**-16)))
        return self.add("Add", self.add("Mul", self.add("Div", centred, root), self.constant(scale)), self.constant(shift))

    def gelu(self, x):
        if self.folded and self.opset >= 20:
            return self.add("Gelu", x)
        gate = self.add("Add", self.add("Erf", self.add("Div", x, self.number(2**0.5))), self.number(1))
        return self.add("Mul", self.add("Mul", x, gate), self.number(0.5))

    def by_head(self, x):
        shape = self.constant(np.array([1, ROWS, HEADS, WIDTH // HEADS]))
        if not self.folded:
            length = self.add("Gather", self.add("Shape", x), self.constant(np.array([1])), axis=0)
            shape = self.add(
                "Concat", *(self.constant(np.array([n])) if n else length for n in (1, 0, HEADS, WIDTH // HEADS)), axis=0
            )
        return self.add("Transpose", self.add("Reshape", x, shape), perm=[0, 2, 1, 3])


def convolutions(w: Writer) -> tuple[str, tuple[int, ...]]:
    x = w.hard_swish(w.conv("x", 3, 8, 3, strides=[2, 2]))
    y = w.hard_swish(w.conv(x, 8, 8, 3, group=8))
    gate = w.add("Relu", w.add("Conv", w.average(y), w.constant(w.weight(4, 8, 1, 1)), w.constant(w.weight(4))))
    gate = w.add("Sigmoid", w.add("Conv", gate, w.constant(w.weight(8, 4, 1, 1)), w.constant(w.weight(8))))
    y = w.conv(w.add("Mul", *((y, gate)[:: 1 if w.folded else -1])), 8, 8, 1)
    x = w.add("Add", *((x, y)[:: 1 if w.folded else -1]))
    x = w.average(w.add("Relu", w.conv(x, 8, 12, 1)))
    x = w.add("Flatten", x) if w.folded else w.add("Reshape", x, w.constant(np.array([1, -1])))
    return w.add("Gemm", x, w.constant(w.weight(5, 12)), w.constant(w.weight(5)), transB=1), (1, 3, 13, 11)


def attention(w: Writer) -> tuple[str, tuple[int, ...]]:
    y = w.norm("x")
    q, k, v = (w.by_head(w.linear(y, WIDTH, WIDTH)) for _ in range(3))
    scores = w.add("MatMul", q, w.add("Transpose", k, perm=[0, 1, 3, 2]))
    root = w.number(float(WIDTH // HEADS) ** 0.5)
    scores = w.add("Mul", scores, w.number((WIDTH // HEADS) ** -0.5)) if w.folded else w.add("Div", scores, root)
    weights = w.add("Softmax", scores, axis=-1 if w.opset >= 13 else 3)
    y = w.add("Transpose", w.add("MatMul", weights, v), perm=[0, 2, 1, 3])
    y = w.linear(w.add("Reshape", y, w.constant(np.array([1, ROWS, WIDTH]))), WIDTH, WIDTH)
    x = w.add("Add", *(("x", y)[:: 1 if w.folded else -1]))
    y = w.linear(w.gelu(w.linear(w.norm(x), WIDTH, 2 * WIDTH)), 2 * WIDTH, WIDTH)
    return w.add("Add", x, y), (1, ROWS, WIDTH)


def written(network, folded, opset):
    w = Writer(folded, opset)
    output, shape = network(w)
    x = {"x": np.random.default_rng(1).uniform(-1, 1, shape).astype("float32")}
    return load_onnx(model(w.nodes, x, [output], w.constants, opset)), x


@one_in(2)
@pytest.mark.parametrize("opset", [9, 11, 13, 18, 20])
@pytest.mark.parametrize(("network", "kernels"), [(convolutions, 10), (attention, 7)])
def test_exports_end_as_the_same_kernels(network, kernels, opset):
    wanted = fuse(optimize(written(network, True, 20)[0]))
    assert len(wanted) == kernels
    for folded in (True, False):
        graph, x = written(network, folded, opset)
        found = optimize(graph)
        assert Counter(g.func for g in fuse(found)) == Counter(g.func for g in wanted)
        if opset == 18:
            same_outputs(graph, found, x, 4 * 27)
