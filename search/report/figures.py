"""The figures of the report, each as the text of an SVG element."""

from __future__ import annotations

import io
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from tir.ir import buffer_nbytes

from ..measure import Measurement
from ..tuning.result import MEASURING, PHASES, Result

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from .network import TaskTime

PIXELS_PER_INCH = 120
BLUE, ORANGE, GREEN, RED, GREY = "#2563a8", "#d9822b", "#3a8f4d", "#b8362f", "#8a8a8a"
STYLE = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 9.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e6e6e6",
    "axes.axisbelow": True,
    "legend.frameon": False,
}


@contextmanager
def _svg_figure(width: float, height: float, label: str) -> Iterator[tuple[Axes, Callable[[], str]]]:
    """The axes of a new figure, and a function that returns its SVG at the end. `label` is the text for screen readers."""
    content = io.BytesIO()
    with _figure(width, height, label, content, "svg") as axes:
        yield axes, lambda: _svg(content.getvalue().decode(), label)


@contextmanager
def _figure(width: float, height: float, label: str, content: io.BytesIO, kind: str) -> Iterator[Axes]:
    """The axes of a new figure, which is written to `content` at the end as a file of this kind."""
    import matplotlib
    from matplotlib.figure import Figure

    # Names within an SVG are hashes; each figure has its own salt, so that names in one page differ.
    style: dict[Any, Any] = {**STYLE, "svg.hashsalt": label}
    with matplotlib.rc_context(style):
        figure = Figure(figsize=(width, height), layout="constrained")
        yield figure.add_subplot()
        metadata = {"Date": None, "Creator": None} if kind == "svg" else {"Software": None}
        figure.savefig(content, format=kind, dpi=PIXELS_PER_INCH, metadata=metadata)


def _svg(text: str, label: str) -> str:
    svg = text[text.index("<svg") :].replace("<svg", f'<svg role="img" aria-label="{label}"', 1)
    # Names that nothing refers to are removed: they are the same in every figure.
    return re.sub(r' id="([^"]*)"', lambda name: name[0] if f"#{name[1]}" in svg else "", svg)


def _legend(axes: Axes) -> None:
    """Put the legend above the axes."""
    axes.legend(
        loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=5, fontsize=8, borderaxespad=0.2, handletextpad=0.4, columnspacing=1.2
    )


def tuning_curve(result: Result) -> str:
    """The speed of each candidate and of the best so far, by trial; failures are on the x axis."""
    from matplotlib.ticker import MaxNLocator

    with _svg_figure(7.2, 3.2, "speed of the candidates by trial") as (axes, svg):
        speeds = np.array([_speed(result, m.seconds) for m in result.measurements])
        trials = np.arange(1, len(speeds) + 1)
        valid = speeds > 0
        checked = [s if m.max_error is not None else 0.0 for s, m in zip(speeds, result.measurements, strict=True)]
        axes.plot(trials[valid], speeds[valid], ".", color=BLUE, alpha=0.6, label="valid")
        if not valid.all():
            axes.plot(trials[~valid], speeds[~valid], "x", color=RED, label="failed", clip_on=False)
        if len(speeds):
            axes.step(trials, np.maximum.accumulate(checked), where="post", color=ORANGE, label="best so far")
        for name, seconds, colour in (("numpy", result.numpy, GREEN), ("as written", result.baseline, GREY)):
            if seconds is not None:
                axes.axhline(_speed(result, seconds), color=colour, linestyle="--", linewidth=1, label=name)
        axes.set(xlabel="trial", ylabel=_unit(result), ylim=(0, None))
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        _legend(axes)
    return svg()


def predicted(result: Result) -> str | None:
    """The score of each candidate when it was proposed against its measured speed; None without a model."""
    scored = [m for m in result.measurements if m.candidate.score is not None and m.outcome == "ok"]
    if len(scored) < 3:
        return None
    with _svg_figure(4.2, 3.2, "predicted scores against measured speeds") as (axes, svg):
        scores = np.array([m.candidate.score for m in scored], dtype=float)
        points = axes.scatter(scores, [_speed(result, m.seconds) for m in scored], c=np.arange(len(scored)), s=12, cmap="viridis")
        axes.figure.colorbar(points, ax=axes, label="order of measuring")
        axes.set(xlabel="score when proposed (higher is better)", ylabel=_unit(result), ylim=(0, None))
    return svg()


def wins(measurements: Sequence[Measurement]) -> Counter[str]:
    """How often each sketch gave a new best."""
    won: Counter[str] = Counter()
    best = math.inf
    for m in measurements:
        if m.max_error is not None and m.seconds < best:
            best = m.seconds
            won[m.candidate.sketch] += 1
    return won


def sketches(result: Result) -> str:
    """For each sketch its trials, its valid trials, and how often it gave a new best."""
    won = wins(result.measurements)
    trials = Counter(m.candidate.sketch for m in result.measurements)
    valid = Counter(m.candidate.sketch for m in result.measurements if m.outcome == "ok")
    names = [name for name, _ in trials.most_common()][::-1]
    with _svg_figure(4.2, max(1.6, 0.9 + 0.42 * len(names)), "trials and wins by sketch") as (axes, svg):
        places = np.arange(len(names))
        for offset, (label, counts, colour) in zip(
            (0.25, 0.0, -0.25), (("trials", trials, GREY), ("valid", valid, BLUE), ("new best", won, ORANGE)), strict=True
        ):
            bars = axes.barh(places + offset, [counts[name] for name in names], 0.23, color=colour, label=label)
            axes.bar_label(bars, fontsize=7, padding=2)
        axes.set_yticks(places, names)
        axes.set(xlabel="candidates")
        axes.grid(axis="y", visible=False)
        _legend(axes)
    return svg()


def phases(result: Result) -> str:
    """The seconds of each phase of the run."""
    spent = [(name, result.phases.get(name, 0.0)) for name in PHASES]
    spent.append(("other", max(0.0, result.elapsed - sum(seconds for _, seconds in spent))))
    with _svg_figure(4.2, 2.2, "seconds by phase") as (axes, svg):
        colours = [BLUE if name in MEASURING else GREY for name, _ in spent[::-1]]
        bars = axes.barh([name for name, _ in spent[::-1]], [seconds for _, seconds in spent[::-1]], color=colours)
        axes.bar_label(bars, fmt="%.1f s", fontsize=8, padding=2)
        axes.set(xlabel="seconds (blue: measuring)")
        axes.margins(x=0.15)
        axes.grid(axis="y", visible=False)
    return svg()


def roofline(result: Result, bandwidth: float | None) -> str | None:
    """The roofline of a program that moves each parameter once, with the speeds of the candidates; None where nothing is
    computed."""
    if not result.task.flop:
        return None
    intensity = result.task.flop / buffer_nbytes(*result.task.func.buffers)
    with _svg_figure(4.2, 3.2, "roofline with the candidates") as (axes, svg):
        ridge = result.peak / bandwidth if result.peak and bandwidth else intensity
        x = np.geomspace(min(intensity, ridge) / 8, max(intensity, ridge) * 8, 64)
        if result.peak:
            axes.plot(x, np.full(len(x), result.peak / 1e9), color=GREY, linestyle="--", linewidth=1)
        if result.peak and bandwidth:
            axes.plot(x, np.minimum(result.peak, bandwidth * x) / 1e9, color="black")
        speed = result.task.flop / 1e9
        valid = [speed / m.seconds for m in result.measurements if m.outcome == "ok"]
        axes.plot([intensity] * len(valid), valid, "_", color=BLUE, markersize=9, alpha=0.5, label="candidates")
        marks = (
            ("best", result.seconds, "*", ORANGE),
            ("numpy", result.numpy, "D", GREEN),
            ("as written", result.baseline, "s", GREY),
        )
        for name, seconds, mark, colour in marks:
            if seconds is not None:
                axes.plot([intensity], [speed / seconds], mark, color=colour, label=name)
        axes.set(xscale="log", yscale="log", xlabel="operations a byte", ylabel="GFLOP/s")
        _legend(axes)
    return svg()


def bars(tasks: Sequence[TaskTime], kind: str = "page") -> Any:
    """The times of the tasks of a network before and after tuning: the text of an SVG element for a page, or the content of a
    file of this kind."""
    content = io.BytesIO()
    label = "seconds by kernel, before and after tuning"
    with _figure(9.0, 1.0 + 0.3 * len(tasks), label, content, "svg" if kind == "page" else kind) as axes:
        places = np.arange(len(tasks))[::-1]
        axes.barh(places + 0.2, [1e3 * t.before for t in tasks], 0.36, color=GREY, label="default schedule")
        after = axes.barh(places - 0.2, [1e3 * t.after for t in tasks], 0.36, color=BLUE, label="tuned")
        gains = [f"{t.before / t.after:.2f} ×" if t.after < t.before else "" for t in tasks]
        axes.bar_label(after, gains, fontsize=7, padding=2)
        axes.set_yticks(places, [f"{t.label}  ({t.calls})" if t.calls > 1 else t.label for t in tasks], fontsize=7)
        axes.set(xlabel="milliseconds in one call of the network")
        axes.grid(axis="y", visible=False)
        _legend(axes)
    return _svg(content.getvalue().decode(), label) if kind == "page" else content.getvalue()


def latency(curve: Sequence[tuple[float, float]], elapsed: float) -> str:
    """The estimated time of a network, by the seconds of the run."""
    with _svg_figure(7.2, 2.8, "time of the network by seconds of the run") as (axes, svg):
        times, seconds = zip(*curve, (elapsed, curve[-1][1]), strict=True) if curve else ((), ())
        axes.step(times, [1e3 * s for s in seconds], where="post", color=ORANGE)
        axes.set(xlabel="seconds", ylabel="milliseconds", ylim=(0, None))
    return svg()


def failures(measurements: Sequence[Measurement]) -> list[tuple[str, int, str]]:
    """The kinds of failure that occurred, how often, and the most common message of each."""
    found: dict[str, Counter[str]] = {}
    for m in measurements:
        if m.outcome != "ok":
            found.setdefault(m.outcome, Counter())[m.message.splitlines()[0] if m.message else ""] += 1
    return [(kind, messages.total(), messages.most_common(1)[0][0]) for kind, messages in found.items()]


def _speed(result: Result, seconds: float) -> float:
    """A time as the speed that is plotted: GFLOP/s, or calls a second where nothing is computed; 0 for a failure."""
    return (result.task.flop / 1e9 if result.task.flop else 1.0) / seconds if seconds < math.inf else 0.0


def _unit(result: Result) -> str:
    return "GFLOP/s" if result.task.flop else "calls a second"
