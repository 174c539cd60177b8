"""Sums of products of narrow numbers in one instruction of the table in `schedule/intrinsics/dots.py`.

Where the processor has none for the signs of two bytes, one operand changes its sign:  a b = (a ± 128) b ∓ 128 b. That is one
instruction more, whose result serves all vectors of columns. Those of int16 take VPMADDWD and an addition; those of uint8 · int8,
each two clamped to 16 bits, VPMADDUBSW before them. Without VPDPBUSD, bytes of 7 bits take these, too; bytes of 8 bits take two
VPMADDWD, as int16.

In lanes i = 0, 1, ... such a sum is  c[i] + a[0] * b[i, 0] + a[1] * b[i, 1] + ..., the operands converted to the type of c. Each
operand is the same in all lanes, or has the elements of a lane side by side.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from schedule.intrinsics.dots import LETTERS, Dot, find_dot
from tir import dtypes
from tir.ir import Binary, Cast, Const, Expr, Load

from .values import Value

if TYPE_CHECKING:
    from .arithmetic import Arithmetic
    from .values import AccessAddress

# By the name of an instruction: LLVM's intrinsics, by lanes, and the type of an element of their operands.
INTRINSICS = {
    "vpdpbusd": ({8: "x86.avx512.vpdpbusd.256", 16: "x86.avx512.vpdpbusd.512"}, "i32"),
    "vdpbf16ps": ({8: "x86.avx512bf16.dpbf16ps.256", 16: "x86.avx512bf16.dpbf16ps.512"}, "bfloat"),
    "vpmaddwd": ({8: "x86.avx2.pmadd.wd", 16: "x86.avx512.pmaddw.d.512"}, "i16"),
    "vpmaddubsw": ({8: "x86.avx2.pmadd.ub.sw", 16: "x86.avx512.pmaddubs.w.512"}, "i8"),
    "bfdot": ({4: "aarch64.neon.bfdot.v4f32.v8bf16"}, "bfloat"),
    **{name: ({4: f"aarch64.neon.{name}.v4i32.v16i8"}, "i8") for name in ("sdot", "udot", "usdot")},
}
BITS = {"i32": 32, "float": 32, "bfloat": 16, "i16": 16, "i8": 8}
OFFSET = 128  # between the numbers of both signs
OTHER_SIGN = {"int8": "uint8", "uint8": "int8"}
INT16 = dtypes.limits("int16")
OFFSET_BITS = {"i32": -0x7F7F7F80, "i8": -128}  # 128 in each byte: by exclusive or it turns int8 into uint8, or back
CLAMPED, PAIRED = "clamped", "paired"  # sums of two products each, which are clamped to 16 bits or not, before the addend


def product(writer: Arithmetic, e: Binary) -> Value | None:
    """The value of a sum that is such a dot product; None for another sum, or where the processor lacks the instruction.

    The order of the products is that of the instruction: any for integers; for bfloat16 the last first (VDPBF16PS), or both
    before the addend (BFDOT).
    """
    if writer.lane is None or writer.mask is not None or writer.load_condition is not None or writer.may_be_empty:
        return None
    lanes, found, features = writer.lane[1], _terms(e), writer.module.target.features
    if found is None:
        return None
    rest, pairs, form = found
    kinds = [x.dtype for x in pairs[0]]
    choices: list[tuple[Dot, int | None]] = []  # instructions, and the operand whose sign changes for them
    for side in (None,) if form == CLAMPED else (None, 0, 1):
        left, right = (OTHER_SIGN.get(kind, kind) if n == side else kind for n, kind in enumerate(kinds))
        dot = find_dot(left, right, lanes, features, form == CLAMPED)
        if dot is not None and dot.total == e.dtype and (e.dtype == "int32" or (form == PAIRED) == (dot.name == "bfdot")):
            choices.append((dot, side))
    splits = e.dtype == "int32" and not form and "int8" in kinds and find_dot("int16", "int16", lanes, features)
    if not choices and not splits:
        return None
    runs = [_adjacent([writer.address_of(x) for x in side]) for side in zip(*pairs, strict=True)]
    (first, order), (second, other) = runs
    if not order or order != other or (e.dtype == "float32" and not form and order != sorted(order)[::-1]):
        return None
    accumulator, starts = writer.splat(writer.as_type(writer.expr(rest), e.dtype)), [first, second]
    if not choices:
        operands = [_operand(writer, start, "i32", lanes) for start in starts]
        return writer.binary("add", accumulator, _of_pairs(writer, pairs[0], operands, lanes))
    # A sign changes where it must: best of numbers of 7 bits, then in lanes, whose other operand serves all vectors.
    small = [x.dtype == "uint8" and writer.largest.get(x.buffer.name, 255) < OFFSET for x in pairs[0]]
    dot, side = min(choices, key=lambda c: (0, 0) if c[1] is None else (2 - small[c[1]], starts[c[1]].stride == 0))
    operands = [_operand(writer, start, INTRINSICS[dot.name][1], lanes) for start in starts]
    if dot.name == "vpmaddwd":
        return writer.binary("add", accumulator, _invoke(writer, dot.name, lanes, "i32", *operands))
    if dot.clamps:
        return writer.binary("add", accumulator, _clamped(writer, operands, lanes))
    element, total = INTRINSICS[dot.name][1], "float" if dot.total == "float32" else "i32"
    changed = [OTHER_SIGN[kind] if n == side else kind for n, kind in enumerate(kinds)]
    turned = slice(None, None, 1 if changed == [dot.left, dot.right] else -1)
    if side is not None and not small[side]:
        shifted, factor = operands[side], operands[1 - side]
        bits = Value(f"splat ({element} {OFFSET_BITS[element]})", shifted.type)
        operands[side] = writer.op(f"xor {shifted}, {bits.name}", shifted.type, key=("shifted", shifted.name))
        factors = [bits if n == side else factor for n in (0, 1)]
        nothing = Value("zeroinitializer", total, lanes)
        excess = _invoke(writer, dot.name, lanes, total, nothing, *factors[turned], key=("excess", factor.name))
        accumulator = writer.binary("sub", accumulator, excess)
    return _invoke(writer, dot.name, lanes, total, accumulator, *operands[turned])


def _invoke(writer: Arithmetic, name: str, lanes: int, type: str, *arguments: Value, key: object = None) -> Value:
    """The result of an instruction for vectors of so many lanes of 32 bits, in elements of a type."""
    return writer.invoke(f"llvm.{INTRINSICS[name][0][lanes]}", type, lanes * 32 // BITS[type], *arguments, key=key)


def _clamped(writer: Arithmetic, operands: Sequence[Value], lanes: int) -> Value:
    """The sums of four products of bytes, each two clamped to 16 bits."""
    pairs = _invoke(writer, "vpmaddubsw", lanes, "i16", *operands)
    return _invoke(writer, "vpmaddwd", lanes, "i32", pairs, Value("splat (i16 1)", "i16", 2 * lanes))


def _of_pairs(writer: Arithmetic, pair: tuple[Load, Load], operands: list[Value], lanes: int) -> Value:
    """The sums of four products of bytes by sums of pairs. VPMADDUBSW has sums of int16, which hold two products of 7 bits by 8;
    bytes of 8 bits are extended, those of even and of odd places apart."""
    words = f"<{2 * lanes} x i16>"

    def op(text: str, type: str) -> Value:
        return writer.op(text, type, key=text)

    if writer.largest.get(pair[0].buffer.name, 255) < OFFSET and pair[0].dtype == "uint8":
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
    even, odd = (_invoke(writer, "vpmaddwd", lanes, "i32", *factors) for factors in zip(*extended, strict=True))
    return writer.binary("add", even, odd)


def _terms(e: Expr) -> tuple[Expr, list[tuple[Load, Load]], str] | None:
    """The addend, the pairs of loads whose products are added, a uint8 before an int8, and the form of their sum."""
    pairs: list[tuple[Load, Load]] = []
    forms, count = set[str](), 1
    while len(pairs) < count:
        match e:
            case Binary("+", rest, Binary("min", Binary("max", Binary("+", first, second), Const(low)), Const(high))):
                if (low, high) != INT16:
                    return None
                terms, form = [second, first], CLAMPED
            case Binary("+", rest, Binary("+", first, second)):
                terms, form = [second, first], PAIRED
            case Binary("+", rest, Binary("*") as only):
                terms, form = [only], ""
            case _:
                return None
        for term in terms:
            match term:
                case Binary("*", Cast(_, Load() as x), Cast(_, Load() as y)) if {x.dtype, y.dtype} <= LETTERS.keys():
                    pairs.append((y, x) if (x.dtype, y.dtype) == ("int8", "uint8") else (x, y))
                case _:
                    return None
        count = 32 // dtypes.bits(pairs[0][0].dtype)
        forms.add(form)
        e = rest
    same = len({(x.dtype, y.dtype) for x, y in pairs}) == len(forms) == 1 and len(pairs) == count
    return (e, pairs[::-1], form) if same else None


def _adjacent(addresses: Sequence[AccessAddress]) -> tuple[AccessAddress, list[int]]:
    """The first address, and the order of all if they are adjacent, either for all lanes or for each; no order if not."""

    def place(p: AccessAddress) -> object:
        return p.access.buffer.name, p.stride, p.copies, {m: c for m, c in p.offset.items() if m}

    offsets = [p.offset.get((), 0) for p in addresses]
    first, order = addresses[offsets.index(min(offsets))], [o - min(offsets) for o in offsets]
    apart = any(p.nested or place(p) != place(first) for p in addresses) or sorted(order) != list(range(len(order)))
    return first, [] if apart or first.stride not in (0, len(order)) or first.access.buffer.scope == "register" else order


def _operand(writer: Arithmetic, address: AccessAddress, element: str, lanes: int) -> Value:
    """An operand of an instruction: 32 bits for each lane."""
    pointer = writer.pointer_to(address)
    buffer = address.access.buffer
    align, version = dtypes.nbytes(buffer.dtype), writer.versions.get(buffer.name, 0)
    operand = f"<{32 * lanes // BITS[element]} x {element}>"
    if address.stride:
        return writer.op(f"load {operand}, ptr {pointer}, align {align}", operand, key=("dot", pointer, version, lanes))
    four = writer.op(f"load i32, ptr {pointer}, align {align}", "i32", key=("dot", pointer, version))
    all_lanes = writer.splat(four, lanes)
    if operand == all_lanes.full:
        return all_lanes
    return writer.op(f"bitcast {all_lanes} to {operand}", operand, key=("dot", all_lanes.name))
