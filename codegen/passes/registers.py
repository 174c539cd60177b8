"""Accumulators live in registers while the loops that reduce into them run."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

from tir.affine import Interval, Polynomial, add, as_constant, multiply, polynomial
from tir.analysis.regions import extent_range
from tir.ir import (
    Allocate,
    Binary,
    Buffer,
    Const,
    Expr,
    For,
    If,
    Kind,
    Let,
    Load,
    Node,
    PrimFunc,
    Stmt,
    Store,
    Var,
    conjunction,
    conjuncts,
    guarded,
    seq,
)
from tir.simplify import prove
from tir.traverse import children, fresh, map_children, names, rewrite, substitute, variables, walk, walk_stmts

MAX_TILE = 256  # vectors (or scalars) of one buffer that are kept in registers at most

Loops = dict[str, tuple[Var, int]]  # unrolled or vectorised loops around a statement, with their extents


@dataclass
class _Tile:
    """A set of places that loop-invariant accesses address: `base`, plus one axis for each unrolled loop that moves it, plus lanes.

    `axes` are (stride, extent), widest stride first; `loops` the variables of the first access that was seen.
    """

    base: Polynomial
    axes: tuple[tuple[int, int], ...]
    lanes: int
    indices: tuple[Expr, ...]
    loops: tuple[Var, ...]
    lane: Var | None
    conditions: list[Expr]
    stored: bool = False
    register: Buffer | None = field(default=None)

    def offsets(self) -> list[int]:
        """The places relative to `base`, in elements."""
        steps = [[stride * i for i in range(extent)] for stride, extent in self.axes]
        return [sum(point) for point in itertools.product(*steps)]


def promote_registers(func: PrimFunc, target) -> PrimFunc:
    """Rewrite   for k: C[c] = f(C[c])   with c the same in every iteration
              => r = C[c];  for k: r = f(r);  C[c] = r

    for all places of C that the body touches, where they are provably the same or apart. `r` is a buffer of scope "register", with
    one axis for each unrolled loop that tells places apart and one for lanes; its elements become SSA values. The loop may be a
    nest of serial loops.
    """
    taken = names(func)

    def visit(s: Stmt, ranges: dict[str, Interval], lanes: Loops, facts: list[Expr]) -> Stmt:
        match s:
            case For(var, extent, body, kind):
                inside = {**ranges, var.name: extent_range(extent, ranges)}
                if kind is Kind.SERIAL:
                    s, tiles = _promote(s, ranges, lanes, facts, taken)
                    loop = s.with_(body=visit(s.body, inside, lanes, facts)) if not tiles else s
                    return _around(loop, tiles, taken) if tiles else loop
                if kind is Kind.VECTORIZED and isinstance(extent, Const):
                    lanes = {**lanes, var.name: (var, int(extent.value))}
                new = visit(body, inside, lanes, facts)
                return s if new is body else s.with_(body=new)
            case If(condition, then, orelse):
                new_then = visit(then, ranges, lanes, [*facts, *conjuncts(condition)])
                new_else = None if orelse is None else visit(orelse, ranges, lanes, facts)
                return s.with_(then=new_then, orelse=new_else)
            case _:
                return map_children(s, lambda c: visit(c, ranges, lanes, facts) if isinstance(c, Stmt) else c)  # type: ignore[return-value]

    return func.with_(body=visit(func.body, {}, {}, []))


def _promote(loop: For, ranges, lanes: Loops, facts: list[Expr], taken: set[str]) -> tuple[For, list[tuple[Buffer, _Tile]]]:
    """`loop` on register buffers in place of accumulators, and the tiles they hold."""
    nest = [loop]
    while isinstance(nest[-1].body, For) and nest[-1].body.kind is Kind.SERIAL:
        nest.append(nest[-1].body)
    body = nest[-1].body
    if any(isinstance(x, For) and x.kind not in (Kind.VECTORIZED, Kind.UNROLLED) for x in walk_stmts(body)):
        return loop, []
    inner = dict(ranges)
    for x in [*nest, *(x for x in walk_stmts(body) if isinstance(x, For))]:
        inner[x.name] = extent_range(x.extent, inner)
    moving = {x.name for x in nest}
    inside = {x.buffer.name for x in walk_stmts(body) if isinstance(x, Allocate)}  # each iteration has its own
    stored = {
        x.buffer.name: x.buffer
        for x in walk_stmts(body)
        if isinstance(x, Store) and x.buffer.scope != "register" and x.buffer.name not in inside
    }
    promoted: list[tuple[Buffer, _Tile]] = []
    for buffer in stored.values():
        tiles = _tiles(body, buffer, moving, lanes)
        if tiles is None or not all(_within(t, buffer, inner, facts) for t in tiles):
            continue
        for tile in tiles:
            shape = (*(extent for _, extent in tile.axes), tile.lanes)
            tile.register = Buffer(fresh(taken, f"{buffer.name}_reg"), tuple(Const(n) for n in shape), buffer.dtype, "register")
            promoted.append((buffer, tile))
        body = _on_registers(body, buffer, tiles, lanes)
    if not promoted:
        return loop, []
    for x in reversed(nest):
        body = x.with_(body=body)
    return body, promoted  # type: ignore[return-value]


def _offset(buffer: Buffer, indices: tuple[Expr, ...]) -> Polynomial:
    """The flat position of an element."""
    result: Polynomial = {}
    for index, dim in zip(indices, buffer.shape, strict=True):
        result = add(multiply(result, polynomial(dim)), polynomial(index))
    return result


def _decompose(offset: Polynomial, lanes: Loops, unrolled: Loops):
    """(base, axes as (stride, extent, var), lane) of a flat offset; None where lanes or unrolled loops enter other than linearly."""
    base: Polynomial = {}
    axes: list[tuple[int, int, Var]] = []
    lane: tuple[Var, int] | None = None
    tiling = {*lanes, *unrolled}
    for m, c in offset.items():
        used = set().union(*(variables(a) for a in m), set()) & tiling
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


def _tiles(body: Stmt, buffer: Buffer, moving: set[str], outer_lanes: Loops) -> list[_Tile] | None:
    """The distinct tiles of `buffer` that `body` accesses; None if they move with the loops or may overlap partly."""
    tiles: list[_Tile] = []
    failed = False
    bound = {x.var.name for x in walk_stmts(body) if isinstance(x, Let)}  # anew in each iteration
    stored = {x.buffer.name for x in walk_stmts(body) if isinstance(x, Store)}

    def access(indices: tuple[Expr, ...], store: bool, lanes: Loops, unrolled: Loops, conditions: list[Expr]) -> None:
        nonlocal failed
        loaded = {n.buffer.name for i in indices for n in walk(i) if isinstance(n, Load)}
        if failed or loaded & stored or any(variables(i) & (moving | bound) for i in indices):
            failed = True
            return
        parts = _decompose(_offset(buffer, indices), lanes, unrolled)
        if parts is None or (store and lanes and parts[2] is None):  # one place written by every lane
            failed = True
            return
        base, axes, lane = parts
        shape = tuple((stride, extent) for stride, extent, _ in axes)
        width = lane[1] if lane else 1
        # The load before the loops and the store after them are guarded by what holds for the place as such.
        ours = {v.name for _, _, v in axes} | ({lane[0].name} if lane else set())
        foreign = moving | bound | ({*lanes, *unrolled} - ours)
        kept = [c for c in conditions if not variables(c) & foreign and not any(isinstance(n, Load) for n in walk(c))]
        new = _Tile(base, shape, width, indices, tuple(v for _, _, v in axes), lane[0] if lane else None, kept, store)
        for tile in tiles:
            distance = as_constant(add(base, tile.base, -1))
            if distance == 0 and shape == tile.axes and width == tile.lanes:
                tile.stored |= store
                names_here = dict(zip((v.name for v in new.loops), tile.loops, strict=True))
                if new.lane is not None and tile.lane is not None:
                    names_here[new.lane.name] = tile.lane
                here = [substitute(c, names_here) for c in kept]
                tile.conditions = [c for c in tile.conditions if c in here]
                return
            if distance is None or not _apart(tile, new, distance):
                failed = True
                return
        if not _apart(new, None, 0):
            failed = True
        tiles.append(new)

    def visit(n: Node, lanes: Loops, unrolled: Loops, conditions: list[Expr]) -> None:
        nonlocal failed
        match n:
            case For(var, extent, inner, kind):
                entry = {var.name: (var, int(extent.value))}  # type: ignore[attr-defined]
                if kind is Kind.VECTORIZED:
                    visit(inner, {**lanes, **entry}, unrolled, conditions)
                else:
                    visit(inner, lanes, {**unrolled, **entry}, conditions)
            case If(condition, then, orelse):
                visit(condition, lanes, unrolled, conditions)
                visit(then, lanes, unrolled, [*conditions, *conjuncts(condition)])
                if orelse is not None:
                    visit(orelse, lanes, unrolled, conditions)
            case Store(b, indices, value):
                for e in (*indices, value):
                    visit(e, lanes, unrolled, conditions)
                if b.name == buffer.name:
                    access(indices, True, lanes, unrolled, conditions)
            case Load(b, indices):
                for e in indices:
                    visit(e, lanes, unrolled, conditions)
                if b.name == buffer.name:
                    access(indices, False, lanes, unrolled, conditions)
            case Buffer():
                pass
            case _:
                for c in children(n):
                    visit(c, lanes, unrolled, conditions)

    if not all(isinstance(x.extent, Const) for x in walk_stmts(body) if isinstance(x, For)):
        return None
    visit(body, dict(outer_lanes), {}, [])
    if failed or not tiles or sum(len(t.offsets()) for t in tiles) > MAX_TILE:
        return None
    return tiles


def _apart(a: _Tile, b: _Tile | None, distance: int) -> bool:
    """Whether the vectors of `a` and those of `b`, `distance` elements further on, are all disjoint (of `a` alone without `b`)."""
    spans = [(o, o + a.lanes) for o in a.offsets()]
    if b is not None:
        spans += [(o + distance, o + distance + b.lanes) for o in b.offsets()]
    spans.sort()
    return all(end <= start for (_, end), (start, _) in itertools.pairwise(spans))


def _within(tile: _Tile, buffer: Buffer, ranges, facts: list[Expr]) -> bool:
    """Whether the places lie within the buffer under the conditions that will guard their loads and stores."""
    inner = dict(ranges)
    if tile.lane is not None:
        inner[tile.lane.name] = (0, tile.lanes - 1)
    known = [*facts, *tile.conditions]
    return all(
        prove(Binary(">=", i, Const(0)), inner, known) and prove(Binary("<", i, dim), inner, known)
        for i, dim in zip(tile.indices, buffer.shape, strict=True)
    )


def _on_registers(body: Stmt, buffer: Buffer, tiles: list[_Tile], outer_lanes: Loops) -> Stmt:
    """The body with accesses to `buffer` moved to the registers of its tiles."""
    lanes = dict(outer_lanes)
    unrolled: Loops = {}
    for x in walk_stmts(body):
        if isinstance(x, For):
            (lanes if x.kind is Kind.VECTORIZED else unrolled)[x.name] = (x.var, int(x.extent.value))  # type: ignore[attr-defined]

    def place(indices: tuple[Expr, ...]) -> tuple[Buffer, tuple[Expr, ...]]:
        base, axes, lane = _decompose(_offset(buffer, indices), lanes, unrolled)  # type: ignore[misc]
        tile = next(t for t in tiles if not add(base, t.base, -1))
        assert tile.register is not None
        return tile.register, (*(v for _, _, v in axes), lane[0] if lane else Const(0))

    def visit(n: Node) -> Node | None:
        match n:
            case Load(b, indices) if b.name == buffer.name:
                return Load(*place(indices))
            case Store(b, indices, value) if b.name == buffer.name:
                return Store(*place(indices), value)
        return None

    return rewrite(body, visit)  # type: ignore[return-value]


def _around(loop: For, promoted: list[tuple[Buffer, _Tile]], taken: set[str]) -> Stmt:
    """The loop between the loads of its registers and their stores."""
    before: list[Stmt] = []
    after: list[Stmt] = []
    own = {x.name for x in walk_stmts(loop) if isinstance(x, For)}
    for buffer, tile in promoted:
        assert tile.register is not None
        place = (*tile.loops, tile.lane if tile.lane is not None else Const(0))
        load = Store(tile.register, place, Load(buffer, tile.indices))
        store = Store(buffer, tile.indices, Load(tile.register, place))
        for copy, into in ((load, before), (store, after)):
            if copy is store and not tile.stored:
                continue
            stmt = guarded(conjunction(*tile.conditions), copy)
            # Lanes of a vectorised loop around this one are there already.
            if tile.lane is not None and tile.lane.name in own:
                stmt = For(tile.lane, Const(tile.lanes), stmt, Kind.VECTORIZED)
            for var, (_, extent) in zip(reversed(tile.loops), reversed(tile.axes), strict=True):
                stmt = For(var, Const(extent), stmt, Kind.UNROLLED)
            into.append(_renamed(stmt, taken))
    result = seq(*before, loop, *after)
    for _, tile in reversed(promoted):
        result = Allocate(tile.register, result)  # type: ignore[arg-type]
    return result


def _renamed(s: Stmt, taken: set[str]) -> Stmt:
    """The statement with new names for its loops."""
    if not isinstance(s, For):
        return s
    var = s.var.with_(name=fresh(taken, s.name))
    return s.with_(var=var, body=_renamed(substitute(s.body, {s.var: var}), taken))  # type: ignore[arg-type]
