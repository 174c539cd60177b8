"""Credit assignment: the probability of each mutation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from codegen.target import Target

from ..population.mutate import Mutation
from ..space.sketch import Sketch

DECAY = 0.9  # factor of the counts so far after each generation
MIN_LIKELY = 0.02  # added to each probability, so that a mutation is never given up
LOGISTIC_STEPS, LOGISTIC_RATE = 4, 1.0  # of gradient descent, for each generation
PRIOR_TRIES = 4.0  # weight of a mutation's initial probability, in children


class FixedCredit:
    """Constant probabilities of mutations, as in Ansor and MetaSchedule; subclasses learn from the rewards of `Evolution`."""

    def __init__(self, probabilities: Mapping[str, float]):
        self.probabilities = dict(probabilities)

    def weights(self, names: Sequence[str]) -> np.ndarray:
        """The probabilities of these mutations: a float64 vector that sums to 1."""
        found = np.array([self.probabilities[name] for name in names])
        return found / found.sum()

    def pick(self, sketch: Sketch, names: Sequence[str], parents: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """The number of a mutation for each parent, a row of the sketch."""
        return rng.choice(len(names), size=len(parents), p=self.weights(names))

    def reward(self, name: str, wins: int, tries: int) -> None:
        """Learn that `wins` of a mutation's `tries` children scored better than their parents."""

    def learn(self, sketch: Sketch, name: str, parents: np.ndarray, better: np.ndarray) -> None:
        """Learn the outcome of a mutation: `better` marks the parents, rows of the sketch, that it improved."""
        self.reward(name, int(np.sum(better)), len(parents))


class AdaptiveCredit(FixedCredit):
    """Probabilities that follow the share of a mutation's recent children that beat their parents. An initial probability weighs
    as PRIOR_TRIES children."""

    def __init__(self, probabilities: Mapping[str, float]):
        super().__init__(probabilities)
        self._recent = {name: np.zeros(2) for name in self.probabilities}  # wins, tries

    def weights(self, names: Sequence[str]) -> np.ndarray:
        wins, tries = np.array([self._recent[name] for name in names]).T
        found = (wins + len(names) * super().weights(names)) / (tries + PRIOR_TRIES)
        return found / found.sum()

    def reward(self, name: str, wins: int, tries: int) -> None:
        self._recent[name] = DECAY * self._recent[name] + (wins, tries)


class PredictedCredit(FixedCredit):
    """Probabilities in proportion to the predicted chance that a mutation improves a row (Han et al., 2025). Each sketch and
    mutation has a logistic regression on the sizes of the row, learned online from the scores of children. So it sees where a
    mutation pays: doubling a tile that is large already does not."""

    def __init__(self, probabilities: Mapping[str, float]):
        super().__init__(probabilities)
        self._models: dict[tuple[str, str], np.ndarray] = {}

    def pick(self, sketch: Sketch, names: Sequence[str], parents: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        state = _state(parents)
        likely = np.stack([self._likely(sketch, name, state) for name in names], axis=1) * self.weights(names) + MIN_LIKELY
        bounds = np.cumsum(likely / likely.sum(axis=1, keepdims=True), axis=1)
        return np.minimum((rng.random(len(parents))[:, None] > bounds).sum(axis=1), len(names) - 1)

    def learn(self, sketch: Sketch, name: str, parents: np.ndarray, better: np.ndarray) -> None:
        if not len(parents):
            return
        state = _state(parents)
        weights = self._models.setdefault((sketch.name, name), np.zeros(state.shape[1]))
        for _ in range(LOGISTIC_STEPS):
            missing = better - self._likely(sketch, name, state)
            weights += LOGISTIC_RATE * missing @ state / len(parents)

    def _likely(self, sketch: Sketch, name: str, state: np.ndarray) -> np.ndarray:
        """The probability that a mutation improves each row."""
        weights = self._models.get((sketch.name, name))
        return np.full(len(state), 0.5) if weights is None else 1 / (1 + np.exp(-np.clip(state @ weights, -30, 30)))


def _state(rows: np.ndarray) -> np.ndarray:
    """Rows as numbers of about 1, with a constant."""
    return np.concatenate([np.log2(1.0 + rows) / 4, np.ones((len(rows), 1))], axis=1)


CREDITS: dict[str, Callable[[Mapping[str, float]], FixedCredit]] = {
    "adaptive": AdaptiveCredit,
    "fixed": FixedCredit,
    "predicted": PredictedCredit,
}


def mutants_of(
    sketch: Sketch,
    target: Target,
    parents: np.ndarray,
    mutations: Mapping[str, Mutation],
    credit: FixedCredit,
    rng: np.random.Generator,
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """A mutant of each parent, a row of the sketch, and the numbers of the mutants of each mutation."""
    names = [name for name, mutation in mutations.items() if mutation.suits(sketch)]
    mutants = parents.copy()
    if not names or not len(parents):
        return mutants, {}
    picked = credit.pick(sketch, names, parents, rng)
    made_by = {name: np.flatnonzero(picked == n) for n, name in enumerate(names)}
    for name, own in made_by.items():
        if len(own):
            mutants[own] = mutations[name].operate(sketch, target, parents[own], rng)
    return mutants, made_by
