"""The namespace `I` of scripts: modules of functions.

from tir.script import ir as I, tir as T

@I.ir_module
class Module:
    @T.prim_func
    def main(A: T.Buffer((128,), "float32")): ...
"""

from __future__ import annotations

from typing import Any

from ..ir import PrimFunc
from .module import Module as IRModule

__all__ = ["IRModule", "ir_module", "module_attrs", "module_global_infos"]


def ir_module(cls: type | None = None, /, **_: Any) -> Any:
    """Class decorator: the class's functions under `@T.prim_func`, as a module; TypeError for any other function."""
    if cls is None:
        return ir_module
    members = {name: value for name, value in vars(cls).items() if not (name.startswith("__") and name.endswith("__"))}
    for name, value in members.items():
        if callable(value) and not isinstance(value, PrimFunc):
            raise TypeError(f"{cls.__name__}.{name} is not a function of the dialect; decorate it with @T.prim_func")
    return IRModule({name: value for name, value in members.items() if isinstance(value, PrimFunc)}, cls.__name__)


def module_attrs(attrs: dict[str, Any], **_: Any) -> None:
    """Attributes of a module; ignored, since nothing depends on them."""


def module_global_infos(infos: dict[str, Any]) -> None:
    """Global information of a module; ignored, since nothing depends on it."""
