"""The file that `--out` writes: the best schedule so far, from which it can be built again."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from tir.files import write_atomically

from ..options import Usage, accessing, refusing

if TYPE_CHECKING:
    from search.tuning.events import Event

FORMAT = 1  # version of the file's format


def save(path: Path, content: dict[str, Any]) -> None:
    """Write a schedule; `read` gives back `content`."""
    write_atomically(path, json.dumps({"format": FORMAT, **content}, indent=1, allow_nan=False) + "\n")


def saved_to(path: str | Path, workload: str) -> str:
    return f"saved to {path}; build it again with: python -m tir.tune {workload} --apply {path}"


def reported(path: str, write: Callable[[], None], stream: IO[str]) -> None:
    """Write a report and print its name, or a warning where it cannot be written."""
    try:
        write()
        print(f"how the search went: {path}", file=stream)
    except OSError as error:
        print(f"warning: could not write {path}: {error.strerror}", file=sys.stderr)


class Saver:
    """A callback that keeps the best schedule so far in a file. `problem` is the reason why that is not up to date, if any."""

    def __init__(self, path: Path, header: dict[str, Any]):
        self._path, self.problem = path, ""
        self._seconds: dict[str, float | None] = {"unscheduled": None, "best": None, "numpy": None}
        self._content = {**header, "seconds": self._seconds}

    def __call__(self, event: Event) -> None:
        from search.tuning.events import Finished, NewBest, Prepared

        match event:
            case Prepared(baseline, numpy):
                self._seconds.update(unscheduled=finite(baseline.seconds), numpy=numpy)
            case NewBest(measurement):
                self._save(measurement.candidate.trace, best=measurement.seconds)
            case Finished(result):
                self._content.update(flop=result.task.flop, key=result.task.key)
                self._content.update(max_error=result.max_error, tolerance=result.tolerance)
                self._save(result.trace, unscheduled=result.baseline, best=result.seconds, numpy=result.numpy)

    def _save(self, trace: Any, **seconds: float | None) -> None:
        self._seconds.update(seconds)
        try:
            save(self._path, {**self._content, "trace": trace})
            self.problem = ""
        except OSError as error:  # a full disk is no reason to lose the search
            self.problem = f"could not write {self._path}: {error.strerror}"


def finite(seconds: float) -> float | None:
    return seconds if math.isfinite(seconds) else None


_FIELDS = {"workload": str, "shape": list, "target": str, "threads": int}


def read(path: str) -> dict[str, Any]:
    """The content of a file of `--out`. Raises Usage for any other file."""
    broken = (ValueError, RecursionError)  # of JSON or of UTF-8
    with accessing(f"--apply: cannot read {path}"), refusing(f"--apply: {path} is not JSON", broken):
        content = json.loads(Path(path).read_text(encoding="utf-8"))
    if not isinstance(content, dict) or "trace" not in content:
        raise Usage(f"--apply: {path} was not written by --out: it holds no trace")
    for name, kind in _FIELDS.items():
        if not isinstance(content.get(name), kind) or isinstance(content.get(name), bool):
            raise Usage(f"--apply: in {path}, {name!r} should be of type {kind.__name__}, got {content.get(name)!r}")
    if content.get("format") != FORMAT:
        raise Usage(f"--apply: {path} has format {content.get('format')!r}; {FORMAT} is understood")
    seconds = content.get("seconds", {})
    if not isinstance(seconds, dict) or not all(v is None or isinstance(v, (int, float)) for v in seconds.values()):
        raise Usage(f"--apply: in {path}, 'seconds' should hold numbers, got {seconds!r}")
    if content["threads"] < 1:
        raise Usage(f"--apply: in {path}, 'threads' should be at least 1, got {content['threads']}")
    return content
