"""Notices: warnings that something works with less than was asked for, counted for the run that they happen in.

with counted(counts := Counter()):
    degraded("the object cache ... cannot be read; kernels are compiled anew")
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_COUNTS: ContextVar[Counter[str] | None] = ContextVar("notices", default=None)


class Degraded(UserWarning):
    """Something works with less than was asked for; the message says what, why, and what follows."""


def degraded(message: str, category: type[UserWarning] = Degraded) -> None:
    """Warn, and count the message for the run around it, where there is one."""
    if (counts := _COUNTS.get()) is not None:
        counts[message] += 1
    warnings.warn(message, category, stacklevel=3)


@contextmanager
def counted(counts: Counter[str]) -> Iterator[None]:
    """Count what is said within, by its message."""
    token = _COUNTS.set(counts)
    try:
        yield
    finally:
        _COUNTS.reset(token)
