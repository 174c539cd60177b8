"""Unified diffs of functions, such as those before and after a schedule."""

from __future__ import annotations

import difflib
from typing import Any

from ..display import coloured_diff
from ..ir import PrimFunc, need_func
from .printer import printed


class Diff(str):
    """A unified diff, which a notebook shows in colours."""

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return coloured_diff(str(self))


def diff(before: PrimFunc, after: PrimFunc, context: int = 3) -> Diff:
    """The change between two functions as a unified diff with `context` lines; ValueError if that is negative."""
    if context < 0:
        raise ValueError(f"context must be at least 0 lines, got {context}")
    old, new = (printed(need_func(f, "diff")).lines for f in (before, after))
    return Diff("".join(f"{line}\n" for line in difflib.unified_diff(old, new, "before", "after", n=context, lineterm="")))
