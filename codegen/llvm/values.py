"""The parts that LLVM IR is written with: values, blocks of code, places in memory, modules."""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from tir import dtypes
from tir.affine import Polynomial
from tir.ir import Load, Store

# The types of values; 16-bit floats are computed in float, and rounded after each operation.
_FLOATS = {"float64": "double", "float32": "float"}
TYPES = {d: _FLOATS.get(dtypes.computed(d), "i1" if d == "bool" else f"i{dtypes.bits(d)}") for d in dtypes.TABLE}
ALIGNMENT = 64


class CodegenError(Exception):
    """A program that the backend cannot compile, with the reason and the statement."""


class Value(NamedTuple):
    """An SSA value: its text, the LLVM type of one element, and the number of lanes (1 is a scalar)."""

    name: str
    type: str
    lanes: int = 1

    @property
    def full(self) -> str:
        return self.type if self.lanes == 1 else f"<{self.lanes} x {self.type}>"

    def __str__(self) -> str:
        return f"{self.full} {self.name}"


@dataclass(eq=False)
class Frame:
    """The code of one loop body or branch while it is being written, with what was computed in it already.

    `stored`: the buffers that the loop writes, if it runs at least once; None for a branch, or a loop that may not run.
    `borrowed`: the loads from in front of it that stay in registers while it runs.
    """

    label: str
    lines: list[str] = field(default_factory=list)
    known: dict[object, Value] = field(default_factory=dict)
    defined: set[str] = field(default_factory=set)
    stored: frozenset[str] | None = None
    borrowed: set[object] = field(default_factory=set)


@dataclass(eq=False)
class Place:
    """Where an access stands: `offset` in elements, without the lane and without the unrolled loops, which are in `copies` as
    (variable, stride); `stride` between lanes, None where they are not evenly spaced. `nested`: unrolled loops enter `offset`
    otherwise than linearly. `home` is the frame that holds its pointer."""

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

    target: object
    functions: list[str] = field(default_factory=list)
    declarations: set[str] = field(default_factory=set)
    library: dict[str, str] = field(default_factory=dict)  # functions of ours that are called, by name
    slots: list[tuple[str, int]] = field(default_factory=list)  # where blocks of memory are kept between calls: name, number

    def text(self) -> str:
        """The module, as LLVM reads it. The vectors of the program are as long as they are to be: LLVM is not to halve them."""
        bits = self.target.vector_bits  # type: ignore[attr-defined]
        widths = f'"prefer-vector-width"="{bits}" "min-legal-vector-width"="{bits}"'
        attributes = f'attributes #0 = {{ nounwind {widths} "no-trapping-math"="true" }}\n!0 = !{{i32 1}}'
        library = [f"{name} = internal global [{count} x ptr] zeroinitializer" for name, count in self.slots]
        library += [self.library[name] for name in sorted(self.library)]
        return "\n\n".join([*library, "\n".join(sorted(self.declarations)), *self.functions, attributes]) + "\n"


def ascii_name(name: str) -> str:
    """A name as LLVM IR and object files take it, up to the number that tells apart those that become the same."""
    return re.sub(r"[^A-Za-z0-9_]", "_", name)


def memory_type(dtype: str) -> str:
    return "i8" if dtype == "bool" else "i16" if dtypes.is_half(dtype) else TYPES[dtype]


def register_type(dtype: str) -> str:
    return "i8" if dtype == "bool" else TYPES[dtype]


def typed(type: str, lanes: int) -> str:
    return type if lanes == 1 else f"<{lanes} x {type}>"


def zero(v: Value) -> str:
    if v.lanes > 1:
        return "zeroinitializer"
    return "0.0" if v.type in ("float", "double") else "false" if v.type == "i1" else "0"


def type_suffix(type: str) -> str:
    return {"float": "f32", "double": "f64"}.get(type, type)


def value_suffix(v: Value) -> str:
    return type_suffix(v.type) if v.lanes == 1 else f"v{v.lanes}{type_suffix(v.type)}"


def constant(value, dtype: str) -> Value:
    if dtype == "bool":
        return Value("true" if value else "false", "i1")
    if dtypes.is_float(dtype):
        with np.errstate(over="ignore"):
            match dtype:
                case "float16":
                    value = float(np.float16(value))
                case "bfloat16":
                    value = _bfloat16(value)
                case "float32":
                    value = float(np.float32(value))
        return Value(f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}", TYPES[dtype])
    # Index arithmetic is exact in 64 bits; narrower types are cut where they meet loaded values.
    return Value(str(int(value)), "i64")


def _bfloat16(value: float) -> float:
    """The nearest bfloat16, ties to even."""
    bits = int(np.float32(value).view(np.uint32))
    if value == value:
        bits += 0x7FFF + ((bits >> 16) & 1)
    return float(np.uint32(bits & 0xFFFF0000).view(np.float32))
