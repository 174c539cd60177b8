"""The script dialect, TensorIR's Python dialect: printed (`printer`), parsed (`parser`), and its namespaces `tir` and `ir`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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

_MODULES = {
    "parse": ".parser", "ScriptError": ".error", "Module": ".module", "ir_module": ".ir", "expr_text": ".printer",
    "func_text": ".printer", "outline_text": ".outline", "show": ".printer", "signature_text": ".outline",
    "stmt_text": ".printer", "read_condition": ".conditions",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        from importlib import import_module

        value = globals()[name] = getattr(import_module(_MODULES[name], __name__), name)
        return value
    if name == "relax":  # of an AttributeError, `from ... import` would drop the message
        raise ImportError(
            f"{__name__} has no relax: of a module, it reads the functions under @T.prim_func; take out those under "
            "@R.function, and R from the import"
        )
    from ..nearest import no_attribute

    raise no_attribute(__name__, name, __all__)
