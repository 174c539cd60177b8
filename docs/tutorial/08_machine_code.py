# %% [markdown]
# # 8. How do we pass numpy?
#
# A program ends as *machine code*, the instructions that the processor executes. This lesson follows a product of matrices down
# to these instructions, and reads its innermost loop. Then it climbs a ladder: one program in six versions, from the formulas
# as they stand to one that stands beside numpy, whose product of matrices was written by hand in assembly.

# %%
import time

import matplotlib.pyplot as plt
import numpy as np
from course import keep
from threadpoolctl import threadpool_limits

import tir
from examples.ladder import RUNGS
from tir import te, workloads

# %% [markdown]
# ## Down to the instructions
#
# `tir.build` lowers a function in three stages. Its own passes turn blocks into plain loops. Then it writes *LLVM IR*, a
# language of very simple operations that many compilers share. Last, the library LLVM chooses registers, and turns it into
# *assembly*, machine code in readable form. `tir.dump` prints each stage. We take the simplest nest, and a fixed kind of
# processor, so that all see the same code.

# %%
TARGET = "llvm -mtriple x86_64-linux-gnu -mcpu x86-64-v3 -num-cores 1"
A, B = te.placeholder((96, 64), name="A"), te.placeholder((64, 96), name="B")
k = te.reduce_axis((0, 64), name="k")
product = te.create_prim_func([A, B, te.compute((96, 96), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")])
llvm_ir = tir.dump(product, TARGET, after="llvm_ir")
begin = llvm_ir.rindex("loop.", 0, llvm_ir.index("%k."))
print(llvm_ir[begin : llvm_ir.index("\ndone.", begin)])

# %% [markdown]
# This is the loop over `k`. `phi` is the loop's counter, `getelementptr` calculates an address, `fmuladd` is the multiply-add,
# `br` jumps back to the start of the loop. Numbers with `%` are values, as many as one likes; LLVM decides which lie in
# registers. And the assembly, below the loop that it belongs to:

# %% tags=["machine"]
print(tir.build(product, TARGET).report().listing("k"))

# %% [markdown]
# Each line is one instruction; what it writes stands last. Names with `%` are registers, and `(...)` is an element of memory.
#
# - `vmovss` loads one element of A. `vfmadd231ss` multiplies it with one of B, and adds to `%xmm0`. `ss` means *scalar, single
#   precision*.
# - `incq` and `addq` step to the next element of A and to the next row of B, 384 bytes on; `cmpq` and `jl` go on while `k` is
#   less than 64.
#
# Six instructions, of which one does work that we want. And each `vfmadd` needs the `%xmm0` of the one before: the latency of
# lesson 5.
#
# Now the same with a register tile of 4 × 16:

# %% tags=["machine"]
s = tir.Schedule(product)
i_0, j_0, i_1, j_1 = s.tile("i", "j", 4, 16)
s.reorder(i_0, j_0, "k", i_1, j_1)
s.unroll(i_1)
s.vectorize(j_1)
tile = tir.build(s.func, TARGET)
print(tile.report().listing("k"))

# %% [markdown]
# `ymm` registers hold 8 lanes, and `ps` means *packed*: all lanes. Two `vmovups` load 16 elements of a row of B. `vbroadcastss`
# copies one element of A into all lanes, once for each of 4 rows. Eight `vfmadd231ps` add to eight different registers, `%ymm0`
# to `%ymm7`: none waits for another, and C is not touched in the loop. 18 instructions do the work of 64 iterations of the
# first loop.

# %%
assert tir.build(product, TARGET).report().loop("k").code.count("vfmadd") == 1
code = tile.report().loop("k").code
assert code.count("vfmadd231ps") == 8 and code.count("vbroadcastss") == 4

# %% [markdown]
# ## The ladder
#
# A public tutorial on machine-learning compilation climbs this ladder with TVM, another compiler for tensors, for F = exp(A ·
# B) · E, where A is M × K, B is K × L, and E is L × N. On one core, at M,K,L,N = 1024,2048,1024,3072, it published 6.24 s for
# the program as written, 0.170 s for the best that a search found, and 0.105 s for numpy. `examples/ladder` has its programs.
# We take five of its rungs, and add one.
#
# The last rung does what hand-written libraries do. It combines what you know: a register tile (lesson 5), tiles for the caches
# (4), and packing (6): `s.pack` copies B and E tile by tile into the order in which the inner loop reads them. The exponential
# is computed at the tile that has just been finished, as long as it is in the cache.


# %% tags=["machine"]
def packed(func, rows, columns):
    s = tir.Schedule(func)
    for block in ("C", "F"):
        i, j, k = s.get_loops(block)
        i_0, i_1, i_2 = s.split(i, [None, 256 // rows, rows])
        j_0, j_1, j_2 = s.split(j, [None, 2, columns])
        k_0, k_1 = s.split(k, [None, 256])
        s.reorder(i_0, j_0, k_0, j_1, i_1, k_1, i_2, j_2)
        s.unroll(i_2)
        s.vectorize(j_2)
        copy = s.pack(block, 1)
        s.vectorize(s.get_loops(copy)[-1])
    s.reverse_compute_at("D", s.get_loops("C")[1])  # D = exp(C)
    s.vectorize(s.get_loops("D")[-1])
    return s.func


SHAPE = 256, 512, 512, 768  # the published one is 1024, 2048, 1024, 3072; the first rungs take long there
instance = workloads.make("mlp", SHAPE)
lanes = tir.Target("llvm").machine.vector_bits // 32
rows = 8 if lanes == 16 else 4  # two vectors wide: 16 sums in 32 registers, or 8 in 16
rungs = {r.name: r.program(SHAPE) for r in RUNGS if r.name in ("naive", "reorder", "tile_all", "vectorize", "searched")}
rungs["packed"] = packed(instance.func, rows, 2 * lanes)
print(rungs["packed"].outline())

# %% [markdown]
# We time all of them in turns with numpy on one thread, and check each against a reference in float64. `kernel.report()` says
# what limits the innermost loop of the second product, as in lesson 5; it reads the code of x86 processors. The published
# seconds are of another machine and a larger size, so only ratios compare. In the first rungs not even these: there the
# compiler made vectors by itself, here a loop is a vector only where the schedule says so.

# %% tags=["machine"]
inputs, outputs = instance.inputs(np.random.default_rng(0)), instance.outputs()
check = instance.checker(inputs)
calls, codes = {}, {}
for name, func in rungs.items():
    kernel = tir.build(func, "llvm -num-cores 1")
    calls[name] = kernel.bind(*inputs, *outputs)
    calls[name]()
    assert check(outputs).ok, name
    try:
        code = [loop for loop in kernel.report().loops if loop.share][-1]
    except ValueError:  # reports read code for x86 alone
        continue
    codes[name] = f"{code.fma} fma of {code.width} bits; at most {code.share:.0%} of the peak, by {code.bounds[0][0]}"
calls["numpy"] = lambda: instance.numpy(inputs, outputs)

seconds = dict.fromkeys(calls, float("inf"))
with threadpool_limits(1):  # numpy's product on one thread
    for _ in range(5):
        for name, call in calls.items():
            if seconds[name] > 0.05 and seconds[name] < float("inf"):
                continue  # slow ones are timed once
            start = time.perf_counter()
            call()
            seconds[name] = min(seconds[name], time.perf_counter() - start)

published = {r.name: f"{r.published:.3f}" for r in RUNGS if r.published} | {"numpy": "0.105"}
print("rung        seconds   GFLOP/s   published   inner loop")
for name, taken in seconds.items():
    print(f"{name:<10}{taken:>9.4f}{instance.flop / taken / 1e9:>10.1f}{published.get(name, ''):>12}   {codes.get(name, '')}")

plt.barh(
    list(seconds), [instance.flop / taken / 1e9 for taken in seconds.values()], color=["#4393c3"] * 5 + ["#1a9850", "#888888"]
)
plt.gca().invert_yaxis()
plt.xlabel("GFLOP/s, one thread")
keep("08_machine_code")

# %% [markdown]
# From rung to rung:
#
# - *naive*: one sum, and each addition waits for the one before it.
# - *reorder*: columns innermost, so that memory is read row by row (lesson 1). But each multiply-add needs two loads and a
#   store.
# - *tile_all*: tiles for the caches (lesson 4). One lane at a time, the core is what is slow, not the memory. So tiles alone
#   change little.
# - *vectorize*: vectors of 8 lanes. Now one vector of sums waits for itself.
# - *searched*: what a search found on the other machine, with tiles within tiles. Lesson 9 and those after it are about such
#   searches.
# - *packed*: 16 vectors of sums in registers, on a processor that has 32, or 8 where it has 16. And B and E lie in the order of
#   reading.
#
# Why can this beat a library that experts have tuned? It can do what a library of products cannot: the library gets A and B,
# and returns C. It does not know that an exponential follows, so all of C is written and read once more.
#
# The published size: `python -m examples.ladder` climbs all eleven rungs. [Code generation](../codegen.md) shows each pass
# between a schedule and LLVM IR.
#
# ## Exercise
#
# Take the packing out of the last rung, and leave the rest; take the sizes 512, 1024, 1024, 1024. Is the innermost loop another
# one? Is it slower on your machine, and if so, why? [The solution](solutions/08_machine_code.py)
