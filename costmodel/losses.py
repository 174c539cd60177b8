"""Losses: sums over the statements of a program, and the fit of a model to measured programs.

A model predicts a number f(s) for each statement s of a program. In the arrays below, `predicted` has an element a statement,
`program` the number of its program, and targets and weights have an element a program.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .dataset import Dataset
from .features import NAMES

ESTIMATE = NAMES.index("estimate")
LN2 = float(np.log(2.0))
MAX_PAIRED_PROGRAMS = 400  # programs of a task, about, whose pairs count
PAIR_NOISE = 0.02  # difference of logarithms of times below which neither program is the faster
SHARPNESS = 4.0  # of the logistic function of a difference of logarithms of times
DAMPING = 0.05  # of the largest second derivative, added to each
MAX_STEP = 2.0  # of a correction, a logarithm of time

Weighted = tuple[np.ndarray, np.ndarray]  # numbers, and the weight of each


@dataclass(frozen=True, slots=True)
class TimeSum:
    """A program takes sum(exp(f(s))) nanoseconds; f starts from a rough estimate, and the logarithm of the sum is fitted.

    A shift of all f(s) of a program shifts the logarithm of the sum by as much. So each statement is to correct the whole error
    of its program; its weight is the program's times its share of the program's time.
    """

    def start(self, features: np.ndarray) -> np.ndarray:
        """f(s) before learning, one a column of `features`."""
        return LN2 * features[ESTIMATE]

    def targets(self, data: Dataset, min_weight: float) -> Weighted:
        """The target and the weight of each program; `min_weight` is the least weight, for losses that have one."""
        return data.log_times(), np.maximum(data.throughputs(), min_weight)

    def residuals(self, predicted: np.ndarray, program: np.ndarray, targets: np.ndarray, weights: np.ndarray) -> Weighted:
        """The correction of each f(s), and its weight."""
        times = np.exp(predicted)
        total = np.bincount(program, weights=times, minlength=len(targets))
        return (targets - np.log(total))[program], weights[program] * times / total[program]

    def parts(self, predicted: np.ndarray) -> np.ndarray:
        """The summand of each statement of a program."""
        return np.exp(predicted)

    def scores(self, sums: np.ndarray) -> np.ndarray:
        """The scores of programs, higher is better."""
        return -np.log(np.maximum(sums, 1e-30))


@dataclass(frozen=True, slots=True)
class PairRank(TimeSum):
    """Sums of times as in `TimeSum`, fitted to the order of the programs of a task.

    The loss is logistic for each pair, weighted by the difference of throughputs (LambdaRank: Burges, From RankNet to LambdaRank
    to LambdaMART, 2010). A target has three numbers: the logarithm of the time, the task, the throughput.
    """

    def targets(self, data: Dataset, min_weight: float) -> Weighted:
        throughputs = data.throughputs()
        return np.stack([data.log_times(), data.task, throughputs], axis=1), np.maximum(throughputs, min_weight)

    def residuals(self, predicted: np.ndarray, program: np.ndarray, targets: np.ndarray, weights: np.ndarray) -> Weighted:
        times = np.exp(predicted)
        total = np.bincount(program, weights=times, minlength=len(targets))
        slope, curve = np.zeros(len(targets)), np.zeros(len(targets))
        for task in np.unique(targets[:, 1]):
            every = np.flatnonzero(targets[:, 1] == task)
            own = every[:: -(-len(every) // MAX_PAIRED_PROGRAMS)]
            time, _, speed = targets[own].T
            guess = np.log(total[own])
            apart = np.where(time[:, None] + PAIR_NOISE < time, np.abs(speed[:, None] - speed), 0.0)  # row before column
            wrong = 1 / (1 + np.exp(np.clip(SHARPNESS * (guess - guess[:, None]), -30, 30)))
            pull, stiff = SHARPNESS * apart * wrong, SHARPNESS**2 * apart * wrong * (1 - wrong)
            slope[own] = pull.sum(0) - pull.sum(1)
            curve[own] = stiff.sum(0) + stiff.sum(1)
        step = np.clip(slope / (curve + DAMPING * curve.max() + 1e-9), -MAX_STEP, MAX_STEP)
        return step[program], curve[program] * times / total[program]


@dataclass(frozen=True, slots=True)
class ThroughputSum:
    """The loss of Ansor (OSDI 2020, section 5.2): y * (sum(f(s)) - y)^2. Its gradient is the same for all statements of a
    program. Here y is the program's throughput relative to the best of its task, 0 for a failure."""

    def start(self, features: np.ndarray) -> np.ndarray:
        return np.zeros(features.shape[1], dtype=np.float32)

    def targets(self, data: Dataset, min_weight: float) -> Weighted:
        throughputs = data.throughputs()
        return throughputs, throughputs

    def residuals(self, predicted: np.ndarray, program: np.ndarray, targets: np.ndarray, weights: np.ndarray) -> Weighted:
        total = np.bincount(program, weights=predicted, minlength=len(targets))
        return (targets - total)[program], weights[program]

    def parts(self, predicted: np.ndarray) -> np.ndarray:
        return predicted

    def scores(self, sums: np.ndarray) -> np.ndarray:
        return sums


Loss = TimeSum | ThroughputSum
