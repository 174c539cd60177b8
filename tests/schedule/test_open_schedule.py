"""Schedules whose numbers are open: what stays open, their seeds, and the rows that fill them."""

from __future__ import annotations

import pytest

from codegen.target import Target
from schedule import Schedule, ScheduleError, replay
from schedule.open_schedule import NoSeed, OpenSchedule
from schedule.open_trace import Choice
from tests.programs import matmul

TWO = Target("llvm", num_cores=2, mcpu="x86-64-v4", l1=32768, l2=1 << 20, l3=1 << 25)


# --- numbers and their seeds ---------------------------------------------------------------------------------------------


def strips(s: OpenSchedule) -> None:
    """Strips of rows, and of columns twice as long, with a seed for each number."""
    i, j, _ = s.get_loops("C")
    (rows,) = s.sizes("C", "v_i", seed=(4,))
    (columns,) = s.sizes("C", "v_j", seed=(3,))
    i_0, i_1 = s.split(i, [None, rows])
    s.split(j, [None, 2 * columns])
    s.annotate(i_1, "pragma_auto_unroll_max_step", s.choose("unroll", (0, 16, 64), seed=16))
    s.annotate(i_1, "how", s.choose("how", ("static", ("dynamic", 2))))
    s.branch("threads", {"one": lambda s: None, "rows": lambda s: s.parallel(i_0)}, seed="rows")


def opened(at_seed: bool = False) -> OpenSchedule:
    result = OpenSchedule(matmul(7, 13, 109), TWO, at_seed=at_seed)
    strips(result)
    return result


def test_a_row_fills_the_holes():
    trace = opened().finish("strips", matmul(7, 13, 109))
    assert [(t.axis, t.extent, t.reduce, t.columns) for t in trace.tiles] == [("v_i", 7, False, (0,)), ("v_j", 109, False, (1,))]
    assert {c.name: (c.column, c.options) for c in trace.choices} == {
        "unroll": (2, (0, 16, 64)),
        "how": (3, (0, 1)),
        "threads": (4, (0, 1)),
    }
    assert str(trace.trace([2, 5, 64, 1, 0])) == (
        "s.split('i', [None, 2])  # i_0, i_1\n"
        "s.split('j', [None, 10])  # j_0, j_1\n"
        "s.annotate('i_1', 'pragma_auto_unroll_max_step', 64)\n"
        "s.annotate('i_1', 'how', ['dynamic', 2])\n"
    )
    with pytest.raises(ValueError, match="sketch strips has 5 hole"):
        trace.trace([2, 5])


def test_the_seed_is_a_row_and_a_plain_schedule():
    trace, plain = opened().finish("strips", matmul(7, 13, 109)), opened(at_seed=True).plain(matmul(7, 13, 109))
    assert trace.seed == (4, 3, 16, 0, 1)
    assert type(plain) is Schedule and plain.trace == trace.trace(trace.seed)
    assert "s.parallel('i_0')" in str(plain.trace) and "'how', 'static'" in str(plain.trace)


def test_what_has_no_seed_says_so():
    s = OpenSchedule(matmul(7, 13, 109), TWO)
    s.split("i", [None, *s.sizes("C", "v_i")])
    assert s.finish("one", matmul(7, 13, 109)).seed is None
    with pytest.raises(NoSeed, match="the tile sizes of axis `v_i` of `C` have no seed"):
        OpenSchedule(matmul(7, 13, 109), TWO, at_seed=True).sizes("C", "v_i")


def test_a_refused_way_at_the_seed_gives_way_to_the_next():
    s = OpenSchedule(matmul(7, 13, 109), TWO, at_seed=True)
    ways = {"sum": lambda s: s.parallel("k"), "rows": lambda s: s.parallel("i"), "none": lambda s: None}
    assert s.branch("threads", ways, seed="sum") == 1
    assert str(s.trace) == "s.parallel('i')\n"


FOLLOWED = {
    "a block": lambda s, name: s.compute_at(name, "i"),
    "a block or a loop": lambda s, name: s.annotate(name, "copied", 1),
    "a list": lambda s, name: s.blockize([name]),
}


@pytest.mark.parametrize("what", FOLLOWED)
def test_names_of_blocks_that_differ_between_ways_are_followed(what):
    s = OpenSchedule(matmul(7, 13, 109), TWO)
    s.branch("copies", {"one": lambda s: None, "two": lambda s: s.cache_read("C", 0, "global")})
    FOLLOWED[what](s, s.cache_read("C", 0, "global"))
    trace = s.finish("copies", matmul(7, 13, 109))
    for row, name in (((0,), "A_global"), ((1,), "A_global_global")):
        *_, copied, last = replay(matmul(7, 13, 109), trace.trace(row)).trace
        assert copied.results == (name,) and repr(name) in str(last)


def test_sampling_leaves_open_what_it_would_draw():
    def tiles(s: OpenSchedule) -> None:
        s.split("i", s.sample_tile("i", 3, 4, decision=[2, 2, 2]))
        s.split("j", s.sample_perfect_tile("j", 2, -1, decision=[109, 1]))
        s.annotate("k", "unroll", s.sample_categorical([0, 16], [0.25, 0.75], decision=1))

    s = OpenSchedule(matmul(7, 13, 109), TWO)
    tiles(s)
    trace = s.finish("tiles", matmul(7, 13, 109))
    assert [(t.axis, t.columns, t.perfect, t.limit, t.registers) for t in trace.tiles] == [
        ("v_i", (0, 1), False, 4, False), ("v_j", (2,), True, None, False)
    ]  # fmt: skip
    assert trace.choices == (Choice("choice 0", 3, (0, 16), (0.25, 0.75)),)
    assert trace.seed == (2, 2, 1, 16)
    with pytest.raises(ScheduleError, match="the loop `i_0` drives no axis of a block alone"):
        s.sample_tile("i_0", 2)


def test_numbers_are_computed_with_and_shared():
    s = OpenSchedule(matmul(7, 13, 109), TWO)
    a, b = s.sizes("C", "v_i", 2, seed=(2, 2))
    assert s.sizes("C", "v_j", 2, like=("C", "v_i")) == [a, b]
    s.split("i", [None, a * b])
    trace = s.finish("product", matmul(7, 13, 109))
    assert [t.columns for t in trace.tiles] == [(0, 1), (0, 1)]
    assert str(trace.trace([3, 2])) == "s.split('i', [None, 6])  # i_0, i_1\n"


def test_a_step_of_one_function_is_computed_once():
    s = OpenSchedule(matmul(7, 13, 109), TWO)
    trial, other = s.copy(), s.copy()
    names = trial.split("i", [None, 4])
    names.clear()  # the caller's
    assert s.split("i", [None, 4]) == ["i_0", "i_1"] and s.func is trial.func and s.trace == trial.trace
    assert other.split("i", [None, 3]) == ["i_0", "i_1"] and other.func != s.func
    for _ in range(2):  # what is refused is refused again
        with pytest.raises(ScheduleError, match="`i` is no loop of this function"):
            s.split("i", [None, 4])


def test_samplers_leave_their_numbers_open():
    """None draws in a space: each candidate would be another one at each derivation."""
    s = OpenSchedule(matmul(16, 13, 36), TWO)
    i, j, _ = s.get_loops("C")
    s.split(i, s.sample_partitioned_tile(i, 3, 1, 4, decision=[2, 2, 4]))
    s.split(j, s.sample_partitioned_tile(j, 2, 0, 9, decision=[9, 4]))
    with pytest.raises(ScheduleError, match=r"^sample_compute_location\('C'\): a choice at random needs .*, or a decision\n"):
        s.sample_compute_location("C")
    assert s.sample_compute_location("C", decision=-1) == "root"
    trace = s.finish("open", matmul(16, 13, 36))
    assert trace.seed == (2, 1, 4) and trace.tiles[0].unit == 4
    assert "s.split('i', [None, 2, 4])" in str(trace.trace(trace.seed))
    with pytest.raises(ScheduleError, match=r"the last of \[2, 8, 1\] is no multiple of 4"):
        OpenSchedule(matmul(16, 13, 36), TWO).sample_partitioned_tile(i, 3, 1, 4, decision=[2, 8, 1])
