"""Weights of 8 or 4 bits keep these bits in memory: products convert them where they are read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from schedule.machine import CPU
from schedule.templates.blocked_sums import REGISTERS_A_SUM, dot_columns
from schedule.templates.low_precision import adds_pairs, has_dots

from ..ir import Call, Graph, Value
from ..ops.unpacked import BITS, DIGITS, MAX_BLOCK, byte_codes, in_panels, middle, packed
from .integers import Quantised, quantised, unshifted
from .rewriting import Rewriting, rewrite

if TYPE_CHECKING:
    from codegen.target import Target

Lanes = Callable[[Value], int | None]  # of dot products that multiply rows by some words


def keep_weights_narrow(graph: Graph, lanes: int | None = None, most_row_bits: int = 32, registers: int = 32) -> Graph:
    """MatMul and Gemm of float32 by dequantised constants become products that read these constants:

    integers of 8 bits, one scale a column     ByteProduct, whose results are scaled
    numbers of 4 or 8 bits in blocks           BlockDots, if dot products of bytes compute whole vectors of `lanes` columns, of
                                               rows of `most_row_bits` at most; else BlockProduct; for more rows than there are
                                               `registers` for their sums, UnpackBlocks and MatMul

    Columns that are gathered from the same constants, and unpacked, are read from the panels of BlockDots (BlockColumns).
    """
    products = [c for c in graph.calls if c.operator == "BlockProduct"]
    by_dots = {c.values[1] for c in products if c.attribute("row_bits", 32) <= most_row_bits}
    most_rows = registers // REGISTERS_A_SUM  # of 2048 x 2048 of 4 bits on a Zen 3, 8 took 0.3 of unpacking first, 12 took 1.75

    def lanes_of(words: Value) -> int | None:
        return lanes if most_row_bits == 32 or words in by_dots else None

    return rewrite(graph, partial(_rule, lanes=lanes_of, most_rows=most_rows))


def dot_lanes(target: Target) -> tuple[int | None, int]:
    """The columns that a dot product of bytes computes at once, None where no instruction adds products; and the most bits of a
    row for which it pays. Without an instruction for four products, three digits take as long as floats."""
    machine = target.machine
    if not isinstance(machine, CPU) or not (has_dots(machine) or adds_pairs(machine)):
        return None, 32
    return machine.lanes(32), 32 if has_dots(machine) else 8


def vector_registers(target: Target) -> int:
    """The vector registers of a processor, or 32 registers of a GPU's threads, whose results they share out."""
    return target.machine.registers if isinstance(target.machine, CPU) else 32


def _rule(write: Rewriting, call: Call, lanes: Lanes, most_rows: int) -> Value | None:
    if call.operator == "UnpackBlocks":
        return _columns(write, call, lanes)
    if call.operator == "BlockProduct":
        rows, *given = call.values
        product = _of_blocks(write, rows, given, call.attribute("bits", 4), lanes, most_rows, call.attribute("row_bits", 32))
        return None if write.calls[-1].operator == call.operator else product
    if call.operator not in ("MatMul", "Gemm") or any(0 in v.shape for v in call.values) or len(call.values[1].shape) != 2:
        return None
    x, weight, transposed = *call.values[:2], bool(call.attribute("transB", 0))
    plain = not call.attribute("transA", 0) and all(call.attribute(n, 1.0) == 1.0 for n in ("alpha", "beta"))
    if not plain or len(x.shape) < 2 or x.dtype != "float32" or x.name in write.constants:
        return None
    rows = write("Reshape", x, shape=(prod(x.shape[:-1]), x.shape[-1]))
    made = _by_bytes(write, rows, weight, transposed) or _by_blocks(write, rows, weight, transposed, lanes, most_rows)
    if made is None:
        return None
    for bias in call.values[2:]:
        made = write("Add", made, bias)
    return write("Reshape", made, shape=call.outputs[0].shape)


def _by_bytes(write: Rewriting, rows: Value, weight: Value, transposed: bool) -> Value | None:
    """A product by integers of 8 bits with a scale for each column; None for other weights."""
    q: Quantised | None = quantised(write, weight)
    array = None if q is None else unshifted(write, q)
    if q is None or array is None or not isinstance(q.scale, np.ndarray) or not q.by(int(not transposed)):
        return None
    columns = np.ascontiguousarray(array.T) if transposed else array
    return write("Mul", write("ByteProduct", rows, write.constant(columns)), write.constant(q.scale.reshape(-1)))


def _by_blocks(write: Rewriting, rows: Value, weight: Value, transposed: bool, lanes: Lanes, most_rows: int) -> Value | None:
    """A product by numbers of 4 or 8 bits in blocks along the sum; None for other weights."""
    call = write.producer(weight, "DequantizeLinear")
    arrays = [] if call is None else [write.known(v) for v in call.values]
    if call is None or any(a is None for a in arrays) or call.attribute("axis", 1) % 2 != int(transposed):
        return None
    numbers, scales, *zeros = [a.T if transposed else a for a in arrays if a is not None]
    block = call.attribute("block_size", 0)
    if not block or scales.dtype != np.float32:
        return None
    wide, signed = numbers.astype(np.int32), numbers.dtype == np.int8
    for bits in BITS:
        shift = middle(bits) * signed
        if block * bits % 32 == 0 and wide.min() >= -shift and wide.max() + shift < 1 << bits:
            break
    else:
        return None
    given = [write.constant(a) for a in (packed(wide + shift, block, len(scales), bits), np.ascontiguousarray(scales))]
    if zeros or not shift:
        zero = zeros[0].astype(np.int32) + shift if zeros else np.zeros(scales.shape, np.int32)
        if zero.min() < 0:  # a zero point below all numbers of so many bits
            return None
        given.append(write.constant(np.ascontiguousarray(zero.astype(np.uint8))))
    return _of_blocks(write, rows, given, bits, lanes, most_rows)


def _of_blocks(
    write: Rewriting, rows: Value, given: Sequence[Value], bits: int, lanes: Lanes, most_rows: int, row_bits: int = 32
) -> Value:
    """A product by words, scales, and zero points."""
    panels = _panels(write, given, bits, lanes)
    if panels is not None and rows.dtype == "float32":
        return write("BlockDots", rows, *panels, bits=bits, digits=DIGITS[row_bits])
    if rows.shape[0] <= most_rows:
        return write("BlockProduct", rows, *given, bits=bits)
    return write("MatMul", rows, write("UnpackBlocks", *given, length=rows.shape[1], bits=bits))


def _panels(write: Rewriting, given: Sequence[Value], bits: int, lanes: Lanes) -> list[Value] | None:
    """Constant words, scales and zero points as panels of codes, the same each time, if dot products compute their columns."""
    words, scales, *_ = given
    count = lanes(words)
    if count is None or words.shape[2] % count or words.shape[1] * 32 // bits > MAX_BLOCK or scales.dtype != "float32":
        return None
    if any(write.known(v) is None for v in given):
        return None
    panel = dot_columns(words.shape[2], count)
    codes = write.derived(words, f"panels of {bits}", lambda a: in_panels(byte_codes(a, bits), 2, panel))
    return [codes, *(write.derived(v, "panels", lambda a: in_panels(_halved(a), 1, panel)) for v in given[1:])]


def _halved(array: np.ndarray) -> np.ndarray:
    """Floats in float16 where that has all of them exactly, as scales of files: they are read with each product."""
    with np.errstate(over="ignore"):
        half = array.astype(np.float16)
    return half if array.dtype == np.float32 and np.array_equal(half, array) else array


def _columns(write: Rewriting, call: Call, lanes: Lanes) -> Value | None:
    """Some columns of constant weights in blocks, as of a table of embeddings, from the panels that products read."""
    gathers = [write.producer(v, "Gather") for v in call.values]
    axes = [None if g is None else g.attribute("axis", 0) % len(g.values[0].shape) for g in gathers]
    known = [g.values for g in gathers if g is not None]
    if axes != [2, *[1] * (len(axes) - 1)] or len({indices for _, indices in known}) != 1 or len(known[0][1].shape) != 1:
        return None
    bits = call.attribute("bits", 4)
    panels = _panels(write, [table for table, _ in known], bits, lanes)
    if panels is None:
        return None
    codes, scales, *zeros = panels
    return write("BlockColumns", codes, scales, known[0][1], *zeros, length=call.attribute("length"), bits=bits)
