"""What the command line asks of the benchmarks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

SCHEDULES = ("default", "tuned", "unscheduled")


@dataclass(frozen=True)
class Options:
    """`threads` that every contender uses; `seconds` that a row is timed for; `seed` of all data and random choices.

    `quality` searches with a budget of `trials` and `seconds`, whichever ends first. `minutes` is what a row may take in all,
    None for as long as it needs; rows that search keep to it.

    The benchmark `cpu` measures the program that `schedule` names (one of SCHEDULES); `trials` is the budget of the search that
    makes the tuned one, unless `best`, a folder, already holds it; `save` is a folder to keep what was found in. `ablation`
    searches with that budget for each of `seeds` seeds; `model` measures `trials` candidates of a row. `models` is the folder of
    the files that `networks` reads, which are made where they are not there. `quick` is for a first look at the benchmark
    `policies`, which with `race` compares what is there, and takes those of the names in `policies` alone.
    """

    threads: int = 1
    seconds: float = 2.0
    seed: int = 0
    schedule: str = "default"
    trials: int = 64
    seeds: int = 5
    minutes: float | None = None
    best: str | None = None
    save: str | None = None
    models: str | None = None
    policies: str | None = None
    quick: bool = False
    race: bool = False

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @contextmanager
    def folder(self) -> Iterator[Path]:
        """The folder `save`, or without it one that is removed at the end."""
        with TemporaryDirectory() as temporary:
            found = Path(self.save or temporary).absolute()
            found.mkdir(parents=True, exist_ok=True)
            yield found
