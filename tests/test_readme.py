"""Every block of Python in README.md and docs/ runs, the blocks of a page one after the other."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import graph.torch.aten  # noqa: F401 (registers its operators, which no page takes away)
from codegen.llvm.math import FUNCTIONS
from graph.ops.registry import _TABLE as OPERATORS
from tir.intrinsics import INTRINSICS

ROOT = Path(__file__).resolve().parent.parent
APART = ("experiments.md",)  # each of its blocks runs by itself, in tests/docs
NEEDING = {"torch.md": "torch"}  # packages that the development environment lacks, by the page that needs them
PAGES = [ROOT / "README.md", *(p for p in sorted((ROOT / "docs").rglob("*.md")) if p.name not in APART)]

FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(text: str) -> list[tuple[int, str, str]]:
    """The fenced blocks of a page: the line where the code starts, the language, the code."""
    return [(text.count("\n", 0, m.start(2)) + 1, m[1], m[2]) for m in FENCE.finditer(text)]


@pytest.fixture
def own_tables() -> Iterator[None]:
    """What a page adds to a table is gone afterwards; it takes nothing away."""
    tables = INTRINSICS, FUNCTIONS, OPERATORS
    before = [dict(table) for table in tables]
    yield
    lost = [name for table, old in zip(tables, before, strict=True) for name in old if table.get(name) is not old[name]]
    for table, old in zip(tables, before, strict=True):
        table.clear()
        table.update(old)
    assert not lost, f"the page takes away or replaces {', '.join(lost)}"


@pytest.mark.usefixtures("short_races", "own_tables")
@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_python_blocks_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if page.name in NEEDING:
        pytest.importorskip(NEEDING[page.name])
    namespace = {"__name__": page.stem}
    for line, language, code in blocks(page.read_text()):
        assert language in ("python", "text", "bash"), (
            f"{page.name}:{line}: a block must be python, text or bash, not {language!r}"
        )
        if language == "python":
            exec(compile("\n" * (line - 1) + code, str(page), "exec"), namespace)


def test_readme_has_an_example():
    (example,) = [code for _, language, code in blocks((ROOT / "README.md").read_text()) if language == "python"]
    assert all(name in example for name in ("te.compute", "tir.Schedule", "tir.build"))


def test_commands_of_the_readme_exist():
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    commands = [code for _, language, code in blocks((ROOT / "README.md").read_text()) if language == "bash"]
    named = set(re.findall(r"\bmake ([a-z]+)", "\n".join(commands)))
    assert {"tune", "test"} <= named <= targets


def flags(text: str) -> set[str]:
    return set(re.findall(r"(?<![\w=-])--[a-z]+", text))


def test_flags_of_the_readme_exist():
    """Each flag stands beside the command that takes it, or else is one of `python -m tir.tune`."""
    modules = ("benchmarks", "tir.run", "tir.explore", "tir.tune")
    lines = (ROOT / "README.md").read_text().splitlines()
    taken = {line: next((m for m in modules if f"python -m {m}" in line), "tir.tune") for line in lines}
    for module in modules:
        named = set().union(*(flags(line) for line in lines if taken[line] == module))
        help_text = subprocess.run(
            [sys.executable, "-m", module, "--help"], cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout
        assert named, f"the README shows no flags of {module}"
        assert named <= flags(help_text), module
