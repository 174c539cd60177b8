"""Measured cycles of cache lines on this machine, kept for later processes.

The name of a processor does not tell how much of a shared cache a rented machine has, nor how far its memory is. So one kernel
reads matrices that L2, L3 and memory hold, panel by panel: of a matrix of one panel, where lines follow each other, and of a wide
one, where each row of a panel is in another page. Another kernel reads several parts of the largest matrix at once. All are timed
in turns with `peak_flops`, as the clock changes, and are given in cycles of multiply-adds. So are parallel loops that do nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import takewhile
from math import log2
from statistics import median
from time import sleep

import numpy as np

from schedule import Schedule
from schedule.machine import CACHE_LINE_BYTES, CPU, Memory
from tir import te

from . import machine_record
from .backend import backend
from .peak import built, in_registers, peak_flops
from .processor import host_caches, host_cores, host_name, host_processor
from .runtime.kernel import Kernel
from .runtime.timing import seconds_of
from .target import Target

ROUNDS = 5  # each level in turns; the median counts
PANEL_BYTES = 2 * CACHE_LINE_BYTES  # of a row of a panel
PANELS = 33  # of a row of the wide matrix: a page and two lines, so that rows fall into all sets of a cache
SAMPLE_SECONDS = 2e-3  # of one timing
MAX_SPREAD = 2.0  # between the quartiles of the rounds: more is no measurement
MAX_MEMORY_BYTES = 1 << 30  # of the largest matrix, which no L3 holds
STREAMS = (8, 4, 2)  # parts of a matrix that are read at once
REGIONS = 200  # parallel loops of one call
SLEEP_SECONDS = 0.05  # until threads sleep: they wait actively for some milliseconds
STREAM_GAIN = 1.02  # least gain in speed for which fewer streams are preferred: less is noise
STEPS_OF_TWO = 2  # steps of a measured number from one power of two to the next: noise seldom changes schedules


class CalibrationError(RuntimeError):
    """The rounds of a calibration disagree, or the target is not this machine."""


@dataclass(frozen=True)
class Calibration:
    """The measured `memory`, quantised; the bytes that were read at each level; and nanoseconds of a cycle."""

    memory: Memory
    nbytes: tuple[int, int, int]
    cycle_ns: float


def calibrate(target: Target | str = "llvm", *, keep: bool = True) -> Calibration:
    """Measure this machine in about four seconds, mostly on one thread, and keep the result for every later `Target` of it.

    L3 holds the largest matrix whose lines take fewer cycles than the geometric mean of those of L3 and of memory.
    CalibrationError where the rounds disagree by more than `MAX_SPREAD`, as on a machine that is busy, or where `target` is
    another machine's. With `keep` false nothing is written.
    """
    target = Target(target, num_cores=1)
    if backend(target).device is not None or (target.mcpu, target.mattr, target.mtriple) != (*host_processor(), ""):
        raise CalibrationError(f"calibrate measures this processor, not {target}")
    machine = target.machine_as(CPU)
    _, l2, l3 = host_caches()
    nbytes = (l2 // 4, 2 * l2, max(1 << 26, min(4 * l3, MAX_MEMORY_BYTES)))
    sizes = [size for n in range(2, 12) if (size := l2 << n) < nbytes[2]]  # of which L3 may hold some
    timed = _walks(target, (*nbytes, *sizes))
    cycles: dict[tuple[str, int], list[float]] = {key: [] for key in timed}
    clock = []
    for _ in range(ROUNDS):
        clock.append(2 * target.lanes(32) * machine.fmas / peak_flops(target))
        for key, (call, lines) in timed.items():
            cycles[key].append(_seconds(call) / lines / clock[-1])
    for (kind, level), rounds in cycles.items():
        low, high = sorted(rounds)[1], sorted(rounds)[-2]
        if high > MAX_SPREAD * low:
            size = nbytes[2] if kind == "streams" else (*nbytes, *sizes)[level]
            raise CalibrationError(
                f"the machine is too busy to calibrate: {kind} of {size} bytes took {low:.1f} to {high:.1f} cycles a line; try "
                "again when fewer programs run"
            )
    line, row = (tuple(_quantised(median(cycles[kind, level])) for level in range(3)) for kind in ("line", "row"))
    between = (line[1] * line[2]) ** 0.5  # cycles of a line of which L3 holds half
    quick = takewhile(lambda n: median(cycles["line", len(nbytes) + n]) <= between, range(len(sizes)))
    fastest = STREAMS[0]
    for streams in STREAMS[1:]:
        if median(cycles["streams", streams]) * STREAM_GAIN < median(cycles["streams", fastest]):
            fastest = streams
    held = min(l3, max((sizes[n] for n in quick), default=nbytes[1])) if line[1] < line[2] else nbytes[1]
    forks = () if host_cores() == 1 else (_quantised(seconds / median(clock)) for seconds in _forks())
    memory = Memory(line, row, max(1, held >> 20) << 20, fastest, *forks)  # type: ignore[arg-type]
    found = Calibration(memory, nbytes, 1e9 * median(clock))
    if keep:
        keep_calibration(found)
    return found


def keep_calibration(found: Calibration) -> None:
    """Keep a calibration of this machine for later targets. OSError where that cannot be written, RuntimeError without a home."""
    about = {"nbytes": found.nbytes, "cycle_ns": found.cycle_ns, "processor": host_name()}
    machine_record.keep({"memory": str(found.memory), **about})


def _quantised(cycles: float) -> float:
    """The nearest of a few steps between powers of two."""
    return float(f"{2 ** (round(log2(cycles) * STEPS_OF_TWO) / STEPS_OF_TWO):.3g}")


def _forks() -> tuple[float, float]:
    """Seconds of an empty parallel loop, for each doubling of its threads, awake and asleep: the least of some rounds."""
    counts = sorted({min(2**n, host_cores()) for n in range(1, host_cores().bit_length() + 1)})
    awake = []
    for threads in counts:
        regions = _regions(threads, REGIONS)
        awake.append(min(_seconds(regions) for _ in range(ROUNDS)) / REGIONS / log2(threads))
    region, asleep = _regions(counts[-1], 1), []
    for _ in range(ROUNDS):
        sleep(SLEEP_SECONDS)
        asleep.append(seconds_of(region, 1) / log2(counts[-1]))
    return max(awake), max(*awake, min(asleep))


def _regions(threads: int, count: int) -> Callable[[], None]:
    """A call of `count` parallel loops, one after the other, in which each thread writes a line."""
    floats = CACHE_LINE_BYTES // 4
    zeros = te.compute((count, threads, floats), lambda r, t, lane: te.const(0.0, "float32"), name="zeros")
    s = Schedule(te.create_prim_func([zeros]))
    _, thread, lane = s.get_loops("zeros")
    s.vectorize(lane)
    s.parallel(thread)
    return built(s, Target("llvm", num_cores=threads)).bind(np.empty((count, threads, floats), "float32"))


def _walks(target: Target, nbytes: Sequence[int]) -> dict[tuple[str, int], tuple[Callable[[], None], float]]:
    """By kind and level, a call that reads a matrix, and the number of its lines."""
    width = PANEL_BYTES // 4
    found: dict[tuple[str, int], tuple[Callable[[], None], float]] = {}
    memory = np.full(max(nbytes) // 4 + width, 0.5, "float32")  # written, or all pages would be one page of zeros
    aligned = memory[-memory.ctypes.data % CACHE_LINE_BYTES // 4 :]
    for kind, columns in {"line": width, "row": PANELS * width}.items():
        walk, sums = _walk(columns, target), np.empty(columns, "float32")
        for level, size in enumerate(nbytes if kind == "line" else nbytes[:3]):
            rows = size // 4 // columns
            matrix = aligned[: rows * columns].reshape(rows, columns)
            found[kind, level] = walk.bind(rows, matrix, sums), matrix.nbytes / CACHE_LINE_BYTES
    for streams in STREAMS:
        steps = nbytes[2] // 4 // (streams * width)
        parts = aligned[: streams * steps * width].reshape(streams, steps, width)
        call = _reading(streams, width, target).bind(steps, parts, np.empty((streams, width), "float32"))
        found["streams", streams] = call, parts.nbytes / CACHE_LINE_BYTES
    return found


def _walk(columns: int, target: Target) -> Kernel:
    """The sums of the columns of a matrix, panel by panel, from its first row to its last."""
    rows = te.var("rows", "int64")
    A, k = te.placeholder((rows, columns), "float32", name="A"), te.reduce_axis((0, rows), name="k")
    s = Schedule(te.create_prim_func([rows, A, te.compute((columns,), lambda j: te.sum(A[k, j], axis=k), name="S")]))
    panel, step = s.get_loops("S")
    lanes = target.lanes(32)
    panel, vector, lane = s.split(panel, [None, max(1, PANEL_BYTES // 4 // lanes), min(lanes, PANEL_BYTES // 4)])
    s.reorder(panel, step, vector, lane)
    return in_registers(s, step, [vector], lane, target)


def _reading(streams: int, width: int, target: Target) -> Kernel:
    """The sums of parts of a matrix, each of `width` columns: a step of each part at a time."""
    steps = te.var("steps", "int64")
    A, k = te.placeholder((streams, steps, width), "float32", name="A"), te.reduce_axis((0, steps), name="k")
    s = Schedule(te.create_prim_func([steps, A, te.compute((streams, width), lambda i, j: te.sum(A[i, k, j], axis=k), name="S")]))
    part, column, step = s.get_loops("S")
    vector, lane = s.split(column, [None, min(width, target.lanes(32))])
    s.reorder(step, part, vector, lane)
    return in_registers(s, step, [part, vector], lane, target)


def _seconds(call: Callable[[], None]) -> float:
    """The seconds of a call, after one that brings the data near."""
    return seconds_of(call, max(1, round(SAMPLE_SECONDS / seconds_of(call, 1))))
