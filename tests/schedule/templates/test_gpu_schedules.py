"""Default schedules on a GPU: few kernels, whole lines of memory, and threads enough."""

from __future__ import annotations

import re

import numpy as np
import pytest

import tir
from schedule.open_schedule import OpenSchedule, Stage, extent, is_spatial
from schedule.primitive import find_block
from schedule.templates.block_analysis import epilogue
from schedule.templates.gpu import elements, launch, products, rows, split_sum, windows
from schedule.templates.template import Verdict
from search.space import generate
from tests import programs
from tests.schedule.templates.test_default_schedules import PROGRAMS, nests, product, threads
from tir import te, workloads
from tir.analysis.positions import position
from tir.arith.enumeration import evaluate
from tir.arith.polynomial import to_expr
from tir.ir import Buffer, For, Kind, Load, PrimFunc, Seq, Var, as_expr
from tir.memory import WARP
from tir.traverse import blocks, loads, loops_to, stores, substitute

TARGET = tir.Target("cuda")
SECTOR_BYTES = 32  # that memory moves at once
ACCESS_BYTES = 16  # that a thread moves at once, at most


def kernels(func: PrimFunc) -> int:
    body = func.body
    while not isinstance(body, (Seq, For)):
        body = body.body
    return len(body.stmts) if isinstance(body, Seq) else 1


MOST_KERNELS = {
    "product": 1, "batches": 1, "convolution": 1, "channels last": 1, "transposed convolution": 1, "attention": 4, "softmax": 1,
    "layernorm": 1, "pool": 1, "sums of rows": 1, "sums of columns": 1, "elementwise": 1, "transposition": 1, "depthwise": 1,
    "long sums": 2, "few dots": 2,
}  # fmt: skip


@pytest.mark.parametrize("name", MOST_KERNELS)
def test_few_kernels(name):
    """Elementwise stages, rows and epilogues are parts of the kernel of what they use."""
    assert kernels(tir.default_schedule(PROGRAMS[name](), TARGET).func) <= MOST_KERNELS[name]


@pytest.mark.parametrize("make", [programs.chain, programs.relu_of_matmul, programs.conv_norm_relu, programs.stencil])
def test_elementwise_stages_are_no_kernels(make):
    assert kernels(tir.default_schedule(make(), TARGET).func) == 1


def lanes_of_a_warp(func: PrimFunc, block: str) -> dict[str, np.ndarray]:
    """The loops around a block at the first iterations, for the first threads of a block of threads."""
    nest = loops_to(func.body, block)
    values = {x.name: np.zeros(WARP, np.int64) for x in nest}
    number, span = np.arange(WARP), 1
    for x in nest:
        if x.thread == "threadIdx.x":
            values[x.name], span = number % x.extent.value, x.extent.value
    for x in nest:
        if x.thread == "threadIdx.y":
            values[x.name] = number // span % x.extent.value
    return values


@pytest.mark.parametrize("name", ["product", "batches", "convolution of pixels", "softmax", "layernorm", "elementwise", "transposition",
                                  "whole vectors", "sums of rows", "sums of columns", "pool"])  # fmt: skip
def test_a_warp_touches_few_lines_of_global_memory(name):
    """Its threads touch neighbours: of the least number of sectors that hold as many elements, at most twice as many sectors."""
    func = tir.default_schedule(PROGRAMS[name](), TARGET).func
    heavy = [nest[-1].body for nest in nests(func)]
    for block in (b for b in blocks(func) if b in heavy or b.name.endswith(("shared", "local"))):
        values, places = lanes_of_a_warp(func, block.name), {it.var: it.binding for it in block.iters}
        for x in (*loads(block.body), *stores(block.body)):
            if x.buffer.scope == "global":
                index = to_expr(position(x.buffer, tuple(substitute(i, places) for i in x.indices)))
                touched = np.unique(np.broadcast_to(evaluate(index, values), WARP))
                width = max((v.extent.value for v in loops_to(func.body, block.name) if v.kind is Kind.VECTORIZED), default=1)
                least = -(-len(touched) * width * 4 // SECTOR_BYTES)
                assert len(np.unique(touched * 4 // SECTOR_BYTES)) <= 2 * least, (block.name, x.buffer.name, touched)


def options(s: OpenSchedule, name: str) -> tuple:
    """The choices of an open schedule."""
    return next(c.options for c in s.choices if c.name == name)


@pytest.mark.parametrize("count", [31, 64, 96, 1024, 5000])
def test_numbers_of_threads_to_choose_from(count):
    """All of the list that the elements fill, and the seed."""
    s = OpenSchedule(programs.elementwise(count), TARGET)
    elements.bind_rest(s)
    seed, *others = options(s, "B threads")
    assert seed <= count and {seed, *others} == {seed, *(n for n in elements.THREADS if n <= count)}


@pytest.mark.parametrize(("dtype", "lanes"), [("float16", 8), ("float32", 4), ("float64", 2), ("int8", 16)])
def test_threads_move_as_many_bytes_as_they_may(dtype, lanes):
    A = te.placeholder((64, 96), dtype, name="A")
    s = OpenSchedule(te.create_prim_func([A, te.compute((64, 96), lambda i, j: A[i, j] + A[i, j], name="B")]), TARGET)
    elements.bind_rest(s)
    assert options(s, "B vector") == tuple(n for n in (1, 2, 4, 8, 16) if n <= lanes)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_loads_of_tiles_are_as_wide_as_memory_allows(dtype):
    """Loads of rows that are whole vectors of 16 bytes."""
    func = programs.matmul(128, 128, 128, dtype)
    (sketch, *_) = [s for s in generate(func, TARGET) if any(c.name.endswith("shared vector") for c in s.choices)]
    widths = {c.options for c in sketch.choices if c.name.endswith("shared vector")}
    assert {max(w) * np.dtype(dtype).itemsize for w in widths} == {ACCESS_BYTES}


@pytest.mark.parametrize("steps", [63, 511, 512, 1024, 4096, 40_000])
def test_parts_of_a_sum(steps):
    """The formula's number, half and twice; a part has 128 steps at least, and one part is no way."""
    func = product(64, 64, steps)
    counts = split_sum.SplitSum()._part_counts(OpenSchedule(func, TARGET, at_seed=True), "C")
    n = split_sum.seed(products.matched_product(find_block(func, "C")), TARGET.machine)
    assert set(counts) == ({n, n // 2, 2 * n} - {1} if n > 1 else set()) and counts[:1] == [n][: len(counts)]
    assert all(128 * k <= steps for k in counts)


@pytest.mark.parametrize(("more", "split"), [(0, False), (-1, True)])
def test_sums_stay_whole_where_blocks_fill_half_of_the_device(more, split):
    rows = (TARGET.machine.sms // 2 + more) * split_sum.GOOD_TILE_EDGE
    c = products.matched_product(find_block(product(rows, split_sum.GOOD_TILE_EDGE, 40_000), "C"))
    assert c is not None and (split_sum.seed(c, TARGET.machine) > 1) == split


i, j = Var("i"), Var("j")


@pytest.mark.parametrize(("columns", "index", "lanes"), [
    (12, j, 4), (12, j + 4, 4), (12, j + 2, 2), (12, j * 2, 1), (12, i * 4 + j, 4), (12, i + j, 1), (12, j % 8, 4), (12, j % 6, 2),
    (10, j, 2), (11, j, 1), (Var("n"), j, 1),
])  # fmt: skip
def test_lanes_of_a_load_are_neighbours_that_start_where_vectors_may(columns, index, lanes):
    source = Load(Buffer("A", (as_expr(8), as_expr(columns), as_expr(1))), (i, index, as_expr(0)))
    assert launch.lanes_of(source, (8, 12), 8) == lanes
    assert launch.lanes_of(source, (8, 12), 48) == min(lanes, 2) and launch.lanes_of(source, (12, 6), 1) == min(lanes, 2)
    assert launch.lanes_of(None, (8, 12), 8) == launch.lanes_of(Load(Buffer("B", (as_expr(1),)), (as_expr(0),)), (8, 12), 8) == 1


def test_a_long_sum_is_made_by_several_blocks():
    """In two stages, unless it is scheduled already."""
    func = programs.total(1 << 20)
    scheduled = tir.default_schedule(func, TARGET).func
    assert max(threads(nest, "blockIdx") for nest in nests(scheduled)) > 1
    s = OpenSchedule(func, TARGET, at_seed=True)
    (block,) = (b.name for b in blocks(func))
    assert split_sum.stages(s, block, TARGET.machine) > 1
    s.scheduled[block] = Stage.BOUND
    assert split_sum.stages(s, block, TARGET.machine) == 1


@pytest.mark.parametrize("length", [32, 64, 109, 1000, 4000, 40001])
@pytest.mark.parametrize("count", [1, 7, 301, 100_000])
def test_threads_of_a_row(count, length):
    """Few threads have no element, and no more than the limit; where SMs idle, threads have few elements each."""
    func = workloads.make("softmax", (count, length)).func
    s = OpenSchedule(func, TARGET, at_seed=True)
    last = func.script().rpartition('T.block("')[2].partition('"')[0]
    group = rows.group(s, last)
    lanes = rows.seed(s, (*group.stages, last), group.rank, False, TARGET.machine)
    assert rows.WARP <= lanes.threads <= rows.STREAMING_THREADS
    assert lanes.threads == rows.WARP or lanes.threads * lanes.width < 2 * length
    assert length % lanes.width == 0
    idle = count * lanes.threads < TARGET.machine.saturating_threads
    assert not idle or lanes.threads == rows.STREAMING_THREADS or lanes.threads * lanes.width >= length


@pytest.mark.parametrize("make", [programs.dilated_conv, lambda: workloads.make("conv2d", (1, 13, 9, 5, 7, 3, 3, 2, 1)).func])
def test_windows_become_matrices_once(make):
    s = OpenSchedule(make(), TARGET, at_seed=True)
    (block,) = (b.name for b in blocks(s.func) if b.is_reduction)
    assert windows.WindowsAsMatrices().applies(s, block) is Verdict.APPLY
    s.scheduled[block] = Stage.BOUND
    assert windows.WindowsAsMatrices().applies(s, block) is Verdict.SKIP


def test_vectors_need_whole_rows_of_known_length():
    n, i, j = Var("n"), Var("i"), Var("j")

    def aligned(*shape) -> bool:
        return launch._aligned(Load(Buffer("A", tuple(map(as_expr, shape))), (i, j)[-len(shape) :]), 4)

    assert aligned(n, 64) and aligned(64) and aligned(7, 64)
    assert not (aligned(64, n) or aligned(64, 7) or aligned(n))


def test_a_product_is_no_stage_of_rows():
    """It has tiles of its own, though the rows that follow are its rows."""
    func = workloads.make("attention_weights", (1, 130, 2, 64)).func
    s = OpenSchedule(func, TARGET, at_seed=True)
    tiled = [b.name for b in blocks(func) if b.init is not None and len({x.buffer.name for x in loads(b.body)}) == 3]
    assert tiled
    for b in blocks(func):
        group = rows.group(s, b.name)
        assert group is None or not {*group.stages, group.last} & {*tiled}


@pytest.mark.parametrize(("left", "right"), [("ik", "kj"), ("ik", "jk"), ("ki", "jk")])
@pytest.mark.parametrize("size", [64, 512, 2048])
def test_registers_are_kept_for_two_blocks_unless_tiles_need_them(left, right, size):
    func = product(size, size, size, left, right)
    c = products.matched_product(find_block(func, "C"))
    tile = products.seed(c, TARGET.machine)
    across = products._lies_across(c) and products._accumulators(tile, c) == products.MAX_ACCUMULATORS
    found = re.search(r'"resident_blocks": (\d)', tir.default_schedule(func, TARGET).func.script())
    assert found is not None and int(found[1]) == (1 if across else 2)


@pytest.mark.parametrize("held", [False, True])
def test_one_number_of_a_row_is_in_registers(held):
    """Rows that are not held lie in shared memory; the sum of a row is a register of each thread either way."""
    s = OpenSchedule(workloads.make("softmax", (301, 512)).func, TARGET, at_seed=True)
    last = blocks_of(s)[-1]
    rows.build(s, rows.group(s, last), held)
    scopes = {b.body.buffer.name: (s.block(b.name).iters, b.body.buffer.scope) for b in blocks(s.func) if b.name != last}
    for axes, scope in scopes.values():
        whole = sum(is_spatial(it) and extent(it) > 1 for it in axes) > 1
        assert scope == ("shared" if whole and not held else "local"), scopes


def blocks_of(s: OpenSchedule) -> list[str]:
    return [b.name for b in blocks(s.func)]


def test_what_is_scheduled_is_not_inlined():
    s = OpenSchedule(programs.chain(), TARGET, at_seed=True)
    inline = elements.InlineElements()
    assert (inline.applies(s, "B"), inline.applies(s, "C")) == (Verdict.ONLY, Verdict.SKIP)
    s.scheduled["B"] = Stage.BOUND
    assert inline.applies(s, "B") is Verdict.SKIP


def test_the_last_block_of_a_reduction_stays_for_a_consumer_that_is_not_elementwise():
    """As the epilogue of the reduction it is no block of its own."""
    A, B = te.placeholder((64, 32), name="A"), te.placeholder((32, 64), name="B")
    k = te.reduce_axis((0, 32), name="k")
    C = te.compute((64, 64), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    D = te.compute((64, 64), lambda i, j: te.maximum(C[i, j], 0.0), name="D")
    turned_after = te.create_prim_func([A, B, te.compute((64, 64), lambda i, j: D[j, i] + 1.0, name="E")])
    s = OpenSchedule(turned_after, TARGET, at_seed=True)
    ends = epilogue(s, "C", anywhere=True) == "D" and epilogue(s, "D") is None
    assert (elements.InlineElements().applies(s, "D") is Verdict.SKIP) == ends
    A = te.placeholder((64,), name="A")
    B = te.compute((64,), lambda i: A[i] + 1.0, name="B")
    simple = te.create_prim_func([A, te.compute((64,), lambda i: B[63 - i] * 2.0, name="C")])
    assert elements.InlineElements().applies(OpenSchedule(simple, TARGET, at_seed=True), "B") is Verdict.ONLY
