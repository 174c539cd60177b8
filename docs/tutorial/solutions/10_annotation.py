"""Count, in two lines of numpy: a population is a matrix."""

import numpy as np

import tir
from search import generate
from search.population.sample import sample
from tir import te

A, B = te.placeholder((64, 48), name="A"), te.placeholder((48, 96), name="B")
k = te.reduce_axis((0, 48), name="k")
C = te.compute((64, 96), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
target = tir.Target("llvm -mtriple x86_64-linux-gnu -mcpu znver4 -num-cores 2")
sketch = generate(te.create_prim_func([A, B, C]), target, space="ansor")[-1]
rows = sample(sketch, target, 10_000, np.random.default_rng(0))

inner = rows[:, [t.columns[-1] for t in sketch.tiles if not t.reduce]]
good = ((inner >= 4) & (inner <= 32)).all(axis=1)
print(f"{good.mean():.0%} of the rows")
assert inner.shape == (10_000, 2) and 0.05 < good.mean() < 0.6
