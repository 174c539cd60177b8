"""Common parts of templates for GPUs: how tiles are loaded, rows are ordered, and blocks of threads are bound."""

from __future__ import annotations

import pytest

import tir
from schedule.machine import GPU
from schedule.open_schedule import OpenSchedule, Stage
from schedule.primitive import find_block
from schedule.templates.gpu import launch, products, split_sum
from tests import programs
from tests.schedule.templates.patterns import by_rule, relu
from tir.ir import Buffer, Load, Var, as_expr

TARGET = tir.Target("cuda -arch sm_90")


def at(shape, *indices) -> Load:
    return Load(Buffer("A", tuple(map(as_expr, shape))), tuple(map(as_expr, indices)))


@pytest.mark.parametrize(("shape", "last"), [((7, 13), "j"), ((7, 1), "i"), ((1, 1), "j")])
def test_the_index_that_walks_memory(shape, last):
    assert launch.innermost(at(shape, Var("i"), Var("j"))) == Var(last)


@pytest.mark.parametrize(("blocks", "rows_"), [(1, 1), (2, 2), (7, 7), (8, 8), (9, 3), (11, 1), (16, 8), (12, 6)])
def test_rows_of_blocks_that_run_together_divide_all(blocks, rows_):
    assert launch.grouped(blocks) == rows_ and blocks % rows_ == 0


@pytest.mark.parametrize(("rule", "about", "along"), [
    ("ik -> i", {"k": 32}, True), ("ik -> i", {"k": 31}, False), ("ki -> i", {"k": 64}, False), ("jk k -> j", {"k": 32}, True),
    ("kj k -> j", {"k": 32}, False), ("ik jk -> ij", {"k": 40}, True), ("ik kj -> ij", {"k": 40}, False), ("ij -> ij", {}, False),
    ("ikz -> i", {"k": 32}, False), ("irk -> i", {"k": 40, "r": 40}, False), ("ikr -> i", {"k": 3, "r": 40}, True),
])  # fmt: skip
def test_reductions_along_memory(rule, about, along):
    assert launch.reduces_along_memory(find_block(by_rule(rule, **about), "Y")) == along


@pytest.mark.parametrize("stages", [(2, 1, 3, 4), (1, 5)])
@pytest.mark.parametrize(("arch", "most"), [("sm_70", 3), ("sm_80", 9), ("sm_90", 9)])
def test_stages_without_asynchronous_copies(stages, arch, most):
    s = OpenSchedule(programs.elementwise(7, 13), tir.Target(f"cuda -arch {arch}"))
    outer, inner = s.get_loops("B")
    launch.choose_pipeline(s, "B", outer, inner, stages)
    found = next(c.options for c in s.choices if c.name == "B stages")
    assert len(found) == len([n for n in stages if n <= most])


@pytest.mark.parametrize("loops", [1, 2, 3])
def test_threads_of_nested_loops(loops):
    """The last loop is x, and the others are y, as one."""
    s = OpenSchedule(programs.elementwise(3, 4, 5), TARGET)
    launch.bind_group(s, s.get_loops("B")[:loops], "threadIdx")
    found = [x.thread for x in tir.traverse.loops_to(s.func.body, "B")]
    assert [x or "" for x in found] == ["threadIdx.y"] * (loops > 1) + ["threadIdx.x"] + [""] * (3 - loops)
    assert launch.has_threads(s, "B") and not launch.has_threads(OpenSchedule(programs.elementwise(3), TARGET), "B")


@pytest.mark.parametrize("scheduled", [False, True])
def test_results_are_written_by_an_epilogue_that_is_free(scheduled):
    s = OpenSchedule(by_rule("ik kj -> ij", after=relu), TARGET)
    if scheduled:
        s.scheduled["Z"] = Stage.BOUND
    assert launch.accumulate(s, "Y", "local") == ("Y_local" if scheduled else "Z")
    assert s.block("Y").body.buffer.scope == "local"


@pytest.mark.parametrize(("rule", "matrices"), [
    ("ik kj -> ij", True), ("bik bkj -> bij", True), ("ikr krj -> ij", False), ("bik kj -> bij", False), ("gik kbj -> gibj", False),
    ("nc(h+r)(w+q) ocrq -> nohw", False), ("(i+k) kj -> ij", False), ("i(j+k) kj -> ij", None), ("jk k -> j", None),
    ("xk kj -> xj", None), ("ik kx -> ix", None), ("iz zj -> ij", None), ("ikz kj -> ij", False),
])  # fmt: skip
def test_products_of_matrices(rule, matrices):
    c = products.matched_product(find_block(by_rule(rule), "Y"))
    assert (None if c is None else products.is_matrices(c)) == matrices


@pytest.mark.parametrize(("i", "k", "few"), [(5, 6, True), (5, 5, False), (1024, 2000, True), (1025, 2000, False)])
def test_few_results(i, k, few):
    assert products.few_results(find_block(by_rule("ik -> i", i=i, k=k), "Y"), GPU.of("sm_90")) == few


@pytest.mark.parametrize(("n", "length"), [(1, 1), (2, 2), (3, 4), (16, 16), (17, 32)])
def test_tiles_are_powers_of_two(n, length):
    assert products.padded_length(n) == length


@pytest.mark.parametrize(("i", "j", "k"), [(8, 8, 8), (3, 200, 5), (64, 64, 64), (1000, 1000, 100), (17, 33, 9), (2, 2, 2)])
@pytest.mark.parametrize(("left", "right"), [("ik", "kj"), ("ki", "jk")])
def test_tiles_of_products(i, j, k, left, right):
    """No longer than axes, of whole sectors, threads for a warp where there are results enough, and registers for results."""
    c = products.matched_product(find_block(by_rule(f"{left} {right} -> ij", i=i, j=j, k=k), "Y"))
    tile = products.seed(c, TARGET.machine)
    sector = products.SECTOR_BYTES // 4
    walked = {left[-1], right[-1]}
    for letter, extent, own in zip("ijk", (i, j, k), tile.shape, strict=True):
        assert own <= products.padded_length(extent)
        assert own >= min(products.padded_length(extent), sector if letter in walked else 1)
    assert tile.rows % tile.held_rows == tile.columns % tile.held_columns == 0
    assert tile.threads >= 32 or tile.held_rows == 1
    assert products._accumulators(tile, c) <= products.MAX_ACCUMULATORS
    assert products._lies_across(c) == (right == "jk")


@pytest.mark.parametrize("steps", [512, 1300, 40_000])
def test_parts_of_sums_have_whole_tiles(steps):
    c = products.matched_product(find_block(by_rule("ik kj -> ij", i=7, j=20, k=steps), "Y"))
    n = split_sum.seed(c, TARGET.machine)
    assert 1 < n <= steps // split_sum.SEED_PART_STEPS


@pytest.mark.parametrize(("rule", "about", "stages"), [
    ("k -> x", {"k": 8191}, False), ("k -> x", {"k": 60000}, True), ("ik kj -> ij", {"k": 5000}, False), ("ij -> ij", {}, False),
    ("ki -> i", {"k": 127, "i": 5}, False), ("ki -> i", {"k": 128, "i": 5}, True), ("ki -> i", {"k": 128, "i": 200_000}, False),
])  # fmt: skip
def test_sums_in_two_stages(rule, about, stages):
    s = OpenSchedule(by_rule(rule, **about), TARGET, at_seed=True)
    n = split_sum.stages(s, "Y", TARGET.machine)
    assert (n > 1) == stages and (n == 1 or about["k"] % n == 0)
    s.partial.add("Y")
    assert split_sum.stages(s, "Y", TARGET.machine) == 1
