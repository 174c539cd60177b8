"""The wheel: it occupies `tir` alone, whatever else is installed that is called `schedule`."""

import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path
from runpy import run_path
from shutil import copy, copytree, ignore_patterns

import numpy as np
import pytest

from tests.codegen.c_programs import needs_cc
from tests.codegen.harness import ONE
from tests.graph import test_saved
from tests.sweeps import quick

ROOT = Path(__file__).parents[1]
SETUP = run_path(str(ROOT / "setup.py"), run_name="setup")

WORK = """
import sys
from pathlib import Path

import schedule
import numpy as np
import tir
from tir import workloads
from tir.schedule import Schedule

assert schedule.every() == "the other one" and Schedule is tir.Schedule
for name in tir.__all__:
    getattr(tir, name)
instance = workloads.make("gmm", (8, 16, 24))
inputs, outputs = instance.inputs(np.random.default_rng(0)), instance.outputs()
tir.build(instance.func, "llvm -num-cores 1")(*inputs, *outputs)
assert instance.check(outputs, inputs).ok
site = Path(tir.__file__).parents[1]
files = [str(getattr(module, "__file__", "")) for module in sys.modules.values()]
assert not [f for f in files if f.startswith(tuple(f"CHECKOUT/{p}/" for p in ("tir", "schedule", "search", "codegen")))]
assert Path(schedule.__file__).is_relative_to(site)
"""


def run(*command, cwd):
    done = subprocess.run([*map(str, command)], cwd=cwd, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheels(tmp_path_factory):
    """The wheel of this project, and one of another project with a package of the same name as one here."""
    folder = tmp_path_factory.mktemp("wheels")
    ours, other = folder / "ours", folder / "schedule-1.0-py3-none-any.whl"
    for name in ("tir", *SETUP["PACKAGES"]):
        copytree(ROOT / name, ours / name, ignore=ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        copy(ROOT / name, ours)
    run(
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "-q",
        "--no-deps",
        "--no-index",
        "--no-build-isolation",
        "-w",
        folder,
        ours,
        cwd=folder,
    )
    with zipfile.ZipFile(other, "w") as wheel:
        wheel.writestr("schedule/__init__.py", "def every():\n    return 'the other one'\n")
    return next(folder.glob("tir*.whl")), other


def test_it_occupies_one_name(wheels):
    with zipfile.ZipFile(wheels[0]) as wheel:
        names = [name for name in wheel.namelist() if ".dist-info/" not in name]
        (top,) = (wheel.read(name).decode().split() for name in wheel.namelist() if name.endswith("top_level.txt"))
    assert top == ["tir"] and {name.partition("/")[0] for name in names} == {"tir"}
    ours = {f for p in ("tir", *SETUP["PACKAGES"]) for f in (ROOT / p).rglob("*") if f.is_file() and "__pycache__" not in f.parts}
    doors = {Path("tir", f"{p}.py") for p in ("puzzles", "workloads")}  # to the packages that are in their places
    files = {f.relative_to(ROOT) for f in ours} - doors
    assert {str(f if f.parts[0] == "tir" else "tir" / f) for f in files} == set(names)


@quick(lambda order: order == 1)
@pytest.mark.parametrize("order", [1, -1], ids=["before the other", "after the other"])
def test_it_works_beside_another_package_of_the_name(wheels, order, tmp_path):
    venv.create(tmp_path / "venv", symlinks=True)
    python = next((tmp_path / "venv").glob("[bS]*/python*"))
    site = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=tmp_path).strip())
    (site / "others.pth").write_text(sysconfig.get_path("purelib"))  # numpy, llvmlite and so on
    for wheel in wheels[::order]:
        with zipfile.ZipFile(wheel) as files:  # of Python alone, which need no more to be installed
            files.extractall(site)
    run(python, "-E", "-c", WORK.replace("CHECKOUT", str(ROOT)), cwd=tmp_path)
    shown = run(python, "-E", "-m", "tir.tune", "gmm", "--shape", "8,16,24", "--trials", "1", "--threads", "1", cwd=tmp_path)
    assert "gmm" in shown
    assert "first-swap" in run(python, "-E", "-m", "tir.puzzles", cwd=tmp_path)


ALONE = """
from importlib.util import find_spec

present = [name for name in ("llvmlite", "numba", "sklearn", "scipy", "joblib", "rich", "onnx", "torch") if find_spec(name)]
assert not present, present
"""


@needs_cc
@test_saved.LINUX
def test_the_wheel_and_numpy_alone_load_a_model(wheels, tmp_path):
    """In an environment of its own, by `pip install --no-deps`."""
    venv.create(tmp_path / "venv", symlinks=True)
    python = next((tmp_path / "venv").glob("[bS]*/python*"))
    run(sys.executable, "-m", "pip", "--python", python, "install", "-q", "--no-deps", "--no-index", wheels[0], cwd=tmp_path)
    site = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=tmp_path).strip())
    for part in Path(sysconfig.get_path("platlib")).glob("numpy*"):  # as if pip had it installed
        (site / part.name).symlink_to(part)
    net, inputs = test_saved.compiled(ONE)
    np.savez(tmp_path / "in.npz", **inputs)
    run(python, "-E", "-c", ALONE + test_saved.BARE, net.save(tmp_path / "net.model"), cwd=tmp_path)
    assert np.array_equal(np.load(tmp_path / "out.npz")["arr_0"], net(inputs)[0])
    rows, weight = test_saved.opened(ONE)
    x = np.ones((13, len(weight)), "float32")
    np.savez(tmp_path / "in.npz", x=x)
    run(python, "-E", "-c", ALONE + test_saved.BARE_OPEN, rows.save(tmp_path / "rows.model"), cwd=tmp_path)
    assert np.array_equal(np.load(tmp_path / "x.out.npy"), rows(x)[0])


@pytest.mark.parametrize(("source", "below"), [
    ("from schedule import Schedule", "from tir.schedule import Schedule"),
    ("    from search.measure.local import X  # why", "    from tir.search.measure.local import X  # why"),
    ("import workloads", "from tir import workloads"),
    ('["-m", "search.measure.worker"]', '["-m", "tir.search.measure.worker"]'),
    ("`python -m search.measure.worker`", "`python -m tir.search.measure.worker`"),
    ('x = {"schedule": "search.nothing"}', 'x = {"schedule": "search.nothing"}'),
    ("from scheduled import x", "from scheduled import x"),
    ("from .schedule import x", "from .schedule import x"),
])  # fmt: skip
def test_imports_are_from_below(source, below):
    assert SETUP["below_tir"](source, "x.py") == below


def test_an_import_that_binds_the_first_package_is_refused():
    with pytest.raises(ValueError, match=r"x\.py: write `from codegen import \.\.\.` for `import codegen\.cuda`"):
        SETUP["below_tir"]("import codegen.cuda", "x.py")
