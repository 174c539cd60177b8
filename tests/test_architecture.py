"""The house rules that can be read from the source: which floor imports which, docstrings, and nothing tied to one machine."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Container
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

# Each floor and the floors that it may import, lazily or not.
ARROWS = {
    "tir": set(),
    "schedule": {"tir"},
    "codegen": {"tir", "schedule"},
    "costmodel": {"tir", "schedule", "codegen"},
    "workloads": {"tir"},
    "search": {"tir", "schedule", "codegen", "costmodel", "workloads"},
    "graph": {"tir", "schedule", "codegen", "search"},
    "explorer": {"tir", "schedule", "codegen", "search"},
    "puzzles": {"tir", "schedule", "codegen", "costmodel", "search", "explorer"},
    "cli": {"tir", "schedule", "codegen", "costmodel", "workloads", "search", "graph", "explorer", "puzzles"},
}

# The doors back up: the lazy names of `import tir`, and modules of some lines for the command line and the workloads.
LAZY = "tir/__init__.py"
DOORS = (
    LAZY, "puzzles/__main__.py", "tir/calibrate.py", "tir/explore.py", "tir/puzzles.py",
    "tir/run.py", "tir/tune.py", "tir/worker.py", "tir/workloads.py",
)  # fmt: skip

# Loading these takes longer than a quick `import tir` may.
HEAVY = ("llvmlite", "numba", "sklearn", "rich", "scipy", "cuda")

FOLDERS = (*ARROWS, "tests", "benchmarks", "examples", "docs")


def sources(folder: str) -> list[Path]:
    return sorted((ROOT / folder).rglob("*.py"))


def imported(source: str | ast.AST, package: str) -> set[tuple[str, int]]:
    """All modules that `source`, text or tree of a module of `package` (dotted), imports anywhere, functions included, with their lines."""
    found = set()
    for n in ast.walk(ast.parse(source) if isinstance(source, str) else source):
        match n:
            case ast.Import(names=names):
                found |= {(name.name, n.lineno) for name in names}
            case ast.ImportFrom(module=module, level=level):
                parents = package.split(".")
                base = parents[: len(parents) - level + 1] if level else []
                found.add((".".join([*base, *([module] if module else [])]), n.lineno))
            case ast.Call(
                func=ast.Name(id="import_module") | ast.Attribute(attr="import_module"), args=[ast.Constant(value=str(name)), *_]
            ):
                found.add((name, n.lineno))
    return found


def violations(floor: str, source: str, package: str) -> list[str]:
    """The imports in `source` that go to a floor which `floor` does not rest on."""
    allowed = {floor} | ARROWS[floor]
    return [
        f"line {line}: {floor} must not import {module}"
        for module, line in sorted(imported(source, package), key=lambda found: found[1])
        if module.split(".")[0] in ARROWS and module.split(".")[0] not in allowed
    ]


@pytest.mark.parametrize("floor", ARROWS)
def test_floors_rest_on_those_below(floor):
    found = []
    for path in sources(floor):
        name = path.relative_to(ROOT).as_posix()
        if name not in DOORS:
            package = ".".join(path.relative_to(ROOT).parent.parts)
            found += [f"{name}, {v}" for v in violations(floor, path.read_text(), package)]
    assert not found, "\n".join(found)


def test_violations_are_found():
    lazy = "def f():\n    from search.tuning.autotune import tune\n"
    assert violations("schedule", lazy, "schedule") == ["line 2: schedule must not import search.tuning.autotune"]
    assert violations("tir", "import os, codegen.llvm as c", "tir.script") == ["line 1: tir must not import codegen.llvm"]
    assert violations("codegen", "import importlib\nimportlib.import_module('search')", "codegen") == [
        "line 2: codegen must not import search"
    ]
    assert violations("search", "from . import sketch\nfrom .rules import tile\nimport tir, numpy, codegen", "search") == []
    assert imported("from ..ir import Var", "tir.script") == {("tir.ir", 1)}


def test_arrows_have_no_cycle():
    height: dict[str, int] = {}
    while len(height) < len(ARROWS):
        ready = [f for f in ARROWS if f not in height and all(below in height for below in ARROWS[f])]
        assert ready, f"a cycle among {set(ARROWS) - set(height)}"
        height |= dict.fromkeys(ready, len(height))


@pytest.mark.parametrize("floor", ARROWS)
def test_the_door_back_is_lazy(floor):
    """Only names used by type checkers and functions may open the door from below."""
    if floor != "tir":
        eager = [n for n in ast.parse((ROOT / LAZY).read_text()).body if isinstance(n, (ast.Import, ast.ImportFrom))]
        modules = {m for n in eager for m, _ in imported(n, "tir")}
        assert floor not in {m.split(".")[0] for m in modules}, f"{LAZY} imports {floor} when it is loaded"


def test_doors_are_thin():
    for name in DOORS[1:]:
        assert len((ROOT / name).read_text().splitlines()) <= 9, f"{name} is more than a door"


def imports() -> dict[str, set[str]]:
    """By the name of each module of the packages, the modules that it imports, in functions too, but for types."""
    paths = {p.relative_to(ROOT).with_suffix(""): p for floor in ARROWS for p in sources(floor)}
    modules = {".".join(name.parts).removesuffix(".__init__"): path for name, path in paths.items()}
    return {name: needed(path, modules) - {name} for name, path in modules.items()}


def needed(path: Path, modules: Container[str]) -> set[str]:
    tree = ast.parse(path.read_text())
    package = ".".join(path.relative_to(ROOT).parent.parts)
    for n in ast.walk(tree):
        if isinstance(n, ast.If) and isinstance(n.test, ast.Name) and n.test.id == "TYPE_CHECKING":
            n.body = [ast.Pass()]
    found = {module for module, _ in imported(tree, package)}
    for n in ast.walk(tree):
        if isinstance(n, ast.ImportFrom):  # what is imported may be a module, too
            ((module, _),) = imported(n, package)
            names = {f"{module}.{name.name}" for name in n.names}
            found |= names
            found -= {module} if names <= {m for m in names if m in modules} else set()
    return {module for module in found if module in modules}


def test_no_modules_import_each_other():
    """Files can be read from the bottom up. Names of a package are imported from the module that has them."""
    left = imports()
    while leaves := {name for name, below in left.items() if below.isdisjoint(left)}:
        left = {name: below for name, below in left.items() if name not in leaves}
    while tops := left.keys() - set().union(*left.values()):
        left = {name: below for name, below in left.items() if name not in tops}
    assert not left, "circles: " + "; ".join(f"{name} imports {', '.join(sorted(b & left.keys()))}" for name, b in left.items())


@pytest.mark.parametrize("floor", ARROWS)
def test_every_module_says_what_it_is(floor):
    for folder in {p.parent for p in sources(floor)}:
        assert (folder / "__init__.py").exists(), f"{folder.relative_to(ROOT)} is no package: __init__.py is missing"
    assert sources(floor), f"{floor} has no modules"
    for path in sources(floor):
        doc = ast.get_docstring(ast.parse(path.read_text()))
        assert doc, f"{path.relative_to(ROOT)} has no docstring"


# A path from the root of someone's file system; a number that is an address; a local server.
TIED = re.compile(r"(?<![\w.~}-])/(?:home|root|work|Users|tmp|mnt|opt)/\w|\b\d{1,3}(?:\.\d{1,3}){3}\b|\blocalhost\b|[A-Z]:\\\w")


def test_nothing_is_tied_to_one_machine():
    found = []
    files = [p for f in FOLDERS for p in (ROOT / f).rglob("*") if p.suffix in (".py", ".md", ".toml", ".c", ".h", ".json")]
    files += [p for p in ROOT.iterdir() if p.is_file() and p.suffix in ("", ".md", ".toml") and p.name not in ("LICENSE", ".git")]
    assert files
    for path in files:
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if m := TIED.search(line):
                found.append(f"{path.relative_to(ROOT)}:{number}: {m.group()}")
    assert not found, "\n".join(found)


def test_what_is_tied_is_found():
    """Put together from parts, so that the test above may read this file, too."""
    assert TIED.search('open("/' + 'home/someone/a.db")')
    assert TIED.search("connect to 10.0." + "0.7 now")
    assert TIED.search("local" + "host:8786")
    assert not TIED.search("src/work/a, ./tmp/b, version 1.2.3")


def python(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout


def test_import_tir_is_light():
    loaded = python("import sys, tir, tir.te, tir.workloads; print(*sorted({m.split('.')[0] for m in sys.modules}))").split()
    assert "tir" in loaded
    assert not set(HEAVY) & set(loaded)
    assert not {"schedule", "codegen", "costmodel", "search", "graph", "explorer", "puzzles"} & set(loaded)


def test_unknown_names_suggest_the_nearest():
    import tir

    with pytest.raises(AttributeError) as raised:
        tir.shedule  # noqa: B018
    assert str(raised.value) == "module 'tir' has no attribute 'shedule'; did you mean 'Schedule'?"
    with pytest.raises(AttributeError) as raised:
        tir.zzz  # noqa: B018
    assert str(raised.value) == "module 'tir' has no attribute 'zzz'"
    assert not hasattr(tir, "__wrapped__")


@pytest.mark.parametrize("module", ["analysis", "dtypes", "interpreter", "ir", "script", "te", "traverse", "tune", "workloads"])
def test_unknown_names_of_public_modules_suggest_the_nearest(module):
    import tir

    assert module in dir(tir)
    known = vars(getattr(tir, module))
    near = [n for n in known.get("__all__", known) if len(n) > 4 and n[0] != "_"][-1]
    with pytest.raises(
        AttributeError, match=rf"^module '(tir\.)?{module}' has no attribute '{near[:-1]}x{near[-1]}'; did you mean '\w+'\?$"
    ):
        getattr(getattr(tir, module), f"{near[:-1]}x{near[-1]}")


def test_functions_keep_their_names():
    """Importing the module tir.verify must not hide the function tir.verify."""
    code = "import tir, tir.arith.simplify, tir.verify; print(tir.verify.__name__, callable(tir.verify), callable(tir.simplify))"
    assert python(code).split() == ["verify", "True", "True"]


def test_every_public_name_exists():
    import tir

    for name in tir.__all__:
        assert getattr(tir, name) is not None
    assert set(tir.__all__) <= set(dir(tir))
