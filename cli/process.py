"""The frame in which every command line runs: standard streams, signals, exit statuses, errors in one line."""

from __future__ import annotations

import errno
import io
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from importlib import import_module
from typing import Any, NoReturn

from .options import Usage

INTERRUPTED, TERMINATED = 130, 143  # exit statuses: 128 and the signal
_started: float | None = None  # when the command line of this process was called, on the monotonic clock


def elapsed() -> float:
    """Seconds since the process began with its command line; 0 for a command line that is called as a function."""
    return 0.0 if _started is None else time.monotonic() - _started


def guarded(prog: str, run: Callable[[], int]) -> int:
    """The exit status of a command line: 2 after a `Usage`, 130 after Ctrl-C, 143 after SIGTERM, 1 without a place for output."""
    with _streams(), _termination() as terminated, _plain_warnings():
        try:
            status = run()
            sys.stdout.flush()
        except Usage as error:
            print(f"{prog}: error: {error}", file=sys.stderr)
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
            print(f"{prog}: error: the output cannot be written: {error.strerror}", file=sys.stderr)
            return 1
        return TERMINATED if terminated and status == INTERRUPTED else status


@contextmanager
def _plain_warnings() -> Iterator[None]:
    """Show warnings as a line each, without the place in the source."""
    before, warnings.formatwarning = warnings.formatwarning, lambda message, *_, **__: f"warning: {message}\n"
    try:
        yield
    finally:
        warnings.formatwarning = before


def run_main(module: str) -> NoReturn:
    """Import a command line, run its `main`, and end the process with its status; Ctrl-C ends it during the import, too."""
    global _started
    _started = time.monotonic()
    try:
        from codegen.runtime.openmp import spin

        os.environ.update(spin(os.environ))
        status = import_module(module).main()
    except KeyboardInterrupt:
        status = INTERRUPTED
    leave(status)


def leave(status: int) -> NoReturn:
    """End the process with this status."""
    if status >= INTERRUPTED:  # a thread may still be at work, and its result is not needed
        with suppress(OSError):
            sys.stdout.flush()
        os._exit(status)
    sys.exit(status)


@contextmanager
def _streams() -> Iterator[None]:
    """Discard output to standard streams that are closed from the start; print `?` for characters that stdout cannot encode."""
    with ExitStack() as stack:
        if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors != "replace":
            stack.callback(_reconfigured, sys.stdout, sys.stdout.errors)
            sys.stdout.reconfigure(errors="replace")
        for name in ("stdout", "stderr"):
            if getattr(sys, name) is None:
                nowhere = stack.enter_context(open(os.devnull, "w", encoding="utf-8"))
                setattr(sys, name, nowhere)
                stack.callback(setattr, sys, name, None)
        yield


def _reconfigured(stream: io.TextIOWrapper, errors: str | None) -> None:
    """Set the handling of characters that a stream cannot encode. A failure to write its buffered text is ignored."""
    with suppress(OSError):
        stream.reconfigure(errors=errors)


@contextmanager
def _termination() -> Iterator[list[int]]:
    """Make SIGTERM end a run as Ctrl-C does. Yields a list that is not empty after the signal."""
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
    """Discard the text that standard output still buffers: it cannot be written."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
