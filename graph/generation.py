"""Texts from a model: prompts are read in blocks of tokens, then each step makes a token of each text."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from .compilation import compile
from .saved import load
from .sizes import OpenGraph

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
    """A compiled network of a language model, with caches of its own, for texts of at most `room` tokens. Prompts are read
    `block` tokens a step. The model is loaded from the file `kept`, or, where that does not exist, compiled and written to it.

    `network` gives the graph of a step. Its inputs are `ids` (batch, "tokens"), the places `at` (batch) of the first of these,
    the index `last` (batch) of the one whose scores are the first output, `places` ("length"), which are 0, 1, …, and caches.
    Each is donated to an output of its name behind "new."; their third dimension has room for one token more than a text.
    """

    def __init__(
        self,
        network: Callable[[], OpenGraph],
        *,
        block: int = 128,
        target: str | None = None,
        stops: Collection[int] = (),
        kept: Path | None = None,
    ):
        self.stops = stops
        self.model: Any
        if kept is not None and kept.exists():
            self.model = load(kept)
            graph = self.model.graph
        else:
            graph = network()
        caches = graph.inputs[4:]
        self.batch, _, places, _ = caches[0].known
        self.room = room = places - 1
        self.block = block = min(block, room)
        if kept is None or not kept.exists():
            sizes = {"tokens": (1, block), "length": (min(WINDOW, room), room)}
            compiled = compile(graph, target, sizes=sizes, donate={v.name: f"new.{v.name}" for v in caches})
            self.model = compiled if kept is None else load(compiled.save(kept))
        ends = np.cumsum([prod(v.known) for v in caches])
        parts = np.split(np.zeros(ends[-1], np.float32), ends[:-1])  # one block, which lies in large pages
        self.caches = [part.reshape(v.known) for part, v in zip(parts, caches, strict=True)]

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
        scores = np.zeros((self.batch, 1), np.float32)
        for n in range(blocks):  # rows behind the end of a shorter text are written anew before they are read
            first = min(n * self.block, self.room - self.block)  # a last block beyond the caches begins earlier
            last = np.clip(ends - 1 - first, 0, self.block - 1)
            found = self.step(ids[:, first : first + self.block], np.full(self.batch, first), last)
            scores = np.where((ends > first)[:, None], found, scores)  # of the block where a prompt ends
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
