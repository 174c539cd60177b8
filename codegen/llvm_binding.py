"""`llvmlite.binding`, as this package imports it: with a lock that an exception does not leave locked.

llvmlite guards LLVM by one lock, and numba has functions called where it is taken and left. Where one of these raises, as where
Python's limit of calls is reached (a finaliser of llvmlite's may run anywhere), the lock would never be left, and the next other
thread that needs LLVM would wait for ever.
"""

from __future__ import annotations

from typing import Any

import llvmlite.binding as llvm
from llvmlite.binding import ffi

__all__ = ["llvm"]


class _Lock(ffi._LLVMLock):
    """llvmlite's lock, which is left whatever the functions raise that are called with it."""

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
