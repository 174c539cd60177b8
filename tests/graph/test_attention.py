"""Attention is one group, and its scores are rows of a tile."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest

import tir
from codegen import Target
from codegen.build import lower
from graph.fusion import fuse
from graph.onnx import load_onnx
from graph.passes import optimize
from schedule import replay
from search.space import generate
from tir.ir import Allocate, const_shape
from tir.traverse import loops_to, walk_stmts

from .models import close, exact, model, node

HEADS, QUERIES, KEYS, DEPTH = 3, 45, 61, 20
ROUNDINGS = 4 * DEPTH + 4 * KEYS + 16  # of two sums, softmax and its exponentials, which double those of a score
ONE = Target("llvm -num-cores 1")


PARTS = [
    node("Slice", "x zero one first", "q0"), node("Slice", "x one two first", "k0"), node("Slice", "x two three first", "v0"),
    node("Transpose", "q0", "q", perm=[1, 2, 0, 3]), node("Transpose", "k0", "k", perm=[1, 2, 3, 0]),
    node("Transpose", "v0", "v", perm=[1, 2, 0, 3]),
]  # fmt: skip
SCORES = [node("MatMul", "q k", "a"), node("Mul", "a factor", "b")]
END = [node("MatMul", "s v", "o"), node("Transpose", "o", "y", perm=[2, 0, 1, 3])]
CASES = {
    "heads in one product": ([*PARTS, *SCORES, node("Softmax", "b", "s"), *END], "x"),
    "a mask of keys": ([*PARTS, *SCORES, node("Add", "b keys", "c"), node("Softmax", "c", "s"), *END], "x keys"),
    "rows that are masked": (
        [*PARTS, *SCORES, node("Add", "b causal", "c"), node("Softmax", "c", "t"), node("IsNaN", "t", "n"),
         node("Where", "n none t", "s"), *END], "x causal",
    ),
    "an operator": ([node("Attention", "Q K V", "y")], "Q K V"),
    "causal": ([node("Attention", "Q K V", "y", is_causal=1)], "Q K V"),
    "heads side by side": ([node("Attention", "Q K V", "y", q_num_heads=HEADS, kv_num_heads=HEADS)], "Qflat Kflat Vflat"),
}  # fmt: skip


def case(name, outputs=("y",)):
    """The model of a case and its inputs."""
    rng = np.random.default_rng(0)

    def real(*shape):
        return rng.uniform(-1, 1, shape).astype("float32")

    causal = np.where(np.tri(KEYS, k=-1, dtype=bool), 0, -np.inf).astype("float32")  # nothing for the first query
    known = {
        "x": real(KEYS, 3, HEADS, DEPTH),
        "keys": np.where(np.arange(KEYS) < 50, 0, -1e9).astype("float32"),
        "causal": causal,
    }
    known |= {"Q": real(1, HEADS, QUERIES, DEPTH), "K": real(1, HEADS, KEYS, DEPTH), "V": real(1, HEADS, KEYS, DEPTH)}
    known |= {f"{n}flat": known[n].transpose(0, 2, 1, 3).reshape(1, -1, HEADS * DEPTH) for n in "QKV"}
    constants = {"factor": np.float32(DEPTH**-0.5), "none": np.float32(0), "first": np.array([1])}
    constants |= {name: np.array([n]) for n, name in enumerate(("zero", "one", "two", "three"))}
    nodes, inputs = CASES[name]
    used = {n for one in nodes for n in one.input}
    given = {n.removesuffix("flat"): known[n] for n in inputs.split()}
    return model(nodes, given, outputs, {k: a for k, a in constants.items() if k in used}, opset=23), given


@pytest.mark.parametrize("name", CASES)
def test_one_kernel(name):
    proto, inputs = case(name)
    graph = load_onnx(proto)
    compiled = tir.compile(graph, ONE)
    assert len(compiled.groups) == 1, [g.func.name for g in compiled.groups]
    (found,) = compiled(inputs)
    with np.errstate(invalid="ignore"):
        (wanted,) = exact(proto, inputs)
    close(found, wanted, ROUNDINGS)


@pytest.mark.parametrize("cores", [1, 2])
def test_scores_are_rows_of_one_tile(cores):
    target = Target("llvm", num_cores=cores)
    (group,) = fuse(optimize(load_onnx(case("rows that are masked")[0])))
    s = tir.default_schedule(group.func, target)
    scores, result = (b for b in s.get_child_blocks("root") if b.startswith("matmul") and "rf" not in b)
    shared = [x.name for x in loops_to(s.func.body, result) if x in loops_to(s.func.body, scores)]
    extents = [x.extent.value for x in loops_to(s.func.body, scores)][: len(shared)]
    assert prod(extents) > HEADS, "heads and tiles of rows"
    sizes = {
        a.buffer.name: prod(const_shape(a.buffer))
        for a in walk_stmts(lower(s.func, target, after="compact_buffers").body)
        if isinstance(a, Allocate)
    }
    packed = {name for name in sizes if name.startswith("p1")}  # the keys, of which threads may pack those of all heads at once
    assert max(size for name, size in sizes.items() if name not in packed) < KEYS * KEYS / 2


def test_the_search_begins_and_ends_with_the_template():
    (group,) = fuse(optimize(load_onnx(case("rows that are masked")[0])))
    (sketch,) = generate(group.func, ONE)
    assert replay(group.func, sketch.trace(np.array(sketch.seed))).func == tir.default_schedule(group.func, ONE).func


def test_weights_that_are_read_elsewhere_keep_the_products_apart():
    proto, _ = case("heads in one product", ("y", "s"))
    groups = fuse(optimize(load_onnx(proto)))
    assert [g.func.name.count("matmul") for g in groups] == [1, 0, 1]
