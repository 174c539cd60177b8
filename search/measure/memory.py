"""Memory in use by the processes of a worker, read from outside: a limit of the address space binds each process by itself,
and not at all where a GPU's driver reserves more than there is."""

from __future__ import annotations

import os
import re
import time
from contextlib import suppress
from pathlib import Path

MIN_INTERVAL_SECONDS = 0.1  # seconds between two readings
MAX_CPU_SHARE = 0.02  # of the time of a CPU that readings may take, because it is missing for what is timed


def memory() -> int | None:
    """The bytes that this process and its children may use: of the machine, or of its control group; None where unknown."""
    try:
        whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return None
    with suppress(OSError, ValueError):  # no such group, or one without a limit
        whole = min(whole, int(Path("/sys/fs/cgroup/memory.max").read_text()))
    return whole


def resident(group: int, shared: bool = False) -> int:
    """Bytes that the processes of a group hold; what several share counts once, as far as the system tells, or, which is quick to
    see, for each if `shared`. 0 where unknown."""
    total = 0
    for entry in filter(str.isdigit, os.listdir("/proc") if os.path.isdir("/proc") else ()):
        process = Path("/proc", entry)
        try:
            if int((process / "stat").read_text().rpartition(")")[2].split()[2]) != group:
                continue
            if shared:
                total += int((process / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
            else:
                found = re.findall(r"^Pss: *(\d+)", (process / "smaps_rollup").read_text(), re.MULTILINE)
                total += sum(int(kilobytes) << 10 for kilobytes in found)
        except (OSError, IndexError):  # it has ended
            continue
    return total


class Watch:
    """Looks now and then whether a process group holds more than `limit` bytes beyond what it held at the beginning."""

    def __init__(self, group: int, limit: int):
        self._group, self._start = group, resident(group)
        self.limit = limit
        self.next = time.monotonic()  # when to look again

    def excess(self) -> int | None:
        """Bytes that the group has come to hold, if they are more than the limit; None if not, or if it is too early to look."""
        if (now := time.monotonic()) < self.next:
            return None
        more = resident(self._group, shared=True) - self._start
        if more > self.limit:
            more = resident(self._group) - self._start
        self.next = time.monotonic() + max(MIN_INTERVAL_SECONDS, (time.monotonic() - now) / MAX_CPU_SHARE)
        return more if more > self.limit else None
