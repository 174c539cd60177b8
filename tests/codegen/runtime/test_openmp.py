"""The OpenMP runtime: how it is found, what is said where there is none, and kernels called from several threads at once."""

from __future__ import annotations

import ctypes.util
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import codegen
from codegen import NoOpenMP, Target
from codegen.llvm import cores
from codegen.llvm.compile import Library, object_code
from codegen.processor import host_cores
from codegen.runtime import openmp
from search.measure.process import library_environment

from ..harness import ONE, TWO, at_once
from ..matmul import matmul, operands, tiled

CALLS = 20


@pytest.fixture
def fresh_search():
    """Nothing found before, nor kept afterwards."""
    openmp.library.cache_clear()
    yield
    openmp.library.cache_clear()


def test_the_runtime_has_what_kernels_call():
    library = openmp.library()
    assert all(hasattr(library, name) for name in openmp.SYMBOLS)


def test_only_parallel_kernels_need_it():
    func = tiled(96, 13, 32, 6, 16, parallel=True)
    assert openmp.runtime_symbols(codegen.build(func, ONE).code) == {}
    assert set(openmp.runtime_symbols(codegen.build(func, TWO).code)) == set(openmp.SYMBOLS)


def test_scikit_learn_brings_one(monkeypatch, fresh_search):
    monkeypatch.setattr(ctypes.util, "find_library", lambda name: None)
    shipped = [c for c in openmp.candidates() if "scikit_learn.libs" in c]
    if not shipped:
        pytest.skip("there is no scikit-learn, or it ships no libgomp")
    monkeypatch.setattr(openmp, "candidates", lambda: iter(["libgomp-that-is-not-there.so", *shipped]))
    assert openmp.library()._name == shipped[0]
    assert hasattr(openmp.library(), "GOMP_parallel")


def test_the_machine_s_comes_first():
    assert next(iter(openmp.candidates())) == "libgomp.so.1"


def test_without_one(monkeypatch, fresh_search):
    monkeypatch.setattr(openmp, "candidates", lambda: iter(["libgomp-that-is-not-there.so"]))
    a, b, c = operands(12, 7, 16)
    kernel = codegen.build(tiled(12, 7, 16, 3, 16, parallel=True), TWO)
    with pytest.raises(NoOpenMP) as raised:
        kernel(a, b, c)
    assert str(raised.value) == (
        "no OpenMP runtime found (libgomp.so.1, or the one in scikit-learn); install libgomp, or build with num_cores=1"
    )
    codegen.build(tiled(12, 7, 16, 3, 16, parallel=True), ONE)(a, b, c)
    assert np.array_equal(c, a @ b)


def caller(kernel, m: int, k: int, n: int, seed: int) -> Callable[[], None]:
    def job() -> None:
        a, b, c = operands(m, k, n, seed)
        for _ in range(CALLS):
            c.fill(np.nan)
            kernel(a, b, c)
            assert np.array_equal(c, a @ b)

    return job


@pytest.mark.parametrize("target", [ONE, TWO])
def test_one_kernel_from_several_threads(target):
    """The first calls, which load the code, come at the same time too."""
    kernel = codegen.build(tiled(97, 13, 109, 6, 32, parallel=True), target)
    at_once(*(caller(kernel, 97, 13, 109, seed) for seed in range(4)))


def test_parallel_kernels_from_two_threads():
    shapes = ((97, 13, 109), (48, 109, 64))
    kernels = [codegen.build(tiled(*shape, 6, 32, parallel=True), TWO) for shape in shapes]
    at_once(*(caller(kernel, *shape, seed) for seed, (kernel, shape) in enumerate(zip(kernels * 2, shapes * 2, strict=True))))


def test_builds_from_several_threads():
    def job(m: int) -> Callable[[], None]:
        return lambda: caller(codegen.build(tiled(m, 13, 32, 3, 16, parallel=True), TWO), m, 13, 32, m)()

    at_once(*(job(m) for m in (7, 13, 97)))


def test_the_lock_of_python_is_released():
    """Another thread runs while a kernel does: it sees the kernel begin and not yet end."""
    kernel = codegen.build(matmul(300, 300, 300), ONE)
    a, b, c = operands(300, 300, 300)
    kernel(a, b, c)
    started, done = threading.Event(), threading.Event()
    seen: list[bool] = []

    def call() -> None:
        started.set()
        for _ in range(10):
            kernel(a, b, c)
        done.set()

    def watch() -> None:
        started.wait(10)
        while not done.is_set():
            seen.append(True)
            done.wait(1e-4)

    at_once(call, watch)
    assert len(seen) > 20


def test_the_environment_is_left_alone():
    """What libgomp goes by is what the process says; a command line's own process says that threads soon sleep."""
    inherited = {k: v for k, v in os.environ.items() if k not in openmp.WAITING} | {"OMP_DISPLAY_ENV": "verbose"}
    loads = (
        "import os; from codegen.runtime import openmp; before = dict(os.environ); openmp.library(); print(os.environ == before)"
    )
    for code, given, spins in ((loads, {}, "(default|[1-9]\\d{5,})"), (loads, {"GOMP_SPINCOUNT": "7"}, "7")):
        done = subprocess.run([sys.executable, "-c", code], env=inherited | given, capture_output=True, text=True)
        assert done.stdout.strip() == "True", done.stderr
        assert re.search(f"GOMP_SPINCOUNT = '{spins}'", done.stderr)
    ours = "import os; from cli import process; process.leave = lambda status: print(os.environ.get('GOMP_SPINCOUNT'))\n"
    ours += (
        "import sys; sys.modules['nothing'] = type('Nothing', (), {'main': staticmethod(lambda: 0)}); process.run_main('nothing')"
    )
    for given, spins in (({}, "20000"), ({"GOMP_SPINCOUNT": "7"}, "7"), ({"OMP_WAIT_POLICY": "passive"}, "None")):
        done = subprocess.run([sys.executable, "-c", ours], env=inherited | given, capture_output=True, text=True)
        assert done.stdout.strip() == spins, done.stderr
    assert openmp.spin({}) == {"GOMP_SPINCOUNT": "20000"} and openmp.spin({"OMP_WAIT_POLICY": "active"}) == {}
    assert library_environment(2)["GOMP_SPINCOUNT"] == os.environ.get("GOMP_SPINCOUNT", "20000")


FORKS = """
import os, threading
import numpy as np
import codegen
from tests.codegen.matmul import operands, tiled

kernel = codegen.build(tiled(97, 13, 109, 6, 32, parallel=True), "llvm -num-cores 2")
a, b, c = operands(97, 13, 109)

def right():
    c.fill(np.nan)
    kernel(a, b, c)
    return np.array_equal(c, a @ b)

def fork(job):
    child = os.fork()
    if not child:
        os._exit(0 if job() else 1)
    return os.waitpid(child, 0)[1] == 0

answers = []
work = threading.Thread(target=lambda: answers.append(right() and fork(lambda: right() and fork(right)) and right()))
work.start()
work.join()
print(right(), fork(lambda: right() and fork(right)), right(), *answers)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks here")
def test_a_forked_process_has_threads_of_its_own():
    """And one that it forks; whichever thread called before and forks."""
    root = Path(__file__).resolve().parents[3]
    done = subprocess.run([sys.executable, "-c", FORKS], cwd=root, capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "True True True True", done.stderr


MEETS = """
import os
import codegen
import codegen.runtime.openmp
from tests.codegen.matmul import operands, tiled

def tasks():
    return set(map(int, os.listdir("/proc/self/task")))

def core():
    with open("/proc/self/stat") as f:
        return int(f.read().rsplit(")", 1)[1].split()[36])

codegen.runtime.openmp.library()
kernel = codegen.build(tiled(97, 13, 109, 6, 32, parallel=True), "llvm -num-cores 2")
call = kernel.bind(*operands(97, 13, 109))
before = tasks()
call()
(thread,) = tasks() - before
if {narrow}:
    os.sched_setaffinity(0, {{core()}})
allowed = os.sched_getaffinity(0)
for _ in range(100):  # the caller may have left its core when the thread looks
    place = core()
    os.sched_setaffinity(thread, {{place}})
    call()
    now = os.sched_getaffinity(thread)
    if now != {{place}}:
        break
print(now == {{place}}, os.sched_getaffinity(0) == allowed)
"""


@pytest.mark.skipif(not cores.AVAILABLE or host_cores() < 2, reason="one core, or no way to choose")
@pytest.mark.parametrize("narrow", [False, True])
def test_where_threads_may_run_stays_as_it_was(narrow):
    """Threads, which whoever uses the runtime next shares, as well as the caller."""
    root = Path(__file__).resolve().parents[3]
    done = subprocess.run(
        [sys.executable, "-c", MEETS.format(narrow=narrow)], cwd=root, capture_output=True, text=True, timeout=60
    )
    assert done.stdout.strip() == "True True", done.stderr


@pytest.mark.skipif(not cores.AVAILABLE or host_cores() < 2, reason="one core, or no way to choose")
def test_a_thread_on_the_core_of_its_caller_moves():
    """To another that it may use, if these are enough, unless it is the caller itself."""
    taken = "define i32 @meet(i64 %core, i64 %caller, i64 %threads) {\n"
    taken += f"  call void @{cores.NAME}(i64 %core, i64 %caller, i64 %threads)\n  ret i32 0\n}}\n"
    target = Target("llvm", num_cores=2)
    text = "\n".join([*cores.DECLARATIONS, cores.definition(), taken])
    library = Library([object_code(text, target)], ["meet"], target)
    meet, here = library.function("meet", 3), ctypes.CDLL(None).sched_getcpu
    itself = ctypes.CDLL(None).pthread_self
    itself.restype = ctypes.c_void_p
    moved, stayed = [], []

    def job() -> None:
        allowed = os.sched_getaffinity(0)
        for _ in range(20):  # the system may move a thread at any time
            core = here()
            meet(core, itself() + 1, 2)
            moved.append(here() != core)
            for caller, threads in ((itself(), 2), (itself() + 1, len(allowed) + 1)):
                core = here()
                meet(core, caller, threads)
                stayed.append(here() == core)
            assert os.sched_getaffinity(0) == allowed

    at_once(job)
    assert np.mean(moved) > 0.7 < np.mean(stayed)


def test_a_target_may_leave_threads_where_they_are():
    func = tiled(97, 13, 109, 6, 32, parallel=True)
    moving, staying = (codegen.build(func, Target("llvm", num_cores=2, move_threads=move)) for move in (True, False))
    assert b"sched_setaffinity" not in staying.code and (b"sched_setaffinity" in moving.code) == cores.AVAILABLE
    a, b, c = operands(97, 13, 109)
    staying(a, b, c)
    assert np.array_equal(c, a @ b)
    assert Target(str(staying.target)) == staying.target
