"""Loads and stores: addresses computed where they are known first, vectors, masks, gathers, prefetches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from math import gcd, prod

from schedule.machine import CPU
from tir import dtypes
from tir.analysis.positions import position
from tir.arith.intervals import Interval
from tir.arith.polynomial import Polynomial, add, names_in, polynomial, to_expr
from tir.arith.simplify import simplify
from tir.ir import Binary, Buffer, Call, Cast, Const, Expr, For, Load, Store, Var, as_int
from tir.traverse import rewrite, substitute, variable_names, variables, walk

from ..passes.combine_lanes import updated
from ..runtime.alignment import ALIGNMENT
from .transpose import transposed
from .values import AccessAddress, CodegenError, Frame, Value, lone_variables, memory_type, register_type, suffix, typed
from .writer import Writer

SHUFFLED_STRIDES = (-1, 2, 3, 4)  # between lanes: loaded as rows and picked, not gathered
PREFETCH_BYTES = 64  # bytes that a prefetch fetches
STATEMENT_REGISTERS = 8  # vector registers that a statement needs beside accumulators and loads hoisted before its loop
STREAMED_ELEMENTS = (4, 8)  # bytes of an element that is stored past the caches by itself (MOVNTI)
MIN_STREAMED_BYTES = 16  # bytes: the shortest non-temporal store that is worth one


def hoistable(e: Expr) -> bool:
    """True for an integer expression that may be computed early: it reads no memory."""
    return not any(isinstance(n, (Load, Call)) for n in walk(e))


def loads_or_calls(offset: Polynomial) -> bool:
    """True where an offset has loads or calls, and is computed at its use."""
    return not all(hoistable(atom) for m in offset for atom in m)


class Memory(Writer):
    """Writes accesses to memory."""

    def pointer_at(self, buffer: Buffer, offset: Polynomial) -> str:
        """A pointer to the element at a flat offset (free of the lane): each term is added in the loop where it is known."""
        size = dtypes.nbytes(buffer.dtype)
        pointer = self.buffers.get(buffer.name)
        if pointer is None:
            raise CodegenError(f"buffer `{buffer.name}` is used where it does not exist")
        groups: dict[int, Polynomial] = {}
        levels = {id(f): i for i, f in enumerate(self.frames)}
        for m, c in offset.items():
            if m:
                frame = self.top if loads_or_calls({m: c}) else self.home(names_in({m: c}))
                groups.setdefault(levels[id(frame)], {})[m] = c
        for level in sorted(groups):
            frame = self.frames[level]
            terms = groups[level]
            key = ("ptr", pointer, frozenset(terms.items()), self._copy(names_in(terms)), self._read(terms))
            if key not in frame.known:
                further = partial(self._sum_of_terms, terms, size)
                total = further() if frame is self.top else self.within(frame, further)
                frame.known[key] = self.op(f"getelementptr i8, ptr {pointer}, i64 {total}", "ptr", frame=frame)
            pointer = frame.known[key].name
        return self._further(pointer, offset.get((), 0) * size)

    def _sum_of_terms(self, terms: Polynomial, scale: int) -> str:
        """The sum of some terms, times a number, in the innermost frame."""
        total = ""
        for m, c in terms.items():
            product = ""
            for atom in m:
                factor = self.index(atom).name
                product = self.op(f"mul nsw i64 {product}, {factor}", "i64").name if product else factor
            scaled = product if c * scale == 1 else self.op(f"mul nsw i64 {product}, {c * scale}", "i64").name
            total = self.op(f"add nsw i64 {total}, {scaled}", "i64").name if total else scaled
        return total

    def _further(self, pointer: str, nbytes: int) -> str:
        if not nbytes:
            return pointer
        return self.op(f"getelementptr i8, ptr {pointer}, i64 {nbytes}", "ptr", key=("gep", pointer, nbytes)).name

    def _copy(self, names: Iterable[str]) -> frozenset[tuple[str, int]]:
        """The copy of the unrolled loops around, as far as `names` depend on them."""
        return frozenset((n, self.constants[n]) for n in names if n in self.constants)

    def _read(self, terms: Polynomial) -> frozenset[tuple[str, int] | Value | None]:
        """The versions of the buffers loaded in `terms`, and the conditions of these loads, which else give zeros."""
        loads = [n for m in terms for atom in m if type(atom) is not Var for n in walk(atom) if isinstance(n, Load)]
        states = frozenset((n.buffer.name, self.versions.get(n.buffer.name, 0)) for n in loads)
        return states | {self.load_condition, self.mask} if loads else states

    def runs_over(self, loop: For, values: Interval) -> None:
        """Record the range of a loop that begins. Where the last loop of its name had another one, as a main part before its
        tail, addresses are computed anew: both may hold the same access."""
        if self._loops.get(loop.name, (loop.kind, values)) != (loop.kind, values):
            self._addresses.clear()
        self._loops[loop.name] = loop.kind, values
        self.ranges[loop.name] = values

    def address_of(self, access: Load | Store) -> AccessAddress:
        """The address of an access in the loops around it; computed once for all copies of unrolled loops."""
        found = self._addresses.get(id(access))
        if found is None or found.lane != self.lane:
            indices = (simplify(i, self.ranges) for i in access.indices)  # one of fewer bits is one atom
            offset = position(access.buffer, [i if i.dtype in ("int32", "int64") else Cast("int64", i) for i in indices])
            if parts := [atom for m in offset for atom in m if type(atom) is Binary]:
                whole = polynomial(simplify(to_expr(offset), self.ranges))
                # Lanes and copies may run on from row to row, or all atoms be parts of one number.
                if any(map(self._moves, parts)) or all(type(atom) is not Binary for m in whole for atom in m):
                    offset = whole
            stride: int | None = 0
            if self.lane is not None:
                lane = lone_variables(offset).get(self.lane[0])
                stride = offset.pop(lane) if lane is not None else 0
                if not all(self._uniform(atom) for m in offset for atom in m):
                    offset = add(offset, {lane: stride}) if lane is not None else offset
                    stride = None
            copies = [(name, offset.pop(m)) for name, m in lone_variables(offset).items() if name in self.constants]
            nested = not self.constants.keys().isdisjoint(names_in(offset))
            found = self._addresses[id(access)] = AccessAddress(access, self.lane, offset, stride, tuple(copies), nested)
        return found

    def _moves(self, e: Expr) -> bool:
        """True where the value differs between lanes or between copies of unrolled loops."""
        return not self._uniform(e) or bool(self._copy(variable_names(e)))

    def pointer_to(self, address: AccessAddress) -> str:
        """A pointer to the element, in the first lane."""
        return self._further(*self._base(address))

    def _base(self, address: AccessAddress) -> tuple[str, int]:
        """A pointer and the bytes from there to the element, in the first lane."""
        buffer = address.access.buffer
        further = sum(c * self.constants[v] for v, c in address.copies) * dtypes.nbytes(buffer.dtype)
        if address.nested:
            return self.pointer_at(buffer, address.offset), further
        key = ("address", address, self.buffers.get(buffer.name), self._read(address.offset))  # copies may have own memory
        frame = address.home
        if frame is None or frame not in self.frames or key not in frame.known:
            frame = self.top if loads_or_calls(address.offset) else self.home(names_in(address.offset))
            address.home = frame
            offset = {m: c for m, c in address.offset.items() if m}
            frame.known[key] = Value(self.pointer_at(buffer, offset), "ptr")
        return frame.known[key].name, further + address.offset.get((), 0) * dtypes.nbytes(buffer.dtype)

    def load(self, e: Load) -> Value:
        b = e.buffer
        if b.scope == "register":
            type, width = register_type(b.dtype), self._width(b)
            value = self.op(f"load {typed(type, width)}, ptr {self._slot(b, e.indices)}", type, width)
            if 1 < self.lanes < value.lanes:
                value = self.shuffled(value, None, range(self.lanes))
            return self.truth(value) if b.dtype == "bool" else value
        type = memory_type(b.dtype)
        version = self.versions.get(b.name, 0)
        address = self.address_of(e)

        def write() -> Value:
            self._fetch_ahead(address, write=False)
            if address.stride == 0:
                pointer = self._guarded_pointer(self.pointer_to(address), dtypes.nbytes(b.dtype), self.may_be_empty)
                key = ("load", pointer, version)
                value = self.op(f"load {type}, ptr {pointer}, align {dtypes.nbytes(b.dtype)}", type, key=key)
            else:
                value = self.vector_load(address, type, version)
            return self.unpacked(value, b.dtype)

        frame = self._invariant(address)
        if frame is None:
            return write()
        value = self.within(frame, write)
        self.hoisted_in[value.name] = frame
        return value

    def _invariant(self, address: AccessAddress) -> Frame | None:
        """The frame before the loops in which a load is invariant; None without such loops, or if registers are short.

        Those loops surely run, and do not write the buffer. Loads of one address count once.
        """
        buffer, top = address.access.buffer.name, self.top
        if top.stored is None or buffer in top.stored or address.home is top or self.mask or self.load_condition:
            return None
        if address.stride is None or loads_or_calls(address.offset):
            return None
        home = self.home(names_in(address.offset))
        result = None
        for frame, outer in zip(reversed(self.frames), list(reversed(self.frames))[1:], strict=False):
            if frame is home or frame.stored is None or buffer in frame.stored:
                break
            result = outer
        if result is None:
            return None
        key = (buffer, frozenset(address.offset.items()), sum(c * self.constants[v] for v, c in address.copies), address.stride)
        if key not in top.borrowed:
            left = self.module.target.registers - self.pinned - STATEMENT_REGISTERS  # beside accumulators and operands
            if len(top.borrowed) >= left:
                return None
            top.borrowed.add(key)
        return result

    def _fetch_ahead(self, address: AccessAddress, write: bool) -> None:
        """Prefetch the lines that an access touches some iterations later, as `prefetch` asks for; each line once a loop body."""
        buffer = address.access.buffer
        nbytes = dtypes.nbytes(buffer.dtype)
        for loop, name, distance in self.ahead:
            if name != buffer.name or address.nested or address.stride not in (0, 1):
                continue
            moving = [(m, c) for m, c in address.offset.items() if any(loop in variable_names(atom) for atom in m)]
            copies = [((), c) for v, c in address.copies if v == loop]
            match moving + copies:
                case [(m, c)] if len(m) <= 1 and all(type(atom) is Var for atom in m):
                    pointer, start = self._base(address)
                    start += c * distance * nbytes
                    width = self.lanes * nbytes if address.stride else nbytes
                    for line in range(start // PREFETCH_BYTES, (start + width - 1) // PREFETCH_BYTES + 1):
                        self._prefetch(pointer, line * PREFETCH_BYTES, write)

    def _prefetch(self, pointer: str, nbytes: int, write: bool) -> None:
        """Ask for the line at `pointer + nbytes`, unless this loop body has done so."""
        key = ("prefetch", pointer, nbytes)
        if key not in self.top.known:
            self.declare("llvm.prefetch.p0", "void", ["ptr", "i32 immarg", "i32 immarg", "i32 immarg"])
            line = self._further(pointer, nbytes)
            self.line(f"call void @llvm.prefetch.p0(ptr {line}, i32 {int(write)}, i32 3, i32 1)")
            self.top.known[key] = Value(line, "ptr")

    def _guarded_pointer(self, pointer: str, nbytes: int, may_be_empty: bool) -> str:
        """The pointer, or `_fill_pointer` where nothing may be loaded: no `load_condition` or, if `may_be_empty`, no lane."""
        conditions = [*([self.load_condition] if self.load_condition else []), *([self.any_lane()] if may_be_empty else [])]
        for c in conditions:
            elsewhere = self._fill_pointer(nbytes)
            pointer = self.op(
                f"select {c}, ptr {pointer}, ptr {elsewhere}", "ptr", key=("guarded", c.name, pointer, elsewhere)
            ).name
        return pointer

    def _fill_pointer(self, nbytes: int) -> str:
        """A pointer to `nbytes` bytes of the value of lanes that are masked off."""
        if self.masked_off_value is None:
            self.zeros = max(self.zeros, nbytes)
            return "%zeros"
        name, count = self.fills.get(self.masked_off_value, (self.fresh("fill"), 0))
        self.fills[self.masked_off_value] = name, max(count, nbytes)  # an element has a byte or more
        return name

    def _masked_off_lanes(self, type: str, lanes: int) -> Value:
        """The value loaded in lanes that are masked off."""
        return Value("zeroinitializer" if self.masked_off_value is None else f"splat ({self.masked_off_value})", type, lanes)

    def _width(self, b: Buffer) -> int:
        return int(b.shape[-1].value)  # type: ignore[attr-defined]

    def _slot(self, b: Buffer, indices: tuple[Expr, ...]) -> str:
        """The pointer to a vector of a register buffer."""
        known = {n: Const(c) for n, c in self.constants.items()}
        copy = [str(as_int(simplify(substitute(i, known)))) for i in indices[:-1]]
        return ".".join([self.buffers[b.name], *copy])

    def vector_load(self, address: AccessAddress, type: str, version: int) -> Value:
        lanes = self.lanes
        align = dtypes.nbytes(address.access.buffer.dtype)
        if address.stride == 1:
            return self._row(self.pointer_to(address), type, align, version, self.mask, self._alignment(address))
        if (woven := self._woven(address, type, version)) is not None:
            return woven
        if (distances := self._distances(address)) is not None:
            return self._near(address, distances, type, align, version)
        if (column := self._column(address, type, version)) is not None:
            return column
        pointers = self.pointers(address)
        mask = self._mask()
        if self.load_condition is not None:
            none = Value("zeroinitializer", "i1", lanes)
            key = ("load condition", self.load_condition.name, mask)
            mask = self.op(f"select {self.load_condition}, {mask}, {none}", "i1", lanes, key)
        name = f"llvm.masked.gather.{suffix(type, lanes)}.v{lanes}p0"
        arguments = (pointers, Value(str(align), "i32"), mask, Value("zeroinitializer", type, lanes))
        return self.invoke(name, type, lanes, *arguments, key=("gather", pointers.name, version, mask))

    def _row(
        self, pointer: str, type: str, size: int, version: int, mask: Value | None, align: int, lanes: int | None = None
    ) -> Value:
        """Consecutive elements of `size` bytes from `pointer`, one a lane; those of `_masked_off_lanes` where lanes are off."""
        lanes = lanes or self.lanes
        full = f"<{lanes} x {type}>"
        pointer = self._guarded_pointer(pointer, lanes * size, False)
        if mask is None:
            return self.op(f"load {full}, ptr {pointer}, align {align}", type, lanes, key=("load", pointer, version, lanes))
        absent = self._masked_off_lanes(type, lanes)
        arguments = (Value(pointer, "ptr"), Value(str(align), "i32"), mask, absent)
        key = ("load", pointer, version, lanes, mask.name, absent.name)
        return self.invoke(f"llvm.masked.load.{suffix(type, lanes)}.p0", type, lanes, *arguments, key=key)

    def _distances(self, address: AccessAddress) -> tuple[int, ...] | None:
        """The distances of the lanes' elements from a common address, where they are known and small enough to load rows."""
        if address.stride is not None:
            near = address.stride in SHUFFLED_STRIDES
            return tuple(i * address.stride for i in range(self.lanes)) if near else None
        assert self.lane is not None
        moving = {m: c for m, c in address.offset.items() if not all(map(self._uniform, m))}
        key = (frozenset(moving.items()), self.lane, self._copy(names_in(moving)))
        if key not in self._patterns:
            known: dict[str, Expr] = {n: Const(c) for n, c in self.constants.items()}
            at = (simplify(substitute(to_expr(moving), known | {self.lane[0]: Const(i)})) for i in range(self.lanes))
            found = tuple(int(e.value) for e in at if isinstance(e, Const))
            near = len(found) == self.lanes and max(found) - min(found) < SHUFFLED_STRIDES[-1] * self.lanes
            self._patterns[key] = found if near else None
        return self._patterns[key]

    def _near(self, address: AccessAddress, wanted: Sequence[int], type: str, align: int, version: int) -> Value:
        """Elements at small distances: the lanes are picked from the rows that hold them.

        Where the buffer consists of groups of `stride` elements, one group a lane, rows of whole groups are loaded. Accesses to
        other elements of the groups share them. Else no element before the first or beyond the last one is read.
        """
        lanes, (pointer, start) = self.lanes, self._first(address)
        low, high = min(wanted), max(wanted)
        if low == high and self.mask is None:
            scalar = self._guarded_pointer(self._further(pointer, start + low * align), align, False)
            return self.splat(self.op(f"load {type}, ptr {scalar}, align {align}", type, 1, key=("load", scalar, version, 1)))
        width = min(lanes, high - low + 1) if low < high else lanes
        stride = address.stride or 0
        inside = self._place_in_group(address, stride)
        if low == high:
            starts = [low]
        elif inside is None:
            starts = [min(low + n * width, high - width + 1) for n in range(-(-(high - low + 1) // width))]
        else:
            starts = [n * lanes - inside for n in range(stride)]
        owner = [next(n for n, first in enumerate(starts) if first <= e < first + width) for e in wanted]
        result: Value | None = None
        for n, first in enumerate(starts):
            if n not in owner:
                continue
            places = {i: e - first for i, e in enumerate(wanted) if owner[i] == n}  # lane: place in the row
            takers = [[i for i, at in places.items() if at == x] for x in range(width)]
            if inside is not None:
                takers = [[(n * lanes + x) // stride] for x in range(lanes)]
            mask = self._of_any(takers)
            row = self._row(self._further(pointer, start + first * align), type, align, version, mask, align, width)
            if result is None:
                result = self.shuffled(row, None, map(places.get, range(lanes)))
            else:
                result = self.shuffled(result, row, (lanes + places[i] if i in places else i for i in range(lanes)))
        assert result is not None
        if self.mask is not None and len(set(wanted)) < lanes:  # another lane's element is loaded even where this one is off
            result = self.op(f"select {self.mask}, {result}, {self._masked_off_lanes(type, lanes)}", type, lanes)
        return result

    def _first(self, address: AccessAddress) -> tuple[str, int]:
        """A pointer and the bytes from there to the element, without the part of its address that differs between lanes."""
        if address.stride is not None:
            return self._base(address)
        uniform = {m: c for m, c in address.offset.items() if all(map(self._uniform, m))}
        further = sum(c * self.constants[v] for v, c in address.copies) * dtypes.nbytes(address.access.buffer.dtype)
        return self.pointer_at(address.access.buffer, uniform), further

    def _place_in_group(self, address: AccessAddress, stride: int) -> int | None:
        """The place, from 0, of an access in groups of `stride` elements, the same in all iterations of the loops around. None
        where it varies, or the buffer does not consist of such groups."""
        moving = [c for m, c in address.offset.items() if m]
        size = prod(n.value if isinstance(n, Const) else 1 for n in address.access.buffer.shape)
        if stride < 2 or address.nested or size % stride or any(c % stride for c in moving):
            return None
        return (address.offset.get((), 0) + sum(c * self.constants[v] for v, c in address.copies)) % stride

    def _of_any(self, takers: Sequence[Sequence[int]]) -> Value | None:
        """The mask whose lane n is on where the current one is on in any lane of `takers[n]`; None without a mask."""
        if self.mask is None:
            return None
        frame = self.hoisted_in.get(self.mask.name, self.top)
        frame = frame if frame in self.frames else self.top
        result: Value | None = None
        for n in range(max(map(len, takers))):
            picks = [lanes[n] if n < len(lanes) else self.lanes for lanes in takers]
            none, key = Value("zeroinitializer", "i1", self.lanes), ("picked", self.mask.name, *picks)
            part = self.shuffled(self.mask, none, picks, key, frame)
            if result is not None:
                part = self.op(f"or {result}, {part.name}", "i1", part.lanes, (result.name, part.name), frame)
            result = part
        return result

    def _column(self, address: AccessAddress, type: str, version: int) -> Value | None:
        """Elements in rows far apart, of which copies of an unrolled loop access adjacent columns. The first copy loads as many
        columns as lanes, row by row, and transposes them in registers. None where there is no such loop.

        All copies must access the same rows, under the same conditions: other rows may not exist. Addresses and contents of the
        rows must not change among the copies.
        """
        if address.stride is None:
            return None
        return self._square(address, address.offset, lambda: self._base(address), address.stride, 1, type, version)

    def _square(
        self,
        address: AccessAddress,
        offset: Polynomial,
        base: Callable[[], tuple[str, int]],
        stride: int,
        group: int,
        type: str,
        version: int,
    ) -> Value | None:
        """The elements of `_column` for groups of `group` adjacent elements, which begin `stride` elements apart. `offset` is the
        part of the address that all lanes share, and `base` gives a pointer and the bytes from there to the first."""
        lanes, size = self.lanes // group, dtypes.nbytes(address.access.buffer.dtype)
        conditions = [c.name for c in (self.mask, self.load_condition) if c is not None]
        if address.nested or lanes & (lanes - 1) or not all(c in self.sources for c in conditions):
            return None
        if loads_or_calls(offset):
            return None
        used = set().union(*(self.sources[c] for c in conditions), *(variable_names(a) for m in offset for a in m))
        for loop, step in address.copies:
            if loop not in self.unrolled:
                continue
            count, frame, defined, stored = self.unrolled[loop]
            column = self.constants[loop] % lanes
            if step != group or frame is not self.top or self.constants[loop] - column + lanes > count:
                continue
            if used & {loop, *(self.top.defined - defined)} or address.access.buffer.name in stored:
                continue
            pointer, start = base()
            start -= column * group * size
            key = ("square", pointer, start, stride, lanes, group, version, *conditions)
            if (key, 0) not in self.top.known:
                starts = [start + n * stride * size for n in range(lanes)]
                rows = [self._whole_row(pointer, at, n * group, type, size, version) for n, at in enumerate(starts)]
                unit = f"i{8 * group * size}" if group > 1 else type
                parts = [self.op(f"bitcast {r} to {typed(unit, lanes)}", unit, lanes) if group > 1 else r for r in rows]
                for n, v in enumerate(transposed(self, parts, 8 * group * size)):
                    full = typed(type, self.lanes)
                    self.top.known[key, n] = self.op(f"bitcast {v} to {full}", type, self.lanes) if group > 1 else v
            return self.top.known[key, column]
        return None

    def _whole_row(self, pointer: str, start: int, lane: int, type: str, size: int, version: int) -> Value:
        """A vector of consecutive elements of `size` bytes, one a lane; zeros if `lane` is masked off."""
        outer, wanted = self.mask, self.load_condition
        if outer is not None:
            active = self._element(outer, lane, key=("active", outer.name, lane))
            self.load_condition = active if wanted is None else self.op(f"and {active}, {wanted.name}", "i1")
        row = self._row(self._further(pointer, start), type, size, version, None, size)
        self.load_condition = wanted
        return row

    def _woven(self, address: AccessAddress, type: str, version: int) -> Value | None:
        """Elements that interleave a few rows, the first of each row, then the second of each, and so on: loaded row by row. Or
        groups of adjacent elements: those of 32 bits are gathered as one. None for other accesses, or where the number of rows is
        not a power of two."""
        assert self.lane is not None
        (name, lanes), size = self.lane, dtypes.nbytes(address.access.buffer.dtype)
        moving = {m: c for m, c in address.offset.items() if not all(self._uniform(a) for a in m)}
        found: dict[str, tuple[int, int]] = {}  # by operator: the number of rows, and the stride
        for m, c in moving.items():
            match m:
                case (Binary("//" | "%" as op, Var(v), Const(count)),) if v == name:
                    found[op] = int(count), c
        if address.nested or len(moving) != 2 or len(found) != 2:
            return None
        (count, along), (same, step) = found["//"], found["%"]
        if same != count or count & (count - 1) or lanes % count:
            return None
        width = lanes // count
        base, start = self._first(address)
        if step == 1 and count * size == 4 and (self.mask is None or self._same_in_groups(self.mask, count)):
            uniform = {m: c for m, c in address.offset.items() if m not in moving}
            if (column := self._square(address, uniform, lambda: (base, start), along, count, type, version)) is not None:
                return column
            if self.load_condition is not None:
                return None
            steps = ", ".join(f"i64 {n * along * size}" for n in range(width))
            first = self._further(base, start)
            pointers = self.op(f"getelementptr i8, ptr {first}, <{width} x i64> <{steps}>", "ptr", width)
            mask, none = Value("splat (i1 true)", "i1", width), Value("zeroinitializer", "i32", width)
            if self.mask is not None:
                off, picks = Value("zeroinitializer", "i1", lanes), range(0, lanes, count)
                mask = self.shuffled(self.mask, off, picks, ("groups", self.mask.name, count))
            name = f"llvm.masked.gather.v{width}i32.v{width}p0"
            fours = self.invoke(name, "i32", width, pointers, Value(str(size), "i32"), mask, none)
            return self.op(f"bitcast {fours} to {typed(type, lanes)}", type, lanes)
        if along != 1:
            return None

        def row(n: int) -> Value:
            mask = None
            if self.mask is not None:
                none = Value("zeroinitializer", "i1", lanes)
                picks = [*range(n, lanes, count)]
                mask = self.shuffled(self.mask, none, picks, ("woven", self.mask.name, n, count))
            return self._row(self._further(base, start + n * step * size), type, size, version, mask, size, width)

        def weave(rows: list[Value]) -> Value:
            if len(rows) == 1:
                return rows[0]
            even, odd = weave(rows[::2]), weave(rows[1::2])
            return self.shuffled(even, odd, (n for pair in range(even.lanes) for n in (pair, even.lanes + pair)))

        return weave([row(n) for n in range(count)])

    def _same_in_groups(self, mask: Value, count: int) -> bool:
        """True where a mask certainly is the same in each group of `count` adjacent lanes."""
        assert self.lane is not None
        lane, conditions = self.lane[0], self.conditions.get(mask.name)
        group = Binary("//", Var(lane), Const(count))
        without = [rewrite(c, lambda n: Const(0) if n == group else None) for c in conditions or ()]
        return conditions is not None and lane not in variables(*without)

    def _mask(self) -> Value:
        return self.mask if self.mask is not None else Value("splat (i1 true)", "i1", self.lanes)

    def pointers(self, address: AccessAddress) -> Value:
        """One pointer a lane."""
        lanes, size = self.lanes, dtypes.nbytes(address.access.buffer.dtype)
        if address.stride is not None:
            base = self.pointer_to(address)
            steps = ", ".join(f"i64 {i * address.stride * size}" for i in range(lanes))
            return self.op(
                f"getelementptr i8, ptr {base}, <{lanes} x i64> <{steps}>", "ptr", lanes, ("ptrs", base, address.stride, lanes)
            )
        base = self._further(*self._first(address))
        total: Value | None = None
        for m, c in address.offset.items():
            if all(map(self._uniform, m)):
                continue
            term: Value | None = None
            for atom in m:
                factor = self.splat(self.index(atom))
                term = factor if term is None else self.op(f"mul {term}, {factor.name}", "i64", lanes)
            scaled = self.op(f"mul {term}, splat (i64 {c * size})", "i64", lanes)
            total = scaled if total is None else self.op(f"add {total}, {scaled.name}", "i64", lanes)
        return self.op(f"getelementptr i8, ptr {base}, {total}", "ptr", lanes)

    def store(self, s: Store) -> None:
        b = s.buffer
        align = dtypes.nbytes(b.dtype)
        if self.lane is not None and b.scope != "register" and self.address_of(s).stride == 0:
            update = updated(s)
            if update is not None:
                self._combine_lanes(s, *update)
                return
        value = self.as_type(self.expr(s.value), b.dtype)
        self.versions[b.name] = self.versions.get(b.name, 0) + 1
        if b.scope == "register":
            value = self.packed(value, b.dtype) if b.dtype == "bool" else value
            slot = self._slot(b, s.indices)
            width = self._width(b)
            if width > 1:
                value, lanes = self.splat(value, width), self.lanes
                if value.lanes < width:
                    value = self.shuffled(value, None, (n if n < value.lanes else None for n in range(width)))
                if 1 < lanes < width and self.mask is None:
                    rest = self.op(f"load {value.full}, ptr {slot}", value.type, width)
                    value = self.shuffled(value, rest, (n if n < lanes else width + n for n in range(width)))
                if self.mask != self.masks.get(b.name):
                    old, mask = self.op(f"load {value.full}, ptr {slot}", value.type, width), self.mask
                    if mask is not None and mask.lanes < width:  # the lanes beyond stay
                        none = Value("zeroinitializer", "i1", mask.lanes)
                        mask = self.shuffled(mask, none, (min(n, mask.lanes) for n in range(width)))
                    value = self.op(f"select {mask}, {value}, {old}", value.type, width)
            elif value.lanes > 1:
                value = self._element(value, value.lanes - 1)
            self.line(f"store {value}, ptr {slot}")
            return
        value = self.packed(value, b.dtype)
        address = self.address_of(s)
        self._fetch_ahead(address, write=True)
        if self.lane is None:
            if self._streams_elements(b):
                self._stream_elements(value, 1, self.pointer_to(address), align)
            else:
                self.line(f"store {value}, ptr {self.pointer_to(address)}, align {align}")
            return
        lanes = self.lanes
        if address.stride == 0:
            # Every lane writes one place: the last one active stays, as in a loop.
            self._store_last_lane(value, self.pointer_to(address), align)
            return
        value = self.splat(value)
        if address.stride == 1:
            pointer, align = self.pointer_to(address), self._alignment(address)
            size = dtypes.nbytes(b.dtype)
            count = lanes if self.mask is None else self.prefixes.get(self.mask.name)
            if count and count * size < self.module.target.vector_bits // 8 and self._streams_elements(b):
                self._stream_elements(value, count, pointer, size)
            elif self.mask is None:
                whole = MIN_STREAMED_BYTES <= lanes * size and min(lanes * size, ALIGNMENT) <= align  # pieces within a line
                bypass = b.name in self.streamed and whole
                self.line(f"store {value}, ptr {pointer}, align {align}{', !nontemporal !0' if bypass else ''}")
                self.fenced |= bypass
            elif count and not self.module.target.machine_as(CPU).masks:
                self._store_prefix(value, count, pointer, size)
            else:
                where = Value(pointer, "ptr"), Value(str(align), "i32"), self.mask
                self.perform(f"llvm.masked.store.{value.suffix}.p0", value, *where)
            return
        where = self.pointers(address), Value(str(align), "i32"), self._mask()
        self.perform(f"llvm.masked.scatter.{value.suffix}.v{lanes}p0", value, *where)

    def _streams_elements(self, b: Buffer) -> bool:
        """True where single elements of a buffer are stored past the caches, as all others of their lines are."""
        streamed = b.name in self.shifted or (self.all_streamed and b.name in self.streamed)
        return streamed and dtypes.nbytes(b.dtype) in STREAMED_ELEMENTS

    def _stream_elements(self, value: Value, count: int, pointer: str, size: int) -> None:
        """Store the first `count` lanes past the caches, one by one."""
        kind = f"i{8 * size}"
        elements = value if value.type == kind else self.convert("bitcast", value, kind)
        for n in range(count):
            element = self._element(elements, n) if value.lanes > 1 else elements
            # Such a store exists for integers alone, and LLVM would make one of floats of this.
            element = self.op(f'call {kind} asm "", "=r,0"({element})', kind)
            self.line(f"store {element}, ptr {self._further(pointer, n * size)}, align {size}, !nontemporal !0")
        self.fenced = True

    def _store_prefix(self, value: Value, count: int, pointer: str, size: int) -> None:
        """Store the first `count` lanes in pieces of powers of two: masked stores may take dozens of cycles."""
        while count:
            first = count & (count - 1)  # all but the last piece, which is the shortest
            length = count - first
            piece = self._element(value, first) if length == 1 else self.shuffled(value, None, range(first, count))
            self.line(f"store {piece}, ptr {self._further(pointer, first * size)}, align {size}")
            count = first

    def _alignment(self, address: AccessAddress) -> int:
        """The known alignment in bytes of an access in its first lane. Temporaries start at multiples of ALIGNMENT, parameters
        whose stores bypass the caches at multiples that are tested before."""
        buffer = address.access.buffer
        size = dtypes.nbytes(buffer.dtype)
        if buffer.name in self.shifted:
            return self.shifted[buffer.name]
        if address.nested:
            return size
        start = ALIGNMENT if buffer.name not in self.given else self.streamed.get(buffer.name, size)
        return gcd(start, *(c * size for c in (*address.offset.values(), *(c for _, c in address.copies))))

    def _combine_lanes(self, s: Store, op: str, operand: Expr) -> None:
        """`C[c] = C[c] op operand` in every lane, c the same in all: the lanes are combined in pairs, and the result with C."""
        dtype = s.buffer.dtype
        v = self.splat(self.as_type(self.expr(operand), dtype))
        if self.mask is not None:
            v = self.op(f"select {self.mask}, {v}, {self.splat(self.identity(op, dtype), v.lanes)}", v.type, v.lanes)
        while v.lanes > 1:
            half, odd = divmod(v.lanes, 2)
            ends = (range(start, start + half) for start in (0, half))
            low, high = (self._element(v, end[0]) if half == 1 else self.shuffled(v, None, end) for end in ends)
            rest = self._element(v, v.lanes - 1) if odd else None
            v = self.operation(op, low, high, dtype)
            if rest is not None:
                first = self._element(v, 0) if v.lanes > 1 else v
                joined = self.operation(op, first, rest, dtype)
                v = self.op(f"insertelement {v}, {joined}, i64 0", v.type, v.lanes) if v.lanes > 1 else joined
        old = self.load(Load(s.buffer, s.indices))
        new = self.packed(self.operation(op, old, v, dtype), dtype)
        self.versions[s.buffer.name] = self.versions.get(s.buffer.name, 0) + 1
        self.line(f"store {new}, ptr {self.pointer_to(self.address_of(s))}, align {dtypes.nbytes(dtype)}")

    def _element(self, v: Value, lane: int, key: object = None) -> Value:
        return self.op(f"extractelement {v}, i64 {lane}", v.type, key=key)

    def _store_last_lane(self, value: Value, pointer: str, align: int) -> None:
        def write(v: Value, i: int) -> None:
            self.line(f"store {v if v.lanes == 1 else self._element(v, i)}, ptr {pointer}, align {align}")

        if self.mask is None:
            write(value, self.lanes - 1)
            return
        vector, mask = self.splat(value), self.mask
        for i in range(self.lanes):
            self.fork(self._element(mask, i), partial(write, vector, i), None)
