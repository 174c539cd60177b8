# %% [markdown]
# # 6. Where should a value live?
#
# A program of several formulas makes values and uses them later. In between they must live somewhere: in a large temporary, in
# a small one, or nowhere, if they are made again each time. Each choice costs something: memory, misses, or work done twice.
# This lesson counts all three.

# %%
import matplotlib.pyplot as plt
from course import keep

import tir
from explorer.simulate import events, run
from tir import te
from tir.script import parse

# %% [markdown]
# ## A producer and a consumer
#
# `Y` adds three neighbours in a column of `E`, and `E` is the exponential of `X`. E is the *producer*, Y the *consumer*.

# %%
N = 32
X = te.placeholder((N + 2, N), name="X")
E = te.compute((N + 2, N), lambda i, j: te.exp(X[i, j]), name="E")
Y = te.compute((N, N), lambda i, j: E[i, j] + E[i + 1, j] + E[i + 2, j], name="Y")
func = te.create_prim_func([X, Y])
print(func.outline())

# %% [markdown]
# Here are four places for E.
#
# - **A nest of its own**, as above. Each exponential is taken once. But E takes as much memory as X, and is long out of the
#   cache when Y needs it.
# - **Inline**: `compute_inline` puts the formula of E into that of Y. No memory at all, but each exponential is taken three
#   times.
# - **At a loop of the consumer**: `compute_at` moves E into that loop, where it computes just the part that one iteration needs
#   (its region, lesson 3). For a row of Y that is three rows of E.
# - **At a tile**: tile Y first, then compute E at the loop over tiles.


# %%
def own():
    return tir.Schedule(func)


def inline():
    s = tir.Schedule(func)
    s.compute_inline("E")
    return s


def at_row():
    s = tir.Schedule(func)
    i, _ = s.get_loops("Y")
    s.compute_at("E", i)
    return s


def at_tile():
    s = tir.Schedule(func)
    _, tile, _, _ = s.tile(*s.get_loops("Y"), 4, 4)
    s.compute_at("E", tile)
    return s


print(at_tile().func.outline())

# %% [markdown]
# `E` is still declared with its whole shape. Since one tile needs only 6 × 4 elements at a time, a pass of the code generator
# makes it that small: `compact_buffers`. We count after this pass: how many exponentials, how many elements E takes, how many
# misses.


# %%
def compacted(s):
    return parse(tir.dump(s.func, "llvm -num-cores 1", after="compact_buffers"))


counts = {}
for place in (own, inline, at_row, at_tile):
    program = compacted(place())
    found, buffers = events(program)
    taken = sum(event.accesses[-1][0] == "E" for event in found) or 3 * N * N  # inline: three in each of the elements of Y
    rows, columns = dict(buffers).get("E", (0, 0))
    misses = run(program).misses
    counts[place.__name__] = taken, rows * columns, misses
    print(f"{place.__name__:<8} exponentials {taken:>5}   elements of E {rows * columns:>5}   misses {misses:>5}")

# %% [markdown]
# - *own* takes 34 · 32 = 1088 exponentials, the least that is possible, and has 1088 elements of memory.
# - *inline* has none, and takes 3 · 32 · 32 = 3072.
# - *at_row* also takes 3072: each row of E is made for three rows of Y. And three rows of 32 are more than our cache of 64
#   elements holds, so it has the most misses. Here it is the worst of all.
# - *at_tile* makes 6 rows of E for 4 rows of Y: 1536, half as many. Its 24 elements stay in the cache, so it has the fewest
#   misses.
#
# No place is the best for all programs. If E were an addition instead of an exponential, taking it three times would cost
# little, and inline would do well. That is why the place is a choice of the schedule, and why one searches.

# %%
assert counts == {"own": (1088, 1088, 1568), "inline": (3072, 0, 1024), "at_row": (3072, 96, 2560), "at_tile": (1536, 24, 646)}
assert all(tir.equivalent(func, place()) for place in (inline, at_row, at_tile))

figure, axes = plt.subplots(1, 3, figsize=(10, 3.2))
for ax, what, numbers in zip(axes, ("exponentials", "elements of E", "misses"), zip(*counts.values(), strict=True), strict=True):
    ax.bar(list(counts), numbers, color=["#4393c3", "#f4a582", "#b2182b", "#1a9850"])
    ax.set_title(what)
keep("06_placement")

# %% [markdown]
# ## Copies
#
# A value that is there already may be worth copying to a better place. Recall lesson 1: a product that goes down a column of B
# misses each time. `cache_read` makes a copy of an array that a block reads, and `compute_at` says when: here the column `j`,
# once for all rows `i`. The copy is contiguous: 16 elements in 4 lines. Copying into the order of reading is called *packing*.

# %%
A, B = te.placeholder((16, 16), name="A"), te.placeholder((16, 16), name="B")
k = te.reduce_axis((0, 16), name="k")
product = te.create_prim_func([A, B, te.compute((16, 16), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")])
s = tir.Schedule(product)
s.reorder("j", "i", "k")
before = run(compacted(s)).misses
copy = s.cache_read("C", 1, "global")  # of what the block C reads as number 1, counted from 0: B
s.compute_at(copy, "j")
after = run(compacted(s)).misses
print(s.func.outline(), f"misses: {before} before, {after} after", sep="\n")
assert (before, after) == (5376, 1571)

# %% [markdown]
# `cache_write` does the same for what a block writes. The sum then runs in one element that the code generator keeps in a
# register; C is written once for each element, instead of once for each addition. `reverse_compute_at` moves a consumer, here
# the copy, to a loop of its producer.


# %%
def stores(s, array):
    return sum(write and name == array for event in events(compacted(s))[0] for name, _, write in event.accesses)


before = stores(s, "C")
copy = s.cache_write("C", 0, "local")
s.reverse_compute_at(copy, "i")
after = stores(s, "C")
print(s.func.outline(), f"stores to C: {before} before, {after} after", sep="\n")
assert (before, after) == (16 * 16 * (1 + 16), 16 * 16) and tir.equivalent(product, s)

# %% [markdown]
# ## Partial sums
#
# One sum over a long vector cannot use lanes, since all iterations add to one element (lesson 5). `rfactor` gives each of 8
# lanes a partial sum of its own, an array of 8 elements, and adds these up at the end. Now the lanes are independent.

# %%
X = te.placeholder((1024,), name="X")
k = te.reduce_axis((0, 1024), name="k")
total = te.create_prim_func([X, te.compute((1,), lambda i: te.sum(X[k], axis=k), name="S")])
s = tir.Schedule(total)
_, lane = s.split("k", [None, 8])
s.rfactor(lane)
s.vectorize(lane)
print(s.func.outline(), f"steps: {run(total).steps} before, {run(s.func).steps} after", sep="\n")
assert (run(total).steps, run(s.func).steps) == (1025, 138)

# %% [markdown]
# The sum is taken in another order, so its rounding differs. `rfactor` may do that because the axis is a *reduce* axis: its
# author has said that the order does not matter.
#
# [Primitives](../primitives.md) has more places: `rolling_buffer` keeps rows that the next iteration needs again,
# `pack` copies an operand tile by tile.
#
# ## Exercise
#
# Move E to a loop so that it takes at most 1200 exponentials, at most 600 elements of memory, and at most 1200 misses. Which
# loop of which tiles? [The solution](solutions/06_placement.py)
