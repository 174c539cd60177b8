"""The command `python -m benchmarks`: measures, prints a JSON object a result on standard output and tables on standard error.

Exit status 0 on success, 1 where a row failed, 2 for bad usage, 130 after Ctrl-C.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from importlib import import_module
from types import ModuleType
from typing import Any

from cli.options import positive_float, positive_int
from codegen.processor import host_cores
from tir.nearest import no_such

from . import BENCHMARKS, DEFAULT
from .options import SCHEDULES, Options
from .runner import ROOT, THREAD_VARIABLES, environment, load

KEPT_APART = (
    "machine",
    "versions",
    "commit",
    "pinned",
    "started",
    "library_kernels",
    "handicapped",
    "benchmark",
    "row",
)  # keys of a result that the standard table omits

SEARCHING = ("ablation", "policies", "quality")  # these keep to --minutes
# These keep what they find with --save.
SAVING = (
    *SEARCHING,
    *(
        "model",
        "cpu",
        "levels",
        "perturb",
        "calls",
        "interleaved",
        "breadth",
        "networks",
        "torch",
        "distributed",
        "symbolic",
        "interop",
        "generate",
    ),
)


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Measure; print JSON lines on standard output, tables on standard error.",
        epilog="example: python -m benchmarks cpu --threads 1 --rows gemm-1024,softmax",
        allow_abbrev=False,
    )
    p.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help=f"of: {', '.join(BENCHMARKS)} (default: {', '.join(DEFAULT)}); or gpu, with options of its own: gpu --help",
    )
    p.add_argument(
        "--rows", metavar="ROWS", help="rows separated by commas; gemm means all of gemm-..., all means all (see --list)"
    )
    p.add_argument("--threads", metavar="N", help="one or more numbers of threads, as in 1,2 (default: 1 and all cores)")
    p.add_argument("--schedule", choices=SCHEDULES, default="default", help="what cpu measures (default: default)")
    p.add_argument(
        "--trials",
        type=positive_int,
        metavar="N",
        help="of a search: --schedule tuned (default 64), ablation and policies (48), quality (256), model (512); distributed: "
        "to record (192)",
    )
    p.add_argument(
        "--seeds",
        type=positive_int,
        default=5,
        metavar="N",
        help="runs of each search of ablation, policies and distributed (default 5)",
    )
    p.add_argument("--best", metavar="DIR", help="with --schedule tuned: no search, but the schedules in DIR/*.json")
    p.add_argument("--save", metavar="DIR", help=f"{', '.join(SAVING)}: keep what is found in DIR, and a page of it")
    p.add_argument("--types", metavar="TYPES", help="networks: rows of these types alone, as in float32,int8")
    p.add_argument("--models", metavar="DIR", help="networks, generate, symbolic: the folder of files, made where missing")
    p.add_argument(
        "--seconds", type=positive_float, metavar="S", help="to time a row for (default 2); quality: to search for (default 300)"
    )
    p.add_argument(
        "--minutes", type=positive_float, metavar="M", help=f"{', '.join(SEARCHING)}: for all rows together, shared by those left"
    )
    p.add_argument("--all", action="store_true", help="all rows, as --rows all")
    p.add_argument("--policies", metavar="NAMES", help="policies: of these policies alone, as in evolution,lfbo")
    p.add_argument("--quick", action="store_true", help="policies: one seed of few trials, for a first look in ten minutes")
    p.add_argument("--race", action="store_true", help="policies: no more runs, compare those that are kept in --save DIR")
    p.add_argument("--seed", type=int, default=0, metavar="N", help="of data and random choices (default 0)")
    p.add_argument("--list", action="store_true", help="list the rows of each benchmark and end")
    return p


def main(argv: Sequence[str] | None = None) -> int:
    given = sys.argv[1:] if argv is None else argv
    if given[:1] == ["gpu"]:  # has options of its own
        return int(import_module("benchmarks.gpu").main(given[1:]))
    p = parser()
    args = p.parse_args(given)
    names = list(dict.fromkeys(args.names)) or list(DEFAULT)
    if unknown := [n for n in names if n not in BENCHMARKS]:
        p.error(f"no benchmark is named {unknown[0]!r}; there are: {', '.join(BENCHMARKS)}")
    modules = {}
    for name in BENCHMARKS if args.list and not args.names else names:
        try:
            modules[name] = import_module(f"benchmarks.{name}")
        except ModuleNotFoundError as error:
            if not args.list:
                p.error(f"{name} needs the package {error.name}, which is not installed: pip install {error.name}")
            print(f"{name}: not available without the package {error.name}")
    if args.list:
        for name, module in modules.items():
            print(f"{name}: {(module.__doc__ or '').splitlines()[0]}\n    {', '.join(module.ROWS)}")
        return 0
    try:
        chosen = select(modules, "all" if args.all else args.rows)
        threads = _threads(args.threads)
        if args.best and args.schedule != "tuned":
            raise ValueError(f"--best needs --schedule tuned, not {args.schedule}")
        if args.save and not set(SAVING) & set(names):
            raise ValueError(f"--save is for {', '.join(SAVING)}, not {', '.join(names)}")
        if args.types and "networks" not in names:
            raise ValueError(f"--types is for networks, not {', '.join(names)}")
        if args.types:
            chosen["networks"] = modules["networks"].of_types(chosen["networks"], args.types)
        if args.models and not {"networks", "generate", "symbolic"} & set(names):
            raise ValueError(f"--models is for networks, generate and symbolic, not {', '.join(names)}")
        if args.minutes is not None and not set(SEARCHING) & set(names):
            raise ValueError(f"--minutes is for {', '.join(SEARCHING)}, not {', '.join(names)}")
        if args.policies is not None:
            if "policies" not in names:
                raise ValueError(f"--policies is for policies, not {', '.join(names)}")
            modules["policies"].chosen(Options(policies=args.policies))
        if args.quick and "policies" not in names:
            raise ValueError(f"--quick is for policies, not {', '.join(names)}")
        if args.race and ("policies" not in names or not args.save):
            raise ValueError("--race is for policies with --save DIR")
        if args.best and not os.path.isdir(args.best):
            raise ValueError(f"--best: {args.best} is not a folder")
    except ValueError as error:
        p.error(str(error))

    if (busy := load()) > 0.5:
        print(f"warning: the machine is busy (load {busy:.1f}): the timings are not reliable", file=sys.stderr)
    folders = {name: (path := getattr(args, name)) and os.path.abspath(path) for name in ("best", "save", "models")}
    options = Options(
        seed=args.seed,
        schedule=args.schedule,
        seeds=args.seeds,
        quick=args.quick,
        race=args.race,
        policies=args.policies,
        **folders,
    )
    results: dict[str, list[dict[str, Any]]] = {name: [] for name in chosen}
    interrupted = False
    parts = {name: threads if getattr(modules[name], "THREADED", False) else threads[:1] for name in chosen}
    left = sum(map(len, parts.values()))  # of which each gets an equal share of the time that is left
    end = None if args.minutes is None else time.time() + 60 * args.minutes
    try:
        for name, rows in chosen.items():
            for count in parts[name]:
                print(f"{name}, {count} thread{'s' * (count > 1)} ({'='.join((*THREAD_VARIABLES, str(count)))})", file=sys.stderr)
                budget = {
                    "seconds": args.seconds or getattr(modules[name], "SECONDS", options.seconds),
                    "trials": args.trials or getattr(modules[name], "TRIALS", options.trials),
                }
                until = None if end is None else time.time() + (end - time.time()) / left
                left -= 1
                for result in measured(modules[name].__name__, rows, replace(options, threads=count, **budget), until):
                    results[name].append(result)
                    print(json.dumps({"benchmark": name, **result}), flush=True)
                    _tell(name, count, result)
    except KeyboardInterrupt:
        interrupted = True
    _show(modules, results)
    if interrupted:
        return 130
    return 1 if any("error" in r for found in results.values() for r in found) else 0


# --- what was asked for ------------------------------------------------------------------------------------------------


def select(modules: dict[str, ModuleType], rows: str | None) -> dict[str, tuple[str, ...]]:
    """The rows to measure of each benchmark: its default ones where `rows` is None; else those that are named, by their name or
    by what stands before the first hyphen. ValueError, with the rows there are, for a name that fits none."""
    if rows is None:
        return {name: m.DEFAULT for name, m in modules.items()}
    wanted = [part.strip() for part in rows.split(",")]
    known = [row for m in modules.values() for row in m.ROWS]
    for part in wanted:
        if not any(_fits(part, row) for row in known):
            raise ValueError(no_such("row", part, known))
    found = {name: tuple(row for row in m.ROWS if any(_fits(part, row) for part in wanted)) for name, m in modules.items()}
    return {name: chosen for name, chosen in found.items() if chosen}


def _fits(wanted: str, row: str) -> bool:
    return wanted in ("all", row, row.partition("-")[0])


def _threads(text: str | None) -> tuple[int, ...]:
    if text is None:
        cores = host_cores()
        return (1, cores) if cores > 1 else (1,)
    if not re.fullmatch(r"[1-9]\d*(,[1-9]\d*)*", text):
        raise ValueError(f"--threads takes positive integers separated by commas, as in 1,2; got {text!r}")
    return tuple(dict.fromkeys(map(int, text.split(","))))


# --- measuring ---------------------------------------------------------------------------------------------------------


def measured(module: str, rows: Sequence[str], options: Options, until: float | None = None) -> Iterator[dict[str, Any]]:
    """The results of these rows of a benchmark, named as a module: from a process with that number of threads, or from a new one
    for the rows left if one takes it down with it. Searches are to be done by the time `until`, in seconds since 1970."""
    left = list(rows)
    while left:
        request = json.dumps({"module": module, "rows": left, "options": options.as_json(), "until": until})
        command = [sys.executable, "-m", "benchmarks.worker", request]
        environ = environment(options.threads)
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, encoding="utf-8", env=environ, cwd=ROOT) as process:
            try:
                for line in process.stdout or ():
                    message = json.loads(line)
                    if "result" in message:
                        yield {"threads": options.threads, **message["result"]}
                    else:
                        left.remove(message["done"])
            except BaseException:
                process.terminate()
                raise
        if process.returncode == 130:
            raise KeyboardInterrupt
        if left:
            died = f"signal {-process.returncode}" if process.returncode < 0 else f"exit status {process.returncode}"
            yield {"threads": options.threads, "row": left.pop(0), "error": f"the process died ({died})"}


# --- what is shown -----------------------------------------------------------------------------------------------------


def _tell(name: str, threads: int, result: dict[str, Any]) -> None:
    """One line on standard error about what must not go unseen."""
    for kind in ("error", "note"):
        if kind in result:
            print(f"{name} {result['row']} ({threads} thread{'s' * (threads > 1)}): {kind}: {result[kind]}", file=sys.stderr)
    for note in result.get("handicapped", ()):
        print(f"{name} {result['row']}: note: {note}", file=sys.stderr)


def _show(modules: dict[str, ModuleType], results: dict[str, list[dict[str, Any]]]) -> None:
    """The tables, and what they hold for."""
    from rich.console import Console

    console = Console(stderr=True, highlight=False, width=None if sys.stderr.isatty() else 150)
    for name, found in results.items():
        if found:
            console.print()
            make: Callable[..., Any] | None = getattr(modules[name], "table", None)
            console.print(make(found) if make is not None else standard_table(found, name, console.width))
    about = next((r for found in results.values() for r in found if "machine" in r), None)
    if about is not None:
        m, versions = about["machine"], ", ".join(f"{k} {v}" for k, v in about["versions"].items())
        ran = {
            library: name for found in results.values() for r in found for library, name in r.get("library_kernels", {}).items()
        }
        console.print(f"{m['processor']}, {m['cores']} cores, {m['mcpu']} ({m['isa']}), commit {about['commit']}, {versions}")
        console.print(f"kernels: {', '.join(f'{library} {name}' for library, name in ran.items()) or 'unknown'}")
        roofs = {r["threads"]: r["roof"] for found in results.values() for r in found if "roof" in r}
        for threads, roof in sorted(roofs.items()):
            best = f"{roof['fma'] / 1e9:.0f} GFLOP/s of fused multiply-adds, {roof['copy'] / 1e9:.1f} GB/s of copying"
            console.print(f"{threads} thread{'s' * (threads > 1)}: {best} (last row)")


def standard_table(results: Sequence[dict[str, Any]], title: str, width: int) -> Any:
    """A line a result, a column a number or word in it; lines and columns changed over where only that fits in `width`."""
    from rich.table import Table

    keys = list(dict.fromkeys(k for r in results for k, v in r.items() if k not in KEPT_APART and not isinstance(v, dict)))
    lines = [["row", *(key.replace("_", " ") for key in keys)]]
    lines += [[r["row"], *(_cell(r.get(key, "")) for key in keys)] for r in results]
    turned = [list(column) for column in zip(*lines, strict=True)]
    if _width(turned) <= width < _width(lines):
        lines = turned
    t = Table(title=title, title_justify="left")
    for i, name in enumerate(lines[0]):
        t.add_column(name, justify="right" if i else "left", no_wrap=not i)
    for line in lines[1:]:
        t.add_row(*line)
    return t


def _width(lines: Sequence[Sequence[str]]) -> int:
    """How wide a table is, with what rich puts between and around columns."""
    widest = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return sum(widest) + 3 * len(widest) + 1


def _cell(value: Any) -> str:
    match value:
        case bool() | str() | int():
            return str(value)
        case float():
            return f"{value:.4g}"
        case list() | tuple():
            return " ".join(_cell(v) for v in value)
        case _:
            return "-"


if __name__ == "__main__":
    sys.exit(main())
