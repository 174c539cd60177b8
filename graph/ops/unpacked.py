"""Products of floats by weights of 8 or 4 bits, which are converted where they are read. They exist in graphs alone."""

from __future__ import annotations

from math import prod

import numpy as np

from tir import te
from tir.ir import Expr

from .registry import NEWEST, composite, need, operator, shape_of

BITS = 4  # of a number in blocks
PER_WORD = 32 // BITS  # numbers in an int32, the first lowest
MASK = (1 << BITS) - 1
MIDDLE = 1 << (BITS - 1)  # the zero point of blocks without one


@operator("ByteProduct", NEWEST)
def byte_product(x, weights):
    """x (M, K) of floats times weights (K, N) of integers of 8 bits, each converted to the type of x."""
    need("the rows", x, (None, None), "float")
    need("the weights", weights, (shape_of(x)[1], None), weights.dtype if weights.dtype in ("int8", "uint8") else "int8")
    k = te.reduce_axis((0, shape_of(x)[1]), "k")
    shape = (shape_of(x)[0], shape_of(weights)[1])
    return te.compute(shape, lambda i, j: te.sum(x[i, k] * weights[k, j].astype(x.dtype), axis=k), name="matmul")


def _blocks(words: te.Tensor, scales: te.Tensor, zeros: te.Tensor | None) -> tuple[int, int, int]:
    """The blocks of a sum, words of a block, and columns."""
    need("the words", words, (None, None, None), "int32")
    blocks, each, columns = shape_of(words)
    need("the scales", scales, (blocks, columns), "float")
    need("the zero points", zeros, (blocks, columns), "uint8")
    return blocks, each, columns


@operator("BlockProduct", NEWEST)
def block_product(x, words, scales, zeros=None):
    """x (M, K) of floats times weights (number - zero point) * scale of 4 bits; result (M, N).

    The numbers of a block of a column lie in `words` (blocks, words of a block, N); scales and zero points are (blocks, N). Zero
    points are 8 by default. The last block may be longer than the sum.

    Numbers are not moved to the low bits of a word: bits that are masked are a number times a power of 16, by whose inverse x is
    multiplied, without rounding. Of each block the sum is scaled, and the zero point times the sum of x taken away:

        y = sum over blocks of scale * (sum of x number - zero point * sum of x)
    """
    blocks, each, columns = _blocks(words, scales, zeros)
    need("the rows", x, (None, None), scales.dtype)
    rows, length = shape_of(x)
    if not (blocks - 1) * each * PER_WORD < length <= blocks * each * PER_WORD:
        raise ValueError(f"a sum of {length} steps does not have {blocks} blocks of {each * PER_WORD}")
    steps = (blocks, each, PER_WORD)

    def number(b: Expr, w: Expr, p: Expr) -> Expr:
        return (b * each + w) * PER_WORD + p

    def inside(m: Expr, k: Expr) -> Expr:
        return x[m, k] if length == blocks * each * PER_WORD else te.if_then_else(k < length, x[m, k], te.const(0, x.dtype))

    def scaled(m: Expr, b: Expr, w: Expr, p: Expr) -> Expr:
        power = te.select(p < PER_WORD - 1, te.shift_left(te.const(1), BITS * p), te.const(1))
        return inside(m, number(b, w, p)) / power.astype(x.dtype)

    given = te.compute((rows, *steps), scaled, name="given")
    w, p = te.reduce_axis((0, each), "w"), te.reduce_axis((0, PER_WORD), "p")
    totals = te.compute((rows, blocks), lambda m, b: te.sum(inside(m, number(b, w, p)), axis=(w, p)), name="totals")
    w, p = te.reduce_axis((0, each), "w"), te.reduce_axis((0, PER_WORD), "p")

    def masked(word: Expr, p: Expr) -> Expr:
        """The number in place, but for the last one, whose place has the sign."""
        low = te.bit_and(word, te.shift_left(te.const(MASK), BITS * p))
        return te.select(p < PER_WORD - 1, low, te.bit_and(te.shift_right(word, te.const(32 - BITS)), te.const(MASK)))

    def product(m: Expr, b: Expr, n: Expr) -> Expr:
        return te.sum(given[m, b, w, p] * masked(words[b, w, n], p).astype(x.dtype), axis=(w, p))

    sums = te.compute((rows, blocks, columns), product, name="sums")
    block = te.reduce_axis((0, blocks), "b")

    def formula(m: Expr, n: Expr) -> Expr:
        zero = te.const(MIDDLE, x.dtype) if zeros is None else zeros[block, n].astype(x.dtype)
        return te.sum(scales[block, n] * (sums[m, block, n] - zero * totals[m, block]), axis=block)

    return te.compute((rows, columns), formula, name="matmul")


@operator("UnpackBlocks", NEWEST)
def unpack_blocks(words, scales, zeros=None, *, length):
    """The weights of `BlockProduct` as floats (length, N)."""
    _, each, columns = _blocks(words, scales, zeros)
    block = each * PER_WORD

    def formula(k: Expr, n: Expr) -> Expr:
        word = words[k // block, k % block // PER_WORD, n]
        number = te.bit_and(te.shift_right(word, BITS * (k % PER_WORD)), te.const(MASK)).astype(scales.dtype)
        zero = te.const(MIDDLE, scales.dtype) if zeros is None else zeros[k // block, n].astype(scales.dtype)
        return scales[k // block, n] * (number - zero)

    return te.compute((length, columns), formula, name="weights")


def packed(numbers: np.ndarray, block: int, blocks: int) -> np.ndarray:
    """Numbers of 4 bits (steps, columns) as words (blocks, words of a block, columns), filled up with the middle number."""
    steps, columns = numbers.shape
    whole = np.full((blocks * block, columns), MIDDLE, np.uint32)
    whole[:steps] = numbers
    parts = whole.reshape(blocks, block // PER_WORD, PER_WORD, columns) << (BITS * np.arange(PER_WORD, dtype=np.uint32))[:, None]
    return np.ascontiguousarray(np.bitwise_or.reduce(parts, axis=2)).view(np.int32)


@composite("MatMulNBits", domain="com.microsoft")
def matmul_nbits(
    apply, a, b, scales, zeros=None, groups=None, bias=None, *, K, N, block_size, bits=4, accuracy_level=0, weight_prepacked=0
):
    """a (..., K) times weights (N, K) of 4 bits: b is (N, blocks, bytes of a block), the first number of a byte lowest.

    Results are those of float32, whatever `accuracy_level` allows."""
    numbers, points, blocks = apply.known(b), None if zeros is None else apply.known(zeros), -(-K // block_size)
    if bits != BITS or weight_prepacked or groups is not None:
        raise ValueError(f"weights of {BITS} bits, in order, are supported, got bits={bits}{', g_idx' * (groups is not None)}")
    if numbers is None or (zeros is not None and (points is None or points.dtype != np.uint8)):
        raise ValueError("weights and zero points must be constants of uint8")

    def columns(array: np.ndarray, count: int) -> np.ndarray:
        """The first numbers of the bytes of each row, as columns."""
        rows = array.reshape(N, -1)
        return np.stack([rows & MASK, rows >> BITS], axis=-1).reshape(N, -1)[:, :count].T

    given = [apply.constant(packed(columns(numbers, K), block_size, blocks))]
    given.append(apply("Transpose", apply("Cast", apply("Reshape", scales, shape=(N, blocks)), to="float32"), perm=(1, 0)))
    given += [] if points is None else [apply.constant(np.ascontiguousarray(columns(points, blocks)))]
    rows = apply("Reshape", apply("Cast", a, to="float32"), shape=(prod(a.shape[:-1]), K))
    made = apply("Reshape", apply("BlockProduct", rows, *given), shape=(*a.shape[:-1], N))
    made = apply("Cast", made, to=a.dtype)
    return made if bias is None else apply("Add", made, bias)
