"""A lock on a device of this machine: one kernel at a time runs on it, for all processes of all users.

It is a lock of the operating system on a file, tied to a file descriptor that worker processes inherit. After a kill of the
process that took it, it stays taken until the worker that may still run a kernel has ended, too.
"""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path

DIRECTORY = Path("/run/lock")  # of locks on devices, by the Filesystem Hierarchy Standard; else the temporary folder


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
        """Close the file; children keep the descriptors that they inherited."""
        os.close(self.descriptor)


def _opened(path: Path) -> int:
    """The descriptor of a lock file, which is created if missing, writable for all users; links are not followed."""
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        return os.open(path, flags)
    except FileNotFoundError:
        pass
    try:
        made = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o666)
    except FileExistsError:  # another process was faster
        return os.open(path, flags)
    os.fchmod(made, 0o666)  # for any umask: other users lock it, too
    return made
