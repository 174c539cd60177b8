# %% [markdown]
# # 15. What does a GPU run?
#
# A GPU runs thousands of threads. They come in **blocks**: the threads of a block share a small, fast memory (*shared
# memory*), and can wait for one another (*barrier*). Threads of different blocks know nothing of each other. A loop whose
# iterations are independent can become threads: the primitive `bind` says which loop is which index. You need no GPU for this
# lesson.

# %%
import sys

import matplotlib.pyplot as plt
import numpy as np
from course import keep

import tir
from codegen.cuda import lower_cuda
from tir import te

sys.path += [".", "../.."]  # the root of the clone: the emulation is a part of the tests

M, K, N = 20, 24, 36
A, B = te.placeholder((M, K), name="A"), te.placeholder((K, N), name="B")
k = te.reduce_axis((0, K), name="k")
func = te.create_prim_func([A, B, te.compute((M, N), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")])

# %% [markdown]
# ## One thread for each element
#
# Tiles of 8 × 16 elements are blocks, and each element of a tile is a thread.

# %%
s = tir.Schedule(func)
i_0, i_1 = s.split("i", [None, 8])
j_0, j_1 = s.split("j", [None, 16])
s.reorder(i_0, j_0, i_1, j_1, "k")
s.bind(i_0, "blockIdx.y")
s.bind(j_0, "blockIdx.x")
s.bind(i_1, "threadIdx.y")
s.bind(j_1, "threadIdx.x")
simple = s.func
print(tir.dump(simple, "cuda -arch sm_90"))

# %% [markdown]
# Read the CUDA from the top. The kernel is what *one* thread does. `bx` and `by` say which block it is in, `tx` and `ty` which
# thread of it it is; these are the four loops that you bound, and they are gone. The loop over `k` is left. The condition is
# the guard of lesson 4: 20 rows are no multiple of 8, so some threads have nothing to do.
#
# ## Through shared memory
#
# Each element of A is loaded by 16 threads of a block, from slow memory each time. Better: the block loads a tile of A and one
# of B together, each thread a few elements; then all compute from the tiles. That is `cache_read` into the scope `shared`, and
# `compute_at`.

# %%
s = tir.Schedule(func)
i_0, i_1 = s.split("i", [None, 8])
j_0, j_1 = s.split("j", [None, 16])
k_0, k_1 = s.split("k", [None, 16])
s.reorder(i_0, j_0, k_0, i_1, j_1, k_1)
s.bind(i_0, "blockIdx.y")
s.bind(j_0, "blockIdx.x")
s.bind(i_1, "threadIdx.y")
s.bind(j_1, "threadIdx.x")
for operand in (0, 1):
    tile = s.cache_read("C", operand, "shared")
    s.compute_at(tile, k_0)
    rows, columns = s.get_loops(tile)[-2:]
    _, rows = s.split(rows, [None, 8])
    s.bind(rows, "threadIdx.y")
    s.bind(columns, "threadIdx.x")
tiled = s.func
text = tir.dump(tiled, "cuda -arch sm_90")
print(text)
assert text.count("__shared__") == 2 and text.count("__syncthreads();") == 2

# %% [markdown]
# You wrote no barrier, `__syncthreads()`, and there are two. The compiler puts one between two accesses of different threads
# to one element, if one of them is a store: after the tiles are loaded, before anybody reads them; and before the next tiles
# overwrite them.
#
# ## Run it, without a GPU
#
# The interpreter runs a scheduled program as it runs any other: threads are iterations, in an order that is drawn. And the
# emitted text itself runs on the CPU: the tests compile it as C++ with threads that are emulated, and traps for races and for
# places outside of arrays.

# %%
rng = np.random.default_rng(0)
a, b = rng.integers(-4, 5, (M, K)).astype("float32"), rng.integers(-4, 5, (K, N)).astype("float32")
c = np.empty((M, N), "float32")
tir.run(tiled, a, b, c)
assert (c == a @ b).all()  # small integers: exact

from tests.codegen.cuda.emulation import compiler, emulate

if compiler is not None:  # g++
    (kernel,) = emulate(lower_cuda(tiled, tir.Target("cuda -arch sm_90")))
    c = np.empty((M, N), "float32")
    kernel(a, b, c)
    assert (c == a @ b).all()

# %% [markdown]
# ## Compile it
#
# NVRTC is NVIDIA's compiler as a library; it needs no GPU, either. Its report says what one thread takes: few registers, and
# no spills, that is, no values that have to go to slow memory as registers are short.

# %% tags=["machine"]
try:
    report = tir.build(tiled, "cuda -arch sm_90").report()
    print(report)
except Exception as error:  # without the extra `cuda`
    print(error)

# %% [markdown]
# ## What is gained
#
# Count the loads from slow memory of one block of 8 × 16 threads, over all k. Simple: each thread loads K elements of A and K
# of B. Tiled: the block loads 8 · K elements of A and 16 · K of B, each once.

# %%
loads = {"simple": 8 * 16 * 2 * K, "tiled": 8 * K + 16 * K}
print(loads, loads["simple"] / loads["tiled"])
assert loads["simple"] * 3 == loads["tiled"] * 32

plt.bar(list(loads), list(loads.values()), color=["#b2182b", "#1a9850"])
plt.ylabel("loads of a block from slow memory")
keep("15_gpu")

# %% [markdown]
# What `tir.default_schedule(func, "cuda")` makes has more: each thread computes several elements in registers, and loads the
# next tiles while it computes. Dump it, and look for what you know. [CUDA kernels](../cuda.md) explains the rest.
#
# ## Exercise
#
# How does the ratio of loads depend on the size of the tile? Derive it for a tile of m × n threads, and say which of 8 × 16,
# 16 × 16 and 4 × 32 is best; all but one have 128 threads. [The solution](solutions/15_gpu.py)
