"""The policies and models by name, for `autotune(policy=..., model=...)` and the command line."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from codegen.target import Target
from costmodel import CostModel, GBDTModel, RandomModel
from costmodel.pretrained import pretrained

from ..backends import search_backend
from ..experiments.ansor import Ansor, pack_sum
from ..experiments.beam import BeamSearch
from ..experiments.directions import DirectionWalk
from ..experiments.felix import Felix
from ..experiments.lfbo import LikelihoodFree
from ..experiments.pruner import Pruner
from ..experiments.reasoning import ReasoningSearch
from ..experiments.template import TemplateTuner
from ..experiments.tlp import TraceModel
from ..experiments.tree import TreeSearch
from ..population.sample import legalize
from ..space.generation import Opening, generate
from ..space.rules import Rule
from ..space.sketch import Sketch
from ..task import Task
from ..tuning.options import check_names
from .evolution import Evolution
from .plan import NoTemplate, Plan
from .protocol import Policy
from .random_search import RandomSearch
from .shared_model import SharedModel

MAX_FIRST_SEEDS = 4  # sketches whose seeds are measured first, at most
Start = tuple[Sketch, np.ndarray]  # a sketch and a row of it
Models = tuple[CostModel | None, CostModel | None]  # a model that learns, and a prior


@dataclass(frozen=True, slots=True)
class Subject:
    """The subject of a policy: a task, its target, the search space or the rules, and the models."""

    task: Task
    target: Target
    space: str | Opening
    rules: Sequence[Rule] | None
    models: Models

    def sketches(self) -> list[Sketch]:
        return generate(self.task.func, self.target, self.rules, self.space)


@dataclass(frozen=True, slots=True)
class Named:
    """A named policy: a function that makes it from a subject and further arguments, and its default space and model."""

    make: Callable[..., Policy]
    space: str = "full"
    model: str = "pretrained"


def _over_rows(policy: Callable[..., Policy], subject: Subject, **parts: Any) -> Policy:
    """A policy over the rows of sketches, which begins with their seeds."""
    sketches = subject.sketches()
    parts.setdefault("start", seeds(sketches, subject.target))
    return policy(sketches, subject.target, *subject.models, **parts)


def _plan(subject: Subject) -> Policy:
    """Planning, where the library knows the function; else random search by the analytic model."""
    try:
        return Plan(subject.task.func, subject.target)
    except NoTemplate:
        return RandomSearch(subject.sketches(), subject.target, subject.models[0])


POLICIES: dict[str, Named] = {
    "evolution": Named(partial(_over_rows, Evolution)),
    "random": Named(lambda subject, **parts: RandomSearch(subject.sketches(), subject.target, subject.models[0], **parts)),
    "ansor": Named(partial(_over_rows, Ansor, start=()), "ansor", "pack-sum"),
    "template": Named(partial(_over_rows, TemplateTuner)),
    "directions": Named(partial(_over_rows, DirectionWalk), model="tile"),
    "beam": Named(partial(_over_rows, BeamSearch)),
    "tree": Named(partial(_over_rows, TreeSearch)),
    "pruner": Named(partial(_over_rows, Pruner)),
    "felix": Named(partial(_over_rows, Felix), model="none"),
    "lfbo": Named(partial(_over_rows, LikelihoodFree), model="none"),
    "tlp": Named(partial(_over_rows, TraceModel), model="none"),
    "reasoning": Named(partial(_over_rows, ReasoningSearch)),
    "plan": Named(_plan, model="tile"),
}


MODELS: dict[str, Callable[[Target], Models]] = {
    "pretrained": lambda target: (
        GBDTModel(target.machine, base=pretrained(target.machine)),
        search_backend(target).prior(target),
    ),
    "gbdt": lambda target: (GBDTModel(target.machine), search_backend(target).prior(target)),
    "pack-sum": lambda target: (pack_sum(target), None),
    "tile": lambda target: (search_backend(target).prior(target), None),
    "random": lambda target: (RandomModel(np.random.default_rng(0)), None),
    "none": lambda target: (None, None),
}


def make_policy(
    task: Task,
    policy: str = "evolution",
    model: str | CostModel | Models | None = None,
    space: str | Opening | None = None,
    rules: Sequence[Rule] | None = None,
    **parts: Any,
) -> Policy:
    """The policy of a task, by its name in POLICIES. `model` is a name in MODELS or a model, `space` a name or a function of an
    `OpenSchedule`; None is the policy's own. `rules` derive the sketches in place of those of the space. `parts` are further
    arguments of the policy, as those of `Evolution`. ValueError, with the known names, for an unknown one."""
    check_names(policy=policy, model=model, space=space)
    target, named = task.resolved, POLICIES[policy]
    models = _models(named.model if model is None else model, target)
    return named.make(Subject(task, target, space or named.space, rules, models), **parts)


def shared_models(model: str | CostModel | None, target: Target, policy: str = "evolution") -> Models:
    """The models for all tasks of a run; None is the default model of `policy`."""
    learning, prior = _models(POLICIES[policy].model if model is None else model, target)
    return learning and SharedModel(learning), prior and SharedModel(prior)


def _models(model: str | CostModel | Models, target: Target) -> Models:
    if isinstance(model, str):
        return MODELS[model](target)
    return model if isinstance(model, tuple) else (model, None)


def seeds(sketches: Sequence[Sketch], target: Target) -> list[Start]:
    """The first rows of a policy: the seeds, in canonical form, of the first sketches that have one."""
    seeded = [(s, s.seed) for s in sketches if s.seed is not None][:MAX_FIRST_SEEDS]
    return [(s, legalize(s, target, s.matrix([seed]))[0]) for s, seed in seeded]
