"""Records as JSON lines, `{"kind": "workload" | "run" | "candidate" | "race", ...}`, each after the lines it refers to."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import cache
from math import isfinite
from statistics import median
from typing import Any

from ..measure.outcome import Origin
from .schema import TABLES as STATEMENTS
from .schema import RecordsError

TABLES = {"workload": "workloads", "run": "runs", "candidate": "candidates", "race": "races"}

# The columns that hold JSON, with the types of its values, and those that hold booleans.
JSON = {"shape": list, "versions": dict, "row": list, "trace": object, "samples": list, "scores": dict, "origin": dict}
ADDED = ("scores", "origin")  # columns that lines of earlier versions lack
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


# Columns with bounds on their numbers beyond the type.
INTEGERS = ("shape", "row")
POSITIVE = ("seconds", "samples", "threads")
NEVER_NEGATIVE = ("max_error", "build_seconds", "time", "started", "flop", "shape")  # a shape has numbers as padding, too


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
    return f"INSERT INTO main.{table} ({', '.join(names)}) VALUES ({', '.join(':' + n for n in names)})"


def lines(connection: sqlite3.Connection) -> Iterator[str]:
    """The contents of a records file as lines; a row comes after those it refers to, and is left out without them."""
    known: dict[str, set[str]] = {table: set() for table in IDENTIFIERS}
    for kind, table in TABLES.items():
        order = {"candidates": "rowid", "races": "race, candidate"}.get(table, IDENTIFIERS.get(table))
        for row in connection.execute(f"SELECT {', '.join(columns(table))} FROM {table} ORDER BY {order}"):
            if all(row[column] in known[to] for referring, column, to in REFERENCES if table == referring):
                if table in known:
                    known[table].add(row[IDENTIFIERS[table]])
                yield json.dumps({"kind": kind, **decoded(row)}, separators=(",", ":"))


def decoded(row: sqlite3.Row) -> dict[str, Any]:
    """The values of a row by column: JSON as data, its lists as tuples."""
    values = {k: json.loads(v) if k in JSON and v is not None else v for k, v in dict(row).items()}
    values |= {k: tuple(v) for k, v in values.items() if JSON.get(k) is list and v is not None}
    return values | {k: bool(values[k]) for k in BOOLEAN if k in values}


def parse(text: Iterable[str], outcomes: Sequence[str]) -> list[Item]:
    """The rows in the lines; RecordsError, with the number of the line, for a wrong one."""
    items: list[Item] = []
    for number, line in enumerate(text, 1):
        if not line.strip():
            continue
        try:
            content = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise RecordsError(f"line {number} is not JSON: {error}") from None
        items.append(_item(number, content, outcomes))
    return items


def _item(number: int, content: Any, outcomes: Sequence[str]) -> Item:
    if not isinstance(content, dict) or content.get("kind") not in TABLES:
        raise RecordsError(f'line {number} is not a record: expected an object with "kind" of {", ".join(TABLES)}')
    table = TABLES[content["kind"]]
    if wrong := fault(table, content, outcomes):
        raise RecordsError(f"line {number}: {content['kind']}.{wrong}")
    values: dict[str, Any] = {}
    for name in columns(table):
        value = content.get(name)
        written = name in JSON and (value is not None or name == "trace")
        values[name] = json.dumps(value, separators=(",", ":")) if written else value
    return table, values


def fault(table: str, content: Mapping[str, Any], outcomes: Sequence[str]) -> str:
    """The fault in a row of a table, its JSON as data: a column and the reason, or empty."""
    for name, kinds in columns(table).items():
        value = content.get(name)
        if (
            (name not in content and name not in ADDED)
            or not isinstance(value, kinds)
            or (isinstance(value, bool) and bool not in kinds)
        ):
            return f"{name} is missing or of the wrong type: {value!r}"
        if name == "trace" or isinstance(value, bool) or not isinstance(value, (list, int, float)):
            continue
        if wrong := _number_fault(name, value):
            return wrong
    if wrong := _search_fault(content):
        return wrong
    if content.get("outcome", "ok") not in outcomes:
        return f"outcome is {content['outcome']!r}; expected one of {', '.join(outcomes)}"
    if content.get("outcome") == "ok" and content["seconds"] is not None:
        times = content["samples"]
        if not times or content["seconds"] < median(times):  # in files of version 1 a lost race makes it larger
            return f"seconds is {content['seconds']!r}, which is not the median of the samples {times!r}"
    return ""


def _search_fault(content: Mapping[str, Any]) -> str:
    """The fault in the scores or the origin of a candidate, or empty."""
    scores = content.get("scores") or {}
    if any(isinstance(n, bool) or not isinstance(n, (int, float)) or not _finite(n) for n in scores.values()):
        return f"scores must be finite numbers, got {scores!r}"
    try:
        _ = content.get("origin") and Origin.from_json(content["origin"])
    except (KeyError, TypeError, ValueError) as error:
        return f"origin makes no sense: {error!r}"
    return ""


def _finite(n: int | float) -> bool:
    """True for a finite number within the range of floats."""
    try:
        return isfinite(n)
    except OverflowError:
        return False


def _number_fault(name: str, value: list | int | float) -> str:
    """The fault in the number, or the list of numbers, of a column, or empty."""
    kind = int if name in INTEGERS else (int, float)
    for n in value if isinstance(value, list) else [value]:
        if not isinstance(n, kind) or isinstance(n, bool) or not _finite(n):
            return f"{name} must be {'integers' if name in INTEGERS else 'finite numbers'}, got {value!r}"
        if (n < 0 and name in NEVER_NEGATIVE) or (n <= 0 and name in POSITIVE):
            return f"{name} is {value!r}, and must be {'at least' if name in NEVER_NEGATIVE else 'more than'} 0"
    return ""


def stored_fault(table: str, values: Sequence[Any], outcomes: Sequence[str]) -> str:
    """The `fault` of a stored row, in the order of its columns."""
    content: dict[str, Any] = dict(zip(columns(table), values, strict=True))
    for name in JSON.keys() & content.keys():
        if content[name] is not None:
            try:
                content[name] = json.loads(content[name], parse_constant=str)
            except (TypeError, ValueError, RecursionError) as error:
                return f"{name} is not JSON: {error}"
    for name in content.keys() & set(BOOLEAN):
        if content[name] not in (0, 1):
            return f"{name} must be 0 or 1, got {content[name]!r}"
        content[name] = bool(content[name])
    return fault(table, content, outcomes)


def merge(connection: sqlite3.Connection, items: Sequence[Item]) -> tuple[int, int]:
    """Insert the rows that are not in the file; returns the numbers of new and of known candidates."""
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
