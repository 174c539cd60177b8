# %% [markdown]
# # 3. How does the compiler know what it may change?
#
# A schedule rewrites loops. To do so safely, the compiler must know which iterations depend on each other. It could find out
# from the bare loops, but that is hard, and sometimes impossible. So its programs, the *intermediate representation* or *IR*,
# carry the answer with them: in *blocks*.

# %%
import matplotlib.pyplot as plt
from course import keep

import tir
from explorer.simulate import events
from tir import te
from tir.script import tir as T
from tir.traverse import blocks


def product(M, K, N):
    A, B = te.placeholder((M, K), name="A"), te.placeholder((K, N), name="B")
    k = te.reduce_axis((0, K), name="k")
    return te.create_prim_func([A, B, te.compute((M, N), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")])


func = product(12, 8, 12)
print(func.script())

# %% [markdown]
# This is the product of lesson 2 as a *script*: the IR printed as Python. Parsed again, it is the same program. It has two
# halves.
#
# - **The loops** `i`, `j`, `k` say *when* the block runs. They are what a schedule changes.
# - **The block** `C` says *what* it does: one addition to one element. Inside it, only its own *axes* occur: `v_i`, `v_j`,
#   `v_k`. The line `T.axis.remap("SSR", [i, j, k])` ties the two together. It *binds* each axis to a loop, and gives each axis
#   a kind.
#
# `S` is *spatial*: different values of the axis write different elements, so their order does not matter, and they may even run
# at the same time. `R` is *reduce*: different values add to the same element; their order does not matter either, up to
# rounding, but they must not run at the same time. `T.init` says what an element starts from, before the first addition.
# (`tir.noalias` says that the arrays do not overlap, and `root` stands for the whole function.)

# %%
(block,) = blocks(func)
print({axis.var.name: axis.axis.name for axis in block.iters})
assert [axis.axis.name for axis in block.iters] == ["SPATIAL", "SPATIAL", "REDUCE"]

# %% [markdown]
# ## What a rewrite changes
#
# A `Schedule` holds a function, and its methods, the *primitives*, rewrite it. Loops go by their names. `split` divides a loop
# of 12 iterations in two, 3 outside and 4 inside. `s.diff()` shows what changed.

# %%
s = tir.Schedule(func)
i_0, i_1 = s.split("i", [None, 4])
print(s.diff())
(after,) = blocks(s.func)
assert after.body == block.body and str(after.iters[0].binding) == "i_0 * 4 + i_1"

# %% [markdown]
# Only the loop and one binding have changed: `v_i` is `i_0 * 4 + i_1` now. The statement in the block is the same, character by
# character. So a hundred of such steps cannot lose the formula. They may only run it in another order, and for that the
# kinds of the axes say what is allowed.
#
# We split `j` as well, and reorder: the two outer loops go over *tiles* of 4 × 4 elements.

# %%
j_0, j_1 = s.split("j", [None, 4])
s.reorder(i_0, j_0, i_1, j_1, "k")
print(s.func.outline())

# %% [markdown]
# ## Regions
#
# From indices and bindings follows which part of each array a piece of the program touches: its *regions*, a range in each
# dimension. Inside the loop `j_0`, with `i_0 = 1` and `j_0 = 2`, the block writes C[4:8, 8:12], and reads A[4:8, 0:8] and
# B[0:8, 8:12]. The compiler computes them without running the program. We run it, to see that it is so.

# %%
regions = {}
for event in events(s.func)[0]:
    at = dict(event.loops)
    if (at["i_0"], at["j_0"]) == (1, 2):
        for array, place, _ in event.accesses:
            columns = 8 if array == "A" else 12
            regions.setdefault(array, set()).add(divmod(place, columns))


def box(rows, columns):
    return {(i, j) for i in rows for j in columns}


assert regions["C"] == box(range(4, 8), range(8, 12))
assert regions["A"] == box(range(4, 8), range(8)) and regions["B"] == box(range(8), range(8, 12))

figure, axes = plt.subplots(1, 3)
for ax, (array, shape) in zip(axes, {"A": (12, 8), "B": (8, 12), "C": (12, 12)}.items(), strict=True):
    touched = [[(i, j) in regions[array] for j in range(shape[1])] for i in range(shape[0])]
    ax.pcolormesh(touched, cmap="Greens", vmin=0, vmax=1.3, edgecolors="#cccccc", rasterized=True)
    ax.set(title=f"{array}: tile i_0 = 1, j_0 = 2", aspect="equal")
    ax.invert_yaxis()
keep("03_blocks")

# %% [markdown]
# Regions answer the questions of later lessons: how much memory does a tile need? Which part of a temporary must be ready
# before this loop?
#
# ## Whom to trust
#
# Anyone can write `S` where it is not true. `tir.verify` checks it. Here all iterations of the axis write the same element, so
# it is not spatial, and the report names two of them. Such a concrete example is called a *witness*.


# %%
@T.prim_func
def total(X: T.Buffer((13,)), Y: T.Buffer((1,))):
    for i in range(13):
        with T.block("Y"):
            v_i = T.axis.spatial(13, i)
            Y[0] = Y[0] + X[v_i]


report = tir.verify(total)
print(report)
assert not report.ok and tir.verify(func).ok and tir.verify(s.func).ok

# %% [markdown]
# [The IR](../ir.md) has the other parts: predicates, temporaries, values; [the script dialect](../script.md) how to write them.
#
# ## Exercise
#
# Mend `total`, so that it adds up X, `verify` accepts it, and the sum does not depend on what Y held before. Then split its
# loop by 4, which does not divide 13. What keeps the program from reading X[13]? [The solution](solutions/03_blocks.py)
