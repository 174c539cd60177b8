"""Accumulators live in registers while the loops that reduce into them run."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

from schedule.intrinsics import INSTRUCTION
from tir.analysis.context import accesses
from tir.analysis.positions import position
from tir.arith.bounds import ranges_of
from tir.arith.intervals import Interval
from tir.arith.polynomial import Polynomial, add, as_constant, nonpositive, polynomial, to_expr
from tir.arith.prove import prove
from tir.arith.simplify import simplify
from tir.ir.buffers import Buffer, Load
from tir.ir.expressions import Binary, Const, Expr, Select, Unary, Var, conjunction, conjuncts, const
from tir.ir.functions import PrimFunc
from tir.ir.nodes import Node, annotation
from tir.ir.statements import Allocate, For, If, Kind, Let, Seq, Stmt, Store, guarded, nest, seq
from tir.traverse import (
    fresh,
    loads,
    loops,
    map_children,
    map_statements,
    move_accesses,
    names,
    perfect_nest,
    stored_names,
    stores,
    substitute,
    variables,
    walk_stmts,
    with_fresh_loops,
)

from .guards import loop_facts

REDUCING = (Kind.SERIAL, Kind.UNROLLED)  # loops during which registers may hold accumulators
MAX_REGISTERS = 256  # vectors (or scalars) of one buffer that are kept in registers at most

Loops = dict[str, tuple[Var, int]]  # unrolled or vectorised loops around a statement, with their extents


@dataclass
class _RegisterTile:
    """The elements of loop-invariant accesses: `base`, plus one axis for each unrolled loop that moves it, and lanes.

    `axes` are (stride, extent), widest stride first; `loops` are the variables of the first access found. `certain` has the
    conditions of each store that is under none but those that may guard the load before the loops.
    """

    base: Polynomial
    axes: tuple[tuple[int, int], ...]
    lanes: int
    indices: tuple[Expr, ...]
    loops: tuple[Var, ...]
    lane: Var | None
    conditions: list[Expr]
    stored: bool = False
    certain: list[list[Expr]] = field(default_factory=list)
    register: Buffer | None = field(default=None)

    def happens(self) -> bool:
        """True where each iteration of the loops stores to every element, which is hence in bounds."""
        return any(all(c in self.conditions for c in store) for store in self.certain)

    def offsets(self) -> list[int]:
        """The offsets of the vectors from `base`, in elements."""
        steps = [[stride * i for i in range(extent)] for stride, extent in self.axes]
        return [sum(point) for point in itertools.product(*steps)]

    def present(self) -> int:
        """The number of lanes in use: a guard may exclude the last ones."""
        bounds = [
            c.b.value
            for c in self.conditions
            if isinstance(c, Binary) and c.op == "<" and c.a == self.lane and isinstance(c.b, Const)
        ]
        return min([self.lanes, *bounds])


Promoted = tuple[Buffer, _RegisterTile]  # a buffer, and a tile of it that registers hold


def promote_registers(func: PrimFunc, target) -> PrimFunc:
    """Rewrite   for k: C[c] = f(C[c])   with c the same in every iteration
              => r = C[c];  for k: r = f(r);  C[c] = r

    for all elements of C that the body accesses, where accesses are provably equal or disjoint. `r` is a buffer of scope
    "register", with one axis for each unrolled loop that moves the access and one for lanes; its elements become SSA values. The
    loop may be a nest of serial loops, or unrolled. Where the statement before only sets these elements to a constant, as an init
    does, the registers start from that, and it goes.
    """
    taken = names(func)

    def visit(s: Stmt, ranges: dict[str, Interval], lanes: Loops, facts: list[Expr]) -> Stmt:
        match s:
            case For() if annotation(s.annotations, INSTRUCTION):
                return s
            case For(var, extent, body, kind):
                inside = ranges_of([s], ranges)
                known = [*facts, *loop_facts(s)]
                if kind in REDUCING:
                    s, tiles = _promote(s, ranges, lanes, facts, taken)
                    if tiles:
                        return _around(s, tiles, None, taken)
                if kind is Kind.VECTORIZED and isinstance(extent, Const):
                    lanes = {**lanes, var.name: (var, int(extent.value))}
                new = visit(body, inside, lanes, known)
                return s.with_(body=new)
            case Seq(stmts):
                made: list[Stmt] = []
                for x in stmts:
                    if made and isinstance(x, For) and x.kind in REDUCING:
                        loop, tiles = _promote(x, ranges, lanes, facts, taken)
                        start = _start(made[-1], tiles, lanes) if tiles else None
                        if start is not None:
                            made[-1] = _around(loop, tiles, start, taken)
                            continue
                    made.append(visit(x, ranges, lanes, facts))
                return s if [*map(id, made)] == [*map(id, stmts)] else seq(*made)
            case If(condition, then, orelse):
                new_then = visit(then, ranges, lanes, [*facts, *conjuncts(condition)])
                new_else = None if orelse is None else visit(orelse, ranges, lanes, facts)
                return s.with_(then=new_then, orelse=new_else)
            case _:
                return map_statements(s, lambda c: visit(c, ranges, lanes, facts))

    return func.with_(body=visit(func.body, {}, {}, []))


def _promote(loop: For, ranges, lanes: Loops, facts: list[Expr], taken: set[str]) -> tuple[For, list[Promoted]]:
    """`loop` on register buffers in place of accumulators, and the tiles they hold."""
    around = perfect_nest(loop, Kind.SERIAL)[0]
    body = around[-1].body
    if any(x.kind not in (Kind.VECTORIZED, Kind.UNROLLED) for x in loops(body)):
        return loop, []
    inner = ranges_of(loops(loop), ranges)
    moving = {x.name for x in around}
    runs = all(prove(Binary("<", Const(0), x.extent), inner, facts) for x in around)
    inside = {x.buffer.name for x in walk_stmts(body) if isinstance(x, Allocate)}  # each iteration has its own
    stored = {x.buffer.name: x.buffer for x in stores(body) if x.buffer.scope != "register" and x.buffer.name not in inside}
    promoted: list[Promoted] = []
    for buffer in stored.values():
        tiles = _tiles(body, buffer, moving, lanes)
        if tiles is None or not all((runs and t.happens()) or _tile_in_bounds(t, buffer, inner, facts) for t in tiles):
            continue
        for tile in tiles:
            shape = (*(extent for _, extent in tile.axes), tile.lanes)
            tile.register = Buffer(fresh(taken, f"{buffer.name}_reg"), tuple(Const(n) for n in shape), buffer.dtype, "register")
            promoted.append((buffer, tile))
        body = _on_registers(body, buffer, tiles, lanes)
    if not promoted:
        return loop, []
    known = [*facts, *(f for x in around for f in loop_facts(x))]
    own = {x.name for x in loops(body)} | {x.var.name for x in walk_stmts(body) if isinstance(x, Let)}
    body = _unguarded(body, {t.register.name: t for _, t in promoted if t.register is not None}, own, inner, known)
    return nest(around, body), promoted  # type: ignore[return-value]


def _decompose(offset: Polynomial, lanes: Loops, unrolled: Loops):
    """(base, axes as (stride, extent, var), lane) of a flat offset; None where lanes or unrolled loops are not linear in it."""
    base: Polynomial = {}
    axes: list[tuple[int, int, Var]] = []
    lane: tuple[Var, int] | None = None
    tiling = {*lanes, *unrolled}
    for m, c in offset.items():
        used = variables(*m) & tiling
        if not used:
            base[m] = c
        elif len(m) > 1 or not isinstance(m[0], Var) or c < 0:
            return None
        elif m[0].name in lanes:
            if lane is not None or c != 1:
                return None
            lane = lanes[m[0].name]
        else:
            axes.append((c, unrolled[m[0].name][1], m[0]))
    return base, tuple(sorted(axes, key=lambda a: (-a[0], a[1], a[2].name))), lane


def _tiles(body: Stmt, buffer: Buffer, moving: set[str], outer_lanes: Loops) -> list[_RegisterTile] | None:
    """The distinct tiles of `buffer` that `body` accesses; None if they move with the loops or may overlap partly."""
    tiles: list[_RegisterTile] = []
    bound = {x.var.name for x in walk_stmts(body) if isinstance(x, Let)}  # anew in each iteration
    stored = stored_names(body)
    if not all(isinstance(x.extent, Const) for x in loops(body)):
        return None
    for x, around in accesses(body):
        if x.buffer.name != buffer.name:
            continue
        store = isinstance(x, Store)
        lanes, unrolled = dict(outer_lanes), Loops()
        for loop in around.loops:
            (lanes if loop.kind is Kind.VECTORIZED else unrolled)[loop.name] = (loop.var, int(loop.extent.value))  # type: ignore[attr-defined]
        loaded = {n.buffer.name for i in x.indices for n in loads(i)}
        if loaded & stored or variables(*x.indices) & (moving | bound):
            return None
        parts = _decompose(position(buffer, x.indices), lanes, unrolled)
        if parts is None or (store and lanes and parts[2] is None):  # one place written by every lane
            return None
        base, axes, lane = parts
        shape = tuple((stride, extent) for stride, extent, _ in axes)
        # Conditions on the element alone guard the load before the loops and the store after them.
        ours = {v.name for _, _, v in axes} | ({lane[0].name} if lane else set())
        foreign = moving | bound | ({*lanes, *unrolled} - ours)
        kept = [c for c in around.conditions if not variables(c) & foreign and not loads(c)]
        moved = tuple(v for _, _, v in axes)
        new = _RegisterTile(base, shape, lane[1] if lane else 1, x.indices, moved, lane[0] if lane else None, kept, store)
        same = [t for t in tiles if (t.axes, t.lanes) == (shape, new.lanes)]
        known = next((t for t in same if as_constant(add(base, t.base, -1)) == 0), None)
        if known is None:
            tiles.append(new)
            here, known = kept, new
        else:
            known.stored |= store
            here = [substitute(c, _places_named(new, known)) for c in kept]
            known.conditions = [c for c in known.conditions if c in here]
        if store and len(kept) == len(around.conditions) and not around.otherwise:
            known.certain.append(here)
    if not tiles or sum(len(t.offsets()) for t in tiles) > MAX_REGISTERS or not _tiles_disjoint(tiles):
        return None
    return tiles


def _places_named(a: _RegisterTile, b: _RegisterTile) -> dict[str, Expr]:
    """The variables of tile `a` mapped to those of tile `b`, which has the same axes."""
    lane = {a.lane.name: b.lane} if a.lane is not None and b.lane is not None else {}
    return dict(zip((v.name for v in a.loops), b.loops, strict=True)) | lane  # type: ignore[return-value]


def _tiles_disjoint(tiles: list[_RegisterTile]) -> bool:
    """True where all vectors of all tiles are disjoint."""
    spans: list[tuple[int, int]] = []
    for tile in tiles:
        distance = as_constant(add(tile.base, tiles[0].base, -1))
        if distance is None:
            return False
        spans += [(distance + o, distance + o + tile.present()) for o in tile.offsets()]
    return all(end <= start for (_, end), (start, _) in itertools.pairwise(sorted(spans)))


def _tile_in_bounds(tile: _RegisterTile, buffer: Buffer, ranges, facts: list[Expr]) -> bool:
    """True where the elements are in bounds under the conditions that will guard their loads and stores."""
    inner = dict(ranges)
    if tile.lane is not None:
        inner[tile.lane.name] = (0, tile.lanes - 1)
    return _load_in_bounds(Load(buffer, tile.indices), inner, [*facts, *tile.conditions])


def _on_registers(body: Stmt, buffer: Buffer, tiles: list[_RegisterTile], outer_lanes: Loops) -> Stmt:
    """The body with accesses to `buffer` moved to the registers of its tiles."""
    lanes = dict(outer_lanes)
    unrolled: Loops = {}
    for x in loops(body):
        (lanes if x.kind is Kind.VECTORIZED else unrolled)[x.name] = (x.var, int(x.extent.value))  # type: ignore[attr-defined]

    def place(b: Buffer, indices: tuple[Expr, ...]) -> tuple[Buffer, tuple[Expr, ...]] | None:
        if b.name != buffer.name:
            return None
        base, axes, lane = _decompose(position(buffer, indices), lanes, unrolled)
        tile = next(t for t in tiles if not add(base, t.base, -1))
        assert tile.register is not None
        return tile.register, (*(v for _, _, v in axes), lane[0] if lane else Const(0))

    return move_accesses(body, place)


def _unguarded(s: Stmt, tiles: dict[str, _RegisterTile], own: set[str], ranges, facts: list[Expr]) -> Stmt:
    """`s` without the guards that only exclude elements of a partial tile.

    Rewrite   if c: r = f(r, A[i])   =>   r = f(r, A[i] if c else 0)
    where `c` also guards the load of `r` before the loops and its store after them. Excluded elements compute values that are
    never stored, and full and partial tiles run the same instructions. `own` are the variables of the tile.
    """
    match s:
        case If(condition, then, None):
            conditions = list(conjuncts(condition))
            inner = [x for x in walk_stmts(then) if not isinstance(x, (For, Seq))]
            if all(isinstance(x, Store) and _only_there(x, conditions, tiles) for x in inner):
                lanes = {t.lane.name for t in tiles.values() if t.lane is not None}
                new = _predicated(then, conditions, own, lanes, ranges, facts)
                if new is not None:
                    return new
            return s.with_(then=_unguarded(then, tiles, own, ranges, [*facts, *conditions]))
        case _:
            return map_statements(s, lambda c: _unguarded(c, tiles, own, ranges, facts))


def _only_there(s: Store, conditions: list[Expr], tiles: dict[str, _RegisterTile]) -> bool:
    """True where the store is to a register whose elements are all under the conditions."""
    tile = tiles.get(s.buffer.name)
    if tile is None:
        return False
    names_here: dict[str, Expr] = {v.name: i for v, i in zip(tile.loops, s.indices, strict=False)}
    if tile.lane is not None:
        names_here[tile.lane.name] = s.indices[-1]
    there = [substitute(c, names_here) for c in tile.conditions]
    return all(c in there for c in conditions)


def _predicated(s: Stmt, conditions: list[Expr], own: set[str], lanes: set[str], ranges, facts: list[Expr]) -> Stmt | None:
    """`s` without the conditions around it, each load under those that keep it in bounds; None where that is unproved.

    A load drops conditions that hold where their tile variables are 0, if its indices and other conditions do not depend on
    these variables: that iteration of the tile does the same load. An index that is below an open bound, and is that of no
    lane, stops there: the row before the bound is loaded again.
    """
    failed, lets = False, own - ranges.keys()  # lets: variables of unknown dependences

    def happened(e: Load, wanted: list[Expr], known: list[Expr]) -> bool:
        others = [c for c in conditions if c not in wanted]
        free = variables(*others) & own
        first = [substitute(c, dict.fromkeys(free, Const(0))) for c in others]
        there = not free & variables(*wanted, *known) and not lets & variables(*e.indices, *known)
        return there and all(prove(c, ranges, facts) for c in first)

    def load(e: Load, known: list[Expr], other: Const) -> Expr:
        """The load, or `other` where its conditions fail."""
        nonlocal failed
        if e.buffer.scope == "register" or _load_in_bounds(e, ranges, known):
            return map_children(e, lambda c: visit(c, known))
        sharing = [c for c in conditions if variables(c) & variables(*e.indices)]
        moving = [c for c in sharing if not variables(c) & own or variables(c) & own & variables(*e.indices)]
        wanted = next((w for w in (moving, sharing) if _load_in_bounds(e, ranges, [*known, *w]) or happened(e, w, known)), None)
        if wanted is None:
            failed = True
            return e
        if wanted and (stopped := clamped(e, wanted, known)) is not None:
            return stopped
        known = [*known, *wanted]
        moved = map_children(e, lambda c: visit(c, known))
        return Select(conjunction(*wanted), moved, other, lazy=True) if wanted else moved

    def clamped(e: Load, wanted: list[Expr], known: list[Expr]) -> Load | None:
        """The load with indices that stop below the bounds in `wanted`, all of which the first iteration of the tile passes."""
        first = [substitute(c, dict.fromkeys(variables(c) & own, Const(0))) for c in wanted]
        if variables(*wanted) & (lanes | lets) or not all(prove(c, ranges, facts) for c in first):
            return None
        indices = list(e.indices)
        for c in wanted:
            excess = nonpositive(c)
            last = [simplify(to_expr(add(polynomial(i), excess or {}, -1)), ranges) for i in e.indices]
            at = [n for n, x in enumerate(last) if excess and not variables(x) & own and not isinstance(x, Const)]
            if len(at) != 1 or loads(c):
                return None
            indices[at[0]] = Binary("min", e.indices[at[0]], last[at[0]])
            if not all(prove(b, ranges, [*known, *first]) for b in _inside(last[at[0]], e.buffer.shape[at[0]])):
                return None
        others = [i for i, new in zip(e.indices, indices, strict=True) if i is new]
        fits = zip(e.indices, e.buffer.shape, strict=True)
        inside = all(prove(b, ranges, known) for i, dim in fits if any(i is o for o in others) for b in _inside(i, dim))
        return e.with_(indices=tuple(indices)) if inside else None

    def visit(n: Node, known: list[Expr]) -> Node:
        nonlocal failed
        match n:
            case Load():
                return load(n, known, const(0, n.dtype))
            case Select(c, t, f, True):
                holds = [*known, *conjuncts(c)]
                inner = load(t, holds, f) if isinstance(t, Load) and isinstance(f, Const) else visit(t, holds)
                return Select(visit(c, known), inner, visit(f, [*known, Unary("not", c)]), True)  # type: ignore[arg-type]
            case Binary("//" | "%", _, b) if not isinstance(b, Const):
                failed = True
                return n
            case Store(_, _, value):
                return n.with_(value=visit(value, known))
            case Buffer():
                return n
            case _:
                return map_children(n, lambda c: visit(c, known))

    result = visit(s, facts)
    return None if failed else result  # type: ignore[return-value]


def _load_in_bounds(e: Load, ranges, known: list[Expr]) -> bool:
    return all(prove(b, ranges, known) for i, dim in zip(e.indices, e.buffer.shape, strict=True) for b in _inside(i, dim))


def _inside(index: Expr, dim: Expr) -> tuple[Expr, Expr]:
    """The conditions under which an index is one of a dimension."""
    return Binary(">=", index, Const(0)), Binary("<", index, dim)


def _start(s: Stmt, promoted: list[Promoted], lanes: Loops) -> Const | None:
    """The constant to which `s` sets all promoted tiles; None if it does anything else."""
    values = {x.value for x in stores(s)}
    buffers = {x.buffer.name: x.buffer for x in stores(s)}
    plain = all(isinstance(x, (For, Seq, If, Store)) for x in walk_stmts(s)) and not loads(s)
    if not plain or len(values) != 1 or set(buffers) != {b.name for b, _ in promoted} or not all(t.stored for _, t in promoted):
        return None
    (value,) = values
    if not isinstance(value, Const):
        return None
    for buffer in buffers.values():
        found = _tiles(s, buffer, set(), lanes)
        wanted = [t for b, t in promoted if b.name == buffer.name]
        if found is None or len(found) != len(wanted) or not all(any(_same_places(f, w) for f in found) for w in wanted):
            return None
    return value


def _same_places(a: _RegisterTile, b: _RegisterTile) -> bool:
    if a.axes != b.axes or a.lanes != b.lanes or add(a.base, b.base, -1) or (a.lane is None) is not (b.lane is None):
        return False
    conditions = [substitute(c, _places_named(a, b)) for c in a.conditions]
    return all(c in b.conditions for c in conditions) and all(c in conditions for c in b.conditions)


def _around(loop: For, promoted: list[Promoted], start: Const | None, taken: set[str]) -> Stmt:
    """The loop between the loads of its registers, or their start from a constant, and their stores."""
    before: list[Stmt] = []
    after: list[Stmt] = []
    own = {x.name for x in loops(loop)}
    for buffer, tile in promoted:
        assert tile.register is not None
        place = (*tile.loops, tile.lane if tile.lane is not None else Const(0))
        load = Store(tile.register, place, Load(buffer, tile.indices))
        store = Store(buffer, tile.indices, Load(tile.register, place))
        for copy, into in ((load, before), (store, after)):
            if copy is store and not tile.stored:
                continue
            stmt = guarded(conjunction(*tile.conditions), copy)
            if copy is load and start is not None:
                stmt = load.with_(value=start)
            elif copy is load and tile.conditions:
                stmt = load.with_(value=Select(conjunction(*tile.conditions), load.value, const(0, buffer.dtype), lazy=True))
            # A vectorised loop around this one has the lanes already.
            if tile.lane is not None and tile.lane.name in own:
                stmt = For(tile.lane, Const(tile.lanes), stmt, Kind.VECTORIZED)
            for var, (_, extent) in zip(reversed(tile.loops), reversed(tile.axes), strict=True):
                stmt = For(var, Const(extent), stmt, Kind.UNROLLED)
            into.append(with_fresh_loops(stmt, taken))
    result = seq(*before, loop, *after)
    for _, tile in reversed(promoted):
        result = Allocate(tile.register, result)  # type: ignore[arg-type]
    return result
