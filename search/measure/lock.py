"""A lock on a device of this machine: one kernel at a time runs on it, whichever process of whichever user asks.

It is a lock of the operating system on a file, tied to a file descriptor that worker processes inherit: when whoever took it is
killed, it stays taken until the worker that may still run a kernel has ended, too, and then it is free.
"""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path

DIRECTORY = Path("/run/lock")  # of locks on devices, as the Filesystem Hierarchy Standard has it; elsewhere the temporary folder


class DeviceLock:
    """The lock on the device called `name`; a context manager that waits for it. `descriptor` is for children to inherit."""

    def __init__(self, name: str, directory: Path | None = None):
        if directory is None:
            directory = DIRECTORY if os.access(DIRECTORY, os.W_OK) else Path(tempfile.gettempdir())
        self.descriptor = _opened(directory / f"tir-device-{re.sub(r'[^A-Za-z0-9._-]', '-', name)}")

    def __enter__(self) -> DeviceLock:
        import fcntl

        fcntl.flock(self.descriptor, fcntl.LOCK_EX)
        return self

    def __exit__(self, *_: object) -> None:
        import fcntl

        fcntl.flock(self.descriptor, fcntl.LOCK_UN)

    def close(self) -> None:
        """Let go of the file; what children inherited stays theirs."""
        os.close(self.descriptor)


def _opened(path: Path) -> int:
    """The file of a lock, made where missing: never a link's target, and only what is made here is for other users."""
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        return os.open(path, flags)
    except FileNotFoundError:
        pass
    try:
        made = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o666)
    except FileExistsError:  # another process was faster
        return os.open(path, flags)
    os.fchmod(made, 0o666)  # whatever the umask: other users lock it, too
    return made
