import pickle
from collections import Counter
from math import prod

import numpy as np
import pytest

from schedule import Schedule, ScheduleError, Trace, replay
from schedule.primitives.sampling.sample import compute_locations, sample_perfect_tile
from tests.programs import chain, matmul, symbolic, vector
from tests.schedule.harness import Checked, same_numbers, well_formed
from tir import te
from tir.traverse import blocks, loops


@pytest.mark.parametrize("extent", [1, 7, 13, 36, 109])
@pytest.mark.parametrize("n", [1, 2, 4])
def test_perfect_tiles_divide(extent, n):
    s = Schedule(vector(extent), seed=0)
    for _ in range(20):
        factors = s.sample_perfect_tile("i", n, max_innermost_factor=6)
        assert len(factors) == n and prod(factors) == extent and (n == 1 or factors[-1] <= 6)
    before = vector(extent)
    s = Schedule(before, seed=0)
    s.split("i", s.sample_perfect_tile("i", n))
    same_numbers(before, s.func, seeds=(0,))


def test_perfect_tiles_are_equally_likely():
    """12 is a product of two factors, the second at most 6, in 5 ways; each count is within 6 standard deviations of its mean."""
    rng, draws = np.random.default_rng(0), 2000
    found = Counter(tuple(sample_perfect_tile(vector(12), "i", 2, 6, None, rng)[1][0]) for _ in range(draws))
    assert set(found) == {(12, 1), (6, 2), (4, 3), (3, 4), (2, 6)}
    p = 1 / 5
    assert all(abs(c - draws * p) < 6 * (draws * p * (1 - p)) ** 0.5 for c in found.values())


@pytest.mark.parametrize("extent", [1, 7, 13, 36, 109])
@pytest.mark.parametrize("n", [1, 2, 3])
def test_tiles_cover_and_waste_no_iteration(extent, n):
    s = Schedule(vector(extent), seed=1)
    seen = set()
    for _ in range(50):
        factors = s.sample_tile("i", n, max_innermost_factor=6)
        seen.add(tuple(factors))
        assert len(factors) == n and (n == 1 or factors[-1] <= 6)
        assert (factors[0] - 1) * prod(factors[1:]) < extent <= prod(factors)
    if extent >= 7 and n > 1:
        assert any(extent % f for t in seen for f in t), "none of the factors failed to divide"
    before = vector(extent)
    s = Schedule(before, seed=2)
    s.split("i", s.sample_tile("i", n))
    same_numbers(before, s.func, seeds=(0,))


def test_categories_follow_their_probabilities():
    s, draws = Schedule(vector(), seed=0), 1000
    found = Counter(s.sample_categorical(["a", "b", "c"], [0.0, 0.25, 0.75]) for _ in range(draws))
    assert found["a"] == 0
    assert abs(found["b"] - draws / 4) < 6 * (draws * 3 / 16) ** 0.5


def test_decisions_are_in_the_trace_and_replay():
    s = Schedule(matmul(), seed=3)
    s.split("j", s.sample_tile("j", 3))
    s.split("i", s.sample_perfect_tile("i", 2))
    s.annotate("C", "limit", s.sample_categorical([0, 16, 64], [0.5, 0.25, 0.25]))
    assert all("decision" in step.bound and "rng" not in step.bound for step in s.trace if step.name.startswith("sample"))
    again = replay(matmul(), s.trace)
    assert again.script == s.script and again.trace == s.trace
    t = Schedule(matmul())
    exec(str(s.trace), {"s": t})
    assert t.script == s.script and t.trace == s.trace


def test_one_seed_one_schedule():
    draw = lambda s: [s.sample_tile("i", 3) for _ in range(5)]  # noqa: E731
    assert draw(Schedule(vector(109), seed=5)) == draw(Schedule(vector(109), seed=5))
    assert draw(Schedule(vector(109), seed=np.random.default_rng(5))) == draw(Schedule(vector(109), seed=5))
    assert draw(Schedule(vector(109), seed=5)) != draw(Schedule(vector(109), seed=6))
    s = Schedule(vector(109), seed=5)
    assert draw(s.copy()) != draw(s.copy())


def test_compute_locations():
    before = chain()
    assert compute_locations(before, "B") == {-1: "root", -2: "inline", 0: "i_1", 1: "j_1"}
    assert compute_locations(before, "C") == {-1: "root", 0: "i", 1: "j"}
    assert compute_locations(matmul(), "C") == {-1: "root"}
    seen = set()
    for seed in range(20):
        s = Schedule(before, seed=seed)
        place = s.sample_compute_location("B")
        s.compute_at("B", place)
        same_numbers(before, s.func, seeds=(0,))
        assert replay(before, s.trace).script == s.script
        seen.add(place)
    assert seen == {"root", "inline", "i_1", "j_1"}


def test_without_a_source_of_randomness():
    with pytest.raises(ScheduleError) as caught:
        sample_perfect_tile(vector(12), "i", 2)
    assert str(caught.value) == (
        "sample_perfect_tile('i', 2): a choice at random needs a source of randomness, or a decision\n"
        "  hint: Schedule(func, seed=0), or rng=np.random.default_rng(0); in a space, a branch"
    )


def test_refusals():
    s = Checked(vector(12), seed=0)
    s.refuses("sample_perfect_tile('i', 0): `n` must be at least 1, got 0")
    s.refuses("sample_perfect_tile('i', 101): `n` must be at most 100, got 101")
    s.refuses("sample_partitioned_tile('i', 1000000): `n` must be at most 100, got 1000000")
    s.refuses("sample_perfect_tile('i', 2, 0): `max_innermost_factor` must be at least 1, or -1 for no limit, got 0")
    s.refuses("sample_perfect_tile('i', 2, decision=[5, 2]): the decision [5, 2] has the product 10, but `i` has 12 iterations")
    s.refuses("sample_perfect_tile('i', 2, decision=[12]): a decision for `i` is a list of 2 integers of at least 1, got [12]")
    s.refuses("sample_perfect_tile('i', 2, 4, [2, 6]): the innermost factor 6 is more than `max_innermost_factor`, 4")
    s.refuses(
        "sample_tile('i', 2, decision=[2, 5]): in the decision [2, 5], 2 times 5 iterations do not just cover the 12 of `i`\n"
        "  hint: the first factor must be 3",
    )
    s.refuses("sample_tile('i', 2, 4, [2, 6]): the innermost factor 6 is more than `max_innermost_factor`, 4")
    s.refuses("sample_categorical([], []): at least one candidate is needed")
    s.refuses("sample_categorical([1, 2], [1.0]): there are 2 candidates, but 1 probabilities")
    s.refuses("sample_categorical([1, 2], [0.5, 0.25]): probabilities are at least 0 and add up to 1, got [0.5, 0.25] (sum 0.75)")
    s.refuses("sample_categorical([1, 2], [0.5, 0.5], 2): the decision must be a number from 0 to 1, got 2")
    s.refuses("sample_compute_location('B', 0): `B` cannot be computed at place 0; possible are -1 (root)")
    s = Checked(symbolic(), seed=0)
    s.refuses("""
        sample_tile('i', 2): the extent of `i` is not a constant
            8 |     for i in range(n):
              |     ^^^^^^^^^^^^^^^^^^ runs over n
          hint: split('i', [None, 4]) makes an inner loop whose extent is one
    """)


# --- what was drawn, in later steps ----------------------------------------------------------------------------------------


def tiled() -> Schedule:
    s = Schedule(matmul(), seed=0)
    outer, inner = s.sample_tile("i", 2, decision=[3, 3])
    s.split("i", [outer, inner])
    s.split("j", [None, s.sample_perfect_tile("j", 2, decision=[13, 1])[1]])
    s.annotate("C", "step", s.sample_categorical([0, 16, 64], [0.2, 0.4, 0.4], decision=1))
    s.annotate("C", "list", {"of": [inner, 2 * inner]})
    return s


def changed(trace: Trace, step: int, **args) -> Trace:
    steps = list(trace.steps)
    steps[step] = steps[step].with_args(**args)
    return Trace(tuple(steps))


def test_a_trace_refers_to_what_was_drawn():
    s = tiled()
    assert str(s.trace) == (
        "[v0, v1] = s.sample_tile('i', 2, decision=[3, 3])  # 3, 3\n"
        "s.split('i', [v0, v1])  # i_0, i_1\n"
        "[v2, v3] = s.sample_perfect_tile('j', 2, decision=[13, 1])  # 13, 1\n"
        "s.split('j', [None, v3])  # j_0, j_1\n"
        "v4 = s.sample_categorical([0, 16, 64], [0.2, 0.4, 0.4], 1)  # 16\n"
        "s.annotate('C', 'step', v4)\n"
        "s.annotate('C', 'list', {'of': [v1, 6]})\n"
    )
    again = Trace.from_json(s.trace.to_json())
    assert again == s.trace
    assert replay(matmul(), again).trace == s.trace
    pasted = Schedule(matmul())
    exec(str(s.trace), {"s": pasted})
    assert pasted.trace == s.trace and pasted.func == s.func
    well_formed(s.func)
    same_numbers(matmul(), s.func)


@pytest.mark.parametrize("decision", [[2, 4], [1, 7], [7, 1]])
def test_a_changed_decision_changes_the_steps_that_use_it(decision):
    trace = Trace.from_json(changed(tiled().trace, 0, decision=decision).to_json())
    s = replay(matmul(), trace)
    assert [x.extent.value for x in loops(s.func)][:2] == decision
    assert s.trace[1] == tiled().trace[1]
    assert dict(blocks(s.func)[0].annotations)["list"] == {"of": [decision[1], 6]}
    well_formed(s.func)
    same_numbers(matmul(), s.func)


def test_a_place_that_was_drawn():
    s = Schedule(chain())
    s.compute_at("B", s.sample_compute_location("B", decision=0))
    other = replay(chain(), changed(s.trace, 0, decision=1))
    assert str(other.trace) == "v0 = s.sample_compute_location('B', 1)  # j_1\ns.compute_at('B', v0)\n"
    assert other.get_loops("B")[0] == "i_1" and other.get_loops("B") != s.get_loops("B")


@pytest.mark.parametrize(("sampler", "args", "use"), [
    ("sample_perfect_tile", ("i", 1), lambda s, v: s.split("i", v)),
    ("sample_partitioned_tile", ("i", 3, 1, 4), lambda s, v: s.split("i", v)),
    ("sample_tile", ("i", 2), lambda s, v: s.split("i", [*v])),
    ("sample_categorical", ([[1, 36], [36, 1]], [0.5, 0.5]), lambda s, v: s.split("i", v)),
    ("sample_categorical", ([[36]], [1.0]), lambda s, v: s.split("i", v)),
    ("sample_categorical", (["a\nb"], [1.0]), lambda s, v: s.annotate("i", "key", v)),
    ("sample_compute_location", ("B",), lambda s, v: s.annotate("i", "key", v)),
])  # fmt: skip
def test_a_printed_trace_can_be_pasted(sampler, args, use):
    """What is drawn as a list is printed as one, also where it has one element."""
    s, pasted = Schedule(vector(36), seed=0), Schedule(vector(36))
    use(s, getattr(s, sampler)(*args))
    exec(str(s.trace), {"s": pasted})
    assert pasted.trace == s.trace and pasted.func == s.func
    assert replay(vector(36), Trace.from_json(s.trace.to_json())).trace == s.trace


def test_a_value_without_a_name():
    """None, a bool or a list stands in the later steps as it is."""
    s = Schedule(matmul())
    s.annotate("C", "key", s.sample_categorical([None, 1], [0.5, 0.5], decision=0))
    assert str(s.trace).splitlines()[1] == "s.annotate('C', 'key', None)"
    s = Schedule(matmul())
    s.annotate("C", "key", s.sample_categorical([None, 1], [0.5, 0.5], decision=1))
    other = replay(matmul(), changed(s.trace, 0, decision=0))
    assert dict(blocks(other.func)[0].annotations) == {"key": None}


def test_references_that_mean_nothing():
    trace = tiled().trace
    with pytest.raises(ScheduleError) as caught:
        replay(matmul(), trace.steps[1:])
    assert str(caught.value).splitlines()[0] == "step 1 of 6, split('i', [v0, v1]): `v0` was drawn by no step before"
    with pytest.raises(ScheduleError) as caught:
        replay(matmul(), changed(trace, 0, n=3, decision=[2, 2, 2]))
    assert str(caught.value).splitlines()[0] == (
        "step 1 of 7, sample_tile('i', 3, decision=[2, 2, 2]): 3 value(s) are drawn, but the trace has names for 2"
    )
    assert pickle.loads(pickle.dumps(trace)) == trace


def test_schedules_go_on_with_names_of_their_own():
    s = tiled()
    copy = s.copy()
    copy.split("k", copy.sample_tile("k", 2, decision=[2, 3]))
    assert str(copy.trace).endswith(
        "[v5, v6] = s.sample_tile('k', 2, decision=[2, 3])  # 2, 3\ns.split('k', [v5, v6])  # k_0, k_1\n"
    )
    assert s.trace == tiled().trace


def test_what_another_trace_drew_is_a_plain_value():
    drawn = Schedule(vector(13), seed=0).sample_categorical([2, 3], [0.5, 0.5])
    s = Schedule(vector(13), seed=1)
    s.split("i", [None, drawn])
    assert replay(vector(13), s.trace).func == s.func

    s = Schedule(vector(13), seed=0)  # the same name, another value
    s.sample_categorical([5, 7], [0.5, 0.5])
    s.split("i", [None, drawn])
    assert s.trace[-1].bound["factors"] == [None, drawn]

    s = Schedule(vector(13), seed=0)
    drawn = s.sample_categorical([2, 3], [0.5, 0.5])
    s.undo()
    s.split("i", [None, drawn])
    assert replay(vector(13), s.trace).func == s.func


def test_a_place_that_was_drawn_knows_its_function():
    s = Schedule({"f": chain(), "g": chain()})
    place = s.sample_compute_location(s.get_block("B", "f"), decision=0)
    s.work_on("g")
    s.compute_at("B", place)
    assert str(s.trace).startswith("v0 = s.sample_compute_location('B', 0)") and "compute_at('B', v0)" in str(s.trace)
    assert s.mod["g"] == chain() and replay(chain(), s.trace).func == s.mod["f"]
    s.work_on("g")
    s.annotate("i", "size", Schedule(vector(13), seed=0).sample_categorical([2, 3], [0.5, 0.5]))
    assert replay(chain(), s.trace).func == s.mod["g"]


def test_partitioned_tiles():
    """36 = a b c with 4 | b c: all such lists come, equally often (within 6 standard deviations)."""
    s, draws = Checked(vector(36), seed=0), 1500
    found = Counter(tuple(s.sample_partitioned_tile("i", 3, 1, 4)) for _ in range(draws))
    lists = {(a, b, 36 // a // b) for a in range(1, 37) for b in range(1, 37) if 36 % a == 0 and 36 // a % b == 0}
    wanted = {t for t in lists if t[1] * t[2] % 4 == 0}
    assert set(found) == wanted
    p = 1 / len(wanted)
    assert all(abs(c - draws * p) < 6 * (draws * p * (1 - p)) ** 0.5 for c in found.values())
    assert replay(vector(36), s.trace).trace == s.trace
    s.refuses("""
        sample_partitioned_tile('i', 2, 1, 8): `innerpart_factor` must be a divisor of the 36 iterations of `i`, got 8
    """)
    s.refuses("""
        sample_partitioned_tile('i', 2, 2, 2): `innerpart_factor` must be a divisor of 1, the product of no factors, got 2
    """)
    s.refuses("""
        sample_partitioned_tile('i', 2, 3): `partition_pos` must be from 0 to 2, got 3
    """)
    s.refuses("""
        sample_partitioned_tile('i', 2, 1, 4, [18, 2]): in the decision [18, 2] the product of [2] is no multiple of 4
    """)


def test_of_a_symbolic_extent_only_1_is_a_factor():
    s = Schedule(symbolic(), seed=0)
    factors = s.sample_perfect_tile("i", 3)
    assert factors == [None, 1, 1]
    s.split("i", factors)
    assert replay(symbolic(), Trace.from_json(s.trace.to_json())).script == s.script
    Checked(symbolic()).refuses("""
        sample_perfect_tile('i', 2, decision=[3, 4]): the extent of `i` is symbolic, so the decision can only be [None, 1], got [3, 4]
    """)


@pytest.mark.parametrize("sampler", ["sample_perfect_tile", "sample_tile", "sample_partitioned_tile"])
def test_a_loop_without_iterations_has_no_factors(sampler):
    A = te.placeholder((0,), name="A")
    s = Checked(te.create_prim_func([A, te.compute((0,), lambda i: A[i] * 2.0, name="B")]), seed=0)
    expected = f"""
        {sampler}('i', 2): `i` has no iterations to divide
            8 |     for i in range(0):
              |     ^^^^^^^^^^^^^^^^^^ runs over 0
          hint: drop_empty() leaves it out
    """
    s.refuses(expected)
