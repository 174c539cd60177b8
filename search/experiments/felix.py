"""Gradient descent over relaxed tile sizes (Felix: Zhao et al., Optimizing Tensor Programs with Gradient Descent, ASPLOS 2024,
sections 3 and 4).

The features of a symbolic program are formulas of its tile sizes. Let these be real numbers: with smooth formulas in place of
comparisons, minima and maxima (section 3.2), and a network over the features, the predicted time has a gradient. Adam descends in
the logarithms of the sizes, from many rows at a time, with penalties where tiles exceed their axis, or values the registers. Rows
on the way are rounded to legal ones, the exact formulas score these, and the best are measured.

Differences: choices keep the options of the row that a descent starts from. Before FIRST_ROWS are measured, the objective is the
estimate among the features; then a small network corrects its logarithm. The network of the paper is trained beforehand.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from costmodel.features import recorded
from costmodel.loopnest import Statement
from schedule.machine import Machine

from ..policy.rows import Point, RowPolicy, points_of
from ..population.programs import sketch_programs
from ..population.sample import legalize
from ..space.sketch import Sketch
from .relaxed import Relaxed

FEATURES = (
    "estimate", "work_a_thread", "waste", "lane_waste", "tasks_waste", "accumulators", "register_loads", "l1_bytes", "l2_bytes",
    "l3_bytes", "unroll_prod", "auto_unroll_max_step",
)  # fmt: skip
HELD = [FEATURES.index("accumulators"), FEATURES.index("register_loads")]  # features that count values in registers
SAMPLED_ROWS = 256  # random rows of all sketches, the best of which are starts
STARTS = 32  # rows that descend in a batch
MAX_PROGRAMS = 4  # most variants among the starts, each a symbolic program
STEPS, ROUNDED_EVERY = 48, 12  # steps of Adam, and steps from one rounding of the rows to the next
RATE = 0.1  # learning rate of Adam, in natural logarithms of sizes
PENALTY = 10.0  # weight of the squared excess over an axis and over the registers, in natural logarithms
FIRST_ROWS = 12  # measured rows before the network corrects
HIDDEN, DECAY = 16, 0.1  # units of the one hidden layer of the network, and its L2 penalty
MIN_SPREAD = 0.05  # doublings, added to the standard deviation of a feature: a constant one is divided by this
RANDOM_SHARE = 0.1  # share of random rows in a batch, at least one row

Row = tuple[int, ...]


class Felix(RowPolicy):
    """Rows near the paths of gradient descents, best first by the exact objective."""

    _network: Any = None

    def search(self, n: int, rng: np.random.Generator) -> Iterable[Point]:
        self._fit(int(rng.integers(1 << 31)))
        drawn = self.drawn(SAMPLED_ROWS, rng)
        blind = points_of(drawn)
        for k, row in self.best(STARTS // 2):
            drawn[k] = self.sketches[k].matrix([*drawn[k], row])
        found = {p: time for k, rows in drawn.items() for p, time in self._times(k, rows).items()}
        starts: dict[tuple[int, Row], list[Point]] = {}  # by sketch and variant
        for k, row in sorted(found, key=found.__getitem__)[:STARTS]:
            starts.setdefault((k, self.sketches[k].variant(row)), []).append((k, row))
        for points in list(starts.values())[:MAX_PROGRAMS]:
            for k, rows in self.by_sketch(points).items():
                found |= self._times(k, self._descended(self.sketches[k], rows))
        best = self.by_score({p: -time for p, time in found.items() if self.is_new(p)})
        random = max(1, round(RANDOM_SHARE * n))
        return [*best[: n - random], *(blind[k] for k in rng.permutation(len(blind))[:random]), *best[n - random :]]

    def _times(self, k: int, rows: np.ndarray) -> dict[Point, float]:
        """The logarithms of the predicted nanoseconds of rows."""
        members, x, estimates = self._described(k, rows)
        times = estimates + self._correction(x)[0]
        return dict(zip(points_of({k: rows[members]}), times.tolist(), strict=True))

    def _described(self, k: int, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """For rows that have programs: their indices, features summed over statements, and logarithms of summed estimates."""
        programs = sketch_programs(self.sketches[k])
        if programs.count_concrete(rows) > programs.max_concrete:
            rows = rows[: int(programs.max_concrete)]
        parts = [(np.zeros(0, dtype=np.int64), np.zeros((0, len(FEATURES))), np.zeros(0))]
        for members, program in programs.programs(rows):
            found = np.empty((len(program.statements), len(FEATURES), len(members)))
            for statement, out in zip(program.statements, found, strict=True):
                recorded(statement, self.target.machine, FEATURES).run(rows[members], out)
            parts.append((members, np.log2(1 + found).sum(axis=0).T, np.log(found[:, 0].sum(axis=0))))
        members, x, estimates = (np.concatenate(found) for found in zip(*parts, strict=True))
        return members, x, estimates

    def _fit(self, seed: int) -> None:
        """Fit the network to the measured rows: a correction of the logarithms of their estimated times."""
        from sklearn.neural_network import MLPRegressor

        x, y = [np.zeros((0, len(FEATURES)))], [np.zeros(0)]
        for k, rows in self.by_sketch(self.best(len(self.measured))).items():
            members, described, estimates = self._described(k, rows)
            x.append(described)
            y.append(np.log([1e9 * self.measured[k, tuple(row)] for row in rows[members].tolist()]) - estimates)
        matrix, errors = np.concatenate(x), np.concatenate(y)
        if len(errors) >= FIRST_ROWS:
            self._mean, self._spread, self._error = matrix.mean(axis=0), matrix.std(axis=0) + MIN_SPREAD, errors.mean()
            network = MLPRegressor(hidden_layer_sizes=HIDDEN, activation="tanh", solver="lbfgs", alpha=DECAY, random_state=seed)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # that it stops before it has converged: early enough
                self._network = network.fit((matrix - self._mean) / self._spread, errors - self._error)

    def _correction(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The network's correction for each row of features, and its gradient."""
        if self._network is None:
            return np.zeros(len(x)), np.zeros_like(x)
        (first, last), (bias, end) = self._network.coefs_, self._network.intercepts_
        hidden = np.tanh((x - self._mean) / self._spread @ first + bias)
        return (hidden @ last + end)[:, 0] + self._error, ((1 - hidden**2) * last[:, 0]) @ first.T / self._spread

    def _descended(self, sketch: Sketch, rows: np.ndarray) -> np.ndarray:
        """The legal rows near the path of a descent from rows of one variant."""
        tiles = [(list(t.columns), t.extent) for t in sketch.tiles if t.columns]
        programs = sketch_programs(sketch)
        if not tiles or programs.count_concrete(rows):
            return rows[:0]
        ((_, program),) = programs.programs(rows)
        relaxed = [_relaxed(statement, self.target.machine) for statement in program.statements]
        columns = sorted({c for own, _ in tiles for c in own})
        numbers = rows.astype(float).T
        logs = np.log(np.maximum(numbers[columns], 1.0))
        place = {c: n for n, c in enumerate(columns)}
        passed, means, squares = [], np.zeros_like(logs), np.zeros_like(logs)
        for step in range(1, STEPS + 1):
            numbers[columns] = np.exp(logs)
            slope = self._gradient(relaxed, numbers)[columns] * numbers[columns]
            for own, extent in tiles:
                at = [place[c] for c in own]
                slope[at] += 2 * PENALTY * np.maximum(0.0, logs[at].sum(axis=0) - np.log(extent))
            means, squares = 0.9 * means + 0.1 * slope, 0.999 * squares + 0.001 * slope**2  # decays as in Adam's paper
            logs -= RATE * means / (1 - 0.9**step) / (np.sqrt(squares / (1 - 0.999**step)) + 1e-8)
            logs = np.maximum(logs, 0.0)
            if step % ROUNDED_EVERY == 0:
                near = rows.copy()
                near[:, columns] = np.rint(np.exp(logs)).T
                passed.append(legalize(sketch, self.target, near))
        return np.unique(np.concatenate(passed), axis=0)

    def _gradient(self, relaxed: Sequence[Relaxed], numbers: np.ndarray) -> np.ndarray:
        """The gradient of the predicted logarithms of times, and of the penalty of registers, by `numbers`: (columns, n)."""
        runs = [r.run(numbers) for r in relaxed]
        found = np.array([results for results, _ in runs])  # (statements, features, n)
        _, pull = self._correction(np.log2(1 + found).sum(axis=0).T)
        slopes = pull.T / (np.log(2) * (1 + found))
        slopes[:, 0] += 1 / found[:, 0].sum(axis=0)
        held = found[:, HELD].sum(axis=1) + 1e-9
        excess = np.maximum(0.0, np.log(held / self.target.machine.registers))
        slopes[:, HELD] += (2 * PENALTY * excess / held)[:, None]
        own = (r.gradient(tape, slope, len(numbers)) for r, (_, tape), slope in zip(relaxed, runs, slopes, strict=True))
        return sum(own, start=np.zeros(numbers.shape))


@lru_cache(maxsize=4096)
def _relaxed(statement: Statement, machine: Machine) -> Relaxed:
    return Relaxed(recorded(statement, machine, FEATURES), len(FEATURES))
