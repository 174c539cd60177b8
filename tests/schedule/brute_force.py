"""How often a legal step is refused: steps done by force, or judged by all their accesses, beside what the primitive says."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator

import numpy as np

from schedule import Schedule, ScheduleError
from tests.arrays import integers
from tir.arith.simplify import simplify
from tir.interpreter import InterpreterError, run
from tir.ir import Allocate, Block, Const, Expr, For, If, Kind, Let, Load, PrimFunc, Seq, Stmt, Store, Var, nest, seq
from tir.traverse import loads, loops, path_to, replace_stmt, substatements, substitute, walk, walk_stmts

MOST = 3000  # innermost statements enumerated, and those interpreted, at most


class Undecided(Exception):
    """A place that depends on more than the loops enumerated."""


def survey(func: PrimFunc, rng: np.random.Generator, counts: Counter[tuple[str, str]]) -> list[str]:
    """Try reorders, parallel loops, fusions, merges and moves of producers in `func`; counts (primitive, "legal", "legal but
    refused", or "illegal").

    Returns the calls that were accepted although they are illegal.
    """
    wrong: list[str] = []
    if any(loop.kind is not Kind.SERIAL or loop.annotations or type(loop.extent) is not Const for loop in loops(func)):
        return wrong
    if sum(_iterations(func, loop.name) for loop in loops(func)) > MOST:
        return wrong
    for name, args, legal in _steps(func, rng):
        if legal is None:
            continue
        try:
            getattr(Schedule(func), name)(*args)
            accepted = True
        except ScheduleError:
            accepted = False
        if legal:
            counts[name, "legal"] += 1
            counts[name, "legal but refused"] += not accepted
        else:
            counts[name, "illegal"] += 1
            if accepted:
                wrong.append(f"{name}({', '.join(map(repr, args))})")
    return wrong


def _iterations(func: PrimFunc, name: str) -> int:
    return int(np.prod([s.extent.value for s in path_to(func.body, name) if type(s) is For]))


def _steps(func: PrimFunc, rng: np.random.Generator) -> Iterator[tuple[str, list[str], bool | None]]:
    """Steps with whether they are legal, as far as can be told."""
    for top in loops(func):
        chain = _chain(top)
        if len(chain) > 1 and not any(_below(chain, x) for x in loops(func)):
            order = [chain[k] for k in rng.permutation(len(chain))]
            forced = func.with_(body=replace_stmt(func.body, top, nest(order, chain[-1].body)))
            yield "reorder", [x.name for x in order], _same(func, forced)
        if type(top.body) is For:
            yield "fuse", [top.name, top.body.name], True
        yield "parallel", [top.name], _independent(func, top)
    for parent in walk_stmts(func.body):
        if type(parent) is not Seq:
            continue
        for a, b in itertools.pairwise(parent.stmts):
            if type(a) is For and type(b) is For and a.extent == b.extent:
                var = Var(f"{a.name}_forced")
                body = seq(substitute(a.body, {a.name: var}), substitute(b.body, {b.name: var}))
                kept = [s for s in parent.stmts if s is not b]
                merged = seq(*(For(var, a.extent, body) if s is a else s for s in kept))
                forced = func.with_(body=replace_stmt(func.body, parent, merged))
                yield "merge", [a.name, b.name], _same(func, forced)

    yield from _moves(func, rng)


def _moves(func: PrimFunc, rng: np.random.Generator, most: int = 3) -> Iterator[tuple[str, list[str], bool | None]]:
    """Some producers that could be computed under a loop of their consumers: all of them there, which is more than `compute_at`
    does. Where that changes the numbers, a part might not, and nothing is known."""
    if type(func.body) is not Seq:
        return
    parameters = {p.name for p in func.params}
    candidates: list[tuple[str, For, PrimFunc]] = []
    for n, top in enumerate(func.body.stmts):
        found = [s for s in walk_stmts(top) if type(s) is Block]
        if type(top) is not For or len(found) != 1:
            continue
        written = {s.buffer.name for s in walk_stmts(top) if isinstance(s, Store)}
        users = [s for s in func.body.stmts if s is not top and any(x.buffer.name in written for x in loads(s))]
        if written & parameters or len(users) != 1 or users[0] in func.body.stmts[:n]:
            continue
        for loop in loops(users[0]):
            parts = loop.body.stmts if type(loop.body) is Seq else (loop.body,)
            using = [k for k, s in enumerate(parts) if any(x.buffer.name in written for x in loads(s))]
            outside = [s for s in _outside(users[0], loop) if any(x.buffer.name in written for x in loads(s))]
            if using and not outside:
                body = seq(*parts[: using[0]], top, *parts[using[0] :])
                kept = seq(*(s for s in func.body.stmts if s is not top))
                moved = func.with_(body=replace_stmt(kept, loop, loop.with_(body=body)))
                candidates.append((found[0].name, loop, moved))
    for k in rng.permutation(len(candidates))[:most]:
        block, loop, moved = candidates[k]
        if sum(_iterations(moved, x.name) for x in loops(moved)) <= MOST:
            yield "compute_at", [block, loop.name], _same(func, moved) or None


def _outside(root: Stmt, loop: For) -> Iterator[Stmt]:
    """The statements without others in them that are not under a loop."""
    if root is loop:
        return
    below = substatements(root)
    if not below or type(root) is Block:
        yield root
    else:
        for s in below:
            yield from _outside(s, loop)


def _chain(top: For) -> list[For]:
    result = [top]
    while type(result[-1].body) is For:
        result.append(result[-1].body)
    return result


def _below(chain: list[For], loop: For) -> bool:
    return loop.body is chain[0]


def _same(before: PrimFunc, after: PrimFunc) -> bool:
    """Whether both functions leave the same numbers for three inputs."""
    for seed in range(3):
        old, new = integers(before, seed), integers(before, seed)
        run(before, *old, seed=seed)
        try:
            run(after, *new, seed=seed)
        except InterpreterError:
            return False
        if any(x.tobytes() != y.tobytes() for x, y in zip(old, new, strict=True)):
            return False
    return True


def _independent(func: PrimFunc, loop: For) -> bool | None:
    """Whether no iteration of `loop` touches what another one writes, found by enumeration; None where that is not possible.

    Buffers allocated in the loop are not shared. A temporary used only there that each iteration writes before it reads it is not
    shared either, by the rule of `parallel`; such loops are left out, as are those with accesses at places read from memory.
    """
    inside = {b.name for b in _allocated(loop)}
    if any(type(s) is Block for s in path_to(func.body, loop.name)):
        return None
    used = {x.buffer.name for x in (*loads(loop), *(s for s in walk_stmts(loop) if isinstance(s, Store)))}
    outside = {p.name for p in func.buffers}
    if used - inside - outside:
        return None
    if any(loads(i) for x in walk(loop) if isinstance(x, (Load, Store)) for i in x.indices):
        return None
    touched: dict[tuple, tuple[set, set]] = {}
    around = _around(func, loop)
    for values in itertools.product(*(range(s.extent.value) for s in around)):
        touched.clear()
        env = {s.name: Const(v) for s, v in zip(around, values, strict=True)}
        for n in range(loop.extent.value):
            try:
                for name, place, write in _accesses(loop.body, {**env, loop.name: Const(n)}):
                    if name not in inside:
                        touched.setdefault((name, place), (set(), set()))[write].add(n)
            except Undecided:
                return None
        for readers, writers in touched.values():
            if writers and len(readers | writers) > 1:
                return False
    return True


def _around(func: PrimFunc, loop: For) -> list[For]:
    return [s for s in path_to(func.body, loop.name) if type(s) is For and s is not loop]


def _allocated(loop: For):
    for s in walk_stmts(loop):
        if isinstance(s, Allocate):
            yield s.buffer
        elif hasattr(s, "allocs"):
            yield from s.allocs


def _accesses(stmt, env: dict[str, Expr]) -> Iterator[tuple[str, tuple, bool]]:
    """The elements that a statement touches: buffer, place, whether written. Of a choice that is not decided, both sides."""
    match stmt:
        case For(var, extent):
            for n in range(extent.value):
                yield from _accesses(stmt.body, {**env, var.name: Const(n)})
        case Seq(stmts):
            for s in stmts:
                yield from _accesses(s, env)
        case Allocate():
            yield from _accesses(stmt.body, env)
        case If(condition, then, orelse):
            decided = simplify(substitute(condition, env))
            if type(decided) is not Const or decided.value:
                yield from _accesses(then, env)
            if orelse is not None and (type(decided) is not Const or not decided.value):
                yield from _accesses(orelse, env)
        case Let(var, value):
            yield from _read(substitute(value, env))
            yield from _accesses(stmt.body, {**env, var.name: simplify(substitute(value, env))})
        case Store(buffer, indices, value):
            yield from _read(substitute(value, env))
            yield buffer.name, tuple(_number(substitute(i, env)) for i in indices), True
        case _:  # a block
            inner = {it.var.name: simplify(substitute(it.binding, env)) for it in stmt.iters}
            if _number(substitute(stmt.predicate, env)):
                reducing = [inner[it.var.name] for it in stmt.iters if it.axis.name == "REDUCE"]
                if stmt.init is not None and all(_number(r) == 0 for r in reducing):
                    yield from _accesses(stmt.init, inner)
                yield from _accesses(stmt.body, inner)


def _read(value: Expr) -> Iterator[tuple[str, tuple, bool]]:
    value = simplify(value)
    for load in loads(value):
        yield load.buffer.name, tuple(_number(i) for i in load.indices), False


def _number(e: Expr) -> int:
    found = simplify(e)
    if type(found) is not Const:
        raise Undecided
    return found.value
