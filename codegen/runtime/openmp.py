"""The OpenMP runtime that parallel loops run on: the machine's libgomp, else the copy that scikit-learn ships."""

from __future__ import annotations

import ctypes
import ctypes.util
import importlib.util
import os
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

SYMBOLS = ("GOMP_parallel", "omp_get_thread_num", "omp_get_num_threads")

OMP_PAUSE_SOFT = 1  # of the OpenMP 5.0 API, section 3.2.44: settings stay as they are


class NoOpenMP(RuntimeError):
    """Failure to find an OpenMP runtime, without which parallel loops cannot be built for more than one core."""


def candidates() -> Iterator[str]:
    """Possible places of a runtime, best first: names for the dynamic loader, then files."""
    yield "libgomp.so.1"
    if found := ctypes.util.find_library("gomp"):
        yield found
    package = importlib.util.find_spec("sklearn")
    if package is not None and package.origin:
        yield from sorted(map(str, (Path(package.origin).parent.parent / "scikit_learn.libs").glob("libgomp*.so*")))


# Spins of a waiting thread of libgomp before it sleeps, about a millisecond in all. A call within that time finds the threads
# awake; waking them takes some tenths of a millisecond. The default is ten times as long: as good while cores are free, but where
# two processes compete for them, spinning delays a quarter of all parallel loops by some milliseconds. libgomp reads the variable
# as it is loaded.
SPIN = {"GOMP_SPINCOUNT": "20000"}
WAITING = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")  # variables by which a user sets the wait


def spin(environment: Mapping[str, str]) -> dict[str, str]:
    """Environment variables that shorten the spinning of a process of our own; empty where its environment sets the wait."""
    return {} if any(name in environment for name in WAITING) else SPIN


@cache
def library() -> ctypes.CDLL:
    """The runtime, loaded such that a forked process can use it. Raises NoOpenMP with what to install."""
    for name in candidates():
        try:
            found = ctypes.CDLL(name)
        except OSError:
            continue
        _end_threads_before_forks(found)
        return found
    raise NoOpenMP(
        "no OpenMP runtime found (libgomp.so.1, or the one in scikit-learn); install libgomp, or build with num_cores=1"
    )


def _end_threads_before_forks(library: ctypes.CDLL) -> None:
    """End the waiting threads of a thread before it forks: its child lacks them, and would wait for ever."""
    if hasattr(os, "register_at_fork") and hasattr(library, "omp_pause_resource_all"):
        os.register_at_fork(before=lambda: library.omp_pause_resource_all(OMP_PAUSE_SOFT))


def runtime_symbols(code: bytes) -> dict[str, int]:
    """The addresses of the OpenMP functions that an object file refers to."""
    needed = [s for s in SYMBOLS if s.encode() in code]
    if not needed:
        return {}
    lib = library()
    return {s: ctypes.cast(getattr(lib, s), ctypes.c_void_p).value or 0 for s in needed}
