"""Compilation of functions with the best known schedule: a recorded one, else the default one."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from codegen import Kernel, ObjectCache, Target, backend, build
from codegen.cache import compiler_sources, data_key
from schedule import Schedule
from tir.ir import PrimFunc
from tir.notices import degraded
from tir.specialize import specialize
from tir.verify.bounds import refuse_out_of_bounds

from .backends import search_backend
from .records import Lookup, NearHit, NoRecord, Records, look_up, recorded_schedule
from .sizes import Sizes, combinations

if TYPE_CHECKING:
    from codegen.cuda import CudaKernel


def compile_function(
    func: PrimFunc, target: Target, records: Records | None, cache: ObjectCache | None, sizes: Sizes | None = None
) -> Kernel | CudaKernel:
    """The kernel of an unscheduled function, with its fastest recorded schedule, else the default one.

    A function of open sizes becomes a kernel for all of them. For each combination of `sizes` it has a variant, made as for a
    function of those sizes, which runs for calls of those sizes. ValueError for `sizes` of a function without open ones, and of a
    kernel for a device.
    """
    if sizes is not None and not func.sizes:
        raise ValueError(f"sizes was given, but no size of {func.name} is open")
    if sizes is not None and backend(target).device is not None:
        raise ValueError(f"sizes is for processors, target llvm, got {target.kind}")
    rows = combinations(func, sizes) if func.sizes else []
    fixed = at_sizes(func, sizes)
    found = [looked_up(f, target, records) for f in fixed]
    for missed in (x for x in found if x is not None and x.record is None):
        degraded(f"not tuned, a default schedule is used: {missed.why}")
    recorded = [x.record.measurement.candidate.trace for x in found if x is not None and x.record is not None]
    described = [compiler_sources(__file__), asdict(target), recorded, func.script(), sizes and rows]
    key = data_key(described)
    data = None if cache is None else cache.get(key)
    if data is not None:
        return pickle.loads(data)  # the cache holds machine code: it is trusted, and its entries are checked
    schedules = [scheduled(f, target, x) for f, x in zip(fixed, found, strict=True)]
    kernel = of_schedules(func, target, rows, schedules, sizes is not None, cache)
    if cache is not None:
        cache.put(key, pickle.dumps(kernel))
    return kernel


def at_sizes(func: PrimFunc, sizes: Sizes | None) -> list[PrimFunc]:
    """The function at each combination of `sizes`; alone where none is open."""
    return [specialize(func, row) for row in combinations(func, sizes)] if func.sizes else [func]


def of_schedules(
    func: PrimFunc,
    target: Target,
    rows: Sequence[Mapping[str, int]],
    schedules: Sequence[Schedule],
    variants: bool = True,
    cache: ObjectCache | None = None,
) -> Kernel | CudaKernel:
    """The kernel of a function with a schedule for each row of its sizes; with `variants` each row has a variant of its own."""
    if not rows:
        return build(schedules[0], target, cache=cache)
    largest = max(range(len(rows)), key=lambda n: sum(rows[n].values()))
    general = search_backend(target).adapted(func, target, schedules[largest].trace, rows[largest]).func
    if not variants:
        return build(general, target, cache=cache)
    from codegen.llvm.dispatch import build_variants

    for f in (general, *(s.func for s in schedules)):
        refuse_out_of_bounds(f)
    return build_variants(general, [(row, s.func) for row, s in zip(rows, schedules, strict=True)], target, cache)


def looked_up(func: PrimFunc, target: Target, records: Records | None) -> Lookup | None:
    """The answer of records for a function, with a warning if it is from another target."""
    if records is None:
        return None
    found = look_up(func, target, records)
    if found.kind == "near":
        warnings.warn(f"not tuned for this target: {found.why}", NearHit, stacklevel=3)
    return found


def scheduled(func: PrimFunc, target: Target, lookup: Lookup | None) -> Schedule:
    """The recorded schedule of a look-up, if it applies, else the default one."""
    if lookup is not None:
        try:
            return recorded_schedule(func, lookup)
        except NoRecord as error:
            if lookup.record is not None:  # a miss was reported by the look-up
                degraded(f"a default schedule is used: {error}")
    from .policy.default_schedule import default_schedule

    return default_schedule(func, target)
