"""Check that names are unique."""

from __future__ import annotations

from collections.abc import Iterator

from ..ir import Block, PrimFunc, Stmt, is_script_name
from ..traverse import bound_names
from .report import Finding

_IN_MESSAGES = ("buffer", "size", "loop", "block", "iteration variable")  # kinds of names, in the order of messages


def check_names(func: PrimFunc) -> Iterator[Finding]:
    """Findings where a name has two meanings. A block may share its name with a buffer, a size or iteration variables; iteration
    variables of different blocks may share theirs."""
    seen: dict[str, dict[str, Stmt | None]] = {}  # by name: its kinds, each with the last statement that binds it
    for name, what, stmt in bound_names(func):
        if what == "let":
            continue
        if what in ("buffer", "size", "loop") and not is_script_name(name):
            yield Finding("error", f"the {what} `{name}` is not named by an identifier", stmt)
        known = seen.setdefault(name, {})
        if what not in known:
            for other in known:
                first, second = sorted((what, other), key=_IN_MESSAGES.index)
                if first == "loop" or "block" not in (first, second):
                    article = "an" if second == "iteration variable" else "a"
                    yield Finding("error", f"a {first} and {article} {second} are both called `{name}`", stmt)
        elif what != "iteration variable":
            yield Finding("error", f"two {what}s are called `{name}`", stmt)
        elif known[what] is stmt and isinstance(stmt, Block):
            yield Finding("error", f"block `{stmt.name}` has two iteration variables called `{name}`", stmt)
        known[what] = stmt
