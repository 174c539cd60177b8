"""Lessons and puzzles in a process whose packages cannot import what a browser lacks: `python -m tests.docs.without_native FOLDER`.

It prints as JSON the output of each of the first lessons by cells, and the verdict on the solution of each puzzle.
"""

from __future__ import annotations

import builtins
import json
import sys
from pathlib import Path
from typing import Any

LACKING = {"llvmlite", "numba", "sklearn", "scipy", "subprocess", "mmap", "ctypes", "multiprocessing", "sqlite3"}
OURS = {"tir", "schedule", "codegen", "search", "costmodel", "graph", "cli", "workloads", "explorer", "puzzles"}
LESSONS = 7  # of the part that needs no compiler


def forbid() -> None:
    """Refuse imports of LACKING by the project's own packages; matplotlib and numpy have theirs in a browser."""
    original = builtins.__import__

    def guarded(name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0) -> Any:
        asking = (globals or {}).get("__name__") or ""
        if level == 0 and name.partition(".")[0] in LACKING and asking.partition(".")[0] in OURS:
            raise ModuleNotFoundError(f"{asking} imports {name}, which a browser lacks", name=name)
        return original(name, globals, locals, fromlist, level)

    builtins.__import__ = guarded


if __name__ == "__main__":
    forbid()
    from docs import lessons
    from puzzles import PUZZLES, check
    from tests.puzzles.solutions import SOLUTIONS

    folder = Path(sys.argv[1])
    sys.path.insert(0, str(folder))
    printed = {name: lessons.run(folder / f"{name}.py", lambda cell: not cell.native) for name in lessons.lessons()[:LESSONS]}
    print(json.dumps([printed, {name: str(check(PUZZLES[name], answer)) for name, answer in SOLUTIONS.items()}]))
