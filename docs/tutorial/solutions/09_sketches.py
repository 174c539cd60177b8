"""Without a consumer there is nothing to fuse: `TilingWithFusion` cannot apply. Instead `CacheWrite` does: it makes a consumer.

It has C computed into a buffer of its own, which is then copied to the output tile by tile; so the sums stay in a small array.
"""

import tir
from search import generate
from tir import te

A, B = te.placeholder((64, 48), name="A"), te.placeholder((48, 96), name="B")
k = te.reduce_axis((0, 48), name="k")
C = te.compute((64, 96), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
target = tir.Target("llvm -mtriple x86_64-linux-gnu -mcpu znver4 -num-cores 2")
sketches = generate(te.create_prim_func([A, B, C]), target, space="limited")
for sketch in sketches:
    print(*sketch.rules, sep=", ")
rules = {rule for sketch in sketches for rule in sketch.rules}
assert any("cache write" in rule for rule in rules) and any("multi-level tiling" in rule for rule in rules)
