"""Marks of loops: stores past the caches, rows that are fetched ahead, threads that are worth waking."""

from __future__ import annotations

from dataclasses import replace

import pytest

import tir
from schedule.error import ScheduleError
from schedule.open_schedule import OpenSchedule, Stage
from schedule.templates import decided, marks
from tests import programs
from tests.schedule.templates.patterns import TARGETS, by_rule, nests, scheduled
from tir.constants import with_constants
from tir.traverse import loops_to

ONE = TARGETS["znver2"]
ELEMENTS = 8192  # of two arrays of 64 KiB in all


def target(l2: int = 0, l3: int = 0, **about: object) -> tir.Target:
    return replace(ONE, l2=l2 or ONE.l2, l3=l3 or ONE.l3, **about)


def streamed(l2: int, l3: int, stage: Stage | None = None, func=None, block: str = "B") -> tuple[bool, bool]:
    """Where results may be stored past the caches, and where they are at the seed."""
    made = []
    for at_seed in (False, True):
        s = OpenSchedule(func or programs.elementwise(ELEMENTS), target(l2, l3), at_seed=at_seed)
        if stage is not None:
            s.scheduled[block] = stage
        marks.stream(s, block)
        made.append(s)
    asked, seed = made
    return any(c.name == f"{block} stores" for c in asked.choices), "non_temporal" in seed.script


@pytest.mark.parametrize(("l2", "l3", "asked", "seed"), [
    (65536, 1 << 20, False, False), (65535, 1 << 20, True, False), (4096, 131072, True, False), (4096, 131071, True, True),
    (4096, 8192, True, True),
])  # fmt: skip
def test_results_larger_than_caches_are_stored_past_them(l2, l3, asked, seed):
    """They may be if L2 does not hold them with what they are made of, and are at the seed if half of L3 does not; not those of a
    stage in the loops of another one."""
    assert streamed(l2, l3) == (asked, seed)
    assert streamed(l2, l3, Stage.DONE) == (asked, seed)
    assert streamed(l2, l3, Stage.FUSED) == (asked, False)


def test_sums_and_temporaries_are_stored_in_caches():
    assert streamed(64, 128, func=by_rule("ik -> i", i=64, k=64, after=lambda y, *_: y + 1), block="Y") == (False, False)
    s = OpenSchedule(programs.chain(64, 64), target(64, 128))
    marks.stream(s, "B")
    assert not s.choices
    assert marks.traffic(s.func, s.block("B")) == 0
    assert marks.traffic(s.func, s.block("C"), s.block("B")) == 2 * 4 * 64 * 64
    assert marks.traffic(programs.symbolic(), next(iter(tir.traverse.blocks(programs.symbolic())))) == 0


def annotations(func, block: str, key: str) -> list:
    return [value for x in loops_to(func.body, block) for name, value in x.annotations if name == key]


@pytest.mark.parametrize(("l1", "fetched"), [(4096, True), (16384, True), (20480, False)])
def test_packed_constants_that_l1_does_not_hold_are_fetched_ahead(l1, fetched):
    func = with_constants(by_rule("ik kj -> ij", i=12, j=64, k=64), ["B"])
    s = scheduled(func, replace(ONE, l1=l1, l2=1 << 20))
    assert ("B_global" in [b.name for b in tir.traverse.blocks(s.func)]) and any(
        "prefetch" in t for t in [s.plain(func).script]
    ) == (fetched and l1 < 16384)


@pytest.mark.parametrize(("constant", "l2", "fetched"), [(False, 4096, True), (False, 1 << 20, False), (True, 4096, False)])
def test_copies_of_pieces_fetch_the_next_rows_of_large_matrices(constant, l2, fetched):
    func = with_constants(by_rule("ik kj -> ij", i=24, j=64, k=64), ["B"] if constant else [])
    s = decided(func, target(l2, 1 << 20), {"pack B for Y": "in front"})
    script = s.plain(func).script
    assert 'T.block("B_global")' in script
    assert ('"prefetch": [["B", 32]]' in script) == fetched


@pytest.mark.parametrize("cores", [1, 4])
@pytest.mark.parametrize("work", [1, 100, 10_000, 1_000_000, 100_000_000])
def test_numbers_of_threads_that_are_tried(cores, work):
    """The seed, as many as hide the latency of each step, and one where waking another costs more than all steps."""
    made = target(num_cores=cores, memory="")
    s, machine = OpenSchedule(programs.elementwise(7), made), made.machine
    tried: list[int] = []
    marks.teams(s, "B", 1, work, lambda new, threads: tried.append(threads))
    small = work * machine.fma_cycles(32) < machine.memory.wake
    assert {*tried} == {1, machine.threads(work * machine.core.latency)} | ({1} if small else set())


def test_one_way_has_to_be_legal():
    s = OpenSchedule(programs.elementwise(7), ONE)

    def refused(new):
        raise ScheduleError("no")

    with pytest.raises(ScheduleError, match="places: no way is legal; there are `here`"):
        marks.one_of(s, "places", {"here": refused})


def test_earlier_marks_of_loops_are_removed():
    s = tir.Schedule(programs.elementwise(7, 13))
    i, j = s.get_loops("B")
    s.parallel(i)
    s.vectorize(j)
    s.annotate(i, "schedule", "dynamic")
    marks.plain_loops(s)
    assert s.func == programs.elementwise(7, 13)


def test_blocks_of_a_closed_nest_are_done():
    s = OpenSchedule(programs.chain(), ONE)
    s.compute_at("B", s.get_loops("C")[0])
    marks.done(s, "C")
    assert s.scheduled == {"B": Stage.DONE, "C": Stage.DONE}


@pytest.mark.parametrize(("seed", "annotated"), [("static", False), ("dynamic", True)])
def test_a_default_needs_no_annotation_at_the_seed(seed, annotated):
    for at_seed in (False, True):
        s = OpenSchedule(programs.elementwise(7), ONE, at_seed=at_seed)
        (loop,) = s.get_loops("B")
        marks.annotate_choice(s, loop, "schedule", "how", (seed, "other"))
        assert bool(s.loop(loop).annotations) == (annotated or not at_seed)


@pytest.mark.parametrize("loops", [1, 2, 3])
def test_threads_share_nested_loops_as_one(loops):
    s = OpenSchedule(programs.elementwise(3, 4, 5), ONE)
    marks.parallel(s, s.get_loops("B")[:loops])
    assert nests(s.func) == "B p" + "." * (3 - loops)
