"""The one way to time things here: contenders on shared arrays, warmed up, in turns, in one process; median and quartiles.

    timings = race({"ours": call, "numpy": other}, Effort(warm=warm(threads)))

A sample is the mean of as many calls in a row as fill `Effort.sample`. In each round every contender gives one sample, after
calls for `Effort.warm` that are not counted, and the order rotates, so that what disturbs the machine disturbs all alike.
Libraries keep their idle threads spinning for a while after a call, and threads that are woken may first share a core: with
more than one thread, a contender is called for so long before its sample that the threads of the one before sleep, and its own
have found their cores.
"""

from __future__ import annotations

import gc
import os
import platform
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from operator import mul
from pathlib import Path
from statistics import quantiles
from typing import Any, Protocol, runtime_checkable

from . import libraries

ROOT = Path(__file__).resolve().parent.parent

# What libraries read when they are loaded: OpenMP (ours and torch's), OpenBLAS (numpy's), MKL (torch's, or numpy's) and the rest.
THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMBA_NUM_THREADS",
)

SPIN = 0.12  # seconds after which the idle threads of a library sleep: OpenBLAS's spin 2**28 cycles, OpenMP's a few milliseconds


@dataclass(frozen=True)
class Effort:
    """How long to measure: at least `least` rounds and `seconds` in all, at most `most` rounds. A contender that has used up
    twice the time by itself is left out of the rounds that remain. A sample takes `sample` seconds, if a call takes less, after
    calls for `warm` seconds, unless one takes ten times as long."""

    seconds: float = 2.0
    least: int = 7
    most: int = 200
    sample: float = 5e-3
    warm: float = 2e-3


@dataclass(frozen=True)
class Timing:
    """Seconds of a call: median and quartiles over `samples`, each the mean of about `calls` calls."""

    median: float
    quartiles: tuple[float, float]
    calls: int
    samples: tuple[float, ...]

    @classmethod
    def of(cls, samples: list[float], calls: list[int]) -> Timing:
        low, median, high = spread(samples)
        return cls(median, (low, high), round(spread(calls)[1]), tuple(samples))

    def scaled(self, factor: float) -> Timing:
        """The timing of that part of each call."""
        low, high = self.quartiles
        return Timing(self.median * factor, (low * factor, high * factor), self.calls, tuple(s * factor for s in self.samples))

    def as_json(self) -> dict[str, Any]:
        return {"median_s": self.median, "quartiles_s": list(self.quartiles), "runs": len(self.samples), "calls": self.calls}


def spread(samples: Sequence[float]) -> tuple[float, float, float]:
    """The lower quartile, the median and the upper quartile of one or more numbers."""
    if len(samples) == 1:
        return samples[0], samples[0], samples[0]
    low, median, high = quantiles(samples, n=4, method="inclusive")
    return low, median, high


def warm(threads: int) -> float:
    """Seconds for which a contender that uses so many threads is called before its samples count."""
    return SPIN if threads > 1 else Effort.warm


def race(contenders: Mapping[str, Callable[[], object]], effort: Effort = Effort()) -> dict[str, Timing]:
    """Time the contenders in turns; the timings are in their order. ValueError if there are none."""
    from codegen.runtime.timing import without_collector  # which loads numpy

    if not contenders:
        raise ValueError("there is nothing to time: no contender was given")
    firsts = {name: _first(call, effort) for name, call in contenders.items()}
    samples: dict[str, list[float]] = {name: [] for name in contenders}
    calls: dict[str, list[int]] = {name: [] for name in contenders}
    for name, first in firsts.items():
        if first >= 2 * effort.seconds:  # that call must do
            samples[name], calls[name] = [first], [1]
    names = [name for name in contenders if not samples[name]]
    rounds, begin = 0, time.perf_counter()
    gc.collect()
    with without_collector():
        while names and rounds < effort.most and (rounds < effort.least or time.perf_counter() - begin < effort.seconds):
            start = rounds % len(names)
            for name in names[start:] + names[:start]:
                one = firsts[name] if firsts[name] >= 10 * effort.warm else _warm_up(contenders[name], effort.warm)
                count = max(1, round(effort.sample / one))
                samples[name].append(_seconds(contenders[name], count))
                calls[name].append(count)
            rounds += 1
            names = [name for name in names if sum(map(mul, samples[name], calls[name])) < 2 * effort.seconds]
    return {name: Timing.of(samples[name], calls[name]) for name in contenders}


def ratios(ours: Timing, peer: Timing) -> tuple[float, tuple[float, float]]:
    """How many times faster than its peer a contender is: the ratio of the medians, and the quartiles round by round."""
    rounds = [p / o for o, p in zip(ours.samples, peer.samples, strict=False)]
    low, _, high = spread(rounds)
    return peer.median / ours.median, (low, high)


def _first(call: Callable[[], object], effort: Effort) -> float:
    """Seconds of a call, roughly: of the second one, unless the first, which also loads and allocates, was very slow."""
    first = _seconds(call, 1)
    return first if first >= 2 * effort.seconds else _seconds(call, 1)


def _warm_up(call: Callable[[], object], seconds: float) -> float:
    """Call for so many seconds, at least once; returns the seconds of a call, on average."""
    calls, start = 0, time.perf_counter()
    while calls == 0 or time.perf_counter() - start < seconds:
        call()
        calls += 1
    return (time.perf_counter() - start) / calls


@runtime_checkable
class Timed(Protocol):
    """A contender that times its own calls, as one in another process does."""

    def seconds(self, calls: int) -> float:
        """Seconds a call, the mean of `calls` in a row."""
        ...

    def __call__(self) -> object: ...


def _seconds(call: Callable[[], object], calls: int) -> float:
    """Seconds a call, the mean of `calls` in a row."""
    from codegen.runtime.timing import seconds_of

    return call.seconds(calls) if isinstance(call, Timed) else seconds_of(call, calls)


# --- the ceilings of the moment -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Roof:
    """The ceilings of a moment: operations a second by fused multiply-adds, and bytes a second, read and written, of a copy."""

    fma: float
    copy: float

    @classmethod
    def measure(cls, threads: int, dtype: str = "float32") -> Roof:
        from codegen.peak import copy_bandwidth, peak_flops

        time.sleep(SPIN if threads > 1 else 0.0)
        return cls(peak_flops(threads=threads, dtype=dtype), copy_bandwidth(threads=threads))

    def shares(self, flop: float, nbytes: float, seconds: float) -> dict[str, float]:
        """Which part of each ceiling a call reaches; of copying where the last cache does not hold its bytes."""
        found = {"arithmetic": flop / seconds / self.fma}
        return found | ({"copying": nbytes / seconds / self.copy} if nbytes > Machine.here().l3 else {})

    def best(self, other: Roof) -> Roof:
        """The higher of each: whatever else runs on the machine can only lower what one look finds."""
        return Roof(max(self.fma, other.fma), max(self.copy, other.copy))


# --- what a timing depends on -------------------------------------------------------------------------------------------


def environment(threads: int) -> dict[str, str]:
    """The environment for a process whose libraries are to use so many threads, and the kernels that they choose themselves."""
    from search.measure.process import library_environment

    counts = dict.fromkeys(THREAD_VARIABLES, str(threads))
    return {**library_environment(threads), **counts, "OMP_DYNAMIC": "FALSE", "MKL_DYNAMIC": "FALSE"}


def pinned() -> dict[str, str]:
    """What the environment of this process says about threads."""
    return {name: os.environ[name] for name in THREAD_VARIABLES if name in os.environ}


@dataclass(frozen=True)
class Machine:
    """The processor as the system names it, the cores this process may use, and what code is generated for."""

    processor: str
    cores: int
    mcpu: str
    isa: str
    vector_bits: int
    l1: int
    l2: int
    l3: int

    @classmethod
    @cache
    def here(cls) -> Machine:
        from codegen.processor import host_cores, host_name
        from codegen.target import Target

        target = Target("llvm")
        isa = next((name for name in ("avx512f", "avx2", "avx", "neon", "sse2") if name in target.features), platform.machine())
        return cls(host_name(), host_cores(), target.mcpu, isa, target.vector_bits, target.l1, target.l2, target.l3)


@cache
def commit() -> str:
    """The commit of the checkout, with a + where it has changes; unknown outside of one."""
    command = ["git", "describe", "--always", "--dirty=+", "--exclude=*"]
    try:
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def versions() -> dict[str, str]:
    """The versions of everything that a timing here depends on, as far as it is installed; nothing is loaded for it but numpy."""
    import numpy as np

    found = {"python": platform.python_version(), "numpy": np.__version__}
    blas = np.show_config(mode="dicts").get("Build Dependencies", {}).get("blas", {})
    if blas.get("name"):
        found["blas"] = f"{blas['name']} {blas.get('version', '')}".strip()
    for package in ("llvmlite", "torch", "onnxruntime", "openvino"):
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def load() -> float:
    """How many processes wanted a core, on average over the last minute; 0 where the system does not tell."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0


def circumstances() -> dict[str, Any]:
    """What goes with each result: machine, commit, versions, threads, time, and the kernels of loaded libraries."""
    now, machine, found = datetime.now(UTC).isoformat(timespec="seconds"), Machine.here(), libraries.kernels()
    slow = {"handicapped": notes} if (notes := libraries.handicapped(found, machine.isa, machine.vector_bits)) else {}
    about = {"machine": asdict(machine), "commit": commit(), "versions": versions(), "pinned": pinned(), "started": now}
    return {**about, "library_kernels": found, **slow}
