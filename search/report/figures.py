"""The figures of the report, each as the text of an SVG element."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from costmodel.metrics import rank_correlation
from tir.ir import buffer_nbytes

from ..drawing.svg import Chart, bars
from ..measure import Measurement
from ..tuning.result import MEASURING, PHASES, Result

MIN_SCORED = 3  # least number of scored candidates for a figure
MAX_FEATURES = 12  # shown at most


def tuning_curve(result: Result) -> str:
    """The speed of each candidate and of the best so far, by trial; failures are on the x axis."""
    shown = result.measurements
    speeds = [speed(result, m.seconds) for m in shown]
    levels = [("green", "numpy", result.numpy), ("grey", "as written", result.baseline), ("violet", "default", result.default)]
    known = [(kind, name, speed(result, s)) for kind, name, s in levels if s is not None]
    top = 1.05 * max([*speeds, *(v for *_, v in known), 1e-9])
    chart = Chart(
        1060, 320, "speed of the candidates by trial", (0, max(1, len(shown))), (0, top), "trial", unit(result), whole_x=True
    )
    for kind, name, value in known:
        chart.level(value, kind, name)
    titles = [about(result, n, m) for n, m in enumerate(shown, 1)]
    for kind, name, ok in (("red", "failed", False), ("blue", "valid", True)):
        own = [n for n, v in enumerate(speeds) if (v > 0) == ok]
        chart.dots([(n + 1, speeds[n]) for n in own], kind, [titles[n] for n in own], crossed=not ok)
        if own:
            chart.named(kind, name)
    checked = np.maximum.accumulate([s if m.max_error is not None else 0.0 for s, m in zip(speeds, shown, strict=True)] or [0.0])
    line = [(n, float(v)) for n, v in enumerate(checked, 1) if v > 0]
    chart.line(line, "orange", steps=True)
    chart.named("orange", "best so far")
    return chart.svg()


def about(result: Result, trial: int, m: Measurement) -> str:
    """A short description of a trial."""
    origin = m.candidate.origin
    came = "" if origin is None else f", {origin.operator}"
    ended = f"{speed(result, m.seconds):.1f} {unit(result)}" if m.outcome == "ok" else m.outcome
    return f"trial {trial}: {ended}; {m.candidate.sketch}{came}"


def model_accuracy(result: Result) -> list[tuple[str, int, float | None, str]]:
    """The accuracy of each model: its name, the number of scores, the rank correlation, and a figure of scores against speeds."""
    scored: dict[str, list[tuple[float, Measurement]]] = {}
    for m in result.measurements:
        if m.outcome == "ok" and not m.duplicate:
            own = m.candidate.scores
            if own is None:
                own = {} if m.candidate.score is None else {"model": m.candidate.score}
            for model, score in own.items():
                if math.isfinite(score):
                    scored.setdefault(model, []).append((score, m))
    found = []
    for name, pairs in scored.items():
        if len(pairs) < MIN_SCORED:
            continue
        scores, speeds = [s for s, _ in pairs], [speed(result, m.seconds) for _, m in pairs]
        correlation = rank_correlation(np.array(scores), np.array([m.seconds for _, m in pairs]))
        span = max(scores) - min(scores) or 1.0
        axis, label = f"score of the {name} (higher is better)", f"scores of the {name} against measured speeds"
        x = min(scores) - 0.03 * span, max(scores) + 0.03 * span
        chart = Chart(500, 300, label, x, (0, 1.05 * max(speeds)), axis, unit(result))
        titles = [f"score {s:.3g}; {about(result, 1 + result.measurements.index(m), m)}" for s, m in pairs]
        chart.dots([*zip(scores, speeds, strict=True)], "blue", titles)
        found.append((name, len(pairs), correlation, chart.svg()))
    return found


def contributions(result: Result) -> str | None:
    """The features with the largest effect on the prediction for the best candidate."""
    top = sorted(result.explanation.items(), key=lambda item: -abs(item[1]))[:MAX_FEATURES]
    rows = [(name, value, f"{math.exp(value) - 1:+.0%}", "red" if value > 0 else "green") for name, value in top if value]
    return bars("features that moved the prediction", rows) if rows else None


def phases(result: Result) -> str:
    """The seconds of each phase of the run."""
    spent = [(name, result.phases.get(name, 0.0)) for name in PHASES]
    spent.append(("other", max(0.0, result.elapsed - sum(seconds for _, seconds in spent))))
    return bars("seconds by phase", [(n, s, f"{s:.1f} s", "blue" if n in MEASURING else "grey") for n, s in spent])


def roofline(result: Result, bandwidth: float | None) -> str | None:
    """The roofline of a program that moves each parameter once, with the candidates; None for a program without operations."""
    if not result.task.flop:
        return None
    intensity, ceiling = result.task.flop / buffer_nbytes(*result.task.func.buffers), result.ceiling
    marks = (("orange", "best", result.seconds), ("green", "numpy", result.numpy), ("grey", "as written", result.baseline))
    speeds = [result.task.flop / m.seconds / 1e9 for m in result.measurements if m.outcome == "ok"]
    known = [(kind, name, result.task.flop / s / 1e9) for kind, name, s in marks if s is not None]
    ridge = ceiling / bandwidth if ceiling and bandwidth else intensity
    x = min(intensity, ridge) / 8, max(intensity, ridge) * 8
    values = [*speeds, *(v for *_, v in known)]
    roof = [(at, min(ceiling, bandwidth * at) / 1e9) for at in (x[0], ridge, x[1])] if ceiling and bandwidth else []
    lowest = min([*values, *(v for _, v in roof)])
    chart = Chart(
        500, 300, "roofline with the candidates", x, (lowest / 1.5, 1.6 * max([*values, (ceiling or 0.0) / 1e9])),
        "operations a byte", "GFLOP/s", log_x=True, log_y=True,
    )  # fmt: skip
    if ceiling:
        chart.level(ceiling / 1e9, "violet", "peak")
    chart.line(roof, "violet")
    chart.dots([(intensity, v) for v in speeds], "blue")
    chart.named("blue", "candidates")
    for kind, name, value in known:
        chart.dots([(intensity, value)], kind, [f"{name}: {value:.1f} GFLOP/s"], 5)
        chart.named(kind, name)
    return chart.svg()


def wins(measurements: Sequence[Measurement]) -> list[Measurement]:
    """The measurements that were new bests."""
    found: list[Measurement] = []
    for m in measurements:
        if m.max_error is not None and m.seconds < min((w.seconds for w in found), default=math.inf):
            found.append(m)
    return found


def speed(result: Result, seconds: float) -> float:
    """The plotted speed of a time: GFLOP/s, or calls a second for a program without operations; 0 for a failure."""
    return (result.task.flop / 1e9 if result.task.flop else 1.0) / seconds if seconds < math.inf else 0.0


def unit(result: Result) -> str:
    return "GFLOP/s" if result.task.flop else "calls a second"
