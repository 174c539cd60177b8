"""Vectorised loops are split to the lengths of the processor's registers."""

from __future__ import annotations

from schedule.rewriting.predicates import iterations_where
from tir import dtypes
from tir.arith.statements import simplify_tree
from tir.ir import Binary, Cast, Const, Expr, For, If, Kind, Load, PrimFunc, Select, Stmt, Store, Var, conjuncts, seq
from tir.traverse import fresh, loads, map_statements, names, stores, substitute, walk, with_fresh_loops

from .memory_hints import PREFETCH, prefetches

MAX_CHUNKS = 16  # registers of an unrolled split; more become a serial loop


def split_vectors(func: PrimFunc, target) -> PrimFunc:
    """Rewrite   for v in vectorized(n): S(v)
              => for v_0 in unroll(n // w): for v_1 in vectorized(w): S(v_0 * w + v_1);  for v_1 in vectorized(n % w): ...

    where w elements of the widest type in S fill one vector register; lengths up to w stay, so a schedule can choose
    narrower registers. Where the processor has masked loads and stores, other lengths are rounded up to a power of two, and the
    extra lanes guarded. Where it has none for narrow ones, a loop is cut at the lane where a condition changes. A vectorised
    loop inside another runs serially. A `prefetch` distance of n in v is n // w in v_0.

    The remainder comes first where S accumulates. Last, in a shorter register, it would overwrite a broadcast factor, and LLVM
    would spill the accumulators. It fills a whole register where that takes no longer.
    """
    taken = names(func)
    whole_units = target.machine.masks and target.machine.uops_per_vector == 1

    def lanes(var: Var, n: int, body: Stmt, least: int = 1) -> For:
        whole = max(least, 1 << (n - 1).bit_length())
        if whole == n or not maskable(body, target):
            return For(var, Const(n), body, Kind.VECTORIZED)
        return For(var, Const(whole), If(Binary("<", var, Const(n)), body), Kind.VECTORIZED)

    def visit(s: Stmt, inside: bool) -> Stmt:
        match s:
            case For(var, extent, body, Kind.VECTORIZED):
                if inside:
                    return s.with_(kind=Kind.SERIAL, body=visit(body, True))
                body = visit(body, True)
                if not isinstance(extent, Const):
                    return s.with_(kind=Kind.SERIAL, body=body)
                n, w = int(extent.value), target.lanes(widest_bits(body))
                if at := _turn(s.with_(body=body), n) if _narrowest(body) < 32 and not maskable(body, target) else 0:
                    behind = var.with_(name=fresh(taken, f"{var.name}_behind"))
                    parts = (var, at, body), (behind, n - at, with_fresh_loops(_at(body, var.name, behind + at), taken))
                    cut = (simplify_tree(For(v, Const(m), b, Kind.VECTORIZED, s.annotations)) for v, m, b in parts)
                    return seq(*(visit(x, inside) for x in cut))  # type: ignore[arg-type]
                if n <= w:
                    return lanes(var, n, body)
                pieces: list[Stmt] = []
                outer, lane = (var.with_(name=fresh(taken, f"{var.name}_{k}")) for k in ("chunk", "lane"))
                whole, tail = divmod(n, w)
                inner = For(lane, Const(w), _at(body, var.name, outer * w + lane), Kind.VECTORIZED)
                kind = Kind.UNROLLED if whole <= MAX_CHUNKS else Kind.SERIAL
                ahead = [[name, max(1, distance // w)] for name, distance in prefetches(s)]
                notes = ((PREFETCH, ahead),) if ahead else ()
                pieces.append(For(outer, Const(whole), inner, kind, notes) if whole > 1 else _at(inner, outer.name, Const(0)))
                if tail:
                    last = var.with_(name=fresh(taken, f"{var.name}_tail"))
                    rest = with_fresh_loops(_at(body, var.name, last + whole * w), taken)
                    if any(map(accumulates, stores(rest))):
                        pieces.insert(0, lanes(last, tail, rest, least=w if whole_units else 1))
                    else:
                        pieces.append(lanes(last, tail, rest))
                return seq(*pieces)
            case _:
                return map_statements(s, lambda c: visit(c, inside))

    return simplify_tree(func.with_(body=visit(func.body, False)))  # type: ignore[return-value]


def _at(s: Stmt, name: str, value: Expr) -> Stmt:
    return substitute(s, {name: value})


def _turn(loop: For, lanes: int) -> int:
    """The first lane where a condition on the lane alone changes, as in a padded copy; 0 without one."""
    conditions = (c for n in walk(loop.body) if isinstance(n, If | Select) for c in conjuncts(n.condition))
    edges = (n for c in conditions for n in iterations_where(c, loop, {}, always=True) or ())
    return min((n for n in edges if 0 < n < lanes), default=0)


def widest_bits(s: Stmt) -> int:
    """Bits of the widest element that `s` stores or loads, in the type of its arithmetic or moves; 32 without accesses."""
    moves = all(isinstance(n, Const | Load | Select) for n in walk(s) if isinstance(n, Expr) and dtypes.is_half(n.dtype))
    moves = moves and not any(isinstance(n, Cast) and dtypes.is_half(n.value.dtype) for n in walk(s))
    kinds = [n.buffer.dtype for n in walk(s) if isinstance(n, (Load, Store))]
    return max((dtypes.bits(kind if moves else dtypes.computed(kind)) for kind in kinds), default=32)


def accumulates(s: Store) -> bool:
    """True where a store sets a constant, as an init does, or updates the buffer that it reads."""
    return isinstance(s.value, Const) or any(load.buffer == s.buffer for load in loads(s.value))


def maskable(s: Stmt, target) -> bool:
    """True where the target has masked loads and stores for the element types of `s`."""
    return target.vector_bits >= (512 if _narrowest(s) < 32 else 256)


def _narrowest(s: Stmt) -> int:
    """Bits of the narrowest element that `s` stores or loads; 32 without accesses."""
    return min((dtypes.bits(n.buffer.dtype) for n in walk(s) if isinstance(n, (Load, Store))), default=32)
