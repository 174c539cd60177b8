"""Results of `verify`: findings, their report, and the error that raises it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain

from ..ir import PrimFunc, Stmt
from ..script.diagnostic import excerpt


@dataclass(frozen=True)
class Finding:
    """A fault ("error") or an unproved property ("unproved") of a statement; `open` if only a call's arguments decide it."""

    severity: str
    message: str
    stmt: Stmt | None = None
    open: bool = False

    def __str__(self) -> str:
        return f"{self.severity}: {self.message}"


@dataclass(frozen=True)
class VerifyReport:
    """The findings in a function, in program order within each check, and the reports on the other functions of its module."""

    func: PrimFunc
    findings: tuple[Finding, ...]
    others: tuple[VerifyReport, ...] = ()

    @property
    def errors(self) -> tuple[Finding, ...]:
        return tuple(f for f in self if f.severity == "error")

    @property
    def unproved(self) -> tuple[Finding, ...]:
        return tuple(f for f in self if f.severity == "unproved")

    @property
    def ok(self) -> bool:
        """True where there are no errors; there may be unproved findings."""
        return not self.errors

    def __iter__(self) -> Iterator[Finding]:
        return chain(self.findings, *self.others)

    def __str__(self) -> str:
        if self.others:
            return "\n".join(map(str, (replace(self, others=()), *self.others)))
        if not self.findings:
            return f"{self.func.name}: well formed"
        parts = [f"{self.func.name}: {len(self.errors)} error(s), {len(self.unproved)} unproved"]
        for f in self.findings:
            parts.append(str(f))
            if f.stmt is not None:
                parts += excerpt(self.func, [(f.stmt, "")])
        return "\n".join(parts)


class VerifyError(Exception):
    """Error of a function that is not well formed; `report` holds the findings."""

    def __init__(self, report: VerifyReport):
        super().__init__(str(report))
        self.report = report

    def __reduce__(self):
        return VerifyError, (self.report,)
