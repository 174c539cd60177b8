"""How much memory the processes of a worker really use, watched from outside: a limit of the address space binds each process by
itself, and not at all where a GPU's driver reserves more than there is."""

from __future__ import annotations

import os
import time
from pathlib import Path

INTERVAL = 0.1  # seconds between two looks, at least
SHARE = 0.02  # of a processor's time that looking may take, as it is taken from what is being timed


def memory() -> int | None:
    """The bytes that this process and its children may use: of the machine, or of its control group; None where unknown."""
    try:
        whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return None
    try:
        whole = min(whole, int(Path("/sys/fs/cgroup/memory.max").read_text()))
    except (OSError, ValueError):  # no such group, or one without a limit
        pass
    return whole


def half_of_memory() -> int | None:
    """Half of `memory`."""
    whole = memory()
    return None if whole is None else whole // 2


def resident(group: int) -> int:
    """Bytes that the processes of a group hold; what several share counts once, as far as the system tells. 0 where unknown."""
    try:
        return sum(map(_proportional, _members(group)))
    except OSError:
        return 0


def _members(group: int) -> list[int]:
    """The processes of a group."""
    found = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            fields = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        if int(fields[2]) == group:
            found.append(int(entry))
    return found


def _proportional(process: int) -> int:
    """Bytes that a process holds, of what it shares with others its part."""
    try:
        for line in Path(f"/proc/{process}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) << 10
    except OSError:
        pass
    return 0


def _held(group: int) -> int:
    """`resident`, or more where processes share: quickly."""
    pages = 0
    for process in _members(group):
        try:
            pages += int(Path(f"/proc/{process}/statm").read_text().split()[1])
        except (OSError, ValueError, IndexError):
            continue
    return pages * os.sysconf("SC_PAGE_SIZE")


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
        try:
            more = _held(self._group) - self._start
            if more > self.limit:
                more = resident(self._group) - self._start
        except OSError:  # no /proc: nothing can be told
            self.next = float("inf")
            return None
        self.next = time.monotonic() + max(INTERVAL, (time.monotonic() - now) / SHARE)
        return more if more > self.limit else None
