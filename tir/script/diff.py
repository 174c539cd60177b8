"""Two functions side by side, as a schedule changed one into the other."""

from __future__ import annotations

import difflib

from ..ir import PrimFunc, need_func
from .printer import printed


def diff(before: PrimFunc, after: PrimFunc, context: int = 3) -> str:
    """The change from one function to another as a unified diff of their scripts, without the import line; empty where they
    print the same. `context` is the number of unchanged lines around a change; ValueError if it is negative."""
    if context < 0:
        raise ValueError(f"context must be at least 0 lines, got {context}")
    old, new = (printed(need_func(f, "diff")).lines for f in (before, after))
    return "".join(f"{line}\n" for line in difflib.unified_diff(old, new, "before", "after", n=context, lineterm=""))
