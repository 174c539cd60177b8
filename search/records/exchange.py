"""Records as JSON lines: one object in each line, `{"kind": "workload" | "run" | "candidate" | "race", ...}`, after those
it refers to."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from functools import cache
from typing import Any

from .schema import TABLES as STATEMENTS
from .schema import RecordsError

TABLES = {"workload": "workloads", "run": "runs", "candidate": "candidates", "race": "races"}

# The columns that hold JSON, with the types of its values, and those that hold booleans.
JSON = {"shape": list, "versions": dict, "row": list, "trace": object, "samples": list}
BOOLEAN = ("cut", "won")
STORED = {"TEXT": (str,), "INTEGER": (int,), "REAL": (int, float)}

IDENTIFIERS = {"workloads": "key", "runs": "run", "candidates": "id"}
REFERENCES = (  # of a column of one table to a row of another
    ("runs", "workload", "workloads"),
    ("candidates", "run", "runs"),
    ("races", "run", "runs"),
    ("races", "candidate", "candidates"),
)

Item = tuple[str, dict[str, Any]]  # a table and a row of it


@cache
def columns(table: str) -> dict[str, tuple[type, ...]]:
    """The columns of a table, in order, with the types of their values as JSON data."""
    with closing(sqlite3.connect(":memory:")) as connection:
        for statement in STATEMENTS:
            connection.execute(statement)
        found = {}
        for _, name, stored, filled, *_ in connection.execute(f"PRAGMA table_info({table})"):
            kinds = (JSON[name],) if name in JSON else (bool,) if name in BOOLEAN else STORED[stored]
            found[name] = kinds if filled else (*kinds, type(None))
        return found


def insert(table: str, values: Iterable[str]) -> str:
    """The statement that inserts a row with these columns."""
    names = list(values)
    return f"INSERT INTO {table} ({', '.join(names)}) VALUES ({', '.join(':' + n for n in names)})"


def lines(connection: sqlite3.Connection) -> Iterator[str]:
    """The contents of a records file as lines; a row comes after those it refers to."""
    for kind, table in TABLES.items():
        order = {"candidates": "rowid", "races": "race, candidate"}.get(table, IDENTIFIERS.get(table))
        for row in connection.execute(f"SELECT {', '.join(columns(table))} FROM {table} ORDER BY {order}"):
            yield json.dumps({"kind": kind, **decoded(row)}, separators=(",", ":"))


def decoded(row: sqlite3.Row) -> dict[str, Any]:
    """The values of a row by column: JSON as data, its lists as tuples."""
    values = {k: json.loads(v) if k in JSON and v is not None else v for k, v in dict(row).items()}
    values |= {k: tuple(v) for k, v in values.items() if JSON.get(k) is list and v is not None}
    return values | {k: bool(values[k]) for k in BOOLEAN if k in values}


def parse(text: Iterable[str], outcomes: Sequence[str]) -> list[Item]:
    """The rows in the lines; RecordsError, with the number of the line, for a line that is wrong."""
    items: list[Item] = []
    for number, line in enumerate(text, 1):
        if not line.strip():
            continue
        try:
            content = json.loads(line)
        except ValueError as error:
            raise RecordsError(f"line {number} is not JSON: {error}") from None
        items.append(_item(number, content, outcomes))
    return items


def _item(number: int, content: Any, outcomes: Sequence[str]) -> Item:
    if not isinstance(content, dict) or content.get("kind") not in TABLES:
        raise RecordsError(f'line {number} is not a record: an object with "kind" of {", ".join(TABLES)} was expected')
    table = TABLES[content["kind"]]
    values: dict[str, Any] = {}
    for name, kinds in columns(table).items():
        value = content.get(name)
        if name not in content or not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            raise RecordsError(f"line {number}: {content['kind']}.{name} is missing or of the wrong type: {value!r}")
        written = name in JSON and (value is not None or name == "trace")
        values[name] = json.dumps(value, separators=(",", ":")) if written else value
    if values.get("outcome", "ok") not in outcomes:
        raise RecordsError(f"line {number}: there is no outcome {values['outcome']!r}")
    return table, values


def merge(connection: sqlite3.Connection, items: Sequence[Item]) -> tuple[int, int]:
    """Insert the rows that are not in the file; returns how many candidates were new, and how many were known."""
    known = {kind: {i for (i,) in connection.execute(f"SELECT {i} FROM {kind}")} for kind, i in IDENTIFIERS.items()}
    before, count = len(known["candidates"]), 0
    for table, values in sorted(items, key=lambda item: list(TABLES.values()).index(item[0])):
        for referring, column, to in REFERENCES:
            if table == referring and values[column] not in known[to]:
                raise RecordsError(f"a row of {table} is of the {column} {values[column]}, which is not among the records")
        connection.execute(insert(table, values).replace("INSERT", "INSERT OR IGNORE", 1), values)
        if table in known:
            known[table].add(values[IDENTIFIERS[table]])
        count += table == "candidates"
    new = len(known["candidates"]) - before
    return new, count - new
