"""Notices: warnings that a feature works with less than was asked for, counted for each run.

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
    """Warning that a feature works with less than was asked for; the message states feature, reason and consequence."""


def degraded(message: str, category: type[UserWarning] = Degraded) -> None:
    """Warn, and count the message in the enclosing `counted`, if any."""
    if (counts := _COUNTS.get()) is not None:
        counts[message] += 1
    warnings.warn(message, category, stacklevel=3)


@contextmanager
def counted(counts: Counter[str]) -> Iterator[None]:
    """Count the notices of the `with` body in `counts`, by message."""
    token = _COUNTS.set(counts)
    try:
        yield
    finally:
        _COUNTS.reset(token)
