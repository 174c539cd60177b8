"""The page of the explorer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from codegen.backend import backend
from codegen.processor import host_name
from codegen.runtime.timing import duration
from codegen.target import Target
from schedule import Schedule
from search.drawing.html import data, document, resource, side_by_side
from tir.files import write_atomically
from tir.interpreter import InterpreterError
from tir.ir import PrimFunc

from .nest import boxes
from .simulate import LINE, LINES, WORKERS, SimulatedRun, run
from .small import first_iterations, small
from .stages import ProgramStage, of_programs, of_schedule
from .times import Timed, measured

LIMIT_SECONDS = 2.0  # seconds that a call may take, so that slow stages don't hold up a page


def explore(
    what: Schedule | Mapping[str, PrimFunc],
    path: str | Path,
    target: str | Target = "llvm",
    *,
    measure: bool = True,
    limit: float = LIMIT_SECONDS,
    title: str | None = None,
) -> None:
    """Write a page that steps through a schedule, or through programs by their titles, one after the other.

    With `measure`, each stage is built and timed, if this machine runs kernels for the target; a call is stopped after `limit`
    seconds. Raises TypeError for anything but a schedule or programs, OSError if the file cannot be written.
    """
    write_atomically(Path(path), page(what, target, measure=measure, limit=limit, title=title))


def page(
    what: Schedule | Mapping[str, PrimFunc],
    target: str | Target = "llvm",
    *,
    measure: bool = True,
    limit: float = LIMIT_SECONDS,
    title: str | None = None,
) -> str:
    """The page as HTML, which loads no other file."""
    if not isinstance(what, (Schedule, Mapping)):
        raise TypeError(f"explore takes a Schedule, or a dict of programs by their titles; got {type(what).__name__}")
    target = Target(target)
    stages = of_schedule(what) if isinstance(what, Schedule) else of_programs(what)
    if not stages:
        raise ValueError("explore takes at least one program")
    times: Sequence[Timed | None] = [None] * len(stages)
    if measure and not backend(target).missing(target):
        times = measured(stages, target, limit)
    name = title or stages[0].func.name
    where = f"{target} on {host_name()}" if any(times) else f"{target}; not measured"
    return written(name, f"{where}; {len(stages)} stages", contents(stages, times))


def written(name: str, where: str, content: dict[str, Any], editor: str = "") -> str:
    """The page of these contents, with an editor above them if there is one."""
    parts, style, script = (resource(f"explorer.{kind}", __file__) for kind in ("html", "css", "js"))
    sections = [editor, f"<div class=explorer>{parts}</div>", data("stages", content)]
    return document(f"{name}, step by step", name, where, sections, style, script)


def contents(stages: Sequence[ProgramStage], times: Sequence[Timed | None]) -> dict[str, Any]:
    """The contents of each stage for the page's script; runs of small instances are kept once."""
    fastest = min((t.seconds for t in times if t is not None and t.seconds is not None), default=None)
    runs: list[dict[str, Any] | None] = []
    seen: dict[str, int] = {}
    made, notes = instances(stages)
    shown = []
    for n, (s, t) in enumerate(zip(stages, times, strict=True)):
        key = made[n].script()
        if key not in seen:
            seen[key] = len(runs)
            found = simulated(made[n])
            runs.append(None if found is None else found.as_json())
        before, after = side_by_side(stages[max(0, n - 1)].func.script(), s.func.script())
        shown.append({
            "title": s.title, "about": s.about, "nest": boxes(s.func), "before": before, "after": after, "run": seen[key],
            "which": notes, **timing(t, fastest),
        })  # fmt: skip
    return {"stages": shown, "runs": runs}


def instances(stages: Sequence[ProgramStage]) -> tuple[list[PrimFunc], str]:
    """The program of each stage in the animation, and a note about these programs."""
    cache = f"The cache of each worker has {LINES} lines of {LINE} elements; a parallel loop has {WORKERS} workers."
    trace = stages[-1].trace
    found = small(stages[0].func, trace.steps) if trace is not None else []
    if found:
        return found, f"The same steps with short axes and small tiles. {cache}"
    return [first_iterations(s.func) for s in stages], f"The first iterations of each loop of the program itself. {cache}"


def simulated(func: PrimFunc) -> SimulatedRun | None:
    """The run of a program; None where it cannot be run without real data."""
    try:
        return run(func)
    except (InterpreterError, ArithmeticError, IndexError, ValueError, OverflowError):
        return None


def timing(t: Timed | None, fastest: float | None) -> dict[str, Any]:
    """The measurement of a stage as text, and the length of its bar, from 0 to 1."""
    if t is None:
        return {"time": "", "measured": "not measured", "bar": 0.0}
    if t.seconds is None or fastest is None:
        return {"time": t.problem, "measured": t.problem, "bar": 0.0}
    parts = [duration(t.seconds)]
    if t.flop:
        parts.append(f"{t.flop / t.seconds / 1e9:.2f} GFLOP/s")
        parts += [f"{t.flop / t.seconds / t.peak:.1%} of peak"] if t.peak else []
    return {"time": parts[0], "measured": ", ".join(parts), "bar": round(fastest / t.seconds, 4)}
