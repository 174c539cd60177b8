# %% [markdown]
# # 1. What does a loop nest cost?
#
# The product of two matrices takes three loops, one inside the other: a *loop nest*. Their order is free. The result is the
# same up to rounding, and so is the number of multiplications. Yet one order may take many times as long as another. This
# lesson shows why, by counting.
#
# A processor computes faster than its memory delivers. So it has *caches*: small, fast memories that hold what was used last.
# Data comes into a cache in *lines* of neighbouring elements. An access to a line that is there is a *hit*. An access to one
# that is not is a *miss*: the processor waits until the line has come, and some other line makes room.

# %%
import timeit
from collections import OrderedDict

import matplotlib.pyplot as plt
import numpy as np
from course import keep

import tir
from explorer.simulate import LINE, LINES, run
from tir.script import tir as T

# %% [markdown]
# ## A cache in ten lines
#
# Our cache has 16 lines of 4 elements. The line that was not used for longest makes room. Real ones are much larger, but our
# matrices are small, too: 16 by 16. They are stored row by row, so element `[i, j]` is number `i * 16 + j`, and four neighbours
# of one row share a line.

# %%
N = 16


def misses(accesses):
    """How many of these (array, row, column) are not in the cache."""
    cache, count = OrderedDict(), 0
    for array, i, j in accesses:
        line = array, (i * N + j) // LINE
        count += line not in cache
        cache[line] = True
        cache.move_to_end(line)  # it is now the one used last
        if len(cache) > LINES:
            cache.popitem(last=False)
    return count


def product(i, j, k):
    """What C[i, j] += A[i, k] * B[k, j] touches: three elements."""
    return [("A", i, k), ("B", k, j), ("C", i, j)]


R = range(N)
dot = misses(a for i in R for j in R for k in R for a in product(i, j, k))
rows = misses(a for i in R for k in R for j in R for a in product(i, j, k))
print(f"order i, j, k: {dot} misses;  order i, k, j: {rows} misses")
assert (dot, rows) == (5184, 1152)

# %% [markdown]
# Look at the innermost loop; it decides.
#
# - **i, j, k**: `k` moves fastest. `B[k, j]` goes *down a column*: each step is in another line, and after 16 lines the first
#   is gone again. All 16 · 16 · 16 = 4096 accesses of B miss. A row of A is read again for each of 256 elements of C, 4 lines
#   each time: 1024. C itself has 64 lines: 64. Together 5184.
# - **i, k, j**: `j` moves fastest. `B[k, j]` and `C[i, j]` go *along a row*: one miss brings four elements. B costs 16 · 16 · 4
#   = 1024, A and C 64 each. Together 1152.
#
# So the order of two loops divides the misses by 4.5. Neighbours in memory should be neighbours in time: this is called
# *locality*.

# %% [markdown]
# ## Lanes
#
# A processor has a second way to save time: *vector instructions*. One such instruction multiplies, say, 16 pairs of numbers at
# once; each pair is in a *lane*. The lanes must be neighbours in memory to be loaded with one instruction. In the order i, k, j
# the innermost loop runs along rows of B and C, so that it can become a vector. In the order i, j, k it cannot, since B's
# elements are far apart.
#
# Here are the three programs, this time for `tir`. It reads these functions as loops over arrays of numbers with 32 bits;
# Python never runs them. `T.grid(M, N)` is short for two loops, and `T.vectorized(N)` is a loop whose iterations are lanes.


# %%
def programs(M, K, N):
    @T.prim_func
    def dot(A: T.Buffer((M, K)), B: T.Buffer((K, N)), C: T.Buffer((M, N))):
        for i, j in T.grid(M, N):
            C[i, j] = 0.0
            for k in range(K):
                C[i, j] = C[i, j] + A[i, k] * B[k, j]

    @T.prim_func
    def rows(A: T.Buffer((M, K)), B: T.Buffer((K, N)), C: T.Buffer((M, N))):
        for i in range(M):
            for j in range(N):
                C[i, j] = 0.0
            for k, j in T.grid(K, N):
                C[i, j] = C[i, j] + A[i, k] * B[k, j]

    @T.prim_func
    def lanes(A: T.Buffer((M, K)), B: T.Buffer((K, N)), C: T.Buffer((M, N))):
        for i in range(M):
            for j in T.vectorized(N):
                C[i, j] = 0.0
            for k in range(K):
                for j in T.vectorized(N):
                    C[i, j] = C[i, j] + A[i, k] * B[k, j]

    return {"dot": dot, "rows": rows, "lanes": lanes}


counted = {name: run(func) for name, func in programs(N, N, N).items()}
for name, found in counted.items():
    print(f"{name:<6}{found.misses:>6} misses{found.steps:>6} steps")

# %% [markdown]
# `run` executes a small program, and counts misses as our ten lines do. It also counts steps: additions and assignments, where
# all lanes of a vector are one step. So 16 · 16 · 16 additions and 16 · 16 zeros are 4352 steps, or 272 with 16 lanes. A
# program is cheap where both numbers are small.

# %%
assert [found.misses for found in counted.values()] == [5184, 1152, 1152]
assert [found.steps for found in counted.values()] == [4352, 4352, 272]

figure, axes = plt.subplots(1, 2)
for ax, what in zip(axes, ("misses", "steps"), strict=True):
    ax.bar(list(counted), [getattr(found, what) for found in counted.values()], color=["#b2182b", "#4393c3", "#1a9850"])
    ax.set_title(f"{what}, 16 × 16 × 16")
keep("01_loop_nests")

# %% [markdown]
# ## On your machine
#
# What is there to reach? `python -m tir.calibrate` shows the machine: its caches, the bandwidth of its memory, and its *peak*,
# the most additions and multiplications that it does in a second. Here is the first part of what it prints.

# %% tags=["machine"]
from cli.calibrate import machine
from codegen.peak import peak_flops

print(machine(tir.Target("llvm")))

# %% [markdown]
# The same three programs, compiled, at a size where B takes 4 MB: 16 rows of A times 1024 × 1024. `tir.build` makes machine
# code of a function, for one core. numpy's product comes from a library that experts have tuned for years; it may use all
# cores.

# %% tags=["machine"]
M, K, N = 16, 1024, 1024
a, b = (np.random.default_rng(0).uniform(-1, 1, shape).astype("float32") for shape in ((M, K), (K, N)))
peak = peak_flops(tir.Target("llvm"), threads=1)


def show(name, seconds):
    rate = 2 * M * K * N / seconds
    print(f"{name:<6}{seconds * 1e3:>9.2f} ms{rate / 1e9:>8.1f} GFLOP/s{rate / peak:>6.0%} of the peak of a core")


for name, func in programs(M, K, N).items():
    kernel = tir.build(func, "llvm -num-cores 1")
    c = kernel(a, b)
    bound = 2 * K * np.finfo("float32").eps * (abs(a) @ abs(b))  # how much the rounding of K sums may differ
    assert (abs(c - a @ b) <= bound).all()
    show(name, kernel.time(a, b, c, seconds=0.05).median)
show("numpy", min(timeit.repeat(lambda: a @ b, number=1, repeat=10)))

# %% [markdown]
# A GFLOP/s is 10⁹ additions or multiplications a second. Same formula, same numbers, and the nest alone makes the difference. A
# compiler for tensors finds such nests. The rest of the course shows how, and ends up beside numpy.
#
# ## Exercise
#
# There are six orders of three loops. Before you run anything, say which one has the most misses for 16 × 16 × 16 matrices, and
# how many; then count all six. [The solution](solutions/01_loop_nests.py)
