"""The limit of Python's calls, reached inside of LLVM's lock, does not leave it locked."""

from __future__ import annotations

import threading

import numba.core.base  # noqa: F401 - has functions called with llvmlite's lock
import pytest

from codegen.llvm_binding import llvm


def test_other_threads_can_use_llvm_after_the_limit_of_calls_was_reached():
    def deeper():
        llvm.get_process_triple()
        deeper()

    for _ in range(8):
        with pytest.raises(RecursionError):
            deeper()
    other = threading.Thread(target=llvm.get_process_triple, daemon=True)
    other.start()
    other.join(10)
    assert not other.is_alive()
