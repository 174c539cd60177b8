"""The search space: rules of the user's own, the order and number of sketches, and what cannot be tuned."""

from __future__ import annotations

import warnings
from types import SimpleNamespace

import numpy as np
import pytest

import search.space.derivation
from codegen.target import Target
from schedule import replay
from schedule.open_schedule import Stage
from search.population.sample import sample
from search.space import generate
from search.space.rules import DEFAULT, RefusedRule, Skip, Verdict, rule
from tests import programs
from tests.programs import matmul, symbolic
from tests.schedule.harness import same_numbers
from tests.search import once
from tests.sweeps import one_in
from tir import te, workloads
from tir.ir import Kind, PrimFunc
from tir.traverse import loops

ONE = Target("llvm", num_cores=1, mcpu="x86-64-v4")
TWO = Target("llvm", num_cores=2, mcpu="x86-64-v4")


class KeepSerial:
    """The example of search/rules."""

    name = "keep serial"

    def applies(self, state, block):
        return Verdict.ONLY if block == "C" else Verdict.SKIP

    def apply(self, state, block):
        return [state.fired(self.name, block)]


class Strips:
    """A rule with open numbers: strips of rows, each of which a thread computes with a vector along the columns."""

    name = "strips"

    def applies(self, state, block):
        return Verdict.APPLY if len(state.axes(block)) == 3 and block not in state.scheduled else Verdict.SKIP

    def apply(self, state, block):
        new = state.fired(self.name, block)
        (_, i), (_, j), (_, k) = new.axes(block)
        new.split(i, [None, new.choose("rows of a strip", (1, 2, 4))])
        j_0, j_1 = new.split(j, [None, *new.sizes(block, new.block(block).iters[1].var.name)])
        new.reorder(j_0, k, j_1)
        new.vectorize(j_1)
        new.scheduled[block] = Stage.DONE
        return [new]


def test_a_rule_of_the_users_own_comes_first():
    sketches = generate(matmul(7, 13, 109), TWO, rules=(KeepSerial(), *DEFAULT))
    assert [s.rules for s in sketches] == [("C: keep serial",)]


def test_a_rule_with_open_numbers():
    sketches = generate(matmul(7, 13, 109), ONE, rules=(Strips(), *DEFAULT))
    first = sketches[0]
    assert len(sketches) == 3  # and the two without
    assert first.rules == ("C: strips",)
    assert first.columns == 2 and [c.options for c in first.choices] == [(1, 2, 4)]
    rows = sample(first, ONE, 100, np.random.default_rng(0))
    assert set(rows[:, 0]) == {1, 2, 4}
    scheduled = replay(first.func, first.trace([4, 32]))
    found = {x.name: (x.extent.value, x.kind) for x in loops(scheduled.func)}
    assert found["i_1"] == (4, Kind.SERIAL) and found["j_1"] == (32, Kind.VECTORIZED)
    same_numbers(first.func, scheduled.func)


def test_a_rule_may_put_its_block_back():
    class Twice:
        name = "twice"

        def applies(self, state, block):
            return Verdict.ONLY if block not in state.scheduled else Verdict.SKIP

        def apply(self, state, block):
            new = state.fired(self.name, block)
            new.scheduled[block] = Stage.DONE
            new.pending.append(block)
            return [new]

    assert [s.rules for s in generate(matmul(7, 13, 109), TWO, rules=(Twice(), Skip()))] == [("C: twice", "C: skip")]


def test_a_rule_that_turns_out_illegal_leaves_the_block_to_the_others():
    class Never:
        name = "never"

        def applies(self, state, block):
            return Verdict.ONLY

        def apply(self, state, block):
            return []

    assert [s.rules for s in generate(matmul(7, 13, 109), TWO, rules=(Never(), Skip()))] == [("C: skip",)]


def test_a_block_that_no_rule_develops_is_an_error():
    message = r"no rule applies to block `A1` \(tried: keep serial\); end the rules with Skip\(\), which always does"
    with pytest.raises(ValueError, match=message):
        generate(_stages(2), TWO, rules=(KeepSerial(),))
    with pytest.raises(ValueError, match=r"no rule applies to block `C` \(tried: none\)"):
        generate(matmul(7, 13, 109), TWO, rules=())  # not even templates


@pytest.mark.parametrize(("verdict", "made", "message"), [
    (True, [], "applies of the rule 'mine' should give a search.space.rules.Verdict, got True"),
    (Verdict.APPLY, None, "apply of the rule 'mine' should give a list of schedule.OpenSchedule, got None"),
])  # fmt: skip
def test_a_rule_that_gives_something_else_is_an_error(verdict, made, message):
    mine = SimpleNamespace(name="mine", applies=lambda state, block: verdict, apply=lambda state, block: made)
    with pytest.raises(TypeError, match=f"^{message}$"):
        generate(matmul(7, 13, 109), "llvm -num-cores 2", rules=(mine, *DEFAULT))


def test_a_rule_that_is_refused_says_why():
    """And the others go on; no rule of the system is refused."""

    def split(state, block):
        state.split("x", [None, 3])

    mine = SimpleNamespace(name="mine", applies=lambda state, block: Verdict.APPLY, apply=split)
    with pytest.warns(
        RefusedRule, match=r"^the rule 'mine' makes nothing of block `C`: split\('x', \[None, 3\]\): `x` is no loop of this"
    ):
        with_it = generate(matmul(7, 13, 109), TWO, rules=(mine, *DEFAULT))
    with warnings.catch_warnings(action="error"):
        assert [s.rules for s in with_it] == [s.rules for s in generate(matmul(7, 13, 109), TWO)]


def test_a_rule_that_never_lets_go_of_a_block_is_an_error():
    @rule("again", when=lambda state, block: True)
    def again(state, block):
        state.pending.append(block)

    with pytest.raises(ValueError, match=r"^the derivation of main does not end; the last rule: C: again$"):
        generate(matmul(7, 13, 109), TWO, rules=(again,))


class Fork:
    """Three ways to develop a block, which differ in name alone."""

    name = "fork"

    def applies(self, state, block):
        return Verdict.ONLY

    def apply(self, state, block):
        return [state.fired(str(n), block) for n in range(3)]


def _stages(n: int) -> PrimFunc:
    """A chain of n stages called A0, A1, ..."""

    def exponential(A: te.Tensor, name: str) -> te.Tensor:
        return te.compute((7,), lambda i: te.exp(A[i]), name=name)

    X = Y = te.placeholder((7,), name="X")
    for k in range(n):
        Y = exponential(Y, f"A{k}")
    return te.create_prim_func([X, Y])


def _departures(sketch) -> int:
    return sum(not rule.endswith(": 0") for rule in sketch.rules)


def test_sketches_come_in_the_order_of_preference():
    sketches = generate(_stages(3), TWO, rules=(Fork(),))
    assert len({s.rules for s in sketches}) == len(sketches) == 27
    assert [s.name for s in sketches] == [f"sketch {n}" for n in range(27)]
    departures = [_departures(s) for s in sketches]
    assert departures == sorted(departures) and departures[0] == 0


def test_too_many_sketches_leave_out_those_that_depart_most():
    """Of 3^8 sketches at most MAX_SKETCHES are kept: the first choice everywhere, or everywhere but in one or two blocks."""
    sketches = generate(_stages(8), TWO, rules=(Fork(),))
    assert len(sketches) == search.space.derivation.MAX_SKETCHES == 64
    assert [_departures(s) for s in sketches] == [0] + [1] * 16 + [2] * 47
    changed = {rule.split(":")[0] for s in sketches[:17] for rule in s.rules if not rule.endswith(": 0")}
    assert changed == {f"A{k}" for k in range(8)}
    assert [_departures(s) for s in generate(_stages(8), TWO, rules=(Fork(),), max_sketches=2)] == [0, 1]


def test_the_same_function_gives_the_same_sketches():
    for name, shape in (("mlp", (7, 13, 109, 5)), ("layernorm", (7, 109))):
        first, second = (tuple(make(workloads.make(name, shape).func, TWO)) for make in (once.generate, generate))
        assert first == second


def test_symbolic_sizes_are_refused():
    message = "main takes its size n when it is called, but tuning needs constant shapes: make the function with numbers instead"
    with pytest.raises(ValueError, match=f"^{message}$"):
        generate(symbolic(), TWO)


def test_gpus_have_spaces_of_their_own():
    assert [s.rules for s in generate(matmul(7, 13, 109), Target("cuda"))] == [("C: tiling through shared memory",)]
    with pytest.raises(ValueError, match=r"^no space for cuda is named 'limited'; there are: full, ansor$"):
        generate(matmul(7, 13, 109), Target("cuda"), space="limited")


FUNCTIONS = {
    "batched matmul": programs.batched_matmul(),
    "transposed matmul": programs.transposed_matmul(),
    "int8 matmul": programs.widening_matmul("int8", "int32"),
    "float16 matmul": programs.widening_matmul("float16", "float32"),
    "float64 matmul": programs.matmul(7, 13, 109, dtype="float64"),
    "dilated convolution": programs.dilated_conv(),
    "argmax": programs.argmax(),
    "own reducer": programs.largest_magnitude(),
    "three axes": programs.sum_of_three_axes(),
    "rank 0": programs.total(),
    "chain": programs.elementwise_chain(),
    "two outputs": programs.two_outputs(),
    "no blocks": programs.without_blocks(),
}


@one_in(2)
@pytest.mark.parametrize("space", ["full", "ansor"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_function_has_a_valid_sketch(name, space):
    func = FUNCTIONS[name]
    sketches = generate(func, TWO, space=space)
    assert sketches
    rng = np.random.default_rng(0)
    for sketch in sketches:
        (row,) = sample(sketch, TWO, 1, rng).tolist()
        same_numbers(func, replay(func, sketch.trace(row)).func, seeds=(0,))


def test_a_scan_that_is_read_stays_in_its_loops_without_a_warning():
    x = te.placeholder((4, 32), "float32", name="x")
    before = te.scan((4, 32), lambda r, i, s: x[i, s] + te.select(s >= 1, r[i, te.maximum(s - 1, 0)], 0.0), 1, "float32", "sums")
    func = te.create_prim_func([x, te.compute((4, 32), lambda i, j: before[i, j] * 2.0, name="y")])
    assert generate(func, ONE)
