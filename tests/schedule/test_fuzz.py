"""Random programs, random traces, the same at each run: what is accepted computes the same numbers, what is refused changes nothing."""

import json
from collections import Counter

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tests.schedule.random_steps as random_steps
from schedule import Schedule, ScheduleError, replay
from schedule.intrinsics.tensor_intrin import _REGISTERED
from schedule.primitive import REGISTRY
from schedule.trace import Step
from tests.programs import chain, matmul
from tests.schedule.brute_force import survey
from tests.schedule.fuzz import REGRESSIONS, STEPS, Compiler, case, fault, regression, shortest, stored_text
from tests.schedule.random_programs import program
from tests.schedule.random_steps import Crash, attempt
from tir.ir import For, Kind, PrimFunc
from tir.traverse import loops, replace_stmt


@settings(max_examples=120, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 10**6), steps=st.integers(1, STEPS))
def test_accepted_means_equal_numbers(seed, steps):
    done = case(seed, steps)
    assert not done.failures, str(done.failures[0])


@st.composite
def schedules(draw):
    """A program and a trace on it, of which hypothesis leaves out steps to find the shortest that fails."""
    before = program(np.random.default_rng(draw(st.integers(0, 10**4))))
    s = Schedule(before, 0)
    for seed in draw(st.lists(st.integers(0, 10**4), max_size=STEPS)):
        attempt(s, np.random.default_rng(seed))
    return before, s.trace


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(schedules())
def test_every_trace_can_be_taken_again(drawn):
    before, trace = drawn
    assert fault(before, trace.steps, 0) is None


def test_a_share_is_accepted():
    tried: Counter[tuple[str, bool]] = Counter()
    for seed in range(40):
        tried += case(seed).steps
    accepted = sum(n for (_, yes), n in tried.items() if yes)
    assert accepted > sum(tried.values()) // 4, f"{accepted} of {sum(tried.values())}"


def test_no_legal_step_is_refused():
    """On programs this small, nearly none: the figures that `make fuzz` prints."""
    counts: Counter[tuple[str, str]] = Counter()
    rng = np.random.default_rng(0)
    for seed in range(40):
        assert survey(program(np.random.default_rng(seed)), rng, counts) == []
    legal = sum(n for (_, what), n in counts.items() if what == "legal")
    refused = sum(n for (_, what), n in counts.items() if what == "legal but refused")
    assert legal > 50
    assert refused <= legal // 20, f"{refused} of {legal}"


@pytest.fixture(scope="module", autouse=True)
def intrinsics():
    random_steps.register_intrinsics()
    yield
    for name in random_steps.INTRINSICS:
        del _REGISTERED[name]


@pytest.fixture(scope="module")
def compiler():
    result = Compiler()
    yield result
    result.close()


def test_through_llvm(compiler):
    for seed in range(6):
        done = case(seed, 8, compiler)
        assert not done.failures, str(done.failures[0])


@pytest.mark.parametrize("path", sorted(REGRESSIONS.glob("*.json")), ids=lambda path: path.stem)
def test_stored_regression(path, compiler):
    stored = json.loads(path.read_text())
    assert regression(stored, compiler) is None
    assert stored_text(stored) == path.read_text(), "a line for each step"


# --- the harness can fail -------------------------------------------------------------------------------------------------


def racing(func: PrimFunc, loop: str) -> tuple[PrimFunc, None]:
    """`parallel` without its proof."""
    target = next(x for x in loops(func) if x.name == loop)
    return func.with_(body=replace_stmt(func.body, target, target.with_(kind=Kind.PARALLEL))), None


def test_a_wrong_rewrite_is_found_and_shortened(monkeypatch):
    monkeypatch.setattr(REGISTRY["parallel"], "function", racing)
    before = matmul()
    s = Schedule(before)
    s.split("j", [None, 4])
    s.annotate("C", "key", 1)
    s.parallel("k")
    s.split("i", [None, 1])
    found = fault(before, s.trace.steps, 0)
    assert found is not None
    least = shortest(before, s.trace.steps, 0, found[0])
    assert [x.name for x in least] == ["parallel"]


def test_brute_force_sees_what_is_accepted_wrongly(monkeypatch):
    monkeypatch.setattr(REGISTRY["parallel"], "function", racing)
    assert survey(matmul(2, 4, 3), np.random.default_rng(0), Counter()) == ["parallel('k')"]


def test_brute_force_sees_what_is_refused_wrongly(monkeypatch):
    def refusing(func: PrimFunc, loop: str):
        raise ScheduleError("no")

    monkeypatch.setattr(REGISTRY["parallel"], "function", refusing)
    counts: Counter[tuple[str, str]] = Counter()
    survey(matmul(2, 4, 3), np.random.default_rng(0), counts)
    assert counts["parallel", "legal"] == counts["parallel", "legal but refused"] == 2
    assert counts["parallel", "illegal"] == 1


def test_an_exception_of_another_kind_is_a_crash(monkeypatch):
    def broken(func: PrimFunc, *ordered_loops: str):
        raise IndexError("list index out of range")

    monkeypatch.setattr(REGISTRY["unroll"], "function", broken)
    monkeypatch.setattr(random_steps, "WEIGHTS", {"unroll": 1e9})
    with pytest.raises(Crash) as caught:
        attempt(Schedule(chain()), np.random.default_rng(0))
    assert caught.value.kind == "crash"
    assert fault(chain(), (caught.value.step,), 0) == ("crash", "IndexError: list index out of range")


def test_a_regression_may_be_refused_but_not_wrong(monkeypatch):
    before = matmul()
    s = replay(before, (Step("unroll", (("loop", "i"),)),))
    stored = {"script": before.script(), "seed": 0, "trace": s.trace.as_json()}
    assert regression(stored) is None

    def shorter(func: PrimFunc, loop: str) -> tuple[PrimFunc, None]:
        target = next(x for x in loops(func) if x.name == loop)
        return func.with_(body=replace_stmt(func.body, target, For(target.var, target.extent - 1, target.body))), None

    monkeypatch.setattr(REGISTRY["unroll"], "function", shorter)
    found = regression(stored)
    assert found is not None and found[0] == "wrong result"
