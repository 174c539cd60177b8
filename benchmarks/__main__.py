"""Run the benchmarks named on the command line, or all of them: one JSON object a line, with the machine and the commit."""

from __future__ import annotations

import argparse
import json
import os
import pkgutil
import platform
import subprocess
import sys
from importlib import import_module
from pathlib import Path

FOLDER = Path(__file__).parent


def processor() -> str:
    """The name of the processor, as the system gives it."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def commit() -> str:
    """The commit of the checkout, with a + where it has changes; unknown outside of one."""
    try:
        described = subprocess.run(
            ["git", "describe", "--always", "--dirty=+"], cwd=FOLDER, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return described.stdout.strip()


def main(arguments: list[str] | None = None) -> int:
    names = sorted(m.name for m in pkgutil.iter_modules([str(FOLDER)]) if not m.name.startswith("_"))
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"any of: {', '.join(names)}")
    chosen = parser.parse_args(arguments).names or names
    if unknown := [n for n in chosen if n not in names]:
        parser.error(f"no benchmark is named {unknown[0]!r}; there are: {', '.join(names)}")
    machine = {"processor": processor(), "cores": os.cpu_count(), "python": platform.python_version(), "commit": commit()}
    for name in chosen:
        for result in import_module(f"benchmarks.{name}").run():
            print(json.dumps({"benchmark": name, **result, **machine}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
