"""`llvmlite.binding`, as this package imports it: with a lock that exceptions release.

llvmlite guards LLVM by one lock, and numba registers callbacks for its acquisition and release. A callback may raise, as at
Python's recursion limit (a finaliser of llvmlite may run anywhere). Then the lock would stay taken, and the next other thread
that needs LLVM would wait for ever.
"""

from __future__ import annotations

from typing import Any

import llvmlite.binding as llvm
from llvmlite.binding import ffi

__all__ = ["llvm"]


class _Lock(ffi._LLVMLock):
    """llvmlite's lock, released even where its callbacks raise."""

    def __enter__(self) -> None:
        self._lock.acquire()
        try:
            for taken, _ in self._cblist:
                taken()
        except BaseException:
            self._lock.release()
            raise

    def __exit__(self, *raised: Any) -> None:
        try:
            for _, left in self._cblist:
                left()
        finally:
            self._lock.release()


ffi.lib._lock.__class__ = _Lock
