# %% [markdown]
# # 9. Which structures are worth trying?
#
# So far you chose every step. Two kinds of choices were in them. *Structure*: which loops there are, in which order, where a
# stage is computed. And *numbers*: how large a tile is, how far a loop is unrolled. A search treats them apart. A schedule
# whose structure is fixed and whose numbers are open is a **sketch**. This lesson is about sketches; the next one fills in
# numbers.
#
# Sketches are made by **rules**. A rule looks at one block, and says whether it applies and what it makes of the schedule. The
# idea is from Ansor (OSDI 2020).

# %%
import matplotlib.pyplot as plt
from course import keep

import tir
from search import generate
from search.space.generation import named
from search.space.show import sketch_text
from tir import te

A, B = te.placeholder((64, 48), name="A"), te.placeholder((48, 96), name="B")
k = te.reduce_axis((0, 48), name="k")
C = te.compute((64, 96), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
func = te.create_prim_func([A, B, te.compute((64, 96), lambda i, j: te.maximum(C[i, j], 0.0), name="D")], name="relu")
target = tir.Target("llvm -mtriple x86_64-linux-gnu -mcpu znver4 -num-cores 2")

# %% [markdown]
# ## The derivation
#
# The program has two blocks: a product C, and its relu D. Rules are tried block by block, from the last to the first: what
# consumes a value is decided before what produces it, since the producer may be computed inside its consumer. Here are the
# rules of a small space, in the order in which they are tried.

# %%
print([type(rule).__name__ for rule in named("limited").rules])
sketches = generate(func, target, space="limited")
for sketch in sketches:
    print(sketch)
assert [sketch.rules for sketch in sketches] == [
    ("D: skip", "C: tiling with fusion at level 1"),
    ("D: skip", "C: multi-level tiling"),
]

# %% [markdown]
# - D reuses no data, each element of C is read once: no rule that tiles applies, and `Skip` leaves D where it is.
# - C reuses data: each element of A serves for 96 results. So it is worth tiles. Two rules apply. `TilingWithFusion` also
#   moves D into the loops over tiles of C: a tile is clipped as soon as it is done, while it is in the cache.
#   `MultiLevelTiling` tiles C alone. Neither is better for certain, so both become sketches.
#
# `Inline` did not apply to C: computing a sum of 48 terms again for each use would be dear. To D it did not, since D is the
# output.
#
# ## A sketch is a program with holes
#
# The first sketch, as a script. `t0`, `t1`, ... are its open numbers; the comments say what they are.

# %%
text = sketch_text(sketches[0])
print(text)
assert "for i_0 in T.parallel(ceildiv(64, t0)):" in text and "for j_1_1 in T.vectorized(t1):" in text

# %% [markdown]
# Fill the holes, and you have a schedule: a trace of ordinary primitives, which checks every step as in the lessons before. A
# rule can propose what is slow; it cannot make a wrong program.

# %%
row = [8, 16, 64, 0]  # t0, t1, t2, t3
s = tir.replay(func, sketches[0].trace(row))
print(s.func.outline())
assert tir.equivalent(func, s)

# %% [markdown]
# ## Larger spaces
#
# The space of the Ansor paper has more levels of tiles and more places for D; the `full` one of this project adds templates,
# such as packing, and sizes that need not divide.

# %% tags=["machine"]
counts = {}
for space in ("limited", "ansor", "full"):
    for sketch in generate(func, target, space=space):
        counts[f"{space}\n{sketch.name.removeprefix('sketch ')}"] = sketch.columns
        print(space, sketch)
assert [n for name, n in counts.items() if "limited" in name] == [4, 5]
assert [n for name, n in counts.items() if "ansor" in name] == [9, 9, 10]

plt.bar(list(counts), list(counts.values()), color=["#4393c3" if "full" not in name else "#1a9850" for name in counts])
plt.ylabel("open numbers")
plt.title("the sketches of three spaces")
keep("09_sketches")

# %% [markdown]
# A handful of structures, each with a handful of open numbers. That is few enough to list, and, as the next lesson counts, far
# too many to try.
#
# ## Exercise
#
# The program that only computes C, without D: which sketches does it get in the space `limited`, and which rule is new? Say
# first what cannot apply any more. [The solution](solutions/09_sketches.py)
