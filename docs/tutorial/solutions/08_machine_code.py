"""The innermost loop is the same: as many multiply-adds, loads and broadcasts. What differs is where its loads go.

Without packing, the 32 columns that one step of the loop reads are followed by the 32 of the next row, a whole row of E away: 4
KB, the size of a page of memory. So 256 steps touch 256 pages, which is more than the core keeps the addresses of, and lines
that compete for the same few places of the cache. Packed, they are 32 KB in a row, which the processor fetches ahead.
"""

import time

import numpy as np

import tir
from tir import workloads

SHAPE = 512, 1024, 1024, 1024
instance = workloads.make("mlp", SHAPE)


def last_rung(pack, rows, columns):
    s = tir.Schedule(instance.func)
    for block in ("C", "F"):
        i, j, k = s.get_loops(block)
        i_0, i_1, i_2 = s.split(i, [None, 256 // rows, rows])
        j_0, j_1, j_2 = s.split(j, [None, 2, columns])
        k_0, k_1 = s.split(k, [None, 256])
        s.reorder(i_0, j_0, k_0, j_1, i_1, k_1, i_2, j_2)
        s.unroll(i_2)
        s.vectorize(j_2)
        if pack:
            copy = s.pack(block, 1)
            s.vectorize(s.get_loops(copy)[-1])
    s.reverse_compute_at("D", s.get_loops("C")[1])
    s.vectorize(s.get_loops("D")[-1])
    return s.func


found = {}
for pack in (False, True):
    report = tir.build(last_rung(pack, 8, 32), "llvm -mtriple x86_64-linux-gnu -mcpu x86-64-v4 -num-cores 1").report()
    code = [loop for loop in report.loops if loop.share][-1]
    found[pack] = code.fma, code.loads, code.broadcasts, code.stores, code.spills
    print(f"{'packed' if pack else 'not packed':<12}{code.fma} multiply-adds, {code.loads} loads, {code.broadcasts} broadcasts")
assert found[False] == found[True] == (16, 2, 8, 0, 0)

lanes = tir.Target("llvm").machine.vector_bits // 32
inputs, outputs = instance.inputs(np.random.default_rng(0)), instance.outputs()
kernels = {pack: tir.build(last_rung(pack, 8 if lanes == 16 else 4, 2 * lanes), "llvm -num-cores 1") for pack in (False, True)}
seconds = dict.fromkeys(kernels, float("inf"))
for _ in range(5):
    for pack, kernel in kernels.items():
        start = time.perf_counter()
        kernel(*inputs, *outputs)
        seconds[pack] = min(seconds[pack], time.perf_counter() - start)
for pack, taken in seconds.items():
    print(f"{'packed' if pack else 'not packed':<12}{taken * 1e3:.2f} ms on this machine")
assert instance.check(outputs, inputs).ok
