"""Straight-line LLVM IR functions, written with operators on their values."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

LONG = 8  # polynomials with more coefficients are split in two


@dataclass(frozen=True, slots=True)
class Type:
    """An LLVM type: `lanes` elements of the scalar type `scalar`; a plain scalar when `lanes` is 1."""

    scalar: str
    lanes: int

    def __str__(self) -> str:
        return self.scalar if self.lanes == 1 else f"<{self.lanes} x {self.scalar}>"

    @property
    def suffix(self) -> str:
        """How the names of overloaded intrinsics spell the type: f32, v16f32, v4i64."""
        scalar = {"float": "f32", "double": "f64"}.get(self.scalar, self.scalar)
        return scalar if self.lanes == 1 else f"v{self.lanes}{scalar}"

    @property
    def floating(self) -> bool:
        return self.scalar in ("float", "double")

    def constant(self, number: float) -> str:
        """`number` in every lane. LLVM reads the constants of both float and double as the hexadecimal bits of a float64."""
        if self.scalar == "float":
            number = struct.unpack("f", struct.pack("f", number))[0]
        text = f"0x{struct.unpack('Q', struct.pack('d', number))[0]:016X}" if self.floating else str(int(number))
        return text if self.lanes == 1 else f"splat ({self.scalar} {text})"


def _operator(opcode: str, reflected: bool = False) -> Callable[[Value, Operand], Value]:
    """The method of Value that writes one instruction; `reflected` where the value is the operand on the right."""

    def operate(self: Value, other: Operand) -> Value:
        return self.body.binary(opcode, *((other, self) if reflected else (self, other)))

    return operate


@dataclass(frozen=True, slots=True)
class Value:
    """An SSA value of a `Body`. The operators emit one instruction each; numbers on either side are splat."""

    type: Type
    text: str
    body: Body = field(repr=False)

    __add__, __radd__ = _operator("add"), _operator("add", reflected=True)
    __sub__, __rsub__ = _operator("sub"), _operator("sub", reflected=True)
    __mul__, __rmul__ = _operator("mul"), _operator("mul", reflected=True)
    __truediv__, __rtruediv__ = _operator("div"), _operator("div", reflected=True)
    __and__, __or__, __xor__ = _operator("and"), _operator("or"), _operator("xor")
    __lshift__ = _operator("shl")
    __rshift__ = _operator("lshr")  # logical: zeros come in from the left

    def __neg__(self) -> Value:
        return self.body.emit(self.type, f"fneg {self.type} {self.text}")


Operand = Value | float


@dataclass(slots=True)
class Body:
    """Straight-line LLVM IR under construction: the instructions so far and the intrinsics that they call."""

    avx512: bool = False
    lines: list[str] = field(default_factory=list)
    intrinsics: set[str] = field(default_factory=set)

    def emit(self, result: Type, instruction: str) -> Value:
        value = Value(result, f"%v{len(self.lines)}", self)
        self.lines.append(f"  {value.text} = {instruction}")
        return value

    def binary(self, opcode: str, a: Operand, b: Operand) -> Value:
        kind, left, right = _operands(a, b)
        return self.emit(kind, f"{'f' if kind.floating else ''}{opcode} {kind} {left}, {right}")

    def compare(self, predicate: str, a: Operand, b: Operand) -> Value:
        """A comparison. Of floats `o...` is false and `u...` is true where either side is NaN; of integers `u...` is unsigned."""
        kind, left, right = _operands(a, b)
        return self.emit(Type("i1", kind.lanes), f"{'fcmp' if kind.floating else 'icmp'} {predicate} {kind} {left}, {right}")

    def select(self, condition: Value, a: Operand, b: Operand) -> Value:
        kind, left, right = _operands(a, b)
        return self.emit(kind, f"select {condition.type} {condition.text}, {kind} {left}, {kind} {right}")

    def bitcast(self, value: Value, scalar: str) -> Value:
        return self.convert("bitcast", value, scalar)

    def convert(self, opcode: str, value: Value, scalar: str) -> Value:
        result = Type(scalar, value.type.lanes)
        return self.emit(result, f"{opcode} {value.type} {value.text} to {result}")

    def splat(self, kind: Type, number: float) -> Value:
        """`number` in every lane, where no operand beside it says the type."""
        return Value(kind, kind.constant(number), self)

    def lanes(self, value: Value, first: int, count: int) -> Value:
        """`count` lanes of a vector, from `first` on."""
        mask = ", ".join(f"i32 {k}" for k in range(first, first + count))
        kind = Type(value.type.scalar, count)
        return self.emit(kind, f"shufflevector {value.type} {value.text}, {value.type} poison, <{count} x i32> <{mask}>")

    def join(self, low: Value, high: Value) -> Value:
        """Two vectors of one type, one after the other."""
        kind = Type(low.type.scalar, 2 * low.type.lanes)
        mask = ", ".join(f"i32 {k}" for k in range(kind.lanes))
        return self.emit(kind, f"shufflevector {low.type} {low.text}, {high.type} {high.text}, <{kind.lanes} x i32> <{mask}>")

    def call(self, name: str, *arguments: Operand) -> Value:
        """Call the overloaded intrinsic `llvm.NAME`, whose arguments and result have one type."""
        kind, *texts = _operands(*arguments)
        function = f"@llvm.{name}.{kind.suffix}"
        self.intrinsics.add(f"declare {kind} {function}({', '.join([str(kind)] * len(texts))})")
        return self.emit(kind, f"call {kind} {function}({', '.join(f'{kind} {text}' for text in texts)})")

    def fma(self, a: Operand, b: Operand, c: Operand) -> Value:
        return self.call("fma", a, b, c)

    # Minimum and maximum with a number that pass NaN on, and are one instruction on x86 (minps returns its second operand there).

    def at_most(self, x: Value, bound: float) -> Value:
        return self.select(self.compare("ogt", x, bound), bound, x)

    def at_least(self, x: Value, bound: float) -> Value:
        return self.select(self.compare("olt", x, bound), bound, x)

    def polynomial(self, coefficients: Sequence[float], x: Value) -> Value:
        """The polynomial with `coefficients`, lowest degree first: Horner's rule, one fma a degree.

        With more than LONG coefficients, the even and the odd terms are two polynomials in x^2: two more instructions, half the
        latency. The two terms of lowest degree, on which the rounding depends, are left out of that.
        """
        if len(coefficients) > LONG:
            tail, square = coefficients[2:], x * x
            result = self.fma(self._horner(tail[1::2], square), x, self._horner(tail[::2], square))
            return self.fma(self.fma(result, x, coefficients[1]), x, coefficients[0])
        return self._horner(coefficients, x)

    def _horner(self, coefficients: Sequence[float], x: Value) -> Value:
        *rest, first, last = coefficients
        result = self.fma(x, last, first)
        for c in reversed(rest):
            result = self.fma(result, x, c)
        return result


def _operands(*operands: Operand) -> tuple:
    """The common type of the operands and the text of each; numbers take the type of the values beside them."""
    kind = next(x.type for x in operands if isinstance(x, Value))
    return kind, *(x.text if isinstance(x, Value) else kind.constant(x) for x in operands)


def function(
    name: str, parameters: Sequence[Type], write: Callable[..., Value], avx512: bool = False
) -> tuple[str, frozenset[str]]:
    """The LLVM IR of an internal function that is to be inlined, and the `declare` lines of the intrinsics that it calls.

    `write(body, *arguments)` writes its instructions, and returns its result.
    """
    body = Body(avx512)
    arguments = [Value(kind, text, body) for kind, text in zip(parameters, ("%x", "%y"), strict=False)]
    result = write(body, *arguments)
    taken = ", ".join(f"{a.type} {a.text}" for a in arguments)
    head = f"define internal {result.type} @{name}({taken}) alwaysinline nounwind willreturn memory(none) {{"
    return "\n".join([head, *body.lines, f"  ret {result.type} {result.text}", "}", ""]), frozenset(body.intrinsics)
