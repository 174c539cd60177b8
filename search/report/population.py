"""The population as a map: each sketch in a plane of its own, generation after generation, for the page's script."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..drawing.html import data
from ..policy.lineage import Generation, coordinates
from ..space.sketch import Sketch
from ..tuning.history import first_trials, parents
from ..tuning.result import Result
from .figures import about, speed
from .lineage import winner

MAX_SKETCHES = 8  # shown, those with the most trials
MAX_FRAMES = 60  # generations of a sketch that are shown, evenly over the run

HTML = """<div class=map><p><label>sketch <select id=island></select></label> <button id=play>play</button>
<label>generation <input id=frame type=range min=0 value=0></label> <output id=when></output></p>
<div class="wide drawn">
<svg id=plane class=chart role=img aria-label="the population of a sketch" viewBox="0 0 1060 420"></svg></div></div>"""


def population(result: Result) -> str:
    """The data of the map and its place in the page; empty if the policy keeps no generations."""
    found = islands(result)
    return HTML + data("population", found) if found else ""


def islands(result: Result) -> list[dict[str, Any]]:
    """The frames and the measured rows of sketches with generations, the winner's and then most trials first. Rows are points
    from 0 to 1 along the two main directions of their differences in doublings of sizes."""
    bred: dict[str, list[Generation]] = {}
    for g in result.generations:
        bred.setdefault(g.sketch, []).append(g)
    best = winner(result)
    first = "" if best is None else best.candidate.sketch
    tried = {s.name: sum(m.candidate.sketch == s.name for m in result.measurements) for s in result.sketches}
    shown = sorted((s for s in result.sketches if s.name in bred and s.columns), key=lambda s: (s.name != first, -tried[s.name]))
    return [_island(result, s, bred[s.name]) for s in shown[:MAX_SKETCHES]]


def _island(result: Result, sketch: Sketch, bred: list[Generation]) -> dict[str, Any]:
    shown = [bred[n] for n in np.unique(np.linspace(0, len(bred) - 1, min(MAX_FRAMES, len(bred))).astype(int))]
    own = [(n, m) for n, m in enumerate(result.measurements, 1) if m.candidate.sketch == sketch.name]
    measured = sketch.matrix(m.candidate.row for _, m in own)
    parts = [*(g.rows for g in shown), measured]
    flat = plane(coordinates(sketch, np.concatenate(parts)))
    split = np.split(flat, np.cumsum([len(p) for p in parts])[:-1])
    frames = [{"batch": g.batch, "generation": g.number, "points": p.tolist()} for g, p in zip(shown, split, strict=False)]
    top = max((speed(result, m.seconds) for m in result.measurements), default=0.0) or 1.0
    trials = first_trials(result.measurements)
    points = [
        {
            "trial": n, "batch": m.candidate.origin.batch if m.candidate.origin else 0, "x": x, "y": y,
            "speed": round(speed(result, m.seconds) / top, 3), "best": m.candidate.trace == result.trace,
            "parents": parents(m, trials), "about": about(result, n, m),
        }
        for (n, m), (x, y) in zip(own, split[-1].tolist(), strict=True)
    ]  # fmt: skip
    return {"name": sketch.name, "frames": frames, "measured": points}


def plane(points: np.ndarray) -> np.ndarray:
    """Projection of (n, d) points to their two largest principal components, each scaled to 0..1: (n, 2)."""
    centred = points - points.mean(axis=0)
    _, _, directions = np.linalg.svd(centred, full_matrices=False)
    flat = centred @ np.pad(directions[:2], ((0, max(0, 2 - len(directions))), (0, 0))).T
    low, size = flat.min(axis=0), np.ptp(flat, axis=0)
    return np.round(np.where(size > 0, (flat - low) / np.where(size > 0, size, 1.0), 0.5), 4)
