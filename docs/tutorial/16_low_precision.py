# %% [markdown]
# # 16. How do fewer bits become speed?
#
# A network computes well with numbers of 8 bits. They take a quarter of the memory of floats, and a register holds four times
# as many. But a product of two bytes has 16 bits, and a sum of them 32: where is the room for the results? Processors have
# instructions for this, and these want their operands in an order of their own. This lesson goes from a float to that order.

# %%
import matplotlib.pyplot as plt
import numpy as np
from course import keep

import tir
from tir import te

rng = np.random.default_rng(0)

# %% [markdown]
# ## A float as a byte
#
# Choose a **scale** and a **zero point**: the float x is then about `scale * (byte - zero)`. The error of a rounded number is
# half a step at most, and each bit less doubles the step. In decibels, ten times the logarithm of signal over noise, a bit is
# worth six.


# %%
def quantised(x, bits):
    """Numbers of some bits, without sign, and their scale and zero point."""
    scale = (x.max() - x.min()) / (2**bits - 1)
    zero = int(np.rint(-x.min() / scale))
    return np.clip(np.rint(x / scale) + zero, 0, 2**bits - 1).astype("uint8"), scale, zero


def decibels(exact, found):
    return 10 * np.log10(np.square(exact).sum() / np.square(exact - found).sum())


x = rng.uniform(-1, 3, (32, 64))
quality = {}
for bits in (8, 6, 4, 2):
    numbers, scale, zero = quantised(x, bits)
    quality[bits] = decibels(x, scale * (numbers.astype(float) - zero))
    print(f"{bits} bits: {quality[bits]:.0f} dB")
assert all(11 < quality[a] - quality[b] < 15 for a, b in ((8, 6), (6, 4), (4, 2)))  # two bits each; two have three steps alone

# %% [markdown]
# ## Sums of products of bytes are exact
#
# Weights `b` get signs, and no zero point, but a scale of their own for each column. Then a sum of products of floats is a
# sum of products of bytes, less the zero point times the sum of a column of weights. Those sums are known before the network
# runs. So all sums are integers, in 32 bits without any rounding; the scales come once, at the end.

# %%
w = rng.standard_normal((64, 48))
a, scale, zero = quantised(x, 8)
scales = np.abs(w).max(axis=0) / 127
b = np.rint(w / scales).astype("int8")

sums = a.astype("int32") @ b.astype("int32")
correction = zero * b.astype("int32").sum(axis=0)
found = scale * scales * (sums - correction)
print(f"{decibels(x @ w, found):.0f} dB")
assert decibels(x @ w, found) > 35

# %% [markdown]
# ## The instruction
#
# A register of 512 bits holds 16 sums of 32 bits, or 64 bytes. The instruction VPDPBUSD reads 64 unsigned and 64 signed
# bytes, multiplies them one by one, and adds the *four* products below each sum to it. Sixteen sums, four steps of each: so
# the room that the bytes save is used for more steps of the sum. An instruction for floats makes 16 products, this one 64.
#
# In `te` the formula says nothing of this; it casts both factors to the type of the sum. We take a processor with that
# instruction, whether yours has it or not.

# %%
A, B = te.placeholder((32, 64), "uint8", "A"), te.placeholder((64, 48), "int8", "B")
k = te.reduce_axis((0, 64), "k")
C = te.compute((32, 48), lambda i, j: te.sum(A[i, k].astype("int32") * B[k, j].astype("int32"), axis=k), name="C")
func = te.create_prim_func([A, B, C])

target = tir.Target("llvm -mtriple x86_64-linux-gnu -mcpu cascadelake -num-cores 1 -l1 32768 -l2 1048576 -l3 33554432")
schedule = tir.default_schedule(func, target)
print(schedule.func.outline())
assert "vpdpbusd" in tir.dump(schedule.func, target, after="llvm_ir")

# %% [markdown]
# The block that is multiplied is one instruction now: `tensorize` has compared its text with what the instruction computes,
# and refused it otherwise. The interpreter runs the program on any machine, and nothing is lost.

# %%
c = np.zeros((32, 48), "int32")
tir.run(schedule.func, a, b, c)
assert (c == sums).all()

# %% [markdown]
# ## The order that it wants
#
# Four steps of one column must lie side by side. In B they are a row apart: so B is copied, which is called packing; a line
# has 16 columns by four steps. A needs no copy: its steps lie side by side already, and one instruction reads four of them
# into all sixteen places.

# %%
packed = b.reshape(16, 4, 3, 16).transpose(2, 0, 3, 1)  # vectors of columns, groups of steps, columns, steps
line = packed[0, 0]
assert (line == b[:4, :16].T).all()  # a line of 64 bytes
lanes = sum(a[0, 4 * step : 4 * step + 4].astype("int32") @ packed[0, step].T for step in range(16))
assert (lanes == sums[0, :16]).all()  # the instruction, 16 times

figure, axes = plt.subplots(1, 2, figsize=(8, 3), width_ratios=(1, 1))
order = np.arange(4 * 16).reshape(4, 16)  # of an element by its place in B
for ax, grid, title, rows in (
    (axes[0], order, "B: four steps, a row each", "step"),
    (axes[1], order.T.reshape(4, 16), "packed: a line, in four parts", "part"),
):
    ax.imshow(grid // 16, cmap="viridis", vmax=4, aspect="auto")
    for (row, column), number in np.ndenumerate(grid):
        ax.text(column, row, f"{number % 16:x}", ha="center", va="center", fontsize=7, color="white")
    ax.set(title=title, ylabel=rows, xticks=[], yticks=range(4))
figure.text(0.5, 0.01, "a color is a step of the sum, a digit a column", ha="center", fontsize=8)
keep("16_low_precision")

# %% [markdown]
# ## What it costs not to have it
#
# Count the instructions of the sum, for one row of 16 columns over 64 steps. Floats take a register of 16 for each step.
# VPDPBUSD takes four steps at once. A processor without it converts bytes to 16 bits first, and adds pairs: half as many a
# register as bytes, and two instructions, because the pairs must be added to the sums.

# %%
instructions = {"float32": 64, "int8 by pairs": 2 * 64 // 2, "int8 by fours": 64 // 4}
print(instructions)
assert instructions["int8 by fours"] * 4 == instructions["float32"]

plain = tir.Target("llvm -mtriple x86_64-linux-gnu -mcpu skylake-avx512 -num-cores 1 -l1 32768 -l2 1048576 -l3 33554432")
text = tir.dump(tir.default_schedule(func, plain).func, plain, after="llvm_ir")
assert "pmaddw.d" in text and "vpdpbusd" not in text

# %% [markdown]
# So without the instruction bytes gain in memory, and less in arithmetic: that is why "int8 is slower than float" on some
# machines. Tile registers (AMX) go on in the same direction: a line of B is the same, and one instruction takes 16 lines.
# [Low precision](../low-precision.md) goes there, and to weights of 4 bits; [networks](../networks.md#quantising) has
# `tir.quantise`, which does all of this for a network and reports each layer's decibels.
#
# That was the course. You can now read what the compiler does, change it, and measure whether you were right.
#
# ## Exercise
#
# VPDPBUSD wants its first factor without sign, and the activations of your network have signs: they are from -128 to 127.
# Compute the same sums with `a` as uint8 all the same. What must be known of `b`? [The
# solution](solutions/16_low_precision.py)
