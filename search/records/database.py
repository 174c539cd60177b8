"""The database of measured candidates: writing, queries and exchange."""

from __future__ import annotations

import hashlib
import json
import math
import re
import sqlite3
import time
import uuid
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

from codegen.target import Target
from tir import script
from tir.ir import PrimFunc, need_func

from ..keys import size_free_key
from ..measure.outcome import OUTCOMES, Candidate, Measurement, Origin
from ..measure.provenance import Provenance, fingerprint
from ..task import Task
from . import exchange
from .schema import RecordsError, connect, transaction
from .standing import Standing, standings


class FaultyRecord(UserWarning):
    """A row of a records file is invalid, and is left out; the message has the row and the reason."""


@dataclass(frozen=True, slots=True)
class Record:
    """One measured candidate.

    `workload` is the key of its function, `fingerprint` that of its target and device. `first` is its first measurement.
    `measurement` is the current one: the first, or that of its last race which had a winner or in which it failed. `seconds` is
    for comparisons: the median of `measurement`, but more than the winner's time if it lost a race; infinite unless the outcome
    is ok. `time` is the end of its measurement, `started` the start of its run, in seconds since 1970.
    """

    id: str
    run: str
    workload: str
    name: str
    shape: tuple[int, ...] | None
    dtype: str | None
    fingerprint: str
    target: str
    threads: int
    cpu: str
    versions: dict[str, str]
    seed: int
    first: Measurement
    measurement: Measurement
    seconds: float
    time: float
    started: float

    @property
    def title(self) -> str:
        """The name and the shape of the workload: `gmm 7,13,109`."""
        return title(self.name, self.shape)


@dataclass(frozen=True, slots=True)
class Summary:
    """A summary of a workload's records on a target: their number, that of `valid` ones, the seconds of the checked `best`."""

    workload: str
    name: str
    shape: tuple[int, ...] | None
    fingerprint: str
    target: str
    threads: int
    cpu: str
    records: int
    valid: int
    best: float | None
    flop: int
    last: float
    script: str

    @property
    def title(self) -> str:
        """The name and the shape of the workload; for any other function its name, and the dtypes and shapes of its arrays."""
        if self.shape:
            return title(self.name, self.shape)
        arrays = re.findall(r'T\.Buffer\(\(([\d, ]*)\), "(\w+)"\)', self.script.partition("):\n")[0])
        return " ".join([self.name, *(f"{dtype}[{shape.rstrip(', ')}]" for shape, dtype in arrays)])


def title(name: str, shape: tuple[int, ...] | None) -> str:
    return f"{name} {','.join(map(str, shape))}" if shape else name


_RECORDS = "candidates JOIN runs USING (run) JOIN workloads ON runs.workload = workloads.key"
_RECORD = """id, run, workload, name, shape, dtype, fingerprint, target, threads, cpu, versions, seed, sketch, row, trace, score,
    scores, origin, digest, outcome, message, samples, cut, max_error, build_seconds, time, started"""


class Records:
    """The records in the file `path`, which is created if missing, unless `create` is false. A context manager.

    Every method is one short transaction. RecordsError for a file that is missing, damaged or no records file. Invalid rows are
    left out of all answers; the first answer without one warns of it (FaultyRecord) with the reason. Records of a target are
    those of this device, unless `devices` has the fingerprint of another one for it.
    """

    def __init__(self, path: str | Path, *, create: bool = True):
        if not isinstance(path, (str, Path)):
            raise RecordsError(f"expected the name of a records file, got {path!r}")
        self.path = Path(path)
        self._connection = connect(self.path, create)
        self.devices: dict[Target, str] = {}
        self._faults: dict[tuple[str, str], str] = {}  # of rows read so far, by table and identifier
        self._told: set[tuple[str, str]] = set()
        self._show_sound_rows()
        if not self._connection.execute("PRAGMA database_list").fetchone()["file"]:  # a copy of a read-only file
            self._connection.execute("PRAGMA query_only = ON")

    def _show_sound_rows(self) -> None:
        """Shadow each table by a view of its sound rows; for runs the function must be sound, too. Writes go to `main`."""
        for table in exchange.TABLES.values():
            named = ", ".join(exchange.columns(table))
            shown = f"rowid, {named}" if table == "candidates" else named
            whole = " AND workload IN (SELECT key FROM workloads)" if table == "runs" else ""
            self._connection.create_function(f"sound_{table}", -1, partial(self._sound, table), deterministic=True)
            self._connection.execute(
                f"CREATE TEMP VIEW {table} AS SELECT {shown} FROM main.{table} WHERE sound_{table}({named}){whole}"
            )

    def _sound(self, table: str, *values: Any) -> bool:
        """True for a valid row; the fault of any other is kept."""
        wrong = exchange.stored_fault(table, values, OUTCOMES)
        if wrong:
            self._faults[table, str(values[0])] = wrong
        return not wrong

    def __enter__(self) -> Records:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; may be called twice."""
        self._connection.close()

    @contextmanager
    def _transaction(self, kind: str = "IMMEDIATE") -> Iterator[sqlite3.Connection]:
        """Run all statements of the context, or none. RecordsError if the file is damaged."""
        try:
            with transaction(self._connection, kind):
                yield self._connection
        except sqlite3.ProgrammingError:  # closed, or used from another thread: a mistake of the caller
            raise
        except sqlite3.Error as error:
            raise RecordsError(f"the records file {self.path} cannot be used: {error}") from None
        for row in self._faults.keys() - self._told:
            self._told.add(row)
            table, name = row
            warnings.warn(f"{self.path}: a row of {table}, {name}, is left out: {self._faults[row]}", FaultyRecord, stacklevel=4)

    def _rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        with self._transaction("DEFERRED") as connection:
            return connection.execute(query, values).fetchall()

    # --- writing -------------------------------------------------------------------------------------------------------

    def start(self, task: Task, seed: int = 0) -> str:
        """Record the start of a run, on this device unless its measurements name another. Returns the run's identifier."""
        run = uuid.uuid4().hex
        shape = None if task.workload is None else json.dumps(task.workload.shape)
        dtype = None if task.workload is None else task.workload.dtype
        known = (task.key, size_free_key(task.func), task.name, shape, dtype, task.flop, task.func.script())
        here = Provenance.here(task.target)
        versions = json.dumps(here.versions)
        own = (run, task.key, here.fingerprint, task.target, task.threads, here.device, versions, int(seed))
        with self._transaction() as connection:
            if not connection.execute("SELECT 1 FROM workloads WHERE key = ?", (task.key,)).fetchone():
                connection.execute("INSERT OR REPLACE INTO main.workloads VALUES (?, ?, ?, ?, ?, ?, ?)", known)
                self._faults.pop(("workloads", task.key), None)  # of an invalid row that is replaced
            connection.execute("INSERT INTO main.runs VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", (*own, time.time()))
            if not connection.execute("SELECT 1 FROM runs WHERE run = ?", (run,)).fetchone():
                wrong = [self._faults.pop(row) for row in (("workloads", task.key), ("runs", run)) if row in self._faults]
                raise RecordsError(f"a run of {task.name} cannot be recorded: {'; '.join(wrong)}")
        return run

    def add(self, run: str, measurement: Measurement) -> str:
        """Record the measurement of a candidate of a run, with its device and versions; returns the candidate's identifier, for
        `race`. The record is in the file on return."""
        m, identifier = measurement, uuid.uuid4().hex
        values = {
            "id": identifier,
            "sketch": m.candidate.sketch,
            "row": json.dumps(m.candidate.row),
            "trace": json.dumps(m.candidate.trace, separators=(",", ":")),
            "score": _finite(m.candidate.score),
            "scores": _json({k: v for k, v in (m.candidate.scores or {}).items() if math.isfinite(v)}),
            "origin": _json(m.candidate.origin and asdict(m.candidate.origin)),
            "digest": m.digest,
            "cut": int(m.cut),
            "build_seconds": m.build_seconds,
            **_measured(m),
        }
        with self._transaction() as connection:
            values["run"] = _run_of(connection, run, m.provenance)
            connection.execute(exchange.insert("candidates", values), values)
        return identifier

    def race(self, run: str, raced: Mapping[str, Measurement], winner: str | None) -> None:
        """Record a race of a run: the measurement of each candidate, by its identifier, and the identifier of the winner. Earlier
        timings stay. Without a winner, as on a busy machine, only the failures of a race count."""
        race = uuid.uuid4().hex
        with self._transaction() as connection:
            for identifier, m in raced.items():
                values = {"race": race, "candidate": identifier, "won": int(identifier == winner), **_measured(m)}
                values["run"] = _run_of(connection, run, m.provenance)
                connection.execute(exchange.insert("races", values), values)

    def keep_form(self, key: str, target: str | Target, form: str | None) -> None:
        """Keep the form of a function that was faster inside of a network on this target and device; None for the default one."""
        with self._transaction() as connection:
            connection.execute("DELETE FROM forms WHERE key = ? AND fingerprint = ?", (key, self.fingerprint(target)))
            if form is not None:
                connection.execute("INSERT INTO forms VALUES (?, ?, ?)", (key, self.fingerprint(target), form))

    def prune(self, keep: int = 10) -> int:
        """Remove all but the `keep` fastest valid candidates of each workload and target; returns the number removed."""
        if keep < 0:
            raise ValueError(f"keep must be at least 0, got {keep}")
        with self._transaction() as connection:
            kept: set[str] = set()
            for group in _by_task(standings(connection)).values():
                valid = [i for i, s in group.items() if math.isfinite(s.seconds)]
                kept |= set(sorted(valid, key=lambda i: group[i].order)[:keep])
            gone = [(i,) for (i,) in connection.execute("SELECT id FROM candidates") if i not in kept]
            connection.executemany("DELETE FROM main.candidates WHERE id = ?", gone)
            connection.executemany("DELETE FROM main.races WHERE candidate = ?", gone)
        try:
            self._connection.execute("VACUUM")  # makes the file smaller
        except sqlite3.OperationalError:
            pass  # another process uses the file; later records use the free space
        return len(gone)

    # --- reading -------------------------------------------------------------------------------------------------------

    def best(self, key: str, target: str | Target) -> Record | None:
        """The fastest checked candidate of the function with this key, on this target and its device; None if none."""
        return self.best_of(key, self.fingerprint(target))

    def fingerprint(self, target: str | Target) -> str:
        """The fingerprint of the target and its device."""
        resolved = Target(target)
        return self.devices.get(resolved) or fingerprint(resolved)

    def best_of(self, key: str, fingerprint: str) -> Record | None:
        """`best`, for any fingerprint."""
        return next(self.ranking(key, fingerprint), None)

    def ranking(self, key: str, fingerprint: str) -> Iterator[Record]:
        """The checked candidates of the function with this key, for a fingerprint, the fastest first."""
        with self._transaction("DEFERRED") as connection:
            found = standings(connection, "workload = ? AND fingerprint = ?", key, fingerprint)
        for best in sorted((i for i, s in found.items() if s.checked), key=lambda i: found[i].seconds):
            with self._transaction("DEFERRED") as connection:
                yield from _records(connection, found, "id = ?", best)

    def of(self, key: str, target: str | Target | None = None) -> list[Record]:
        """All candidates of the function with this key, of all targets unless one is given, in the order measured."""
        return self.of_fingerprint(key, None if target is None else self.fingerprint(target))

    def of_fingerprint(self, key: str, fingerprint: str | None) -> list[Record]:
        """`of`, for any fingerprint."""
        where, values = "workload = ?", [key]
        if fingerprint is not None:
            where, values = f"{where} AND fingerprint = ?", [key, fingerprint]
        with self._transaction("DEFERRED") as connection:
            return _records(connection, standings(connection, where, *values), where, *values)

    def forms(self, target: str | Target) -> dict[str, str]:
        """The forms that were kept for this target and device, by the keys of functions."""
        return {
            str(k): str(form)
            for k, form in self._rows("SELECT key, form FROM forms WHERE fingerprint = ?", self.fingerprint(target))
        }

    def summaries(self) -> list[Summary]:
        """One summary for each workload and target, ordered by name."""
        with self._transaction("DEFERRED") as connection:
            found = _by_task(standings(connection))
            rows = connection.execute(
                f"""SELECT workload, name, shape, fingerprint, max(target) AS target, max(threads) AS threads, max(cpu) AS cpu,
                flop, max(time) AS last, script FROM {_RECORDS}
                GROUP BY workload, fingerprint ORDER BY name, shape, fingerprint"""
            ).fetchall()
        summaries = []
        for row in map(exchange.decoded, rows):
            group = found[row["workload"], row["fingerprint"]].values()
            valid = sum(math.isfinite(s.seconds) for s in group)
            best = min((s.seconds for s in group if s.checked), default=None)
            summaries.append(Summary(**row, records=len(group), valid=valid, best=best))
        return summaries

    def near(self, func: PrimFunc, key: str) -> list[Summary]:
        """The summaries of the same computation for other shapes."""
        keys = {k for (k,) in self._rows("SELECT key FROM workloads WHERE structure = ? AND key != ?", size_free_key(func), key)}
        return [s for s in self.summaries() if s.workload in keys]

    def func(self, key: str) -> PrimFunc:
        """The function with this key, parsed from its script. KeyError if none is recorded."""
        found = self._rows("SELECT script FROM workloads WHERE key = ?", key)
        if not found:
            raise KeyError(key)
        return need_func(script.parse(found[0][0]), "a record")

    def __len__(self) -> int:
        return self._rows("SELECT count(*) FROM candidates JOIN runs USING (run)")[0][0]

    def __bool__(self) -> bool:
        return True  # an empty file is one

    # --- exchange ------------------------------------------------------------------------------------------------------

    def export(self) -> Iterator[str]:
        """All records as JSON lines, without line ends: for `import_`, other tools, and version control."""
        with self._transaction("DEFERRED") as connection:
            yield from exchange.lines(connection)

    def import_(self, lines: Iterable[str]) -> tuple[int, int]:
        """Add lines of `export`, of one file or several. Returns the numbers of new and of known candidates; records in the file
        stay unchanged. All lines are added or none; RecordsError names a wrong line."""
        items = exchange.parse(lines, OUTCOMES)
        with self._transaction() as connection:
            return exchange.merge(connection, items)


def _json(value: Any) -> str | None:
    return json.dumps(value, separators=(",", ":")) if value else None


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _measured(m: Measurement) -> dict[str, Any]:
    """The values of the columns shared by candidates and races."""
    return {
        "outcome": m.outcome,
        "message": m.message,
        "samples": json.dumps(m.samples),
        "seconds": _finite(m.seconds),
        "max_error": _finite(m.max_error),
        "time": time.time(),
    }


def _run_of(connection: sqlite3.Connection, run: str, provenance: Provenance | None) -> str:
    """The identifier of the part of a run that a device measured; the part is added if it is new."""
    if provenance is None:
        return run
    versions = json.dumps(provenance.versions)
    measured = (provenance.fingerprint, provenance.device, versions)
    own = "SELECT 1 FROM runs WHERE run = ? AND fingerprint = ? AND cpu = ? AND versions = ?"
    if connection.execute(own, (run, *measured)).fetchone():
        return run
    part = f"{run}-{hashlib.sha256(json.dumps(measured).encode()).hexdigest()[:8]}"
    connection.execute(
        """INSERT OR IGNORE INTO main.runs SELECT ?, workload, ?, target, threads, ?, ?, seed, started FROM runs WHERE run = ?""",
        (part, *measured, run),
    )
    return part


def _by_task(found: dict[str, Standing]) -> dict[tuple[str, str], dict[str, Standing]]:
    groups: dict[tuple[str, str], dict[str, Standing]] = {}
    for identifier, standing in found.items():
        groups.setdefault(standing.task, {})[identifier] = standing
    return groups


def _records(connection: sqlite3.Connection, found: dict[str, Standing], where: str, *values: Any) -> list[Record]:
    rows = connection.execute(f"SELECT {_RECORD} FROM {_RECORDS} WHERE {where} ORDER BY candidates.rowid", values)
    return [_record(found[row["id"]], exchange.decoded(row)) for row in rows]


def _record(standing: Standing, row: dict[str, Any]) -> Record:
    origin = None if row["origin"] is None else Origin.from_json(row["origin"])
    first = Measurement(
        Candidate(row["sketch"], row["row"], row["trace"], row["score"], row["scores"], origin), **_known(row), cut=row["cut"],
        build_seconds=row["build_seconds"], digest=row["digest"],
        provenance=Provenance(row["fingerprint"], row["cpu"], row["versions"]),
    )  # fmt: skip
    last = first if standing.raced is None else replace(first, **_known(exchange.decoded(standing.raced)), cut=False)
    own = {f.name: row[f.name] for f in fields(Record) if f.name in row}
    return Record(**own, first=first, measurement=last, seconds=standing.seconds)


def _known(row: dict[str, Any]) -> dict[str, Any]:
    """The fields of a measurement in a row of `_measured`."""
    return {name: row[name] for name in ("outcome", "message", "samples", "max_error")}
