"""The axis is a reduction, and the sum starts in `T.init`. After the split a predicate, `T.where`, leaves out iterations 13 to
15.
"""

import numpy as np

import tir
from tir.script import tir as T
from tir.traverse import blocks


@T.prim_func
def total(X: T.Buffer((13,)), Y: T.Buffer((1,))):
    for i in range(13):
        with T.block("Y"):
            v_i = T.axis.reduce(13, i)
            with T.init():
                Y[0] = 0.0
            Y[0] = Y[0] + X[v_i]


assert tir.verify(total).ok
s = tir.Schedule(total)
s.split("i", [None, 4])
print(s.diff())
(block,) = blocks(s.func)
assert str(block.predicate) == "i_0 * 4 + i_1 < 13" and tir.verify(s.func).ok

x, y = np.arange(13, dtype="float32"), np.full(1, 99, "float32")
tir.run(s.func, x, y)
assert y[0] == x.sum() == 78
