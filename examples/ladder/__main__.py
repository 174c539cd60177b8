"""The command `python -m examples.ladder`: runs `measure` in a process where numpy's matrix product has one thread.

Exit status 0 on success, 1 where a rung is wrong, 2 for bad usage, 130 after Ctrl-C.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from search.measure.process import library_environment

ROOT = Path(__file__).resolve().parents[2]


def main() -> int:
    """Start the measuring process and give its exit status; numpy reads how many threads to use when it is loaded."""
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    environment = {**library_environment(1), "PYTHONPATH": path}
    try:
        return subprocess.run([sys.executable, "-m", "examples.ladder.measure", *sys.argv[1:]], env=environment).returncode
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
