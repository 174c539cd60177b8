"""Small LLVM IR functions, written with operators on their values: straight-line code, except for rare cases."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from .values import Instructions, Value, number, operands

MAX_HORNER_COEFFICIENTS = 8  # polynomials with more coefficients are split in two


@dataclass(eq=False, slots=True)
class Body(Instructions):
    """LLVM IR under construction: the instructions so far and the intrinsics that they call."""

    avx512: bool = False
    fused: bool = True  # the processor has fused multiply-adds
    narrow: bool = False  # the result is float32
    lines: list[str] = field(default_factory=list)
    intrinsics: set[str] = field(default_factory=set)
    label: str = "entry"  # of the block that is being written

    def op(self, text: str, type: str, lanes: int = 1, key: object = None, frame: object = None) -> Value:
        value = Value(f"%v{len(self.lines)}", type, lanes, self)
        self.lines.append(f"  {value.name} = {text}")
        return value

    def declare(self, name: str, result: str, arguments: list[str]) -> None:
        self.intrinsics.add(f"declare {result} @{name}({', '.join(arguments)})")

    def bitcast(self, value: Value, type: str) -> Value:
        return self.convert("bitcast", value, type)

    def splat(self, value: float, like: Value) -> Value:
        """A number in every lane, in the type of `like`."""
        return Value(number(value, like.type, like.lanes), like.type, like.lanes, self)

    def fma(self, *given: Value | float) -> Value:
        """x * y + z, rounded once. Without such an instruction, float32 goes through float64, in which the product is exact (the
        sum is rounded twice). For float64 it is a library call, or rounded twice if the function's result is float32."""
        x, y, z = operands(*given)
        if self.fused or (x.type == "double" and not self.narrow):
            return self.intrinsic("fma", x, y, z)
        if x.type == "double":
            return x * y + z
        x, y, z = (self.convert("fpext", v, "double") for v in (x, y, z))
        return self.convert("fptrunc", x * y + z, "float")

    def where_all(self, good: Value, quick: Value, write: Callable[[], Value]) -> Value:
        """`quick` if the mask `good` holds in every lane; else, for all lanes and behind a branch, the result of `write`."""
        every = good if good.lanes == 1 else self.invoke(f"llvm.vector.reduce.and.{good.suffix}", "i1", 1, good)
        before, number = self.label, len(self.lines)
        self.lines += [f"  br {every}, label %joined{number}, label %other{number}", f"other{number}:"]
        self.label = f"other{number}"
        other = write()
        self.lines += [f"  br label %joined{number}", f"joined{number}:"]
        text = f"phi {quick.full} [ {quick.name}, %{before} ], [ {other.name}, %{self.label} ]"
        self.label = f"joined{number}"
        return self.op(text, quick.type, quick.lanes)

    # Minimum and maximum with a number that pass NaN on, and are one instruction on x86 (minps returns its second operand there).

    def at_most(self, x: Value, bound: float) -> Value:
        return self.select(self.compare("ogt", x, bound), bound, x)

    def at_least(self, x: Value, bound: float) -> Value:
        return self.select(self.compare("olt", x, bound), bound, x)

    def polynomial(self, coefficients: Sequence[float], x: Value) -> Value:
        """The polynomial with `coefficients`, lowest degree first: Horner's rule, one fma a degree.

        With more than MAX_HORNER_COEFFICIENTS, the even and the odd terms are two polynomials in x^2: two more instructions, half
        the latency. The two terms of lowest degree, on which the rounding depends, are left out of that. Without fused
        multiply-adds float32 goes through float64.
        """
        if not self.fused and x.type == "float":
            return self.convert("fptrunc", self.polynomial(coefficients, self.convert("fpext", x, "double")), "float")
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
    name: str, types: Sequence[str], lanes: int, write: Callable[..., Value], avx512: bool = False, fused: bool = True
) -> tuple[str, frozenset[str]]:
    """The LLVM IR of an internal function that is to be inlined, and the `declare` lines of the intrinsics that it calls.

    `types` are those of its parameters' elements. `write(body, *arguments)` writes its instructions, and returns its result.
    """
    body = Body(avx512, fused, narrow=types[0] == "float")
    arguments = [Value(text, type, lanes, body) for type, text in zip(types, ("%x", "%y"), strict=False)]
    result = write(body, *arguments)
    taken = ", ".join(map(str, arguments))
    head = f"define internal {result.full} @{name}({taken}) alwaysinline nounwind willreturn memory(none) {{"
    label = [] if body.label == "entry" else ["entry:"]
    return "\n".join([head, *label, *body.lines, f"  ret {result}", "}", ""]), frozenset(body.intrinsics)
