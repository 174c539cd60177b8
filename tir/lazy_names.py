"""Packages whose names are imported when first used."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping
from importlib import import_module
from types import ModuleType
from typing import Any

from .nearest import attributes_of, no_attribute


def lazy_names(package: str, names: Mapping[str, str], modules: Collection[str] = ()) -> Callable[[str], Any]:
    """The `__getattr__` of a package. It imports each of `names` from the module that it stands for, and submodules.

    A submodule, once imported, does not take the place of a name that is the same. A misspelt name of a public submodule is an
    error with the nearest one.
    """

    class Package(ModuleType):
        def __setattr__(self, name: str, value: Any) -> None:
            if isinstance(value, ModuleType):
                if name in names:
                    return
                if name in modules:
                    vars(value).setdefault("__getattr__", attributes_of(value.__name__))
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
        raise no_attribute(package, name, (*modules, *names))

    return found
