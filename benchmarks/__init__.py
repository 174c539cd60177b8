"""Benchmarks, run by `python -m benchmarks [NAME ...]`.

Each module named in `BENCHMARKS` has

    ROWS                      the names of what it measures, which `--rows` selects from
    DEFAULT                   those of them that run when nothing is selected
    measure(row, options)     an iterator of results, dictionaries of JSON data; it runs in a process of its own, in which the
                              number of threads was fixed before any library was loaded

and, if the standard table will not do, `table(results)`; THREADED, if true, says that the number of threads matters to it;
SECONDS and TRIALS are what it takes where the command does not say, if not those of `options.Options`.
`runner` times things; `worker` is the process; `__main__` the command.

A result has in any case `benchmark`, `row`, `threads`, and `error` where something failed. Most have `machine`, `commit`,
`versions`, `pinned` (what fixed the number of threads) and `started`. Names end in the unit: `_s`, `_ms`, `_ns`, `_per_s`;
`quartiles` are the lower and the upper one.
"""

from __future__ import annotations

BENCHMARKS = (
    "cpu",
    "compile_time",
    "parallel_region",
    "search_throughput",
    "interpreter",
    "import_time",
    "pipelines",
    "vector_math",
    "breadth",
    "calls",
    "interop",
    "symbolic",
    "levels",
    "perturb",
    "interleaved",
    "published",
    "primitives",
    "ablation",
    "policies",
    "quality",
    "model",
    "networks",
    "torch",
    "distributed",
    "generate",
)

DEFAULT = ("cpu", "compile_time", "parallel_region", "search_throughput", "interpreter", "import_time")  # if none is named
