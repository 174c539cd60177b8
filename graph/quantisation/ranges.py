"""The ranges of activations: histograms over samples, and the range whose quantisation is closest to them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

LEVELS = 255  # steps between the least and the largest number of 8 bits
BINS = 4096  # of a histogram: 8 for each of the numbers of 8 bits, where both signs reach as far
MIN_REACH = 2.0**-116  # of a histogram: bins in this reach have an inverse width that float32 holds
FRACTIONS = np.geomspace(1.0, 0.25, 33)  # of a range, which may be cut to them
TAIL = 1e-4  # part of the elements that the choice "percentile" cuts off on each side


@dataclass
class Histogram:
    """Counts of the elements of a tensor between -reach and reach, a power of two that doubles as needed."""

    low: float = 0.0
    high: float = 0.0
    reach: float = 0.0
    counts: np.ndarray = field(default_factory=lambda: np.zeros(BINS, np.int64))

    def add(self, array: np.ndarray) -> None:
        """Count the elements of an array, all of them finite."""
        low, high = float(array.min(initial=0.0)), float(array.max(initial=0.0))
        self.low, self.high = min(self.low, low), max(self.high, high)
        if (largest := max(-low, high)) > self.reach:
            self._widen(max(MIN_REACH, 2.0 ** np.ceil(np.log2(largest))))
        if self.reach:
            bins = (array.reshape(-1) * np.float32(BINS / 2 / self.reach) + np.float32(BINS / 2)).astype(np.int32)
            self.counts += np.bincount(np.minimum(bins, BINS - 1), minlength=BINS)

    def _widen(self, reach: float) -> None:
        while self.reach and self.reach < reach and self.counts.any():
            joined = self.counts.reshape(-1, 2).sum(axis=1)
            self.counts = np.zeros(BINS, np.int64)
            self.counts[BINS // 4 : -BINS // 4] = joined
            self.reach *= 2
        self.reach = reach

    def joined(self, other: Histogram) -> Histogram:
        """The counts of both."""
        reach, found = max(self.reach, other.reach), Histogram(min(self.low, other.low), max(self.high, other.high))
        found.reach = reach
        for one in (self, other):
            wide = Histogram(one.low, one.high, one.reach, one.counts)
            wide._widen(reach)
            found.counts = found.counts + wide.counts
        return found

    @property
    def centres(self) -> np.ndarray:
        """The middle of each bin."""
        return (np.arange(BINS) + 0.5 - BINS / 2) * (self.reach / (BINS / 2))


def point_of(low: float, high: float) -> tuple[np.float32, np.uint8]:
    """The scale and the zero point of uint8 for a range that contains 0. The zero point is exactly 0."""
    scale = np.float32((high - low) / LEVELS)
    scale = scale if scale > np.finfo(np.float32).tiny else np.float32(1)
    return scale, np.uint8(np.clip(np.rint(-low / scale), 0, LEVELS))


def _mean_square_error(h: Histogram, low: float, high: float) -> float:
    """The mean squared error of the elements by a range."""
    scale, zero = point_of(low, high)
    numbers = np.clip(np.rint(h.centres / scale) + zero, 0, LEVELS)
    return float(h.counts @ np.square((numbers - zero) * scale - h.centres))


def least_error(h: Histogram) -> tuple[float, float]:
    """The range of the least mean squared error among those that FRACTIONS cut on each side."""
    high = min(h.high * FRACTIONS, key=lambda high: _mean_square_error(h, h.low, high))
    low = min(h.low * FRACTIONS, key=lambda low: _mean_square_error(h, low, high))
    return float(low), float(high)


def whole(h: Histogram) -> tuple[float, float]:
    """From the least to the largest element."""
    return h.low, h.high


def without_tails(h: Histogram) -> tuple[float, float]:
    """The range of all elements but a part of TAIL on each side."""
    below = np.cumsum(h.counts) / max(1, h.counts.sum())
    low, high = (float(h.centres[min(int(np.searchsorted(below, part)), BINS - 1)]) for part in (TAIL, 1 - TAIL))
    return max(min(0.0, low), h.low), min(max(0.0, high), h.high)


RANGES: dict[str, Callable[[Histogram], tuple[float, float]]] = {
    "mse": least_error,
    "minmax": whole,
    "percentile": without_tails,
}
