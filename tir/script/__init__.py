"""The script dialect, TensorIR's Python dialect: printed (`printer`), parsed (`parser`), and its namespaces `tir` and `ir`."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ..lazy_names import lazy_names

if TYPE_CHECKING:
    from .conditions import read_condition
    from .error import ScriptError
    from .ir import ir_module
    from .module import Module
    from .outline import outline_text, signature_text
    from .parser import parse
    from .printer import expr_text, func_text, show, stmt_text

__all__ = [
    "Module", "ScriptError", "expr_text", "func_text", "ir_module", "outline_text", "parse", "read_condition",
    "show", "signature_text", "stmt_text",
]  # fmt: skip

_found = lazy_names(__name__)


def __getattr__(name: str) -> Any:
    if name in ("tirx", "s_tir"):  # what newer versions of TVM call it
        return import_module(f"{__name__}.tir")
    if name == "relax":  # of an AttributeError, `from ... import` would drop the message
        what = "of a module, it reads the functions under @T.prim_func; take out those under @R.function, and R from the import"
        raise ImportError(f"{__name__} has no relax: {what}")
    return _found(name)
