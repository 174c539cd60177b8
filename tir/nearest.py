"""Suggestions for misspelt names, for messages."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NoReturn


def nearest_name(wanted: Any, names: Iterable[str]) -> str | None:
    """The name most like `wanted`, ignoring case; None where none is like it."""
    by_lower = {name.lower(): name for name in names}
    found = difflib.get_close_matches(str(wanted).lower(), by_lower, n=1, cutoff=0.65)
    return by_lower[found[0]] if found else None


def did_you_mean(wanted: Any, names: Iterable[str], prefix: str = "") -> str | None:
    """A hint with the nearest name, after `prefix`; None where no name is like it."""
    name = nearest_name(wanted, names)
    return None if name is None else f"did you mean `{prefix}{name}`?"


def no_such(what: str, wanted: Any, names: Iterable[str]) -> str:
    """A message for an unknown name: the nearest one, then all known ones."""
    known = list(dict.fromkeys(names))
    near = nearest_name(wanted, known)
    return f"no {what} is named {wanted!r}; {f'did you mean {near}? ' if near else ''}there are: {', '.join(known)}"


def near_file(path: str | Path) -> str:
    """The hint, for the end of a message about a missing file, at the file beside it with the nearest name; empty without one."""
    folder, name = Path(path).absolute().parent, Path(path).name
    near = nearest_name(name, (p.name for p in folder.iterdir() if p.is_file())) if folder.is_dir() else None
    return f"; did you mean {Path(path).with_name(near)}?" if near else ""


def no_attribute(module: str, name: str, names: Iterable[str]) -> AttributeError:
    """The error for an unknown name of a module, with the nearest of the names that it has."""
    near = None if name.startswith("_") else nearest_name(name, names)
    return AttributeError(f"module {module!r} has no attribute {name!r}{f'; did you mean {near!r}?' if near else ''}")


def attributes_of(module: str) -> Callable[[str], NoReturn]:
    """The `__getattr__` of a module with all its names: an error with the nearest of `__all__`, or of its public ones."""

    def refuse(name: str) -> NoReturn:
        own = vars(sys.modules[module])
        raise no_attribute(module, name, own.get("__all__") or (n for n in own if not n.startswith("_")))

    return refuse
