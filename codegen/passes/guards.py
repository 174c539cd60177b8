"""Guards leave the inner loops: loops end where their guard fails, and full tiles run unguarded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby

from tir.arith.bounds import extent_range, is_pure, ranges_of, upper_limit
from tir.arith.intervals import Interval, polynomial_bounds
from tir.arith.polynomial import add, coefficient, constant, nonpositive, polynomial, scale, split_terms, to_expr
from tir.arith.prove import prove
from tir.arith.simplify import simplify
from tir.arith.statements import drop_implied_conditions, min_operands, simplify_tree
from tir.ir.expressions import TRUE, Binary, Const, Expr, Select, Unary, Var, conjunction, conjuncts
from tir.ir.functions import PrimFunc
from tir.ir.statements import Allocate, For, If, Kind, Let, Seq, Stmt, Store, seq
from tir.traverse import N, divisions, fresh, loops, map_statements, rewrite, stores, substitute, variables, walk

from .split_vectors import accumulates, widest_bits

# Versions of a tile of an open number of rows, each of so many parts of them: a product of 2 to 7 rows by 768 x 768 takes 0.7 of
# the time of its whole tile of 13 (Zen 4), and each version is code to compile.
VERSIONS = 4

Ranges = dict[str, Interval]
Extents = dict[str, Expr]  # of loops, the outermost first


def clip_loops(func: PrimFunc, target) -> PrimFunc:
    """Rewrite   for v in range(n): if a * v + rest < bound: S
              => for v in range(min(n, ceil((bound - rest) / a))): S

    for serial and parallel loops whose whole body is under the condition. Where `rest` depends on loops inside v, its minimum
    bounds v, and the condition stays. Conditions on loaded values, or on the lanes of a vectorised loop around v, stay in place.
    Another condition of the whole body on v, as on a quotient of v, is tested once an iteration unless it depends on an inner
    loop.
    """

    def visit(s: Stmt, ranges: Ranges, lanes: frozenset[str]) -> Stmt:
        match s:
            case For(var, extent, body, kind):
                if kind in (Kind.SERIAL, Kind.PARALLEL):
                    inner = loops(body)
                    names, known = {x.name for x in inner}, ranges_of((s, *inner), ranges)
                    for limit in _common(body, lambda c: upper_limit(c, var.name, names, known)):
                        if not variables(limit) & lanes:
                            shorter = simplify(Binary("min", extent, limit), ranges)
                            if shorter != extent:
                                extent = shorter
                inner_lanes = lanes | {var.name} if kind is Kind.VECTORIZED else lanes
                inside = {**ranges, var.name: extent_range(extent, ranges)}
                new_body = visit(body, inside, inner_lanes)
                if extent is not s.extent:
                    new_body = drop_implied_conditions(new_body, inside, loop_facts(s.with_(extent=extent)))
                if kind in (Kind.SERIAL, Kind.PARALLEL):
                    new_body = _conditions_once(new_body, var.name, inside, lanes)
                return s.with_(extent=extent, body=new_body)
            case _:
                return map_statements(s, lambda c: visit(c, ranges, lanes))

    return func.with_(body=visit(func.body, {}, frozenset()))


def _conditions_once(body: Stmt, name: str, ranges: Ranges, lanes: frozenset[str]) -> Stmt:
    """The body of loop `name` under conditions common to all its statements that depend on `name`, but on no inner loop and no
    `lanes` around. No extent can express such a condition, for example on a quotient of a fused loop."""
    elsewhere = {x.name for x in loops(body)} | lanes

    def decided(c: Expr) -> Expr | None:
        return c if is_pure(c) and name in variables(c) and not variables(c) & elsewhere else None

    found = list(dict.fromkeys(_common(body, decided)))
    return If(conjunction(*found), drop_implied_conditions(body, ranges, found)) if found else body


def loop_facts(loop: For) -> list[Expr]:
    """Facts in a loop that its extent implies beyond the range of its variable, one or more for each open operand of a `min`."""
    limits = [part for part in min_operands(loop.extent) if not isinstance(part, Const)]
    return [*(Binary("<", loop.var, limit) for limit in limits), *(f for limit in limits for f in _multiplied(loop.var, limit))]


def _multiplied(v: Var, limit: Expr) -> list[Expr]:
    """The facts n * (v - rest + 1) <= a that v < a // n + rest implies, for each quotient in `limit`."""
    terms, found = polynomial(limit), list[Expr]()
    for m, factor in terms.items():
        match m:
            case (Binary("//", a, Const(int(n))),) if factor == 1 and n > 0:
                rest = {other: f for other, f in terms.items() if other != m}
                steps = add(add({(v,): 1}, rest, -1), constant(1))
                found.append(Binary("<=", to_expr(scale(steps, n)), a))
    return found


def _common(s: Stmt, found: Callable[[Expr], Expr | None]) -> list[Expr]:
    """The results of `found` for conditions that guard all statements in `s`."""
    match s:
        case If(condition, then, None):
            own = [x for c in conjuncts(condition) if (x := found(c)) is not None]
            return [*own, *_common(then, found)]
        case For(body=body) | Allocate(body=body):
            return _common(body, found)
        case Seq(stmts):
            first, *others = (_common(x, found) for x in stmts)
            return [c for c in first if all(c in o for o in others)]
        case _:
            return []


def version_guards(func: PrimFunc, target) -> PrimFunc:
    """Rewrite   for i: for ii (unrolled or vectorised): if i * f + ii < n: S
              => for i: if i * f + f - 1 < n: (for ii: S) else: (for ii: if i * f + ii < n: S)

    so that only the last, partial tile pays for the guard.

    The test stands in the innermost of the loops in the guards that is neither unrolled nor vectorised: around its body, or
    around statements with the same guards. Where it fails only in the last iteration of all its loops, their variables are
    constants there, and the loops of the tile are clipped.

    With guards on both unrolled and vectorised loops, a tile that is full but for its lanes has a version of its own: one mask
    for all of its rows, or clipped vectors. Where masked loads cost arithmetic (without mask registers, or on quotients of
    lanes), conditional reads of lanes, as of padding, are tested likewise. Tests that fail in the last iteration alone (the right
    edge of an image) and other tests (the left edge) have a version each: the masks of the last tile are constants.
    """
    masks_cost = not target.machine.masks

    def visit(s: Stmt, ranges: Ranges, extents: Extents) -> Stmt:
        match s:
            case For(kind=Kind.VECTORIZED | Kind.UNROLLED):
                return s
            case For(var, extent):
                return map_statements(s, lambda c: body(c, ranges_of([s], ranges), {**extents, var.name: extent}))
            case Seq(stmts):
                runs = [seq(*run) for _, run in groupby(stmts, lambda x: _full_tile_tests(x, ranges, masks_cost))]
                return seq(*(body(run, ranges, extents) for run in runs)) if len(runs) > 1 else within(s, ranges, extents)
            case _:
                return within(s, ranges, extents)

    def within(s: Stmt, ranges: Ranges, extents: Extents) -> Stmt:
        return map_statements(s, lambda c: visit(c, ranges, extents))

    def body(s: Stmt, ranges: Ranges, extents: Extents) -> Stmt:
        """The versions of the body of a loop or of the function, or of a run of statements with the same guards."""
        tests = _full_tile_tests(s, ranges, masks_cost)
        return _versioned(tests, s, ranges, extents, target) if tests else visit(s, ranges, extents)

    return func.with_(body=body(func.body, {}, {}))


def _versioned(tests: Sequence[_Test], body: Stmt, ranges: Ranges, extents: Extents, target) -> Stmt:
    masks_cost = not target.machine.masks

    def without(known: Sequence[_Test], body: Stmt) -> Stmt:
        return simplify_tree(drop_implied_conditions(body, ranges, [t.condition for t in known]), ranges)  # type: ignore[return-value]

    def partial_lanes(known: Sequence[_Test], body: Stmt) -> Stmt:
        """`body` where a test of lanes fails: its last tile, if all tests fail there alone. Where masks cost arithmetic, one
        version for the tests that do, and one for the others."""
        last = [t for t in known if _partial_tile([t], body, ranges, extents, target) is not body]
        if len(last) < len(known) and not (last and masks_cost):
            return body
        tile = _partial_tile(last, body, ranges, extents, target)
        if len(last) == len(known):
            return tile
        return If(simplify(conjunction(*(t.condition for t in last)), ranges), without(last, body), tile)

    body = drop_implied_conditions(body, ranges)
    verdict = simplify(conjunction(*(t.condition for t in tests)), ranges)
    if isinstance(verdict, Const):
        return without(tests, body) if verdict.value else body
    rows, lanes = [t for t in tests if not t.lanes], [t for t in tests if t.lanes]
    partial = _partial_tile(rows if rows and lanes else tests, body, ranges, extents, target)
    if partial is body and any(variables(t.condition) - ranges.keys() for t in rows):
        partial = _by_rows(body, ranges)
    if rows and lanes:
        whole = simplify(conjunction(*(t.condition for t in rows)), ranges)
        partial = partial if isinstance(whole, Const) else If(whole, partial_lanes(lanes, without(rows, body)), partial)
    elif partial is body:
        partial = partial_lanes(lanes, body)
    return If(verdict, without(tests, body), partial)


def _partial_tile(tests: Sequence[_Test], body: Stmt, ranges: Ranges, extents: Extents, target) -> Stmt:
    """`body` where one of `tests` fails. Variables, or quotients and remainders of the variable of fused loops, become their last
    value if the test fails for that alone. Where lanes are tested and `body` divides such a variable, it stays: by its quotients
    lanes that run on from row to row are recognised."""
    found = {m for t in tests for m in nonpositive(t.condition) or () if m}
    if any(len(m) != 1 for m in found) or (any(t.lanes for t in tests) and any(_occurs_divided(m[0], body) for m in found)):
        return body
    order = {name: n for n, name in enumerate(ranges)}
    last_tile, conditions = body, [t.condition for t in tests]
    for (atom,) in sorted(found, key=lambda m: min(order.get(name, -1) for name in variables(m[0]))):
        low, last = polynomial_bounds({(atom,): 1}, ranges)
        if low is None or last is None:
            return body
        others, number = Var(fresh(variables(body), "tile"), atom.dtype), Const(last, atom.dtype)
        ranges_of_others = {**ranges, others.name: (low, last - 1)}
        if any(simplify(_exchanged(c, atom, others), ranges_of_others) != TRUE for c in conditions):
            return body
        conditions = [_exchanged(c, atom, number) for c in conditions]
        extents = {name: _exchanged(extent, atom, number) for name, extent in extents.items()}
        ranges = {**ranges, **{name: extent_range(simplify(extent, ranges), ranges) for name, extent in extents.items()}}
        last_tile = simplify_tree(_exchanged(last_tile, atom, number), ranges)  # type: ignore[assignment]
    return drop_implied_conditions(_clipped_tiles(last_tile, target), ranges)  # type: ignore[arg-type]


def _by_rows(body: Stmt, ranges: Ranges) -> Stmt:
    """`body`, a partial tile whose number of rows is open, in versions for at most so many: unrolled rows that are not there cost
    as much as those that are."""
    result = body
    for parts in range(VERSIONS - 1, 0, -1):
        excluded: list[Expr] = []
        fewer = _of_rows(body, parts, excluded)
        condition = simplify(conjunction(*dict.fromkeys(excluded)), ranges)
        if excluded and not (isinstance(result, If) and result.condition == condition):  # of few rows, parts are as many
            result = If(condition, fewer, result)
    return result


def _of_rows(s: Stmt, parts: int, excluded: list[Expr]) -> Stmt:
    """`s` with unrolled loops clipped to `parts` of VERSIONS parts. `excluded` gets the conditions under which guards fail in
    the others."""
    match s:
        case For(var, Const(int(extent)), body, Kind.UNROLLED) if 0 < (count := extent * parts // VERSIONS):
            elsewhere = {x.name for x in loops(body)}

            def above(c: Expr) -> Expr | None:
                p = nonpositive(c) if is_pure(c) else None
                return c if p and (coefficient(p, var.name) or 0) > 0 and not variables(c) & elsewhere else None

            if found := _common(body, above):
                excluded.append(Unary("not", substitute(found[0], {var: Const(count, var.dtype)})))
                return s.with_(extent=Const(count), body=_of_rows(body, parts, excluded))
    return map_statements(s, lambda c: _of_rows(c, parts, excluded))


def _exchanged(node: N, atom: Expr, other: Expr) -> N:
    """A statement or expression with `other` in place of the index `atom`."""
    return substitute(node, {atom: other}) if isinstance(atom, Var) else rewrite(node, lambda n: other if n == atom else None)


def _occurs_divided(atom: Expr, body: Stmt) -> bool:
    """True where a variable of an index occurs in a quotient or a remainder in `body`."""
    return bool(variables(atom) & variables(*divisions(body)))


def _clipped_tiles(s: Stmt, target) -> Stmt:
    """`s` with unrolled and vectorised loops clipped to the bound that guards their whole body. Vectorised ones that accumulate
    are clipped to whole registers, of which `promote_registers` drops the guard."""
    match s:
        case For(var, Const(int(extent)), body, Kind.UNROLLED | Kind.VECTORIZED):
            limits = _common(body, lambda c: upper_limit(c, var.name, set(), {}) if variables(c) == {var.name} else None)
            whole = target.lanes(widest_bits(body)) if s.kind is Kind.VECTORIZED and any(map(accumulates, stores(body))) else 1
            extent = min([extent, *(-(-n.value // whole) * whole for n in limits if isinstance(n, Const))])
            return s.with_(extent=Const(extent), body=_clipped_tiles(body, target))
        case _:
            return map_statements(s, lambda c: _clipped_tiles(c, target))


@dataclass(frozen=True)
class _Test:
    """The condition under which a guard holds in all of a tile; with `lanes`, the guard depends on lanes of vectors."""

    condition: Expr
    lanes: bool


def _full_tile_tests(body: Stmt, ranges: Ranges, masks_cost: bool) -> list[_Test]:
    """The tests, over loops outside `body`, that exclude a failing guard on its unrolled or vectorised loops. With `masks_cost`,
    or for quotients of lanes, they include conditions of the reads of lanes.

    Empty where a guard also depends on a serial loop inside `body`, in which it is tested, or is not an affine inequality.
    """
    guards: list[tuple[Expr, Ranges]] = []
    reads: list[tuple[Expr, Ranges]] = []
    vectors: set[str] = set()
    postponed = False

    def collect(s: Stmt, tile: Ranges, inner_serial: set[str]) -> None:
        nonlocal postponed
        match s:
            case For(var, extent, inner, kind):
                r = extent_range(extent, {**ranges, **tile})
                if kind in (Kind.VECTORIZED, Kind.UNROLLED):
                    vectors.update([var.name] if kind is Kind.VECTORIZED else [])
                    collect(inner, {**tile, var.name: r}, inner_serial)
                else:
                    collect(inner, tile, inner_serial | {var.name})
            case If(condition, then, orelse):
                for c in conjuncts(condition):
                    used = variables(c)
                    if used & set(tile):
                        if used & inner_serial:
                            postponed = True
                        else:
                            guards.append((c, dict(tile)))
                collect(then, tile, inner_serial)
                if orelse is not None:
                    collect(orelse, tile, inner_serial)
            case Seq(stmts):
                for x in stmts:
                    collect(x, tile, inner_serial)
            case Let(var, _, inner):
                collect(inner, tile, inner_serial | {var.name})
            case Allocate(body=inner):
                collect(inner, tile, inner_serial)
            case Store():
                for n in walk(s.value):
                    for c in conjuncts(n.condition) if isinstance(n, Select) else ():
                        costs = masks_cost or any(not vectors.isdisjoint(variables(d)) for d in divisions(c))
                        if costs and not vectors.isdisjoint(variables(c)) and not variables(c) & inner_serial:
                            reads.append((c, dict(tile)))

    collect(body, {}, set())
    if postponed:
        return []
    tests: list[_Test] = []
    for condition, tile in guards:
        worst = _worst_case(condition, tile, ranges)
        if worst is None:
            return []
        if not prove(Unary("not", worst), ranges):  # else it fails in every tile, and stays a guard in all of them
            tests.append(_Test(worst, not vectors.isdisjoint(variables(condition))))
    for condition, tile in reads:
        worst = _worst_case(condition, tile, ranges)
        if worst is not None and not any(prove(verdict, ranges) for verdict in (worst, Unary("not", worst))):
            tests.append(_Test(worst, lanes=True))
    return tests


def _worst_case(condition: Expr, tile: Ranges, ranges: Ranges) -> Expr | None:
    """The condition with the tile's variables at their least favourable values; None if it is not an affine inequality."""
    p = nonpositive(condition) if is_pure(condition) else None
    if p is None:
        return None
    moving, fixed = split_terms(p, tile)
    _, high = polynomial_bounds(moving, {**ranges, **tile})
    if high is None:
        return None
    bound = 1 - high - fixed.pop((), 0)
    return Binary("<", to_expr(fixed), Const(bound))
