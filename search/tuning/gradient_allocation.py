"""Allocation of the next trials to a task: by the gradient of an objective over all tasks (Ansor, section 6 and appendix A).

As in the paper, but not in released code, the choice is ε-greedy, and tasks are similar if their programs have the same
structure. `gamma` is not used in the original; here the optimistic part is multiplied by it after each round without progress.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from tir.ir import Buffer, Const, Node, PrimFunc, Var
from tir.traverse import blocks, children

MAX_ATTEMPTS = 3
GOLDEN_RATIO = (1 + math.sqrt(5)) / 2

Objective = Callable[[Sequence[float]], float]


@dataclass(frozen=True, slots=True)
class Allocation:
    """The constants of the choice, as in Ansor.

    `alpha` weighs the progress of a task over the last `window` rounds against the optimistic estimate. That assumes the speed of
    the best similar task over `beta`, and each round without progress multiplies it by `gamma`. The choice is random with the
    probability `epsilon`. After `patience` rounds without progress a task gets no more rounds; None for never.
    """

    alpha: float = 0.2
    beta: float = 2.0
    gamma: float = 0.5
    window: int = 3
    epsilon: float = 0.05
    patience: int | None = None


@dataclass
class TaskHistory:
    """A task's rounds: `best` seconds after each, infinite before a valid candidate. `flop` is that of the task, `group` its
    similar tasks. It is `dead` if it gets no more rounds; `under_way` are its rounds without a measurement."""

    flop: int
    group: str
    best: list[float] = field(default_factory=list)
    dead: bool = False
    under_way: int = 0
    expelled: bool = False  # from its group, because it stays slower than similar tasks

    @property
    def seconds(self) -> float:
        return self.best[-1] if self.best else math.inf

    @property
    def rounds(self) -> int:
        return len(self.best)

    @property
    def stalled_rounds(self) -> int:
        """Rounds since the last progress."""
        return sum(1 for s in self.best if s == self.seconds) - 1


def gradients(histories: Sequence[TaskHistory], objective: Objective, allocation: Allocation) -> np.ndarray:
    """The expected change of the objective by another round of each task (Ansor, appendix A), at most 0; 0 for dead tasks."""
    seconds = [h.seconds if math.isfinite(h.seconds) else 0.0 for h in histories]
    here = objective(seconds)
    result = np.zeros(len(histories))
    for n, h in enumerate(histories):
        if h.dead or not math.isfinite(h.seconds):
            continue
        delta = 1e-4 * h.seconds
        chain = (here - objective([*seconds[:n], h.seconds - delta, *seconds[n + 1 :]])) / delta
        progress = allocation.alpha * _backward(h, allocation) + (1 - allocation.alpha) * _forward(n, histories, allocation)
        result[n] = min(0.0, chain * progress)
    return result


def _backward(h: TaskHistory, allocation: Allocation) -> float:
    """The change of the best time a round, over the last `window` rounds; at most 0."""
    known = [s for s in h.best[-allocation.window - 1 :] if math.isfinite(s)]
    return (known[-1] - known[0]) / (len(known) - 1) if len(known) > 1 else 0.0


def _forward(n: int, histories: Sequence[TaskHistory], allocation: Allocation) -> float:
    """The optimistic change of the best time, the larger gain of two. As many rounds again bring it to 0; or the next round
    brings it to `beta` times the time at the speed of the best similar task. Rounds without progress make it less."""
    h = histories[n]
    hoped = -h.seconds / h.rounds
    speeds = [o.flop / o.seconds for o in histories if o.group == h.group and not o.expelled and math.isfinite(o.seconds)]
    if not h.expelled and len(speeds) > 1 and max(speeds) > 0:
        hoped = min(hoped, allocation.beta * h.flop / max(speeds) - h.seconds)
    return min(0.0, hoped) * allocation.gamma ** (h.stalled_rounds + h.under_way)


def expel(histories: Sequence[TaskHistory], allocation: Allocation) -> None:
    """Expel tasks from their group that stay `beta` times as slow as its best after more rounds than any other, by over 5."""
    for n, h in enumerate(histories):
        others = [o for k, o in enumerate(histories) if k != n and o.group == h.group and not o.expelled]
        if h.expelled or not others or not math.isfinite(h.seconds):
            continue
        fastest = max(o.flop / o.seconds if math.isfinite(o.seconds) else 0.0 for o in others)
        h.expelled = h.flop / h.seconds < fastest / allocation.beta and h.rounds > 5 + max(o.rounds for o in others)


def choose(tasks: Sequence[TaskHistory], objective: Objective, allocation: Allocation, rng: np.random.Generator) -> int | None:
    """The task of the next round, None if all are dead: each gets a round first, up to MAX_ATTEMPTS without a valid candidate."""
    alive = [n for n, h in enumerate(tasks) if not h.dead]
    if not alive:
        return None
    new = [n for n in alive if not tasks[n].rounds + tasks[n].under_way]
    failing = [n for n in alive if tasks[n].rounds < MAX_ATTEMPTS and not math.isfinite(tasks[n].seconds)]
    new = new or [n for n in failing if not tasks[n].under_way]
    if new:
        return new[0]
    if rng.random() < allocation.epsilon:
        return int(rng.choice(alive))
    found = gradients(tasks, objective, allocation)[alive]
    return int(rng.choice([alive[k] for k in np.flatnonzero(found == found.min())]))


def group(func: PrimFunc, flop: int) -> str:
    """A name shared by functions that differ in extents alone and in operations by a factor of at most about 1.6."""
    names: dict[str, int] = {}

    def shape(node: object) -> object:
        match node:
            case Const():
                return "number"
            case Var(name) | Buffer(name):
                return names.setdefault(name, len(names)), getattr(node, "dtype", "")
            case Node():
                own = [getattr(node, f) for f in ("op", "dtype") if isinstance(getattr(node, f, None), str)]
                return type(node).__name__, *own, *(shape(child) for child in children(node))
            case _:
                return type(node).__name__

    described = repr([([it.axis.name for it in b.iters], shape(b.body), b.init is not None) for b in blocks(func)])
    size = int(math.log(flop + 1) / math.log(GOLDEN_RATIO))
    return f"{hashlib.sha256(described.encode()).hexdigest()[:12]}/{size}"
