"""The wheel: `tir` alone, with the other packages of the repository below it, so that none of another project's is in its way.

In a checkout, and in one that is installed as editable, `schedule`, `search` and so on are packages beside `tir`. The wheel
has them as `tir.schedule`, `tir.search` and so on, and its imports say so.
"""

import re
import shutil
import sys
from pathlib import Path

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).parent
PACKAGES = ("cli", "codegen", "costmodel", "explorer", "graph", "puzzles", "schedule", "search", "workloads")
NAME = f"(?:{'|'.join(PACKAGES)})"
IMPORT = re.compile(rf"^( *)(from|import) ({NAME}(?:\.\w+)*)(?= import|$| +#)", re.MULTILINE)
MODULE = re.compile(rf'(?:(?<=")|(?<=python -m ))({NAME}(?:\.\w+)+)\b(?!\.)')  # the name of one, alone or behind `python -m`

EDITABLE = "editable_wheel" in sys.argv  # as setuptools runs this file for `pip install --editable`


def below_tir(source: str, where: object) -> str:
    """A module's text with its imports of the other packages from below `tir`; ValueError where one cannot be said so."""

    def imported(found: re.Match[str]) -> str:
        space, word, module = found.groups()
        if word == "from":
            return f"{space}from tir.{module}"
        if "." in module:  # binds the name of the first package
            raise ValueError(f"{where}: write `from {module.rpartition('.')[0]} import ...` for `import {module}`")
        return f"{space}from tir import {module}"

    def named(found: re.Match[str]) -> str:
        path = ROOT.joinpath(*found[1].split("."))
        return f"tir.{found[1]}" if path.is_dir() or path.with_suffix(".py").is_file() else found[0]

    return MODULE.sub(named, IMPORT.sub(imported, source))


class BuildBelowTir(build_py):
    """Builds the packages below `tir`, in place of the doors to them."""

    def run(self) -> None:
        if EDITABLE:
            return super().run()
        built = Path(self.build_lib)
        shutil.rmtree(built, ignore_errors=True)  # a file of an earlier build would be in the wheel, too
        super().run()
        for package in PACKAGES:
            (built / "tir" / f"{package}.py").unlink(missing_ok=True)
        for file in built.rglob("*.py"):
            file.write_text(below_tir(file.read_text("utf-8"), file), "utf-8")


if __name__ == "__main__":
    found = find_packages(include=[name for p in ("tir", *PACKAGES) for name in (p, f"{p}.*")])
    setup(
        packages=[p if EDITABLE or p.partition(".")[0] == "tir" else f"tir.{p}" for p in found],
        package_dir={} if EDITABLE else {f"tir.{p}": p for p in PACKAGES},
        cmdclass={"build_py": BuildBelowTir},
    )
