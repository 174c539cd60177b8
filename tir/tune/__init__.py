"""The command line of the tuner: `python -m tir.tune WORKLOAD` finds a fast schedule, checks it, and compares it with numpy.

With `--records FILE` it goes on where earlier runs ended, and `list`, `best`, `export`, `import` and `prune` look after the file.
Exit status 0 on success, 1 where nothing valid was found (with the reasons), 2 for bad usage, 130 after Ctrl-C.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

from .arguments import COMMANDS, Usage, check, parser
from .progress import LineProgress, LiveProgress
from .saved import FORMAT, versions, write_atomically
from .table import duration

__all__ = ["FORMAT", "LineProgress", "LiveProgress", "duration", "main", "parser", "versions", "write_atomically"]


def main(argv: Sequence[str] | None = None, **options: Any) -> int:
    """Run the command line and return its exit status. `options` go to `autotune` (`search`, `builder`, `workers`, `first`)."""
    p = parser()
    try:
        args = p.parse_intermixed_args(argv)
        mode = check(args)
        if mode == "--list":
            from .show import list_workloads

            return list_workloads()
        if mode in COMMANDS:
            from .records import run_command

            return run_command(args)
        if mode == "--sketches":
            from .show import show_sketches

            return show_sketches(args)
        if mode == "--apply":
            from .apply import apply

            return apply(args, options)
        from .run import tune

        return tune(args, options)
    except Usage as error:
        print(f"{p.prog}: error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\ninterrupted before anything was found", file=sys.stderr)
        return 130
    except BrokenPipeError:  # whoever read the output has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
