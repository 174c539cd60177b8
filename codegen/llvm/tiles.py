"""Products of small matrices in tile registers (AMX): a nest that is annotated with an instruction becomes that instruction.

The processor has eight registers of 16 rows of 64 bytes. Accumulators stay in theirs while the sum runs; the others rotate among
operands. Where the processor lacks the instruction, or operands have another layout, the nest runs as it is written.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

from schedule.intrinsics import INSTRUCTION
from tir import dtypes
from tir.analysis.context import accesses
from tir.analysis.positions import position
from tir.arith.bounds import extent_range
from tir.arith.polynomial import Polynomial, names_in
from tir.arith.simplify import simplify
from tir.ir import Const, For, Kind, Load, Seq, Stmt, Store, annotation, as_int
from tir.traverse import loads, loops, perfect_nest, stores, substatements, substitute, variables, walk_stmts

from ..processor import ARCH_PRCTL, REQUEST_PERMISSION, TILE_DATA
from .values import Value, lone_variables

if TYPE_CHECKING:
    from .emit import FunctionWriter

REGISTERS = 8
ROWS, ROW_BYTES = 16, 64  # rows of a register, and bytes of a row

# By the name of the instruction: the feature that it needs, beside that of the tiles.
INSTRUCTIONS = {f"tdpb{signs}d": "amx-int8" for signs in ("ss", "su", "us", "uu")} | {"tdpbf16ps": "amx-bf16"}

MAX_RESULTS = 6  # tiles of the result that stay in registers: two are left for operands

_CONFIGURATION, _ALLOW, _ALLOWED = "tir.tiles", "tir.tiles.allow", "tir.tiles.allowed"


@dataclass(frozen=True, slots=True)
class TileAccess:
    """The tile of an access: the offset of its first element in the buffer, and the elements from one row to the next."""

    access: Load | Store
    start: Polynomial
    stride: int

    @property
    def key(self) -> object:
        """The key that accesses of the same elements share."""
        return self.access.buffer.name, frozenset(self.start.items()), self.stride


@dataclass
class TileRegisters:
    """The contents of a function's tile registers at the current point."""

    configured: bool = False
    cleared: bool = False  # the results of the next sum start from 0
    results: dict[object, int] = field(default_factory=dict)  # by `TileAccess.key`
    operands: dict[object, int] = field(default_factory=dict)  # the most recently used at the end

    def of_operand(self, key: object) -> tuple[int, bool]:
        """The register for an operand, and True if it is loaded already; else a free one, or the least recently used."""
        if key in self.operands:
            register = self.operands.pop(key)
            self.operands[key] = register
            return register, True
        taken = {*self.results.values(), *self.operands.values()}
        free = next((n for n in range(REGISTERS) if n not in taken), None)
        register = self.operands.pop(next(iter(self.operands))) if free is None else free
        self.operands[key] = register
        return register, False


def instruction(writer: FunctionWriter, s: Stmt) -> str | None:
    """The instruction that a statement is, if the processor has it."""
    name = annotation(s.annotations, INSTRUCTION) if isinstance(s, For) else None
    known = writer.module.target.features
    return name if name in INSTRUCTIONS and {"amx-tile", INSTRUCTIONS[name]} <= known and writer.lane is None else None


def write_tiles(writer: FunctionWriter, s: For) -> bool:
    """Write a loop that is an instruction or has instructions inside; False where it writes nothing."""
    if not any(annotation(x.annotations, INSTRUCTION) for x in loops(s)):
        return False
    inside = [*_instructions(writer, s)]
    if not inside or any(_tile_accesses(writer, nest) is None for _, nest in inside):
        return False
    if not writer.tiles.configured:
        return _configured(writer, s)
    if inside[0][1] is s:
        _write_product(writer, s)
        return True
    return _sum(writer, s)


def clears_results(writer: FunctionWriter, s: Stmt, following: Stmt) -> bool:
    """True where a statement only sets the results of the sum that follows to 0; then the sum starts with that."""
    if not writer.tiles.configured or not isinstance(following, For) or loads(s):
        return False
    results = _results(writer, following)
    if results is None or not all(isinstance(x, For | Seq | Store) for x in walk_stmts(s)):
        return False
    wanted = [(w.access, w.start, [(w.stride, ROWS), (1, ROWS)]) for w in results.values()]
    cleared = [(x, around.loops) for x, around in accesses(s) if isinstance(x, Store) and x.value.is_zero]
    found = [(x, *_span(writer, x, around)) for x, around in cleared]
    places = [_span_elements(group) for group in (found, wanted)]
    same = len(found) == len(stores(s)) and None not in places and places[0] == places[1]
    writer.tiles.cleared |= same
    return same


def _span(writer: FunctionWriter, x: Load | Store, around: Sequence[For]) -> tuple[Polynomial, list[tuple[int, int]]]:
    """The start of an access, with terms that are not linear in the loops around it, and its (stride, extent) in each of them."""
    extents = {loop.name: as_int(loop.extent) for loop in around}
    for loop in around:
        writer.runs_over(loop, extent_range(loop.extent, writer.ranges))
    offset = _buffer_offset(writer, x, {})
    lone = {m: n for name, m in lone_variables(offset).items() if (n := extents.get(name)) is not None}
    return offset, [(offset.pop(m), n) for m, n in lone.items()]


def _span_elements(spans: Iterable[tuple[Load | Store, Polynomial, list[tuple[int, int]]]]) -> tuple[object, ...] | None:
    """The elements of spans of one buffer whose starts differ by constants; None for others."""
    bases = {(x.buffer.name, frozenset((m, c) for m, c in start.items() if m)) for x, start, _ in spans}
    if len(bases) != 1:
        return None
    offsets: set[int] = set()
    for _, start, steps in spans:
        points = itertools.product(*(range(0, stride * extent, stride) for stride, extent in steps))
        offsets |= {start.get((), 0) + sum(p) for p in points}
    return *bases, frozenset(offsets)


def _instructions(writer: FunctionWriter, s: Stmt, around: tuple[For, ...] = ()) -> Iterator[tuple[tuple[For, ...], For]]:
    """The nests in a statement that are instructions, with the loops around them."""
    match s:
        case For() if instruction(writer, s) is not None:
            yield around, s
        case For():
            yield from _instructions(writer, s.body, (*around, s))
        case _:
            for x in substatements(s):
                yield from _instructions(writer, x, around)


def _configured(writer: FunctionWriter, s: For) -> bool:
    """Write a loop between the configuration of the tile registers and their release; a parallel loop in it has its own."""
    if any(writer.runs_parallel(x) for x in loops(s) if x.kind is Kind.PARALLEL):
        return False
    library = writer.module.library
    rows, row_bytes = ", ".join([f"i8 {ROWS}"] * REGISTERS), ", ".join([f"i16 {ROW_BYTES}"] * REGISTERS)
    library[_CONFIGURATION] = (
        f"@{_CONFIGURATION} = internal constant {{ [2 x i8], [14 x i8], [8 x i16], [16 x i8], [8 x i8], [8 x i8] }} "
        f"{{ [2 x i8] [i8 1, i8 0], [14 x i8] zeroinitializer, [8 x i16] [{row_bytes}], [16 x i8] zeroinitializer, "
        f"[8 x i8] [{rows}], [8 x i8] zeroinitializer }}, align 64"
    )
    if sys.platform == "linux":
        library[_ALLOW] = _ALLOWING
        writer.declare("syscall", "i64", ["i64", "..."])
        writer.line(f"call void @{_ALLOW}()")
    writer.perform("llvm.x86.ldtilecfg", Value(f"@{_CONFIGURATION}", "ptr"))
    writer.tiles.configured = True
    writer.loop(s)
    writer.tiles = TileRegisters()
    writer.perform("llvm.x86.tilerelease")
    return True


def _results(writer: FunctionWriter, s: For) -> dict[object, TileAccess] | None:
    """The tiles, by their keys, of a loop that only accumulates into them, if they fit the registers; else None."""
    inside = [*_instructions(writer, s)]
    if s.kind not in (Kind.SERIAL, Kind.UNROLLED) or not inside or inside[0][1] is s or len(stores(s)) != len(inside):
        return None
    found: dict[object, TileAccess] = {}
    for around, nest in inside:
        if any(x.kind not in (Kind.SERIAL, Kind.UNROLLED) or not isinstance(x.extent, Const) for x in around):
            return None
        unrolled = {x.name: range(as_int(x.extent) or 0) for x in around if x.kind is Kind.UNROLLED}
        for copy in itertools.product(*unrolled.values()):
            accesses = _tile_accesses(writer, nest, dict(zip(unrolled, copy, strict=True)))
            if accesses is None or {x.name for x in around} & names_in(accesses[0].start):
                return None
            found[accesses[0].key] = accesses[0]
    return found if len(found) <= MAX_RESULTS else None


def _sum(writer: FunctionWriter, s: For) -> bool:
    """Write a loop that accumulates into tiles in registers; False for any other loop."""
    found = None if writer.tiles.results else _results(writer, s)
    if found is None:
        return False
    cleared = writer.tiles.cleared
    writer.tiles = TileRegisters(True, results={key: n for n, key in enumerate(found)})
    for key, result in found.items():
        register = writer.tiles.results[key]
        if cleared:
            writer.perform("llvm.x86.tilezero", Value(str(register), "i8"))
        else:
            _move(writer, "tileloadd64", register, result)
    if s.kind is Kind.UNROLLED:  # of one step
        writer.unrolled_loop(s)
    else:
        writer.serial_loop(s)
    for key, result in found.items():
        _move(writer, "tilestored64", writer.tiles.results[key], result)
    writer.tiles = TileRegisters(True)
    return True


def _write_product(writer: FunctionWriter, s: For) -> None:
    """Write an instruction, whose result is in a register already, or is loaded and stored."""
    accesses, name = _tile_accesses(writer, s), instruction(writer, s)
    assert accesses is not None and name is not None
    writer.admit(*(i for x in accesses for i in x.access.indices))
    registers, (result, *operands) = writer.tiles, accesses
    held = registers.results.get(result.key)
    if held is None:
        held = registers.of_operand(None)[0]
        _move(writer, "tileloadd64", held, result)
    places = [held]
    for operand in operands:
        version = writer.versions.get(operand.access.buffer.name, 0)
        place, known = registers.of_operand((operand.key, version, writer.top.label))
        if not known:
            _move(writer, "tileloadd64", place, operand)
        places.append(place)
    writer.perform(f"llvm.x86.{name}", *(Value(str(n), "i8") for n in places))
    if result.key not in registers.results:
        _move(writer, "tilestored64", held, result)
        del registers.operands[None]


def _move(writer: FunctionWriter, verb: str, register: int, tile: TileAccess) -> None:
    """Load a tile, or store it."""
    buffer = tile.access.buffer
    pointer, stride = writer.pointer_at(buffer, tile.start), tile.stride * dtypes.nbytes(buffer.dtype)
    writer.perform(f"llvm.x86.{verb}", Value(str(register), "i8"), Value(pointer, "ptr"), Value(str(stride), "i64"))
    if verb == "tilestored64":
        writer.versions[buffer.name] = writer.versions.get(buffer.name, 0) + 1


def _tile_accesses(writer: FunctionWriter, s: For, copy: Mapping[str, int] = MappingProxyType({})) -> list[TileAccess] | None:
    """The tiles of the result, the rows and the columns of an instruction, in a copy of unrolled loops; None if misplaced."""
    nest = perfect_nest(s)[0]
    store, extents = nest[-1].body, [as_int(x.extent) for x in nest]
    if not isinstance(store, Store) or len(nest) != 4 or None in extents:
        return None
    row, column, step, part = (x.name for x in nest)
    for x in nest:
        writer.runs_over(x, extent_range(x.extent, writer.ranges))
    operands = {x for x in loads(store.value) if x.buffer.name != store.buffer.name}
    left = next((x for x in operands if row in variables(*x.indices)), None)
    right = next((x for x in operands if column in variables(*x.indices)), None)
    if left is None or right is None:
        return None
    parts = extents[-1] or 0
    found = [
        _tile_access(writer, store, row, {column: 1}, copy),
        _tile_access(writer, left, row, {step: parts, part: 1}, copy),
        _tile_access(writer, right, step, {column: parts, part: 1}, copy),
    ]
    accesses = [w for w in found if w is not None]
    return accesses if len(accesses) == len(found) else None


def _tile_access(
    writer: FunctionWriter, access: Load | Store, row: str, within: Mapping[str, int], copy: Mapping[str, int]
) -> TileAccess | None:
    """The tile of an access, its rows along loop `row` and strides `within` of other loops; None for other strides."""
    offset = _buffer_offset(writer, access, copy)
    strides = {name: offset.pop(m) for name, m in lone_variables(offset).items() if name == row or name in within}
    stride = strides.pop(row, 0)
    if strides != within or names_in(offset) & {row, *within}:
        return None
    return TileAccess(access, offset, stride)


def _buffer_offset(writer: FunctionWriter, access: Load | Store, copy: Mapping[str, int]) -> Polynomial:
    """The offset of an access in its buffer, in a copy of the unrolled loops around."""
    constants = {name: Const(n) for name, n in {**writer.constants, **copy}.items()}
    return position(access.buffer, [simplify(substitute(i, constants), writer.ranges) for i in access.indices])


# Linux lets all threads of a process use the registers once it has asked. A process without permission ends at their first use.
_ALLOWING = f"""@{_ALLOWED} = internal global i32 0

define internal void @{_ALLOW}() nounwind {{
entry:
  %known = load atomic i32, ptr @{_ALLOWED} monotonic, align 4
  %done = icmp ne i32 %known, 0
  br i1 %done, label %leave, label %ask
ask:
  %status = call i64 (i64, ...) @syscall(i64 {ARCH_PRCTL}, i64 {REQUEST_PERMISSION}, i64 {TILE_DATA})
  store atomic i32 1, ptr @{_ALLOWED} monotonic, align 4
  br label %leave
leave:
  ret void
}}
"""
