"""Weights as integers of 8 or 4 bits, with a scale for each output channel, or for each block of its inputs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..passes.integers import along, largest_pairs

LARGEST_BYTE = 127  # of symmetric weights of 8 bits
BITS = {"int8": 8, "int4": 4}
BLOCKS = (32, 64, 128)  # inputs that share a scale of 4 bits
DEFAULT_BLOCK = 32
SHRUNK = np.linspace(1.0, 0.75, 11)  # parts of a block's range that are tried for the least squared error


@dataclass(frozen=True)
class QuantisedWeights:
    """Weights as (numbers - zeros) * scales, a scale for each index, or each `block`, along `axis`. Zeros of None are 0."""

    numbers: np.ndarray
    scales: np.ndarray
    zeros: np.ndarray | None
    axis: int
    block: int = 0

    @property
    def real(self) -> np.ndarray:
        """The weights that the numbers stand for."""
        scales, zeros = (self._of_each(x) for x in (self.scales, np.zeros(1) if self.zeros is None else self.zeros))
        return ((self.numbers.astype(np.float32) - zeros) * scales).astype(np.float32)

    def _of_each(self, given: np.ndarray) -> np.ndarray:
        """Scales or zero points, shaped to broadcast."""
        if not self.block or given.size == 1:
            return along(given, self.axis, self.numbers.ndim)
        return np.repeat(given, self.block, self.axis).take(range(self.numbers.shape[self.axis]), self.axis)


def by_channel(weights: np.ndarray, axis: int, pairs: int | None = None) -> QuantisedWeights:
    """Symmetric integers of 8 bits with a scale for each index along an axis, the largest weight as 127; with `pairs` the largest
    sum of two neighbours of one sign along that other axis, so that rounded ones add up to 128 at most."""
    others = tuple(n for n in range(weights.ndim) if n != axis)
    largest = np.abs(weights) if pairs is None else np.moveaxis(largest_pairs(weights, pairs), 0, pairs)
    scales = largest.max(axis=others, keepdims=True).astype(np.float32) / np.float32(LARGEST_BYTE)
    scales = np.where(scales > np.finfo(np.float32).tiny, scales, np.float32(1))
    numbers = np.clip(np.rint(weights / scales), -LARGEST_BYTE, LARGEST_BYTE).astype(np.int8)
    return QuantisedWeights(numbers, scales.reshape(-1), None, axis)


def by_blocks(weights: np.ndarray, axis: int, block: int, symmetric: bool) -> QuantisedWeights:
    """Integers of 4 bits with a scale, and unless `symmetric` a zero point, for each block along an axis. Each block has the
    range of the least squared error, of those that SHRUNK gives."""
    moved = np.moveaxis(weights, axis, -1).astype(np.float32)
    extent = moved.shape[-1]
    padded = np.pad(moved, [(0, 0)] * (moved.ndim - 1) + [(0, -extent % block)])
    blocks = padded.reshape(*moved.shape[:-1], -1, block)
    best = None
    for part in SHRUNK:
        found = _symmetric(blocks, part) if symmetric else _from_zero_point(blocks, part)
        numbers, scales, zeros = found
        error = np.square((numbers - zeros) * scales - blocks).sum(axis=-1, keepdims=True)
        better = True if best is None else error < best[0]
        new = (error, *found)
        best = new if best is None else tuple(np.where(better, a, b) for a, b in zip(new, best, strict=True))
    assert best is not None
    _, numbers, scales, zeros = best
    kind = np.int8 if symmetric else np.uint8
    numbers = np.moveaxis(numbers.reshape(*padded.shape)[..., :extent], -1, axis).astype(kind)
    scales, zeros = (np.moveaxis(a[..., 0], -1, axis) for a in (scales, zeros))
    return QuantisedWeights(
        np.ascontiguousarray(numbers), np.ascontiguousarray(scales.astype(np.float32)),
        None if symmetric else np.ascontiguousarray(zeros.astype(kind)), axis, block,
    )  # fmt: skip


def _symmetric(blocks: np.ndarray, part: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Numbers from -8 to 7 of blocks: the weight of the largest size is -8, whichever sign it has."""
    largest = np.take_along_axis(blocks, np.abs(blocks).argmax(axis=-1, keepdims=True), axis=-1)
    scales = largest * np.float32(part) / np.float32(-8)
    scales = np.where(np.abs(scales) > np.finfo(np.float32).tiny, scales, np.float32(1))
    numbers = np.clip(np.rint(blocks / scales), -8, 7)
    return numbers, scales, np.zeros_like(scales)


def _from_zero_point(blocks: np.ndarray, part: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Numbers from 0 to 15 of blocks, of which one is exactly 0."""
    low = np.minimum(blocks.min(axis=-1, keepdims=True), 0) * np.float32(part)
    high = np.maximum(blocks.max(axis=-1, keepdims=True), 0) * np.float32(part)
    scales = (high - low) / np.float32(15)
    scales = np.where(scales > np.finfo(np.float32).tiny, scales, np.float32(1))
    zeros = np.clip(np.rint(-low / scales), 0, 15)
    return np.clip(np.rint(blocks / scales) + zeros, 0, 15), scales, zeros
