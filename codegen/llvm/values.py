"""The parts of LLVM IR: values, blocks of code, addresses, modules."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tir import dtypes
from tir.arith.polynomial import Monomial, Polynomial
from tir.arrays import nearest
from tir.ir import Expr, Load, Store, Var

if TYPE_CHECKING:
    from ..target import Target

# The types of values; 16-bit floats are computed in float, and rounded after each operation.
_FLOATS = {"float64": "double", "float32": "float"}
TYPES = {d: _FLOATS.get(dtypes.computed(d), "i1" if d == "bool" else f"i{dtypes.bits(d)}") for d in dtypes.TABLE}


class CodegenError(Exception):
    """A program that the backend cannot compile, with the reason and the statement."""


def _operator(opcode: str, reflected: bool = False) -> Callable[[Value, Operand], Value]:
    """The method of Value that writes one instruction; `reflected` where the value is the operand on the right."""

    def operate(self: Value, other: Operand) -> Value:
        assert self.writer is not None, "a value without a writer has no operators"
        return self.writer.binary(opcode, *((other, self) if reflected else (self, other)))

    return operate


@dataclass(frozen=True, slots=True)
class Value:
    """An SSA value: its text, the LLVM type of one element, and the number of lanes (1 is a scalar).

    Where it has a `writer`, its operators write one instruction each; numbers on either side are splat.
    """

    name: str
    type: str
    lanes: int = 1
    writer: Instructions | None = None

    @property
    def full(self) -> str:
        return typed(self.type, self.lanes)

    @property
    def suffix(self) -> str:
        return suffix(self.type, self.lanes)

    def __str__(self) -> str:
        return f"{self.full} {self.name}"

    __add__, __radd__ = _operator("add"), _operator("add", reflected=True)
    __sub__, __rsub__ = _operator("sub"), _operator("sub", reflected=True)
    __mul__, __rmul__ = _operator("mul"), _operator("mul", reflected=True)
    __truediv__, __rtruediv__ = _operator("div"), _operator("div", reflected=True)
    __and__, __or__, __xor__ = _operator("and"), _operator("or"), _operator("xor")
    __lshift__ = _operator("shl")
    __rshift__ = _operator("lshr")  # logical: zeros come in from the left

    def __neg__(self) -> Value:
        assert self.writer is not None, "a value without a writer has no operators"
        return self.writer.op(f"fneg {self}", self.type, self.lanes)


Operand = Value | float


class Instructions:
    """Writes instructions on values. Numbers among operands take the type of the values beside them."""

    def op(self, text: str, type: str, lanes: int = 1, key: object = None, frame: Frame | None = None) -> Value:
        """Write `%new = text`, or return the value known under `key` in that frame."""
        raise NotImplementedError

    def declare(self, name: str, result: str, arguments: list[str]) -> None:
        """Declare a function that is called."""
        raise NotImplementedError

    def binary(self, opcode: str, a: Operand, b: Operand) -> Value:
        x, y = operands(a, b)
        return self.op(f"{'f' if floating(x.type) else ''}{opcode} {x}, {y.name}", x.type, x.lanes)

    def compare(self, predicate: str, a: Operand, b: Operand) -> Value:
        """A comparison. Of floats `o...` is false and `u...` is true where either side is NaN; of integers `u...` is unsigned."""
        x, y = operands(a, b)
        return self.op(f"{'f' if floating(x.type) else 'i'}cmp {predicate} {x}, {y.name}", "i1", x.lanes)

    def select(self, condition: Value, a: Operand, b: Operand) -> Value:
        x, y = operands(a, b)
        return self.op(f"select {condition}, {x}, {y}", x.type, x.lanes)

    def convert(self, opcode: str, value: Value, type: str, key: object = None) -> Value:
        return self.op(f"{opcode} {value} to {typed(type, value.lanes)}", type, value.lanes, key)

    def shuffled(
        self, a: Value, b: Value | None, picks: Iterable[int | None], key: object = None, frame: Frame | None = None
    ) -> Value:
        """The elements at these places of two concatenated vectors; undefined for None, and for places in a missing `b`."""
        chosen = ["i32 poison" if p is None else f"i32 {p}" for p in picks]
        other = f"{a.full} poison" if b is None else str(b)
        text = f"shufflevector {a}, {other}, <{len(chosen)} x i32> <{', '.join(chosen)}>"
        return self.op(text, a.type, len(chosen), key, frame)

    def invoke(self, name: str, type: str, lanes: int, *arguments: Value, key: object = None) -> Value:
        """The result of an intrinsic of LLVM, which is declared for the types of these arguments."""
        full = typed(type, lanes)
        self.declare(name, full, [a.full for a in arguments])
        return self.op(f"call {full} @{name}({', '.join(map(str, arguments))})", type, lanes, key)

    def intrinsic(self, name: str, *arguments: Operand) -> Value:
        """The result of the overloaded intrinsic `llvm.NAME`, whose arguments and result have one type."""
        values = operands(*arguments)
        x = values[0]
        return self.invoke(f"llvm.{name}.{x.suffix}", x.type, x.lanes, *values)


def operands(*given: Operand) -> list[Value]:
    """The operands as values; numbers take the type of the values beside them."""
    kind = next(x for x in given if isinstance(x, Value))
    return [x if isinstance(x, Value) else Value(number(x, kind.type, kind.lanes), kind.type, kind.lanes) for x in given]


def number(value: float, type: str, lanes: int = 1) -> str:
    """A number in every lane. LLVM reads the constants of both float and double as the hexadecimal bits of a float64."""
    if type == "float":
        value = struct.unpack("f", struct.pack("f", value))[0]
    text = f"0x{struct.unpack('Q', struct.pack('d', value))[0]:016X}" if floating(type) else str(int(value))
    return text if lanes == 1 else f"splat ({type} {text})"


@dataclass(eq=False)
class Frame:
    """The code of one loop body or branch while it is being written, with the values `known` in it.

    `stored`: the buffers that the loop writes, if it runs at least once; None for a branch, and for the way into a loop that may
    not run. `borrowed`: loads from before the loop that stay in registers while it runs. `nonzero`: divisors that are not 0.
    """

    label: str
    lines: list[str] = field(default_factory=list)
    known: dict[object, Value] = field(default_factory=dict)
    defined: set[str] = field(default_factory=set)
    stored: frozenset[str] | None = None
    borrowed: set[object] = field(default_factory=set)
    nonzero: set[Expr] = field(default_factory=set)


@dataclass(eq=False)
class AccessAddress:
    """The address of an access: `offset` in elements, without the lane and without the unrolled loops, which are in `copies` as
    (variable, stride). `stride` is the distance between lanes, None if uneven. `nested`: `offset` is not linear in unrolled
    loops. `home` is the frame of its pointer."""

    access: Load | Store
    lane: tuple[str, int] | None
    offset: Polynomial
    stride: int | None
    copies: tuple[tuple[str, int], ...]
    nested: bool
    home: Frame | None = None


@dataclass
class Module:
    """The functions and declarations of one LLVM module."""

    target: Target
    functions: list[str] = field(default_factory=list)
    declarations: set[str] = field(default_factory=set)
    library: dict[str, str] = field(default_factory=dict)  # own functions that are called, by name
    faults: Mapping[Expr, int] = field(default_factory=dict)  # the statuses of divisions by zero
    slots: list[tuple[str, int]] = field(default_factory=list)  # slots for blocks kept between calls: name, number

    def text(self) -> str:
        """The module as LLVM IR. The vectors of the program have their final length: LLVM must not halve them."""
        bits = self.target.vector_bits
        widths = f'"prefer-vector-width"="{bits}" "min-legal-vector-width"="{bits}"'
        attributes = f'attributes #0 = {{ nounwind {widths} "no-trapping-math"="true" }}\n!0 = !{{i32 1}}'
        library = [f"{name} = internal global [{count} x ptr] zeroinitializer" for name, count in self.slots]
        library += [self.library[name] for name in sorted(self.library)]
        return "\n\n".join([*library, "\n".join(sorted(self.declarations)), *self.functions, attributes]) + "\n"


def lone_variables(p: Polynomial) -> dict[str, Monomial]:
    """The terms of a polynomial that are a multiple of one variable, by its name."""
    return {m[0].name: m for m in p if len(m) == 1 and type(m[0]) is Var}


def ascii_name(name: str) -> str:
    """A name in the characters of LLVM IR and object files; different names may become the same."""
    return re.sub(r"[^A-Za-z0-9_]", "_", name)


def memory_type(dtype: str) -> str:
    return "i8" if dtype == "bool" else "i16" if dtypes.is_half(dtype) else TYPES[dtype]


def register_type(dtype: str) -> str:
    return "i8" if dtype == "bool" else TYPES[dtype]


def typed(type: str, lanes: int) -> str:
    return type if lanes == 1 else f"<{lanes} x {type}>"


def suffix(type: str, lanes: int) -> str:
    """The spelling of a type in the names of overloaded intrinsics: f32, v16f32, v4i64."""
    short = {"float": "f32", "double": "f64"}.get(type, type)
    return short if lanes == 1 else f"v{lanes}{short}"


def floating(type: str) -> bool:
    return type in ("float", "double")


def zero(v: Value) -> str:
    if v.lanes > 1:
        return "zeroinitializer"
    return "0.0" if floating(v.type) else "false" if v.type == "i1" else "0"


def constant(value, dtype: str) -> Value:
    if dtype == "bool":
        return Value("true" if value else "false", "i1")
    if dtypes.is_float(dtype):
        return Value(number(nearest(value, dtype), "double"), TYPES[dtype])
    # Index arithmetic is exact in 64 bits; narrower types are cut where they meet loaded values.
    return Value(str(int(value)), "i64")
