"""Memory of the processes of a worker, read from outside. A limit of the address space holds for each process alone, and fails
for a GPU's driver, which reserves more than the machine has."""

from __future__ import annotations

import os
import re
import time
from contextlib import suppress
from pathlib import Path

MIN_INTERVAL_SECONDS = 0.1  # seconds between two readings
MAX_CPU_SHARE = 0.02  # of a CPU's time that readings may take, because they disturb timings


def memory() -> int | None:
    """The bytes that this process and its children may use: of the machine, or of its control group; None where unknown."""
    try:
        whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return None
    with suppress(OSError, ValueError):  # no such group, or one without a limit
        whole = min(whole, int(Path("/sys/fs/cgroup/memory.max").read_text()))
    return whole


def resident(group: int, shared: bool = False, others: set[str] | None = None) -> int:
    """Bytes that the processes of a group hold, 0 if unknown. Shared pages count once, or, with `shared`, for each process, which
    is faster to read. `others` keeps processes of other groups from one call to the next, which are not read again."""
    others, total = set() if others is None else others, 0
    found = {*filter(str.isdigit, os.listdir("/proc") if os.path.isdir("/proc") else ())}
    others &= found  # the number of an ended process may be given to a new one
    for entry in found - others:
        process = Path("/proc", entry)
        try:
            if int((process / "stat").read_text().rpartition(")")[2].split()[2]) != group:
                others.add(entry)
            elif shared:
                total += int((process / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
            else:
                pages = re.findall(r"^Pss: *(\d+)", (process / "smaps_rollup").read_text(), re.MULTILINE)
                total += sum(int(kilobytes) << 10 for kilobytes in pages)
        except (OSError, IndexError):  # it has ended
            continue
    return total


class Watch:
    """A watch on the growth of a process group's memory since its start, against `limit` bytes."""

    def __init__(self, group: int, limit: int):
        self._group, self._start, self._others = group, resident(group), set[str]()
        self.limit = limit
        self.next = time.monotonic()  # time of the next reading

    def excess(self) -> int | None:
        """The growth in bytes if it exceeds the limit; None if not, or before the next reading is due."""
        if time.monotonic() < self.next:
            return None
        start = time.thread_time()
        more = resident(self._group, True, self._others) - self._start
        if more > self.limit:
            more = resident(self._group) - self._start
        self.next = time.monotonic() + max(MIN_INTERVAL_SECONDS, (time.thread_time() - start) / MAX_CPU_SHARE)
        return more if more > self.limit else None
