"""A server's calls: `python -m tests.graph.server --calls 100000`.

Threads call one network at random sizes. Results are compared, and the bytes of the process, which holds one result for each size,
and the time of calls are printed.
"""

from __future__ import annotations

import argparse
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
PAGE_BYTES = 4096


def serve(calls: int, observe: Callable[[int], object] = lambda done: None) -> tuple[list[float], list[str]]:
    """The seconds of each call, and what was wrong. `observe` gets the number of calls of a thread so far, now and then."""
    network = drawn(SEED)
    model = tir.compile(network, "llvm -num-cores 1", sizes={name: (1, most) for name, most in MOST.items()})
    rng = np.random.default_rng(SEED)
    whole = [rng.uniform(-1, 1, (MOST["batch"], MOST["rows"], WIDTH)).astype("float32") for _ in range(2)]
    expected: dict[tuple[int, int], list[np.ndarray]] = {}
    seconds: list[float] = []
    wrong: list[str] = []

    def call(thread: int) -> None:
        own = np.random.default_rng(thread)
        for n in range(calls // THREADS):
            batch, rows = (int(own.integers(1, most + 1)) for most in MOST.values())
            arrays = [np.ascontiguousarray(a[:batch, :rows]) for a in whole]
            begin = time.perf_counter()
            found = model(*arrays)
            seconds.append(time.perf_counter() - begin)
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
    return seconds, wrong


def resident() -> int:
    """The bytes of the process that are in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE_BYTES


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=100_000)
    calls = parser.parse_args(words).calls
    seconds, wrong = serve(calls, lambda done: print(f"{done} calls of a thread: {resident():,} bytes", flush=True))
    median, most = float(np.median(seconds)), max(seconds)
    print(f"{len(seconds)} calls, median {median:.2e} s, longest {most:.2e} s, {len(wrong)} wrong", *wrong[:5], sep="\n")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
