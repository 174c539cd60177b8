"""How long `import tir` takes in a fresh interpreter, and what the first use of each layer adds."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from statistics import quantiles

RUNS = 11

STATEMENTS = ("import tir", "import tir; tir.te", "import tir; tir.Schedule", "import tir; tir.build", "import tir; tir.autotune")

TIMER = "import time\nstart = time.perf_counter()\n{}\nprint(time.perf_counter() - start)"


def seconds(statement: str) -> float:
    """The seconds that `statement` takes in a new interpreter, its start-up not counted."""
    return float(
        subprocess.run([sys.executable, "-c", TIMER.format(statement)], capture_output=True, text=True, check=True).stdout
    )


def run() -> Iterator[dict]:
    runs: dict[str, list[float]] = {s: [] for s in STATEMENTS}
    for _ in range(RUNS):
        for s in STATEMENTS:
            runs[s].append(seconds(s))
    for s in STATEMENTS:
        low, median, high = quantiles(runs[s][1:], n=4)  # the first run warms the file cache
        yield {"statement": s, "median_ms": 1e3 * median, "quartiles_ms": [1e3 * low, 1e3 * high], "runs": RUNS - 1}
