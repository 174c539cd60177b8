"""The lessons of docs/tutorial and the solutions of their exercises run; what they count, they assert themselves."""

from __future__ import annotations

import json
import os
import re
import runpy
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from docs import lessons
from tests.test_readme import ROOT

COURSE = lessons.COURSE
LESSONS = lessons.lessons()


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    """A copy of the course, for lessons write their pictures."""
    folder = tmp_path_factory.mktemp("course") / "tutorial"
    shutil.copytree(COURSE, folder, ignore=shutil.ignore_patterns("pictures", "drawn", "__pycache__", "*.ipynb"))
    return folder


@pytest.fixture
def as_script(course, monkeypatch):
    """Runs a file of the course as `python FILE` does, but for a process of its own."""
    monkeypatch.setenv("MPLBACKEND", "agg")
    import matplotlib.pyplot as plt

    def run(path: Path, runner: Callable[[Path], Any]) -> Any:
        monkeypatch.syspath_prepend(path.parent)
        monkeypatch.chdir(path.parent)
        monkeypatch.delitem(sys.modules, "course", raising=False)
        return runner(path)

    with plt.rc_context():
        yield run
    plt.close("all")


@pytest.mark.usefixtures("short_races")
@pytest.mark.parametrize("name", LESSONS)
def test_a_lesson_runs_prints_what_is_kept_and_draws_its_picture(name, course, as_script):
    of_machine = {cell.number for cell in lessons.cells((COURSE / f"{name}.py").read_text()) if cell.of_machine}
    printed, kept = as_script(course / f"{name}.py", lessons.run), lessons.kept(name)
    assert printed.keys() == kept.keys(), f"python -m docs.lessons {name}"
    for number in kept.keys() - of_machine:
        assert printed[number] == kept[number], f"cell {number}: python -m docs.lessons {name}"
    drawn = (course / "drawn" / f"{name}.svg").read_text()
    assert drawn.rstrip().endswith("</svg>") and not (course / "pictures").exists()  # nothing that git follows is written
    assert (COURSE / "pictures" / f"{name}.svg").stat().st_size < 100_000


def test_the_first_lessons_and_most_puzzles_need_no_native_code(course):
    command = [sys.executable, "-m", "tests.docs.without_native", str(course)]
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, "MPLBACKEND": "agg"}, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    lessons_printed, verdicts = json.loads(done.stdout)
    for name, printed in lessons_printed.items():
        compiled = {str(cell.number) for cell in lessons.cells((COURSE / f"{name}.py").read_text()) if cell.native}
        assert printed and printed == {str(n): text for n, text in lessons.kept(name).items() if str(n) not in compiled}, name
    apart = {name for name, verdict in verdicts.items() if "✗" in verdict}
    assert len(verdicts) - len(apart) >= 30 and all("not installed here" in verdicts[name] for name in apart)


def test_what_names_a_processor_is_the_same_on_another_architecture(course):
    names = [n for n in LESSONS if "-mcpu" in (COURSE / f"{n}.py").read_text() and n[:2] not in ("11", "12")]  # slow in Python
    command = [sys.executable, "-m", "tests.docs.on_aarch64", str(course), *names]
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, "MPLBACKEND": "agg"}, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    lessons_printed, verdicts = json.loads(done.stdout)
    assert len(names) >= 5 and lessons_printed.keys() == set(names)
    for name, printed in lessons_printed.items():
        machine = {str(cell.number) for cell in lessons.cells((COURSE / f"{name}.py").read_text()) if cell.of_machine}
        expected = {str(n): text for n, text in lessons.kept(name).items()}
        assert printed.keys() <= expected.keys() and {n: expected[n] for n in printed.keys() - machine}.items() <= printed.items()
    assert "5" in lessons_printed["08_machine_code"], "the assembly of a loop"
    assert [verdict for verdict in verdicts.values() if not verdict.partition("\n")[0].endswith(": solved")] == []


@pytest.mark.usefixtures("short_races")
@pytest.mark.parametrize("name", LESSONS)
def test_a_solution_runs(name, course, as_script):
    as_script(course / "solutions" / f"{name}.py", lambda path: runpy.run_path(str(path), run_name="__main__"))


def test_a_lesson_is_a_notebook(course, monkeypatch):
    import jupytext
    import nbclient

    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))))
    notebook = jupytext.read(course / "03_blocks.py")
    nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(course)}}).execute()
    outputs = [o for cell in notebook.cells if cell.cell_type == "code" for o in cell.outputs]
    assert "{'v_i': 'SPATIAL', 'v_j': 'SPATIAL', 'v_k': 'REDUCE'}\n" in "".join(o.get("text", "") for o in outputs)
    assert [o for o in outputs if "image/png" in o.get("data", {})], "the picture appears in the notebook"


@pytest.mark.parametrize("name", LESSONS)
def test_the_text_of_a_lesson_leads_on(name):
    """It begins with its number and a question, has an exercise, and links only to what is there; the index has it."""
    text = "\n".join(cell.markdown for cell in lessons.cells((COURSE / f"{name}.py").read_text()) if cell.prose)
    assert re.match(rf"# {int(name[:2])}\. [^\n]+\?\n", text)
    assert "## Exercise" in text and f"(solutions/{name}.py)" in text
    assert f"({name}.py)" in (COURSE / "README.md").read_text()
    for target in re.findall(r"\]\(([^)#:]+)(?:#[\w-]+)?\)", text):
        assert (COURSE / target).exists(), f"{name} links to {target}"
