"""`python -m tir.tune WORKLOAD`: finds a fast schedule, checks it, and compares it with numpy. `FILE.py:NAME` in its place tunes
a function of the user's own, `MODEL.onnx` all kernels of a network.

With `--records FILE` it goes on where earlier runs ended; `list`, `best`, `export`, `import` and `prune` work on that file.
Exit status 0 on success, 1 where nothing valid was found (with the reasons), 2 for bad usage, 130 after Ctrl-C and 143 after
SIGTERM.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from ..process import guarded
from .apply import apply as apply_saved
from .arguments import COMMANDS, check, parser
from .cluster import on_cluster
from .network import tune as tune_network
from .progress import LineProgress
from .records import run_command
from .run import tune as tune_workload
from .show import list_workloads, show_sketches
from .sizes import tune as tune_sizes

__all__ = ["LineProgress", "main", "parser"]


def main(argv: Sequence[str] | None = None, **options: Any) -> int:
    """Run the command line and return its exit status. `options` go to `autotune` or `tune_graph`."""
    p = parser()
    return guarded(p.prog, lambda: _run(p.parse_intermixed_args(argv), options))


def _run(args: argparse.Namespace, options: dict[str, Any]) -> int:
    """Run the selected mode; the exit status."""
    mode = check(args)
    if mode in COMMANDS:
        return run_command(args)
    match mode:
        case "--list":
            return list_workloads(args)
        case "--sketches":
            return show_sketches(args)
        case "--apply":
            return apply_saved(args, options)
    tune = {"a network": tune_network, "--sizes": tune_sizes}.get(mode, tune_workload)
    with on_cluster(args, options) as options:
        return tune(args, options)
