"""4 rows by 8 columns: 1440 misses.

A step of k needs a column of 4 elements of A, which is 4 lines, and a row of 8 of B, 2 lines; with the 8 lines of the tile of C
these are 14 of the 16 lines. Along k, a line of A serves 4 steps. So a tile costs 4 * 24 / 4 lines of A, 2 * 24 of B and 8 of
C, 80 together, and there are 6 * 3 tiles.
"""

import tir
from explorer.simulate import run
from tir import te

N = 24
A, B = te.placeholder((N, N), name="A"), te.placeholder((N, N), name="B")
k = te.reduce_axis((0, N), name="k")
func = te.create_prim_func([A, B, te.compute((N, N), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")])


def misses(rows, columns):
    s = tir.Schedule(func)
    i_0, j_0, i_1, j_1 = s.tile("i", "j", rows, columns)
    s.reorder(i_0, j_0, "k", i_1, j_1)
    return run(s.func).misses


counts = {(rows, columns): misses(rows, columns) for rows in (2, 4, 8) for columns in (4, 8)}
for tile, count in sorted(counts.items(), key=lambda item: item[1]):
    print(tile, count)
assert min(counts, key=counts.get) == (4, 8)
assert counts[4, 8] == (4 * 24 // 4 + 2 * 24 + 8) * 6 * 3 == 1440
