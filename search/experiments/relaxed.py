"""Smooth forms of recorded formulas over real numbers, with gradients (Felix: Zhao et al., ASPLOS 2024, section 3.2)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from costmodel.recording import OPERATIONS, Recording

SHARPNESS = 24.0  # factor of a relative difference in the logistic function that takes the place of a comparison
CEIL_SLACK = 1e-9  # most that a quotient exceeds an integer by rounding

Partials = Sequence[Any]  # derivatives by the operands of a step


class Relaxed:
    """A recorded program as a smooth function of real columns, with its gradient by reverse accumulation."""

    def __init__(self, recording: Recording, results: int):
        self.constants = recording.constants.tolist()
        self.steps: list[tuple[str, tuple[int, ...]]] = []  # operations, and the indices of their operands among the values
        self.results = [0] * results
        value = [*range(len(self.constants)), *[0] * recording.registers]  # index of the value in each register
        for code, to, *operands in recording.code.tolist():
            if (op := OPERATIONS[code]) == "store":
                self.results[to] = value[operands[0]]
                continue
            self.steps.append((op, (operands[0],) if op == "column" else tuple(value[r] for r in operands)))
            value[to] = len(self.constants) + len(self.steps) - 1

    def run(self, x: np.ndarray) -> tuple[np.ndarray, list[Partials]]:
        """The results for a (columns, n) matrix, a (results, n) matrix clipped at 0, and the derivatives of each step."""
        values: list[Any] = [*self.constants]
        partials: list[Partials] = []
        for op, operands in self.steps:
            value, derivatives = (x[operands[0]], ()) if op == "column" else RULES[op](*(values[k] for k in operands))
            values.append(value)
            partials.append(derivatives)
        return np.maximum([np.broadcast_to(values[r], x.shape[1]) for r in self.results], 0.0), partials

    def gradient(self, partials: Sequence[Partials], slopes: np.ndarray, columns: int) -> np.ndarray:
        """The gradient of the sum of the results times `slopes`, (results, n), with respect to the columns: (columns, n)."""
        found = np.zeros((columns, slopes.shape[1]))
        pulls: list[Any] = [0.0] * (len(self.constants) + len(self.steps))
        for r, slope in zip(self.results, slopes, strict=True):
            pulls[r] = pulls[r] + slope
        for (op, operands), derivatives in zip(reversed(self.steps), reversed(partials), strict=True):
            pull = pulls.pop()
            if op == "column":
                found[operands[0]] += pull
            for k, derivative in zip(operands, derivatives, strict=False):
                pulls[k] = pulls[k] + pull * derivative
        return found


def _less(a: Any, b: Any) -> tuple[Any, Partials]:
    """The degree to which a < b holds, from 0 to 1, by their difference relative to their size."""
    size = np.abs(a) + np.abs(b) + 1e-9
    apart = (b - a) / size
    share = 1 / (1 + np.exp(-SHARPNESS * apart))
    slope = SHARPNESS * share * (1 - share) / size
    return share, (-slope * (1 + apart * np.sign(a)), slope * (1 - apart * np.sign(b)))


def _select(share: Any, a: Any, b: Any) -> tuple[Any, Partials]:
    return b + share * (a - b), (a - b, share, 1 - share)


def _minimum(a: Any, b: Any, _: Any) -> tuple[Any, Partials]:
    share, (da, db) = _less(a, b)
    value, (pull, of_a, of_b) = _select(share, a, b)
    return value, (of_a + pull * da, of_b + pull * db)


def _maximum(a: Any, b: Any, _: Any) -> tuple[Any, Partials]:
    value, (da, db) = _minimum(-a, -b, _)
    return -value, (da, db)


def _quotient(a: Any, b: Any, _: Any) -> tuple[Any, Partials]:
    return a / b, (1 / b, -a / b**2)


# Functions from the operands of an operation to its smooth value and the derivatives by the operands.
RULES: dict[str, Callable[..., tuple[Any, Partials]]] = {
    "+": lambda a, b, _: (a + b, (1.0, 1.0)),
    "-": lambda a, b, _: (a - b, (1.0, -1.0)),
    "*": lambda a, b, _: (a * b, (b, a)),
    "/": _quotient,
    "//": _quotient,
    "%": lambda a, b, _: (b / 2, (0.0, 0.5)),  # the mean of all remainders
    "min": _minimum,
    "max": _maximum,
    "<": lambda a, b, _: _less(a, b),
    "<=": lambda a, b, _: _less(a, b),
    "select": _select,
    "ceil": lambda a, *_: (np.ceil(a - CEIL_SLACK), (1.0,)),  # exact, with the gradient of the identity
}
