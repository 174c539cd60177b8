"""Kernels of traces, made by a worker. A measurer can be given another module with the same two functions
(`builder="package.module"`).

`schedule` may raise ScheduleError, which makes the candidate illegal; whatever else either raises is a build error. `compile`
returns something to call with one numpy array a parameter.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tir.ir import PrimFunc


def schedule(func: PrimFunc, trace: Any) -> PrimFunc:
    """`func` with the steps of `trace` applied (JSON data, as `Trace.as_json` gives it; None for none)."""
    if trace is None:
        return func
    from schedule import replay_json

    return replay_json(func, trace).func


def compile(func: PrimFunc, target: str) -> Callable[..., None]:
    """The program as a kernel, loaded. A kernel compiled before, by any process, is not compiled again."""
    import codegen
    from codegen.cache import users_cache

    kernel = codegen.build(func, codegen.Target(target), cache=users_cache())
    if isinstance(kernel, codegen.Kernel):
        kernel.load()  # which else would count as a part of the first call
    return kernel


def warm_up(target: str) -> None:
    """Load and initialise the compiler, so that the first candidate is not charged for it."""
    import codegen

    codegen.Target(target)
