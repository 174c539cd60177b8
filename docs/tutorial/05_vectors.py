# %% [markdown]
# # 5. How does a core do more at once?
#
# Tiles keep data near. But a core can be slow with all data at hand, if it does one thing after the other. It has three ways to
# do more at once, and each is a primitive: `vectorize` uses the lanes of vectors, `unroll` gives the core operations that need
# not wait for each other, and `parallel` uses several cores. They change the *kind* of a loop: how its iterations run, not
# which there are.

# %%
import matplotlib.pyplot as plt
import numpy as np
from course import keep

import tir
from explorer.simulate import run
from tir import te


def product(M, K, N):
    A, B = te.placeholder((M, K), name="A"), te.placeholder((K, N), name="B")
    k = te.reduce_axis((0, K), name="k")
    return te.create_prim_func([A, B, te.compute((M, N), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")])


# %% [markdown]
# ## Counting steps
#
# First the steps of a 16 × 16 × 16 product: 4096 additions, and 256 times C[i, j] = 0. As one vector, the 16 iterations of `j`
# are one step. With two workers that share the rows, two steps happen at once.

# %%
s = tir.Schedule(product(16, 16, 16))
s.reorder("i", "k", "j")
steps = [run(s.func).steps]
s.vectorize("j")
steps.append(run(s.func).steps)
s.parallel("i")
steps.append(run(s.func).steps)
print(s.func.outline(), steps)
assert steps == [4096 + 256, 256 + 16, 128 + 8]

# %% [markdown]
# Not every loop can be a vector or be shared. Iterations of `k` add to the same element: two that run at once would both read
# the old value, and one addition would be lost. The compiler refuses:

# %%
try:
    tir.Schedule(product(16, 16, 16)).parallel("k")
except tir.ScheduleError as error:
    print(error)

# %% [markdown]
# ## What the core does
#
# A *multiply-add* (fma) takes two vectors and adds their product to a third: C + A · B in one instruction. A typical core
# begins two of them in each *cycle*, the tick of its clock. That is its *peak*. But a result is ready only about 4 cycles
# later, its *latency*, and a sum that waits for the sum before it begins one fma in 4 cycles: an eighth of the peak, whatever
# the number of lanes.
#
# So the core must work on several sums at once. A *register tile* does that: `MR` rows by `NR` columns of C, all of whose sums
# are kept in *registers*, the places inside of the core on which instructions work. The loop `k` runs around the tile; inside,
# rows are unrolled and columns are vectors. `unroll` writes the iterations out one after the other, so that each can have
# registers of its own.


# %%
def register_tile(func, MR, NR):
    s = tir.Schedule(func)
    i_0, i_1 = s.split("i", [None, MR])
    j_0, j_1 = s.split("j", [None, NR])
    s.reorder(i_0, j_0, "k", i_1, j_1)
    s.unroll(i_1)
    s.vectorize(j_1)
    return s


func = product(96, 64, 96)
print(register_tile(func, 4, 16).func.outline())

# %% [markdown]
# `kernel.report()` reads the machine code, and counts the instructions in one iteration of each innermost loop. It also
# estimates the cycles of an iteration, and so which share of the peak the loop can reach. We compile for one fixed kind of
# processor, with 16 registers of 8 lanes, so that the counts are the same everywhere: `-mtriple` names its family, for readers
# whose own is another, such as AArch64.

# %% tags=["machine"]
TARGET = "llvm -mtriple x86_64-linux-gnu -mcpu x86-64-v3 -num-cores 1"


def loop_over_k(s):
    return tir.build(s.func, TARGET).report().loop("k")


TILES = ((1, 8), (1, 16), (2, 16), (4, 16), (6, 16), (8, 16))
found = {"scalar": loop_over_k(tir.Schedule(func))}
found |= {f"{MR} × {NR}": loop_over_k(register_tile(func, MR, NR)) for MR, NR in TILES}
print("tile      fma  loads  spills  cycles     share of the peak")
for name, loop in found.items():
    limit = loop.bounds[0][0]  # what takes most cycles
    print(
        f"{name:<8}{loop.fma:>5}{loop.loads + loop.broadcasts:>7}{loop.spills:>8}{loop.cycles:>8.4g}  {loop.share:>5.0%}, {limit}"
    )

# %% [markdown]
# Read the table from the top.
#
# - *scalar*: the nest as it is: one sum, no lanes. An iteration takes 4 cycles, the latency, and does one multiply-add, where
#   two in each of 4 cycles with 8 lanes, 64, were possible.
# - *1 × 8*: eight lanes. Still one sum at a time, so still 4 cycles.
# - *2 × 16*: two rows of two vectors, 4 independent sums. *4 × 16*: 8 of them fill the 4 cycles. A tile also needs fewer loads:
#   a vector of B serves all rows, an element of A all columns. 4 × 16 does 8 multiply-adds with 6 loads, 1 × 8 one with 2. Now
#   the limit is *issue*: how many instructions of all kinds the core takes in each cycle.
# - *6 × 16*: 12 sums, the peak.
# - *8 × 16*: 16 sums, and two registers more for B and A. There are only 16. What has no register is written to memory and read
#   back. These *spills* cost more than the rows gain.
#
# As with the cache, the best tile is about the largest that fits.

# %% tags=["native"]
assert [loop.fma for loop in found.values()] == [1, 1, 2, 4, 8, 12, 16]
assert [loop.loads + loop.broadcasts for loop in found.values()][1:6] == [2, 3, 4, 6, 8]
assert not any(loop.spills for name, loop in found.items() if name != "8 × 16") and found["8 × 16"].spills > 0
assert max(found, key=lambda name: found[name].share) == "6 × 16"

plt.bar(
    list(found),
    [100 * loop.share for loop in found.values()],
    color=["#b2182b" if f.spills else "#4393c3" for f in found.values()],
)
plt.ylabel("% of the peak, by its code")
plt.xlabel("register tile (red: spills)")
keep("05_vectors")

# %% [markdown]
# ## On your machine
#
# The same tiles for your processor, whose vectors may have more lanes, and then on all of its cores. `parallel` goes on the
# outermost loop: starting threads takes time, so they should be started once, and each should have much to do.

# %% tags=["machine"]
M, K, N = 384, 256, 384
a, b = (np.random.default_rng(0).uniform(-1, 1, shape).astype("float32") for shape in ((M, K), (K, N)))
lanes = tir.Target("llvm").machine.vector_bits // 32


def measure(name, s, target="llvm -num-cores 1"):
    kernel = tir.build(s.func, target)
    c = kernel(a, b)
    seconds = kernel.time(a, b, c, seconds=0.02).median
    print(f"{name:<22}{seconds * 1e3:>8.3f} ms{2 * M * K * N / seconds / 1e9:>8.1f} GFLOP/s")


measure("scalar", tir.Schedule(product(M, K, N)))
for MR, vectors in ((1, 1), (1, 2), (4, 2), (6, 2)):
    measure(f"{MR} × {vectors * lanes}", register_tile(product(M, K, N), MR, vectors * lanes))
s = register_tile(product(M, K, N), 6, 2 * lanes)
s.parallel("i_0")
cores = tir.Target("llvm").num_cores
measure(f"6 × {2 * lanes} on {cores} cores", s, f"llvm -num-cores {cores}")

# %% [markdown]
# [Targets and kernels](../targets.md) has the options of a target, and [code generation](../codegen.md) all that a report
# counts.
#
# ## Exercise
#
# Processors of the kind `x86-64-v4` have 32 registers of 16 lanes. Which register tile has the fewest loads for each
# multiply-add there, without a spill? Guess first: how many registers do the sums take, how many are left? You need no such
# processor, as nothing is run. [The solution](solutions/05_vectors.py)
