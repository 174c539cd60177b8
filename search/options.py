"""What a tuning run is asked for, checked before anything is started."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict
from numbers import Integral, Real
from pathlib import Path
from typing import Any

from tir.nearest import no_such
from tir.tune.arguments import MODELS, SEARCHES, SEEDS, SPACES

from .measure import Candidate, Limits
from .measure.reference import Workload
from .records import Records


def check_budget(trials: Any, seconds: Any, least: int = 1) -> None:
    """ValueError unless `trials` (at least `least` of them), `seconds` or both are a budget; None is no limit."""
    if trials is None and seconds is None:
        raise ValueError("a budget is needed: trials, seconds or both")
    if trials is not None and (not _is(Integral, trials) or trials < least):
        raise ValueError(f"trials must be at least {least}, got {trials!r}")
    if seconds is not None and (not _is(Real, seconds) or not 0 < seconds < math.inf):
        raise ValueError(f"seconds must be positive, got {seconds!r}")


def check_options(
    records: Any,
    seed: Any,
    callbacks: Any,
    limits: Any = None,
    workload: Any = None,
    workers: Any = None,
    rules: Any = None,
    first: Any = None,
    builder: Any = None,
) -> None:
    """ValueError for a value of one of these options that no run can do anything with."""
    if records is not None and not isinstance(records, (str, Path, Records)):
        raise ValueError(f"records takes the name of a file or an open Records, got {records!r}")
    if not _is(Integral, seed) or not 0 <= seed < SEEDS:
        raise ValueError(f"seed must be an integer of at least 0, and below 2**63, got {seed!r}")
    if not _all(callbacks, callable):
        raise ValueError(f"callbacks takes a list of functions of one event, got {callbacks!r}")
    if limits is not None and not isinstance(limits, Limits):
        raise ValueError(f"limits takes search.Limits, got {limits!r}")
    if limits is not None:
        _check_limits(limits)
    if workload is not None and not isinstance(workload, Workload):
        raise ValueError(f"workload takes search.oracle.Workload, got {workload!r}")
    if workers is not None and (not _is(Integral, workers) or workers < 1):
        raise ValueError(f"workers must be at least 1, got {workers!r}")
    if rules is not None and not _all(rules, lambda r: hasattr(r, "applies") and hasattr(r, "apply")):
        raise ValueError(f"rules takes a list of sketch rules, as search.rules.rule makes of a function, got {rules!r}")
    if first is not None and not _all(first, lambda c: isinstance(c, Candidate)):
        raise ValueError(f"first takes a list of search.measure.Candidate, got {first!r}")
    if builder is not None and not isinstance(builder, str):
        raise ValueError(f"builder takes the name of a module, got {builder!r}")


def _check_limits(limits: Limits) -> None:
    """ValueError for a limit that is no number of seconds, runs or bytes; `min_seconds` and `min_runs` may be 0."""
    for name, value in asdict(limits).items():
        number = _is(Real, value) and (value > 0 or (value == 0 and name.startswith("min_")))
        if not number and not (name == "memory" and value is None):
            raise ValueError(f"Limits.{name} should be a positive number, got {value!r}")


def check_names(**chosen: Any) -> None:
    """ValueError where one of `search`, `model` and `space` is a name that there is not, or an object that cannot be one; None
    is no choice."""
    known = {"search": SEARCHES, "model": MODELS, "space": SPACES}
    for what, value in chosen.items():
        if isinstance(value, str) and value not in known[what]:
            raise ValueError(no_such(what, value, known[what]))
    model = chosen.get("model")
    usable = hasattr(model, "score") and hasattr(model, "update") and not isinstance(model, type)
    if not isinstance(model, (str, type(None))) and not usable:
        raise ValueError(f"model takes a name, or an object with score and update (costmodel.CostModel), got {model!r}")


def _is(kind: type, value: object) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)


def _all(values: Any, good: Callable[[Any], bool]) -> bool:
    return isinstance(values, Sequence) and not isinstance(values, str) and all(map(good, values))
