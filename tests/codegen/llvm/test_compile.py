"""Object files in this process, wherever it has room, and modules on which LLVM would end it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent.parent

# All memory between single pages far apart is taken: what is mapped piece by piece lies far apart.
FAR = """
import ctypes, mmap
import numpy as np
import codegen
from tests.codegen.matmul import operands, tiled

libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
NORESERVE = 0x4000

def reserve(size):
    place = libc.mmap(None, size, 0, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NORESERVE, -1, 0)
    assert place not in (None, 2**64 - 1)
    return place

func = tiled(97, 13, 109, 6, 32, parallel=True)
codegen.build(func, "llvm -num-cores 2")(*operands(97, 13, 109))
kernel = codegen.build(func, "llvm -num-cores 2")
large = [reserve(3 << 30) for _ in range(8)]
while reserve(mmap.PAGESIZE) > min(large):
    pass
for place in large:
    libc.munmap(place + (1 << 30), mmap.PAGESIZE)
a, b, c = operands(97, 13, 109)
kernel(a, b, c)
print(np.array_equal(c, a @ b))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="memory is mapped as Linux does")
def test_sections_lie_together_where_memory_is_in_pieces():
    done = subprocess.run([sys.executable, "-c", FAR], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "True", done.stderr


# At k = 19 the mask of k + i < 19 is empty: LLVM 22 makes no bfloat constants where the processor converts vectors.
EMPTY = """
from tests.codegen.harness import ONE, same
from schedule import Schedule
from tir import te
import codegen

for dtype in ("bfloat16", "float16"):
    X = te.placeholder((20,), "float32", name="X")
    k = te.reduce_axis((0, 20), name="k")
    inside = lambda i: te.if_then_else(k + i < 19, X[k + i], 0.0).astype(dtype)
    s = Schedule(te.create_prim_func([X, te.compute((8,), lambda i: te.sum(inside(i), axis=k), name="Y")]))
    i, r = s.get_loops("Y")
    s.reorder(r, i)
    s.unroll(r)
    s.vectorize(i)
    codegen.build(s.func, f"{ONE} -mcpu znver4 -mattr +avx512bf16")
    same(s.func, targets=(ONE,))
print("same")
"""


def test_a_conversion_of_which_no_lane_is_left():
    done = subprocess.run([sys.executable, "-c", EMPTY], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "same", done.stderr


# Masks that hold in all lanes: LLVM 22 splits copies by loads whose size it then does not know, and ends the process.
WHOLE = """
import numpy as np
import tir
from graph import Builder

for processor in ("haswell", "znver3", "x86-64-v4"):
    b = Builder()
    y = b("Conv", b.input("x", (2, 16, 5, 7), "float32"), b.constant(np.ones((8, 16, 1, 1), "f4")), pads=(0, 0, 1, 0))
    tir.compile(b.graph(y=y), f"llvm -num-cores 1 -mcpu {processor}", cache=None)
print("compiled")
"""


def test_copies_whose_masks_hold_in_all_lanes():
    done = subprocess.run([sys.executable, "-c", WHOLE], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "compiled", done.stderr
