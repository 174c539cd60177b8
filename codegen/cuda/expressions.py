"""Expressions as CUDA C."""

from __future__ import annotations

import math
from collections.abc import Mapping
from math import prod

from schedule.machine import MAX_ACCESS_BYTES
from tir import dtypes
from tir.analysis.positions import position
from tir.arith.bounds import bounds
from tir.arith.intervals import Interval, expr_bounds
from tir.arith.polynomial import Polynomial, coefficient, polynomial, to_expr
from tir.arith.simplify import simplify, wraps
from tir.ir import COMPARISONS, Binary, Buffer, Call, Cast, Const, Expr, Load, Select, Unary, Var, cast
from tir.memory import SHARED
from tir.traverse import substitute, variables

from ..passes.cross_thread_reduction import SHUFFLE
from ..passes.multiply_by_reciprocals import INVERSE
from ..passes.warp_memory import TF32
from .banks import ThreadAccess

# Types of elements in memory, and of values. Halves are bits in memory and floats in registers, rounded after each operation.
_SIGNED = {64: "long long", 32: "int", 16: "short", 8: "signed char"}
_UNSIGNED = {64: "unsigned long long", 32: "unsigned int", 16: "unsigned short", 8: "unsigned char"}
_BY_KIND = {"float": {64: "double", 32: "float", 16: "unsigned short"}, "int": _SIGNED, "uint": _UNSIGNED, "bool": {8: "bool"}}
STORAGE = {d.name: _BY_KIND[d.kind][d.bits] for d in dtypes.TABLE.values()}
VALUE = {dtype: STORAGE[dtypes.computed(dtype)] for dtype in STORAGE}
UNSIGNED = {"int32": "unsigned int", "int64": "unsigned long long"}
OPERATORS = {"and": ("&&", 2), "or": ("||", 1), "==": ("==", 3), "!=": ("!=", 3), "<": ("<", 4), "<=": ("<=", 4), ">": (">", 4),
             ">=": (">=", 4), "+": ("+", 5), "-": ("-", 5), "*": ("*", 6), "/": ("/", 6)}  # fmt: skip
BITS = {"bit_and": "&", "bit_or": "|", "bit_xor": "^", "shr": ">>"}
ATOM = 9
MIN_LONG_OFFSET = 2**31  # elements from which an offset needs 64 bits


class ExpressionWriter:
    """Writes expressions. `names` has the C names of variables and buffers, `lanes` the registers of vector loads. `bound` has
    the values of bound variables, `unrolled` the extents of unrolled loops, and `accesses` all of shared and global memory."""

    def __init__(self, names: Mapping[str, str], ranges: dict[str, Interval]):
        self.names, self.ranges = names, ranges
        self.lanes: dict[Load, str] = {}
        self.bound: dict[str, Expr] = {}
        self.unrolled: dict[Var, int] = {}
        self.accesses: dict[ThreadAccess, None] = {}
        self.held: dict[Expr, bool] = {}

    def __call__(self, e: Expr) -> str:
        return self.at(e, 0)

    def stored(self, e: Expr, dtype: str) -> str:
        """The value of an expression as a type is stored; that of an element as it is."""
        if isinstance(e, Load) and e.dtype == dtype:
            return self.lanes[e] if e in self.lanes else self.element(e.buffer, e.indices)
        return f"{dtype}_bits({self(e)})" if dtypes.is_half(dtype) else self(e)

    def at(self, e: Expr, outer: int) -> str:
        """The expression, in parentheses where it binds less than `outer`."""
        text, own = self._text(self._exact(e))
        return f"({text})" if own < outer else text

    def _exact(self, e: Expr) -> Expr:
        """An operation on int32, in 64 bits where its indices may not fit in 32."""
        match e:
            case Binary(op, a, b) if a.dtype == "int32" and op not in COMPARISONS:
                operands: tuple[Expr, ...] = (a, b)
            case Select(_, a, b) if a.dtype == "int32":
                operands = (a, b)
            case Unary("neg", a) if a.dtype == "int32":
                operands = (a,)
            case Call("abs" | "shr", (Expr(dtype="int32"), *_) as operands):
                pass
            case _:
                return e
        if all(wraps(x) or self.fits(x) for x in operands) and (wraps(e) or self.fits(e)):
            return e
        match e:
            case Binary("+" | "-" | "*") if wraps(e):
                return e  # the result is cut
            case Call(op, args):
                wide: Expr = Call(op, tuple(map(in_64_bits, args)), "int64")
            case _:
                wide = in_64_bits(e)
        return Cast("int32", wide) if wraps(e) else wide

    def fits(self, index: Expr) -> bool:
        """True where 32 bits hold all values of an index."""
        if index not in self.held:
            (low, high), (least, most) = expr_bounds(index, self.ranges), dtypes.limits("int32")
            self.held[index] = low is not None and high is not None and least <= low and high <= most
        return self.held[index]

    def _text(self, e: Expr) -> tuple[str, int]:
        match e:
            case Const():
                return literal(e)
            case Var(name):
                return self.names[name], ATOM
            case Load():
                if e in self.lanes:
                    return from_storage(self.lanes[e], e.dtype), ATOM
                return from_storage(self.element(e.buffer, e.indices), e.dtype), ATOM
            case Cast(dtype, value):
                return self._cast(dtype, value)
            case Select(c, t, f):
                return f"{self.at(c, 1)} ? {self.at(t, 1)} : {self.at(f, 1)}", 0
            case Call(op, args):
                return self._call(op, args, e.dtype), ATOM
            case Unary("not", a):
                return f"!{self.at(a, 8)}", 7
            case Unary(_, a):
                if dtypes.is_int(e.dtype) and wraps(e):
                    return self._wrapped("-", "0", self.at(a, 8), e.dtype), 7
                return f"-{self.at(a, 8)}", 7
            case Binary(op, a, b):
                return self._binary(e, op, a, b)
            case _:
                raise TypeError(f"`{e}` has no form in CUDA C")

    def _binary(self, e: Binary, op: str, a: Expr, b: Expr) -> tuple[str, int]:
        kind = VALUE[a.dtype]
        if op in ("min", "max"):
            return f"{op}imum<{kind}>({self(a)}, {self(b)})", ATOM
        if op in ("//", "%"):
            if dtypes.is_float(a.dtype):
                name = "float_quotient" if op == "//" else "float_remainder"
                return rounded_to_half(f"{name}<{kind}>({self(a)}, {self(b)})", a.dtype), ATOM
            (low, _), (least, _) = self.bounds(a), self.bounds(b)
            if a.dtype.startswith("u") or (low is not None and low >= 0 and least is not None and least > 0):
                return f"{self.at(a, 6)} {'/' if op == '//' else '%'} {self.at(b, 7)}", 6
            return f"floor{'div' if op == '//' else 'mod'}<{kind}>({self(a)}, {self(b)})", ATOM
        if op == "/" and isinstance(b, Const) and (inverse := _exact_inverse(b)) is not None:
            op, b = "*", inverse
        if op == "/" and kind == "float":
            return rounded_to_half(f"quotient({self(a)}, {self(b)})", a.dtype), ATOM
        symbol, own = OPERATORS[op]
        if op in COMPARISONS or op in ("and", "or"):
            return f"{self.at(a, own)} {symbol} {self.at(b, own + 1)}", own
        if dtypes.is_int(a.dtype) and wraps(e):
            return self._wrapped(symbol, self.at(a, own), self.at(b, own + 1), a.dtype), 7
        text = f"{self.at(a, own)} {symbol} {self.at(b, own + 1)}"
        return (rounded_to_half(text, a.dtype), ATOM) if dtypes.is_half(a.dtype) else (text, own)

    def _wrapped(self, symbol: str, a: str, b: str, dtype: str) -> str:
        """An operation that may wrap around, in unsigned arithmetic: signed overflow is undefined in C."""
        if dtype in UNSIGNED:
            kind = UNSIGNED[dtype]
            return f"({VALUE[dtype]})(({kind})({a}) {symbol} ({kind})({b}))"
        return f"({VALUE[dtype]})({a} {symbol} {b})"

    def bounds(self, e: Expr) -> Interval:
        return (None, None) if wraps(e) and not isinstance(e, Const) else bounds(e, self.ranges)

    def _cast(self, dtype: str, value: Expr) -> tuple[str, int]:
        origin = value.dtype
        if dtype == "bool":
            return f"{self.at(value, 4)} != 0", 3
        if dtypes.is_half(dtype):
            text = self(value) if VALUE[origin] == "float" else f"(float)({self(value)})"
            return rounded_to_half(text, dtype), ATOM
        if dtypes.is_half(origin) and dtype == "float32":
            return self._text(value)
        if dtypes.is_float(origin) and dtypes.is_int(dtype):
            low, high = (literal(Const(int(n), dtype))[0] for n in dtypes.limits(dtype))
            return f"saturated<{VALUE[dtype]}>({self(value)}, {low}, {high})", ATOM
        return f"({VALUE[dtype]}){self.at(value, 8)}", 7

    def _call(self, op: str, args: tuple[Expr, ...], dtype: str) -> str:
        texts = [self(a) for a in args]
        if op == SHUFFLE:
            return f"__shfl_xor_sync({int(args[2].value):#x}u, {texts[0]}, {texts[1]})"  # type: ignore[attr-defined]
        if op in (TF32, INVERSE):
            return f"{op}({texts[0]})"
        if op == "abs" and dtypes.is_int(dtype):
            return f"({VALUE[dtype]})magnitude<{VALUE[dtype]}>({texts[0]})"
        if op == "popcount":
            return f"({VALUE[dtype]}){'__popcll' if dtype == 'uint64' else '__popc'}({texts[0]})"
        if op == "shl":
            return f"({self._wrapped('<<', texts[0], texts[1], dtype)})"
        if op in BITS:
            return f"(({texts[0]}) {BITS[op]} ({texts[1]}))"
        if op == "sigmoid":
            return rounded_to_half(f"sigmoid<{VALUE[dtype]}>({texts[0]})", dtype)
        name, suffix = "fabs" if op == "abs" else op, "" if dtype == "float64" else "f"
        return rounded_to_half(f"{name}{suffix}({', '.join(texts)})", dtype)

    # places

    def element(self, buffer: Buffer, indices: tuple[Expr, ...]) -> str:
        """An element as an lvalue."""
        return f"{self.names[buffer.name]}[{self.offset(buffer, indices, dtypes.nbytes(buffer.dtype))}]"

    def offset(self, buffer: Buffer, indices: tuple[Expr, ...], width: int) -> str:
        """The offset of an element, at which each thread moves `width` bytes."""
        return self.start(flat_offset(buffer, indices, self.ranges), buffer, width)

    def start(self, offset: Expr, buffer: Buffer, width: int) -> str:
        """The row-major `offset` as C, at which each thread moves `width` bytes."""
        if buffer.scope in SHARED or buffer.scope == "global":
            self.touch(substitute(offset, self.bound), dtypes.nbytes(buffer.dtype), width, buffer.scope in SHARED)
        return self(wide_offset(offset, buffer))

    def touch(self, offset: Expr, size: int, width: int, shared: bool) -> None:
        """Note an access to shared or global memory. The assembler joins neighbouring loads of an unrolled loop."""
        places = polynomial(offset)
        for lane, n in self.unrolled.items():
            if width == size and lane.name in variables(offset) and (found := bytes_at_once(places, lane, n, size)):
                offset, width = substitute(offset, {lane: Const(0, lane.dtype)}), found
        self.accesses[ThreadAccess(simplify(offset, self.ranges), size, width, shared)] = None


def bytes_at_once(places: Polynomial, lane: Var, n: int, size: int) -> int:
    """Bytes that can move at once where lanes 0 to n - 1 access consecutive elements of `size` bytes; else 0."""
    if coefficient(places, lane.name) != 1:
        return 0
    base = [c for m, c in places.items() if lane not in m]
    step = MAX_ACCESS_BYTES // size
    while step > 1 and (n % step or any(c % step for c in base)):
        step //= 2
    return step * size if step > 1 else 0


def flat_offset(buffer: Buffer, indices: tuple[Expr, ...], ranges: Mapping[str, Interval]) -> Expr:
    """The row-major offset of an element."""
    if _large(buffer):  # an index that wraps in 32 bits is converted to 64 as a whole
        indices = tuple(Cast("int64", i) if wraps(i) and i.dtype == "int32" else i for i in indices)
    return simplify(to_expr(position(buffer, indices)), ranges)


def wide_offset(offset: Expr, buffer: Buffer) -> Expr:
    """The offset, in 64 bits where the buffer may have too many elements for 32."""
    return in_64_bits(offset) if _large(buffer) else offset


def _large(buffer: Buffer) -> bool:
    return prod(int(d.value) if isinstance(d, Const) else MIN_LONG_OFFSET for d in buffer.shape) >= MIN_LONG_OFFSET


def in_64_bits(e: Expr) -> Expr:
    """An integer expression with its operations in 64 bits."""
    match e:
        case Const(value):
            return Const(value, "int64")
        case Binary(op, a, b):
            return Binary(op, in_64_bits(a), in_64_bits(b))
        case Unary(op, a):
            return Unary(op, in_64_bits(a))
        case Select(c, a, b, lazy):
            return Select(c, in_64_bits(a), in_64_bits(b), lazy)
        case _:
            return cast(e, "int64")


def literal(c: Const) -> tuple[str, int]:
    """A constant as C, and its precedence."""
    if c.dtype == "bool":
        return ("true" if c.value else "false"), ATOM
    if dtypes.is_float(c.dtype):
        suffix = "" if c.dtype == "float64" else "f"
        if not math.isfinite(c.value):
            bits = "0x7fc00000" if math.isnan(c.value) else "0x7f800000"
            return f"{'-' if c.value < 0 else ''}{'' if suffix else '(double)'}__int_as_float({bits})", 7
        return f"{c.value!r}{suffix}", 7 if c.value < 0 else ATOM
    suffix = {"int64": "ll", "uint64": "ull", "uint32": "u"}.get(c.dtype, "")
    if c.dtype == "int64" and c.value == -(2**63):
        return "(-9223372036854775807ll - 1)", ATOM
    if c.dtype == "int32" and c.value == -(2**31):
        return "(-2147483647 - 1)", ATOM
    return f"{c.value}{suffix}", 7 if c.value < 0 else ATOM


def _exact_inverse(c: Const) -> Const | None:
    """The reciprocal of a power of two, if both are normal numbers."""
    if not dtypes.is_float(c.dtype) or abs(math.frexp(c.value)[0]) != 0.5:
        return None
    return Const(1 / c.value, c.dtype) if min(abs(c.value), abs(1 / c.value)) >= dtypes.TABLE[c.dtype].tiny else None


def from_storage(element: str, dtype: str) -> str:
    return f"{dtype}_value({element})" if dtypes.is_half(dtype) else element


def rounded_to_half(text: str, dtype: str) -> str:
    """A float rounded to a half; other values unchanged."""
    return f"{dtype}_value({dtype}_bits({text}))" if dtypes.is_half(dtype) else text
