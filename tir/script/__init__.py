"""The script dialect, TensorIR's Python dialect: printed (`printer`), parsed (`parser`), and its namespaces `tir` and `ir`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .error import ScriptError
    from .ir import ir_module
    from .module import Module
    from .parser import parse

__all__ = ["Module", "ScriptError", "ir_module", "parse"]

_MODULES = {"parse": ".parser", "ScriptError": ".error", "Module": ".module", "ir_module": ".ir"}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        from importlib import import_module

        return getattr(import_module(_MODULES[name], __name__), name)
    if name == "relax":  # an AttributeError would be told without its reason
        raise ImportError(
            f"{__name__} has no relax: of a module, it reads the functions under @T.prim_func; take out those under "
            "@R.function, and R from the import"
        )
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
