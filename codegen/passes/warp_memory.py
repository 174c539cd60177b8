"""Fragments: tiles that the 32 threads of a warp hold together in their registers, for instructions of the whole warp.

A buffer in scope `warp` is declared as a matrix. A nest annotated `instruction` is one instruction that all lanes of a warp
execute together: a product of small matrices, or a load of a tile from shared memory. The instruction fixes the layout of a tile
in the lanes' registers (PTX ISA, "Warp Level Matrix Instructions"). Nests that access the same buffer element by element follow
it: each lane runs the iterations whose elements it holds. A buffer with a number for each row has these in all lanes of the row,
which reduce a row together by shuffles. By shuffles a copy, too, may give each lane of a row all its elements.

Four warps along threadIdx.y, a warpgroup, multiply 64 rows by one instruction (PTX ISA, "Asynchronous Warpgroup Level Matrix
Instructions"). Each holds a result of 16 rows as of its own products; factors are in shared memory, and a product goes on until
it is waited for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from schedule.intrinsics import INSTRUCTION, WARPGROUP, is_grouped
from schedule.machine import AMPERE_CAPABILITY, HOPPER_CAPABILITY, compute_capability
from tir import dtypes
from tir.arith.bounds import ranges_of
from tir.arith.intervals import Interval
from tir.arith.polynomial import coefficient, polynomial, to_expr
from tir.arith.simplify import simplify
from tir.ir.buffers import Buffer, Load, const_shape
from tir.ir.expressions import Binary, Call, Const, Expr, Select, Var, cast
from tir.ir.functions import PrimFunc
from tir.ir.nodes import annotation
from tir.ir.statements import Allocate, Evaluate, For, If, Kind, Seq, Stmt, Store, nest, seq
from tir.memory import SHARED, SWIZZLED, WARP, WARP_SCOPE
from tir.traverse import (
    children,
    fresh,
    loads,
    loops,
    map_statements,
    perfect_nest,
    rewrite,
    rewrite_statements,
    substatements,
    substitute,
    variables,
    walk,
    walk_stmts,
)

from .cross_thread_reduction import SHUFFLE
from .free_variables import accessed_buffers
from .gpu_kernels import GPUError, GPUKernel, map_kernels, uses_warp_memory
from .swizzle import LINE, PARTS
from .thread_storage_sync import BARRIER

LDMATRIX = "ldmatrix_x4"  # a call: the four registers to fill, and the row of shared memory that this lane names
TRANSPOSED = "ldmatrix_x4_trans"
TF32 = "tf32"  # a call: its argument, rounded to 10 bits of mantissa
ROW = 16  # bytes of a row of an 8 x 8 matrix, in which `ldmatrix` moves
GROUP_FENCE, GROUP_COMMIT, GROUP_WAIT = (f"{WARPGROUP}_{x}" for x in ("fence", "commit", "wait"))  # calls around products
PROXY = "proxy_fence"  # a call: products of warpgroups, too, see what this thread stored
GROUP = 4  # warps of a warpgroup
MAX_COLUMNS = 256  # of the result of a warpgroup's instruction

RowColumn = tuple[int, int]  # a row and a column, or a step in each


@dataclass(frozen=True)
class WarpLayout:
    """The layout of a tile in a warp. Lane l has the elements e = 0, 1, ... at

        (row, column) = (l // 4) * group + (l % 4) * member + the sum over the parts of e,

    where a part (count, rows, columns) counts from 0 to count - 1 and adds (rows, columns) a step; the most significant first.
    """

    tile: RowColumn
    group: RowColumn
    member: RowColumn
    parts: tuple[tuple[int, int, int], ...]
    rounded: bool = False

    @property
    def elements(self) -> int:
        """The elements that a lane has of a tile."""
        return prod(count for count, _, _ in self.parts)

    @property
    def of_rows(self) -> WarpLayout:
        """The layout of numbers of the rows, which all lanes of a row have."""
        parts = tuple(part for part in self.parts if part[1])
        return WarpLayout((self.tile[0], 1), (self.group[0], 0), (self.member[0], 0), parts)


@dataclass(frozen=True)
class Product:
    """An instruction that multiplies: the layouts of its factors; its result is 16 x 8."""

    left: WarpLayout
    right: WarpLayout


RESULT = WarpLayout((16, 8), (1, 0), (0, 2), ((2, 8, 0), (2, 0, 1)))
_HALVES = Product(
    WarpLayout((16, 16), (1, 0), (0, 2), ((2, 0, 8), (2, 8, 0), (2, 0, 1))),
    WarpLayout((16, 8), (0, 1), (2, 0), ((2, 8, 0), (2, 1, 0))),
)
_TF32 = Product(
    WarpLayout((16, 8), (1, 0), (0, 1), ((2, 0, 4), (2, 8, 0)), True), WarpLayout((8, 8), (0, 1), (1, 0), ((2, 4, 0),), True)
)
_BYTES = Product(
    WarpLayout((16, 32), (1, 0), (0, 4), ((2, 0, 16), (2, 8, 0), (4, 0, 1))),
    WarpLayout((32, 8), (0, 1), (4, 0), ((2, 16, 0), (4, 1, 0))),
)
# A sum has its steps in any order, also in that of a result's columns, which may be a left factor then.
_DOUBLES = Product(RESULT, WarpLayout((8, 8), (0, 1), (2, 0), ((2, 1, 0),)))
_SINGLES = Product(
    WarpLayout((16, 8), (1, 0), (0, 0), ((2, 8, 0), (2, 0, 4), (4, 0, 1))),
    WarpLayout((8, 8), (0, 0), (0, 2), ((2, 4, 0), (4, 1, 0), (2, 0, 1))),
)
PRODUCTS = {
    "mma_m16n8k16_f16_f32": _HALVES, "mma_m16n8k16_bf16_f32": _HALVES, "mma_m16n8k16_f16_f16": _HALVES,
    "mma_m16n8k8_tf32_f32": _TF32, "mma_m16n8k8_f32_f32": _SINGLES, "mma_m16n8k8_f64_f64": _DOUBLES,
    **{f"mma_m16n8k32_{factors}_s32": _BYTES for factors in ("s8", "u8", "s8u8", "u8s8")},
}  # fmt: skip


@dataclass(frozen=True)
class Held:
    """The layout of a buffer in scope `warp`, and its dimensions that are the rows and the columns of tiles; None for a buffer
    with a number for each row."""

    layout: WarpLayout
    rows: int
    columns: int | None

    @property
    def dimensions(self) -> list[tuple[int, int]]:
        """The dimensions of tiles, each with the elements of a tile."""
        return [(d, n) for d, n in zip((self.rows, self.columns), self.layout.tile, strict=True) if d is not None]


def lower_warp_memory(func: PrimFunc, target) -> PrimFunc:
    """Replace buffers in scope `warp` by the local elements of each lane, and annotated nests by calls of warp instructions.

    Raises GPUError where a buffer has no layout or two, where loops do not fill tiles, or where the target has no such
    instruction.
    """

    def change(kernel: GPUKernel) -> Stmt:
        if not any(n.scope == WARP_SCOPE for n in walk(kernel.body) if type(n) is Buffer):
            return kernel.body
        if kernel.block[0] != WARP:
            raise GPUError(
                f"{kernel.name}: the lanes of a warp are threadIdx.x, which must have {WARP} threads where buffers in scope "
                f"`{WARP_SCOPE}` are used, got {kernel.block[0]}; bind warps to threadIdx.y and threadIdx.z"
            )
        if (capability := compute_capability(target.arch)) < AMPERE_CAPABILITY:
            raise GPUError(
                f"{kernel.name}: tensor cores are used through instructions of sm_{AMPERE_CAPABILITY} and later, "
                f"the target is sm_{capability}"
            )
        return _WarpLowering(kernel, capability).run()

    return map_kernels(func, change)


class _WarpLowering:
    def __init__(self, kernel: GPUKernel, capability: int):
        self.kernel, self.body, self.ranges, self.capability = kernel, kernel.body, kernel.ranges, capability
        self.lane, self.warp = (kernel.indices[f"threadIdx.{a}"] for a in "xy")
        names = {n.name for n in walk(self.body) if isinstance(n, (Var, Buffer))}
        self.taken = variables(self.body) | names | set(self.ranges)
        self.held: dict[str, Held] = {}

    def run(self) -> Stmt:
        for s in walk_stmts(self.body):
            if isinstance(s, For) and ((name := annotation(s.annotations, INSTRUCTION)) in PRODUCTS or is_grouped(s)):
                self.learn(s, PRODUCTS.get(name))
        self.spread()
        for n in walk(self.body):
            if type(n) is Buffer and n.scope == WARP_SCOPE and n.name not in self.held:
                raise GPUError(f"`{n.name}` in scope `{WARP_SCOPE}` is not an operand of a tensor-core instruction, so it has no "
                               "layout; tensorize the block that reads it, or use the scope `local` or `shared`")  # fmt: skip
        body = self.visit(self.body, self.ranges)
        if not any(map(_grouped, walk_stmts(self.body))):
            return body
        return rewrite_statements(body, lambda s: seq(_call(PROXY), s) if s == _call(BARRIER) else s)

    # layouts

    def learn(self, s: For, product: Product | None) -> None:
        """The layouts of the operands of a product; a warpgroup's has its result alone in scope `warp`."""
        total, left, right = _operands(s)
        row, column, step = (_shared_loop(s, a, b) for a, b in ((total, left), (total, right), (left, right)))
        self.note(total, RESULT, row, column)
        if product is None:
            return
        self.note(left, product.left, row, step)
        self.note(right, product.right, step, column)

    def note(self, x: Load, layout: WarpLayout, row: str, column: str) -> None:
        self.keep(x.buffer, Held(layout, _dimension(x.indices, row), _dimension(x.indices, column)))

    def keep(self, buffer: Buffer, held: Held) -> None:
        if buffer.scope != WARP_SCOPE:
            raise GPUError(f"`{buffer.name}` is an operand of a tensor-core instruction and must be in scope `{WARP_SCOPE}`, not "
                           f"`{buffer.scope}`; cache_read or cache_write it there first")  # fmt: skip
        known = self.held.setdefault(buffer.name, held)
        if known != held:
            raise GPUError(f"`{buffer.name}` in scope `{WARP_SCOPE}` is used by instructions that want it in different layouts; "
                           "give each a copy of its own (cache_read)")  # fmt: skip

    def spread(self) -> None:
        """Propagate layouts to buffers that are computed element by element with buffers of known layout."""
        pairs = [(s, x) for s in _single_stores(self.body) for x in (Load(s.buffer, s.indices), *loads(s.value))]
        grown = True
        while grown:
            grown = False
            for s, x in pairs:
                for a, b in ((x, Load(s.buffer, s.indices)), (Load(s.buffer, s.indices), x)):
                    if a.buffer.name in self.held or a.buffer.scope != WARP_SCOPE or b.buffer.name not in self.held:
                        continue
                    held = self.held[b.buffer.name]
                    walking = [variables(b.indices[d]) for d, _ in held.dimensions]
                    dims = [next((d for d, i in enumerate(a.indices) if variables(i) == v), None) for v in walking if v]
                    if len(dims) < len(walking) or dims[0] is None:
                        continue
                    if len(dims) == 2 and dims[1] is not None:
                        self.held[a.buffer.name] = Held(held.layout, dims[0], dims[1])
                    elif not variables(*a.indices[: dims[0]], *a.indices[dims[0] + 1 :]):
                        self.held[a.buffer.name] = Held(held.layout.of_rows, dims[0], None)
                    else:
                        continue
                    grown = True

    def local(self, buffer: Buffer) -> Buffer:
        """The registers of one lane: the elements of each tile are the last dimension."""
        held = self.held[buffer.name]
        shape = list(buffer.shape)
        for d, n in held.dimensions:
            dim = shape[d]
            if not isinstance(dim, Const):
                raise GPUError(f"`{buffer.name}` in scope `{WARP_SCOPE}` must have a constant shape, got {dim} elements")
            shape[d] = Const(-(-int(dim.value) // n))  # elements beyond the dimension are not used
        return buffer.with_(shape=(*shape, Const(held.layout.elements)), scope="local")

    def tile(self, buffer: Buffer, indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
        """The indices of the tile whose first element has `indices`."""
        held = self.held[buffer.name]
        result = list(indices)
        for d, n in held.dimensions:
            p = polynomial(simplify(indices[d], self.ranges))
            if any(c % n for c in p.values()):
                raise GPUError(f"`{buffer.name}[{', '.join(map(str, indices))}]` in scope `{WARP_SCOPE}` does not start a tile "
                               f"of {n} in dimension {d}; split loops by {n}")  # fmt: skip
            result[d] = to_expr({m: c // n for m, c in p.items()})
        return tuple(result)

    # statements

    def visit(self, s: Stmt, ranges: dict[str, Interval]) -> Stmt:
        match s:
            case Seq(stmts) if any(map(_grouped, stmts)):
                return self.products_that_go_on(stmts, ranges)
            case For() if _grouped(s):
                return self.products_that_go_on((s,), ranges)
            case For() if (name := annotation(s.annotations, INSTRUCTION)) is not None:
                return self.product(s, name) if name in PRODUCTS else self.load(s, str(name))
            case Allocate(buffer, body) if buffer.scope == WARP_SCOPE:
                return Allocate(self.local(buffer), self.visit(body, ranges))
            case For() if self.walks_tiles(s):
                return self.lanes(s)
            case Store() if uses_warp_memory(s):
                raise GPUError(f"`{s.buffer.name}[{', '.join(map(str, s.indices))}] = ...` touches a buffer in scope "
                               f"`{WARP_SCOPE}`, but not in loops over the rows and the columns of its tiles")  # fmt: skip
            case _:
                return map_statements(s, lambda c: self.visit(c, ranges_of([s], ranges)))

    def product(self, s: For, name: str) -> Stmt:
        zero = {x.name: Const(0) for x in loops(s)}
        places = []
        for x in _operands(s):
            start = tuple(simplify(substitute(i, zero)) for i in x.indices)
            places.append(Load(self.local(x.buffer), (*self.tile(x.buffer, start), Const(0))))
        return _call(name, *places)

    def products_that_go_on(self, stmts: Sequence[Stmt], ranges: dict[str, Interval]) -> Stmt:
        """Statements in sequence, of which products of warpgroups are waited for behind the copies of later tiles."""
        done: list[Stmt] = []
        waits: dict[str, Stmt] = {}  # by the sum of a product that goes on
        for s in stmts:
            if waits and (
                _grouped(s) or any(x == _call(BARRIER) for x in walk_stmts(s)) or waits.keys() & accessed_buffers(s).keys()
            ):
                done += waits.values()
                waits = {}
            if not _grouped(s):
                done.append(self.visit(s, ranges))
                continue
            instruction = next(x for x in loops(s) if annotation(x.annotations, INSTRUCTION) is not None)
            total = _operands(instruction)[0].buffer
            held = self.local(total)
            count = prod(const_shape(held))
            whole = Load(held, tuple(Const(0) for _ in held.shape)), Const(count)
            done += [_call(GROUP_FENCE, *whole), self.grouped_product(s, instruction), _call(GROUP_COMMIT)]
            waits[total.name] = _call(GROUP_WAIT, *whole)
        return seq(*done, *waits.values())

    def grouped_product(self, s: Stmt, instruction: For) -> Stmt:
        """Rewrite loops over steps and n columns of instructions, of each of which a warp has a part of 64 x 8 x 16, as loops
        over steps of one of 64 x 8 n x 16."""
        name = str(annotation(instruction.annotations, INSTRUCTION))
        if self.capability != HOPPER_CAPABILITY:
            raise GPUError(f"{name}: warpgroups multiply on sm_{HOPPER_CAPABILITY} alone, the target is sm_{self.capability}")
        if self.kernel.block[1] % GROUP:
            raise GPUError(f"{name}: a warpgroup is {GROUP} warps along threadIdx.y, got {self.kernel.block[1]}")
        total, left, right = _operands(instruction)
        row, column, step = (_shared_loop(instruction, a, b) for a, b in ((total, left), (total, right), (left, right)))
        width = 8  # columns
        nested, _ = perfect_nest(s)
        around = nested[: nested.index(instruction)]
        zero = dict.fromkeys((row, column, step), Const(0))
        while around and isinstance(extent := around[-1].extent, Const) and width * extent.value <= MAX_COLUMNS:
            columns = (polynomial(x.indices[_dimension(x.indices, column)]) for x in (total, right))
            steps = [coefficient(p, around[-1].name) for p in columns]
            if steps != [width, width] or around[-1].name in variables(*left.indices):
                break
            zero[around.pop().name] = Const(0)
            width *= int(extent.value)
        zero[self.warp.name] = self.warp // GROUP * GROUP
        start = tuple(simplify(substitute(i, zero), self.ranges) for i in total.indices)
        places: list[Expr] = [Load(self.local(total.buffer), (*self.tile(total.buffer, start), Const(0)))]
        layouts: list[Expr] = []
        for x, other, warps in ((left, row, 16), (right, column, 0)):
            strided = coefficient(polynomial(x.indices[_dimension(x.indices, other)]), self.warp.name)
            if x.buffer.scope != SWIZZLED or strided != warps:
                raise GPUError(f"{name}: `{x.buffer.name}` must be in scope `{SWIZZLED}`, got `{x.buffer.scope}`, and warps read "
                               f"it {warps} rows or columns apart, got {strided}")  # fmt: skip
            at = tuple(simplify(substitute(i, zero), self.ranges) for i in x.indices)
            transposed = step not in variables(x.indices[-1])
            unit = LINE // dtypes.nbytes(x.dtype) if transposed else 16
            if any(c % n for i, n in zip(at[-2:], (PARTS, unit), strict=True) for c in polynomial(i).values()):
                raise GPUError(f"{name}: `{x.buffer.name}` must be read from multiples of {PARTS} rows and {unit} columns on, "
                               f"got [{', '.join(map(str, at))}]")  # fmt: skip
            places.append(Load(x.buffer, at))
            rows = x.buffer.shape[-2]
            layouts += [Const(int(transposed)), Const(int(rows.value) * LINE if isinstance(rows, Const) else 0)]
        kind = name.replace("n8k", f"n{width}k")
        return nest(around, _call(kind, *places, *layouts))

    def load(self, s: For, name: str) -> Stmt:
        """Load a tile by `ldmatrix`: four registers of 8 x 8 matrices of 16 bits, lane l naming row l % 8 of matrix l // 8."""
        store = _one_store(s, name)
        source = store.value
        if not isinstance(source, Load) or source.buffer.scope not in SHARED or store.buffer.scope != WARP_SCOPE:
            raise GPUError(f"{name} loads from shared memory to scope `{WARP_SCOPE}`, got `{store.buffer.name}` in scope "
                           f"`{store.buffer.scope}` = {store.value}")  # fmt: skip
        held = self.held[store.buffer.name]
        layout, width = held.layout, ROW // dtypes.nbytes(source.dtype)
        within = {x.name: x for x in loops(s)}
        sides = [next(iter(variables(store.indices[d]) & set(within))) for d, _ in held.dimensions]
        # Lane l of a matrix gets from row l // 4 the elements from l % 4 on; transposed, from the rows l % 4 on element l // 4.
        crossing = 0 if layout.group == (1, 0) else 1
        transposed = sides[crossing] in variables(source.indices[-1])
        if transposed and width != 8:
            raise GPUError(f"{name} cannot transpose `{source.buffer.name}`, whose elements have {8 * ROW // width} bits; "
                           "leave out tensorize, and each lane loads its own elements")  # fmt: skip
        per = width // 4  # elements of a register
        registers: list[tuple[RowColumn, RowColumn]] = []  # of each, the tile and the place in it
        counts = [int(within[v].extent.value) // n for v, n in zip(sides, layout.tile, strict=True)]  # type: ignore[attr-defined]
        for a in range(counts[0]):
            for b in range(counts[1]):
                registers += [((a, b), place) for place in _origins(layout, per)]
        if len(registers) != 4:
            raise GPUError(f"{name} fills 4 registers, `{store.buffer.name}` has {len(registers)} of the tile")
        origin = [tuple(t * n + o for t, n, o in zip(tile, layout.tile, place, strict=True)) for tile, place in registers]
        matrix, row = self.lane // 8, self.lane % 8
        where: dict[str, Expr] = {}
        for side, v in enumerate(sides):
            index = matrix % 2 * origin[1][side] + matrix // 2 * origin[2][side]
            where[v] = index + row if (side == crossing) != transposed else index
        address = tuple(simplify(substitute(i, where), self.ranges) for i in source.indices)
        _need_rows(source.buffer, address, width, name)
        places = []
        for n, (tile, _) in enumerate(registers):
            start = {v: Const(t * m) for v, t, m in zip(sides, tile, layout.tile, strict=True)}
            at = self.tile(store.buffer, tuple(simplify(substitute(i, start)) for i in store.indices))
            places.append(Load(self.local(store.buffer), (*at, Const(n * per % layout.elements))))
        call = Evaluate(Call(TRANSPOSED if transposed else LDMATRIX, (*places, Load(source.buffer, address)), "int32"))
        if not layout.rounded:
            return call
        e = Var(fresh(self.taken, "e"))
        steps: list[Stmt] = [call]
        for x in dict.fromkeys(x.with_(indices=(*x.indices[:-1], e)) for x in places):
            steps.append(For(e, Const(layout.elements), Store(x.buffer, x.indices, Call(TF32, (x,), x.dtype)), Kind.UNROLLED))
        return seq(*steps)

    # elements

    def moved(self, buffer: Buffer, layout: WarpLayout) -> bool:
        """True where lanes of another layout hold the elements of a row in other columns."""
        held = self.held[buffer.name]
        return held.columns is not None and held.layout.member != layout.member

    def walks_tiles(self, s: For) -> bool:
        """True where `s` walks the rows or columns of tiles of a buffer, element by element."""
        return any(s.name in pair for pair in self.pairs(s))

    def pairs(self, s: Stmt) -> list[tuple[str, ...]]:
        """The loops in `s` and around that walk the rows, and the columns, of tiles, for each access outside of instructions."""
        found: dict[tuple[str, ...], None] = {}
        for x in _warp_accesses(s):
            pair = []
            for d, _ in self.held[x.buffer.name].dimensions:
                p = polynomial(simplify(x.indices[d], self.ranges))
                single = [m[0].name for m, c in p.items() if c == 1 and len(m) == 1 and type(m[0]) is Var]
                pair.append(single[0] if len(single) == 1 else "")
            found[tuple(pair)] = None
        return list(found)

    def lanes(self, s: For) -> Stmt:
        """Rewrite   for i in range(16 a): for j in range(8 b): S(i, j)
        => for i_tile in range(a): for j_tile in range(b): for each part of e: S(row of e, column of e)
        """
        found = self.pairs(s)
        helds = {self.held[x.buffer.name] for x in _warp_accesses(s)}
        accesses = ", ".join(dict.fromkeys(f"`{x.buffer.name}`" for x in _warp_accesses(s)))
        pair, layout = max(found, key=len), max((h.layout for h in helds), key=lambda x: x.elements)
        stored = {x.buffer.name for x in _single_stores(s)}
        moved = {x.buffer.name for x in _warp_accesses(s) if self.moved(x.buffer, layout)}
        shared = all(h.layout.group == layout.group and not h.layout.rounded for h in helds)
        shared = shared and not moved & stored and (not moved or layout.member == (0, 0))
        if any(p != pair[: len(p)] for p in found) or "" in pair or not (shared or len({h.layout for h in helds}) == 1):
            raise GPUError(f"loop `{s.name}`: {accesses} in scope `{WARP_SCOPE}` must be walked by the same two loops, over the "
                           "rows and columns of tiles of one layout; split by the tile, or keep the nests apart")  # fmt: skip
        around, conditions, inner = _down_to(s, set(pair), accesses)
        if moved and (conditions or type(inner) is not Store or type(inner.value) is not Load):
            raise GPUError(f"loop `{s.name}`: lanes exchange elements of {accesses}, which must be a copy without conditions; "
                           "pad the computation")  # fmt: skip
        group, member = self.lane // 4, self.lane % 4
        outer: list[tuple[For, bool]] = [(x, pair[-1] in variables(x.extent)) for x in around if x.name not in pair]
        where: dict[str, Expr] = {}
        starts: dict[str, Expr] = {}  # of the tile
        for side, name in enumerate(pair):
            loop = next(x for x in around if x.name == name)
            n = layout.tile[side]
            if not isinstance(loop.extent, Const) or loop.extent.value % n:
                raise GPUError(f"loop `{name}` walks {accesses} in scope `{WARP_SCOPE}`, and must have a multiple of {n} "
                               f"iterations, got {loop.extent}")  # fmt: skip
            starts[name] = Const(0)
            if loop.extent.value > n:
                number = Var(fresh(self.taken, f"{name}_tile"))
                tiles = Const(int(loop.extent.value) // n)
                outer.append((For(number, tiles, s.body, Kind.UNROLLED, annotations=loop.annotations), side == 1))
                starts[name] = number * n
            where[name] = starts[name] + group * layout.group[side] + member * layout.member[side]
        within: list[Expr] = [Const(0), Const(0)]  # the row and the column in the tile, without those of the lane
        ranges = dict(self.ranges)
        last = len(layout.parts) - 1
        for number_of, (count, rows, columns) in enumerate(layout.parts):
            part = Var(fresh(self.taken, "e"))
            ranges[part.name] = (0, count - 1)
            kind = Kind.VECTORIZED if number_of == last and len(pair) == 2 and not moved else Kind.UNROLLED
            outer.append((For(part, Const(count), s.body, kind), columns > 0))
            within = [within[0] + part * rows, within[1] + part * columns]
        if layout.parts[last][2]:  # rows outside, so that what a row shares is found once
            outer.sort(key=lambda x: x[1])
        for name, inside in zip(pair, within, strict=False):
            where[name] = where[name] + inside

        def place(buffer: Buffer, indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
            """The indices of an element of a lane."""
            held, element = self.held[buffer.name], Const(0)
            at = list(self.tile(buffer, self.start(buffer, indices, starts)))
            for (d, n), inside in zip(held.dimensions, within, strict=False):
                at[d] = simplify(at[d] + inside // n, ranges)
            for count, rows, columns in held.layout.parts:
                side = 0 if rows else 1
                digit = within[side] % held.layout.tile[side] // (rows or columns) % count
                element = element * count + digit
            return (*at, simplify(element, ranges))

        def change(n):
            match n:
                case Load(buffer, indices) if buffer.scope == WARP_SCOPE:
                    element = Load(self.local(buffer), place(buffer, indices))
                    if buffer.name not in moved:
                        return element
                    held = self.held[buffer.name].layout
                    owner = simplify(within[1] % held.tile[1] // held.member[1] % 4, ranges)
                    return _from_lane(element, Call("bit_xor", (member, owner), "int32"))
                case Store(buffer, indices, value) if buffer.scope == WARP_SCOPE:
                    if layout.rounded:
                        value = Call(TF32, (value,), value.dtype)
                    return Store(self.local(buffer), place(buffer, indices), value)
            return None

        body = rewrite(inner, change)
        for c in reversed(conditions):
            body = If(c, body)
        reduced = next((x for x in _single_stores(inner) if x.buffer.scope == WARP_SCOPE), None)
        if reduced is not None and len(self.held[reduced.buffer.name].dimensions) < len(pair):
            steps = nest([x.with_(kind=Kind.UNROLLED) for x, across in outer if across], body)
            total = rewrite(Load(reduced.buffer, reduced.indices), change)
            body, outer = self.reduced_row(reduced, total, steps), [x for x in outer if not x[1]]
        return substitute(nest([x for x, _ in outer], body), where)

    def reduced_row(self, s: Store, total: Load, steps: Stmt) -> Stmt:
        """The steps by which each lane reduces its elements of a row into its copy of the `total`, and those by which lanes
        combine theirs. What a sum starts from counts once."""
        value, old = s.value, Load(s.buffer, s.indices)
        op = value.op if isinstance(value, Binary) and old in (value.a, value.b) else ""
        if op not in ("+", "min", "max") or self.held[s.buffer.name].layout.member[0]:
            raise GPUError(f"`{s.buffer.name}` in scope `{WARP_SCOPE}` has a number for each row, and is reduced along it by +, "
                           f"min or max alone, got {value}")  # fmt: skip

        def store(value: Expr) -> Stmt:
            return Store(total.buffer, total.indices, value)

        others = (_from_lane(total, Const(n)) for n in (2, 1))
        first = Select((self.lane % 4).equal(Const(0)), total, cast(Const(0), total.dtype))
        return seq(*([store(first)] if op == "+" else []), steps, *(store(Binary(op, total, other)) for other in others))

    def start(self, buffer: Buffer, indices: tuple[Expr, ...], starts: Mapping[str, Expr]) -> tuple[Expr, ...]:
        """The indices of the first element of a tile, given the values of its two loops there."""
        result = list(indices)
        for (d, _), name in zip(self.held[buffer.name].dimensions, starts, strict=False):
            result[d] = substitute(indices[d], {name: starts[name]})
        return tuple(result)


def _from_lane(x: Load, distance: Expr) -> Call:
    """The element of the lane whose number differs in the bits of `distance`."""
    return Call(SHUFFLE, (x, distance, Const(2**WARP - 1, "int64")), x.dtype)


def _down_to(s: For, missing: set[str], accesses: str) -> tuple[list[For], list[Expr], Stmt]:
    """The loops from `s` down to all of `missing`, the conditions between, and the statement inside; refuses other statements."""
    around: list[For] = []
    conditions: list[Expr] = []
    inner: Stmt = s
    while missing:
        match inner:
            case For(var) if annotation(inner.annotations, INSTRUCTION) is None:
                around.append(inner)
                missing = missing - {var.name}
                inner = inner.body
            case If(condition, then, None):
                conditions.append(condition)
                inner = then
            case _:
                raise GPUError(f"loop `{s.name}`: the loops over rows and columns of {accesses} must hold nothing else")
    return around, conditions, inner


def _origins(layout: WarpLayout, per: int) -> Iterator[RowColumn]:
    """The place in the tile of the first element of each register of lane 0."""
    parts = layout.parts[:-1] if per > 1 else layout.parts
    places: list[RowColumn] = [(0, 0)]
    for count, rows, columns in parts:
        places = [(r + n * rows, c + n * columns) for r, c in places for n in range(count)]
    yield from places


def _need_rows(buffer: Buffer, address: tuple[Expr, ...], width: int, name: str) -> None:
    """Refuse rows of shared memory that do not start at multiples of 16 bytes."""
    stride = 1
    for i, dim in reversed(list(zip(address, buffer.shape, strict=True))):
        if any(c * stride % width for c in polynomial(i).values()):
            raise GPUError(f"{name}: rows of 8 in `{buffer.name}` must start at multiples of {width} elements, got "
                           f"[{', '.join(map(str, address))}]; change storage_align")  # fmt: skip
        stride *= int(dim.value) if isinstance(dim, Const) else 1


def _grouped(s: Stmt) -> bool:
    """True where a statement is a nest that holds a product of a warpgroup, and nothing else."""
    return any(map(is_grouped, perfect_nest(s)[0]))


def _call(op: str, *args: Expr) -> Stmt:
    """A call of a device function without a result."""
    return Evaluate(Call(op, args, "int32"))


def _operands(s: For) -> tuple[Load, Load, Load]:
    """The sum, the left and the right factor of a product; the left one shares the loop of 16 rows with the sum."""
    store = _one_store(s, str(annotation(s.annotations, INSTRUCTION)))
    total = Load(store.buffer, store.indices)
    others = [x for x in _plain_loads(store.value) if x != total]
    if isinstance(store.value, Binary) and store.value.op == "+" and len(others) == 2:
        extents = {x.name: x.extent for x in loops(s)}
        first, second = others
        loop = _shared_loop(s, total, first)
        if isinstance(e := extents.get(loop), Const) and e.value == 16:
            return total, first, second
        return total, second, first
    raise GPUError(f"`{s.name}` is annotated as an instruction that multiplies, but holds {store.value}")


def _plain_loads(e: Expr) -> list[Load]:
    match e:
        case Load():
            return [e]
        case _:
            return [x for c in children(e) if isinstance(c, Expr) for x in _plain_loads(c)]


def _one_store(s: For, name: str) -> Store:
    inner = perfect_nest(s)[0][-1].body
    if not isinstance(inner, Store):
        raise GPUError(f"{name}: the nest of `{s.name}` must hold one statement without a condition; pad the computation, so "
                       "that tiles are whole (pad_einsum)")  # fmt: skip
    return inner


def _shared_loop(s: For, a: Load, b: Load) -> str:
    """The loop of an instruction that walks both operands."""
    both = {x.name for x in loops(s)} & variables(*a.indices) & variables(*b.indices)
    if len(both) != 1:
        raise GPUError(f"`{a.buffer.name}` and `{b.buffer.name}` must share one loop of their instruction")
    return next(iter(both))


def _dimension(indices: tuple[Expr, ...], loop: str) -> int:
    return next(d for d, i in enumerate(indices) if coefficient(polynomial(i), loop) == 1)


def _outside_instructions(s: Stmt) -> Iterator[Stmt]:
    """The statements of `s` outside of instructions."""
    if isinstance(s, For) and annotation(s.annotations, INSTRUCTION) is not None:
        return
    yield s
    for c in substatements(s):
        yield from _outside_instructions(c)


def _single_stores(s: Stmt) -> list[Store]:
    return [x for x in _outside_instructions(s) if isinstance(x, Store)]


def _warp_accesses(s: Stmt) -> list[Load]:
    """The accesses to buffers in scope `warp` outside of instructions, stores as if they were loads."""
    found = []
    for x in _single_stores(s):
        found += [y for y in (Load(x.buffer, x.indices), *loads(x.value)) if y.buffer.scope == WARP_SCOPE]
    return found
