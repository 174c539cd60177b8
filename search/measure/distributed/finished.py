"""Finished measurements that no coordinator has confirmed, in a file each, so that none is lost."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from codegen.cache import default_path
from tir.files import replace_file

MAX_AGE_SECONDS = 7 * 24 * 3600.0  # seconds that a measurement is kept
PURGE_SECONDS = 3600.0  # between two purges


class FinishedAnswers:
    """The answers of jobs, by context and key, in a folder shared by all agents of a user on this machine."""

    def __init__(self, directory: Path | None = None):
        self._directory = directory or default_path().with_name("finished")
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._purged = -PURGE_SECONDS  # time of the last purge, on the monotonic clock
        self._purge()

    def _purge(self) -> None:
        """Remove old results and empty folders, once in PURGE_SECONDS."""
        if time.monotonic() < self._purged + PURGE_SECONDS:
            return
        self._purged = time.monotonic()
        for folder in self._directory.glob("*"):
            with suppress(OSError):  # another agent may do the same
                for file in folder.glob("*"):
                    if time.time() - file.stat().st_mtime > MAX_AGE_SECONDS:
                        file.unlink()
                folder.rmdir()

    def keep(self, context: str, key: str, answer: dict[str, Any]) -> None:
        """Keep an answer, atomically. A full disk keeps none, which matters only if the coordinator is lost as well."""
        self._purge()
        folder = self._directory / context
        for _ in range(2):  # another agent may remove the folder before there is a file in it
            with suppress(OSError):
                folder.mkdir(mode=0o700, exist_ok=True)
                replace_file(folder / key, json.dumps(answer).encode())
                return

    def get(self, context: str, key: str) -> dict[str, Any] | None:
        """The answer kept for a job, None without one."""
        try:
            return json.loads((self._directory / context / key).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None

    def all(self, context: str) -> dict[str, dict[str, Any]]:
        """All answers of a context, by the keys of their jobs."""
        names = [file.name for file in sorted((self._directory / context).glob("*")) if file.suffix != ".part"]
        return {name: answer for name in names if (answer := self.get(context, name)) is not None}

    def confirm(self, context: str, keys: list[str]) -> None:
        """Forget answers that a coordinator has recorded."""
        for key in keys:
            with suppress(OSError):
                (self._directory / context / key).unlink()
        with suppress(OSError):  # others are left
            (self._directory / context).rmdir()
