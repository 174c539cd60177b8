"""The command line of the tuner: `python -m tir.tune WORKLOAD` finds a fast schedule, checks it, and compares it with numpy;
`python -m tir.tune FILE.py:NAME` does so for a function of the user's own, `python -m tir.tune MODEL.onnx` for all kernels of a
network.

With `--records FILE` it goes on where earlier runs ended, and `list`, `best`, `export`, `import` and `prune` look after the file.
Exit status 0 on success, 1 where nothing valid was found (with the reasons), 2 for bad usage, 130 after Ctrl-C and 143 after
SIGTERM.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from ..process import guarded
from .arguments import COMMANDS, check, parser
from .progress import LineProgress

__all__ = ["LineProgress", "main", "parser"]


def main(argv: Sequence[str] | None = None, **options: Any) -> int:
    """Run the command line and return its exit status. `options` go to `autotune` or `tune_graph`."""
    p = parser()
    return guarded(p.prog, lambda: _run(p.parse_intermixed_args(argv), options))


def _run(args: argparse.Namespace, options: dict[str, Any]) -> int:
    """Run the selected mode; the exit status."""
    mode = check(args)
    if mode == "--list":
        from .show import list_workloads

        return list_workloads(args)
    if mode in COMMANDS:
        from .records import run_command

        return run_command(args)
    if mode == "--sketches":
        from .show import show_sketches

        return show_sketches(args)
    if mode == "--apply":
        from .apply import apply

        return apply(args, options)
    from .cluster import on_cluster

    with on_cluster(args, options) as options:
        if mode == "a network":
            from .network import tune as tune_network

            return tune_network(args, options)
        if mode == "--sizes":
            from .sizes import tune as tune_sizes

            return tune_sizes(args, options)
        from .run import tune

        return tune(args, options)
