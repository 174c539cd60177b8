"""The records file: runs, their candidates, and what is asked of them."""

from __future__ import annotations

import json
import math
import re
import sqlite3
import time
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tir.ir import PrimFunc

from ..measure.outcome import OUTCOMES, Candidate, Measurement
from ..provenance import fingerprint, processor, versions
from ..task import Task, structure
from . import exchange
from .schema import RecordsError, connect

if TYPE_CHECKING:
    from codegen import Target


@dataclass(frozen=True, slots=True)
class Record:
    """One measured candidate. `workload` is the key of its function, `fingerprint` that of its target and processor, `seconds`
    the median of the final race, else of the first timing (infinite unless the outcome is ok); `time`, when it ended, and
    `started`, when its run did, are seconds since 1970."""

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
    measurement: Measurement
    seconds: float
    time: float
    started: float

    @property
    def title(self) -> str:
        """The workload as a person knows it: `gmm 7,13,109`."""
        return title(self.name, self.shape)


@dataclass(frozen=True, slots=True)
class Summary:
    """What is recorded of one workload on one target: `records` candidates, of which `valid` ran; the `best` checked one took so
    many seconds (None if there is none)."""

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
        """The workload as a person knows it; of any other function the name, and the types and shapes of its arrays."""
        if self.shape:
            return title(self.name, self.shape)
        arrays = re.findall(r'T\.Buffer\(\(([\d, ]*)\), "(\w+)"\)', self.script.partition("):\n")[0])
        return " ".join([self.name, *(f"{dtype}[{shape.rstrip(', ')}]" for shape, dtype in arrays)])


def title(name: str, shape: tuple[int, ...] | None) -> str:
    return f"{name} {','.join(map(str, shape))}" if shape else name


_RECORDS = "candidates JOIN runs USING (run) JOIN workloads ON runs.workload = workloads.key"
_RECORD = """id, run, workload, name, shape, dtype, fingerprint, target, threads, cpu, versions, seed, sketch, row, trace, score,
    digest, outcome, message, samples, race, seconds, cut, max_error, build_seconds, time, started"""


class Records:
    """The records in the file `path`; it is made if it is missing, unless `create` is false. A context manager that closes it.

    Every method is one short transaction. RecordsError for a file that is missing, damaged or something else.
    """

    def __init__(self, path: str | Path, *, create: bool = True):
        if not isinstance(path, (str, Path)):
            raise RecordsError(f"the name of a records file was expected, got {path!r}")
        self.path = Path(path)
        self._connection = connect(self.path, create)

    def __enter__(self) -> Records:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file. May be called twice."""
        self._connection.close()

    @contextmanager
    def _transaction(self, kind: str = "IMMEDIATE") -> Iterator[sqlite3.Connection]:
        """All of the statements within, or none; damage to the file as RecordsError."""
        connection = self._connection
        try:
            connection.execute(f"BEGIN {kind}")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
        except sqlite3.ProgrammingError:  # closed, or used from another thread: a mistake of the caller
            raise
        except sqlite3.Error as error:
            raise RecordsError(f"the records file {self.path} cannot be used: {error}") from None

    def _rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        with self._transaction("DEFERRED") as connection:
            return connection.execute(query, values).fetchall()

    # --- writing -------------------------------------------------------------------------------------------------------

    def start(self, task: Task, seed: int = 0) -> str:
        """Begin a run: who measures what, where, with which versions. Returns its identifier, for `add`."""
        run = uuid.uuid4().hex
        shape = None if task.workload is None else json.dumps(task.workload.shape)
        dtype = None if task.workload is None else task.workload.dtype
        known = (task.key, structure(task.func), task.name, shape, dtype, task.flop, task.func.script())
        own = (run, task.key, fingerprint(task.target), task.target, task.threads, processor(), json.dumps(versions()), int(seed))
        with self._transaction() as connection:
            connection.execute("INSERT OR IGNORE INTO workloads VALUES (?, ?, ?, ?, ?, ?, ?)", known)
            connection.execute("INSERT INTO runs VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", (*own, time.time()))
        return run

    def add(self, run: str, measurement: Measurement) -> str:
        """Record what became of a candidate of a run; returns its identifier, for `retime`. It is in the file on return."""
        m, identifier, now = measurement, uuid.uuid4().hex, time.time()
        values = {
            "id": identifier,
            "run": run,
            "sketch": m.candidate.sketch,
            "row": json.dumps(m.candidate.row),
            "trace": json.dumps(m.candidate.trace, separators=(",", ":")),
            "score": _finite(m.candidate.score),
            "digest": m.digest,
            "outcome": m.outcome,
            "message": m.message,
            "samples": json.dumps(m.samples),
            "race": None,
            "seconds": _finite(m.seconds),
            "cut": int(m.cut),
            "max_error": _finite(m.max_error),
            "build_seconds": m.build_seconds,
            "time": now,
            "changed": now,
        }
        with self._transaction() as connection:
            connection.execute(exchange.insert("candidates", values), values)
        return identifier

    def retime(self, identifier: str, measurement: Measurement) -> None:
        """Record what a candidate did in a final race: timings beside others, or that it failed after all."""
        m = measurement
        with self._transaction() as connection:
            connection.execute(
                """UPDATE candidates SET outcome = ?, message = ?, race = ?, seconds = ?, cut = 0, max_error = ?, changed = ?
                WHERE id = ?""",
                (m.outcome, m.message, json.dumps(m.samples), _finite(m.seconds), _finite(m.max_error), time.time(), identifier),
            )

    def won(self, winner: str, others: Iterable[str]) -> None:
        """Record that a candidate won a race: none of the `others`, identifiers too, counts as faster, whatever its timings, of
        which the shortest of many is one that had luck."""
        with self._transaction() as connection:
            found = connection.execute("SELECT seconds FROM candidates WHERE id = ?", (winner,)).fetchone()
            if found is None:
                return
            least = math.nextafter(found[0], math.inf)
            connection.executemany(
                "UPDATE candidates SET seconds = ?, changed = ? WHERE id = ? AND outcome = 'ok' AND seconds < ?",
                [(least, time.time(), other, least) for other in others if other != winner],
            )

    def prune(self, keep: int = 10) -> int:
        """Remove all but the `keep` fastest valid candidates of each workload and target; returns how many went."""
        if keep < 0:
            raise ValueError(f"keep must be at least 0, got {keep}")
        with self._transaction() as connection:
            kept = f"""SELECT id FROM (SELECT id, row_number() OVER (
                PARTITION BY workload, fingerprint ORDER BY max_error IS NULL, seconds) AS place
                FROM {_RECORDS} WHERE outcome = 'ok') WHERE place <= ?"""
            removed = connection.execute(f"DELETE FROM candidates WHERE id NOT IN ({kept})", (keep,)).rowcount
        try:
            self._connection.execute("VACUUM")  # gives the room back
        except sqlite3.OperationalError:
            pass  # others are at work; they, or a later call, will reuse it
        return removed

    # --- reading -------------------------------------------------------------------------------------------------------

    def best(self, key: str, target: str | Target) -> Record | None:
        """The fastest candidate of the function with this key, on this target and this machine's processor, that was compared
        with the reference; None if there is none."""
        return self.best_of(key, fingerprint(target))

    def best_of(self, key: str, print_: str) -> Record | None:
        """`best`, of any fingerprint."""
        found = self._records(
            "workload = ? AND fingerprint = ? AND outcome = 'ok' AND max_error IS NOT NULL ORDER BY seconds LIMIT 1", key, print_
        )
        return found[0] if found else None

    def of(self, key: str, target: str | Target | None = None) -> list[Record]:
        """All candidates of the function with this key, of all targets unless one is given, in the order measured."""
        if target is None:
            return self._records("workload = ? ORDER BY candidates.rowid", key)
        return self._records("workload = ? AND fingerprint = ? ORDER BY candidates.rowid", key, fingerprint(target))

    def list(self) -> list[Summary]:
        """What there is, a row a workload and target, by name."""
        found = self._rows(
            f"""SELECT workload, name, shape, fingerprint, max(target), max(threads), max(cpu), count(*), sum(outcome = 'ok'),
            min(CASE WHEN outcome = 'ok' AND max_error IS NOT NULL THEN seconds END), max(flop), max(time),
            max(script) FROM {_RECORDS} GROUP BY workload, fingerprint ORDER BY name, shape, fingerprint"""
        )
        return [Summary(*row[:2], _shape(row[2]), *row[3:]) for row in found]

    def near(self, func: PrimFunc, key: str) -> list[Summary]:
        """What there is of the same computation for other shapes."""
        keys = {k for (k,) in self._rows("SELECT key FROM workloads WHERE structure = ? AND key != ?", structure(func), key)}
        return [s for s in self.list() if s.workload in keys]

    def func(self, key: str) -> PrimFunc:
        """The function with this key, made again from its script. KeyError if none is recorded."""
        from tir import script

        found = self._rows("SELECT script FROM workloads WHERE key = ?", key)
        if not found:
            raise KeyError(key)
        return script.parse(found[0][0])

    def __len__(self) -> int:
        return self._rows("SELECT count(*) FROM candidates")[0][0]

    def __bool__(self) -> bool:
        return True  # an empty file is one

    def _records(self, where: str, *values: Any) -> list[Record]:
        return [_record(*row) for row in self._rows(f"SELECT {_RECORD} FROM {_RECORDS} WHERE {where}", *values)]

    # --- exchange ------------------------------------------------------------------------------------------------------

    def export(self) -> Iterator[str]:
        """All records as JSON lines, without line ends: for `import_`, other tools, and version control."""
        with self._transaction("DEFERRED") as connection:
            yield from exchange.lines(connection)

    def import_(self, lines: Iterable[str]) -> tuple[int, int]:
        """Add what `export` gave, of any number of files: how many candidates were new, and how many were here already (the
        version that was written last stays). All or nothing; RecordsError names the line that is not understood."""
        items = exchange.parse(lines, OUTCOMES)
        with self._transaction() as connection:
            return exchange.merge(connection, items)


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _shape(text: str | None) -> tuple[int, ...] | None:
    return None if text is None else tuple(json.loads(text))


def _record(*row: Any) -> Record:
    (identifier, run, workload, name, shape, dtype, print_, target, threads, cpu, versions_, seed, sketch, numbers, trace, score,
     digest, outcome, message, samples, race, seconds, cut, max_error, build_seconds, when, started) = row  # fmt: skip
    candidate = Candidate(sketch, tuple(json.loads(numbers)), json.loads(trace), score)
    timed = tuple(json.loads(race)) if race else ()
    measurement = Measurement(
        candidate, outcome, timed or tuple(json.loads(samples)), message, bool(cut), build_seconds, digest, max_error=max_error
    )
    return Record(
        identifier, run, workload, name, _shape(shape), dtype, print_, target, threads, cpu, json.loads(versions_), seed,
        measurement, math.inf if seconds is None else seconds, when, started,
    )  # fmt: skip
