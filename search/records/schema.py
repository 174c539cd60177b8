"""The tables of a records file, and its opening. Files of other programs are refused and not changed."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tir.nearest import near_file

APPLICATION_ID = 0x74697231  # "tir1": marks a file as ours
VERSION = 4
BUSY_SECONDS = 60.0  # seconds to wait for another process's transaction

RACES = """CREATE TABLE races (
    race TEXT NOT NULL,         -- the race, in which candidates were timed in turns
    run TEXT NOT NULL,          -- the run that the race belongs to
    candidate TEXT NOT NULL,
    outcome TEXT NOT NULL,
    message TEXT NOT NULL,
    samples TEXT NOT NULL,      -- JSON list: seconds of each turn, in order
    seconds REAL,               -- median of the samples; NULL unless ok
    max_error REAL,
    won INTEGER NOT NULL,       -- a race without a winner, as on a busy machine, has no times
    time REAL NOT NULL,         -- when it ended
    PRIMARY KEY (race, candidate)
) WITHOUT ROWID"""

FORMS = """CREATE TABLE forms (
    key TEXT NOT NULL,          -- of a function that is computed in another form inside of networks
    fingerprint TEXT NOT NULL,
    form TEXT NOT NULL,         -- its name: graph.alternatives
    PRIMARY KEY (key, fingerprint)
) WITHOUT ROWID"""

TABLES = (
    """CREATE TABLE workloads (
    key TEXT PRIMARY KEY,       -- key of the function: search.keys.key
    structure TEXT NOT NULL,    -- key of the function without its sizes
    name TEXT NOT NULL,
    shape TEXT,                 -- JSON list; NULL unless the workload is one of tir.workloads
    dtype TEXT,
    flop INTEGER NOT NULL,
    script TEXT NOT NULL        -- the function, to be parsed
) WITHOUT ROWID""",
    # One row for a run and each device that measured for it.
    """CREATE TABLE runs (
    run TEXT PRIMARY KEY,
    workload TEXT NOT NULL,
    fingerprint TEXT NOT NULL,  -- key of target and device
    target TEXT NOT NULL,
    threads INTEGER NOT NULL,
    cpu TEXT NOT NULL,          -- the name of the device, a CPU or a GPU
    versions TEXT NOT NULL,     -- JSON object: those of the process that measured
    seed INTEGER NOT NULL,
    started REAL NOT NULL
) WITHOUT ROWID""",
    """CREATE TABLE candidates (
    id TEXT NOT NULL UNIQUE,
    run TEXT NOT NULL,
    sketch TEXT NOT NULL,
    row TEXT NOT NULL,          -- JSON list: the numbers in the sketch's holes
    trace TEXT NOT NULL,        -- JSON
    score REAL,                 -- of the cost model, when it was proposed
    digest TEXT NOT NULL,       -- hash of the scheduled program
    outcome TEXT NOT NULL,
    message TEXT NOT NULL,
    samples TEXT NOT NULL,      -- JSON list: seconds of each run, in order
    seconds REAL,               -- median of the samples; NULL unless ok
    cut INTEGER NOT NULL,       -- whether timing was stopped early, because it was slow
    max_error REAL,             -- relative to the reference; NULL if not compared
    build_seconds REAL NOT NULL,
    time REAL NOT NULL,         -- when it ended, seconds since 1970
    scores TEXT,                -- JSON object: the score of each model, by its name
    origin TEXT                 -- JSON object: operator, batch, generation and parents; search.measure.Origin
)""",
    RACES,
    FORMS,
    "CREATE INDEX candidates_of_run ON candidates (run, outcome, seconds)",
    "CREATE INDEX runs_of_workload ON runs (workload, fingerprint)",
)

# From each version to the next. Version 1 had at most one race for each candidate, and stored its result in `seconds`.
MIGRATIONS = {
    1: (
        RACES,
        """INSERT INTO races SELECT 'of ' || run, run, id, outcome, message, race, NULL, max_error, 0, changed
        FROM candidates WHERE race IS NOT NULL""",
        "ALTER TABLE candidates DROP COLUMN race",
        "ALTER TABLE candidates DROP COLUMN changed",
    ),
    2: ("ALTER TABLE candidates ADD COLUMN scores TEXT", "ALTER TABLE candidates ADD COLUMN origin TEXT"),
    3: (FORMS,),
}


class RecordsError(Exception):
    """The file cannot be used: it is missing, damaged, or no records file, as the message says."""


def connect(path: Path, create: bool) -> sqlite3.Connection:
    """Open the records file at `path`, which is created if missing and `create` is true. If the file or its folder is not
    writable, it is opened for reading only. An older version is then read from a copy in memory. RecordsError, with the file
    unchanged, if it cannot be opened."""
    if path.is_dir():
        raise RecordsError(f"{path} is a directory; expected the name of a records file")
    if not path.exists():
        if not create:
            raise RecordsError(f"records file {path} does not exist{near_file(path)}")
        if not path.absolute().parent.is_dir():
            raise RecordsError(f"cannot make the records file {path}: folder {path.absolute().parent} does not exist")
    elif not path.is_file():
        raise RecordsError(f"{path} is no regular file; expected the name of a records file")
    writable = not path.exists() or all(os.access(p, os.W_OK) for p in (path, path.resolve().parent))
    name = path.absolute() if writable else _to_read(path.resolve())  # absolute, so that `:memory:` is a file too
    try:
        connection = sqlite3.connect(name, timeout=BUSY_SECONDS, isolation_level=None, uri=not writable)
    except (sqlite3.Error, ValueError) as error:
        raise RecordsError(f"cannot open the records file {path}: {error}") from None
    connection.row_factory = sqlite3.Row
    try:
        connection = _claim(connection, path, writable)
    except sqlite3.OperationalError as error:  # it is locked, it may not be written, or the disk is full
        connection.close()
        raise RecordsError(f"cannot use the records file {path}: {error}") from None
    except sqlite3.Error as error:
        connection.close()
        raise RecordsError(f"{path} is not a records file, or is damaged: {error}") from None
    except BaseException:
        connection.close()
        raise
    return connection


def _to_read(path: Path) -> str:
    """The URI of a file to open for reading only; without a write-ahead log it is immutable, because none can be created."""
    logged = path.with_name(path.name + "-wal").exists()
    return f"{path.as_uri()}?mode=ro{'' if logged else '&immutable=1'}"


def _claim(connection: sqlite3.Connection, path: Path, writable: bool) -> sqlite3.Connection:
    """Check a records file, create its tables if empty, and migrate it, or a copy, if older. Returns the connection."""
    with transaction(connection, "DEFERRED"):  # atomic: another process may be creating the file
        version = _version(connection, path)
    if version == 0 and not writable:
        raise RecordsError(f"{path} is not a records file: it is empty, and may not be written")
    if version != VERSION and not writable:
        copy = sqlite3.connect(":memory:", isolation_level=None)
        copy.row_factory = sqlite3.Row
        connection.backup(copy)
        connection.close()
        connection = copy
    if version != VERSION:
        with transaction(connection, "IMMEDIATE"):
            version = _version(connection, path)  # another process may have created or migrated it meanwhile
            statements = TABLES if version == 0 else [s for n in range(version, VERSION) for s in MIGRATIONS[n]]
            for statement in statements if version != VERSION else ():
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {VERSION}")
    if writable:
        _write_ahead(connection)
        connection.execute("PRAGMA synchronous = FULL")
    return connection


@contextmanager
def transaction(connection: sqlite3.Connection, kind: str) -> Iterator[None]:
    """Run all statements of the context, or none."""
    connection.execute(f"BEGIN {kind}")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:  # SQLite has ended it if the disk is full
            connection.execute("ROLLBACK")
        raise


def _version(connection: sqlite3.Connection, path: Path) -> int:
    """The version of the tables in the file; 0 if it is empty. RecordsError if it is no records file, or of a newer version."""
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if application == APPLICATION_ID:
        if not 1 <= version <= VERSION:
            raise RecordsError(f"{path} holds records of version {version}; this tir reads version {VERSION}")
        return version
    if tables or application or version:
        raise RecordsError(f"{path} is an SQLite file of another program, not a records file")
    return 0


def _write_ahead(connection: sqlite3.Connection) -> None:
    """Switch to write-ahead logging; retry while another process holds the lock, which the busy timeout does not cover."""
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.01)
