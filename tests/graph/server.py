"""A server's calls: `python -m tests.graph.server --calls 100000`.

Threads call one network at random sizes. Results are compared, and the bytes of the process, which holds one result for each size,
and the time of calls are printed, also in the median alone at their size. Calls wait for cores and for Python's lock, so that times
tell on a machine with free cores for all threads.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

import tir
from graph.passes.check import widened
from graph.reference import evaluate

from .open_networks import WIDTH, drawn

THREADS = 4
MOST = {"batch": 8, "rows": 32}  # sizes of calls: four times as many combinations as are kept
SEED = 3  # of the network
LONG = 5  # a call beside others is counted as long from so many medians alone on
ALONE = 9  # calls of a size alone
Size = tuple[int, int]
PAGE_BYTES = 4096


def serve(
    calls: int, observe: Callable[[int], object] = lambda done: None
) -> tuple[list[tuple[Size, float]], dict[Size, float], list[str]]:
    """The seconds of each call by its size, the median seconds alone, and what was wrong. `observe` gets the number of calls of a
    thread so far, now and then."""
    network = drawn(SEED)
    model = tir.compile(network, "llvm -num-cores 1", sizes={name: (1, most) for name, most in MOST.items()})
    rng = np.random.default_rng(SEED)
    whole = [rng.uniform(-1, 1, (MOST["batch"], MOST["rows"], WIDTH)).astype("float32") for _ in range(2)]
    expected: dict[tuple[int, int], list[np.ndarray]] = {}
    seconds: list[tuple[Size, float]] = []
    wrong: list[str] = []

    def call(thread: int) -> None:
        own = np.random.default_rng(thread)
        for n in range(calls // THREADS):
            batch, rows = (int(own.integers(1, most + 1)) for most in MOST.values())
            arrays = [np.ascontiguousarray(a[:batch, :rows]) for a in whole]
            begin = time.perf_counter()
            found = model(*arrays)
            seconds.append(((batch, rows), time.perf_counter() - begin))
            first = expected.setdefault((batch, rows), found)
            if not all(np.array_equal(a, b) for a, b in zip(found, first, strict=True)):
                wrong.append(f"batch {batch}, rows {rows}: another result than at the first call")
            if n % 500 == 0:
                observe(n)

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(call, range(THREADS)))
    for batch, rows in list(expected)[:: max(1, len(expected) // 4)]:
        arrays = [a[:batch, :rows] for a in whole]
        wanted = evaluate(*widened(network.at({"batch": batch, "rows": rows}), arrays))
        for a, b in zip(expected[batch, rows], wanted, strict=True):
            if np.abs(a - b).max() > 64 * (rows + WIDTH) * np.finfo("float32").eps * max(1.0, np.abs(b).max()):
                wrong.append(f"batch {batch}, rows {rows}: {a} is not {b}")
    alone: dict[Size, float] = {}
    for batch, rows in expected:
        arrays, took = [np.ascontiguousarray(a[:batch, :rows]) for a in whole], []
        for _ in range(ALONE):
            begin = time.perf_counter()
            model(*arrays)
            took.append(time.perf_counter() - begin)
        alone[batch, rows] = float(np.median(took))
    return seconds, alone, wrong


def resident() -> int:
    """The bytes of the process that are in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE_BYTES


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=100_000)
    calls = parser.parse_args(words).calls
    free = (os.cpu_count() or 1) - os.getloadavg()[0]
    calls_, alone, wrong = serve(calls, lambda done: print(f"{done} calls of a thread: {resident():,} bytes", flush=True))
    seconds, times = [s for _, s in calls_], np.array([s / alone[size] for size, s in calls_])
    median, most = float(np.median(seconds)), max(seconds)
    print(f"{len(seconds)} calls, median {median:.2e} s, longest {most:.2e} s, {len(wrong)} wrong", *wrong[:5], sep="\n")
    print(f"in the median alone at each size, {min(alone.values()):.2e} to {max(alone.values()):.2e} s: median {np.median(times):.2f}, "
          f"longest {times.max():.1f}, {(times > LONG).mean():.2%} beyond {LONG}; {free:.1f} cores were free")  # fmt: skip
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
