"""Populations for GPUs: rows within the limits of the device, whoever made them."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest

from codegen.cuda import lower_cuda
from codegen.target import Target
from costmodel.gpu_model import reserved
from schedule import replay
from search.population.gpu import _idles, _tiled_blocks
from search.population.mutate import crossover, mutations
from search.population.sample import legalize, sample
from search.space import generate
from tests.search.gpu.candidates import PRODUCTS, product
from tests.sweeps import one_in
from tir import dtypes, te, workloads

TARGET = Target("cuda")
CASES = [
    ("gmm", (1000, 109, 1013)), ("gmm", (7, 13, 109)), ("gmm", (1024, 1024, 1024)), ("conv2d", (1, 57, 56, 64, 61, 3, 3, 1, 1)),
    ("depthwise", (1, 13, 9, 5, 3, 3, 1, 1)), ("conv3d", (1, 5, 3, 5, 3, 5, 3, 1, 1)), ("softmax", (7, 109)),
    ("float16", (1000, 109, 1013)), ("tf32", (40, 17, 33)), ("bfloat16, batch", (3, 4096, 4096, 512)),
]  # fmt: skip


def function(name, shape):
    if name == "weighted":
        return weighted(*shape)
    return product(name, *shape) if name in PRODUCTS else workloads.make(name, shape).func


def weighted(n, depth, dtype="float32"):
    """A sum of products whose factors are one matrix, and weights."""
    A, W = te.placeholder((depth, n), dtype, name="A"), te.placeholder((depth, n), dtype, name="W")
    k = te.reduce_axis((0, depth), "k")
    return te.create_prim_func([A, W, te.compute((n, n), lambda i, j: te.sum(A[k, i] * A[k, j] * W[k, j], axis=k), name="C")])


def within(sketch, rows, target=TARGET):
    """Which rows keep all limits."""
    limits = target.machine
    ok = np.ones(len(rows), dtype=bool)
    for t in _tiled_blocks(sketch):
        threads, held = t.threads(rows), t.held(rows)
        ok &= (threads <= 1024) & (np.prod(rows[:, t.columns("v")], axis=1) <= limits.virtual)
        least = np.maximum(limits.register_file, (4 + reserved(t.cores)) * threads)
        blocks = 1 if t.resident is None else rows[:, t.resident]
        ok &= (held + reserved(t.cores)) * np.maximum(threads, 32) * blocks <= least
        ok &= t.shared(rows) <= limits.shared
        for tile in t.tiles:
            ok &= ~_idles(tile, rows)
    for limit in sketch.limits:
        ok &= np.prod(rows[:, limit.columns], axis=1) <= limit.maximum
    return ok


@one_in(2)
@pytest.mark.parametrize("name, shape", CASES)
def test_rows_are_within_the_limits_and_stay_so(name, shape):
    rng = np.random.default_rng(0)
    for sketch in generate(function(name, shape), TARGET):
        rows = sample(sketch, TARGET, 500, rng)
        assert within(sketch, rows).all()
        assert (legalize(sketch, TARGET, rows) == rows).all()
        for mutation in (m for m in mutations().values() if m.suits(sketch)):
            children = mutation.operate(sketch, TARGET, rows, rng)
            assert within(sketch, children).all() and (legalize(sketch, TARGET, children) == children).all()
        mixed = crossover(sketch, TARGET, rows, rows[::-1], rng)
        assert within(sketch, mixed).all()


@one_in(2)
@pytest.mark.parametrize(
    "name, shape",
    [
        ("gmm", (109, 130, 77)), ("conv2d", (1, 13, 9, 5, 7, 3, 3, 2, 1)), ("depthwise", (1, 13, 9, 5, 3, 3, 1, 1)),
        ("float16", (109, 130, 77)), ("tf32, transposed", (100, 170, 133)), ("weighted", (1001, 67)),
        ("weighted", (131, 67, "int8")),
    ],
)  # fmt: skip
def test_kernels_take_no_more_shared_memory_than_was_reckoned(name, shape):
    rng = np.random.default_rng(0)
    func = function(name, shape)
    seen = 0
    for sketch in generate(func, TARGET):
        for tiled in _tiled_blocks(sketch):
            rows = sample(sketch, TARGET, 2, rng)
            for row, most in zip(rows.tolist(), tiled.shared(rows), strict=True):
                program = lower_cuda(replay(func, sketch.trace(row)).func, TARGET)
                taken = max(sum(padded(b) for b in kernel.shared) for kernel in program.kernels)
                assert 0 < taken <= most <= TARGET.machine.shared, (str(sketch), row)
                seen += 1
    assert seen


def test_threads_with_nothing_to_copy_take_no_shared_memory():
    """256 threads copy 64 and 128 times 4 elements."""
    func = workloads.make("gmm", (64, 16, 128)).func
    sketch = next(s for s in generate(func, TARGET) if _tiled_blocks(s))
    row = np.ones((1, sketch.columns), dtype=np.int64)
    for t in sketch.tiles:
        sizes = {64: {"t": 8, "s": 8}, 128: {"t": 32, "s": 4}, 16: {"r": 4}}[t.extent]
        for role, size in sizes.items():
            row[0, t.columns[t.roles.index(role)]] = size
    wanted = {"A_shared skew": 2, "B_shared skew": 1, "A_shared vector": 4, "B_shared vector": 4, "C unroll": 0}
    for c in sketch.choices:
        row[0, c.column] = wanted.get(c.name, 1)
    assert within(sketch, row).all() and _tiled_blocks(sketch)[0].shared(row) == 4 * (64 * 12 + 4 * 132)
    (kernel,) = lower_cuda(replay(func, sketch.trace(row[0].tolist())).func, TARGET).kernels
    assert prod(kernel.block) == 256
    assert {b.name: [n.value for n in b.shape] for b in kernel.shared} == {"A_shared": [64, 5], "B_shared": [4, 132]}


def padded(buffer):
    """The bytes of a buffer, up to the next 16."""
    return -(-prod(int(n.value) for n in buffer.shape) * dtypes.nbytes(buffer.dtype) // 16) * 16


@pytest.mark.parametrize("name", ["gmm", "float16"])
def test_wild_rows_are_brought_within(name):
    rng = np.random.default_rng(1)
    sketch = generate(function(name, (1000, 1000, 1000)), TARGET)[0]
    wild = sketch.stand_ins() + 0 * np.zeros((300, sketch.columns), dtype=np.int64)
    for t in sketch.tiles:
        wild[:, t.columns] = 2 ** rng.integers(0, 9, size=(len(wild), len(t.columns)))
    for c in sketch.choices:
        wild[:, c.column] = rng.choice(c.options, size=len(wild))
    assert not within(sketch, wild).all()
    assert within(sketch, legalize(sketch, TARGET, wild)).all()


def test_stages_take_shared_memory_and_resident_blocks_registers():
    for name in ("gmm", "float16"):
        sketch = generate(function(name, (1000, 1000, 1000)), TARGET)[0]
        (tiled,) = _tiled_blocks(sketch)
        rows = sample(sketch, TARGET, 500, np.random.default_rng(0))
        more = rows.copy()
        more[:, tiled.stages] += 1
        assert (tiled.shared(more) * rows[:, tiled.stages] == tiled.shared(rows) * more[:, tiled.stages]).all()
        most = rows.copy()
        most[:, [tiled.stages, tiled.resident]] = 99
        fitted = legalize(sketch, TARGET, most)
        assert within(sketch, fitted).all() and (fitted[:, tiled.stages] >= rows[:, tiled.stages]).all()
        assert len(set(fitted[:, tiled.stages])) > 1 and len(set(fitted[:, tiled.resident])) > 1


def test_groups_of_rows_leave_few_blocks_idle():
    sketch = generate(function("gmm", (1000, 64, 1000)), TARGET)[0]
    (grouped,) = (t for t in sketch.tiles if "g" in t.roles)
    row = np.array([sketch.stand_ins()])
    for blocks, group, left in ((16, 8, 8), (15, 8, 8), (5, 8, 5), (5, 4, 1), (1, 2, 1), (6, 2, 2)):
        row[0, grouped.columns] = 1
        row[0, grouped.columns[2]] = size = -(-1000 // blocks)
        row[0, grouped.columns[0]] = group
        fitted = legalize(sketch, TARGET, row)[0]
        assert fitted[grouped.columns[2]] == size and fitted[grouped.columns[0]] == left, (blocks, group)


def test_older_devices_have_less_shared_memory():
    sketch = generate(workloads.make("gmm", (1024, 1024, 1024)).func, TARGET)[0]
    old = Target("cuda", arch="sm_75")
    rows = sample(sketch, TARGET, 2000, np.random.default_rng(0))
    assert not within(sketch, rows, old).all()
    assert within(sketch, legalize(sketch, old, rows), old).all()


def test_blocks_fill_warps_where_the_function_is_large_enough():
    for name, shape in (("gmm", (1000, 1000, 1000)), ("conv2d", (1, 57, 56, 64, 61, 3, 3, 1, 1))):
        sketch = generate(workloads.make(name, shape).func, TARGET)[0]
        rows = sample(sketch, TARGET, 500, np.random.default_rng(0))
        (tiled,) = _tiled_blocks(sketch)
        assert (tiled.threads(rows) >= 32).all()
        assert len(np.unique(rows, axis=0)) > 450
