"""How a worker makes a kernel of a trace. A measurer can be given another module with the same two functions
(`builder="package.module"`).

`schedule` may raise ScheduleError, which makes the candidate illegal; whatever else either raises is a build error. `compile`
returns something to call with one numpy array a parameter.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

from tir.ir import PrimFunc

if TYPE_CHECKING:
    from codegen.cache import ObjectCache


def schedule(func: PrimFunc, trace: Any) -> PrimFunc:
    """`func` with the steps of `trace` applied (JSON data, as `Trace.as_json` gives it; None for none)."""
    if trace is None:
        return func
    from schedule import Trace, replay

    return replay(func, Trace.from_json(trace)).func


def compile(func: PrimFunc, target: str) -> Callable[..., None]:
    """The program as a kernel. What was compiled before, by any process, is not compiled again."""
    import codegen

    return codegen.build(func, codegen.Target(target), cache=_objects())


@cache
def _objects() -> ObjectCache | None:
    """The cache of compiled objects of this user; None where there is no place for one."""
    from codegen.cache import ObjectCache

    try:
        return ObjectCache()
    except OSError:
        return None


def warm_up(target: str) -> None:
    """Load and initialise the compiler, so that the first candidate is not charged for it."""
    import codegen

    codegen.Target(target)
