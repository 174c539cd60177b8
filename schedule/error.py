"""The error of all schedules, rendered with an excerpt of the program."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tir.ir import PrimFunc
from tir.script.diagnostic import Mark, excerpt

Witness = str | Callable[[], str | None] | None


class ScheduleError(Exception):
    """A refusal of a primitive: the reason, the place in the program, and a hint.

    Raised as `ScheduleError(reason, (stmt, "note"), ..., witness=..., hint=...)`. `located` adds `call` and `func`, the call as
    source text and the program it was made on. Reading the message renders it, and computes a witness given as a function.
    """

    def __init__(self, reason: str, *marks: Mark, witness: Witness = None, hint: str | None = None):
        super().__init__(reason)
        self.reason, self.marks, self.witness, self.hint = reason, marks, witness, hint
        self.call: str | None = None
        self.func: PrimFunc | None = None

    def located(self, call: str, func: PrimFunc) -> ScheduleError:
        """This error, made by `call` on `func`. Of nested calls the outermost call and the innermost function are kept."""
        self.call = call
        if self.func is None:
            self.func = func
        return self

    def found_witness(self) -> str | None:
        """A concrete case that justifies the refusal, computed on first use; None if none was found."""
        if callable(self.witness):
            self.witness = self.witness()
        return self.witness

    def __str__(self) -> str:
        lines = [f"{self.call}: {self.reason}" if self.call else self.reason]
        if self.func is not None:
            lines += excerpt(self.func, self.marks)
        witness = self.found_witness()
        if witness:
            lines.append(f"  witness: {witness}")
        if self.hint:
            lines.append(f"  hint: {self.hint}")
        return "\n".join(lines)

    def __reduce__(self):
        return ScheduleError, (self.reason, *self.marks), {**vars(self), "witness": self.found_witness()}


def listing(names: Iterable[str]) -> str:
    """Names for a message: "`i`, `j` and `k`"."""
    quoted = [f"`{n}`" for n in names]
    if not quoted:
        return "none"
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} and {quoted[-1]}"
