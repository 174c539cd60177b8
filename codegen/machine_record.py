"""The file with the result of `codegen.calibration` on a machine, in a folder beside the object cache."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from tir.files import write_atomically
from tir.notices import degraded

from .cache import data_key, default_path
from .processor import host_caches, host_cores, host_name, host_processor


def path() -> Path:
    """The file of this machine. Its name is a hash of the processor, LLVM's name and features of it, the caches, and the cores of
    this process, on which its share of a cache depends. RuntimeError without a home."""
    described = [host_name(), *host_processor(), host_caches(), host_cores()]
    return default_path().parent / "machines" / f"{data_key(described)[:20]}.json"


def recorded() -> str:
    """The measured memory of this machine, as the target option `memory` has it; empty without a calibration."""
    return from_file()


@cache
def from_file() -> str:
    """`recorded`, read once a process."""
    from schedule.machine import Memory

    try:
        text = path().read_text()
    except (OSError, RuntimeError):  # no such file, or no home
        return ""
    try:
        return str(Memory.parse(json.loads(text)["memory"]))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        degraded(f"the calibration of this machine is damaged and not used: {error}; python -m tir.calibrate measures again")
        return ""


def keep(record: dict[str, Any]) -> Path:
    """Write a record; later targets of this machine use its `memory`. OSError where it cannot be written."""
    place = path()
    place.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(place, json.dumps(record, indent=1) + "\n")
    from_file.cache_clear()
    return place
