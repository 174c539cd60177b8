"""The command line of the tuner: `python -m tir.tune WORKLOAD` finds a fast schedule, checks it, and compares it with numpy;
`python -m tir.tune FILE.py:NAME` does so for a function of the user's own.

With `--records FILE` it goes on where earlier runs ended, and `list`, `best`, `export`, `import` and `prune` look after the file.
Exit status 0 on success, 1 where nothing valid was found (with the reasons), 2 for bad usage, 130 after Ctrl-C and 143 after
SIGTERM.
"""

from __future__ import annotations

import argparse
import errno
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from codegen.kernel import duration

from .arguments import COMMANDS, Usage, check, parser
from .progress import LineProgress, LiveProgress
from .saved import FORMAT

__all__ = ["FORMAT", "LineProgress", "LiveProgress", "duration", "main", "parser"]

INTERRUPTED, TERMINATED = 130, 143  # exit statuses: 128 and the signal


def main(argv: Sequence[str] | None = None, **options: Any) -> int:
    """Run the command line and return its exit status. `options` go to `autotune` (`search`, `builder`, `workers`, `first`)."""
    p = parser()
    with _streams(), _termination() as terminated:
        try:
            status = _run(p.parse_intermixed_args(argv), options)
            sys.stdout.flush()
        except Usage as error:
            print(f"{p.prog}: error: {error}", file=sys.stderr)
            return 2
        except KeyboardInterrupt as interrupt:
            print(f"\ninterrupted {interrupt}".rstrip(), file=sys.stderr)
            status = INTERRUPTED
        except BrokenPipeError:  # whoever read the output has gone
            _discard_output()
            return 1
        except OSError as error:
            if error.filename is not None or error.errno not in (errno.ENOSPC, errno.EIO, errno.EFBIG):
                raise
            _discard_output()
            print(f"{p.prog}: error: the output cannot be written: {error.strerror}", file=sys.stderr)
            return 1
        return TERMINATED if terminated and status == INTERRUPTED else status


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
    from .run import tune

    return tune(args, options)


@contextmanager
def _streams() -> Iterator[None]:
    """Discard output to a standard stream that was closed before this process began."""
    with ExitStack() as stack:
        for name in ("stdout", "stderr"):
            if getattr(sys, name) is None:
                nowhere = stack.enter_context(open(os.devnull, "w", encoding="utf-8"))
                setattr(sys, name, nowhere)
                stack.callback(setattr, sys, name, None)
        yield


@contextmanager
def _termination() -> Iterator[list[int]]:
    """Make SIGTERM, as of `kill` or `timeout`, end a run as Ctrl-C does, with the best so far. Yields a list that is not empty
    after the signal."""
    asked: list[int] = []

    def end(number: int, _: Any) -> None:
        asked.append(number)
        raise KeyboardInterrupt

    mine = threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    if mine:
        signal.signal(signal.SIGTERM, end)
    try:
        yield asked
    finally:
        if mine:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _discard_output() -> None:
    """Discard what standard output still buffers: it cannot be written."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
