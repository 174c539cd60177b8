"""Products of floats by weights of 8 or 4 bits, which are converted where they are read. They exist in graphs alone."""

from __future__ import annotations

from functools import reduce
from math import prod
from operator import add

import numpy as np

from tir import te
from tir.ir import Expr

from ..ir import Value
from .indexing import nearest
from .registry import NEWEST, Apply, composite, need, operator, shape_of

# Least magnitude by which a block of a row is scaled: the largest scale, 127 * 256^2 / 1e-30, is finite in float32.
MIN_MAGNITUDE = 1e-30
DIGITS = {32: 3, 8: 1}  # digits of a fixed-point number by `row_bits`: three keep the 24 bits of float32, one keeps 8
MAX_BLOCK = 1 << 16  # most numbers of a block: int32 holds the sum of as many products of -128 and 255
BITS = (4, 8)  # bits of a number in blocks: an int32 has 32 / bits numbers, the first lowest


def middle(bits: int) -> int:
    """The zero point of numbers for which none is given."""
    return 1 << (bits - 1)


@operator("ByteProduct", NEWEST)
def byte_product(x, weights):
    """x (M, K) of floats times weights (K, N) of integers of 8 bits, each converted to the type of x."""
    need("the rows", x, (None, None), "float")
    need("the weights", weights, (shape_of(x)[1], None), weights.dtype if weights.dtype in ("int8", "uint8") else "int8")
    k = te.reduce_axis((0, shape_of(x)[1]), "k")
    shape = (shape_of(x)[0], shape_of(weights)[1])
    return te.compute(shape, lambda i, j: te.sum(x[i, k] * weights[k, j].astype(x.dtype), axis=k), name="matmul")


def _need_bits(bits: int) -> None:
    if bits not in BITS:
        raise ValueError(f"numbers of 4 or 8 bits are supported, got bits={bits}")


def _blocks(words: te.Tensor, scales: te.Tensor, zeros: te.Tensor | None, bits: int) -> tuple[int, int, int]:
    """The blocks of a sum, words of a block, and columns."""
    _need_bits(bits)
    need("the words", words, (None, None, None), "int32")
    blocks, each, columns = shape_of(words)
    need("the scales", scales, (blocks, columns), "float")
    need("the zero points", zeros, (blocks, columns), "uint8" if zeros is None or zeros.dtype == "uint8" else scales.dtype)
    return blocks, each, columns


@operator("BlockProduct", NEWEST)
def block_product(x, words, scales, zeros=None, *, bits=4, row_bits=32):
    """x (M, K) of floats times weights (number - zero point) * scale of 4 or 8 bits; result (M, N).

    With `row_bits` of 8, x may be rounded to so many bits, each block of a row scaled by its largest magnitude.

    The numbers of a block of a column lie in `words` (blocks, words of a block, N); scales and zero points are (blocks, N). Zero
    points are of uint8 or the type of scales, by default the middle number. The last block may reach beyond the sum.

    Numbers are not moved to the low bits of a word. A masked one is the number times a power of 2, by which x is divided, without
    rounding. The zero point times the sum of x is subtracted from the sum of a block, which is then scaled:

        y = sum over blocks of scale * (sum of x number - zero point * sum of x)
    """
    blocks, each, columns = _blocks(words, scales, zeros, bits)
    if row_bits not in DIGITS:
        raise ValueError(f"rows that keep 8 or 32 bits are supported, got row_bits={row_bits}")
    need("the rows", x, (None, None), scales.dtype)
    (rows, length), in_word, mask = shape_of(x), 32 // bits, (1 << bits) - 1
    if not (blocks - 1) * each * in_word < length <= blocks * each * in_word:
        raise ValueError(f"a sum of {length} steps does not have {blocks} blocks of {each * in_word}")
    steps = (blocks, each, in_word)

    def number(b: Expr, w: Expr, p: Expr) -> Expr:
        return (b * each + w) * in_word + p

    def inside(m: Expr, k: Expr) -> Expr:
        return x[m, k] if length == blocks * each * in_word else te.if_then_else(k < length, x[m, k], te.const(0, x.dtype))

    def scaled(m: Expr, b: Expr, w: Expr, p: Expr) -> Expr:
        power = te.select(p < in_word - 1, te.shift_left(te.const(1), bits * p), te.const(1))
        return inside(m, number(b, w, p)) / power.astype(x.dtype)

    given = te.compute((rows, *steps), scaled, name="given")
    w, p = te.reduce_axis((0, each), "w"), te.reduce_axis((0, in_word), "p")
    totals = te.compute((rows, blocks), lambda m, b: te.sum(inside(m, number(b, w, p)), axis=(w, p)), name="totals")
    w, p = te.reduce_axis((0, each), "w"), te.reduce_axis((0, in_word), "p")

    def masked(word: Expr, p: Expr) -> Expr:
        """A number in its place; the last one, whose place has the sign of the word, in the low bits."""
        low = te.bit_and(word, te.shift_left(te.const(mask), bits * p))
        return te.select(p < in_word - 1, low, te.bit_and(te.shift_right(word, te.const(32 - bits)), te.const(mask)))

    def product(m: Expr, b: Expr, n: Expr) -> Expr:
        return te.sum(given[m, b, w, p] * masked(words[b, w, n], p).astype(x.dtype), axis=(w, p))

    sums = te.compute((rows, blocks, columns), product, name="sums")
    block = te.reduce_axis((0, blocks), "b")

    def formula(m: Expr, n: Expr) -> Expr:
        zero = te.const(middle(bits), x.dtype) if zeros is None else zeros[block, n].astype(x.dtype)
        return te.sum(scales[block, n] * (sums[m, block, n] - zero * totals[m, block]), axis=block)

    return te.compute((rows, columns), formula, name="matmul")


@operator("BlockDots", NEWEST)
def block_dots(x, codes, scales, zeros=None, *, bits=4, digits=3):
    """`BlockProduct` by sums of integers: x (M, K) of float32, its rows as fixed-point numbers of `digits` digits to base 256.

    Columns lie in panels of as many as a tile of the kernel has, so that kernels and `BlockColumns` read them in order. `codes`
    (panels, blocks, words of a block, columns of a panel, 4) have the bytes of words; with 4 bits, their low halves are the first
    four numbers. Scales, which may be of float16, and zero points are (panels, blocks, columns of a panel).

    The largest magnitude of a block of a row becomes 127 * 256^(digits - 1). Three digits round it as float32 does, one digit as
    int8 does; smaller elements are off by as much. An element that is not finite makes its row NaN.

        x = step * fixed,  fixed = sum over digits of 256^d * digit,  digits of -128 to 127
        y = sum over blocks of scale * step * sum over digits of 256^d * (sum of digit number - zero point * sum of digit)

    Sums of a digit are exact in int32; in blocks of up to 512, numbers at an integer zero point add nothing. Elements of x are
    off by at most step / 2.
    """
    need("the codes", codes, (None, None, None, None, 4), "uint8")
    panels, blocks, each, panel, parts = shape_of(codes)
    (rows, length), in_byte, columns = shape_of(x), 8 // bits, panels * panel
    in_word = parts * in_byte
    block = each * in_word

    def at(m: Expr, k: Expr) -> Expr:
        return x[m, k] if length == blocks * block else te.if_then_else(k < length, x[m, k], te.const(0, x.dtype))

    k = te.reduce_axis((0, block), "k")
    infinite = te.infinity(x.dtype)

    def magnitude(e: Expr) -> Expr:
        return te.select(te.abs(e) < infinite, te.abs(e), infinite)  # of a NaN, which a maximum may drop, too

    most = te.compute((rows, blocks), lambda m, b: te.max(magnitude(at(m, b * block + k)), axis=k), name="most")
    limit = 127.0 * 256 ** (digits - 1)
    scaled = te.compute((rows, blocks), lambda m, b: limit / te.maximum(most[m, b], MIN_MAGNITUDE), name="scaled")
    middles = sum(128 << 8 * d for d in range(digits))  # added to make all digits 0 to 255

    def digit(m: Expr, d: Expr, k: Expr) -> Expr:
        whole = te.floor(at(m, k) * scaled[m, k // block] + 0.5).astype("int32") + middles
        return (te.bit_and(te.shift_right(whole, 8 * d), te.const(255)) - 128).astype("int8")

    given = te.compute((rows, digits, blocks * block), digit, name="given")
    k = te.reduce_axis((0, block), "k")
    totals = te.compute(
        (rows, digits, blocks), lambda m, d, b: te.sum(given[m, d, b * block + k].astype(x.dtype), axis=k), name="totals"
    )

    def number(b: Expr, w: Expr, h: Expr, n: Expr, q: Expr) -> Expr:
        shifted = te.shift_right(codes[n // panel, b, w, n % panel, q], (bits * h).astype("uint8"))
        return te.bit_and(shifted, te.const((1 << bits) - 1, "uint8"))

    numbers = te.compute((blocks, each, in_byte, columns, parts), number, name="numbers")
    w, h, q = (te.reduce_axis((0, n), name) for n, name in ((each, "w"), (in_byte, "h"), (parts, "q")))

    def product(m: Expr, b: Expr, d: Expr, n: Expr) -> Expr:
        left = given[m, d, (b * each + w) * in_word + h * parts + q]
        return te.sum(left.astype("int32") * numbers[b, w, h, n, q].astype("int32"), axis=(w, h, q))

    sums = te.compute((rows, blocks, digits, columns), product, name="sums")
    block_of = te.reduce_axis((0, blocks), "b")

    def formula(m: Expr, n: Expr) -> Expr:
        place = (n // panel, block_of, n % panel)
        zero = te.const(middle(bits), x.dtype) if zeros is None else zeros[place].astype(x.dtype)
        of_digits = [256.0**d * (sums[m, block_of, d, n].astype(x.dtype) - zero * totals[m, d, block_of]) for d in range(digits)]
        return te.sum(scales[place].astype(x.dtype) * (steps[m, block_of] * reduce(add, of_digits)), axis=block_of)

    def step(m: Expr, b: Expr) -> Expr:
        return te.select(most[m, b] < infinite, 1.0 / scaled[m, b], te.const(np.nan, x.dtype))

    steps = te.compute((rows, blocks), step, name="steps")
    return te.compute((rows, columns), formula, name="matmul")


@operator("BlockColumns", NEWEST)
def block_columns(codes, scales, indices, zeros=None, *, length, bits=4):
    """The columns at `indices`, as of a Gather, of the weights of `BlockDots`, as floats (length, indices)."""
    need("the codes", codes, (None, None, None, None, 4), "uint8")
    need("the indices", indices, (None,), "integer")
    panels, _, each, panel, parts = shape_of(codes)
    in_word = parts * 8 // bits
    block = each * in_word

    def formula(k: Expr, j: Expr) -> Expr:
        n, b, place = nearest(indices[j], panels * panel), k // block, k % in_word
        code = codes[n // panel, b, k % block // in_word, n % panel, place % parts]
        number = te.bit_and(te.shift_right(code.astype("int32"), bits * (place // parts)), te.const((1 << bits) - 1))
        zero = te.const(middle(bits), "float32") if zeros is None else zeros[n // panel, b, n % panel].astype("float32")
        return scales[n // panel, b, n % panel].astype("float32") * (number.astype("float32") - zero)

    return te.compute((length, *shape_of(indices)), formula, name="columns")


def byte_codes(words: np.ndarray, bits: int) -> np.ndarray:
    """Words of `BlockProduct` as codes of `BlockDots`, (blocks, words of a block, N, 4)."""
    codes = words[..., None].view(np.uint8)
    if bits == 8:
        return codes
    numbers = np.stack([codes & 15, codes >> 4], axis=-1).reshape(*codes.shape[:-1], 8)
    return numbers[..., :4] | numbers[..., 4:] << 4


def in_panels(array: np.ndarray, axis: int, panel: int) -> np.ndarray:
    """An array of which an axis has columns, in panels: the first axis counts these, and the given one the columns of each."""
    split = array.reshape(*array.shape[:axis], -1, panel, *array.shape[axis + 1 :])
    return np.ascontiguousarray(np.moveaxis(split, axis, 0))


@operator("UnpackBlocks", NEWEST)
def unpack_blocks(words, scales, zeros=None, *, length, bits=4):
    """The weights of `BlockProduct` as floats (length, N)."""
    _, each, columns = _blocks(words, scales, zeros, bits)
    in_word = 32 // bits
    block = each * in_word

    def formula(k: Expr, n: Expr) -> Expr:
        word = words[k // block, k % block // in_word, n]
        number = te.bit_and(te.shift_right(word, bits * (k % in_word)), te.const((1 << bits) - 1)).astype(scales.dtype)
        zero = te.const(middle(bits), scales.dtype) if zeros is None else zeros[k // block, n].astype(scales.dtype)
        return scales[k // block, n] * (number - zero)

    return te.compute((length, columns), formula, name="weights")


def packed(numbers: np.ndarray, block: int, blocks: int, bits: int = 4) -> np.ndarray:
    """Numbers (steps, columns) as words (blocks, words of a block, columns), filled up with the middle number."""
    (steps, columns), in_word = numbers.shape, 32 // bits
    whole = np.full((blocks * block, columns), middle(bits), np.uint32)
    whole[:steps] = numbers
    parts = whole.reshape(blocks, block // in_word, in_word, columns) << (bits * np.arange(in_word, dtype=np.uint32))[:, None]
    return np.ascontiguousarray(np.bitwise_or.reduce(parts, axis=2)).view(np.int32)


@composite("MatMulNBits", domain="com.microsoft")
def matmul_nbits(
    apply, a, b, scales, zeros=None, groups=None, bias=None, *, K, N, block_size, bits=4, accuracy_level=0, weight_prepacked=0
):
    """a (..., K) times weights (N, K) of 4 or 8 bits: b is (N, blocks, bytes of a block), the first number of a byte lowest.

    Zero points are packed alike, or floats (N, blocks). Results are those of float32, whatever `accuracy_level` allows."""
    if weight_prepacked or groups is not None:
        raise ValueError(f"weights in order are supported, got {'g_idx' if groups is not None else 'prepacked ones'}")
    given = _operands(apply, b, scales, zeros, K, N, block_size, bits)
    rows = apply("Reshape", apply("Cast", a, to="float32"), shape=(prod(a.shape[:-1]), K))
    made = apply("Reshape", apply("BlockProduct", rows, *given, bits=bits), shape=(*a.shape[:-1], N))
    made = apply("Cast", made, to=a.dtype)
    return made if bias is None else apply("Add", made, bias)


@composite("GatherBlockQuantized", domain="com.microsoft")
def gather_block_quantized(
    apply, data, indices, scales, zeros=None, *, bits=4, block_size=128, quantize_axis=1, gather_axis=0
):  # fmt: skip
    """Parts of a quantised tensor at the indices along an axis, as floats; bytes hold 8 / `bits` numbers of the last axis."""
    _need_bits(bits)
    rank, flat = len(data.shape), apply("Reshape", indices, shape=(-1,))
    axis, along = quantize_axis % rank, gather_axis % rank
    shape = [*data.shape[:along], *indices.shape, *data.shape[along + 1 :]]
    if apply.dtype(data) != "uint8":
        parts = [data, scales, *(() if zeros is None else (zeros,))]
        if axis != along:
            found = apply(
                "DequantizeLinear", *(apply("Gather", v, flat, axis=along) for v in parts), axis=axis, block_size=block_size
            )
        else:
            found = apply("Gather", apply("DequantizeLinear", *parts, axis=axis, block_size=block_size), flat, axis=along)
        return apply("Reshape", found, shape=tuple(shape))
    if rank != 2 or along or axis != 1:
        raise ValueError(f"rows of matrices of bytes are supported, got axes {along} and {axis} of {rank}")
    count, length = data.shape[0], data.shape[1] * 8 // bits
    given = _operands(apply, data, scales, zeros, length, count, block_size, bits)
    found = apply("UnpackBlocks", *(apply("Gather", v, flat, axis=-1) for v in given), length=length, bits=bits)
    found = apply("Cast", apply("Transpose", found, perm=(1, 0)), to=scales.dtype)
    return apply("Reshape", found, shape=(*indices.shape, length))


def _operands(
    apply: Apply, numbers: Value, scales: Value, zeros: Value | None, length: int, count: int, block_size: int, bits: int
) -> list[Value]:
    """Words, scales and zero points of `BlockProduct` for `count` rows of numbers in bytes, the first of a byte lowest."""
    _need_bits(bits)
    if block_size < 1:
        raise ValueError(f"blocks of {block_size} numbers are not supported")
    given, points, blocks = apply.known(numbers), None if zeros is None else apply.known(zeros), -(-length // block_size)
    if given is None or (zeros is not None and points is None):
        raise ValueError("weights and zero points must be constants")

    def columns(array: np.ndarray, most: int) -> np.ndarray:
        """The first numbers of each row, at most so many, as a column."""
        rows = array.reshape(count, -1)
        if bits == 4:
            rows = np.stack([rows & 15, rows >> 4], axis=-1).reshape(count, -1)
        return np.ascontiguousarray(rows[:, :most].T)

    found = [apply.constant(packed(columns(given, length), block_size, blocks, bits))]
    found.append(apply("Transpose", apply("Cast", apply("Reshape", scales, shape=(count, blocks)), to="float32"), perm=(1, 0)))
    if points is not None and points.dtype == np.uint8:
        found.append(apply.constant(columns(points, blocks)))
    elif points is not None:
        found.append(apply.constant(np.ascontiguousarray(points.reshape(count, blocks).T), "float32"))
    return found
