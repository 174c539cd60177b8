"""The output at the end of a run: the table of timings, and the JSON object."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from codegen.runtime.timing import duration
from tir.display import count_text, tally

from ..options import sizes

if TYPE_CHECKING:
    from search.task import Task
    from search.tuning.result import Result

    from .program import Program


def describe(program: Program, target: str, threads: int) -> dict[str, Any]:
    about = {"workload": program.name, "shape": list(program.shape), "dtype": program.dtype}
    return {**about, "target": target, "threads": threads}


def as_json(
    header: dict[str, Any],
    flop: int,
    outcomes: dict[str, int],
    elapsed: float,
    seconds: dict[str, float | None] | None = None,
    errors: tuple[float | None, float | None] = (None, None),
    scored: dict[str, int] | None = None,
) -> str:
    """The JSON object at the end of a run; `seconds` are by program, `errors` the largest error and the tolerance."""
    content = {
        **{k: header[k] for k in ("workload", "shape", "target", "threads")},
        "trials": sum(outcomes.values()),
        "outcomes": outcomes,
        "seconds": {"unscheduled": None, "best": None, "numpy": None, **(seconds or {})},
        "flop": flop,
        "max_error": errors[0],
        "tolerance": errors[1],
        "elapsed": round(elapsed, 3),
        **({"scored": scored} if scored else {}),
    }
    return json.dumps(content, allow_nan=False)


def heading(header: dict[str, Any]) -> str:
    from codegen.backend import backend

    title = f"{header['workload']} {sizes(header['shape'])}".rstrip()
    known = f"{title}  {header['dtype']}  {header['target']}"
    if backend(header["target"]).device is not None:
        return known
    return f"{known}  {count_text(header['threads'], 'thread')}"


def timings(rows: Sequence[tuple[str, float | None]], flop: int, peak: float | None, *, stopped: float | None = None) -> str:
    """The table of the times of programs; `stopped`: the seconds after which the unscheduled program was stopped, if it was."""
    times = dict(rows)
    unscheduled, numpy = times.get("unscheduled"), times.get("numpy")
    lines = [f"{'':<12} {'time':>12} {'GFLOP/s':>10} {'of peak':>8} {'speed-up':>9} {'x numpy':>8}"]
    for name, seconds in rows:
        if name == "unscheduled" and stopped is not None:
            lines.append(f"{name:<12} {f'> {duration(stopped)}':>12} {f'< {flop / stopped / 1e9:.2f}':>10}")
        if seconds is None:
            continue
        share = f"{flop / seconds / peak:.1%}" if peak else "-"
        speedup = f"{unscheduled / seconds:.2f}" if unscheduled else f"> {stopped / seconds:.0f}" if stopped else "-"
        ratio = f"{numpy / seconds:.2f}" if numpy else "-"
        lines.append(f"{name:<12} {duration(seconds):>12} {flop / seconds / 1e9:>10.2f} {share:>8} {speedup:>9} {ratio:>8}")
    return "\n".join(lines)


def error_line(max_error: float | None, tolerance: float | None, task: Task) -> str:
    reference = "the program as written" if task.workload is None else "float64"
    if max_error is None or tolerance is None:
        return f"not compared with {reference}"
    return f"largest error against {reference}: {max_error:.2g} of its scale; tolerance {tolerance:.2g}"


def table(header: dict[str, Any], result: Result) -> str:
    best = [("best found", result.seconds)] if result.trace is not None else []
    rows = [("unscheduled", result.baseline), *best, ("numpy", result.numpy)]
    timed = timings(rows, result.task.flop, result.ceiling, stopped=result.baseline_stopped)
    lines = [heading(header), "", timed, error_line(result.max_error, result.tolerance, result.task)]
    if result.baseline_stopped is not None:
        lines.append(f"the unscheduled program was stopped after {duration(result.baseline_stopped)}")
    ended = "interrupted after " if result.interrupted else ""
    lines.append(f"{ended}{count_text(result.trials, 'trial')} in {result.elapsed:.1f} s: {tally(result.outcomes)}")
    if any(result.scored.values()):
        lines.append(f"candidates scored: {', '.join(f'{n:,} {how}' for how, n in result.scored.items())}")
    from search.tuning.result import certainty

    lines += [*certainty(result), *sketches(result)]
    if result.interrupted:
        lines.append("numpy was timed at the start, not in turns with the best")
    if result.trace is None and not result.interrupted:
        lines.append("no candidate was faster than the program as written")
    return "\n".join(lines)


def sketches(result: Result) -> list[str]:
    """A line for each sketch that was tried, the best first: its trials, its best time, and the rules that made it."""
    of: dict[str, list[float]] = {}
    for m in result.measurements:
        of.setdefault(m.candidate.sketch, []).append(m.seconds)
    lines = [f"{'candidates of':<12} {'trials':>6} {'ok':>4} {'best':>10}  made by"] if of else []
    for name, seconds in sorted(of.items(), key=lambda item: min(item[1])):
        ok = sum(map(math.isfinite, seconds))
        best = duration(min(seconds)) if ok else "-"
        rules = "; ".join(result.rules.get(name, ()))
        lines.append(f"{name:<13} {len(seconds):>6} {ok:>4} {best:>10}  {rules}".rstrip())
    return lines
