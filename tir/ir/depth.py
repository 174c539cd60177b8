"""Depth of programs: the most nodes and levels of an expression, and Python's recursion limit for walks of deep trees."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from typing import TypeVar

R = TypeVar("R")

# Most nodes of the expressions of a block. Programs are trees: a shared expression counts at each occurrence.
MAX_NODES = 100_000
MAX_DEPTH = 2000  # levels of nodes

# Trees are walked by recursion, and Python's usual limit of 1000 calls ends at sums of some 200 terms. The limit is the whole
# process's, so it is raised only when a program needs it. Calls of Python take little of the stack of a thread.
MAX_CALLS = 10_000
CALLS_A_LEVEL = 4  # of a rewrite or a comparison
CALLS_AROUND = 300  # of the caller of this package, and of its functions around a walk


def make_room(levels: int = MAX_DEPTH) -> bool:
    """Raise Python's recursion limit, with a warning, where trees of so many levels need it; True if it was raised."""
    limit = sys.getrecursionlimit()
    if limit >= min(MAX_CALLS, CALLS_A_LEVEL * levels + CALLS_AROUND):
        return False
    said = f"a program is nested so deeply that Python's limit of {limit} calls, which is the process's, is raised to {MAX_CALLS}"
    warnings.warn(f"{said}; sys.setrecursionlimit({MAX_CALLS}) before says that it may be", RuntimeWarning, stacklevel=2)
    sys.setrecursionlimit(MAX_CALLS)
    return True


def with_deep_recursion(call: Callable[[], R]) -> R:
    """The result of a function without effects, called again with a raised recursion limit after a RecursionError."""
    try:
        return call()
    except RecursionError:
        if not make_room():
            raise
    return call()
