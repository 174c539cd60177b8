"""Packages whose names are imported when first used."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any

from .nearest import attributes_of, no_attribute


def lazy_names(package: str) -> Callable[[str], Any]:
    """The `__getattr__` of a package: it imports what the package's source imports for type checkers, when that is first used.

    A submodule, once imported, does not take the place of a name that is the same. A misspelt name of a public submodule is an
    error with the nearest one.
    """
    module = sys.modules[package]
    names = cache(lambda: _typed_names(module))  # read when the package's first submodule is imported, or its first name is used

    class Package(ModuleType):
        def __setattr__(self, name: str, value: Any) -> None:
            if isinstance(value, ModuleType) and name in names():
                if names()[name] != ".":
                    return
                vars(value).setdefault("__getattr__", attributes_of(value.__name__))
            super().__setattr__(name, value)

        def __dir__(self) -> list[str]:
            return sorted({*vars(self), *names()})

    module.__class__ = Package

    def found(name: str) -> Any:
        if name not in names():
            raise no_attribute(package, name, names())
        if names()[name] == ".":
            return import_module(f"{package}.{name}")
        value = getattr(import_module(names()[name], package), name)
        setattr(module, name, value)
        return value

    return found


def _typed_names(package: ModuleType) -> dict[str, str]:
    """The names that the source of a package imports under `if TYPE_CHECKING`, each with its module; "." for a submodule."""
    import ast

    source = getattr(package.__loader__, "get_source", lambda name: None)(package.__name__)
    if source is None:
        raise ImportError(f"{package.__name__}: its names are read from its source, which was not installed beside the bytecode")
    block = next(s for s in ast.parse(source).body if isinstance(s, ast.If) and ast.unparse(s.test) == "TYPE_CHECKING")
    imports = (s for s in block.body if isinstance(s, ast.ImportFrom))
    return {a.name: "." * s.level + (s.module or "") for s in imports for a in s.names}
