"""The outline of a function: exact texts, and outlines read back as Python and run beside the interpreter."""

import re

import numpy as np
import pytest

import tir
from tir import te
from tir.script import parse


def gmm(m, n, k):
    A, B = te.placeholder((m, k), name="A"), te.placeholder((k, n), name="B")
    r = te.reduce_axis((0, k), name="k")
    return te.create_prim_func([A, B, te.compute((m, n), lambda i, j: te.sum(A[i, r] * B[r, j], axis=r), name="C")], name="gmm")


def test_a_scheduled_product():
    s = tir.Schedule(gmm(7, 32, 109))
    i, j, k = s.get_loops("C")
    io, ii = s.split(i, [None, 4])
    jo, ji = s.split(j, [1, 32])
    s.reorder(io, jo, k, ii, ji)
    s.parallel(io)
    s.unroll(ii)
    s.vectorize(ji)
    s.cache_read("C", "B", "local")
    assert s.func.outline() == (
        "gmm(A[7, 109], B[109, 32], C[7, 32])\n"
        "    allocates B_local[109, 32] in local\n"
        "    for ax0 in 109, ax1 in 32:\n"
        "        B_local[ax0, ax1] = B[ax0, ax1]\n"
        "    for i_0 in parallel(2), k in 109, i_1 in unroll(4), j_1 in vectorized(32) where i_0 * 4 + i_1 < 7:\n"
        "        C[i_0 * 4 + i_1, j_1] += A[i_0 * 4 + i_1, k] * B_local[k, j_1]  # from 0\n"
    )


def test_what_stands_beside_loops_and_blocks():
    func = parse(
        """
from tir.script import tir as T

@T.prim_func
def steps(X: T.Buffer((13,), "float16"), Y: T.Buffer((13, 13)), n: T.int32):
    for i in range(13):
        if i < n:
            x: T.float32 = T.Cast("float32", X[i])
            Y[i, 0] = T.Select(x < T.float32(0.5), x * T.float32(2.0), T.float32(1.5))
        else:
            Y[i, 0] = Y[i, 0] - T.min(T.float32(1e-07), T.exp(Y[i, 1]))
        for b in T.thread_binding(1, thread="blockIdx.x"):
            Y[i, b + 1] = T.float32("inf")
"""
    )
    assert func.outline() == (
        "steps(X[13] float16, Y[13, 13], n)\n"
        "    for i in 13:\n"
        "        if i < n:\n"
        "            x = float32(X[i])\n"
        "            Y[i, 0] = (x * 2 if x < 0.5 else 1.5)\n"
        "        else:\n"
        "            Y[i, 0] -= min(1e-07, exp(Y[i, 1]))\n"
        "        Y[i, 1] = inf\n"
    )


def test_a_reduction_of_pairs_says_what_happens_at_first():
    X = te.placeholder((7, 13), name="X")
    k = te.reduce_axis((0, 13), name="k")
    argmax = te.comm_reducer(
        lambda a, b: (te.select(a[1] >= b[1], a[0], b[0]), te.maximum(a[1], b[1])),
        lambda i, v: (te.const(-1, i), te.const(float("-inf"), v)),
    )
    at, top = te.compute((7,), lambda i: argmax((k.value, X[i, k]), axis=k), name="best")
    lines = te.create_prim_func([X, at, top]).outline().splitlines()
    assert lines[1] == "    for i in 7, k in 13:"
    assert lines[2] == "        at first:"
    assert all(line.startswith("            ") for line in lines[3:5])
    assert not any(line.startswith("            ") for line in lines[5:])


def test_long_lines_are_broken_where_they_can_be():
    long = "a" * 70
    func = parse(
        f"""
from tir.script import tir as T

@T.prim_func
def wide({long}: T.Buffer((7,)), Y: T.Buffer((7,))):
    for {long}_i in range(7):
        with T.block("Y"):
            v = T.axis.spatial(7, {long}_i)
            T.where({long}_i % 3 < 2)
            Y[v] = {long}[v] * {long}[v] + {long}[v]
"""
    )
    assert func.outline().splitlines()[1:] == [
        f"    for {long}_i in 7",
        f"            where {long}_i % 3 < 2:",
        f"        Y[{long}_i] =",
        f"                {long}[{long}_i] *",
        f"                {long}[{long}_i] +",
        f"                {long}[{long}_i]",
    ]


AT_FIRST = -1  # how far the code of first values stands in: it is none


def run_outline(text, arrays):
    """Run an outline as Python on `arrays` by name, each reduced buffer filled with its first value before all."""
    code: list[str] = []
    inside = {0: 0}  # how far the code stands in, by how far the outline does
    for line in re.sub(r"\n +(?=where )|(?<=[-=,+*/%])\n +|(?<= and)\n +|(?<= or)\n +", " ", text).splitlines()[1:]:
        depth, words = len(line) - len(line.lstrip()), line.strip()
        indent = inside[max(d for d in inside if d <= depth)]
        inside = {d: n for d, n in inside.items() if d <= depth}
        if words.startswith("allocates "):
            for name, shape in re.findall(r"(\w+)\[([\d, ]+)\]", words):
                arrays[name] = np.full(eval(f"({shape},)"), np.nan, "float32")
        elif head := re.fullmatch(r"for (.*?)(?: where (.*))?:", words):
            for name, count in re.findall(r"(\w+) in (?:\w+\()?(\d+)", head[1]):
                code.append("    " * indent + f"for {name} in range({count}):")
                indent += 1
            code.append("    " * indent + f"if {head[2] or True}:")
            inside[depth + 4] = indent + 1
        elif words == "at first:":
            inside[depth + 4] = AT_FIRST
        elif indent == AT_FIRST:
            element, _, first = words.partition(" = ")
            arrays[element[: element.index("[")]][...] = float(first)
        else:
            words, _, first = words.partition("  # from ")
            if first:
                arrays[words[: words.index("[")]][...] = float(first)
            code.append("    " * indent + words)
            if words.endswith(":"):
                inside[depth + 4] = indent + 1
    exec("\n".join(code), {"exp": np.exp, "max": max, "min": min, **arrays})


SHAPES = {"gmm": (7, 13, 109), "mlp": (13, 7, 33, 17), "softmax": (7, 109), "conv2d": (1, 7, 5, 3, 13, 3, 3, 2, 1)}


# For znver4, mlp has sums in vectors, whose first values stand apart.
@pytest.mark.parametrize("mcpu", ["x86-64-v3", "znver4"])
@pytest.mark.parametrize("name", SHAPES)
def test_an_outline_says_what_the_program_does(name, mcpu):
    func = tir.workloads.make(name, SHAPES[name]).func
    rng = np.random.default_rng(0)
    want = {b.name: rng.integers(-2, 3, tir.ir.const_shape(b)).astype("float32") for b in func.buffers}
    got = {name: a.copy() for name, a in want.items()}
    tir.run(func, *want.values())
    run_outline(tir.default_schedule(func, f"llvm -mcpu={mcpu} -num-cores 2").func.outline(), got)
    for name, a in want.items():
        np.testing.assert_allclose(got[name], a, rtol=1e-5)
