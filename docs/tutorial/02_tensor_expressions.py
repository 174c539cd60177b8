# %% [markdown]
# # 2. How do you say what, and not how?
#
# A loop nest says two things at once: *what* each element of the result is, and *how* to go about it, in which order, with
# which instructions. Lesson 1 changed the how, and had to write the whole program again each time. A *tensor expression* states
# the what alone: one formula for the elements of each result. All the rest is left open, to be decided later.

# %%
import matplotlib.pyplot as plt
import numpy as np
from course import keep

import tir
from explorer.simulate import events
from tir import te

# %% [markdown]
# ## A formula
#
# In mathematics: C[i, j] = Σₖ A[i, k] · B[k, j]. In `te`, the module for tensor expressions, with sizes that are odd on
# purpose:

# %%
M, K, N = 7, 13, 5
A = te.placeholder((M, K), name="A")  # an input: a shape and a name
B = te.placeholder((K, N), name="B")
k = te.reduce_axis((0, K), name="k")  # the index of the sum, from 0 to K - 1
C = te.compute((M, N), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")

# %% [markdown]
# Read the last line as: C has shape 7 × 5, and its element at `i, j` is that sum. Nothing has been computed. The lambda was
# called once, with two names instead of numbers, and returned an expression: a small tree of loads, a product and a sum.
#
# `create_prim_func` makes a function of it, given the arrays in the order in which they will be passed. It has the simplest
# nest there is: one loop for each index.

# %%
func = te.create_prim_func([A, B, C])
print(func.outline())

# %% [markdown]
# `+=` with `from 0` means that the sum starts at 0. There are two ways to run a function. The *interpreter* runs it in plain
# Python: slow, but it stops at an index outside of an array, and at a read of what was never written. `tir.build` compiles it
# to machine code.

# %%
a, b = (np.random.default_rng(0).integers(-4, 5, shape).astype("float32") for shape in ((M, K), (K, N)))
c = np.empty((M, N), "float32")
tir.run(func, a, b, c)
assert (c == a @ b).all()

# %% tags=["native"]
kernel = tir.build(func, "llvm")
assert (kernel(a, b) == a @ b).all()

# %% [markdown]
# ## What a formula tells
#
# The formula says more than a number: it says *which* elements each result needs. We run the function with `events`, which
# writes down each element that is touched as its number in memory (row · columns + column), and keep what belongs to C[2, 3]:
# one row of A and one column of B. A compiler knows this without running anything, from the indices, and that is what it will
# reason with.

# %%
found, _ = events(func)
needed = {(array, place) for e in found if dict(e.loops)["i"] == 2 and dict(e.loops)["j"] == 3 for array, place, _ in e.accesses}
assert needed == {("A", 2 * K + k) for k in range(K)} | {("B", k * N + 3) for k in range(K)} | {("C", 2 * N + 3)}

figure, axes = plt.subplots(1, 3)
for ax, buffer in zip(axes, (A, B, C), strict=True):
    rows, columns = (int(str(extent)) for extent in buffer.shape)
    touched = [[(buffer.name, i * columns + j) in needed for j in range(columns)] for i in range(rows)]
    ax.pcolormesh(touched, cmap="Greens", vmin=0, vmax=1.3, edgecolors="#cccccc", rasterized=True)
    ax.set(title=f"{buffer.name}, {rows} × {columns}", aspect="equal", xticks=[], yticks=[])
    ax.invert_yaxis()
keep("02_tensor_expressions")

# %% [markdown]
# ## One what, many hows
#
# A *schedule* turns the simple nest into a better one. `tir.default_schedule` picks one for your processor by formulas; later
# lessons make them by hand and by search. Its outline looks quite different. Its results do not: `tir.equivalent` runs both on
# random numbers.

# %% tags=["machine"]
A, B = te.placeholder((64, 64), name="A"), te.placeholder((64, 64), name="B")
k = te.reduce_axis((0, 64), name="k")
func = te.create_prim_func([A, B, te.compute((64, 64), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")])
scheduled = tir.default_schedule(func, "llvm -num-cores 1")
print(func.outline(), scheduled.func.outline(), sep="\n")
same = tir.equivalent(func, scheduled)
print(same)
assert same

# %% [markdown]
# ## Several formulas
#
# A formula may read the result of another. Here is a layer of a neural network: a product, a bias for each column, and the
# larger of that and 0. What is neither input nor output, as P here, becomes a *temporary*, memory that the function takes for
# itself.

# %%
M, K, N = 7, 13, 5
X, W, bias = te.placeholder((M, K), name="X"), te.placeholder((K, N), name="W"), te.placeholder((N,), name="bias")
k = te.reduce_axis((0, K), name="k")
P = te.compute((M, N), lambda i, j: te.sum(X[i, k] * W[k, j], axis=k), name="P")
Y = te.compute((M, N), lambda i, j: te.maximum(P[i, j] + bias[j], 0.0), name="Y")
layer = te.create_prim_func([X, W, bias, Y])
print(layer.outline())

x, w, v = (np.random.default_rng(1).integers(-4, 5, shape).astype("float32") for shape in ((M, K), (K, N), (N,)))
y = np.empty((M, N), "float32")
tir.run(layer, x, w, v, y)
assert (y == np.maximum(x @ w + v, 0)).all()

# %% tags=["native"]
assert (tir.build(layer, "llvm")(x, w, v) == np.maximum(x @ w + v, 0)).all()

# %% [markdown]
# A sum must be a whole formula: what is done with its result comes in the next one. [Tensor expressions](../te.md) lists the
# other reducers, functions and conditions.
#
# ## Exercise
#
# Write *softmax* over the rows of a 7 × 13 matrix: from each row take away its largest element, take `te.exp`, and divide by
# the sum of the row. How many formulas does it take, and how many temporaries? Compare with numpy. [The
# solution](solutions/02_tensor_expressions.py)
