"""A measurer of one's own: what it has to say, what it gets for nothing, and that tasks and results can travel as text."""

from __future__ import annotations

import json
import queue
import threading
from dataclasses import replace

import pytest

import tir
from search.measure import BASELINE, Baseline, Candidate, Comparison, Measurement, Measurer
from search.measure.provenance import Provenance
from search.records import Records
from search.task import Task
from tir import workloads

FUNC = workloads.make("gmm", (7, 13, 109)).func
TARGET = "llvm -num-cores 1"
DEVICE = Provenance("f" * 20, "a table", {"tir": "0.0"})
TABLE = {"slow": 0.3, "fast": 0.1, "medium": 0.2}  # seconds of a candidate by its trace


class Table(Measurer):
    """Answers from a table, in another thread, to which tasks and candidates come as text."""

    def __init__(self, task):
        self.inbox, self.outbox, self.owed = queue.SimpleQueue(), queue.SimpleQueue(), 0
        threading.Thread(target=self.serve, args=(json.dumps(task.as_json()),), daemon=True).start()

    def serve(self, text):
        assert Task.from_json(json.loads(text)).func == FUNC
        while (candidate := Candidate.from_json(json.loads(self.inbox.get()))) != BASELINE:
            m = Measurement(candidate, "ok", (TABLE[candidate.trace],), max_error=0.0, digest=candidate.trace, provenance=DEVICE)
            self.outbox.put(json.dumps(m.as_json()))

    def __exit__(self, *error):
        self.inbox.put(json.dumps(BASELINE.as_json()))

    def prepare(self):
        return Baseline(Measurement(BASELINE, "ok", (1.0,), max_error=0.0, digest="written", provenance=DEVICE), 1e-6)

    def submit(self, candidates):
        self.owed += len(candidates)
        for c in candidates:
            self.inbox.put(json.dumps(c.as_json()))

    def results(self, timeout=None):
        while self.owed:
            try:
                yield Measurement.from_json(json.loads(self.outbox.get(timeout=timeout)))
            except queue.Empty:
                return
            self.owed -= 1

    def compare(self, candidates, **options):
        return Comparison(tuple(self.measure(candidates)))


class Listed:
    def __init__(self, traces):
        self.left = [Candidate("listed", (n,), trace) for n, trace in enumerate(traces)]

    def propose(self, n, rng):
        chosen, self.left = self.left[:n], self.left[n:]
        return chosen

    def update(self, measurements):
        pass


def test_autotune_with_a_measurer_of_ones_own(tmp_path):
    path = tmp_path / "tune.db"
    result = tir.autotune(FUNC, TARGET, 3, policy=Listed(TABLE), first=(), measurer=Table, records=path)
    assert (result.trace, result.seconds, result.baseline, result.peak) == ("fast", 0.1, 1.0, None)
    assert [m.candidate.trace for m in result.measurements] == list(TABLE)
    with Records(path) as records:
        found = records.of(result.task.key)
    assert {(r.fingerprint, r.cpu, r.versions["tir"]) for r in found} == {("f" * 20, "a table", "0.0")}


def test_results_come_as_they_end_and_may_be_waited_for(tmp_path):
    measurer = Table(Task.of(FUNC, TARGET))
    candidates = Listed(TABLE).left
    measurer.submit(candidates[:1])
    listening = measurer.results()
    assert next(listening).candidate == candidates[0]
    measurer.submit(candidates[1:])
    assert [m.candidate for m in listening] == candidates[1:]  # submitted while it was listened to
    measurer.owed = 1  # of which nothing will come
    assert list(measurer.results(timeout=0.01)) == []


def test_who_stops_listening_cancels_the_rest():
    cancelled = []

    class Cancels(Table):
        def cancel(self):
            cancelled.append(self.owed)

    measurer = Cancels(Task.of(FUNC, TARGET))
    for _ in measurer.measure(Listed(TABLE).left):
        break
    assert cancelled == [3]


def test_a_measurer_says_all_that_is_asked():
    class Silent(Measurer):
        def prepare(self):
            return Baseline(Measurement(BASELINE, "ok", (1.0,)))

    with pytest.raises(TypeError, match=r"abstract methods '?compare'?, '?results'?"):
        Silent()


def test_a_measurer_without_other_abilities_measures_in_rounds():
    plain, m = Table(Task.of(FUNC, TARGET)), Measurement(BASELINE, "ok", (1.0,))
    plain.pause()
    plain.build_ahead([], lambda: False)
    assert (plain.slots, plain.room, plain.remark, [*plain.finished()]) == (0, 0, "", []) and plain.scaled_to_primary(m) is m


@pytest.mark.parametrize("measurement", [
    Measurement(Candidate("s", (1, 2), {"version": 1, "steps": []}, 0.5), "ok", (0.1, 0.2), max_error=1e-7, ended=1.5),
    Measurement(BASELINE, "crash", message="SIGSEGV", cut=True, duplicate=True, digest="d", build_seconds=0.25),
])  # fmt: skip
def test_measurements_are_data(measurement):
    for m in (measurement, replace(measurement, provenance=DEVICE)):
        back = Measurement.from_json(json.loads(json.dumps(m.as_json())))
        assert back == m and back.provenance == m.provenance and back.candidate.score == m.candidate.score
