"""The namespace `T` of scripts: every name of the dialect, and the decorator that reads a function.

from tir.script import tir as T
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .namespace import *  # noqa: F403 - `T` is these names and the decorator
from .parser import parse_function as _parse_function

if TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """The dtypes and intrinsics, which come from their tables."""


def prim_func(function: Callable | None = None, /, *, private: Any = False, check_well_formed: Any = True, **_: Any) -> Any:
    """Decorator: the function's source, parsed as a script; returns a PrimFunc.

    Names from around the function, such as `N = 128`, stand for their values. The options of TensorIR's decorator are accepted
    and have no effect; `tir.verify` checks a function. ScriptError, with the line, where the source is no program of the dialect.
    """
    if function is None:
        return lambda f: _parse_function(f, sys._getframe(1).f_locals)
    return _parse_function(function, sys._getframe(1).f_locals)
