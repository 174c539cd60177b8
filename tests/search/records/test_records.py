"""Records: what is written is found again, by any number of processes, whatever ends them; look-ups say what they found."""

from __future__ import annotations

import json
import math
import os
import re
import sqlite3
import subprocess
import sys
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import tir
from costmodel.dataset import Dataset
from costmodel.model_file import read as read_model
from search.keys import key, size_free_key
from search.measure import Candidate, Measurement, Origin, Parent
from search.measure.provenance import Provenance, fingerprint
from search.measure.reference import NamedWorkload
from search.records import FaultyRecord, NearHit, NoRecord, Records, RecordsError, best_schedule, look_up
from search.task import Task
from tir import workloads
from tir.constants import with_constants, with_shared_constants
from tir.notices import Degraded

ROOT = Path(__file__).resolve().parents[3]
SHAPE = (7, 13, 109)
SPLIT = {"version": 1, "steps": [{"name": "split", "args": {"loop": "i", "factors": [None, 3]}, "results": ["i_0", "i_1"]}]}


def task(target: str = "llvm -num-cores 1", shape: tuple[int, ...] = SHAPE, name: str = "gmm") -> Task:
    return Task.of(workloads.make(name, shape).func, target, workload=NamedWorkload(name, shape))


def ok(*samples: float, trace=SPLIT, error: float | None = 1e-7, row=(3,), score=None) -> Measurement:
    return Measurement(Candidate("s0", row, trace, score), "ok", samples, digest="d", max_error=error, build_seconds=0.25)


@pytest.fixture
def path(tmp_path) -> Path:
    return tmp_path / "tune.db"


def filled(path: Path, own: Task | None = None, *measurements: Measurement) -> Records:
    records = Records(path)
    run = records.start(own or task(), seed=np.int64(7))
    for m in measurements or (
        ok(0.3, 0.1, 0.2, score=0.5),
        ok(0.5),
        Measurement(Candidate("s1", (), None), "crash", message="SIGSEGV"),
    ):
        records.add(run, m)
    return records


# --- writing and reading -----------------------------------------------------------------------------------------------


def test_everything_measured_is_found_again(path):
    own = task()
    with filled(path) as records:
        pass
    with Records(path) as records:
        first, second, third = records.of(own.key, own.target)
        assert len(records) == 3 and bool(records)
    assert first.measurement == ok(0.3, 0.1, 0.2) and first.measurement.candidate.score == 0.5
    assert (first.seconds, second.seconds, third.seconds) == (0.2, 0.5, math.inf)
    assert (third.measurement.outcome, third.measurement.message, third.measurement.candidate.trace) == ("crash", "SIGSEGV", None)
    assert (first.workload, first.name, first.shape, first.dtype, first.seed) == (own.key, "gmm", SHAPE, "float32", 7)
    assert (first.target, first.threads, first.title) == (own.target, 1, "gmm 7,13,109")
    assert {"tir", "python", "numpy", "llvmlite", "llvm"} <= set(first.versions) and first.cpu and first.time > 1.7e9


def test_a_shape_may_have_a_padding_of_nothing(path):
    own = task(shape=(1, 7, 7, 3, 5, 1, 1, 1, 0), name="conv2d")
    with filled(path, own, ok(0.1)) as records:
        assert records.best(own.key, own.target).shape == (1, 7, 7, 3, 5, 1, 1, 1, 0)


BORN = Origin("crossover", 3, 2, (Parent((4,)), Parent((5,), Origin("scale", 3, 1, (Parent((1,)),)))))


def test_scores_and_origins_are_kept(path, tmp_path):
    candidate = Candidate("s0", (3,), SPLIT, 0.5, {"trees": 0.5, "formula": -7.25, "broken": -math.inf}, BORN)
    assert Candidate.from_json(json.loads(json.dumps(candidate.as_json()))).origin == BORN
    with filled(path, task(), Measurement(candidate, "ok", (0.1,))) as records, Records(tmp_path / "other.db") as other:
        lines = [*records.export()]
        assert other.import_(lines) == (1, 0)
        for kept in (records, other):
            (found,) = kept.of(task().key)
            assert found.first.candidate.origin == BORN
            assert found.first.candidate.scores == {"trees": 0.5, "formula": -7.25}
    older = [{k: v for k, v in json.loads(line).items() if k not in ("scores", "origin")} for line in lines]
    with Records(tmp_path / "third.db") as third:  # what earlier versions exported is understood
        assert third.import_(map(json.dumps, older)) == (1, 0)
        assert third.of(task().key)[0].first.candidate.origin is None


def test_the_best_is_the_fastest_that_was_checked_on_this_target(path):
    unchecked, failed = ok(0.01, error=None), Measurement(Candidate("s0", (1,), SPLIT), "wrong_result", max_error=1.0)
    with filled(path, None, ok(0.3), ok(0.2, row=(4,)), unchecked, failed) as records:
        assert records.best(task().key, "llvm -num-cores 1").measurement.candidate.row == (4,)
        assert records.best(task().key, "llvm -num-cores 2") is None
        assert records.best(task(shape=(7, 13, 110)).key, "llvm -num-cores 1") is None


WRONG = Measurement(Candidate("s0", (5,), SPLIT), "wrong_result", message="`C` is off", max_error=1.0)


def rows(records: Records) -> dict[tuple[int, ...], float]:
    """The seconds by which each candidate is compared, by its row."""
    return {r.measurement.candidate.row: r.seconds for r in records.of(task().key, task().target)}


def test_a_race_decides_what_is_best_and_first_timings_stay(path):
    with Records(path) as records:
        run = records.start(task())
        lucky, steady, broken = (records.add(run, m) for m in (ok(0.1), ok(0.2, row=(4,)), ok(0.05, row=(5,))))
        before = [line for line in records.export() if '"candidate"' in line]
        records.race(run, {lucky: ok(0.4, 0.3, 0.5), steady: ok(0.25), broken: WRONG}, steady)
        best = records.best(task().key, "llvm -num-cores 1")
        assert (best.measurement.candidate.row, best.seconds, best.measurement.samples, best.first.samples) == (
            (4,),
            0.25,
            (0.25,),
            (0.2,),
        )
        first, _, third = records.of(task().key)
        assert (first.seconds, first.measurement.samples, first.first.samples) == (0.4, (0.4, 0.3, 0.5), (0.1,))
        assert (third.seconds, third.measurement.outcome, third.first.outcome) == (math.inf, "wrong_result", "ok")
        lines = list(records.export())
    assert [line for line in lines if line.startswith('{"kind":"candidate"')] == before  # nothing was written over
    raced = {x["candidate"]: (x["samples"], x["won"]) for x in map(json.loads, lines) if x["kind"] == "race"}
    assert raced == {lucky: ([0.4, 0.3, 0.5], False), steady: ([0.25], True), broken: ([], False)}


def test_what_a_run_knew_is_not_faster_than_the_winner_of_its_race(path):
    with Records(path) as records:
        earlier = records.start(task())
        records.add(earlier, ok(0.05, row=(1,)))
        other, run = records.start(task()), records.start(task())
        winner = records.add(run, ok(0.1, row=(2,)))
        records.add(run, ok(0.11, row=(3,)))
        records.add(other, ok(0.06, row=(4,)))  # of which the run was not told
        records.race(run, {winner: ok(0.2)}, winner)
        above = math.nextafter(0.2, math.inf)
        assert rows(records) == {(1,): above, (2,): 0.2, (3,): above, (4,): 0.06}
        records.add(run, ok(0.15, row=(5,)))  # after the race
        assert rows(records)[5,] == 0.15 and records.best(task().key, task().target).measurement.candidate.row == (4,)


def test_a_race_that_nobody_won_says_nothing_of_times(path):
    with Records(path) as records:
        run = records.start(task())
        one, two = records.add(run, ok(0.1)), records.add(run, ok(0.2, row=(5,)))
        records.race(run, {one: ok(0.9), two: WRONG}, None)
        assert rows(records) == {(3,): 0.1, (5,): math.inf}
        assert records.summaries()[0].valid == 1 and records.prune(keep=5) == 1
        assert [json.loads(line)["candidate"] for line in records.export() if '"kind":"race"' in line] == [one]


def test_records_name_the_device_and_the_versions_that_measured(path):
    here, there = Provenance.here(task().target), Provenance("f" * 20, "another processor", {"tir": "0.0"})
    with Records(path) as records:
        run = records.start(task())
        mine, other = (records.add(run, replace(ok(0.1), provenance=p)) for p in (here, there))
        records.race(run, {other: replace(ok(0.3), provenance=there)}, other)
        (first,), (second,) = ([r for r in records.of(task().key) if r.id == i] for i in (mine, other))
        assert first.run == run and (first.cpu, first.versions) == (here.device, here.versions)
        assert (second.fingerprint, second.cpu, second.versions) == ("f" * 20, "another processor", {"tir": "0.0"})
        assert second.measurement.provenance == there and second.seed == first.seed and second.target == first.target
        assert (first.seconds, second.seconds) == (0.1, 0.3)  # each is compared with those of its own device
        assert [(s.cpu, s.records, s.best) for s in sorted(records.summaries(), key=lambda s: s.best)] == [
            (here.device, 1, 0.1), ("another processor", 1, 0.3),
        ]  # fmt: skip
        with Records(path.with_name("other.db")) as copy:
            copy.import_(records.export())
            assert copy.of(task().key) == records.of(task().key)


def test_list_summarises_each_task(path):
    with filled(path) as records:
        run = records.start(task("llvm -num-cores 2"))
        records.add(run, ok(0.4, error=None))
        records.start(task(shape=(1, 1, 1)))  # a run that recorded nothing
        found = {(s.workload, s.threads): (s.records, s.valid, s.best, s.title) for s in records.summaries()}
    assert found == {(task().key, 1): (3, 2, 0.2, "gmm 7,13,109"), (task().key, 2): (1, 1, None, "gmm 7,13,109")}


def test_functions_that_are_no_workloads_are_known_by_their_arrays(path):
    own = Task.of(workloads.make("gmm", SHAPE, "float64").func, "llvm -num-cores 1")
    with filled(path, own) as records:
        assert [s.title for s in records.summaries()] == ["gmm float64[7, 13] float64[13, 109] float64[7, 109]"]
    sums = Task.of(workloads.make("norm", (1, 7, 13)).func, "llvm -num-cores 1")
    with filled(path, sums) as records:
        assert records.summaries()[1].title == "norm float32[1, 7, 13] float32[1]"


def test_prune_keeps_the_best_of_each_task(path):
    with filled(path, None, *(ok(0.1 * n, row=(n,)) for n in range(1, 6)), ok(0.01, error=None)) as records:
        run = records.start(task("llvm -num-cores 2"))
        records.add(run, ok(1.0))
        assert records.prune(keep=2) == 4
        assert [r.measurement.candidate.row for r in records.of(task().key)] == [(1,), (2,), (3,)]
        with pytest.raises(ValueError, match="keep must be at least 0, got -1"):
            records.prune(keep=-1)


def test_the_function_can_be_made_again(path):
    with filled(path) as records:
        assert key(records.func(task().key)) == task().key
        with pytest.raises(KeyError):
            records.func("none")


# --- exchange ----------------------------------------------------------------------------------------------------------


def test_export_and_import_are_inverse_and_merging_twice_adds_nothing(path, tmp_path):
    with filled(path) as records, Records(tmp_path / "other.db") as other:
        lines = list(records.export())
        assert all(len(line.splitlines()) == 1 for line in lines)
        assert other.import_(lines) == (3, 0)
        assert list(other.export()) == lines
        assert other.import_([*lines, "", *lines]) == (0, 6)
        assert other.of(task().key) == records.of(task().key)


def test_merging_brings_later_races_and_changes_nothing_else(path, tmp_path):
    with Records(path) as records, Records(tmp_path / "other.db") as other:
        run = records.start(task())
        identifier = records.add(run, ok(0.2))
        before = list(records.export())
        other.import_(before)
        records.race(run, {identifier: ok(0.3)}, identifier)
        after = list(records.export())
        assert other.import_(after) == (0, 1) and other.of(task().key)[0].seconds == 0.3
        assert other.import_(before) == (0, 1) and other.of(task().key)[0].seconds == 0.3
        with Records(tmp_path / "third.db") as third, pytest.raises(RecordsError, match="which is not among the records"):
            third.import_(line for line in after if '"kind":"candidate"' not in line)


@pytest.mark.parametrize(("line", "message"), [
    ("{", "line 2 is not JSON"),
    ("[" * 100_000, "line 2 is not JSON"),
    ("[]", "line 2 is not a record"),
    ('{"kind": "thing"}', 'line 2 is not a record: expected an object with "kind" of workload, run, candidate, race'),
    ('{"kind": "workload", "key": 7}', "line 2: workload.key is missing or of the wrong type: 7"),
    ('{"kind": "workload", "key": "k"}', "line 2: workload.structure is missing or of the wrong type: None"),
])  # fmt: skip
def test_lines_that_are_not_records_are_refused_and_change_nothing(line, message, path):
    with filled(path) as records:
        before = list(records.export())
        with pytest.raises(RecordsError) as error:
            records.import_([before[0], line])
        assert str(error.value).startswith(message)
        assert list(records.export()) == before


def test_lines_must_bring_what_they_refer_to(path, tmp_path):
    with filled(path) as records, Records(tmp_path / "other.db") as other:
        workload, run, *candidates = records.export()
        with pytest.raises(RecordsError, match="which is not among the records"):
            other.import_(candidates)
        with pytest.raises(RecordsError, match="which is not among the records"):
            other.import_([run])
        assert len(other) == 0
        assert other.import_([*candidates, run, workload]) == (3, 0)  # in any order
        unknown = json.dumps({**json.loads(candidates[0]), "outcome": "fine"})
        with pytest.raises(RecordsError, match=r"line 1: candidate\.outcome is 'fine'; expected one of ok, "):
            other.import_([unknown])


@pytest.mark.parametrize(("table", "column", "value", "reason"), [
    ("candidates", "trace", "{", "trace is not JSON"),
    ("candidates", "trace", "[" * 100_000, "trace is not JSON"),
    ("candidates", "row", '["3"]', "row must be integers, got ['3']"),
    ("candidates", "row", "{}", "row is missing or of the wrong type: {}"),
    ("candidates", "seconds", -1.0, "seconds is -1.0, and must be more than 0"),
    ("candidates", "seconds", "fast", "seconds is missing or of the wrong type: 'fast'"),
    ("candidates", "seconds", 1e-9, "seconds is 1e-09, which is not the median of the samples [0.01]"),
    ("candidates", "samples", "[NaN]", "samples must be finite numbers, got ['NaN']"),
    ("candidates", "samples", "[]", "seconds is 0.01, which is not the median of the samples []"),
    ("candidates", "outcome", "fine", "outcome is 'fine'; expected one of ok, "),
    ("candidates", "max_error", "small", "max_error is missing or of the wrong type: 'small'"),
    ("candidates", "scores", '{"trees": "high"}', "scores must be finite numbers, got {'trees': 'high'}"),
    ("candidates", "origin", '{"operator": "scale"}', "origin makes no sense: KeyError('batch')"),
    ("candidates", "cut", 7, "cut must be 0 or 1, got 7"),
    ("candidates", "build_seconds", float("inf"), "build_seconds must be finite numbers, got inf"),
    ("candidates", "time", b"now", "time is missing or of the wrong type: b'now'"),
    ("runs", "threads", 0, "threads is 0, and must be more than 0"),
    ("runs", "versions", "[]", "versions is missing or of the wrong type: []"),
    ("workloads", "shape", "[7, -13]", "shape is [7, -13], and must be at least 0"),
    ("races", "won", "yes", "won must be 0 or 1, got 'yes'"),
])  # fmt: skip
def test_a_row_that_makes_no_sense_is_named_and_left_out(table, column, value, reason, path):
    """Whatever wrote it; the others are used."""
    with Records(path) as records:
        kept, other = records.start(task()), records.start(task(shape=(3, 3, 3)))
        records.add(kept, ok(0.2, row=(4,)))
        bad = records.add(other if table in ("runs", "workloads") else kept, ok(0.01))
        records.race(kept, {bad: ok(0.01)}, bad)
    with sqlite3.connect(path) as connection:
        where = {"candidates": f"id = '{bad}'", "runs": f"run = '{other}'", "workloads": "shape = '[3, 3, 3]'"}.get(table, "TRUE")
        assert connection.execute(f"UPDATE OR IGNORE {table} SET {column} = ? WHERE {where}", (value,)).rowcount == 1
    connection.close()
    with Records(path) as records:
        with pytest.warns(FaultyRecord) as warned:
            summaries, lines = records.summaries(), list(records.export())
            best = records.best(task().key, task().target)
        (told,) = warned
        assert re.fullmatch(
            rf"{re.escape(str(path))}: a row of {table}, \S+, is left out: {re.escape(reason)}.*", str(told.message)
        )
        assert best.seconds == (0.01 if table == "races" else 0.2)
        assert min(s.best for s in summaries) == best.seconds and len(records) == (2 if table == "races" else 1)
        with Records(path.with_name("other.db")) as others:
            assert others.import_(lines) == (2 if table == "races" else 1, 0)
        with warnings.catch_warnings(action="error"):
            records.summaries()  # it has been said


# --- files -------------------------------------------------------------------------------------------------------------


def test_a_file_of_something_else_is_refused_and_left_alone(tmp_path):
    text, foreign, newer, cut = (tmp_path / name for name in ("text", "foreign.db", "newer.db", "cut.db"))
    text.write_text("these are not records\n" * 100)
    with sqlite3.connect(foreign) as connection:
        connection.execute("CREATE TABLE t (x)")
    connection.close()
    Records(newer).close()
    with sqlite3.connect(newer) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    Records(cut).close()
    cut.write_bytes(cut.read_bytes()[:5000])
    expected = {
        text: "is not a records file, or is damaged: file is not a database",
        foreign: "is an SQLite file of another program, not a records file",
        newer: "holds records of version 99; this tir reads version 4",
        cut: "is not a records file, or is damaged: database disk image is malformed",
    }
    for file, message in expected.items():
        before = file.read_bytes()
        with pytest.raises(RecordsError) as error:
            Records(file)
        assert str(error.value) == f"{file} {message}"
        assert file.read_bytes() == before
    with pytest.raises(RecordsError, match="is a directory"):
        Records(tmp_path)
    with pytest.raises(RecordsError, match=r"folder .* does not exist"):
        Records(tmp_path / "no" / "tune.db")
    with pytest.raises(RecordsError, match=r"records file .* does not exist"):
        Records(tmp_path / "none.db", create=False)
    with pytest.raises(RecordsError, match="expected the name of a records file, got 3"):
        Records(3)
    with pytest.raises(RecordsError, match=r"^/dev/full is no regular file"):
        Records("/dev/full")
    with pytest.raises(RecordsError, match="cannot open the records file a\\0b"):
        Records("a\0b")


def first_version(path: Path) -> None:
    """A file as the first version made it: candidates (1,) and (2,) raced, and (2,) won, by which (3,) does not count as faster."""
    with sqlite3.connect(path) as connection:
        connection.executescript(
            """CREATE TABLE workloads (key TEXT PRIMARY KEY, structure TEXT NOT NULL, name TEXT NOT NULL, shape TEXT, dtype TEXT,
            flop INTEGER NOT NULL, script TEXT NOT NULL) WITHOUT ROWID;
            CREATE TABLE runs (run TEXT PRIMARY KEY, workload TEXT NOT NULL, fingerprint TEXT NOT NULL, target TEXT NOT NULL,
            threads INTEGER NOT NULL, cpu TEXT NOT NULL, versions TEXT NOT NULL, seed INTEGER NOT NULL, started REAL NOT NULL
            ) WITHOUT ROWID;
            CREATE TABLE candidates (id TEXT NOT NULL UNIQUE, run TEXT NOT NULL, sketch TEXT NOT NULL, row TEXT NOT NULL,
            trace TEXT NOT NULL, score REAL, digest TEXT NOT NULL, outcome TEXT NOT NULL, message TEXT NOT NULL,
            samples TEXT NOT NULL, race TEXT, seconds REAL, cut INTEGER NOT NULL, max_error REAL, build_seconds REAL NOT NULL,
            time REAL NOT NULL, changed REAL NOT NULL);
            CREATE INDEX candidates_of_run ON candidates (run, outcome, seconds);
            CREATE INDEX runs_of_workload ON runs (workload, fingerprint);
            PRAGMA application_id = 1953067569; PRAGMA user_version = 1;"""
        )
        own = task()
        known = (own.key, size_free_key(own.func), "gmm", json.dumps(SHAPE), "float32", own.flop, own.func.script())
        connection.execute("INSERT INTO workloads VALUES (?, ?, ?, ?, ?, ?, ?)", known)
        run = ("r", own.key, fingerprint(own.target), own.target, 1, "a processor", '{"tir": "0.1"}', 7, 10.0)
        connection.execute("INSERT INTO runs VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", run)
        raced = [("[0.1]", "[0.3]", 0.3), ("[0.2]", "[0.2]", 0.2), ("[0.15]", None, math.nextafter(0.2, math.inf))]
        for n, (samples, race, seconds) in enumerate(raced, 1):
            values = (
                f"c{n}",
                "r",
                "s0",
                f"[{n}]",
                json.dumps(SPLIT),
                "d",
                "ok",
                "",
                samples,
                race,
                seconds,
                0,
                0.0,
                0.1,
                11.0,
                12.0,
            )
            connection.execute(f"INSERT INTO candidates VALUES (?, ?, ?, ?, ?, NULL{', ?' * 11})", values)
    connection.close()


def test_a_file_of_the_first_version_is_made_one_of_this(path, monkeypatch):
    first_version(path)
    monkeypatch.setattr("os.access", lambda place, mode: mode != os.W_OK)
    before = path.read_bytes()
    with Records(path) as records:  # from a copy in memory
        assert rows(records)[(2,)] == 0.2
        with pytest.raises(RecordsError, match="cannot be used: attempt to write a readonly database"):
            records.prune()
    assert path.read_bytes() == before
    monkeypatch.undo()
    for _ in range(2):
        with Records(path) as records:
            assert rows(records) == {(1,): 0.3, (2,): 0.2, (3,): math.nextafter(0.2, math.inf)}
            assert [r.first.samples for r in records.of(task().key)] == [(0.1,), (0.2,), (0.15,)]
            assert {(r.first.candidate.scores, r.first.candidate.origin) for r in records.of(task().key)} == {(None, None)}
            found = map(json.loads, records.export())
            assert {x["candidate"]: x["samples"] for x in found if x["kind"] == "race"} == {"c1": [0.3], "c2": [0.2]}
            assert records.best(task().key, task().target).measurement.candidate.row == (2,)


def test_a_name_is_that_of_a_file_whatever_it_means_elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Records(":memory:").close()
    assert (tmp_path / ":memory:").is_file()


def test_a_file_that_may_not_be_written_is_read(path, tmp_path, monkeypatch):
    filled(path).close()
    (tmp_path / "empty.db").touch()
    monkeypatch.setattr("os.access", lambda place, mode: mode != os.W_OK)  # of root, files may always be written
    before = path.read_bytes()
    with Records(path, create=False) as records:
        assert len(records) == 3 and best_schedule(task().func, task().target, records=records).trace.as_json() == SPLIT
        for write in (lambda: records.start(task()), records.prune):
            with pytest.raises(RecordsError, match=r"cannot be used: attempt to write a readonly database"):
                write()
    assert path.read_bytes() == before and sorted(p.name for p in tmp_path.iterdir()) == ["empty.db", path.name]
    with pytest.raises(RecordsError, match=r"empty\.db is not a records file: it is empty, and may not be written"):
        Records(tmp_path / "empty.db")


def test_a_file_that_another_process_holds_is_no_damaged_one(path, monkeypatch):
    Records(path).close()
    monkeypatch.setattr("search.records.schema.BUSY_SECONDS", 0.01)
    with sqlite3.connect(path, isolation_level=None) as other:
        other.execute("PRAGMA locking_mode = EXCLUSIVE")
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(RecordsError, match=r"^cannot use the records file .*tune\.db: database is locked$"):
            Records(path)
    other.close()


def test_damage_found_later_is_one_error(path):
    with filled(path, None, *(ok(0.1 * n) for n in range(1, 200))):
        pass
    data = bytearray(path.read_bytes())
    data[8192 : len(data) - 4096] = b"\xa5" * (len(data) - 12288)
    path.write_bytes(data)
    with pytest.raises(RecordsError, match=r"tune\.db"), Records(path) as records:
        records.of(task().key)


def test_an_empty_file_becomes_a_records_file(path):
    path.touch()
    with filled(path) as records:
        assert len(records) == 3


WRITER = """
import sys
sys.path[:0] = [{root!r}]
from search.measure import Candidate, Measurement
from search.records import Records
from search.task import Task
from tir import workloads
from tir.constants import with_constants, with_shared_constants
task = Task.of(workloads.make("gmm", (7, 13, 109)).func, "llvm -num-cores 1")
print("ready", flush=True)
sys.stdin.readline()
with Records(sys.argv[1]) as records:
    run = records.start(task)
    for n in range(40):
        records.add(run, Measurement(Candidate(sys.argv[2], (n,), None), "ok", (0.1,), max_error=0.0))
        records.summaries()
"""


def test_several_processes_make_and_fill_one_file(path):
    command = [sys.executable, "-c", WRITER.format(root=str(ROOT)), str(path)]
    writers = [
        subprocess.Popen([*command, f"w{n}"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for n in range(3)
    ]
    assert [w.stdout.readline() for w in writers] == ["ready\n"] * 3
    for w in writers:
        w.stdin.write("go\n")
        w.stdin.flush()
    assert [w.communicate(timeout=60)[1] for w in writers] == [""] * 3
    with Records(path) as records:
        rows = [(r.measurement.candidate.sketch, r.measurement.candidate.row[0]) for r in records.of(task().key)]
    assert sorted(rows) == [(f"w{n}", i) for n in range(3) for i in range(40)]


# --- look-ups ----------------------------------------------------------------------------------------------------------


def test_a_hit_is_replayed_in_silence(path):
    own = task()
    with filled(path) as records, warnings.catch_warnings():
        warnings.simplefilter("error")
        found = best_schedule(own.func, own.target, records=records)
        assert look_up(own.func, own.target, records).kind == "hit"
    assert found.trace.as_json() == SPLIT
    assert tir.best_schedule(own.func, own.target, records=path).trace.as_json() == SPLIT


def test_another_target_is_a_near_hit_with_a_warning(path):
    with filled(path) as records:
        run = records.start(task("llvm -num-cores 2 -vector-bits 64"))
        records.add(run, ok(0.001, trace=None))
    with pytest.warns(NearHit) as caught:
        found = best_schedule(task().func, "llvm -num-cores 1 -vector-bits 1024", records=path)
    assert found.trace.as_json() == SPLIT  # of the same number of threads, though not the fastest
    (warning,) = caught
    assert warning.filename == __file__
    assert f"not tuned for this target: {path} has no gmm for llvm -num-cores 1" in str(warning.message)
    assert f"; the nearest is for {task().target} on " in str(warning.message)


def test_a_target_of_another_machine_is_a_near_hit_too(path, tmp_path):
    filled(path).close()
    with Records(path) as records:
        lines = [line.replace(task().target, "llvm -mcpu of-another-machine") for line in records.export()]
        fingerprint = records.summaries()[0].fingerprint
    with Records(tmp_path / "merged.db") as merged:
        merged.import_([line.replace(fingerprint, "0" * 20) for line in lines])
        with pytest.warns(NearHit, match="the nearest is for llvm -mcpu of-another-machine on "):
            assert best_schedule(task().func, task().target, records=merged).trace.as_json() == SPLIT


@pytest.mark.parametrize(("shape", "message"), [
    ((7, 13, 110), "it is recorded for other shapes only: gmm 7,13,109; tir.autotune"),
    ((7, 13, 109, 1), "there are gmm 7,13,109; tir.autotune"),
])  # fmt: skip
def test_a_miss_says_what_there_is(shape, message, path):
    filled(path).close()
    with pytest.raises(NoRecord) as error:
        best_schedule(task(shape=shape).func, "llvm -num-cores 1", records=path)
    assert message in str(error.value) and isinstance(error.value, LookupError)


def test_misses_of_empty_missing_and_invalid_records(path, tmp_path):
    own = task()
    with pytest.raises(NoRecord, match=r"records file .* does not exist"):
        best_schedule(own.func, own.target, records=path)
    assert not path.exists()
    with Records(path) as records, pytest.raises(NoRecord, match="it has no records"):
        best_schedule(own.func, own.target, records=records)
    filled(path, None, ok(0.1, error=None)).close()
    with pytest.raises(NoRecord, match=r"there are 1 candidates for llvm .*, but none is valid and checked"):
        best_schedule(own.func, own.target, records=path)
    with pytest.raises(NoRecord, match=r"there are 1 candidates for llvm .*, but schedules are of no use from there to cuda"):
        best_schedule(own.func, "cuda -arch sm_80", records=path)
    stale = {"version": 1, "steps": [{"name": "split", "args": {"loop": "nowhere", "factors": [None, 3]}, "results": []}]}
    filled(path, None, ok(0.1, trace=stale)).close()
    with pytest.raises(
        NoRecord, match=r"the best record, made with tir .*, does not apply any more: step 1 of 1, split\('nowhere'"
    ):
        best_schedule(own.func, own.target, records=path)


def test_a_schedule_that_does_not_apply_hides_no_other(path):
    own = task()
    stale = {"version": 1, "steps": [{"name": "split", "args": {"loop": "nowhere", "factors": [None, 3]}, "results": []}]}
    filled(path, None, ok(0.01, trace=stale), ok(0.2, trace=SPLIT), ok(0.02, trace={"version": 1, "steps": 7})).close()
    with pytest.warns(FaultyRecord, match="does not apply any more") as told:
        assert best_schedule(own.func, own.target, records=path).trace.as_json() == SPLIT
    assert len(told) == 2


def test_a_function_that_makes_no_sense_takes_its_records_along(path):
    """They were found without it, and the look-up failed with an IndexError."""
    own, other = task(), task(shape=(3, 3, 3))
    filled(path, None, ok(0.2, trace=SPLIT)).close()
    filled(path, other, ok(0.1, trace=None)).close()
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE workloads SET shape = 'x' WHERE key = ?", (own.key,))
    connection.close()
    with Records(path) as records, pytest.warns(FaultyRecord, match=f"a row of workloads, {own.key}, is left out"):
        assert look_up(own.func, own.target, records).kind == "miss"
        assert records.of(own.key) == [] and [s.workload for s in records.summaries()] == [other.key]
        assert records.best(other.key, other.target).seconds == 0.1
    with filled(path, own, ok(0.3)) as records, warnings.catch_warnings(action="error"):  # until another run writes it anew
        assert [r.seconds for r in records.of(own.key)] == [0.2, 0.3]


def test_a_run_that_no_answer_would_have_is_not_begun(path):
    with filled(path) as records:
        before = list(records.export())
        with pytest.raises(RecordsError, match=r"^a run of gmm cannot be recorded: shape is \[7, -13\], and must be at least 0$"):
            records.start(replace(task(), key="k", workload=NamedWorkload("gmm", (7, -13))))
        assert list(records.export()) == before


def test_keys_of_shapes_and_targets():
    a, b = task(), task(shape=(7, 13, 110))
    assert a.key != b.key and size_free_key(a.func) == size_free_key(b.func)
    assert size_free_key(a.func) != size_free_key(task(shape=(7, 13, 109, 2)).func)
    assert fingerprint("llvm -num-cores 1") == fingerprint(task().target) != fingerprint("llvm -num-cores 2")
    constant = with_constants(a.func, [a.func.buffers[1].name])
    assert key(with_shared_constants(constant)) == key(constant) != a.key and with_shared_constants(a.func) == a.func
    assert fingerprint("llvm -num-cores 1") != fingerprint("llvm -num-cores 1", cpu="another processor")


def test_a_misspelt_file_is_answered_with_the_nearest(tmp_path):
    """Whoever reads it: records, a schedule, a compiled function, a model, a data set."""
    Records(tmp_path / "tune.db").close()
    for name in ("model.npz", "data.npz"):
        (tmp_path / name).touch()
    own, wrong, hint = task(), tmp_path / "tuen.db", rf"does not exist.*; did you mean {tmp_path}/tune.db\?$"
    with pytest.raises(RecordsError, match=hint):
        Records(wrong, create=False)
    with pytest.raises(NoRecord, match=hint):
        best_schedule(own.func, own.target, records=wrong)
    with pytest.warns(Degraded, match=hint):
        tir.compile(own.func, own.target, records=wrong, cache=None)
    with pytest.raises(FileNotFoundError, match=rf"; did you mean {tmp_path}/model.npz\?$"):
        read_model(tmp_path / "modle.npz", is_gpu=False)
    with pytest.raises(FileNotFoundError, match=rf"; did you mean {tmp_path}/data.npz\?$"):
        Dataset.load(tmp_path / "dat.npz")
    assert not wrong.exists()
