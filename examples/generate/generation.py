"""Texts from a model: prompts are read in blocks of tokens, then each step makes a token of each text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

import tir

from .checkpoint import Checkpoint
from .network import caches, donated, network

WINDOW = 64  # positions by which the length that attention reads grows: each length needs a table of its own

Sampler = Callable[[np.ndarray], np.ndarray]  # tokens (batch) of scores (batch, vocabulary)


def greedy(scores: np.ndarray) -> np.ndarray:
    """The tokens of the largest scores."""
    return scores.argmax(-1)


def sampled(rng: np.random.Generator, temperature: float, most: int) -> Sampler:
    """Tokens drawn by softmax(scores / temperature) among the `most` largest scores."""

    def sample(scores: np.ndarray) -> np.ndarray:
        top = np.argpartition(scores, -most, axis=-1)[:, -most:]
        noise = rng.gumbel(size=top.shape)  # the largest of scores with such noise is drawn by softmax
        best = (np.take_along_axis(scores, top, -1) / temperature + noise).argmax(-1)
        return np.take_along_axis(top, best[:, None], -1)[:, 0]

    return sample


class Generator:
    """A compiled model for `batch` texts of at most `room` tokens, with caches of its own. Prompts are read `block` tokens a
    step. The model is loaded from the file `kept`, or, where that does not exist, compiled and written to it."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        *,
        batch: int = 1,
        room: int | None = None,
        block: int = 128,
        row_bits: int = 32,
        target: str | None = None,
        kept: Path | None = None,
    ):
        config = checkpoint.config
        wanted = config.room if room is None else min(room, config.room)
        self.room, self.batch = -(-wanted // WINDOW) * WINDOW, batch
        self.block = block = min(block, self.room)
        self.stops = checkpoint.stops
        self.model: Any
        if kept is not None and kept.exists():
            self.model = tir.load(kept)
        else:
            graph = network(checkpoint, batch, self.room, row_bits)
            sizes = {"tokens": (1, block), "length": (min(WINDOW, self.room), self.room)}
            compiled = tir.compile(graph, target, sizes=sizes, donate=donated(config))
            self.model = compiled if kept is None else tir.load(compiled.save(kept))
        shapes = caches(config, batch, self.room)
        ends = np.cumsum([prod(shape) for shape in shapes.values()])
        parts = np.split(np.zeros(ends[-1], np.float32), ends[:-1])  # one block, which lies in large pages
        self.caches = [part.reshape(shape) for part, shape in zip(parts, shapes.values(), strict=True)]

    def step(self, ids: np.ndarray, at: np.ndarray, last: np.ndarray) -> np.ndarray:
        """Scores (batch, vocabulary) after token `last` (batch) of `ids` (batch, tokens), which begin at places `at` (batch)."""
        length = min(self.room, -(-int(at.max() + ids.shape[1]) // WINDOW) * WINDOW)
        return self.model(ids, at, last, np.arange(length), *self.caches)[0]

    def prefill(self, prompts: Sequence[Sequence[int]]) -> np.ndarray:
        """Scores (batch, vocabulary) after the prompts, which fill the caches."""
        ends = np.array([len(p) for p in prompts])
        if len(prompts) != self.batch or ends.min() < 1 or ends.max() > self.room:
            raise ValueError(f"expected {self.batch} prompts of 1 to {self.room} tokens, got {ends.tolist()}")
        blocks = -(-ends.max() // self.block)
        ids = np.zeros((self.batch, blocks * self.block), np.int64)
        for row, prompt in zip(ids, prompts, strict=True):
            row[: len(prompt)] = prompt
        for n in range(blocks):  # rows behind the end of a shorter text are written anew before they are read
            first = min(n * self.block, self.room - self.block)  # a last block beyond the caches begins earlier
            last = np.clip(ends - 1 - first, 0, self.block - 1)
            found = self.step(ids[:, first : first + self.block], np.full(self.batch, first), last)
            scores = found if n == 0 else np.where((ends > first)[:, None], found, scores)  # of the block where a prompt ends
        return scores

    def generate(self, prompts: Sequence[Sequence[int]], tokens: int, sample: Sampler = greedy) -> Iterator[np.ndarray]:
        """The next tokens (batch) of the texts, at most `tokens` times, until all texts have ended or one fills its room."""
        scores, at = self.prefill(prompts), np.array([len(p) for p in prompts])
        ended = np.zeros(self.batch, bool)
        for _ in range(tokens):
            found = sample(scores)
            yield found
            ended |= np.isin(found, list(self.stops))
            if ended.all() or at.max() >= self.room:
                return
            scores = self.step(found[:, None], at, np.zeros(self.batch, np.int64))
            at = at + 1
