"""Sums of products of narrow numbers in one instruction: VPDPBUSD (uint8 · int8 into int32), VDPBF16PS (bfloat16 into float32).
Those of int8 · int8 take two: (b + 128) a - 128 a, where the subtrahend serves all vectors of columns. Those of int16 take
VPMADDWD and an addition; those of uint8 · int8, each two clamped to 16 bits, VPMADDUBSW before them. Without VPDPBUSD, bytes of 7
bits take these, too; bytes of 8 bits take two VPMADDWD, as int16.

In lanes i = 0, 1, ... such a sum is  c[i] + a[0] * b[i, 0] + a[1] * b[i, 1] + ..., the operands converted to the type of c. Each
operand is the same in all lanes, or has the elements of a lane side by side.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tir import dtypes
from tir.ir import Binary, Cast, Const, Expr, Load

from .values import Value

if TYPE_CHECKING:
    from .arithmetic import Arithmetic
    from .values import AccessAddress


@dataclass(frozen=True, slots=True)
class DotInstruction:
    """A dot product of `count` pairs into one element of type `total`. `takes` has the pairs of types, the first in either order.
    `name`, `operand` and the sets of `features`, of which it needs one, depend on the number of lanes. Unless `adds`, it has no
    addend. With `clamps`, the sum of each two products is clamped to 16 bits."""

    total: str
    count: int
    takes: tuple[tuple[str, str], ...]
    name: Callable[[int], str]
    accumulator: str
    element: str
    operand: Callable[[int], str]
    features: Callable[[int], tuple[tuple[str, ...], ...]]  # any of these sets
    adds: bool = True
    clamps: bool = False


PMADDUBSW = {4: "ssse3.pmadd.ub.sw.128", 8: "avx2.pmadd.ub.sw", 16: "avx512.pmaddubs.w.512"}
PMADDWD = {4: "sse2.pmadd.wd", 8: "avx2.pmadd.wd", 16: "avx512.pmaddw.d.512"}
PAIRS_OF_BYTES = {4: "ssse3", 8: "avx2", 16: "avx512bw"}  # the feature with both of these
INSTRUCTIONS = (
    DotInstruction(
        "int32", 4, (("uint8", "int8"), ("int8", "int8")), lambda lanes: f"llvm.x86.avx512.vpdpbusd.{32 * lanes}", "i32", "i8",
        lambda lanes: f"<{lanes} x i32>",
        lambda lanes: (("avx512vnni",),) if lanes == 16 else (("avx512vnni", "avx512vl"), ("avxvnni",)),
    ),
    DotInstruction(
        "float32", 2, (("bfloat16", "bfloat16"),), lambda lanes: f"llvm.x86.avx512bf16.dpbf16ps.{32 * lanes}", "float", "i16",
        lambda lanes: f"<{2 * lanes} x bfloat>",
        lambda lanes: (("avx512bf16",),) if lanes == 16 else (("avx512bf16", "avx512vl"),),
    ),
    DotInstruction(
        "int32", 2, (("int16", "int16"),), lambda lanes: f"llvm.x86.{PMADDWD[lanes]}", "i32", "i16",
        lambda lanes: f"<{2 * lanes} x i16>",
        lambda lanes: (({4: "sse2", 8: "avx2", 16: "avx512bw"}[lanes],),), adds=False,
    ),
    DotInstruction(
        "int32", 4, (("uint8", "int8"),), lambda lanes: f"llvm.x86.{PMADDUBSW[lanes]}", "i16", "i8",
        lambda lanes: f"<{4 * lanes} x i8>",
        lambda lanes: ((PAIRS_OF_BYTES[lanes],),), adds=False, clamps=True,
    ),
)  # fmt: skip

INT16 = dtypes.limits("int16")
OFFSET_BITS = -0x7F7F7F80  # 128 in each of four bytes, as an int32: by exclusive or it turns an int8 into that plus 128, a uint8


def product(writer: Arithmetic, e: Binary) -> Value | None:
    """The value of a sum that is such a dot product; None for another sum, or where the processor lacks the instruction.

    The order of the products is that of the instruction: any for integers, the last pair first for bfloat16.
    """
    if writer.lane is None or writer.mask is not None or writer.load_condition is not None or writer.may_be_empty:
        return None
    lanes = writer.lane[1]
    if lanes not in (4, 8, 16):
        return None
    for instruction in INSTRUCTIONS:
        if instruction.total == e.dtype and (found := _terms(e, instruction)) is not None:
            break
    else:
        return None
    rest, pairs = found
    known = writer.module.target.features
    whole = any(known.issuperset(wanted) for wanted in instruction.features(lanes))
    if not whole and not (instruction.count == 4 and instruction.adds and PAIRS_OF_BYTES[lanes] in known):
        return None
    addresses = [[writer.address_of(p[side]) for p in pairs] for side in (0, 1)]
    runs = [_adjacent(side, instruction.count) for side in addresses]
    if runs[0] is None or runs[1] is None or runs[0][1] != runs[1][1]:
        return None
    if e.dtype == "float32" and runs[0][1] != list(range(instruction.count))[::-1]:
        return None
    accumulator = writer.splat(writer.as_type(writer.expr(rest), e.dtype))
    operands = [_operand(writer, start, instruction, lanes) for start, _ in runs]  # type: ignore[misc]
    if not whole:
        return writer.binary("add", accumulator, _of_pairs(writer, pairs[0], operands, lanes))
    name = instruction.name(lanes)
    if not instruction.adds:
        added = _clamped(writer, operands, lanes) if instruction.clamps else writer.invoke(name, "i32", lanes, *operands)
        return writer.binary("add", accumulator, added)
    if pairs[0][0].dtype == pairs[0][1].dtype == "int8":
        if addresses[0][0].stride == 0:
            operands.reverse()
        shifted, other = operands
        bits = Value(f"splat (i32 {OFFSET_BITS})", shifted.type)
        operands[0] = writer.op(f"xor {shifted}, {bits.name}", shifted.type, key=("shifted", shifted.name))
        nothing = Value("zeroinitializer", instruction.accumulator, lanes)
        excess = writer.invoke(name, instruction.accumulator, lanes, nothing, bits, other, key=("excess", other.name))
        accumulator = writer.binary("sub", accumulator, excess)
    return writer.invoke(name, instruction.accumulator, lanes, accumulator, *operands)


def _clamped(writer: Arithmetic, operands: Sequence[Value], lanes: int) -> Value:
    """The sums of four products of bytes, each two clamped to 16 bits."""
    pairs = writer.invoke(f"llvm.x86.{PMADDUBSW[lanes]}", "i16", 2 * lanes, *operands)
    return writer.invoke(f"llvm.x86.{PMADDWD[lanes]}", "i32", lanes, pairs, Value("splat (i16 1)", "i16", 2 * lanes))


def _of_pairs(writer: Arithmetic, pair: tuple[Load, Load], operands: list[Value], lanes: int) -> Value:
    """The sums of four products of bytes by sums of pairs. VPMADDUBSW has sums of int16, which hold two products of 7 bits by 8;
    bytes of 8 bits are extended, those of even and of odd places apart."""
    words, pairwise = f"<{2 * lanes} x i16>", f"llvm.x86.{PMADDWD[lanes]}"

    def op(text: str, type: str) -> Value:
        return writer.op(text, type, key=text)

    if writer.largest.get(pair[0].buffer.name, 255) < 128 and pair[0].dtype == "uint8":
        small = f"<{4 * lanes} x i8>"
        given = [op(f"bitcast {x} to {small}", small) for x in operands]
        return _clamped(writer, given, lanes)

    def halves(x: Value, dtype: str) -> tuple[Value, Value]:
        both = op(f"bitcast {x} to {words}", words)
        if dtype == "uint8":
            return op(f"and {both}, splat (i16 255)", words), op(f"lshr {both}, splat (i16 8)", words)
        high = op(f"shl {both}, splat (i16 8)", words)
        return op(f"ashr {high}, splat (i16 8)", words), op(f"ashr {both}, splat (i16 8)", words)

    extended = [halves(x, load.dtype) for x, load in zip(operands, pair, strict=True)]
    even, odd = (writer.invoke(pairwise, "i32", lanes, *factors) for factors in zip(*extended, strict=True))
    return writer.binary("add", even, odd)


def _terms(e: Expr, instruction: DotInstruction) -> tuple[Expr, list[tuple[Load, Load]]] | None:
    """The addend, and the pairs of loads whose products are added, the first of the instruction's operands first."""
    pairs: list[tuple[Load, Load]] = []
    while len(pairs) < instruction.count:
        match e:
            case Binary("+", rest, Binary("min", Binary("max", Binary("+", first, second), Const(low)), Const(high))):
                terms = [second, first]
                if not instruction.clamps or (low, high) != INT16:
                    return None
            case Binary("+", rest, Binary("*") as only) if not instruction.clamps:
                terms = [only]
            case _:
                return None
        for term in terms:
            match term:
                case Binary("*", Cast(_, Load() as x), Cast(_, Load() as y)):
                    if (y.dtype, x.dtype) == instruction.takes[0]:
                        x, y = y, x
                    if (x.dtype, y.dtype) not in instruction.takes:
                        return None
                    pairs.append((x, y))
                case _:
                    return None
        e = rest
    return (e, pairs[::-1]) if len({(x.dtype, y.dtype) for x, y in pairs}) == 1 else None


def _adjacent(addresses: list[AccessAddress], count: int) -> tuple[AccessAddress, list[int]] | None:
    """The first address, and the order of all, if they are adjacent, either for all lanes or for each."""
    first = addresses[0]
    if any(p.stride not in (0, count) or p.stride != first.stride for p in addresses):
        return None
    buffer = first.access.buffer
    if buffer.scope == "register" or any(p.nested or p.access.buffer.name != buffer.name for p in addresses):
        return None
    moving = {m: c for m, c in first.offset.items() if m}
    if any({m: c for m, c in p.offset.items() if m} != moving or p.copies != first.copies for p in addresses):
        return None
    offsets = [p.offset.get((), 0) for p in addresses]
    order = [o - min(offsets) for o in offsets]
    if sorted(order) != list(range(count)):
        return None
    return addresses[order.index(0)], order


def _operand(writer: Arithmetic, address: AccessAddress, instruction: DotInstruction, lanes: int) -> Value:
    """An operand of the instruction: `count` elements for each lane."""
    pointer = writer.pointer_to(address)
    buffer = address.access.buffer
    align, version = dtypes.nbytes(buffer.dtype), writer.versions.get(buffer.name, 0)
    operand = instruction.operand(lanes)
    if address.stride:
        return writer.op(f"load {operand}, ptr {pointer}, align {align}", operand, key=("dot", pointer, version, lanes))
    four = writer.op(f"load i32, ptr {pointer}, align {align}", "i32", key=("dot", pointer, version))
    all_lanes = writer.splat(four, lanes)
    if operand == all_lanes.full:
        return all_lanes
    return writer.op(f"bitcast {all_lanes} to {operand}", operand, key=("dot", all_lanes.name))
