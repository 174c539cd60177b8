"""A run from its start: what is refused before anything is measured, what stands in for a slow reference, and that a seed decides
the candidates."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace

import pytest

from search.measure import Comparison, Limits, LocalMeasurer, Measurement
from search.policy.evolution import Settings
from search.policy.named import make_policy
from search.tuning import budget, session
from search.tuning.autotune import autotune
from search.tuning.events import Started
from search.tuning.options import Options, check_budget, check_options
from search.tuning.task_scheduler import tune_tasks
from tests.graph.fake_measurer import Fake, Once
from tests.programs import matmul
from tir import script, te
from tir.verify import VerifyError

TARGET = "llvm -num-cores 1"
QUICK = Limits(min_seconds=0.0, min_runs=1, race=0.1)


# --- what is asked for -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("trials", "seconds", "message"), [
    (None, None, "a budget is needed"),
    ("ten", None, "trials must be at least 1, got 'ten'"),
    (2.5, None, "trials must be at least 1, got 2.5"),
    (True, None, "trials must be at least 1, got True"),
    (None, float("nan"), "seconds must be positive, got nan"),
    (None, float("inf"), "seconds must be positive, got inf"),
    (3, "1", "seconds must be positive, got '1'"),
])  # fmt: skip
def test_bad_budgets_are_refused(trials, seconds, message):
    with pytest.raises(ValueError, match=message):
        check_budget(trials, seconds)


@pytest.mark.parametrize(("options", "message"), [
    ({"records": 3}, "records takes the name of a file"),
    ({"seed": -1}, "seed must be an integer of at least 0, and below 2[*][*]63, got -1"),
    ({"seed": None}, "seed must be an integer of at least 0, and below 2[*][*]63, got None"),
    ({"callbacks": None}, "callbacks takes a list of functions"),
    ({"measurer": 3}, r"measurer takes what makes a search\.Measurer of a task, got 3"),
    ({"policy": 3}, "policy takes a name, an object with propose and update, or what makes one of the task, got 3"),
    ({"policy": "greedy"}, "greedy"),
    ({"policy": tune_tasks, "model": "gbdt"}, "a policy of your own brings its own"),
    ({"seed": "a"}, "seed must be an integer"),
    ({"seed": 1 << 63}, "seed must be an integer .* got 9223372036854775808"),
    ({"callbacks": print}, "callbacks takes a list of functions"),
    ({"callbacks": [3]}, "callbacks takes a list of functions"),
    ({"limits": 3}, "limits takes search.Limits"),
    ({"limits": Limits(build=-1.0)}, "Limits.build should be a positive number, got -1.0"),
    ({"limits": Limits(race=float("nan"))}, "Limits.race should be a positive number, got nan"),
    ({"limits": Limits(memory=0)}, "Limits.memory should be a positive number, got 0"),
    ({"limits": Limits(run="10")}, "Limits.run should be a positive number, got '10'"),
    ({"builder": 5}, "builder takes the name of a module, got 5"),
    ({"workers": 0}, "workers must be at least 1, got 0"),
    ({"rules": ["x"]}, r"rules takes a list of sketch rules, .*, got \['x'\]"),
    ({"rules": "tiling"}, "rules takes a list of sketch rules, .*, got 'tiling'"),
    ({"first": [3]}, r"first takes a list of search.measure.Candidate, got \[3\]"),
])  # fmt: skip
def test_bad_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        check_options(Options(**options))


# --- programs that are wrong -------------------------------------------------------------------------------------------


def reads_beyond():
    a = te.placeholder((13,), name="A")
    return te.create_prim_func([a, te.compute((13,), lambda i: a[i + 4] * 2.0, name="B")])


def writes_beyond():
    return script.parse(
        """
@T.prim_func
def main(A: T.Buffer((9,), "float32"), B: T.Buffer((7,), "float32")):
    for i in range(9):
        with T.block("B"):
            v = T.axis.spatial(9, i)
            B[v] = A[v] * 2.0
"""
    )


@pytest.mark.parametrize(
    ("make", "message"), [(reads_beyond, "of `A` is 13, outside 0 .. 12"), (writes_beyond, "of `B` is 7, outside 0 .. 6")]
)
def test_a_program_that_leaves_its_arrays_is_refused_before_anything_is_measured(make, message, tmp_path):
    seen = []
    with pytest.raises(VerifyError, match=message):
        autotune(make(), TARGET, 2, callbacks=[seen.append], records=tmp_path / "tune.db")
    assert not any(isinstance(event, Started) for event in seen)
    with pytest.raises(VerifyError, match=message):
        tune_tasks([matmul(7, 13, 5), make()], TARGET, 4)


# --- a reference in time -----------------------------------------------------------------------------------------------


def test_where_the_program_as_written_is_too_slow_the_default_schedule_is_the_reference():
    result = autotune(matmul(301, 211, 307), TARGET, 2, limits=replace(QUICK, baseline=1e-4), workers=1)
    assert result.problem == "the program as written takes over 0.0001 s: results are compared with the default's"
    assert result.baseline is None and result.baseline_stopped == 1e-4
    assert result.outcomes["ok"] == 2 and result.max_error <= result.tolerance


# --- the same for the same seed ----------------------------------------------------------------------------------------


class Pretended(LocalMeasurer):
    """Builds and checks, but takes the seconds from a hash, so that two runs are told the same."""

    def pretend(self, m: Measurement) -> Measurement:
        digest = hashlib.sha256(json.dumps(m.candidate.trace).encode()).digest()
        return replace(m, samples=(1e-3 * (1 + digest[0]),), cut=False, max_error=0.0) if m.outcome == "ok" else m

    def measure(self, candidates):
        yield from map(self.pretend, super().measure(candidates))

    def compare(self, candidates, **options):
        return Comparison(tuple(self.pretend(Measurement(c, "ok", (1.0,))) for c in candidates))


def test_a_seed_decides_the_candidates_for_any_number_of_builders_and_after_a_resume(tmp_path):
    def candidates(workers: int, seed: int = 3):
        result = autotune(
            matmul(7, 13, 40), TARGET, 8, seed=seed, records=tmp_path / f"{workers}-{seed}.db",
            policy=lambda task: make_policy(task, settings=Settings(population=64, generations=2)),
            measurer=lambda task: Pretended(task, workers=workers, limits=QUICK, seed=seed),
        )  # fmt: skip
        return [(m.candidate.sketch, m.candidate.row) for m in result.measurements]

    first, again = candidates(1), candidates(1)
    assert (first, again) == (candidates(2), candidates(2))
    assert len(first) == len(again) == 8 and not set(first) & set(again)  # what is recorded is not measured again
    assert candidates(1, seed=4) != first


# --- the order of a run ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("batch", "expected"), [
    (16, ["propose 1", "measure a", "learn of others", "update 1", "propose 2", "measure b", "update 1"]),
    (1, ["propose 1", "measure a", "learn of others", "update 1", "propose 1", "measure b", "update 1"]),
])  # fmt: skip
def test_what_needs_no_search_is_measured_before_anything_is_learned(batch, expected, monkeypatch, tmp_path):
    """Before the model is loaded and other tasks are learned from; of these the policy learns before it does of its own, also
    where the first round has no room for more."""
    log = []

    class Logging(Fake):
        def measure(self, candidates):
            for candidate in candidates:
                log.append(f"measure {candidate.trace}")
                yield self.of(candidate)

    class Knows(Once):
        taught = ()

        def begin(self, n):
            return self.propose(1, None)

        def warm_up(self):
            log.append("warm up")

        def warm_start(self, examples):
            log.append("learn of others")

        def update(self, measurements):
            log.append(f"update {len(measurements)}")

        def propose(self, n, rng):
            log.append(f"propose {n}")
            return super().propose(n, rng)

    monkeypatch.setattr(session, "host_cores", lambda: 1)
    monkeypatch.setattr(budget, "BATCH", batch)
    autotune(matmul(), TARGET, trials=3, first=(), policy=Knows("a", "b"), measurer=Logging, records=tmp_path / "a.db")
    assert log[: len(expected)] == expected
    assert "warm up" not in log  # one core has no time for it aside
