"""Small programs, most of odd extents, that tests share; each says what it computes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tir import te
from tir.ir import Axis, Block, Buffer, Const, Expr, For, Iter, Load, Node, PrimFunc, Store, Var
from tir.traverse import rewrite


def matmul(m: int = 7, k: int = 5, n: int = 13, dtype: str = "float32") -> PrimFunc:
    """C = A · B."""
    A, B = te.placeholder((m, k), dtype, name="A"), te.placeholder((k, n), dtype, name="B")
    r = te.reduce_axis((0, k), name="k")
    C = te.compute((m, n), lambda i, j: te.sum(A[i, r] * B[r, j], axis=r), name="C")
    return te.create_prim_func([A, B, C])


def product(
    rows: int | Expr, columns: int | Expr, steps: int | Expr, left: str = "ik", right: str = "kj",
    dtypes: tuple[str, str] = ("float32", "float32"), total: str = "float32", batch: tuple[int, ...] = (),
    after: Callable[..., Expr] | None = None, sizes: Sequence[Var] = (), attrs: dict[str, bool] | None = None,
) -> PrimFunc:  # fmt: skip
    """C = A · B of a batch, summed in `total`; the factors' dimensions are `left` and `right`, rows `i`, columns `j` and steps
    `k`. Then D, `after` of C's elements and their columns, if that is given. `sizes` are parameters before A."""
    extents, k = {"i": rows, "j": columns, "k": steps}, te.reduce_axis((0, steps), name="k")
    A, B = (
        te.placeholder((*batch, *(extents[c] for c in axes)), dtype, name=name)
        for axes, dtype, name in zip((left, right), dtypes, "AB", strict=True)
    )

    def term(*at):
        index = {"i": at[-2], "j": at[-1], "k": k}
        a, b = (X[(*at[:-2], *(index[c] for c in axes))].astype(total) for X, axes in ((A, left), (B, right)))
        return te.sum(a * b, axis=k)

    def stage(formula: Callable[..., Expr], name: str, attrs: dict[str, bool] | None = None) -> te.Tensor:
        return te.compute((*batch, rows, columns), formula if batch else lambda i, j: formula(i, j), name=name, attrs=attrs)

    C = stage(term, "C", attrs)
    return te.create_prim_func([*sizes, A, B, stage(lambda *at: after(C[at], at[-1]), "D") if after else C])


def elementwise(*shape: int, dtype: str = "float32") -> PrimFunc:
    """B = A + 1."""
    A = te.placeholder(shape or (7, 13), dtype, name="A")
    B = te.compute(shape or (7, 13), lambda *i: A[i] + te.const(1, dtype), name="B")
    return te.create_prim_func([A, B])


def vector(n: int = 13) -> PrimFunc:
    """B = 2 A."""
    A = te.placeholder((n,), name="A")
    B = te.compute((n,), lambda i: A[i] * 2.0, name="B")
    return te.create_prim_func([A, B])


def symbolic() -> PrimFunc:
    """B = 2 A, of a size given at the call."""
    n = te.var("n")
    A = te.placeholder((n,), name="A")
    B = te.compute((n,), lambda i: A[i] * 2.0, name="B")
    return te.create_prim_func([A, B, n])


def chain(m: int = 7, n: int = 13) -> PrimFunc:
    """C = 3 (A + 1)."""
    A = te.placeholder((m, n), name="A")
    B = te.compute((m, n), lambda i, j: A[i, j] + 1.0, name="B")
    C = te.compute((m, n), lambda i, j: B[i, j] * 3.0, name="C")
    return te.create_prim_func([A, C])


def fork() -> PrimFunc:
    """C = 3 B and D = 2 B, of B = A + 1."""
    A = te.placeholder((7,), name="A")
    B = te.compute((7,), lambda i: A[i] + 1.0, name="B")
    C = te.compute((7,), lambda i: B[i] * 3.0, name="C")
    D = te.compute((7,), lambda i: B[i] * 2.0, name="D")
    return te.create_prim_func([A, C, D])


def slice_of(n: int, start: int) -> PrimFunc:
    """C = 2 times five elements of B = A + 1."""
    A = te.placeholder((n,), name="A")
    B = te.compute((n,), lambda i: A[i] + 1.0, name="B")
    C = te.compute((5,), lambda i: B[i + start] * 2.0, name="C")
    return te.create_prim_func([A, C])


def reduction(reducer=te.sum, dtype: str = "float32", n: int = 13) -> PrimFunc:
    """C = A, reduced along its rows."""
    A = te.placeholder((7, n), dtype, name="A")
    k = te.reduce_axis((0, n), name="k")
    return te.create_prim_func([A, te.compute((7,), lambda i: reducer(A[i, k], axis=k), name="C")])


def sums_of_chain() -> PrimFunc:
    """C = sums of the rows of B = A + 1."""
    A = te.placeholder((7, 13), name="A")
    B = te.compute((7, 13), lambda i, j: A[i, j] + 1.0, name="B")
    k = te.reduce_axis((0, 13), name="k")
    return te.create_prim_func([A, te.compute((7,), lambda i: te.sum(B[i, k], axis=k), name="C")])


def relu_of_matmul(m: int = 7, k: int = 5, n: int = 13) -> PrimFunc:
    """D = max(A · B, 0)."""
    A = te.placeholder((m, k), name="A")
    B = te.placeholder((k, n), name="B")
    r = te.reduce_axis((0, k), name="k")
    C = te.compute((m, n), lambda i, j: te.sum(A[i, r] * B[r, j], axis=r), name="C")
    D = te.compute((m, n), lambda i, j: te.maximum(C[i, j], 0.0), name="D")
    return te.create_prim_func([A, B, D])


def padded(n: int = 13) -> PrimFunc:
    """P = A with a zero at each end."""
    A = te.placeholder((n,), name="A")
    P = te.compute((n + 2,), lambda i: te.if_then_else(te.all(i >= 1, i < n + 1), A[i - 1], 0.0), name="P")
    return te.create_prim_func([A, P])


def stencil(n: int = 13) -> PrimFunc:
    """C = three neighbours of B = 2 A, zero outside, by way of a padded P."""
    A = te.placeholder((n,), name="A")
    B = te.compute((n,), lambda i: A[i] * 2.0, name="B")
    P = te.compute((n + 2,), lambda i: te.if_then_else(te.all(i >= 1, i < n + 1), B[i - 1], 0.0), name="P")
    C = te.compute((n,), lambda i: P[i] + P[i + 1] + P[i + 2], name="C")
    return te.create_prim_func([A, C])


def window_sums() -> PrimFunc:
    """Sums of windows of three elements of a temporary."""
    A, k = te.placeholder((7,), name="A"), te.reduce_axis((0, 3), name="k")
    B = te.compute((9,), lambda i: A[i % 7] * 2.0, name="B")
    return te.create_prim_func([A, te.compute((7,), lambda i: te.sum(B[i + k], axis=k), name="C")])


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


def squared_distances(M: int = 61, N: int = 67, K: int = 37) -> PrimFunc:
    """Of the rows of A and B: the form of a product with a transposed operand."""
    A, B, k = te.placeholder((M, K), name="A"), te.placeholder((N, K), name="B"), te.reduce_axis((0, K), name="k")
    C = te.compute((M, N), lambda i, j: te.sum((A[i, k] - B[j, k]) * (A[i, k] - B[j, k]), axis=k), name="C")
    return te.create_prim_func([A, B, C], name="squared_distances")


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


def scaled_matmul() -> PrimFunc:
    """A product whose terms have a scalar factor, a parameter."""
    A, B, scale = (te.placeholder(shape, name=name) for shape, name in (((13, 109), "A"), ((109, 40), "B"), ((), "scale")))
    k = te.reduce_axis((0, 109), name="k")
    C = te.compute((13, 40), lambda i, j: te.sum(A[i, k] * scale[()] * B[k, j], axis=k), name="C")
    return te.create_prim_func([A, B, scale, C])


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


def copied(extent: int) -> PrimFunc:
    """B = A; of an extent of 0, which tensor expressions don't have, a loop that never runs."""
    i, v = Var("i"), Var("v")
    a, b = (Buffer(name, (Const(extent),)) for name in "AB")
    block = Block("B", (Iter(v, Const(extent), Axis.SPATIAL, i),), Store(b, (v,), Load(a, (v,))))
    return PrimFunc("main", (a, b), For(i, Const(extent), block))


def without_blocks() -> PrimFunc:
    """The loops of `transposed_matmul`, lowered."""
    from codegen import lower
    from codegen.target import Target

    return lower(transposed_matmul(), Target("llvm"), after="simplify_all")


def chained_matmuls(m: int = 7, k: int = 13, l: int = 109, n: int = 5) -> PrimFunc:
    """F = (A · B) · E."""
    A, B, E = (te.placeholder(s, name=x) for s, x in (((m, k), "A"), ((k, l), "B"), ((l, n), "E")))
    rk, rl = te.reduce_axis((0, k), name="rk"), te.reduce_axis((0, l), name="rl")
    C = te.compute((m, l), lambda i, j: te.sum(A[i, rk] * B[rk, j], axis=rk), name="C")
    F = te.compute((m, n), lambda i, j: te.sum(C[i, rl] * E[rl, j], axis=rl), name="F")
    return te.create_prim_func([A, B, E, F])


def attention(heads: int = 2, positions: int = 19, depth: int = 13, keys: int | None = None) -> PrimFunc:
    """O = softmax(Q · Kᵀ) · V for each head; as many `keys` as positions, if not given."""
    keys = positions if keys is None else keys
    Q = te.placeholder((heads, positions, depth), name="Q")
    K, V = (te.placeholder((heads, keys, depth), name=name) for name in "KV")
    d = te.reduce_axis((0, depth), name="d")
    k, v = (te.reduce_axis((0, keys), name=name) for name in "kv")
    square = (heads, positions, keys)
    score = te.compute(square, lambda h, i, j: te.sum(Q[h, i, d] * K[h, j, d], axis=d), name="score")
    top = te.compute((heads, positions), lambda h, i: te.max(score[h, i, k], axis=k), name="top")
    power = te.compute(square, lambda h, i, j: te.exp(score[h, i, j] - top[h, i]), name="power")
    total = te.compute((heads, positions), lambda h, i: te.sum(power[h, i, k], axis=k), name="total")
    share = te.compute(square, lambda h, i, j: power[h, i, j] / total[h, i], name="share")
    O = te.compute((heads, positions, depth), lambda h, i, c: te.sum(share[h, i, v] * V[h, v, c], axis=v), name="O")
    return te.create_prim_func([Q, K, V, O])


def _padded(X: te.Tensor, padding: int, value: float) -> te.Tensor:
    N, C, H, W = X.shape

    def inner(n, c, h, w):
        inside = te.all(h >= padding, h < H + padding, w >= padding, w < W + padding)
        return te.if_then_else(inside, X[n, c, h - padding, w - padding], te.const(value, "float32"))

    return te.compute((N, C, H + 2 * padding, W + 2 * padding), inner, name="pad")


def conv_norm_relu(
    n: int = 1, h: int = 7, w: int = 13, ci: int = 3, co: int = 5, kernel: int = 3, stride: int = 1, padding: int = 1
) -> PrimFunc:
    """A convolution with bias, batch normalisation as scale and offset, and relu, a stage each."""
    X, K = te.placeholder((n, ci, h, w), name="X"), te.placeholder((co, ci, kernel, kernel), name="K")
    bias, scale, offset = (te.placeholder((co, 1, 1), name=x) for x in ("bias", "scale", "offset"))
    pad = _padded(X, padding, 0.0)
    rc, rh, rw = te.reduce_axis((0, ci), "rc"), te.reduce_axis((0, kernel), "rh"), te.reduce_axis((0, kernel), "rw")
    shape = (n, co, (h + 2 * padding - kernel) // stride + 1, (w + 2 * padding - kernel) // stride + 1)

    def value(n, co, oh, ow):
        return te.sum(pad[n, rc, oh * stride + rh, ow * stride + rw] * K[co, rc, rh, rw], axis=[rc, rh, rw])

    conv = te.compute(shape, value, name="conv")
    biased = te.compute(shape, lambda n, co, oh, ow: conv[n, co, oh, ow] + bias[co, 0, 0], name="biased")
    scaled = te.compute(shape, lambda n, co, oh, ow: biased[n, co, oh, ow] * scale[co, 0, 0], name="scaled")
    shifted = te.compute(shape, lambda n, co, oh, ow: scaled[n, co, oh, ow] + offset[co, 0, 0], name="shifted")
    relu = te.compute(shape, lambda n, co, oh, ow: te.maximum(shifted[n, co, oh, ow], te.const(0, "float32")), name="relu")
    return te.create_prim_func([X, K, bias, scale, offset, relu])


def max_pool(n: int = 1, h: int = 7, w: int = 13, c: int = 5, padding: int = 1) -> PrimFunc:
    """The largest of each 2 by 2 window."""
    X = te.placeholder((n, c, h, w), name="X")
    pad = _padded(X, padding, -1e30)
    a, b = te.reduce_axis((0, 2), "a"), te.reduce_axis((0, 2), "b")
    shape = (n, c, h + 2 * padding - 1, w + 2 * padding - 1)
    pool = te.compute(shape, lambda n, c, h, w: te.max(pad[n, c, h + a, w + b], axis=[a, b]), name="pool")
    return te.create_prim_func([X, pool])


def row_minimum(rows: int = 7, columns: int = 109) -> PrimFunc:
    X = te.placeholder((rows, columns), name="X")
    k = te.reduce_axis((0, columns), "k")
    return te.create_prim_func([X, te.compute((rows,), lambda i: te.min(X[i, k], axis=k), name="Y")])


def _constant(values: list[list[float]], name: str) -> te.Tensor:
    """A matrix of constants, as a stage that reads nothing."""

    def value(i, j):
        result = te.const(0, "float32")
        for a, row in enumerate(values):
            for b, x in enumerate(row):
                result = te.select(te.all(te.equal(i, a), te.equal(j, b)), te.const(x, "float32"), result)
        return result

    return te.compute((len(values), len(values[0])), value, name=name)


def winograd(n: int = 1, size: int = 8, ci: int = 3, co: int = 5) -> PrimFunc:
    """A 3 by 3 convolution of images with their channels last, padded by 1, as Winograd's F(2, 3) (Lavin and Gray, CVPR 2016)."""
    X, W = te.placeholder((n, size, size, ci), name="X"), te.placeholder((3, 3, ci, co), name="W")
    B = _constant([[1, 0, 0, 0], [0, 1, -1, 1], [-1, 1, 1, 0], [0, 0, 0, -1]], "B")
    G = _constant([[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]], "G")
    A = _constant([[1, 0], [1, 1], [1, -1], [0, -1]], "A")
    tiles = size // 2
    points = n * tiles * tiles

    def padded(b, h, w, c):
        inside = te.all(h >= 1, h <= size, w >= 1, w <= size)
        return te.if_then_else(inside, X[b, h - 1, w - 1, c], te.const(0, "float32"))

    pad = te.compute((n, size + 2, size + 2, ci), padded, name="pad")

    def pair(extent):
        return te.reduce_axis((0, extent), "ra"), te.reduce_axis((0, extent), "rb")

    def unrolled(*axes):
        return {"simplify_const_tensor_indices": [*axes, "ra", "rb"]}

    a, b = pair(3)
    kernel = te.compute(
        (4, 4, ci, co),
        lambda eps, nu, c, o: te.sum(W[a, b, c, o] * G[eps, a] * G[nu, b], axis=[a, b]),
        name="kernel_pack",
        attrs=unrolled("eps", "nu"),
    )
    tile = te.compute(
        (4, 4, points, ci),
        lambda eps, nu, p, c: pad[p // (tiles * tiles), p // tiles % tiles * 2 + eps, p % tiles * 2 + nu, c],
        name="input_tile",
    )
    c, d = pair(4)
    data = te.compute(
        (4, 4, points, ci),
        lambda eps, nu, p, i: te.sum(tile[c, d, p, i] * B[c, eps] * B[d, nu], axis=[c, d]),
        name="data_pack",
        attrs=unrolled("eps", "nu"),
    )
    k = te.reduce_axis((0, ci), "k")
    product = te.compute(
        (4, 4, points, co), lambda e, v, p, o: te.sum(data[e, v, p, k] * kernel[e, v, k, o], axis=k), name="bgemm"
    )
    e, f = pair(4)
    inverse = te.compute(
        (2, 2, points, co),
        lambda vh, vw, p, o: te.sum(product[e, f, p, o] * A[e, vh] * A[f, vw], axis=[e, f]),
        name="inverse",
        attrs=unrolled("vh", "vw"),
    )
    Y = te.compute(
        (n, size, size, co), lambda b, h, w, o: inverse[h % 2, w % 2, (b * tiles + h // 2) * tiles + w // 2, o], name="Y"
    )
    return te.create_prim_func([X, W, Y])


def wide_loops(func: PrimFunc) -> PrimFunc:
    """The program with sizes, loops and indices of 64 bits."""

    def change(n: Node) -> Node | None:
        return n.with_(dtype="int64") if isinstance(n, Var | Const) and n.dtype == "int32" else None

    params, allocs = (tuple(rewrite(p, change) for p in part) for part in (func.params, func.allocs))
    return func.with_(params=params, allocs=allocs, body=rewrite(func.body, change))
