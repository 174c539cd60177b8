"""How long `import tir` takes in a fresh interpreter, and what the first use of each layer adds."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from .options import Options
from .runner import circumstances, spread

ROWS = ("import",)

DEFAULT = ROWS

RUNS = 11

STATEMENTS = ("import tir", "import tir; tir.te", "import tir; tir.Schedule", "import tir; tir.build", "import tir; tir.autotune")

TIMER = "import time\nstart = time.perf_counter()\n{}\nprint(time.perf_counter() - start)"


def seconds(statement: str) -> float:
    """The seconds that `statement` takes in a new interpreter, its start-up not counted."""
    command = [sys.executable, "-c", TIMER.format(statement)]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def measure(row: str, options: Options) -> Iterator[dict[str, Any]]:
    """A result for each statement; they are run in turns."""
    runs: dict[str, list[float]] = {s: [] for s in STATEMENTS}
    for _ in range(RUNS):
        for s in STATEMENTS:
            runs[s].append(seconds(s))
    for s in STATEMENTS:
        low, median, high = (1e3 * t for t in spread(runs[s][1:]))  # the first run warms the file cache
        yield {"statement": s, "median_ms": median, "quartiles_ms": [low, high], "runs": RUNS - 1, **circumstances()}
