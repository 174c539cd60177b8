"""The namespace `T` of scripts: every name of the dialect, and the decorator that reads a function.

from tir.script import tir as T
"""

import typing as _typing

from .namespace import *  # noqa: F403
from .namespace import __all__ as _names
from .parser import prim_func

__all__ = [*_names, "prim_func"]

if _typing.TYPE_CHECKING:

    def __getattr__(name: str) -> _typing.Any:
        """The dtypes and intrinsics, which come from their tables."""
