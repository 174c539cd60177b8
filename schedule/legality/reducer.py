"""The reduction of a block: its accumulators, its terms, and the combination of two partial results."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise, product
from typing import Any

from tir import dtypes
from tir.arith.enumeration import PYTHON_OPERATORS
from tir.ir import COMPARISONS, Binary, Block, Cast, Const, Expr, Let, Load, Select, Seq, Stmt, Store, Unary, Var
from tir.traverse import loads, map_children, rewrite, substitute, variables, walk

from ..error import ScheduleError

SMALL_NUMBERS = {"bool": (False, True), "int": (0, 1, 2), "uint": (0, 1, 2), "float": (-1, 0, 2)}  # by kind of dtype
WIDE_TRIALS = 200  # triples of large numbers that an operation on several values is tried on
MAX_TRIED = 1 << 20  # largest absolute value of a number that is tried


@dataclass(frozen=True)
class Reduction:
    """A reduction into the elements `outputs`: each step combines them with `sources`, where `condition` holds.

    `combined` are the results over the variables `old` (accumulators) and `new` (sources); `identities` are the values that the
    init stores.
    """

    outputs: tuple[Load, ...]
    sources: tuple[Expr, ...]
    identities: tuple[Expr, ...]
    condition: Expr | None
    old: tuple[Var, ...]
    new: tuple[Var, ...]
    combined: tuple[Expr, ...]

    def combine(self, old: tuple[Expr, ...], new: tuple[Expr, ...]) -> list[Expr]:
        mapping = dict(zip(self.old, old, strict=True)) | dict(zip(self.new, new, strict=True))
        return [substitute(c, mapping) for c in self.combined]

    def store(self, places: tuple[Load, ...], values: list[Expr], lets: tuple[Var, ...]) -> Stmt:
        """Statements that store all values as if at once."""
        if len(places) == 1:
            return Store(places[0].buffer, places[0].indices, values[0])
        body: Stmt = Seq(tuple(Store(p.buffer, p.indices, v) for p, v in zip(places, lets, strict=True)))
        for v, value in zip(reversed(lets), reversed(values), strict=True):
            body = Let(v, value, body)
        return body


@dataclass(frozen=True)
class Accumulation:
    """`C[...] = C[...] op added` by one store, `C[...]` starting from the value of init."""

    op: str
    store: Store
    added: Expr
    start: Expr


def updated(store: Store) -> tuple[str, Expr] | None:
    """The operator and the operand of an update `C[c] = C[c] op operand`, either way round; None for any other store."""
    old = Load(store.buffer, store.indices)
    match store.value:
        case Binary("+" | "*" | "min" | "max" | "and" | "or" as op, a, b) if (a == old) != (b == old):
            return op, b if a == old else a
    return None


def accumulation(block: Block) -> Accumulation | None:
    """The accumulation of a block by one store, with an init at the same place; None for other blocks."""
    body, init = block.body, block.init
    if type(body) is not Store or type(init) is not Store or (init.buffer, init.indices) != (body.buffer, body.indices):
        return None
    found = updated(body)
    return None if found is None else Accumulation(found[0], body, found[1], init.value)


def reducer_of(block: Block, reordered: bool) -> Reduction:
    """The reducer of a block; refuses operations that are not recognised as associative, on one or several values.

    `reordered` requires a commutative operation, too: terms will be combined in another order. On one value, +, *, min, max,
    and, or are known. In a reducer of several values each old value meets its new one (`select(c, old, new)`, `old op new`); it
    is tried on numbers.
    """
    stores, values = _stores_and_values(block)
    _need_same_places(block, stores)
    outputs = tuple(Load(s.buffer, s.indices) for s in stores)
    identities = _identities(block, stores)
    condition, values = _common_condition(values, outputs)
    old = tuple(Var(f"old {n}", o.dtype) for n, o in enumerate(outputs))
    new = tuple(Var(f"new {n}", o.dtype) for n, o in enumerate(outputs))
    seen = dict(zip(outputs, old, strict=True))
    values = [rewrite(v, lambda n: seen.get(n) if type(n) is Load else None) for v in values]
    sources = tuple(_source(block, v, values, old) for v in old)
    met = dict(zip(sources, new, strict=True))
    combined = tuple(_replaced(v, met | {s: n}) for v, s, n in zip(values, sources, new, strict=True))  # sources may be alike
    for c in combined:
        if loads(c) or not variables(c) <= {v.name for v in (*old, *new)}:
            raise _unknown(block)
    result = Reduction(outputs, sources, identities, condition, old, new, combined)
    if len(outputs) == 1:
        _need_known_identity(block, result)
    else:
        _need_associative(block, result, reordered)
    return result


def _unknown(block: Block) -> ScheduleError:
    return ScheduleError(
        f"the reduction of `{block.name}` is not recognised, so its partial results cannot be combined",
        (block, "the reduction"),
        hint="it must be C[...] = C[...] op f, with op one of +, *, min, max, and, or; or a reducer of several values",
    )


def _stores_and_values(block: Block) -> tuple[list[Store], list[Expr]]:
    """The stores of the body, and their values over the old values, with lets resolved."""
    bound: dict[str, Expr] = {}
    body = block.body
    while type(body) is Let:
        bound[body.var.name] = substitute(body.value, bound)
        body = body.body
    parts = body.stmts if type(body) is Seq else (body,)
    found = [s for s in parts if isinstance(s, Store)]
    if not found or len(found) < len(parts):
        raise _unknown(block)
    written = {s.buffer.name for s in found}
    if len(found) > 1 and (len(written) < len(found) or any(n.buffer.name in written for s in found for n in loads(s))):
        raise _unknown(block)  # a store could see the result of the one before
    return found, [substitute(s.value, bound) for s in found]


def _need_same_places(block: Block, stores: list[Store]) -> None:
    """Refuse stores whose indices depend on a reduction axis: they do not accumulate in one element."""
    reduced = {it.var.name for it in block.reduction}
    for s in stores:
        if moving := sorted(reduced & variables(*s.indices)):
            raise ScheduleError(
                f"`{block.name}` reduces over `{moving[0]}`, but each of its values writes another element of `{s.buffer.name}`",
                (block, "the reduction"),
                hint=f"make `{moving[0]}` a spatial axis",
            )


def _identities(block: Block, stores: list[Store]) -> tuple[Expr, ...]:
    parts = block.init.stmts if type(block.init) is Seq else (block.init,)
    found: dict[str, Store] = {s.buffer.name: s for s in parts if type(s) is Store}
    if len(found) != len(parts) or len(found) != len(stores):
        raise _unknown(block)
    result = []
    for s in stores:
        first = found.get(s.buffer.name)
        if first is None or first.indices != s.indices or loads(first.value):
            raise _unknown(block)
        result.append(first.value)
    return tuple(result)


def _common_condition(values: list[Expr], outputs: tuple[Load, ...]) -> tuple[Expr | None, list[Expr]]:
    """The condition that all values are updated under, or None, and the values without it."""
    first = values[0]
    if type(first) is not Select or any(n in outputs for n in loads(first.condition)):
        return None, values
    stripped = []
    for v, old in zip(values, outputs, strict=True):
        if type(v) is not Select or v.condition != first.condition or v.false_value != old:
            return None, values
        stripped.append(v.true_value)
    return first.condition, stripped


def _source(block: Block, old: Var, values: list[Expr], accumulators: Sequence[Var]) -> Expr:
    """The source of an accumulator: the other operand of its operation, or the other choice of its select."""
    found: list[Expr] = []
    for n in (n for v in values for n in walk(v)):
        match n:
            case Binary(op, a, b) if op not in COMPARISONS and old in (a, b):
                found.append(b if a == old else a)
            case Select(_, a, b) if old in (a, b):
                found.append(b if a == old else a)
    if not found or any(f != found[0] for f in found) or variables(found[0]) & {v.name for v in accumulators}:
        raise _unknown(block)
    return found[0]


def _replaced(e: Expr, mapping: Mapping[Expr, Expr]) -> Expr:
    """An expression with the outermost subexpressions that are keys replaced."""
    if e in mapping:
        return mapping[e]
    return map_children(e, lambda n: _replaced(n, mapping) if isinstance(n, Expr) else n)


def _need_known_identity(block: Block, r: Reduction) -> None:
    """Refuse unless the operation is known and starts from its identity, or, if idempotent, from any constant."""
    (value,), (old,), (new,), (start,) = r.combined, r.old, r.new, r.identities
    match value:
        case Binary("+" | "*" | "min" | "max" | "and" | "or" as op, a, b) if {a, b} == {old, new}:
            pass
        case _:
            raise _unknown(block)
    if type(start) is not Const:
        raise _unknown(block)
    if op in ("+", "*") and start.value != (op == "*"):
        raise ScheduleError(
            f"`{block.name}` starts at {start.value}, which is not neutral for `{op}`: "
            "it would count once for each partial result",
            (block, "the reduction"),
            hint=f"start at what is neutral, and apply `{op}` with {start.value} to the result in a block after it",
        )


def _need_associative(block: Block, r: Reduction, reordered: bool) -> None:
    """Refuse an operation on several values that trials show not to be associative (or, if `reordered`, not commutative).

    Three small numbers for each value are tried in all combinations. For operations that only compare and select values of one
    output, that is a proof: their order decides, and all orders are tried. Other operations, such as one with a threshold, are
    also tried on numbers around their constants, and on large ones. Arithmetic is exact.
    """
    first = tuple(_evaluated(i, {}) for i in r.identities)
    small = list(product(*(SMALL_NUMBERS[dtypes.TABLE[o.dtype].kind] for o in r.outputs)))
    draw = random.Random(0)
    pools = [_critical_numbers(r, o.dtype, draw) for o in r.outputs]
    wide = [tuple(map(draw.choice, pools)) for _ in range(3 * WIDE_TRIALS)]

    def f(a: tuple, b: tuple) -> tuple:
        env = {v.name: x for v, x in zip(r.old, a, strict=True)} | {v.name: x for v, x in zip(r.new, b, strict=True)}
        return tuple(_evaluated(c, env) for c in r.combined)

    def text(x: tuple) -> str:
        return str(tuple(float(v) if dtypes.is_float(o.dtype) else v for v, o in zip(x, r.outputs, strict=True)))

    def refuse(what: str, left: str, x: tuple, right: str, y: tuple, hint: str | None = None) -> None:
        reason = f"the reduction of `{block.name}` is not {what}"
        raise ScheduleError(reason, (block, "the reduction"), hint=hint, witness=f"{left} = {text(x)}, but {right} = {text(y)}")

    for a in (*small, *wide):
        if f(first, a) != a:
            refuse("neutral in what it starts from", f"f({text(first)}, {text(a)})", f(first, a), "its second argument", a)
    if reordered:
        for a, b in (*product(small, small), *pairwise(wide)):
            if f(a, b) != f(b, a):
                left, right = f"f({text(a)}, {text(b)})", f"f({text(b)}, {text(a)})"
                hint = "choose the outermost loop of the reduction, or let indices decide between equal values"
                refuse("commutative, as a change of order needs", left, f(a, b), right, f(b, a), hint)
    for a, b, c in (*product(small, small, small), *zip(wide[::3], wide[1::3], wide[2::3], strict=True)):
        if f(f(a, b), c) != f(a, f(b, c)):
            left, right = f"f(f({text(a)}, {text(b)}), {text(c)})", f"f({text(a)}, f({text(b)}, {text(c)}))"
            refuse("associative", left, f(f(a, b), c), right, f(a, f(b, c)))


def _critical_numbers(r: Reduction, dtype: str, draw: random.Random) -> list:
    """Trial values of a dtype: integers around the constants of an operation, and random ones up to MAX_TRIED."""
    if dtype == "bool":
        return [False, True]
    low, high = (-MAX_TRIED, MAX_TRIED) if dtypes.is_float(dtype) else dtypes.limits(dtype)
    low, high = max(low, -MAX_TRIED), min(high, MAX_TRIED)
    constants = {int(n.value) for c in r.combined for n in walk(c) if isinstance(n, Const) and abs(n.value) <= MAX_TRIED}
    around = [c + d for c in sorted({0, *constants}) for d in (-1, 0, 1)]
    return [*(n for n in around if low <= n <= high), *(draw.randint(int(low), int(high)) for _ in around)]


def _evaluated(e: Expr, env: Mapping[str, Any]) -> Any:
    """The value of an expression without loads, in exact arithmetic."""
    match e:
        case Const(value):
            return Fraction(value) if isinstance(value, float) and math.isfinite(value) else value
        case Var(name):
            return env[name]
        case Cast(dtype, a):
            v = _evaluated(a, env)
            return v if dtypes.is_float(dtype) else bool(v) if dtype == "bool" else int(v)
        case Unary(op, a):
            return -_evaluated(a, env) if op == "neg" else not _evaluated(a, env)
        case Select(c, a, b):
            return _evaluated(a, env) if _evaluated(c, env) else _evaluated(b, env)
        case Binary(op, a, b) if op in PYTHON_OPERATORS and op not in ("//", "%"):
            return PYTHON_OPERATORS[op](_evaluated(a, env), _evaluated(b, env))
    reason = f"`{e}` in a reduction of several values is not understood"
    raise ScheduleError(reason, hint="operations are + - * / min max, comparisons, T.Select and T.Cast")
