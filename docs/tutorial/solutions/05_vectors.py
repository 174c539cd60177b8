"""6 rows by 4 vectors: 10 loads for 24 multiply-adds.

A tile of MR rows by V vectors keeps MR * V sums, V vectors of B and one element of A in registers: MR * V + V + 1 of them. It
loads V vectors and MR elements for MR * V multiply-adds. Of the tiles that fit, 6 × 4 has the fewest for each; more registers
spill.
"""

import tir
from tir import te

LANES, REGISTERS = 16, 32
TARGET = "llvm -mtriple x86_64-linux-gnu -mcpu x86-64-v4 -num-cores 1"


def report(MR, V):
    A, B = te.placeholder((4 * MR, 64), name="A"), te.placeholder((64, 64 * V), name="B")
    k = te.reduce_axis((0, 64), name="k")
    C = te.compute((4 * MR, 64 * V), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    s = tir.Schedule(te.create_prim_func([A, B, C]))
    i_0, i_1 = s.split("i", [None, MR])
    j_0, j_1 = s.split("j", [None, V * LANES])
    s.reorder(i_0, j_0, "k", i_1, j_1)
    s.unroll(i_1)
    s.vectorize(j_1)
    return tir.build(s.func, TARGET).report().loop("k")


loads, spilled = {}, set()
for MR, V in ((4, 2), (8, 2), (14, 2), (8, 3), (9, 3), (10, 3), (6, 4), (7, 4), (8, 4)):
    loop = report(MR, V)
    print(f"{MR} × {V * LANES}: {MR * V + V + 1} registers, {(MR + V) / (MR * V):.3f} loads a multiply-add, {loop.spills} spills")
    assert loop.fma == MR * V
    if loop.spills:
        spilled.add((MR, V))
    else:
        loads[MR, V] = (MR + V) / (MR * V)
assert spilled == {tile for tile in ((10, 3), (7, 4), (8, 4)) if tile[0] * tile[1] + tile[1] + 1 > REGISTERS}
assert min(loads, key=loads.get) == (6, 4)
print(f"best: {min(loads, key=loads.get)}")
