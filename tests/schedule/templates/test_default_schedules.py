"""Default schedules of what templates know: threads share the work, lanes are used, and tiles fill the registers."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np
import pytest

import tir
from schedule import templates
from tests import programs
from tests.programs import product
from tir import te, workloads
from tir.analysis.positions import position
from tir.arith.enumeration import evaluate
from tir.arith.polynomial import to_expr
from tir.ir import Block, Const, Expr, For, Kind, PrimFunc
from tir.traverse import blocks, loads, loops_to, stores, substitute, walk

ROWS, COLUMNS, STEPS = 127, 191, 109


def sums(rows: int, columns: int, axis: int) -> PrimFunc:
    X = te.placeholder((rows, columns), name="X")
    k = te.reduce_axis((0, (rows, columns)[axis]), name="k")
    return te.create_prim_func(
        [X, te.compute(((columns, rows)[axis],), lambda i: te.sum(X[(k, i) if axis == 0 else (i, k)], axis=k), name="Y")]
    )


def turned(rows: int, columns: int) -> PrimFunc:
    X = te.placeholder((rows, columns), name="X")
    return te.create_prim_func([X, te.compute((columns, rows), lambda i, j: X[j, i], name="Y")])


PRODUCTS: dict[str, Callable[[], PrimFunc]] = {
    "product": lambda: product(ROWS, COLUMNS, STEPS),
    "product of columns": lambda: product(ROWS, COLUMNS, STEPS, "ki", "jk"),
    "long sums": lambda: product(61, 67, 4001),
    "batches": lambda: workloads.make("gmm", (5, 61, 67, 71)).func,
    "convolution": lambda: workloads.make("conv2d", (1, 28, 28, 32, 48, 3, 3, 1, 1)).func,
    "convolution of pixels": lambda: workloads.make("conv2d", (1, 28, 28, 64, 96, 1, 1, 1, 0)).func,
    "channels last": lambda: workloads.make("conv2d_nhwc", (1, 28, 28, 32, 48, 3, 1, 1, 1, 1)).func,
    "transposed convolution": lambda: workloads.make("conv2d_transpose", (1, 14, 14, 32, 48, 4, 2, 1)).func,
    "distances": lambda: programs.squared_distances(127, 131, 167),
    "attention": lambda: programs.attention(8, 128, 64),
}
OTHERS: dict[str, Callable[[], PrimFunc]] = {
    "few rows": lambda: product(3, 1021, 509),
    "few dots of columns": lambda: product(3, 509, 1021, "ki", "jk"),
    "few dots": lambda: product(3, 509, 1021, "ik", "jk"),
    "row by matrix": lambda: product(1, 1021, 509),
    "row by columns": lambda: product(1, 509, 1021, "ik", "jk"),
    "depthwise": lambda: workloads.make("depthwise", (1, 28, 28, 48, 3, 3, 1, 1)).func,
    "softmax": lambda: workloads.make("softmax", (301, 511)).func,
    "layernorm": lambda: workloads.make("layernorm", (301, 511)).func,
    "pool": lambda: programs.max_pool(4, 27, 29, 33),
    "sums of rows": lambda: sums(509, 1021, 1),
    "sums of columns": lambda: sums(509, 1021, 0),
    "sum of few rows": lambda: sums(7, 250_007, 1),
    "total": lambda: programs.total(1_000_003),
    "elementwise": lambda: programs.elementwise(301, 1021),
    "transposition": lambda: turned(301, 1021),
    "whole vectors": lambda: programs.elementwise(304, 1024),
    "vector by rows": lambda: product(509, 1, 1021),
    "columns by vector": lambda: product(1021, 1, 509, "ki", "kj"),
}
PROGRAMS = PRODUCTS | OTHERS
TARGETS = [("x86-64-v2", 3), ("x86-64-v3", 4), ("x86-64-v4", 1)]  # and numbers of cores; with vectors of 4, 8 and 16 floats
LANES = {"x86-64-v2": 4, "x86-64-v3": 8, "x86-64-v4": 16}
HEAVY = 1 / 6  # of the iterations of the largest nest: a nest that has more is not left to one thread or one lane


def iterations(nest: list[For], *kinds: Kind) -> int:
    """The iterations of the loops of some kinds, or of all."""
    extents = [x.extent for x in nest if not kinds or x.kind in kinds]
    return prod(n.value for n in extents if isinstance(n, Const))


def nests(func: PrimFunc) -> list[list[For]]:
    """The loops of each block that has many iterations, those of most first. The lanes of a vector are combined by vectors."""
    found = sorted((loops_to(func.body, b.name) for b in blocks(func)), key=iterations, reverse=True)
    found = [nest for nest in found if "combine_lanes" not in dict(nest[-1].annotations)]
    return [nest for nest in found if iterations(nest) > HEAVY * iterations(found[0])]


@pytest.mark.parametrize(("mcpu", "cores"), TARGETS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_threads_and_lanes_are_used(name, mcpu, cores):
    func = tir.default_schedule(PROGRAMS[name](), tir.Target("llvm", mcpu=mcpu, num_cores=cores)).func
    assert all(x.kind is not Kind.VECTORIZED for b in blocks(func) for x in loops_to(func.body, b.name)[:-1])
    for nest in nests(func):
        assert iterations(nest, Kind.VECTORIZED) >= LANES[mcpu]
        shared = iterations(nest, Kind.PARALLEL)
        if cores == 1:
            assert not any(x.kind is Kind.PARALLEL for x in nest)
        else:
            assert shared >= cores and -(-shared // cores) * cores <= 1.35 * shared  # no thread waits long for the others


@pytest.mark.parametrize(("mcpu", "cores"), TARGETS)
@pytest.mark.parametrize("name", [name for name in PROGRAMS if name != "transposition"])
def test_lanes_touch_neighbours_or_one_element(name, mcpu, cores):
    func = tir.default_schedule(PROGRAMS[name](), tir.Target("llvm", mcpu=mcpu, num_cores=cores)).func
    heavy = [nest[-1].body for nest in nests(func)]
    for block in (b for b in heavy if isinstance(b, Block)):
        lanes = {x.name: np.zeros(LANES[mcpu], np.int64) for x in loops_to(func.body, block.name)}
        lanes[loops_to(func.body, block.name)[-1].name] += np.arange(LANES[mcpu])
        places = {it.var: it.binding for it in block.iters}
        for x in (*loads(block.body), *stores(block.body)):
            touched = evaluate(to_expr(position(x.buffer, tuple(substitute(i, places) for i in x.indices))), lanes)
            assert set(np.diff(np.broadcast_to(touched, LANES[mcpu]))) in ({0}, {1}), (block.name, x.buffer.name)


@pytest.mark.parametrize(("func", "block"), [(programs.argmax(), "M"), (programs.relu_of_matmul(), "D")], ids=["argmax", "relu"])
def test_blocks_of_no_template_use_lanes(func, block):
    func = tir.default_schedule(func, tir.Target("llvm", mcpu="x86-64-v3", num_cores=4)).func
    assert any(x.kind is Kind.VECTORIZED for x in loops_to(func.body, block))


@pytest.mark.parametrize("cores", [1, 4])
def test_sums_shorter_than_vectors_are_shared_too(cores):
    func = tir.default_schedule(product(50_021, 1, 13), tir.Target("llvm", mcpu="x86-64-v3", num_cores=cores)).func
    assert [iterations(nest, Kind.PARALLEL) >= cores > 1 for nest in nests(func)] == [cores > 1]


@pytest.mark.parametrize("cores", [1, 4])
def test_counts_of_comparisons_use_lanes_and_scans_run_in_order(cores):
    """The ranks of elements in their rows, and their running sums: of these threads share the rows."""
    X, other = te.placeholder((509, 61), name="X"), te.reduce_axis((0, 61), name="other")
    ranks = te.compute(X.shape, lambda i, j: te.sum((X[i, other] < X[i, j]).astype("int32"), axis=other), name="ranks")

    def step(y: te.Tensor, i: Expr, j: Expr) -> Expr:
        return ranks[i, j] + te.if_then_else(j >= 1, y[i, te.maximum(j - 1, 0)], 0)

    sums = te.scan(X.shape, step, 1, "int32", "sums")
    target = tir.Target("llvm", mcpu="x86-64-v3", num_cores=cores)
    s = templates.schedule(te.create_prim_func([X, sums]), target)
    assert s is not None
    assert loops_to(s.func.body, "ranks")[-1].kind is Kind.VECTORIZED
    *outer, inner = loops_to(s.func.body, "sums")
    assert inner.kind is Kind.SERIAL and any(x.kind is Kind.PARALLEL for x in outer) == (cores > 1)

    x = np.random.default_rng(0).integers(-9, 9, (509, 61)).astype("float32")
    found = np.zeros(x.shape, "int32")
    tir.build(s.func, tir.Target("llvm", num_cores=cores))(x, found)
    np.testing.assert_array_equal(found, np.cumsum((x[:, None, :] < x[:, :, None]).sum(2), 1))


@pytest.mark.parametrize(("mcpu", "cores"), TARGETS)
@pytest.mark.parametrize("name", PRODUCTS)
def test_tiles_fill_registers_and_little_else(name, mcpu, cores):
    """Accumulators take half of the registers at least, and at most all; few iterations are those of no element."""
    func, target = PRODUCTS[name](), tir.Target("llvm", mcpu=mcpu, num_cores=cores)
    nest = nests(tir.default_schedule(func, target).func)[0]
    vectors = -(-iterations(nest, Kind.VECTORIZED) // LANES[mcpu])
    assert target.registers / 2 <= iterations(nest, Kind.UNROLLED) * vectors <= target.registers
    assert iterations(nest) <= 1.2 * iterations(nests(func)[0])


@pytest.mark.parametrize("name", PRODUCTS)
def test_numbers_of_threads_change_shares_alone(name):
    """One core has no parallel loop, more cores at least as many iterations of them."""
    shares = []
    for cores in (1, 2, 6):
        nest = nests(tir.default_schedule(PRODUCTS[name](), tir.Target("llvm", mcpu="x86-64-v3", num_cores=cores)).func)[0]
        shares.append(iterations(nest, Kind.PARALLEL))
    assert shares[0] == 1 and shares[1] >= 2 and shares[2] >= 6


def threads(nest: list[For], kind: str) -> int:
    """The threads of a kind that the kernel of a nest is launched with. Products of a warp leave its lanes to instructions."""
    bound = [x for x in walk(nest[0]) if isinstance(x, For) and x.thread and x.thread.startswith(kind)]
    return prod({x.thread: x.extent.value for x in bound if isinstance(x.extent, Const)}.values())


@pytest.mark.parametrize("name", PROGRAMS)
def test_blocks_of_threads_are_whole_warps(name):
    """Few iterations are those of no element, and the multiprocessor that has most of them has no more on a GPU of more
    multiprocessors. Threads may be fewer there: a single wave of larger tiles reads less."""
    func, longest = PROGRAMS[name](), []
    for arch in ("sm_75", "sm_80", "sm_90"):
        target = tir.Target("cuda", arch=arch)
        found = nests(tir.default_schedule(func, target).func)
        for nest in found:
            assert threads(nest, "blockIdx") * threads(nest, "threadIdx") > 1 and iterations(nest) <= 2.1 * iterations(
                nests(func)[0]
            )
            assert threads(nest, "threadIdx") % 32 == 0 and threads(nest, "threadIdx") <= 1024
        n = threads(found[0], "blockIdx")
        least = 32 * 8 * 128 // 16 if name == "attention" else 4096  # a warp has 16 of its 8 x 128 rows
        assert name not in PRODUCTS or n * threads(found[0], "threadIdx") >= least
        longest.append(-(-n // target.machine.sms) * (iterations(found[0]) // n))
    if name == "attention":  # several kernels on sm_75, one from sm_80 on, whose blocks are rows of 8 heads alone
        longest = longest[1:]
    assert longest == sorted(longest, reverse=True)


@pytest.mark.parametrize(("shape", "axis"), [((64, 577), 1), ((109, 33), 0), ((7, 13), 1), ((5001,), 0), ((3, 31, 109), 1)])
@pytest.mark.parametrize("cores", [1, 2])
def test_places_of_maxima_are_reductions_too(shape, axis, cores):
    """Values that are reduced together have lanes and threads as one has; of equal elements the first counts."""
    X, k = te.placeholder(shape, name="X"), te.reduce_axis((0, shape[axis]), name="k")
    rest = tuple(n for d, n in enumerate(shape) if d != axis)
    place, _ = te.compute(rest, lambda *i: te.argmax((k, X[(*i[:axis], k, *i[axis:])]), axis=k), name="Y")
    func, target = te.create_prim_func([X, place]), tir.Target("llvm", num_cores=cores)
    found = templates.decided(func, target)
    assert found is not None and found.rules == ["Y: reduction"]
    x, y = np.random.default_rng(0).integers(-9, 10, shape).astype("float32"), np.zeros(rest, "int32")
    tir.compile(func, target, cache=None)(x, y)
    np.testing.assert_array_equal(y, x.argmax(axis))
