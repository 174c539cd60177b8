"""Softmax takes four formulas, since each of the two reductions is one; three of their results are temporaries."""

import numpy as np

import tir
from tir import te

M, N = 7, 13
X = te.placeholder((M, N), name="X")
j, k = te.reduce_axis((0, N), name="j"), te.reduce_axis((0, N), name="k")
largest = te.compute((M,), lambda i: te.max(X[i, j], axis=j), name="largest")
power = te.compute((M, N), lambda i, c: te.exp(X[i, c] - largest[i]), name="power")
total = te.compute((M,), lambda i: te.sum(power[i, k], axis=k), name="total")
Y = te.compute((M, N), lambda i, c: power[i, c] / total[i], name="Y")
func = te.create_prim_func([X, Y])
print(func.outline())

blocks = tir.Schedule(func).get_child_blocks("root")
assert blocks == ["largest", "power", "total", "Y"]

x = np.random.default_rng(0).standard_normal((M, N)).astype("float32")
y = tir.build(func, "llvm")(x)
expected = np.exp(x.astype("float64") - x.max(axis=1, keepdims=True))
expected /= expected.sum(axis=1, keepdims=True)
# The sum rounds N times, exp, the difference before it and the quotient a few times; each rounding is at most half of eps.
assert (abs(y - expected) <= (N + 8 + abs(x).max()) * np.finfo("float32").eps * expected).all()
