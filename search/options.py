"""What a tuning run is asked for, checked before anything is started."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from numbers import Integral, Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tir.nearest import no_such
from tir.tune.arguments import MODELS, SEARCHES, SEEDS, SPACES

from .measure import Candidate, Limits, Measurer
from .records import Records
from .task import Task

if TYPE_CHECKING:
    from costmodel import CostModel

    from .protocol import Search
    from .rules import Rule


@dataclass(frozen=True)
class Options:
    """How tasks are tuned; `autotune` says what each means. `first` are the first candidates, or makes them of a task."""

    records: str | Path | Records | None = None
    seed: int = 0
    callbacks: Sequence[Callable[..., None]] = ()
    search: str | Search | Callable[[Task], Search] | None = None
    model: str | CostModel | None = None
    space: str | None = None
    rules: Sequence[Rule] | None = None
    first: Sequence[Candidate] | Callable[[Task], Sequence[Candidate]] | None = None
    limits: Limits | None = None
    workers: int | None = None
    builder: str | None = None
    measurer: Callable[[Task], Measurer] | None = None


def check_budget(trials: Any, seconds: Any, least: int = 1) -> None:
    """ValueError unless `trials` (at least `least` of them), `seconds` or both are a budget; None is no limit."""
    if trials is None and seconds is None:
        raise ValueError("a budget is needed: trials, seconds or both")
    if trials is not None and (not _is(Integral, trials) or trials < least):
        raise ValueError(f"trials must be at least {least}, got {trials!r}")
    if seconds is not None and (not _is(Real, seconds) or not 0 < seconds < math.inf):
        raise ValueError(f"seconds must be positive, got {seconds!r}")


def check_options(o: Options) -> None:
    """ValueError for a value of one of the options that no run can do anything with."""
    if o.records is not None and not isinstance(o.records, (str, Path, Records)):
        raise ValueError(f"records takes the name of a file or an open Records, got {o.records!r}")
    if not _is(Integral, o.seed) or not 0 <= o.seed < SEEDS:
        raise ValueError(f"seed must be an integer of at least 0, and below 2**63, got {o.seed!r}")
    if not _is_list(o.callbacks, callable):
        raise ValueError(f"callbacks takes a list of functions of one event, got {o.callbacks!r}")
    if o.limits is not None:
        _check_limits(o.limits)
    if o.workers is not None and (not _is(Integral, o.workers) or o.workers < 1):
        raise ValueError(f"workers must be at least 1, got {o.workers!r}")
    if o.builder is not None and not isinstance(o.builder, str):
        raise ValueError(f"builder takes the name of a module, got {o.builder!r}")
    if o.measurer is not None and not callable(o.measurer):
        raise ValueError(f"measurer takes what makes a search.Measurer of a task, got {o.measurer!r}")
    if o.first is not None and not callable(o.first) and not _is_list(o.first, lambda c: isinstance(c, Candidate)):
        raise ValueError(f"first takes a list of search.measure.Candidate, got {o.first!r}")
    check_names(search=o.search, model=o.model, space=o.space)
    _check_search(o)


def _check_search(o: Options) -> None:
    """ValueError for a search that cannot be one, or options that it cannot have."""
    if o.rules is not None:
        from .rules import Rule

        if not _is_list(o.rules, lambda r: isinstance(r, Rule)):
            raise ValueError(f"rules takes a list of sketch rules, as search.rules.rule makes of a function, got {o.rules!r}")
    if o.search is None or isinstance(o.search, str):
        return
    if not (o.model is o.space is o.rules is None):
        raise ValueError("model, space and rules are those of the named searches; a search of your own brings its own")
    if not callable(o.search):
        from .protocol import Search

        if not isinstance(o.search, Search):
            takes = "a name, an object with propose and tell, or what makes one of the task"
            raise ValueError(f"search takes {takes}; got {o.search!r}")


def _check_limits(limits: Any) -> None:
    """ValueError for a limit that is no number of seconds, runs or bytes; `min_seconds` and `min_runs` may be 0."""
    if not isinstance(limits, Limits):
        raise ValueError(f"limits takes search.Limits, got {limits!r}")
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
    if model is not None and not isinstance(model, str):
        from costmodel import CostModel

        if isinstance(model, type) or not isinstance(model, CostModel):
            raise ValueError(f"model takes a name, or an object with score and update (costmodel.CostModel), got {model!r}")


def _is_list(values: Any, good: Callable[[Any], bool]) -> bool:
    """Whether these are a sequence, other than a text, of good values."""
    return isinstance(values, Sequence) and not isinstance(values, str) and all(map(good, values))


def _is(kind: type, value: object) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)
