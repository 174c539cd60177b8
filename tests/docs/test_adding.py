"""Parts take the places that docs/adding.md lists: in a copy of the packages, with those changed and nothing else, they work."""

from __future__ import annotations

import ast
import inspect
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from schedule.templates import SUMS_OF_PRODUCTS
from tests.test_readme import ROOT, blocks

PAGE = (ROOT / "docs" / "adding.md").read_text()
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

FDIM = """
import numpy as np
import tir
from tir import te
from tir.script import tir as T

assert T.fdim is te.fdim and T.doubled is te.doubled
X = te.placeholder((7,), name="X")
func = te.create_prim_func([X, te.compute((7,), lambda i: te.doubled(te.fdim(X[i], 1.0)), name="Y")])
x, y = np.linspace(-3, 4, 7, dtype="float32"), np.empty(7, "float32")
tir.build(func)(x, y)
assert (y == 2 * np.maximum(x - 1, 0)).all() and "fdimf(" in tir.dump(func, "cuda")
"""


def insert(path: Path, before: str, line: str) -> None:
    """A line in front of the first place where a text stands."""
    text = path.read_text()
    assert before in text, f"{path.name} has no {before!r}"
    path.write_text(text.replace(before, f"{line}{before}", 1))


def copied(folders: tuple[str, ...], to: Path) -> None:
    for folder in folders:
        shutil.copytree(ROOT / folder, to / folder, ignore=shutil.ignore_patterns("__pycache__"))


def run(program: str, folder: Path) -> str:
    """The output of a program with the packages of a folder."""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=folder, env={"PYTHONPATH": str(folder)}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def example(title: str) -> str:
    """The first example of a section of the page."""
    (text,) = [s for s in re.split(r"^## ", PAGE, flags=re.MULTILINE) if s.startswith(f"{title}\n")]
    return next(code for _, _, code in blocks(text))


def places(part: str) -> set[str]:
    """The files that the table names for a part."""
    (row,) = re.findall(rf"^\| {part} \| (.*) \|$", PAGE, re.MULTILINE)
    return set(re.findall(r"`([\w/]+\.py)`", row))


def test_a_primitive_takes_the_places_of_the_page(tmp_path):
    copied(("tir", "schedule", "docs"), tmp_path)
    module = example("A primitive")

    (tmp_path / "schedule/primitives/loops/unroll_by.py").write_text(f'"""unroll_by: unroll by a factor."""\n\n{module}')
    schedule = tmp_path / "schedule/schedule.py"
    insert(schedule, "from .primitives.loops.vectorize", "from .primitives.loops.unroll_by import unroll_by\n")
    insert(schedule, "    add_unit_loop = method", "    unroll_by = method(unroll_by)\n")

    assert run(PROGRAM, tmp_path) == "s.unroll_by('i', 4)  # i_0, i_1\n\n"


def test_functions_of_expressions_take_the_places_of_the_page(tmp_path):
    copied(("tir", "schedule", "codegen", "costmodel", "search", "graph", "workloads"), tmp_path)
    functions, intrinsics, llvm = "tir/te/elementwise.py", "tir/intrinsics.py", "codegen/llvm/math.py"
    assert places("a te operation") == {functions}
    assert places("an intrinsic") == {intrinsics, functions, llvm, "codegen/cuda/prelude.py"}

    insert(tmp_path / functions, '"sigmoid", "sin",', '"fdim", "doubled", ')
    insert(tmp_path / functions, "bit_and, bit_or, bit_xor = map", 'fdim = intrinsic("fdim")\n')
    insert(tmp_path / functions, "def operator", "def doubled(x):\n    return x * 2.0\n\n\n")
    meaning = '"fdim", "x - y where positive, else 0.", lambda x, y: np.maximum(x - y, 0), arity=2'
    (tmp_path / intrinsics).write_text(f'{(tmp_path / intrinsics).read_text()}\nINTRINSICS["fdim"] = Intrinsic({meaning})\n')
    written = 'FUNCTIONS["fdim"] = lambda body, format, x, y: body.at_least(x - y, 0.0)'
    (tmp_path / llvm).write_text(f"{(tmp_path / llvm).read_text()}\n{written}\n")

    run(FDIM, tmp_path)


@pytest.mark.parametrize("template", SUMS_OF_PRODUCTS, ids=lambda t: t.name)
def test_the_template_of_the_page_has_the_parameters_of_all(template):
    (strips,) = [s for s in ast.parse(example("A template")).body if isinstance(s, ast.ClassDef)]
    taken = {f.name: [a.arg for a in f.args.args] for f in strips.body if isinstance(f, ast.FunctionDef)}
    assert set(taken) == {"suits", "cycles", "build"}
    for name in ("suits", "cycles"):
        inspect.signature(getattr(template.pattern, name)).bind(*taken[name])
