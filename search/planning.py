"""Plans: schedules that are measured as a function is compiled (`plan="measure"`), and kept for this user and machine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, get_args

from codegen import Target, backend
from codegen.cache import default_path
from tir.ir import PrimFunc
from tir.notices import degraded

from .records import Records, look_up, opened

Plan = Literal["estimate", "measure"]
TRIALS: int | None = None  # candidates of a function: all that time allows
SECONDS: float | None = 5.0  # of a function, of which one or two go by until the measuring process runs
WRITTEN_SECONDS = 0.5  # most of these for the program as written, which is measured but never becomes a plan


def users_plans() -> Path:
    """The records of this user's plans, beside the cache of compiled kernels; makes their folder."""
    folder = default_path().parent
    folder.mkdir(parents=True, exist_ok=True)
    return folder / "plans.db"


@contextmanager
def recorded(records: str | Path | Records | None, plan: Plan) -> Iterator[Records | None]:
    """Open records as `search.records.opened`. With the plan "measure" a missing file is made, and without
    `records` those of the user are opened. ValueError for another plan."""
    if plan not in get_args(Plan):
        raise ValueError(f"plan is {' or '.join(map(repr, get_args(Plan)))}, got {plan!r}")
    if plan == "measure" and not isinstance(records, Records):
        with Records(users_plans() if records is None else records) as found:
            yield found
    else:
        with opened(records) as known:
            yield known


def measure(funcs: Iterable[PrimFunc], target: Target, records: Records) -> None:
    """Measure alternatives of the default schedule of each function that has no record on this machine, and record them.

    Where none can be measured, a warning says why, and the default schedule stays. ValueError for a target that does not run
    here."""
    from .measure import Limits, WorkerError
    from .tuning.autotune import NothingFound, autotune

    missing = backend(target).missing(target)
    if missing:
        raise ValueError(f"plan is 'measure', but kernels for `{target}` cannot run here: {missing}; use plan='estimate'")
    for func in dict.fromkeys(funcs):
        if look_up(func, target, records).kind == "hit":
            continue
        try:
            autotune(func, target, TRIALS, SECONDS, policy="plan", records=records, limits=Limits(baseline=WRITTEN_SECONDS))
        except (NothingFound, WorkerError) as error:
            degraded(f"{func.name} is not measured, its default schedule is used: {error}")
