"""`--records FILE`: list, look up, exchange and prune recorded measurements."""

from __future__ import annotations

import argparse
import json
import os
import sys
import warnings
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from codegen.runtime.timing import duration
from tir.files import write_atomically

from ..options import Usage, accessing, parse_target, refusing, writable
from .program import parse_program
from .saved import save, saved_to
from .table import describe

if TYPE_CHECKING:
    from search.records import Record, Records

DEFAULT_KEEP = 10  # records of each task that prune keeps without --keep


def run_command(args: argparse.Namespace) -> int:
    """Run the command that the first word names; returns the exit status, 1 if nothing was found."""
    from search.records import Records, RecordsError

    command, *words = args.words
    if command == "import":
        _check_readable(words)  # before the records file is made
    with refusing("--records", RecordsError), Records(args.records, create=command == "import") as records:
        match command:
            case "list":
                return _list(records, args.json)
            case "best":
                return _best(records, words[0], args) if words else _best_of_all(records, args.json)
            case "export":
                return _export(records, words[0] if words else "-", args)
            case "import":
                return _import(records, words, args)
            case _:
                removed = records.prune(DEFAULT_KEEP if args.keep is None else args.keep)
                counts = {"removed": removed, "records": len(records)}
                _say(counts, f"removed {removed} records; {len(records)} are left", args)
                return 0


def _list(records: Records, as_json: bool) -> int:
    found = records.summaries()
    if as_json:
        described = [{name: getattr(s, name) for name in ("workload", "target", "records", "best")} for s in found]
        print(json.dumps(described, allow_nan=False))
        return 0
    if not found:
        print(f"{records.path} has no records")
        return 0
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for title in ("workload", "target", "processor"):
        table.add_column(title, overflow="fold")
    for title in ("records", "valid", "best", "GFLOP/s"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("last", no_wrap=True)
    for s in found:
        best = ("-", "-") if s.best is None else (duration(s.best), f"{s.flop / s.best / 1e9:.1f}")
        when = datetime.fromtimestamp(s.last).strftime("%Y-%m-%d %H:%M")
        table.add_row(s.title, s.target, s.cpu, str(s.records), str(s.valid), *best, when)
    console = Console(file=sys.stdout, width=None if sys.stdout.isatty() else 160, highlight=False)
    console.print(table)
    return 0


def _best_of_all(records: Records, as_json: bool) -> int:
    found = [(s, r) for s in records.summaries() if (r := records.best_of(s.workload, s.fingerprint)) is not None]
    if as_json:
        print(json.dumps([_described(r) for _, r in found], allow_nan=False))
    else:
        for s, r in found:
            m = r.measurement
            print(f"{s.title}  {r.target}  {duration(r.seconds)}  {m.candidate.sketch} {list(m.candidate.row)}")
    if not found:
        print(f"error: {records.path} has no valid record", file=sys.stderr)
    return 0 if found else 1


def _described(r: Record) -> dict[str, Any]:
    m, candidate = r.measurement, r.measurement.candidate
    own = ("workload", "target", "seconds", "name", "shape", "threads", "cpu", "versions", "seed", "time")
    measured = {"max_error": m.max_error, "samples": m.samples}
    return {
        **{name: getattr(r, name) for name in own}, **measured, "sketch": candidate.sketch, "row": candidate.row,
        "trace": candidate.trace,
    }  # fmt: skip


def _best(records: Records, name: str, args: argparse.Namespace) -> int:
    """Print the best record of a workload and its schedule; with a warning if it is of another target."""
    from search.records import NearHit, NoRecord, best_schedule, look_up

    program = parse_program(name, args.shape)
    target = parse_target(args.target or "llvm", args.threads)
    out = None if args.out is None else writable("--out", args.out)
    found = look_up(program.func, target, records)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NearHit)  # printed below, as a warning of the command line
            schedule = best_schedule(program.func, target, records=records)
    except NoRecord as error:
        print(f"error: {error}", file=sys.stderr)
        if args.json:
            print(json.dumps({"found": "miss", "why": str(error)}))
        return 1
    record = found.record
    assert record is not None  # `best_schedule` raises otherwise
    if found.kind == "near":
        print(f"warning: {found.why}", file=sys.stderr)
    report = sys.stderr if args.json else sys.stdout
    print(f"{record.title}  {record.target}  {record.cpu}  {duration(record.seconds)}", file=report)
    print(schedule.func.script() if args.show else schedule.trace, file=report)
    if out is not None:
        content = {
            **describe(program, args.target or "llvm", target.num_cores),
            "seed": record.seed,
            "versions": record.versions,
            "key": record.workload,
            "max_error": record.measurement.max_error,
            "seconds": {"unscheduled": None, "best": record.seconds, "numpy": None},
            "trace": record.measurement.candidate.trace,
        }
        with accessing(f"cannot write {out}"):
            save(out, content)
        print(saved_to(out, content["workload"]), file=report)
    if args.json:
        print(json.dumps({"found": found.kind, **_described(record)}, allow_nan=False))
    return 0


def _export(records: Records, name: str, args: argparse.Namespace) -> int:
    if name == "-":
        for line in records.export():
            print(line)
        return 0
    path = writable("export", name)
    if path.exists() and os.path.samefile(path, records.path):
        raise Usage(f"export: {name} is the records file itself")
    lines = list(records.export())
    with accessing(f"cannot write {path}"):
        write_atomically(path, "".join(line + "\n" for line in lines))
    _say({"file": str(path), "records": len(records)}, f"wrote {len(records)} records to {path}", args)
    return 0


def _import(records: Records, names: list[str], args: argparse.Namespace) -> int:
    from search.records import RecordsError

    new = known = 0
    for name in names:
        with refusing(f"import: {name}", RecordsError):
            added, here = records.import_(_lines(name))
        new, known = new + added, known + here
    text = f"{new} new records, {known} known before; {records.path} has {len(records)}"
    _say({"new": new, "known": known, "records": len(records)}, text, args)
    return 0


def _check_readable(names: list[str]) -> None:
    for name in names:
        if name != "-":
            with accessing(f"import: cannot read {name}"):
                Path(name).open("rb").close()


def _lines(name: str) -> Iterator[str]:
    try:
        if name == "-":
            yield from sys.stdin
            return
        with Path(name).open(encoding="utf-8") as file:
            yield from file
    except UnicodeDecodeError:
        raise Usage(f"import: {name} is not text; expected the output of export") from None


def _say(content: dict[str, Any], text: str, args: argparse.Namespace) -> None:
    if args.json:
        print(json.dumps(content))
    elif not args.quiet:
        print(text)
