"""Signed activations for an instruction that wants them without sign.

Add 128 to each: then they lie between 0 and 255. The sum over k of (a + 128) b is the sum of a b, plus 128 times the sum of b. So
the sums of the columns of b must be known, as for a zero point: 128 is one. `make_unsigned` is the primitive that does it.
"""

import numpy as np

rng = np.random.default_rng(0)
a, b = rng.integers(-128, 128, (32, 64)).astype("int8"), rng.integers(-128, 128, (64, 48)).astype("int8")

unsigned = (a.astype("int32") + 128).astype("uint8")
sums = unsigned.astype("int32") @ b.astype("int32") - 128 * b.astype("int32").sum(axis=0)
assert (sums == a.astype("int32") @ b.astype("int32")).all()
