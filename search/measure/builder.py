"""Kernels of traces, built in a worker; `builder="package.module"` names another module with the same functions.

`schedule` may raise ScheduleError, which makes the candidate illegal; any other exception is a build error. `compile` returns a
callable of one numpy array a parameter. `warm_up` is optional.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from codegen.build import build
from codegen.cache import users_cache
from codegen.runtime.kernel import Kernel
from codegen.target import Target
from schedule import replay_json
from tir.ir import PrimFunc


def schedule(func: PrimFunc, trace: Any) -> PrimFunc:
    """`func` with the steps of `trace` applied (JSON data of `Trace.as_json`, or None)."""
    return func if trace is None else replay_json(func, trace).func


def compile(func: PrimFunc, target: str) -> Callable[..., None]:
    """The program as a loaded kernel; one compiled before, by any process, comes from the cache."""
    kernel = build(func, Target(target), cache=users_cache())
    if isinstance(kernel, Kernel):
        kernel.load()  # else the first call would include it
    return kernel


def warm_up(target: str) -> None:
    """Load and initialise the compiler, so that the first candidate's build time excludes it."""
    Target(target)
