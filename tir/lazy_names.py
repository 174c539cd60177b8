"""Packages whose names are imported when first used."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping
from importlib import import_module
from types import ModuleType
from typing import Any


def lazy_names(package: str, names: Mapping[str, str], modules: Collection[str] = ()) -> Callable[[str], Any]:
    """The `__getattr__` of a package. It imports each of `names` from the module that it stands for, and submodules.

    A submodule, once imported, does not take the place of a name that is the same.
    """

    class Package(ModuleType):
        def __setattr__(self, name: str, value: Any) -> None:
            if not (name in names and isinstance(value, ModuleType)):
                super().__setattr__(name, value)

    module = sys.modules[package]
    module.__class__ = Package

    def found(name: str) -> Any:
        if name in modules:
            return import_module(f"{package}.{name}")
        if name in names:
            value = getattr(import_module(names[name], package), name)
            setattr(module, name, value)
            return value
        hint = ""
        if not name.startswith("_"):
            from .nearest import nearest_name

            near = nearest_name(name, (*modules, *names))
            hint = f"; did you mean {near!r}?" if near else ""
        raise AttributeError(f"module {package!r} has no attribute {name!r}{hint}")

    return found
