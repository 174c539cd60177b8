"""All six orders, counted.

The worst has the row index i innermost: A[i, k] and C[i, j] both go down a column. With j, k outside, all 4096 accesses of A
and all 4096 of C miss, and B misses 256 times, once for each pair j, k, since every pass down the columns has emptied the
cache.
"""

from itertools import permutations

from explorer.simulate import run
from tir.script import parse

N = 16
PROGRAM = """
@T.prim_func
def f(A: T.Buffer((16, 16)), B: T.Buffer((16, 16)), C: T.Buffer((16, 16))):
    for {order} in T.grid(16, 16, 16):
        C[i, j] = C[i, j] + A[i, k] * B[k, j]
"""
misses = {order: run(parse(PROGRAM.format(order=", ".join(order)))).misses for order in permutations("ijk")}
for order, count in sorted(misses.items(), key=lambda item: item[1]):
    print(*order, count)
assert max(misses, key=misses.get) == ("j", "k", "i")
assert misses["j", "k", "i"] == 2 * N**3 + N**2
assert min(misses, key=misses.get) == ("i", "k", "j")
