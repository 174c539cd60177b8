"""Atomic replacement of files."""

from __future__ import annotations

import errno
import os
import secrets
from pathlib import Path


def write_atomically(path: Path, content: str | bytes) -> None:
    """Replace the contents of `path` atomically: a reader, also after a crash, finds the old contents or the new. A pipe or a
    device is written to directly; a link stays a link."""
    path, data = path.resolve(), content.encode() if isinstance(content, str) else content
    if path.exists() and not path.is_file():
        path.write_bytes(data)
        return
    if not path.parent.is_dir():  # else the error would name a temporary file
        raise FileNotFoundError(errno.ENOENT, "the folder does not exist", str(path.parent))
    replace_file(path, data, lasting=True)


def replace_file(path: Path, data: bytes, lasting: bool = False) -> None:
    """Write `data` to `path` atomically, for its owner alone; if `lasting`, with the usual rights, and flushed to disk."""
    temporary = path.with_name(f"tmp{secrets.token_hex(8)}.part")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    handle = os.open(temporary, flags, 0o666 if lasting else 0o600)  # less the umask, which is the process's
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            if lasting:
                file.flush()
                os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
