"""Report of the faults of a function, and of properties that could not be proved.

`verify(func)` returns a Report; `check(func)` raises VerifyError where it holds errors. Checked are: names (unique, defined
before use, visible), ranks and dtypes, bindings within their domains, accesses within their buffers, axes that are what they are
called, reductions that begin with their init, loops that run in any order only where the order does not matter, and that
what is read of a temporary is written.

A finding is an `error` where the function is wrong, with two concrete iterations or the values of the variables as a witness; it
is `unproved` where neither a proof was found nor a counterexample. Proofs are made from affine forms; where these do not suffice
and the iterations are few, all of them are tried; where they are many, some.

A temporary that only one parallel loop uses counts as private to each iteration, which must then write what it reads of it;
so does one that several parts of a program use, each for itself, in each of these.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ..empty import without_empty
from ..ir import PrimFunc, need_func
from ..traverse import foreign_calls, make_room_for
from .axes import check_axes
from .bounds import check_bounds
from .initialised import check_initialised
from .names import check_names
from .races import check_races
from .report import Finding, Report, VerifyError
from .scopes import Scopes

__all__ = ["Finding", "Report", "VerifyError", "check", "verify"]


def verify(func: PrimFunc | Mapping[str, PrimFunc]) -> Report:
    """Check that `func`, a function or all of a module, is well formed; see this file's description for what that means."""
    if isinstance(func, Mapping) and len(func) > 1:
        first, *others = (verify(f) for f in func.values())
        return replace(first, others=tuple(others))
    func = make_room_for(need_func(func, "verify"))
    findings = [*check_names(func), *Scopes(func).findings]
    if any(f.severity == "error" for f in findings):
        return Report(func, tuple(findings))  # the other checks assume names and dtypes that make sense
    whole, func = func, without_empty(func)
    findings += check_bounds(func)
    calls = foreign_calls(func.body)
    if calls:  # nothing that is said of their effect would be true
        what = "what this call reads and writes is unknown, so axes, races and uninitialised elements are not checked"
        return Report(whole, (*dict.fromkeys(findings), *(Finding("unproved", what, s) for s in calls)))
    findings += check_axes(func)
    findings += check_races(func)
    findings += check_initialised(func)
    return Report(whole, tuple(dict.fromkeys(findings)))


def check(func: PrimFunc) -> None:
    """Raise VerifyError if `func` is not well formed."""
    report = verify(func)
    if not report.ok:
        raise VerifyError(report)
