"""However a program is written, the same template takes it with the same seeds, and it computes the same."""

from __future__ import annotations

import numpy as np
import pytest

import tir
from benchmarks import breadth, cases
from benchmarks.wordings import wordings
from schedule import replay, templates
from schedule.open_schedule import OpenSchedule, Tiled
from tests.arrays import integers
from tests.sweeps import one_in, quick
from tir import te
from tir.interpreter import run
from tir.ir import Const, PrimFunc
from tir.traverse import blocks, walk

TARGET = tir.Target("llvm -mcpu x86-64-v4 -num-cores 1")
HERE = tir.Target("llvm -num-cores 1")
LEAST_PROGRAMS, WAYS_EACH = 50, 5


def of_breadth(name: str) -> PrimFunc:
    program = breadth.PROGRAMS[name]
    inputs = [te.placeholder(s, program.dtype, name=f"X{n}") for n, s in enumerate(program.shapes)]
    return te.create_prim_func([*inputs, program.build(*inputs)], name="f")


def of_workload(name: str, *shape: int) -> PrimFunc:
    return tir.workloads.make(name, shape).func


PROGRAMS = {name: of_breadth(name) for name in breadth.PROGRAMS}
PROGRAMS = {name: func for name, func in PROGRAMS.items() if blocks(func)[-1].is_reduction}
PROGRAMS |= {
    name: of_workload(c.program, *c.shape)
    for name, c in cases.CASES.items()
    if c.operator not in ("c3d", "convlayer") and not name.endswith("-b16")
}
PROGRAMS |= {name: of_workload(name, *shape) for name, shape in (("softmax", (512, 384)), ("layernorm", (512, 384)))}


def taken(func: PrimFunc) -> tuple[list[str], list[list[int]]]:
    """The templates that take the blocks of a function, elementwise ones left out, and their tile sizes."""
    s = OpenSchedule(func, TARGET, at_seed=True)
    assert templates.build(s) == []
    names = [rule.split(": ")[1] for rule in s.rules]
    return sorted(name for name in names if name != "elementwise"), list(s.lengths.values())


@one_in(4)
@pytest.mark.parametrize("part", range(4))
def test_equal_programs_have_the_same_template_and_seeds(part):
    """Five of the ways to write each program, other ones from program to program."""
    compared = 0
    for number, (name, func) in list(enumerate(PROGRAMS.items()))[part::4]:
        ways = list(wordings(func).items())
        first, expected = number % len(ways), taken(func)
        chosen = (ways[first:] + ways[:first])[:WAYS_EACH]
        compared += len(chosen) == WAYS_EACH
        for way, other in chosen:
            assert taken(other) == expected, f"{name}, {way}"
    assert compared >= LEAST_PROGRAMS // 4


def test_views_of_parameters_are_packed_as_these_are():
    """A linear layer has its columns outermost, each block packed where it is used, whatever the form of its operands."""
    A, B, k = te.placeholder((51, 1982), name="A"), te.placeholder((680, 1982), name="B"), te.reduce_axis((0, 1982), name="k")
    func = te.create_prim_func([A, B, te.compute((51, 680), lambda i, j: te.sum(A[i, k] * B[j, k], axis=k), name="C")])

    def packing(func: PrimFunc) -> list[str]:
        s = OpenSchedule(func, TARGET, at_seed=True)
        assert templates.build(s) == []
        (found,) = [x for x in s.scheduled.values() if isinstance(x, Tiled)]
        assert found.operands is not None
        return [how for _, how in found.operands.seed]

    expected = packing(func)
    assert "at its panels" in expected
    for way, other in wordings(func).items():
        assert packing(other) == expected, way


SMALL = {
    "product": of_workload("gmm", 14, 33, 40),
    "products": of_workload("gmm", 9, 20, 18, 3),
    "softmax": of_workload("softmax", 9, 65),
    "norm": of_workload("norm", 2, 10, 35),
    "convolution": of_workload("conv2d", 1, 4, 6, 3, 17, 3, 3, 1, 1),
    "convolution without padding": of_workload("conv2d", 1, 6, 7, 3, 5, 3, 3, 1, 0),
    "transposed convolution": of_workload("conv2d_transpose", 1, 2, 3, 4, 17, 4, 2, 1),
    "depthwise convolution": of_workload("depthwise", 2, 5, 6, 6, 3, 3, 1, 1),
}


@quick(lambda name: name not in ("products", "convolution without padding"))
@pytest.mark.parametrize("name", SMALL)
def test_equal_programs_compute_the_same(name):
    func = SMALL[name]
    given = integers(func, 0)
    expected = [a.copy() for a in given]
    run(func, *expected)
    for way, other in wordings(func).items():
        s = templates.schedule(other, TARGET)
        assert s is not None and tir.verify(s.func).ok, f"{way}\n{s and s.script}"
        assert replay(other, s.trace).func == s.func
        arrays = [a.reshape(x.shape) for a, x in zip(given, integers(other, 0), strict=True)]
        arrays = [a.copy() for a in arrays]
        run(s.func, *arrays)
        found = arrays[-1].reshape(expected[-1].shape)
        assert np.allclose(found, expected[-1], rtol=8 * np.finfo("float32").eps, atol=0), f"{way}\n{s.script}"


def test_padding_in_a_sum():
    """A convolution that pads by itself is the one of a padded image."""
    func = SMALL["convolution"]
    s = tir.Schedule(func)
    s.compute_inline("pad")
    assert taken(s.func) == taken(func)


def test_the_channel_of_a_convolution_of_one():
    """It stays, as templates for convolutions look for channels."""
    func = of_workload("depthwise_nhwc", 1, 6, 20, 1, 3, 1, 1)
    assert taken(wordings(func)["sum backwards"]) == taken(func)


def test_a_rotated_row():
    """It is cut where it begins again, so that both parts are contiguous."""
    X = te.placeholder((7, 109), name="X")
    func = te.create_prim_func([X, te.compute((7, 109), lambda i, j: X[i, (j + 5) % 109] + 1.0, name="Y")])
    s = templates.schedule(func, TARGET)
    assert s is not None and "T.vectorized(104)" in s.script and "T.vectorized(5)" in s.script
    x = np.random.default_rng(0).standard_normal((7, 109)).astype("float32")
    y = np.empty_like(x)
    tir.build(s.func, "llvm -num-cores 1")(x, y)
    assert (y == np.roll(x, -5, 1) + 1).all()


@pytest.mark.parametrize("cores", [1, 2])
def test_a_rotated_array(cores):
    """Like a row; both parts are contiguous where vectors end before their end, too."""
    n = 100_003
    X = te.placeholder((n,), name="X")
    func = te.create_prim_func([X, te.compute((n,), lambda i: X[(i + n - 3) % n], name="Y")])
    target = tir.Target(f"llvm -mcpu x86-64-v3 -num-cores {cores}")
    s = templates.schedule(func, target)
    assert s is not None
    kernel = tir.build(s.func, target)
    assert "gather" not in kernel.llvm_ir() and "srem" not in kernel.llvm_ir()
    x, y = np.random.default_rng(0).standard_normal(n).astype("float32"), np.empty(n, "float32")
    kernel(x, y)
    assert (y == np.roll(x, 3)).all()


SHAPE = (7, 33, 40)
FLAT = 7 * 33 * 40


@pytest.mark.parametrize(("shape", "formula"), [
    (SHAPE, lambda X, f: X[f // (33 * 40), f % 33, f // 33 % 40]),
    ((FLAT,), lambda X, f: X[f // (33 * 40) * (33 * 40) + f % 33 * 40 + f // 33 % 40]),
])  # fmt: skip
def test_an_exchange_of_dimensions_as_one_number(shape, formula):
    """It is that of three dimensions, whose operand is transposed in registers."""
    X = te.placeholder(shape, name="X")
    s = templates.schedule(te.create_prim_func([X, te.compute((FLAT,), lambda f: formula(X, f), name="Y")]), TARGET)
    assert s is not None and "T.unroll(16)" in s.script and "reindex" not in s.func.script()
    x, y = np.arange(FLAT, dtype="float32"), np.empty(FLAT, "float32")
    tir.build(s.func, HERE)(x.reshape(shape), y)
    assert (y == x.reshape(SHAPE).transpose(0, 2, 1).ravel()).all()


@pytest.mark.parametrize("last", [2, 3, 7])
@pytest.mark.parametrize("flat", [False, True])
def test_short_rows_fill_vectors(last, flat):
    """As many rows as make whole vectors are walked as one, also where they are written as one number."""
    A, B = te.placeholder((53,), name="A"), te.placeholder((53, last), name="B")
    if flat:
        Y = te.compute((53 * last,), lambda f: A[f // last] + B[f // last, f % last], name="Y")
    else:
        Y = te.compute((53, last), lambda i, j: A[i] + B[i, j], name="Y")
    s = templates.schedule(te.create_prim_func([A, B, Y]), TARGET)
    width = {2: 106 if flat else 16, 3: 48, 7: 112}[last]
    assert s is not None and f"T.vectorized({width})" in s.script
    assert "gather" not in tir.build(s.func, TARGET).llvm_ir()
    a, b = (np.random.default_rng(0).standard_normal(n).astype("float32") for n in ((53,), (53, last)))
    y = np.empty([int(n.value) for n in s.func.buffers[-1].shape], "float32")
    tir.build(s.func, HERE)(a, b, y)
    assert (y.reshape(53, last) == a[:, None] + b).all()


def test_weights_whose_dimensions_are_one_number():
    """Of a matrix product and of a convolution: an array of its own, which is none in the end."""
    for name in ("gmm-2", "c2d-3"):
        func = PROGRAMS[name]
        assert taken(wordings(func)["an operand with two dimensions as one"]) == taken(func)


@pytest.mark.parametrize(("behind", "left"), [(0.5, set()), (0.25, {0.5}), (3.0, {2.0, 3.0})])
def test_a_factor_in_a_sum_and_one_behind_it_are_one(behind, left):
    """If both are powers of two; others would be rounded together where each was rounded alone."""
    A, B, k = te.placeholder((40, 30), name="A"), te.placeholder((30, 50), name="B"), te.reduce_axis((0, 30), name="k")
    C = te.compute((40, 50), lambda i, j: te.sum(A[i, k] * B[k, j] * 2.0, axis=k), name="C")
    func = te.create_prim_func([A, B, te.compute((40, 50), lambda i, j: C[i, j] * behind, name="D")])
    made = tir.default_schedule(func, TARGET).func
    factors = {n.value for n in walk(made) if isinstance(n, Const) and isinstance(n.value, float) and n.value}
    assert factors == left
    results = [integers(func, 0) for _ in range(2)]
    for f, arguments in zip((func, made), results, strict=True):
        run(f, *arguments)
    assert np.array_equal(results[0][-1], results[1][-1])
