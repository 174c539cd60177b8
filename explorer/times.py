"""Times of stages, measured as a search measures its candidates: in worker processes, checked, one at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from codegen.target import Target
from search.measure import Candidate, Limits, LocalMeasurer, Measurement
from search.task import Task

from .stages import ProgramStage


@dataclass(frozen=True)
class Timed:
    """The seconds of a stage, or a `problem`; the operations of a call, and the machine's peak (operations a second)."""

    seconds: float | None
    problem: str
    flop: int
    peak: float | None


def measured(stages: Sequence[ProgramStage], target: Target, limit: float) -> list[Timed]:
    """The times of stages. A call may take `limit` seconds; one that takes longer is stopped, and says so."""
    tasks = [stages] if stages[0].trace is not None else [[s] for s in stages]  # steps compute the same, other programs may not
    each = [_of_one_task(own, target, limit) for own in tasks]
    found = [m for own, _, _ in each for m in own]
    flops = [flop for own, flop, _ in each for _ in own]
    peak = max((p for _, _, p in each if p is not None), default=None)
    seconds = [m.seconds if m.outcome == "ok" else None for m in found]
    fastest = max((f / s for f, s in zip(flops, seconds, strict=True) if s), default=0.0)
    peak = None if peak is None else max(peak, fastest)  # a busy machine measures one that is too low
    why = [_reason(m, limit) for m in found]
    return [Timed(s, w, f, peak) for s, w, f in zip(seconds, why, flops, strict=True)]


def _reason(m: Measurement, limit: float) -> str:
    if m.outcome == "ok":
        return ""
    first = m.message.splitlines()[0] if m.message else ""
    return f"stopped after {limit:g} s" if m.outcome == "run_timeout" else f"{m.outcome}: {first}"


def _of_one_task(stages: Sequence[ProgramStage], target: Target, limit: float) -> tuple[list[Measurement], int, float | None]:
    """The measurements of stages that compute the same, the operations of each, and the machine's peak."""
    task = Task.of(stages[0].func, target)
    candidates = [Candidate("step", (n,), s.trace.as_json()) for n, s in enumerate(stages) if s.trace]
    limits = Limits(run=limit, run_floor=limit, run_factor=float("inf"), baseline=limit)
    with LocalMeasurer(task, limits=limits, workers=None if candidates else 1) as measurer:
        first = measurer.prepare().measurement
        found = {m.candidate.row[0]: m for m in measurer.measure(candidates)}
        peak = measurer.peak("float64" if any(b.dtype == "float64" for b in task.func.buffers) else "float32")
    return [found.get(n, first) for n in range(len(stages))], task.flop, peak
