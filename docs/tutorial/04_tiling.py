# %% [markdown]
# # 4. How does tiling help the cache?
#
# In lesson 1 a better order of the loops cut the misses of a 16 × 16 × 16 product from 5184 to 1152. It can be cut further. The
# order i, k, j reads all of B once for each row of A. When a row of B is needed again, it has long left the cache. The remedy
# is to use what is in the cache as often as possible before going on: to work on one small *tile* after the other.
#
# Four primitives make tiles and undo them: `split`, `reorder`, `tile` and `fuse`. They are legal for every nest of spatial and
# reduction axes, and the block stays what it is (lesson 3).

# %%
import matplotlib.pyplot as plt
import numpy as np
from course import keep

import tir
from explorer.simulate import LINE, run
from tir import te


def product(M, K, N):
    A, B = te.placeholder((M, K), name="A"), te.placeholder((K, N), name="B")
    k = te.reduce_axis((0, K), name="k")
    return te.create_prim_func([A, B, te.compute((M, N), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")])


# %% [markdown]
# ## Split and reorder
#
# `split` makes two loops of one; `None` stands for the length that follows. That alone changes nothing: the iterations run as
# before. Then `reorder` puts the outer loops, which go from tile to tile, around the inner ones, which go through a tile.


# %%
def tiled(n, t):
    s = tir.Schedule(product(n, n, n))
    i_0, i_1 = s.split("i", [None, t])
    j_0, j_1 = s.split("j", [None, t])
    k_0, k_1 = s.split("k", [None, t])
    s.reorder(i_0, j_0, k_0, i_1, k_1, j_1)
    return s


print(tiled(24, 4).func.outline())

# %% [markdown]
# ## Which size?
#
# We count again, for 24 × 24 × 24, in the cache of 16 lines of 4 elements.

# %%
SIZES = (1, 2, 4, 8, 24)
misses = [run(tiled(24, t).func).misses for t in SIZES]
print(dict(zip(SIZES, misses, strict=True)))
assert misses == [17424, 5328, 1872, 4320, 3744]

plt.bar([str(t) for t in SIZES], misses, color=["#1a9850" if m == min(misses) else "#4393c3" for m in misses])
plt.xlabel("size of the tile")
plt.ylabel("misses, 24 × 24 × 24")
keep("04_tiling")

# %% [markdown]
# Tiles of 24 are no tiles: this is the order i, k, j of lesson 1, 3744 misses. Tiles of 4 have half as many. Why 1872?
#
# There are (24 / 4)³ = 216 tiles. Each works on 4 × 4 elements of A, of B and of C, 4 lines each. These 12 lines fit into the
# cache, so each line is brought once a tile. C even stays while `k_0` runs. So A and B cost 216 · (4 + 4) = 1728 and C costs 36
# · 4 = 144.
#
# In general a tile of size t brings 2 · t² / 4 lines and there are (24 / t)³ of them. So twice the size means half the misses,
# **as long as the tile fits**. Tiles of 8 do not: their part of B alone takes 16 lines, the whole cache. Tiles below 4 waste a
# part of each line. The best tile is the largest that fits.

# %%
assert 1872 == (24 // 4) ** 3 * 2 * (4 * 4 // LINE) + (24 // 4) ** 2 * (4 * 4 // LINE)

# %% [markdown]
# Real processors have two or three caches, one larger and slower than the other. So good programs have tiles of tiles: small
# ones for the small cache, and around them larger ones for the next. `split` takes several factors for that, as in
# `s.split("i", [None, 4, 16])`.
#
# ## Lengths that do not divide
#
# 13 is not a multiple of 4. `split` then adds a condition, a *predicate*, which leaves out what is too much; the code generator
# turns most such conditions into shorter loops. `tile` is `split` twice and `reorder`, for two loops.

# %%
s = tir.Schedule(product(13, 7, 13))
s.tile("i", "j", 4, 4)
print(s.func.outline())
assert "where i_0 * 4 + i_1 < 13 and j_0 * 4 + j_1 < 13" in s.func.outline()

# %% [markdown]
# ## Fuse
#
# `fuse` makes one loop of two. Its iterations are those of both, in the same order; where the tiles do not need two indices,
# one long loop is easier to share among threads, which the next lesson does.

# %%
tiles = s.fuse("i_0", "j_0")
print(s.func.outline())
assert s.get_loops("C")[0] == tiles == "i_0_j_0_fused"
assert tir.equivalent(product(13, 7, 13), s)

# %% [markdown]
# ## On your machine
#
# Here the rows of B are vectors, as in lesson 1, and only `j` and `k` are tiled: the part of B that stays in the cache is `k_1`
# × `j_1`. Change the sizes, and find better ones; the best differ from processor to processor.

# %% tags=["machine"]
M, K, N = 256, 1024, 1024
a, b = (np.random.default_rng(0).uniform(-1, 1, shape).astype("float32") for shape in ((M, K), (K, N)))
for k_tile, j_tile in ((1024, 1024), (256, 256), (64, 256), (8, 64)):
    s = tir.Schedule(product(M, K, N))
    j_0, j_1 = s.split("j", [None, j_tile])
    k_0, k_1 = s.split("k", [None, k_tile])
    s.reorder(j_0, k_0, "i", k_1, j_1)
    s.decompose_reduction("C", k_0)  # sets C to 0 in a nest of its own, before k_0
    s.vectorize(j_1)
    kernel = tir.build(s.func, "llvm -num-cores 1")
    c = kernel(a, b)
    seconds = kernel.time(a, b, c, seconds=0.05).median
    print(f"{k_tile:>5} × {j_tile:<5}{seconds * 1e3:>8.2f} ms{2 * M * K * N / seconds / 1e9:>8.1f} GFLOP/s")

# %% [markdown]
# [Primitives](../primitives/loops.md#split) has each of them, its rule, and a program before and after it. [The
# explorer](../explorer.md) steps through a schedule of yours, and shows hits and misses as they happen:
# `s.explore("page.html")`.
#
# ## Exercise
#
# A tile need not be square, and `k` need not be split. Take the order `i_0, j_0, k, i_1, j_1`, and find the numbers of rows and
# columns with the fewest misses for 24 × 24 × 24. Explain the number. [The solution](solutions/04_tiling.py)
