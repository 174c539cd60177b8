"""Options of a tuning run, checked before anything is started."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from numbers import Integral, Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tir.nearest import no_such

from ..measure import Candidate, Limits, Measurer
from ..names import MODELS, POLICIES, SEED_LIMIT, SPACES
from ..policy.protocol import Policy
from ..records import Records
from ..task import Task

if TYPE_CHECKING:
    from costmodel import CostModel

    from ..policy.named import Models
    from ..space.rules import Rule


@dataclass(frozen=True)
class Options:
    """The options of tuning tasks, explained by `autotune`. `first` are the first candidates, or a function of the task."""

    records: str | Path | Records | None = None
    seed: int = 0
    callbacks: Sequence[Callable[..., None]] = ()
    policy: str | Policy | Callable[[Task], Policy] | None = None
    model: str | CostModel | Models | None = None
    space: str | Callable[[Any], object] | None = None
    rules: Sequence[Rule] | None = None
    first: Sequence[Candidate] | Callable[[Task], Sequence[Candidate]] | None = None
    limits: Limits | None = None
    workers: int | None = None
    builder: str | None = None
    inputs: Mapping[str, np.ndarray] | None = None
    measurer: Callable[[Task], Measurer] | None = None


def check_budget(trials: Any, seconds: Any) -> None:
    """ValueError unless `trials`, `seconds` or both are a budget; None is no limit."""
    if trials is None and seconds is None:
        raise ValueError("a budget is needed: trials, seconds or both")
    if trials is not None and (not _is_a(Integral, trials) or trials < 1):
        raise ValueError(f"trials must be at least 1, got {trials!r}")
    if seconds is not None and (not _is_a(Real, seconds) or not 0 < seconds < math.inf):
        raise ValueError(f"seconds must be positive, got {seconds!r}")


def check_options(options: Options) -> None:
    """ValueError for an option of the wrong type or range, and for options that exclude each other."""
    for name, (good, takes) in _CHECKS.items():
        value = getattr(options, name)
        if value is not getattr(Options, name) and not good(value):
            raise ValueError(f"{name} {takes}, got {value!r}")
    for name, value in asdict(options.limits or Limits()).items():  # min_seconds and min_runs may be 0, memory may be None
        number = _is_a(Real, value) and (value > 0 or (value == 0 and name.startswith("min_")))
        if not number and not (name == "memory" and value is None):
            raise ValueError(f"Limits.{name} should be a positive number, got {value!r}")
    check_names(policy=options.policy, model=options.model, space=options.space)
    if options.policy == "plan" and (options.space is not None or options.rules is not None):
        given = "rules" if options.rules is not None else f"the space {options.space!r}"
        raise ValueError(f"the policy plan makes schedules without sketches, so it takes no rules and no space; got {given}")
    named = options.policy is None or isinstance(options.policy, str)
    if not named and not (options.model is options.space is options.rules is None):
        raise ValueError("model, space and rules are those of the named policies; a policy of your own brings its own")


def _is_rules(value: Any) -> bool:
    from ..space.rules import Rule

    return _is_list(value, lambda r: isinstance(r, Rule))


# For each option a predicate of its values, and the message for any other.
_CHECKS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "records": (lambda v: isinstance(v, (str, Path, Records)), "takes the name of a file or an open Records"),
    "seed": (lambda v: _is_a(Integral, v) and 0 <= v < SEED_LIMIT, "must be an integer of at least 0, and below 2**63"),
    "callbacks": (lambda v: _is_list(v, callable), "takes a list of functions of one event"),
    "limits": (lambda v: isinstance(v, Limits), "takes search.Limits"),
    "workers": (lambda v: _is_a(Integral, v) and v >= 1, "must be at least 1"),
    "builder": (lambda v: isinstance(v, str), "takes the name of a module"),
    "inputs": (
        lambda v: isinstance(v, Mapping) and all(isinstance(k, str) for k in v), "takes arrays by the names of parameters"
    ),
    "measurer": (callable, "takes what makes a search.Measurer of a task"),
    "first": (
        lambda v: callable(v) or _is_list(v, lambda c: isinstance(c, Candidate)), "takes a list of search.measure.Candidate"
    ),
    "rules": (_is_rules, "takes a list of sketch rules, as search.space.rules.rule makes of a function"),
    "policy": (
        lambda v: isinstance(v, (str, Policy)) or callable(v),
        "takes a name, an object with propose and update, or what makes one of the task",
    ),
}  # fmt: skip


def check_names(**chosen: Any) -> None:
    """ValueError if `policy`, `model` or `space` is an unknown name, or an object without the methods; None is no choice."""
    known = {"policy": POLICIES, "model": MODELS, "space": SPACES}
    for what, value in chosen.items():
        if isinstance(value, str) and value not in known[what]:
            raise ValueError(no_such(what, value, known[what]))
    space = chosen.get("space")
    if space is not None and not isinstance(space, str) and (isinstance(space, type) or not callable(space)):
        raise ValueError(f"space takes a name, or a function of a schedule.OpenSchedule, got {space!r}")
    model = chosen.get("model")
    if model is not None and not isinstance(model, str):
        from costmodel import CostModel

        for one in model if isinstance(model, tuple) and len(model) == 2 else (model,):
            if isinstance(one, type) or not isinstance(one, CostModel | None):
                raise ValueError(f"model takes a name, or an object with score and update (costmodel.CostModel), got {one!r}")


def _is_list(values: Any, good: Callable[[Any], bool]) -> bool:
    """True for a sequence, other than a string, of good values."""
    return isinstance(values, Sequence) and not isinstance(values, str) and all(map(good, values))


def _is_a(kind: type, value: object) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)
