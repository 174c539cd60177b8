"""The process of whoever uses the package: what belongs to all of it stays as it was."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

WORK = """
import gc, locale, multiprocessing, os, resource, signal, sys, threading, warnings
import numpy as np

def state():
    here = {int(t) for t in os.listdir("/proc/self/task")} if os.path.isdir("/proc/self/task") else {0}
    umask = os.umask(0o22)
    os.umask(umask)
    return {
        "recursion limit": sys.getrecursionlimit(), "environment": dict(os.environ), "umask": umask,
        "signals": {s: signal.getsignal(s) for s in signal.valid_signals()}, "warnings": list(warnings.filters),
        "affinity": {frozenset(os.sched_getaffinity(t)) for t in here} if hasattr(os, "sched_getaffinity") else None,
        "numpy's errors": np.geterr(), "collector": (gc.isenabled(), gc.get_threshold()), "locale": locale.setlocale(locale.LC_ALL),
        "path": list(sys.path), "switches": sys.getswitchinterval(), "hooks": (sys.excepthook, threading.excepthook, sys.settrace),
        "limits": [resource.getrlimit(n) for n in (resource.RLIMIT_STACK, resource.RLIMIT_AS, resource.RLIMIT_CORE)],
        "directory": os.getcwd(), "processes": multiprocessing.get_start_method(allow_none=True), "stack": threading.stack_size(),
    }

before = state()
import tir
from graph.ir import Call, Graph, Value
from tir import te

for name in tir.__all__:
    getattr(tir, name)
A = te.placeholder((64, 64), name="A")
k = te.reduce_axis((0, 64), name="k")
func = te.create_prim_func([A, te.compute((64, 64), lambda i, j: te.sum(A[i, k] * A[k, j], axis=k), name="B")])
s = tir.default_schedule(func, "llvm -num-cores 2")
a = np.ones((64, 64), "float32")
kernel = tir.compile(func, "llvm -num-cores 2", cache=None)
kernel(a)
kernel.time(a, seconds=0.01)
tir.run(func, a, a.copy())
x, y = Value("x", (64, 64), "float32"), Value("y", (64, 64), "float32")
tir.compile(Graph("g", (x,), (Call("Softmax", (x,), (y,)),), (y,)), "llvm -num-cores 2", cache=None)(a)
parallel = tir.Schedule(func)
parallel.parallel("i")
call = tir.build(parallel.func, "llvm -num-cores 2").bind(a)
for _ in range(100):
    call()
after = state()
print({name for name in before if before[name] != after[name]} or "as it was")
"""


def test_the_state_of_a_process_stays_as_it_was() -> None:
    pytest.importorskip("resource")
    root = Path(__file__).resolve().parent.parent
    done = subprocess.run([sys.executable, "-c", WORK], cwd=root, capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "as it was", done.stderr
