"""The keys of functions in records."""

from __future__ import annotations

import hashlib
import re

from tir.constants import without_shared_constants
from tir.ir import PrimFunc


def key(func: PrimFunc) -> str:
    """A hash of the function's printed script, without its name: the same on every platform and in every process.

    Names of buffers, loops and blocks count, since traces refer to them. That other functions share its constants does not: the
    fastest schedule of a function alone is known for both.
    """
    return _digest(_script(func))


def size_free_key(func: PrimFunc) -> str:
    """A hash of the script with every integer masked: equal for the same computation at other shapes."""
    return _digest(re.sub(r"\b\d+\b", "#", _script(func)))


def _script(func: PrimFunc) -> str:
    return without_shared_constants(func).with_(name="main").script()


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:20]
