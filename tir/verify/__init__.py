"""Verification of a function: a report of its errors, and of properties that could not be proved.

`verify(func)` returns a VerifyReport; `check(func)` raises VerifyError where it holds errors. The checks: names are unique, bound
and visible; ranks and dtypes agree. Bindings stay in their domains, and accesses in their buffers. Spatial axes are data
parallel; reductions begin with their init and run each step once. Iterations of parallel, vectorised and thread loops are
independent. Every element of a temporary that is read is also written.

An `error` may have a witness: two concrete iterations, or the values of the variables. A finding is `unproved` where neither a
proof nor a counterexample was found. Proofs use polynomials; where these do not suffice, iterations are tried: all if they are
few, else some.

Each module is one check, a function from a program to its findings; what it asks about the program, `tir.analysis` answers.

A temporary that only one parallel loop uses counts as private to each iteration, which must write the elements that it reads. A
temporary with several live ranges counts as private in each of them.
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
from .report import Finding, VerifyError, VerifyReport
from .scopes import check_scopes

__all__ = ["Finding", "VerifyReport", "VerifyError", "check", "verify"]


def verify(func: PrimFunc | Mapping[str, PrimFunc]) -> VerifyReport:
    """The report on `func`, a function or all functions of a module; the docstring of this file lists the checks."""
    if isinstance(func, Mapping) and len(func) > 1:
        first, *others = (verify(f) for f in func.values())
        return replace(first, others=tuple(others))
    func = make_room_for(need_func(func, "verify"))
    findings = [*check_names(func), *check_scopes(func)]
    if any(f.severity == "error" for f in findings):
        return VerifyReport(func, tuple(findings))  # the other checks assume names and dtypes that make sense
    whole, func = func, without_empty(func)
    findings += check_bounds(func)
    calls = foreign_calls(func.body)
    if calls:  # findings on their modelled effect would say nothing
        what = "what this call reads and writes is unknown, so axes, races and uninitialised elements are not checked"
        return VerifyReport(whole, (*dict.fromkeys(findings), *(Finding("unproved", what, s) for s in calls)))
    findings += check_axes(func)
    findings += check_races(func)
    findings += check_initialised(func)
    return VerifyReport(whole, tuple(dict.fromkeys(findings)))


def check(func: PrimFunc) -> None:
    """Raise VerifyError if `func` is not well formed."""
    report = verify(func)
    if not report.ok:
        raise VerifyError(report)
