# %% [markdown]
# # 10. How large is the space?
#
# A sketch has holes; a **row** of integers fills them. Each row is one candidate. To fill in the holes is called
# **annotation**: tile sizes, which loops run in parallel, how far loops are unrolled. This lesson counts the rows of a sketch,
# and draws some of them at random.

# %%
from math import prod

import matplotlib.pyplot as plt
import numpy as np
from course import keep

import tir
from search import generate
from search.population.sample import legalize, sample
from tir import te

target = tir.Target("llvm -mtriple x86_64-linux-gnu -mcpu znver4 -num-cores 2")


def product(M, K, N):
    A, B = te.placeholder((M, K), name="A"), te.placeholder((K, N), name="B")
    k = te.reduce_axis((0, K), name="k")
    return te.create_prim_func([A, B, te.compute((M, N), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")])


# %% [markdown]
# ## Counting
#
# The structure of Ansor's sketch for a product is called SSRSRS: two levels of tiles of the spatial axes (S), a level of the
# reduction (R), and so on. A spatial axis is cut in four, the reduction in two. If sizes must divide the extent, an axis of
# length n that is cut in m levels can be cut in as many ways as n is a product of m numbers, order included.


# %%
def ways(n, levels):
    """In how many ways n is a product of so many numbers; the first follows from the others."""
    if levels == 1:
        return 1
    return sum(ways(n // d, levels - 1) for d in range(1, n + 1) if n % d == 0)


assert ways(8, 2) == 4  # 8·1, 4·2, 2·4, 1·8
for n in (64, 96, 109, 1024):
    print(f"{n:>5}: {ways(n, 2):>3} ways in two levels, {ways(n, 4):>4} in four")
assert (ways(64, 4), ways(109, 4)) == (84, 4)

# %% [markdown]
# 64 can be cut in many ways, and 109, a prime, in hardly any. Now the whole sketch: the ways of its axes, times the options of
# its other choices.


# %%
def rows_of(sketch):
    tiles = prod(ways(t.extent, len(t.columns) + 1) for t in sketch.tiles)
    return tiles * prod(len(c.options) for c in sketch.choices)


small = generate(product(64, 48, 96), target, space="ansor")[-1]
for t in small.tiles:
    print(f"{t.axis}, {t.extent} long: {len(t.columns)} open sizes, {ways(t.extent, len(t.columns) + 1)} ways")
for c in small.choices:
    print(f"{c.name}: {len(c.options)} options")
print(f"{rows_of(small):,} rows")
assert rows_of(small) == 84 * 224 * 10 * 4 * 4 == 3_010_560
assert [ways(t.extent, len(t.columns) + 1) for t in small.tiles] == [84, 224, 10]

# %% [markdown]
# Three million rows, for one sketch of one small product (a few less, as the innermost size may be at most 64). If building,
# checking and timing one takes half a second, trying all takes more than two weeks. And other sizes?

# %%
SHAPES = ((64, 48, 96), (128, 128, 128), (512, 512, 512), (1024, 1024, 1024))
counted = [rows_of(generate(product(*shape), target, space="ansor")[-1]) for shape in SHAPES]
plt.bar(["×".join(map(str, shape)) for shape in SHAPES], counted, color="#4393c3")
plt.yscale("log")
plt.ylabel("rows of one sketch")
keep("10_annotation")
print(counted)
assert counted[1] < counted[0] < counted[2] < counted[3]

# %% [markdown]
# A larger product has more rows, but the prime factors count more than the size: 96 = 2·2·2·2·2·3 can be cut in 224 ways, 128,
# which is 2 seven times, in 120.

# %% [markdown]
# ## Random rows
#
# `sample` draws rows. A population is a matrix: a row for each candidate, a column for each open number, so that numpy can
# work on thousands at once.

# %%
rng = np.random.default_rng(0)
rows = sample(small, target, 1000, rng)
print(rows.shape, rows[0])
assert rows.shape == (1000, small.columns)
for t in small.tiles:
    assert (t.extent % rows[:, list(t.columns)].prod(axis=1) == 0).all()  # sizes divide

# %% [markdown]
# Every row that is drawn is legal: no candidate is thrown away. `legalize` sees to it, and brings rows that are the same
# program to the same numbers. So rows can be changed freely, as lesson 12 does, and then be made legal again.

# %%
assert (legalize(small, target, rows) == rows).all()
first = tir.replay(product(64, 48, 96), small.trace(rows[0]))
print(small.trace(rows[0]))
assert tir.equivalent(product(64, 48, 96), first)

# %% [markdown]
# ## Sizes that do not divide
#
# For 109 × 109 × 109 sizes that divide leave next to nothing. The space `full` lets sizes be any integers. A last tile that is
# not full gets a guard (lesson 4), and `legalize` evens sizes out: 109 in tiles of 30 would leave a rest of 19, so they become
# tiles of 28, and the rest is 25.

# %% tags=["machine"]
primes = product(109, 109, 109)
few = generate(primes, target, space="ansor")[-1]
many = generate(primes, target, space="full")[-1]
drawn = {name: sample(sketch, target, 1000, rng) for name, sketch in (("ansor", few), ("full", many))}
different = {name: len(np.unique(rows[:, : len(few.tiles) * 3 - 2], axis=0)) for name, rows in drawn.items()}
print(different)
assert different["ansor"] < different["full"]

# %% [markdown]
# ## Exercise
#
# How unlikely is a good row? Say that a candidate is good if both the tile of rows and that of columns in registers (the last
# sizes of i and j) are between 4 and 32. Estimate the share of good ones among rows that are drawn, from 10,000 of them. [The
# solution](solutions/10_annotation.py)
