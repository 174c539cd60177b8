"""The searches and models that have names: what `autotune(search=..., model=..., space=...)` and the command line offer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from codegen.target import Target
from costmodel import CostModel, GBDTModel, RandomModel
from tir.ir import PrimFunc
from tir.traverse import blocks

from .backends import search_backend
from .default import LARGE
from .evolution import Evolution
from .options import check_names
from .rules import Rule
from .sampler import Sampler
from .sketch import Sketch
from .space import generate
from .task import Task
from .twin import twin

if TYPE_CHECKING:
    from .protocol import Search

Start = tuple[Sketch, np.ndarray]  # a sketch and a row of it

# Of sketches, target, the model that learns, one that knows something beforehand; and, by name, further arguments.
SEARCHES: dict[str, Callable[..., Search]] = {
    "evolution": Evolution,
    "random": lambda sketches, target, model, prior: Sampler(sketches, target, model),
}


# What learns, and what knows something beforehand.
MODELS: dict[str, Callable[[Target], tuple[CostModel | None, CostModel | None]]] = {
    "gbdt": lambda target: (GBDTModel(target.machine), search_backend(target).prior(target)),
    "tile": lambda target: (search_backend(target).prior(target), None),
    "random": lambda target: (RandomModel(np.random.default_rng(0)), None),
    "none": lambda target: (None, None),
}


def search(
    task: Task,
    search: str = "evolution",
    model: str | CostModel = "gbdt",
    space: str = "full",
    rules: Sequence[Rule] | None = None,
    **parts: Any,
) -> Search:
    """The search of a task: one of SEARCHES, with one of MODELS or a model of one's own, over the sketches of a space or those of
    other `rules`; `parts` are further arguments of the search, as those of `Evolution`. ValueError, with what there is, for an
    unknown name."""
    check_names(search=search, model=model, space=space)
    target = Target(task.target)
    learning, prior = MODELS[model](target) if isinstance(model, str) else (model, None)
    sketches = generate(task.func, target, rules, space)
    if search == "evolution" and space == "full" and "start" not in parts:
        parts["start"] = beginning(task.func, target, sketches)
    return SEARCHES[search](sketches, target, learning, prior, **parts)


def beginning(func: PrimFunc, target: Target, sketches: Sequence[Sketch]) -> Start | None:
    """The row that is most like the library's schedule of a function, if it has one and a sketch can come close to it."""
    found = search_backend(target)
    if not found.begins or len(blocks(func)) > LARGE:
        return None
    known = found.library(func, target)
    return None if known is None else twin(sketches, known.func, target)
