"""Products of matrices."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from itertools import permutations
from operator import add, mul

import numpy as np

from tir import dtypes, te
from tir.ir import Expr

from .elementwise import at, same_type
from .registry import narrow, need, operator, shape_of, wide


@operator("MatMul", sums=True, linear=True, channels=-1, integers=True, halves=1)
def matmul(a, b, *, output_dtype=None, tf32=0):
    """numpy's matmul: the last two dimensions are matrices, the others are broadcast; a vector is a row, or a column. The result
    is of a's type, or `output_dtype`. With `tf32`, factors may be rounded to 10 bits of mantissa."""
    need("the left operand", a, dtype="number", ranks=range(1, 9))
    need("the right operand", b, dtype=a.dtype, ranks=range(1, 9))
    (*a_batch, length) = shape_of(a)
    rows = [a_batch.pop()] if a_batch else []
    (*b_batch, other) = shape_of(b)
    columns = [other] if b_batch else []
    other = b_batch.pop() if b_batch else other
    if length != other:
        raise ValueError(f"{list(shape_of(a))} and {list(shape_of(b))} cannot be multiplied")
    try:
        batch = np.broadcast_shapes(tuple(a_batch), tuple(b_batch))
    except ValueError:
        raise ValueError(f"batches {a_batch} and {b_batch} do not broadcast") from None
    k = te.reduce_axis((0, length), "k")

    def formula(*index: Expr) -> Expr:
        outer, own = index[: len(batch)], index[len(batch) :]
        left = _batched(outer, a_batch, (*own[: len(rows)], k))
        right = _batched(outer, b_batch, (k, *own[len(rows) :]))
        return te.sum(wide(a[left]) * wide(b[right]), axis=k)

    made = te.compute([*batch, *rows, *columns], formula, name="matmul", attrs={"tf32": True} if tf32 else None)
    return narrow(made, output_dtype or a.dtype)


def _batched(outer: tuple[Expr, ...], extents: list[int], inner: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """The indices of an element of an operand whose batch has these extents."""
    own = outer[len(outer) - len(extents) :]
    return (*(te.const(0) if e == 1 else i for e, i in zip(extents, own, strict=True)), *inner)


def scaled(x: Expr, factor: float) -> Expr:
    """The product with a number, truncated for integers."""
    if factor == 1:
        return x
    real = x if dtypes.is_float(x.dtype) else x.astype("float64")
    return (real * te.const(factor, real.dtype)).astype(x.dtype)


@operator("Gemm", 7, bias=2, channels=-1, integers=True, halves=1)
def gemm(a, b, c=None, *, alpha=1.0, beta=1.0, transA=0, transB=0, output_dtype=None, tf32=0):
    """alpha A B + beta C, with A and B transposed by `transA` and `transB`, and C broadcast; of A's type, or `output_dtype`.
    With `tf32`, factors may be rounded to 10 bits of mantissa."""
    need("A", a, (None, None), "number")
    need("B", b, (None, None), a.dtype)
    (rows, length), (other, columns) = (shape_of(x)[::-1] if trans else shape_of(x) for x, trans in ((a, transA), (b, transB)))
    if length != other:
        raise ValueError(f"matrices of {rows} x {length} and {other} x {columns} cannot be multiplied")
    need("C", c, dtype=a.dtype, broadcast=(rows, columns))
    k = te.reduce_axis((0, length), "k")
    product = te.compute(
        (rows, columns),
        lambda i, j: te.sum(wide(a[k, i] if transA else a[i, k]) * wide(b[j, k] if transB else b[k, j]), axis=k),
        name="gemm",
        attrs={"tf32": True} if tf32 else None,
    )
    if c is None and alpha == 1:
        return narrow(product, output_dtype or a.dtype)

    def formula(i: Expr, j: Expr) -> Expr:
        value = scaled(product[i, j], alpha)
        return (value if c is None else value + scaled(wide(at(c, (i, j))), beta)).astype(output_dtype or a.dtype)

    return te.compute((rows, columns), formula, name="scaled")


@operator("Einsum", 12)
def einsum(*xs, equation):
    """Sums of products by `equation`, as in numpy's einsum: a term of labels for each tensor, then those of the result. Without
    an arrow the result has the labels that occur once, in alphabetical order, after the dimensions of an ellipsis."""
    same_type(*xs, dtype="number")
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(xs):
        raise ValueError(f"{equation!r} has {len(terms)} terms for {len(xs)} tensors")
    rests = [x.ndim - len(term.replace("...", "")) for x, term in zip(xs, terms, strict=True)]
    most = max((r for r, term in zip(rests, terms, strict=True) if "..." in term), default=0)
    labels = [_labels(term, rest) for term, rest in zip(terms, rests, strict=True)]
    once = sorted(c for c in set(left) - set(".,") if left.count(c) == 1)
    kept = _labels(right if arrow else "..." * ("..." in left) + "".join(once), most)
    extents: dict[str, int] = {}
    for x, named in zip(xs, labels, strict=True):
        if len(named) != x.ndim:
            raise ValueError(f"{equation!r} does not fit a tensor of {list(shape_of(x))}")
        for label, extent in zip(named, shape_of(x), strict=True):
            if extents.setdefault(label, extent) not in (extent, 1) and extent != 1:
                raise ValueError(f"{equation!r}: `{label}` is {extents[label]} and {extent}")
            extents[label] = max(extents[label], extent)
    if unknown := [c for c in kept if c not in extents]:
        raise ValueError(f"{equation!r}: `{unknown[0]}` is in no term")
    steps = {c: te.reduce_axis((0, e), f"k{n}") for n, (c, e) in enumerate(extents.items()) if c not in kept}

    def formula(*i: Expr) -> Expr:
        indices = dict(zip(kept, i, strict=True)) | steps
        factors = []
        for x, named in zip(xs, labels, strict=True):
            element = wide(x[tuple(te.const(0) if e == 1 else indices[c] for c, e in zip(named, shape_of(x), strict=True))])
            factors.append(element)
        product = reduce(mul, factors)
        return te.sum(product, axis=[*steps.values()]) if steps else product

    return narrow(te.compute([extents[c] for c in kept], formula, name="einsum"), xs[0].dtype)


def _labels(term: str, rest: int) -> list[str]:
    """The labels of a term, with one for each of the `rest` dimensions of its ellipsis, which align at the last."""
    before, dots, after = term.partition("...")
    return [*before, *(f".{n}" for n in reversed(range(rest))), *after] if dots else [*term]


@operator("Det", 11)
def determinant(x):
    """Determinants of matrices of up to 4 x 4: the sum over all permutations (Leibniz)."""
    need("the input", x, dtype="float", ranks=range(2, 9))
    size = shape_of(x)[-1]
    need("the input", x, [*(None for _ in shape_of(x)[:-2]), size, size])
    if size > MAX_LEIBNIZ_ROWS:
        raise ValueError(f"matrices of up to {MAX_LEIBNIZ_ROWS} x {MAX_LEIBNIZ_ROWS} are supported, got {size} x {size}")

    def formula(*i: Expr) -> Expr:
        def term(columns: Sequence[int]) -> Expr:
            odd = sum(a > b for n, a in enumerate(columns) for b in columns[n + 1 :]) % 2
            elements = [wide(x[(*i, te.const(row), te.const(column))]) for row, column in enumerate(columns)]
            product = reduce(mul, elements) if elements else te.const(1, dtypes.computed(x.dtype))
            return -product if odd else product

        return reduce(add, map(term, permutations(range(size)))).astype(x.dtype)

    return te.compute(shape_of(x)[:-2], formula, name="det")


MAX_LEIBNIZ_ROWS = 4  # most rows of a determinant: the sum has a term for each of their permutations
