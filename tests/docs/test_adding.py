"""A primitive takes the places that docs/adding.md lists: in a copy of the packages, with those changed and nothing else, it is there."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

from tests.test_readme import ROOT, blocks

PROGRAM = """
import tir
from docs.generate import entry, families
from tir import te

A = te.placeholder((13,), name="A")
s = tir.Schedule(te.create_prim_func([A, te.compute((13,), lambda i: A[i] * 2.0, name="B")]))
assert s.unroll_by("i", 4) == ["i_0", "i_1"]
assert "unroll_by" in families()["loops"] and "unroll_by(loop: LoopName, factor: int) -> list[str]" in entry("unroll_by")
print(s.trace)
"""


def insert(path: Path, before: str, line: str) -> None:
    """A line in front of the first place where a text stands."""
    text = path.read_text()
    assert before in text, f"{path.name} has no {before!r}"
    path.write_text(text.replace(before, f"{line}{before}", 1))


def test_a_primitive_takes_the_places_of_the_page(tmp_path):
    for folder in ("tir", "schedule", "docs"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    section = re.split(r"^## ", (ROOT / "docs" / "adding.md").read_text(), flags=re.MULTILINE)
    (text,) = [s for s in section if s.startswith("A primitive\n")]
    module = next(code for _, _, code in blocks(text))

    (tmp_path / "schedule/primitives/loops/unroll_by.py").write_text(f'"""unroll_by: unroll by a factor."""\n\n{module}')
    schedule = tmp_path / "schedule/schedule.py"
    insert(schedule, "from .primitives.loops.vectorize", "from .primitives.loops.unroll_by import unroll_by\n")
    insert(schedule, "    add_unit_loop = method", "    unroll_by = method(unroll_by)\n")

    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=tmp_path, env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "s.unroll_by('i', 4)  # i_0, i_1\n\n"
