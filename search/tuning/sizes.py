"""Tuning of a function of open sizes, at each of the given sizes under one budget."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from codegen.target import Target
from tir.ir import PrimFunc
from tir.specialize import specialize

from ..sizes import Sizes, combinations
from .result import Result
from .task_scheduler import TasksResult, tune_tasks

if TYPE_CHECKING:
    from codegen import Kernel
    from codegen.cuda import CudaKernel


@dataclass(frozen=True)
class SizesResult:
    """The results for a function of open sizes: for each of the `sizes` a `Result`, or None without a valid candidate.

    `seconds` is the geometric mean of the best times.
    """

    func: PrimFunc
    target: Target
    sizes: tuple[Mapping[str, int], ...]
    tasks: TasksResult = field(repr=False)

    @property
    def results(self) -> tuple[Result | None, ...]:
        return self.tasks.results

    @property
    def seconds(self) -> float:
        return self.tasks.objective

    @cached_property
    def kernel(self) -> Kernel | CudaKernel:
        """One kernel for all sizes, with the best schedule at each of `sizes`, built in this process at the first access."""
        from ..compilation import of_schedules, scheduled

        own = [
            scheduled(specialize(self.func, row), self.target, None) if r is None else r.schedule
            for row, r in zip(self.sizes, self.results, strict=True)
        ]
        return of_schedules(self.func, self.target, self.sizes, own)


def geometric_mean(seconds: Sequence[float]) -> float:
    return float(np.exp(np.mean(np.log(seconds))))


def tune_sizes(func: PrimFunc, target: str | Target, sizes: Sizes | None, **options: Any) -> SizesResult:
    """Tune `func` at each combination of `sizes`, with equal weights; the options are those of `tune_tasks`."""
    rows = combinations(func, sizes)
    found = tune_tasks([specialize(func, row) for row in rows], target, objective=geometric_mean, **options)
    return SizesResult(func, Target(target), tuple(rows), found)
