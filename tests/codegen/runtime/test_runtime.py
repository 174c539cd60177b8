"""What running needs."""

import subprocess
import sys
from pathlib import Path

WORK = """
import sys

sys.modules |= dict.fromkeys(("numba", "sklearn", "joblib", "rich"))  # `import numba` fails
import numpy as np
import tir
import tir.arrays
from tir import te

A = te.placeholder((40,), name="A")
kernel = tir.build(te.create_prim_func([A, te.compute((40,), lambda i: A[i] + 1.0, name="B")]), "llvm -num-cores 1")
a = np.arange(40, dtype="float32")
assert (kernel(a) == a + 1).all() and kernel.time(a).median > 0
try:
    kernel(a[:7])
except tir.arrays.ArgumentError:
    print("ran")
"""


def test_neither_numba_nor_scikit_learn():
    root = Path(__file__).parents[3]
    done = subprocess.run([sys.executable, "-c", WORK], cwd=root, capture_output=True, text=True, timeout=120)
    assert done.stdout == "ran\n", done.stderr
