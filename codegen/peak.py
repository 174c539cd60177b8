"""Measured limits of this machine: the arithmetic peak of independent multiply-adds in vector registers, and the bandwidth of
copies in memory by stores that bypass the caches. Both are ordinary kernels."""

from __future__ import annotations

import timeit
from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np

from schedule import Schedule
from tir import te

from .backend import backend
from .build import build
from .passes.memory_hints import NON_TEMPORAL
from .runtime.kernel import Kernel
from .target import Target

ROUNDS = 5

MAX_COPIED_BYTES = 1 << 29  # bytes of an array that is copied; small machines have room for two
MIN_COPIED_BYTES = 1 << 26  # bytes; below, a copy may stay in large caches

COPY_VECTORS = 4  # vectors that an iteration of the copy moves


def peak_flops(target: Target | str = "llvm", *, threads: int | None = None, dtype: str = "float32") -> float:
    """Floating-point operations a second that `threads` threads (default: the target's) reach together; a fused multiply-add is
    two.

    `dtype` is float32 or float64, and the vectors are as wide as the target's registers. Takes some 20 ms a round; the best of a
    few counts. Raises ValueError for another dtype, or a target that is not a processor.
    """
    target = _here(target, threads, "peak")
    if dtype not in ("float32", "float64"):
        raise ValueError(f"the peak is measured in float32 or float64, not {dtype!r}")
    chains = 16 if target.registers >= 32 else 12  # they must fit the registers, 32 or 16, and outnumber latency x units
    lanes = target.lanes(32 if dtype == "float32" else 64)
    kernel = _multiply_adds(target, chains, lanes, dtype)
    factors, sums = np.full((2, lanes), 0.5, dtype), np.empty((target.num_cores, chains, lanes), dtype)

    iterations = 1000
    while (elapsed := _fastest(kernel.bind(iterations, *factors, sums), 1)) < 2e-3 and iterations < 1 << 30:
        iterations *= 4
    iterations = max(1, int(iterations * 5e-3 / elapsed))
    return sums.size * iterations * 2 / _fastest(kernel.bind(iterations, *factors, sums), ROUNDS)


def copy_bandwidth(target: Target | str = "llvm", *, threads: int | None = None) -> float:
    """Bytes a second, read and written added up, that `threads` threads (default: the target's) reach together in copying an
    array to another.

    The arrays are four times the last cache, between 64 and 512 MiB, and are kept for the next call. Stores are non-temporal:
    ordinary ones, as of the C library's memcpy below some size, first read what they overwrite, and reach about two thirds of
    this. Loads alone reach some nine tenths on one core, with fewer lines in flight. The best of a few copies counts. Raises
    ValueError for a target that is not a processor.
    """
    target = _here(target, threads, "bandwidth")
    nbytes = max(_step_bytes(target), min(MAX_COPIED_BYTES, max(MIN_COPIED_BYTES, 4 * target.l3)))
    copy, moved = _copy(nbytes, target)
    return 2 * moved / _fastest(copy, ROUNDS)


def copier(nbytes: int, target: Target | str = "llvm", *, threads: int | None = None) -> Callable[[], None]:
    """A function that copies `nbytes` bytes or slightly fewer a call, as `copy_bandwidth` does, with threads of the OpenMP
    runtime; for timing in turns with other code. Raises ValueError for a target that is not a processor, or too few bytes."""
    target = _here(target, threads, "bandwidth")
    if nbytes < _step_bytes(target):
        each = _step_bytes(target) // target.num_cores
        raise ValueError(f"{nbytes} bytes are too few for {target.num_cores} threads: each copies {each} or more")
    return _copy(nbytes, target)[0]


def _here(target: Target | str, threads: int | None, what: str) -> Target:
    """The target with `threads` cores; refuses a target that is not a processor."""
    target = Target(target)
    if backend(target).device is not None:
        raise ValueError(f"the {what} is measured on this processor, not for {target}")
    return Target(target, num_cores=threads or target.num_cores)


def _fastest(call: Callable[[], None], rounds: int) -> float:
    """The minimum seconds of some calls."""
    return min(timeit.repeat(call, number=1, repeat=rounds))


@lru_cache(32)
def _multiply_adds(target: Target, chains: int, lanes: int, dtype: str) -> Kernel:
    """S[t, c, l] = the sum of n times X[l] * Y[l]: called with n, X, Y and S."""
    n = te.var("n", "int64")
    X, Y = (te.placeholder((lanes,), dtype, name=name) for name in "XY")
    k = te.reduce_axis((0, n), name="k")
    S = te.compute((target.num_cores, chains, lanes), lambda t, c, lane: te.sum(X[lane] * Y[lane], axis=k), name="S")
    s = Schedule(te.create_prim_func([n, X, Y, S]))
    thread, chain, lane, step = s.get_loops("S")
    s.parallel(thread)
    s.reorder(step, chain, lane)
    return in_registers(s, step, [chain], lane, target)


def in_registers(s: Schedule, step: str, unrolled: Sequence[str], lane: str, target: Target) -> Kernel:
    """The kernel of sums S, which stay in registers while `step` runs: of vectors of lanes, and of unrolled loops of these."""
    for loop in unrolled:
        s.unroll(loop)
    s.vectorize(lane)
    s.decompose_reduction("S", step)
    return built(s, target)


def _step_bytes(target: Target) -> int:
    """The bytes that the threads copy in one iteration each."""
    return COPY_VECTORS * 4 * target.lanes(32) * target.num_cores


def _copy(nbytes: int, target: Target) -> tuple[Callable[[], None], int]:
    """A function that copies about `nbytes` bytes, and their exact number."""
    moved = nbytes // _step_bytes(target) * _step_bytes(target)
    source, destination = _arrays(moved)
    return _copy_kernel(moved // 4, target).bind(source.view(np.float32), destination.view(np.float32)), moved


@lru_cache(32)
def _copy_kernel(n: int, target: Target) -> Kernel:
    A = te.placeholder((n,), "float32", name="A")
    s = Schedule(te.create_prim_func([A, te.compute((n,), lambda i: A[i], name="B")]))
    thread, _, vector, lane = s.split(s.get_loops("B")[0], [target.num_cores, None, COPY_VECTORS, target.lanes(32)])
    s.parallel(thread)
    s.annotate(thread, NON_TEMPORAL, "B")
    s.unroll(vector)
    s.vectorize(lane)
    return built(s, target)


def built(s: Schedule, target: Target) -> Kernel:
    kernel = build(s.func, target)
    assert isinstance(kernel, Kernel), "the target is a processor"
    return kernel


@lru_cache(1)
def _arrays(nbytes: int) -> tuple[np.ndarray, np.ndarray]:
    """Two arrays of bytes at multiples of 64, in memory that has been touched. The last ones are kept, as they are large."""
    raw = [np.zeros(nbytes + 64, np.uint8) for _ in range(2)]
    for array in raw:
        array[:: 1 << 12] = 1
    return tuple(array[(start := -array.ctypes.data % 64) : start + nbytes] for array in raw)  # type: ignore[return-value]
