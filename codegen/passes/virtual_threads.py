"""Virtual threads injected into kernels, and thread loops distributed over the steps of their bodies."""

from __future__ import annotations

from functools import partial

from tir.analysis.context import accesses
from tir.ir import Allocate, Buffer, For, If, Kind, PrimFunc, Seq, Stmt, Store, seq
from tir.memory import SHARED
from tir.traverse import loads, map_statements, stores, variables, walk_stmts

from .gpu_kernels import is_thread


def inject_virtual_thread(func: PrimFunc, target) -> PrimFunc:
    """Rewrite   for v in vthread: for k: S; T   =>   for k: (for v in unroll: S); (for v in unroll: T)

    so that virtual threads share barriers, and statements that do not depend on `v` run once. A loop stays where it is if its
    iterations would overwrite each other's temporaries: those whose indices do not depend on `v`, but whose values do.
    """

    def visit(s: Stmt) -> Stmt:
        if not is_thread(s, "vthread"):
            return map_statements(s, visit)
        body = visit(s.body)
        loop = s.with_(kind=Kind.UNROLLED, thread="", body=body)
        return loop if _overwrites(body, s.name) else _push(loop, body, lambda x: s.name not in variables(x))

    return func.with_(body=visit(func.body))


def _overwrites(body: Stmt, name: str) -> bool:
    """True where iterations of `name` keep different values in the same elements of a temporary."""
    varying: set[str] = set()
    grown = True
    while grown:
        grown = False
        for s, around in accesses(body):
            if not isinstance(s, Store) or s.buffer.name in varying:
                continue
            decided = (*around.conditions, *around.otherwise, *(x.extent for x in around.loops), *around.bindings.values())
            depends = [s.value, *s.indices, *decided]
            if any(name in variables(e) or any(x.buffer.name in varying for x in loads(e)) for e in depends):
                varying.add(s.buffer.name)
                grown = True
    return any(
        s.buffer.name in varying and s.buffer.scope != "global" and name not in variables(*s.indices) for s in stores(body)
    )


def _push(loop: For, body: Stmt, uniform) -> Stmt:
    """`loop` around each part of `body`, as deep inside as serial loops, sequences and conditions without its variable allow."""
    if uniform(body):
        return body
    match body:
        case Seq(stmts):
            return seq(*(_push(loop, x, uniform) for x in stmts))
        case For(kind=Kind.VECTORIZED):
            return loop.with_(body=body)
        case For(_, extent) if loop.name not in variables(extent):
            return body.with_(body=_push(loop, body.body, uniform))
        case Allocate(Buffer() as buffer) if loop.name not in variables(buffer):
            return body.with_(body=_push(loop, body.body, uniform))
        case If(condition, then, orelse) if loop.name not in variables(condition) and not loads(condition):
            return body.with_(then=_push(loop, then, uniform), orelse=None if orelse is None else _push(loop, orelse, uniform))
        case _:
            return loop.with_(body=body)


def distribute_threads(func: PrimFunc, target) -> PrimFunc:
    """Distribute thread loops over the statements of their body, where one of these is a step of the whole block:

    for t in threads: for k: (all load a tile into shared memory); use it   =>   for k: load; for t in threads: use

    A step that does not depend on `t` is the same in each iteration, and runs once for the block. Loops that hold several thread
    loops of other axes, one after another, are distributed too, so that barriers can stand between these.
    """

    def visit(s: Stmt) -> Stmt:
        s = map_statements(s, visit)
        if not is_thread(s, "threadIdx"):
            return s
        return _push(s, s.body, partial(_uniform, s)) if any(_is_block_step(x, s) for x in walk_stmts(s.body)) else s

    return func.with_(body=visit(func.body))


def _uniform(loop: For, x: Stmt) -> bool:
    """True where a statement in a thread loop does the same in all its iterations, or holds a loop of the same axis."""
    inside = any(isinstance(y, For) and y.thread == loop.thread for y in walk_stmts(x))
    whole = all(y.buffer.scope in SHARED for y in stores(x)) and bool(stores(x))
    # Inside of another loop of this axis the variable is that loop's.
    return (inside and isinstance(x, For) and _bound_inside(x, loop.thread)) or (whole and loop.name not in variables(x))


def _is_block_step(x: Stmt, loop: For) -> bool:
    """True where a statement in a thread loop is one of the whole block."""
    match x:
        case Store(buffer):
            return buffer.scope in SHARED and loop.name not in variables(x)
        case For():
            return x.thread == loop.thread
        case Seq(stmts):
            return sum(any(is_thread(y, "threadIdx") for y in walk_stmts(c)) for c in stmts) > 1
        case _:
            return False


def _bound_inside(s: Stmt, axis: str) -> bool:
    """True where the perfect nest from `s` inward has a loop bound to `axis`."""
    while isinstance(s, For):
        if s.thread == axis:
            return True
        s = s.body
    return False
