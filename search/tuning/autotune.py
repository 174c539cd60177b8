"""The front door of tuning: `autotune` sets up a run, drives it, and returns its result."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict, Unpack, overload

import numpy as np

from codegen.target import Target
from costmodel import CostModel
from schedule import OpenSchedule
from tir.ir import PrimFunc

from ..measure import Candidate, Limits, Measurer
from ..measure.reference import NamedWorkload, given_inputs
from ..policy.protocol import Policy
from ..records import Records
from ..sizes import Sizes
from ..space.rules import Rule
from ..task import Task
from .budget import Budget
from .events import Callback
from .options import Options, check_budget, check_options
from .result import NothingFound, Result
from .session import default_candidate, drive, sessions
from .sizes import SizesResult, tune_sizes

__all__ = ["NothingFound", "Result", "Policy", "autotune", "default_candidate"]


class OfAnySizes(TypedDict, total=False):
    """Options of `autotune` for any function."""

    records: str | Path | Records | None
    seed: int
    callbacks: Sequence[Callback]
    policy: str | Policy | Callable[[Task], Policy] | None
    model: str | CostModel | None
    space: str | Callable[[OpenSchedule], object] | None
    first: Sequence[Candidate] | None
    limits: Limits | None
    measurer: Callable[[Task], Measurer] | None


class OfConstantSizes(OfAnySizes, total=False):
    """Options of `autotune` for a function of constant sizes."""

    rules: Sequence[Rule] | None
    workload: NamedWorkload | None
    workers: int | None
    builder: str | None
    inputs: Mapping[str, np.ndarray] | None


@overload
def autotune(
    func: PrimFunc, target: str | Target = "llvm", trials: int | None = 64, seconds: float | None = None, *,
    sizes: None = None, **options: Unpack[OfConstantSizes],
) -> Result: ...  # fmt: skip
@overload
def autotune(
    func: PrimFunc, target: str | Target = "llvm", trials: int | None = 64, seconds: float | None = None, *,
    sizes: Sizes, **options: Unpack[OfAnySizes],
) -> SizesResult: ...  # fmt: skip
def autotune(
    func: PrimFunc,
    target: str | Target = "llvm",
    trials: int | None = 64,
    seconds: float | None = None,
    *,
    records: str | Path | Records | None = None,
    seed: int = 0,
    callbacks: Sequence[Callback] = (),
    policy: str | Policy | Callable[[Task], Policy] | None = None,
    model: str | CostModel | None = None,
    space: str | Callable[[OpenSchedule], object] | None = None,
    rules: Sequence[Rule] | None = None,
    first: Sequence[Candidate] | None = None,
    limits: Limits | None = None,
    workload: NamedWorkload | None = None,
    workers: int | None = None,
    builder: str | None = None,
    inputs: Mapping[str, np.ndarray] | None = None,
    measurer: Callable[[Task], Measurer] | None = None,
    sizes: Sizes | None = None,
) -> Result | SizesResult:
    """Search for the fastest schedule of `func`, measuring candidates on this machine.

    The budget is `trials` new candidates, `seconds` of wall time, or whichever ends first. The first candidates are `first`, by
    default the default schedule (`tir.default_schedule`), so that the result is never worse. Then come those of the policy.
    Finally the leaders race, timed in turns.

    `records`, a file or an open `Records`, gets each candidate as it ends. At the start the policy learns its records of this
    function on this target and processor, so that a run continues the last one. The best recorded schedule is in the final race.

    `policy` is a name of `search.names.POLICIES` (default "evolution"), an object with the two methods of `Policy`, or a function
    that makes one for a task. Named policies take a cost `model`: "pretrained", "gbdt", "pack-sum", "tile", "random", "none" or
    an object. They take a `space`: "full", "ansor", "limited" or a function that schedules with open numbers (`OpenSchedule`); or
    other sketch `rules`.

    `limits` bounds the resources of one candidate. `workload` names the computation, so that float64 numpy is the reference.
    `workers` build at once, with the module `builder`. `inputs` are arrays, by the names of parameters, in place of random ones.
    `measurer` makes another measurer for the task.

    A function of open sizes (`te.var`) is tuned at each combination of `sizes`, such as `{"n": (1, 128)}`, under one budget. The
    `SizesResult` has a `Result` for each, and one `kernel` for all sizes. `rules`, `workload`, `workers`, `builder` and `inputs`
    are for a function of constant sizes.

    Ctrl-C ends the run and returns the best so far; without any it is passed on. The same seed gives the same data, and the same
    proposals as long as measurements don't influence them. Raises NothingFound without a valid candidate, ValueError for a bad
    budget, target, option or input, and VerifyError (of `tir.verify`) for an ill-formed function. RecordsError is for a file that
    cannot be used, WorkerError for workers that cannot be started.
    """
    if measurer is not None and not (limits is workers is builder is inputs is None):
        raise ValueError("limits, workers, builder and inputs are those of the local measurer; another measurer brings its own")
    if sizes is not None or (isinstance(func, PrimFunc) and func.sizes):
        if not (rules is workload is workers is builder is inputs is None):
            raise ValueError("rules, workload, workers, builder and inputs are for a function of constant sizes")
        given: dict[str, Any] = {"records": records, "seed": seed, "policy": policy, "model": model, "space": space}
        given |= {"first": first, "limits": limits, "measurer": measurer}
        given["callbacks"] = [lambda task, event, callback=callback: callback(event) for callback in callbacks]
        return tune_sizes(func, target, sizes, trials=trials, seconds=seconds, **given)
    check_budget(trials, seconds)
    options = Options(records, seed, callbacks, policy, model, space, rules, first, limits, workers, builder, inputs, measurer)
    check_options(options)
    budget = Budget(trials, seconds, race=(limits or Limits()).race)
    task = Task.of(func, target, workload=workload)
    given_inputs(task.func, inputs or {})
    with sessions([task], budget, options, [callbacks]) as (session,):
        interrupted = drive([session], session.turns())
    return session.result(interrupted)
