"""Running error analysis: a function that carries an error bound beside each number (see `rounding`).

The error of an exact number is the constant ZERO, of an exact bool FALSE; expressions of such errors are folded.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

from tir import dtypes
from tir.arrays import nearest
from tir.intrinsics import INTRINSICS
from tir.ir.blocks import Block
from tir.ir.buffers import Buffer, Load
from tir.ir.expressions import COMPARISONS, FALSE, LOGICAL, TRUE, Binary, Call, Cast, Const, Expr, Select, Unary, Var
from tir.ir.functions import PrimFunc
from tir.ir.nodes import annotation
from tir.ir.statements import Allocate, Evaluate, For, If, Kind, Let, Seq, Stmt, Store, nest, seq
from tir.traverse import names, stores, walk

WIDE = "float64"
DIVISION_ROUNDINGS = 3  # u: of the reciprocal, and of its product
EXACT_FUNCTIONS = frozenset({"abs", "floor", "ceil", "nearbyint", "round", "trunc", "copysign", "fmod"})
TF32_EPS = 2.0**-11  # relative error of factors of blocks annotated `tf32`
INFINITE = Const(math.inf, WIDE)
ZERO, ONE = Const(0.0, WIDE), Const(1.0, WIDE)

Pair = tuple[Expr, Expr]  # a value and its error bound; for a bool, the condition that it may be the other one


class NoBound(ValueError):
    """A function without a meaningful bound of its errors; the message is the reason."""


class ErrorAnalysis:
    """The function `func` with error bounds. `buffers` has the values, in float64, and the errors of each stored buffer that may
    err. For a sum it also has the sum of the magnitudes of its terms and the number of terms that count."""

    def __init__(self, original: PrimFunc):
        self._taken = names(original)
        self._lets: list[tuple[Var, Expr]] = []
        self.buffers: dict[str, tuple[Buffer, ...]] = {}
        self.stored = {s.buffer.name for s in stores(original.body)}
        self._known: dict[str, Pair] = {}  # of `Let` variables
        self._meaning: dict[str, Expr] = {}  # the expressions of these variables
        self._tf32 = False
        lets = {n.var.name: n.value for n in walk(original.body) if isinstance(n, Let)}
        sums = {t.buffer.name for t in stores(original.body) if _term(t, lets.get(getattr(t.value, "name", ""), t.value))}
        for b in _erring(original):
            of_floats = dtypes.is_float(b.dtype)
            parts = ("error", "size", "terms") if of_floats and b.name in sums else ("error",)
            beside = (b.with_(name=self._fresh(f"{b.name}_{part}"), dtype=WIDE) for part in parts)
            self.buffers[b.name] = b.with_(dtype=WIDE) if of_floats else b, *beside
        self.func = PrimFunc(
            f"{original.name}_errors",
            tuple(b for p in original.params for b in (self._with_errors(p) if isinstance(p, Buffer) else (p,))),
            self.statement(original.body),
            tuple(b for a in original.allocs for b in self._with_errors(a)),
        )

    def _with_errors(self, buffer: Buffer) -> tuple[Buffer, ...]:
        return self.buffers.get(buffer.name, (buffer,))

    # --- statements ----------------------------------------------------------------------------------------------------

    def statement(self, s: Stmt) -> Stmt:
        """A statement with the errors of its results. NoBound for an unsupported one."""
        match s:
            case For(body=body):
                if s.kind is Kind.THREAD:
                    raise NoBound(f"the loop `{s.name}` is bound to threads of a GPU")
                return s.with_(body=self.statement(body), kind=Kind.SERIAL, annotations=())
            case Block(body=body, init=init, allocs=allocs):
                before, self._tf32 = self._tf32, bool(annotation(s.annotations, "tf32", False))
                made = s.with_(
                    body=self.statement(body),
                    init=None if init is None else self.statement(init),
                    allocs=tuple(b for a in allocs for b in self._with_errors(a)),
                    annotations=(), reads=None, writes=None,
                )  # fmt: skip
                self._tf32 = before
                return made
            case Store():
                return self._store(s)
            case If(condition, then, orelse):
                return self._if(condition, then, orelse)
            case Let(var, value, body):
                own = _term_of(body, var, value)
                pair = self._value(value if own is None else own)
                lets, self._lets = self._lets, []
                self._known[var.name], self._meaning[var.name] = pair if own is None else (ZERO, ZERO), value
                if own is not None:
                    self._known[f"{var.name}+"] = pair
                return _with_lets(lets, self.statement(body))
            case Allocate(buffer, body):
                made = self.statement(body)
                for b in reversed(self._with_errors(buffer)):
                    made = Allocate(b, made)
                return made
            case Evaluate():
                return s
            case Seq(stmts):
                return seq(*map(self.statement, stmts))
        raise NoBound(f"a statement of {type(s).__name__} is not followed")

    def _if(self, condition: Expr, then: Stmt, orelse: Stmt | None) -> Stmt:
        value, unsure = self._value(condition)
        lets, self._lets = self._lets, []
        branches = [None if s is None else self.statement(s) for s in (then, orelse)]
        made: Stmt = If(value, *branches)  # type: ignore[arg-type]
        if unsure is not FALSE:
            lost = [self._invalidation(s.buffer) for b in (then, orelse) if b is not None for s in stores(b)]
            made = seq(made, If(unsure, seq(*lost)))
        return _with_lets(lets, made)

    def _invalidation(self, buffer: Buffer) -> Stmt:
        """The statement that makes the errors of all elements of a buffer infinite."""
        loops = [(Var(self._fresh("lost")), extent) for extent in buffer.shape]
        return nest(loops, Store(self._with_errors(buffer)[1], tuple(v for v, _ in loops), INFINITE))

    def _store(self, s: Store) -> Stmt:
        indices, unsure = self._indices(s.indices, None)
        kept = self._with_errors(s.buffer)
        meaning = self._meaning.get(s.value.name, s.value) if isinstance(s.value, Var) else s.value
        results: list[Expr]
        if len(kept) > 2 and (term := _term(s, meaning)) is not None:
            sign, t = term
            v, e = self._known[f"{s.value.name}+"] if isinstance(s.value, Var) else self._value(t)
            old, off, size, count = (self._let(Load(b, indices)) for b in kept)
            held = _both(Binary("==", v, Call("nearbyint", (v,), WIDE)), _exact(e))
            v = self._let(v)
            size = self._let(Binary("max", size, _magnitude(old)) + _magnitude(v))
            u = dtypes.unit(s.buffer.dtype)
            small = self._let(_magnitude(v) <= size * u)
            part = _finite(v, Select(held, ZERO, _magnitude(v) * Select(small, ONE, Const(u, WIDE))))
            results = [Binary(sign, old, v), off + _add(part, e), size, count + Select(small, ZERO, ONE)]
        else:
            v, e = self._value(s.value)
            results = [v, _amount(e), ZERO, ZERO][: len(kept)]
        results = [self._let(r) for r in results]
        made = seq(*(Store(b, indices, r) for b, r in zip(kept, results, strict=True)))
        if unsure is not FALSE:
            made = seq(made, If(unsure, self._invalidation(s.buffer)))
        lets, self._lets = self._lets, []
        return _with_lets(lets, made)

    # --- values --------------------------------------------------------------------------------------------------------

    def _is_exact_integer(self, e: Expr) -> bool:
        """True for an expression of exact integers alone."""
        return not any(
            dtypes.is_float(n.dtype) or (isinstance(n, Load) and n.buffer.name in self.buffers)
            or (isinstance(n, Var) and n.name in self._known)
            for n in walk(e) if isinstance(n, Expr)
        )  # fmt: skip

    def _indices(self, indices: tuple[Expr, ...], guard: Expr | None) -> tuple[tuple[Expr, ...], Expr]:
        """The indices, and the condition that one of them may be wrong."""
        made: list[Expr] = []
        unsure: Expr = FALSE
        for i in indices:
            v, e = (i, ZERO) if self._is_exact_integer(i) else self._value(i, guard)
            made.append(v)
            unsure = _either(unsure, _may_err(e))
        return tuple(made), unsure

    def _value(self, e: Expr, guard: Expr | None = None) -> Pair:
        """An expression, floats in float64, and its error. Reads and divisions under a `guard` run only where that holds."""
        if isinstance(e, Var) and e.name in self._known:
            return self._known[e.name]
        if not dtypes.is_float(e.dtype) and self._is_exact_integer(e):
            if guard is not None and any(isinstance(n, Load) or (isinstance(n, Binary) and n.op in "//%") for n in walk(e)):
                e = Select(guard, e, Const(False if e.dtype == "bool" else 0, e.dtype), lazy=True)
            return self._let(e), FALSE if e.dtype == "bool" else ZERO
        match e:
            case Const(value, dtype):
                return Const(nearest(value, dtype), WIDE), ZERO
            case Var():
                return self._let(Cast(WIDE, e)), ZERO
            case Load():
                pair = self._load(e, guard)
            case Cast(dtype, value):
                pair = self._cast(*self._value(value, guard), value.dtype, dtype)
            case Unary(op, a):
                v, error = self._value(a, guard)
                pair = Unary(op, v), error
            case Binary(op, a, b) if op in COMPARISONS:
                v, error = self._compare(op, self._value(a, guard), self._value(b, guard))
                pair = v, FALSE if a == b else error
            case Binary(op, a, b):
                pair = self._binary(op, self._value(a, guard), self._value(b, guard), "bool" if op in LOGICAL else e.dtype)
            case Select(condition, a, b, lazy):
                pair = self._select(self._value(condition, guard), a, b, lazy, guard)
            case Call(op, args, dtype):
                pair = self._call(op, [self._value(a, guard) for a in args], dtype)
            case _:
                raise NoBound(f"an expression of {type(e).__name__} is not followed")
        v, error = pair
        return self._let(v), self._let(error)

    def _load(self, e: Load, guard: Expr | None) -> Pair:
        indices, unsure = self._indices(e.indices, guard)

        def element(b: Buffer) -> Expr:
            load = Load(b, indices)
            zero = Const(False if b.dtype == "bool" else 0.0 if dtypes.is_float(b.dtype) else 0, b.dtype)
            return self._let(load if guard is None else Select(guard, load, zero, lazy=True))

        dtype = e.buffer.dtype
        v, *kept = map(element, self._with_errors(e.buffer))
        error = kept[0] if kept else ZERO
        if not kept and dtypes.is_float(dtype):
            v = self._let(Cast(WIDE, v))
        if len(kept) > 1:
            _, size, count = kept
            exact = _both(_exact(error), size <= float(dtypes.exact_integers(dtype)))
            error = _finite(v, Select(exact, ZERO, error + count * size * dtypes.unit(dtype)))
        if self._tf32 and dtype == "float32":
            error = _finite(v, _add(error, _magnitude(v) * TF32_EPS))
        error = _choice(unsure, INFINITE, error)
        return v, _may_err(error) if dtype == "bool" else error

    def _select(self, condition: Pair, a: Expr, b: Expr, lazy: bool, guard: Expr | None) -> Pair:
        c, unsure = condition
        guards = [guard, guard]
        if lazy:
            runs = [self._let(_either(unsure, x)) for x in (c, _negated(c))]
            guards = [self._let(x if guard is None else Binary("and", guard, x)) for x in runs]
        return _selection(condition, *(self._value(branch, g) for branch, g in zip((a, b), guards, strict=True)))  # type: ignore[misc]

    # --- errors of operations -------------------------------------------------------------------------------------------

    def _fresh(self, name: str) -> str:
        while name in self._taken:
            name += "_"
        self._taken.add(name)
        return name

    def _let(self, e: Expr) -> Expr:
        if isinstance(e, (Const, Var)):
            return e
        var = Var(self._fresh(f"x{len(self._taken)}"), e.dtype)
        self._lets.append((var, e))
        return var

    def _rounded(self, v: Expr, e: Expr, dtype: str, units: float = 1.0) -> Pair:
        """A value rounded to a type, to so many units of roundoff; without error if it is exact and representable."""
        u = units * dtypes.unit(dtype)
        v = self._let(v)
        size = self._let(_magnitude(v))
        if dtype == WIDE:
            return v, _finite(v, _add(e, size * u))
        t = dtypes.TABLE[dtype]
        smallest = t.tiny * (t.eps if dtype == "float16" else 1.0)  # others may be flushed to zero
        most = self._let(_add(size, e))
        held = _both(Binary("==", Cast(WIDE, Cast(dtype, v)), v), _exact(e))
        off = self._let(Select(held, ZERO, _add(e, most * u) + smallest))
        over = t.largest * (1 + t.eps / 4)
        infinite = self._let((size if e is ZERO else size - e) >= over)
        off = Select(infinite, ZERO, Select(most < over, off, INFINITE))
        limited = Select(infinite, Select(v > 0.0, INFINITE, Const(-math.inf, WIDE)), v)
        return limited, Select(Binary("==", v, v), off, ZERO)

    def _cast(self, v: Expr, e: Expr, source: str, dtype: str) -> Pair:
        if source == dtype:
            return v, e
        if dtype == "bool":
            return Cast("bool", v), _both(_may_err(e), _negated(_magnitude(v) > e))
        e = _amount(e)
        if dtypes.is_float(dtype):
            v = v if dtypes.is_float(source) else self._let(Cast(WIDE, v))
            return (v, e) if dtypes.holds(dtype, source) else self._rounded(v, e, dtype)
        if e is ZERO:
            return Cast(dtype, v), e
        low, whole, high = (Call("trunc", (x,), WIDE) for x in (_wide(v) - e, _wide(v), _wide(v) + e))
        return Cast(dtype, v), _integer_error(_wide(v), Binary("max", high - whole, whole - low), e, dtype)

    def _compare(self, op: str, a: Pair, b: Pair) -> Pair:
        """A comparison; its result is uncertain if the operands differ by no more than their errors."""
        (x, ex), (y, ey) = a, b
        if x.dtype == "bool":
            return Binary(op, x, y), _either(ex, ey)
        e = self._let(_add(ex, ey))
        return Binary(op, x, y), _both(_may_err(e), _negated(_magnitude(_wide(x) - _wide(y)) > e))

    def _binary(self, op: str, a: Pair, b: Pair, dtype: str) -> Pair:
        (x, ex), (y, ey) = a, b
        if dtype == "bool":
            return Binary(op, x, y), _either(ex, ey)
        v = self._let(Binary(op, x, y))
        total = _add(ex, ey)
        if op in ("min", "max"):
            if total is ZERO:
                return v, ZERO
            low, high = (Binary(op, *(_wide(n) if e is ZERO else Binary(by, _wide(n), e) for n, e in (a, b))) for by in "-+")
            return v, _finite(_wide(v), Binary("max", high - _wide(v), _wide(v) - low))
        if op in ("+", "-"):
            e = total
        elif op == "*":
            e = _add(_add(_times(ex, y), _times(ey, x)), _times(ex, ey))
        elif op == "/" and ey is ZERO:
            e = ZERO if ex is ZERO else ex / _magnitude(y)
        elif op == "/":
            off = _add(ex, _times(ey, v)) / (_magnitude(y) - ey)
            e = Select(_magnitude(y) > ey, off, _choice(_exact(total), ZERO, INFINITE))
        elif dtypes.is_float(dtype):
            v, e = self._rounded(v, self._corner_distance(lambda p, q: Binary(op, p, q), v, [a, b]), dtype, 3.0)
            return v, e if op == "//" else e + _magnitude(y) * (2 * dtypes.unit(dtype))
        else:
            e = _choice(_exact(total), ZERO, INFINITE)
        if dtypes.is_float(dtype):
            return self._rounded(v, self._let(e), dtype, DIVISION_ROUNDINGS if op == "/" else 1.0)
        return v, ZERO if e is ZERO else _integer_error(Binary(op, _wide(x), _wide(y)) if op in "+-*" else _wide(v), e, e, dtype)

    def _call(self, op: str, args: Sequence[Pair], dtype: str) -> Pair:
        total, of_floats = _sum_of(e for _, e in args), dtypes.is_float(dtype)
        v = self._let(Call(op, tuple(x for x, _ in args), WIDE if of_floats else dtype))
        if op == "abs":
            return v, total
        if not of_floats:
            return v, _choice(_exact(total), ZERO, INFINITE)
        moved = self._corner_distance(lambda *x: Call(op, x, WIDE), v, args)
        if op in ("sin", "cos") and moved is not ZERO:
            moved = Binary("min", total, Const(2.0, WIDE))
        if op in EXACT_FUNCTIONS:
            return v, moved
        ulps = INTRINSICS[op].ulps[dtype == WIDE]
        return self._rounded(v, moved, dtype, 1.0 + 2 * ulps * dtypes.unit(dtypes.computed(dtype)) / dtypes.unit(dtype))

    def _corner_distance(self, f: Callable[..., Expr], v: Expr, args: Sequence[Pair]) -> Expr:
        """The largest distance from `v` of a function at the ends of its arguments' intervals, on which it is monotone."""
        corners: list[list[Expr]] = [[]]
        for x, e in args:
            ends = [x] if e is ZERO else [self._let(x - e), self._let(x + e)]
            corners = [[*c, end] for c in corners for end in ends]
        if len(corners) == 1:
            return ZERO
        far: Expr = ZERO
        for c in corners:
            off = self._let(_magnitude(f(*c) - v))
            far = self._let(Binary("max", far, Select(Binary("==", off, off), off, INFINITE)))
        return _finite(v, Select(_exact(_sum_of(e for _, e in args)), ZERO, far))


def _with_lets(lets: Sequence[tuple[Var, Expr]], s: Stmt) -> Stmt:
    for var, value in reversed(lets):
        s = Let(var, value, s)
    return s


def _erring(func: PrimFunc) -> list[Buffer]:
    """The stored buffers whose elements may err: floats, and values computed from these."""
    stored = {s.buffer.name: s.buffer for s in stores(func.body)}
    found = {name for name, b in stored.items() if dtypes.is_float(b.dtype)}
    before = -1
    while len(found) > before:
        before = len(found)
        lets = {n.var.name for n in walk(func.body) if isinstance(n, Let) and _is_computed(n.value, found, set())}
        found |= {s.buffer.name for s in stores(func.body) if _is_computed(s, found, lets)}
    return [b for name, b in stored.items() if name in found]


def _is_computed(node: Stmt | Expr, erring: set[str], lets: set[str]) -> bool:
    """True for a store, or a value, of computed floats, or of elements that may err."""
    parts = (node.value, *node.indices) if isinstance(node, Store) else (node,)
    return any(
        (isinstance(n, Load) and n.buffer.name in erring) or (isinstance(n, Var) and n.name in lets)
        or (isinstance(n, Expr) and dtypes.is_float(n.dtype) and not isinstance(n, (Load, Const)))
        for part in parts for n in walk(part)
    )  # fmt: skip


def _term(s: Store, value: Expr) -> tuple[str, Expr] | None:
    """The sign and the term that a store adds to the value it overwrites; None for any other store."""
    own = Load(s.buffer, s.indices)
    match value:
        case Binary("+" | "-" as op, a, b) if a == own:
            return op, b
        case Binary("+", a, b) if b == own:
            return "+", a
        case Select(condition, a, b, lazy) if b == own and (found := _term(s, a)):
            return found[0], Select(condition, found[1], Const(0.0, b.dtype), lazy)
    return None


def _term_of(body: Stmt, var: Var, value: Expr) -> Expr | None:
    """The term of a sum, if a variable is the new value of an accumulator that `body` stores; else None."""
    for s in stores(body):
        if s.value == var and dtypes.is_float(s.buffer.dtype) and (found := _term(s, value)) is not None:
            return found[1]
    return None


def _selection(condition: Pair, a: Pair, b: Pair) -> Pair:
    """One of two values; under an uncertain condition the error covers both."""
    (c, unsure), (x, ex), (y, ey) = condition, a, b
    v, e = Select(c, x, y), _choice(c, ex, ey)
    if unsure is FALSE:
        return v, e
    if x.dtype == "bool":
        return v, _either(e, _both(unsure, Binary("!=", x, y)))
    most = ex if ey is ZERO else ey if ex is ZERO else Binary("max", ex, ey)
    same = Binary("==", _wide(x), _wide(y))
    return v, Select(unsure, Select(same, most, _add(_magnitude(_wide(x) - _wide(y)), most)), e)


def _integer_error(v: Expr, moved: Expr, e: Expr, dtype: str) -> Expr:
    """The error `moved` of an integer; infinite if it may leave the range of its type."""
    low, high = (Const(float(x), WIDE) for x in dtypes.limits(dtype))
    inside = Binary("and", v - e >= low, v + e <= high)
    return Select(_exact(e), ZERO, Select(inside, moved, INFINITE))


def _finite(v: Expr, error: Expr) -> Expr:
    """The error of a value; 0 for an infinity or NaN, which a result must equal."""
    return Select(_magnitude(v) <= dtypes.TABLE[WIDE].largest, error, ZERO)


# --- folded expressions ------------------------------------------------------------------------------------------------


def _magnitude(e: Expr) -> Expr:
    e = _wide(e)
    return Const(abs(e.value), e.dtype) if isinstance(e, Const) else Call("abs", (e,), e.dtype)


def _wide(e: Expr) -> Expr:
    return e if e.dtype == WIDE else Cast(WIDE, e)


def _may_err(error: Expr) -> Expr:
    """The condition that a value may err."""
    return error if error.dtype == "bool" else FALSE if error is ZERO else _negated(error <= 0.0)


def _exact(error: Expr) -> Expr:
    return TRUE if error is ZERO else error <= 0.0


def _amount(error: Expr) -> Expr:
    """The error of a bool as that of the number 0 or 1; that of a number unchanged."""
    return _choice(error, ONE, ZERO) if error.dtype == "bool" else error


def _negated(e: Expr) -> Expr:
    return Unary("not", e)


def _either(a: Expr, b: Expr) -> Expr:
    return b if a is FALSE else a if b is FALSE else Binary("or", a, b)


def _both(a: Expr, b: Expr) -> Expr:
    return FALSE if FALSE in (a, b) else b if a is TRUE else a if b is TRUE else Binary("and", a, b)


def _choice(condition: Expr, a: Expr, b: Expr) -> Expr:
    return a if condition is TRUE or a is b else b if condition is FALSE else Select(condition, a, b)


def _add(a: Expr, b: Expr) -> Expr:
    return b if a is ZERO else a if b is ZERO else a + b


def _sum_of(errors: Iterable[Expr]) -> Expr:
    total: Expr = ZERO
    for e in errors:
        total = _add(total, e)
    return total


def _times(error: Expr, factor: Expr) -> Expr:
    return ZERO if ZERO in (error, factor) else error * _magnitude(factor)
