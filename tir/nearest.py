"""The name that was probably meant, for messages."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any


def nearest(wanted: Any, names: Iterable[str]) -> str | None:
    """The name most like `wanted`, upper and lower case aside; None where none is like it."""
    by_lower = {name.lower(): name for name in names}
    found = difflib.get_close_matches(str(wanted).lower(), by_lower, n=1, cutoff=0.65)
    return by_lower[found[0]] if found else None


def did_you_mean(wanted: Any, names: Iterable[str], prefix: str = "") -> str | None:
    """The hint that gives the nearest name, `prefix` before it; None where there is none."""
    name = nearest(wanted, names)
    return None if name is None else f"did you mean `{prefix}{name}`?"


def no_such(what: str, wanted: Any, names: Iterable[str]) -> str:
    """The reason why a choice by name is refused: the known names, the nearest first."""
    known = list(dict.fromkeys(names))
    near = nearest(wanted, known)
    return f"no {what} is named {wanted!r}; {f'did you mean {near}? ' if near else ''}there are: {', '.join(known)}"
