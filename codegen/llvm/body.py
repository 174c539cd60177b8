"""Straight-line LLVM IR functions, written with operators on their values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from .values import Instructions, Value, number

MAX_HORNER_COEFFICIENTS = 8  # polynomials with more coefficients are split in two


@dataclass(eq=False, slots=True)
class Body(Instructions):
    """Straight-line LLVM IR under construction: the instructions so far and the intrinsics that they call."""

    avx512: bool = False
    lines: list[str] = field(default_factory=list)
    intrinsics: set[str] = field(default_factory=set)

    def op(self, text: str, type: str, lanes: int = 1, key: object = None, frame: object = None) -> Value:
        value = Value(f"%v{len(self.lines)}", type, lanes, self)
        self.lines.append(f"  {value.name} = {text}")
        return value

    def declare(self, name: str, result: str, arguments: list[str]) -> None:
        self.intrinsics.add(f"declare {result} @{name}({', '.join(arguments)})")

    def bitcast(self, value: Value, type: str) -> Value:
        return self.convert("bitcast", value, type)

    def splat(self, value: float, like: Value) -> Value:
        """A number in every lane, where no operand beside it says the type."""
        return Value(number(value, like.type, like.lanes), like.type, like.lanes, self)

    def fma(self, *operands: Value | float) -> Value:
        return self.intrinsic("fma", *operands)

    # Minimum and maximum with a number that pass NaN on, and are one instruction on x86 (minps returns its second operand there).

    def at_most(self, x: Value, bound: float) -> Value:
        return self.select(self.compare("ogt", x, bound), bound, x)

    def at_least(self, x: Value, bound: float) -> Value:
        return self.select(self.compare("olt", x, bound), bound, x)

    def polynomial(self, coefficients: Sequence[float], x: Value) -> Value:
        """The polynomial with `coefficients`, lowest degree first: Horner's rule, one fma a degree.

        With more than MAX_HORNER_COEFFICIENTS, the even and the odd terms are two polynomials in x^2: two more instructions, half
        the latency. The two terms of lowest degree, on which the rounding depends, are left out of that.
        """
        if len(coefficients) > MAX_HORNER_COEFFICIENTS:
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


def function(
    name: str, types: Sequence[str], lanes: int, write: Callable[..., Value], avx512: bool = False
) -> tuple[str, frozenset[str]]:
    """The LLVM IR of an internal function that is to be inlined, and the `declare` lines of the intrinsics that it calls.

    `types` are those of its parameters' elements. `write(body, *arguments)` writes its instructions, and returns its result.
    """
    body = Body(avx512)
    arguments = [Value(text, type, lanes, body) for type, text in zip(types, ("%x", "%y"), strict=False)]
    result = write(body, *arguments)
    taken = ", ".join(map(str, arguments))
    head = f"define internal {result.full} @{name}({taken}) alwaysinline nounwind willreturn memory(none) {{"
    return "\n".join([head, *body.lines, f"  ret {result}", "}", ""]), frozenset(body.intrinsics)
