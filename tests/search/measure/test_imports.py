"""What measures candidates rests on nothing that makes them: a remote measurer needs none of the search."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import search.measure
from tests.test_architecture import imported

FOLDER = Path(search.measure.__file__).parent
BELOW = ("search.measure", "search.measure.provenance", "search.task")  # of the search, all that measuring may know


def above(source: str, package: str = "search.measure") -> list[str]:
    """The modules of the search that `source`, a module of `search.measure` or a `package` in it, imports and must not. A name
    imported from a package may be a module of it."""
    found = set()
    for n in ast.walk(ast.parse(source)):
        if isinstance(n, ast.ImportFrom):
            for module, _ in imported(ast.unparse(n), package):
                found |= {f"{module}.{name.name}" for name in n.names}
        elif isinstance(n, (ast.Import, ast.Call)):
            found |= {module for module, _ in imported(ast.unparse(n), package)}
    return sorted(m for m in found if m.split(".")[0] == "search" and not f"{m}.".startswith(tuple(f"{b}." for b in BELOW)))


@pytest.mark.parametrize("path", sorted(FOLDER.rglob("*.py")), ids=lambda path: path.name)
def test_measuring_imports_nothing_of_the_space(path):
    inner = path.parent.relative_to(FOLDER).parts
    assert above(path.read_text(), ".".join(("search.measure", *inner))) == []


@pytest.mark.parametrize(("source", "module"), [
    ("def f():\n    from ..policy.default_schedule import default_schedule", "search.policy.default_schedule.default_schedule"),
    ("from ..space import sketch", "search.space.sketch"),
    ("import search.tuning.autotune", "search.tuning.autotune"),
    ("from importlib import import_module\nimport_module('search.space.derivation')", "search.space.derivation"),
])  # fmt: skip
def test_what_is_above_is_found(source, module):
    assert above(source) == [module]


def test_nothing_is_pickled():
    assert not [p.name for p in FOLDER.rglob("*.py") if "pickle" in p.read_text()]
