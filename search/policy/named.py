"""The policies and models that have names: what `autotune(search=..., model=...)` and the command line offer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from codegen.target import Target
from costmodel import CostModel, GBDTModel, RandomModel

from ..backends import search_backend
from ..population.sample import legalize
from ..space.generation import Opening, generate
from ..space.rules import Rule
from ..space.sketch import Sketch
from ..task import Task
from ..tuning.options import check_names
from .evolution import Evolution
from .random_search import RandomSearch
from .shared_model import SharedModel

if TYPE_CHECKING:
    from .protocol import Policy

SEEDS = 4  # sketches whose seeds are measured first, at most
Start = tuple[Sketch, np.ndarray]  # a sketch and a row of it
Models = tuple[CostModel | None, CostModel | None]  # what learns, and what knows something beforehand

# Of sketches, target, the model that learns, one that knows something beforehand; and, by name, further arguments.
POLICIES: dict[str, Callable[..., Policy]] = {
    "evolution": Evolution,
    "random": lambda sketches, target, model, prior: RandomSearch(sketches, target, model),
}


MODELS: dict[str, Callable[[Target], Models]] = {
    "gbdt": lambda target: (GBDTModel(target.machine), search_backend(target).prior(target)),
    "tile": lambda target: (search_backend(target).prior(target), None),
    "random": lambda target: (RandomModel(np.random.default_rng(0)), None),
    "none": lambda target: (None, None),
}


def make_policy(
    task: Task,
    search: str = "evolution",
    model: str | CostModel | Models = "gbdt",
    space: str | Opening = "full",
    rules: Sequence[Rule] | None = None,
    **parts: Any,
) -> Policy:
    """The policy of a task: the one of POLICIES called `search`, with one of MODELS or a model of one's own, over the sketches of
    a space (a name, or a function of an `OpenSchedule`) or of other `rules`. `parts` are further arguments of it, as those
    of `Evolution`. ValueError, with what there is, for an unknown name."""
    check_names(search=search, model=model, space=space)
    target = Target(task.target)
    learning, prior = _models(model, target)
    sketches = generate(task.func, target, rules, space)
    if search == "evolution":
        parts.setdefault("start", seeds(sketches, target))
    return POLICIES[search](sketches, target, learning, prior, **parts)


def shared_models(model: str | CostModel, target: Target) -> Models:
    """The models for all tasks of a run."""
    learning, prior = _models(model, target)
    return learning and SharedModel(learning), prior and SharedModel(prior)


def _models(model: str | CostModel | Models, target: Target) -> Models:
    if isinstance(model, str):
        return MODELS[model](target)
    return model if isinstance(model, tuple) else (model, None)


def seeds(sketches: Sequence[Sketch], target: Target) -> list[Start]:
    """The rows with which a policy begins: of the first sketches that have one, the seed, in canonical form."""
    seeded = [s for s in sketches if s.seed is not None][:SEEDS]
    return [(s, legalize(s, target, np.array([s.seed], dtype=np.int64).reshape(1, s.columns))[0]) for s in seeded]
