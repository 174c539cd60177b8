"""The script dialect, TensorIR's Python dialect: printed (`printer`), parsed (`parser`), and its namespaces `tir` and `ir`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .error import ScriptError
    from .module import Module
    from .parser import parse

__all__ = ["Module", "ScriptError", "parse"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from importlib import import_module

        return getattr(import_module({"parse": ".parser", "ScriptError": ".error", "Module": ".module"}[name], __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
