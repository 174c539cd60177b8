"""Accumulators live in registers while the loops that reduce into them run."""

from __future__ import annotations

from dataclasses import dataclass

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

MAX_TILE = 256  # elements of accumulators, counted in vectors, that are kept in registers at most


@dataclass
class _Slot:
    """One vector (or scalar) of a buffer: all accesses to the same address within a loop body."""

    offset: Polynomial
    lanes: int
    indices: tuple[Expr, ...]
    lane: Var | None
    conditions: list[Expr]
    stored: bool = False


def promote_registers(func: PrimFunc, target) -> PrimFunc:
    """Rewrite   for k: C[c] = f(C[c])   with c the same in every iteration
              => r = C[c];  for k: r = f(r);  C[c] = r

    for all places of C that the body touches, where they are provably the same or apart. `r` is a buffer of scope "register",
    one scalar or vector each, which the backend keeps in SSA values. The loop may be a nest of serial loops; unrolled loops
    are written out before this pass.
    """
    taken = names(func)

    def visit(s: Stmt, ranges: dict[str, Interval], lanes: dict[str, tuple[Var, int]], facts: list[Expr]) -> Stmt:
        match s:
            case For(var, extent, body, kind):
                inside = {**ranges, var.name: extent_range(extent, ranges)}
                if kind is Kind.SERIAL:
                    s, registers, prologue, epilogue = _promote(s, ranges, lanes, facts, taken)
                    body = s.body
                    new = visit(body, inside, lanes, facts)
                    loop = s if new is body else s.with_(body=new)
                    if not registers:
                        return loop
                    whole = seq(*prologue, loop, *epilogue)
                    for register in reversed(registers):
                        whole = Allocate(register, whole)
                    return whole
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


def _nest(loop: For) -> tuple[list[For], Stmt] | None:
    """The perfect nest of serial loops from `loop` down and its body, if that holds no more loops than vectors."""
    nest = [loop]
    while isinstance(nest[-1].body, For) and nest[-1].body.kind is Kind.SERIAL:
        nest.append(nest[-1].body)
    body = nest[-1].body
    if any(isinstance(x, For) and x.kind is not Kind.VECTORIZED for x in walk_stmts(body)):
        return None
    return nest, body


def _offset(buffer: Buffer, indices: tuple[Expr, ...]) -> Polynomial:
    """The flat position of an element."""
    result: Polynomial = {}
    for index, dim in zip(indices, buffer.shape, strict=True):
        result = add(multiply(result, polynomial(dim)), polynomial(index))
    return result


def _promote(loop: For, ranges, lanes, facts, taken) -> tuple[For, list[Buffer], list[Stmt], list[Stmt]]:
    """`loop` with register buffers in place of accumulators, these buffers, the statements before it and those after it."""
    found = _nest(loop)
    if found is None:
        return loop, [], [], []
    nest, body = found
    moving = {x.name for x in nest}
    # A zero-trip loop must not touch memory that its guard would have kept it from.
    inner = dict(ranges)
    for x in nest:
        inner[x.name] = extent_range(x.extent, inner)
    stored = {x.buffer.name: x.buffer for x in walk_stmts(body) if isinstance(x, Store) and x.buffer.scope != "register"}
    registers: list[Buffer] = []
    prologue: list[Stmt] = []
    epilogue: list[Stmt] = []
    for buffer in stored.values():
        slots = _slots(body, buffer, moving, inner, lanes)
        if slots is None or sum(1 for _ in slots) > MAX_TILE:
            continue
        if not all(_safe(slot, buffer, inner, facts) for slot in slots):
            continue
        body, made, before, after = _replace(body, buffer, slots, taken)
        registers += made
        prologue += before
        epilogue += after
    if not registers:
        return loop, [], [], []
    for x in reversed(nest):
        body = x.with_(body=body)
    return body, registers, prologue, epilogue  # type: ignore[return-value]


def _slots(body: Stmt, buffer: Buffer, moving: set[str], ranges, outer_lanes) -> list[_Slot] | None:
    """The distinct places of `buffer` that `body` accesses; None if they move with the loops or may overlap partly."""
    slots: list[_Slot] = []
    failed = False

    def access(indices: tuple[Expr, ...], store: bool, lanes, conditions: list[Expr]) -> None:
        nonlocal failed
        if failed or any(variables(i) & moving for i in indices):
            failed = True
            return
        offset = _offset(buffer, indices)
        used = [lane for lane in lanes.values() if any(lane[0].name in variables(a) for m in offset for a in m)]
        width, lane = 1, None
        if lanes and not used and store:  # one place written by every lane
            failed = True
            return
        if used:
            lane, width = used[0]
            if len(used) > 1 or offset.get((lane,), 0) != 1 or any(len(m) > 1 and lane in m for m in offset):
                failed = True
                return
            offset = {m: c for m, c in offset.items() if m != (lane,)}
            if any(lane.name in variables(a) for m in offset for a in m):
                failed = True
                return
        kept = [c for c in conditions if not variables(c) & moving]
        for slot in slots:
            distance = as_constant(add(offset, slot.offset, -1))
            if distance is None or (distance == 0 and width != slot.lanes) or (distance and -width < distance < slot.lanes):
                failed = True
                return
            if distance == 0:
                slot.stored |= store
                mapped = [_to_lane(c, lane, slot.lane) for c in kept]
                slot.conditions = [c for c in slot.conditions if c in mapped]
                return
        slots.append(_Slot(offset, width, indices, lane, kept, store))

    def visit(n: Node, lanes, conditions: list[Expr]) -> None:
        nonlocal failed
        match n:
            case For(var, extent, inner, Kind.VECTORIZED) if isinstance(extent, Const):
                visit(inner, {**lanes, var.name: (var, int(extent.value))}, conditions)
            case If(condition, then, orelse):
                visit(condition, lanes, conditions)
                visit(then, lanes, [*conditions, *conjuncts(condition)])
                if orelse is not None:
                    visit(orelse, lanes, conditions)
            case Store(b, indices, value):
                for e in (*indices, value):
                    visit(e, lanes, conditions)
                if b.name == buffer.name:
                    access(indices, True, lanes, conditions)
            case Load(b, indices):
                for e in indices:
                    visit(e, lanes, conditions)
                if b.name == buffer.name:
                    access(indices, False, lanes, conditions)
            case Buffer():
                pass
            case Let(var, value, inner):
                visit(value, lanes, conditions)
                places = [i for x in walk(inner) if isinstance(x, (Load, Store)) and x.buffer.name == buffer.name for i in x.indices]
                failed = failed or any(var.name in variables(i) for i in places)  # bound anew in each iteration
                visit(inner, lanes, conditions)
            case _:
                for c in children(n):
                    visit(c, lanes, conditions)

    visit(body, dict(outer_lanes), [])
    return None if failed or not slots else slots


def _to_lane(e: Expr, lane: Var | None, other: Var | None) -> Expr:
    return substitute(e, {lane.name: other}) if lane is not None and other is not None else e  # type: ignore[return-value]


def _safe(slot: _Slot, buffer: Buffer, ranges, facts: list[Expr]) -> bool:
    """Whether the place lies within the buffer under the conditions that will guard its load and store."""
    inner = dict(ranges)
    if slot.lane is not None:
        inner[slot.lane.name] = (0, slot.lanes - 1)
    known = [*facts, *slot.conditions]
    return all(
        prove(Binary(">=", i, Const(0)), inner, known) and prove(Binary("<", i, dim), inner, known)
        for i, dim in zip(slot.indices, buffer.shape, strict=True)
    )


def _replace(body: Stmt, buffer: Buffer, slots: list[_Slot], taken: set[str]) -> tuple[Stmt, list[Buffer], list[Stmt], list[Stmt]]:
    """The body on register buffers, these buffers, the loads before the body and the stores after it."""
    registers: list[Buffer] = []
    before: list[Stmt] = []
    after: list[Stmt] = []
    for slot in slots:
        register = Buffer(fresh(taken, f"{buffer.name}_reg"), (Const(slot.lanes),), buffer.dtype, "register")
        registers.append(register)
        # Where the lane belongs to a vectorised loop around this one, loads and stores run under that loop already.
        mine = slot.lane is not None and any(isinstance(x, For) and x.name == slot.lane.name for x in walk_stmts(body))
        position: Expr = slot.lane if slot.lane is not None else Const(0)
        load: Stmt = Store(register, (position,), Load(buffer, slot.indices))
        store: Stmt = Store(buffer, slot.indices, Load(register, (position,)))
        condition = conjunction(*slot.conditions)
        for stmt, into, name in ((load, before, "in"), (store, after, "out")):
            if name == "out" and not slot.stored:
                continue
            stmt = guarded(condition, stmt)
            if mine and slot.lane is not None:
                lane = slot.lane.with_(name=fresh(taken, f"{slot.lane.name}_{name}"))
                stmt = For(lane, Const(slot.lanes), substitute(stmt, {slot.lane: lane}), Kind.VECTORIZED)  # type: ignore[arg-type]
            into.append(stmt)

    offsets = [slot.offset for slot in slots]
    lane_names = {slot.lane.name for slot in slots if slot.lane is not None}

    def register_of(indices: tuple[Expr, ...]) -> tuple[Buffer, tuple[Expr, ...]]:
        offset = _offset(buffer, indices)
        lane = next((m[0] for m in offset if len(m) == 1 and isinstance(m[0], Var) and offset[m] == 1 and _is_lane(m[0])), None)
        base = {m: c for m, c in offset.items() if lane is None or m != (lane,)}
        for register, candidate in zip(registers, offsets, strict=True):
            if not add(base, candidate, -1):
                return register, (lane if lane is not None else Const(0),)
        raise AssertionError("an access was not seen when slots were collected")

    vector_vars = {x.name for x in walk_stmts(body) if isinstance(x, For)} | lane_names

    def _is_lane(v: Var) -> bool:
        return v.name in vector_vars

    def visit(n: Node) -> Node | None:
        match n:
            case Load(b, indices) if b.name == buffer.name:
                return Load(*register_of(indices))
            case Store(b, indices, value) if b.name == buffer.name:
                register, place = register_of(indices)
                return Store(register, place, value)
        return None

    return rewrite(body, visit), registers, before, after  # type: ignore[return-value]
