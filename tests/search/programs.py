"""Small functions of odd extents that the tests of the search share."""

from __future__ import annotations

from tir import te
from tir.ir import PrimFunc


def matmul(m: int = 7, k: int = 13, n: int = 109, dtype: str = "float32") -> PrimFunc:
    """C = A · B."""
    A, B = te.placeholder((m, k), dtype, name="A"), te.placeholder((k, n), dtype, name="B")
    r = te.reduce_axis((0, k), name="k")
    C = te.compute((m, n), lambda i, j: te.sum(A[i, r] * B[r, j], axis=r), name="C")
    return te.create_prim_func([A, B, C])


def batched_matmul() -> PrimFunc:
    """C[b] = A[b] · B[b]."""
    A, B = te.placeholder((3, 7, 13), name="A"), te.placeholder((3, 13, 40), name="B")
    k = te.reduce_axis((0, 13), name="k")
    C = te.compute((3, 7, 40), lambda b, i, j: te.sum(A[b, i, k] * B[b, k, j], axis=k), name="C")
    return te.create_prim_func([A, B, C])


def transposed_matmul() -> PrimFunc:
    """C = Aᵀ · B."""
    A, B = te.placeholder((109, 13), name="A"), te.placeholder((109, 40), name="B")
    k = te.reduce_axis((0, 109), name="k")
    C = te.compute((13, 40), lambda i, j: te.sum(A[k, i] * B[k, j], axis=k), name="C")
    return te.create_prim_func([A, B, C])


def widening_matmul(narrow: str, wide: str) -> PrimFunc:
    """C = A · B with elements of `narrow`, accumulated in `wide`."""
    A, B = te.placeholder((13, 40), narrow, name="A"), te.placeholder((40, 37), narrow, name="B")
    k = te.reduce_axis((0, 40), name="k")
    C = te.compute((13, 37), lambda i, j: te.sum(A[i, k].astype(wide) * B[k, j].astype(wide), axis=k), name="C")
    return te.create_prim_func([A, B, C])


def dilated_conv() -> PrimFunc:
    """A convolution with stride 2 and dilation 2."""
    X, K = te.placeholder((1, 3, 17, 19), name="X"), te.placeholder((5, 3, 3, 3), name="K")
    c, h, w = te.reduce_axis((0, 3), "c"), te.reduce_axis((0, 3), "h"), te.reduce_axis((0, 3), "w")

    def value(n, o, y, x):
        return te.sum(X[n, c, 2 * y + h * 2, 2 * x + w * 2] * K[o, c, h, w], axis=[c, h, w])

    return te.create_prim_func([X, K, te.compute((1, 5, 7, 8), value, name="Y")])


def argmax() -> PrimFunc:
    """The index and the value of the largest element of each row."""
    X = te.placeholder((7, 109), name="X")
    k = te.reduce_axis((0, 109), name="k")

    def larger(a, b):
        return te.select(a[1] >= b[1], a[0], b[0]), te.select(a[1] >= b[1], a[1], b[1])

    reducer = te.comm_reducer(larger, lambda i, v: (te.const(-1, i), te.const(-1e30, v)), name="argmax")
    index, value = te.compute((7,), lambda i: reducer((k, X[i, k]), axis=k), name="M")
    return te.create_prim_func([X, index, value])


def largest_magnitude() -> PrimFunc:
    """A reducer of the user's own: the largest absolute value of each row."""
    X = te.placeholder((7, 109), name="X")
    k = te.reduce_axis((0, 109), name="k")
    reducer = te.comm_reducer(lambda a, b: te.maximum(te.abs(a), te.abs(b)), lambda t: te.const(0, t), name="magnitude")
    return te.create_prim_func([X, te.compute((7,), lambda i: reducer(X[i, k], axis=k), name="Y")])


def sum_of_three_axes() -> PrimFunc:
    X = te.placeholder((5, 7, 13, 40), name="X")
    a, b, c = te.reduce_axis((0, 7), "a"), te.reduce_axis((0, 13), "b"), te.reduce_axis((0, 40), "c")
    return te.create_prim_func([X, te.compute((5,), lambda i: te.sum(X[i, a, b, c], axis=[a, b, c]), name="Y")])


def total(n: int = 109) -> PrimFunc:
    """The sum of a vector, a scalar."""
    X = te.placeholder((n,), name="X")
    k = te.reduce_axis((0, n), name="k")
    return te.create_prim_func([X, te.compute((), lambda: te.sum(X[k], axis=k), name="S")])


def elementwise_chain() -> PrimFunc:
    """W = max(exp(2 X + 1), 0.5), a stage each."""
    X = te.placeholder((13, 109), name="X")
    Y = te.compute((13, 109), lambda i, j: X[i, j] * 2.0 + 1.0, name="Y")
    Z = te.compute((13, 109), lambda i, j: te.exp(Y[i, j]), name="Z")
    W = te.compute((13, 109), lambda i, j: te.maximum(Z[i, j], te.const(0.5, "float32")), name="W")
    return te.create_prim_func([X, W])


def two_outputs() -> PrimFunc:
    """Y = X + 1 and Z = 2 Xᵀ."""
    X = te.placeholder((7, 40), name="X")
    Y = te.compute((7, 40), lambda i, j: X[i, j] + 1.0, name="Y")
    Z = te.compute((40, 7), lambda j, i: X[i, j] * 2.0, name="Z")
    return te.create_prim_func([X, Y, Z])


def symbolic() -> PrimFunc:
    """B = 2 A, of a size given at the call."""
    n = te.var("n")
    A = te.placeholder((n,), name="A")
    return te.create_prim_func([A, te.compute((n,), lambda i: A[i] * 2.0, name="B"), n])


def without_blocks() -> PrimFunc:
    """The loops of `transposed_matmul`, lowered."""
    from codegen.passes import lower
    from codegen.target import Target

    return lower(transposed_matmul(), Target("llvm"), after="simplify_all")
