"""The errors that rounding may make: a function, run in float64, that carries beside each number how far it may be off.

A bound holds for each order in which sums may be made, with products fused or not, and with numbers kept wider than they are
stored. Rounding is counted once where it happens, by the type that is computed, and goes on through what uses the number:

- an operation rounds to u = eps / 2 of its result (intrinsics to their ulps); errors of its operands grow by its derivatives,
  or, of functions, by their values at both ends of the interval;
- a sum of n terms errs by n u times the sum of their magnitudes (Higham, Accuracy and Stability of Numerical Algorithms, section
  4.2), where a term that is less than u of that errs by itself at most; and by nothing where all are exact integers and the sum
  of their magnitudes is one that its type holds;
- what a comparison within its error decides may be either; a number to which an uncertain index leads is not bounded (infinity).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np

from codegen import build
from schedule import Schedule, ScheduleError
from tir import dtypes
from tir.intrinsics import INTRINSICS
from tir.ir import (
    COMPARISONS,
    FALSE,
    LOGICAL,
    Allocate,
    Axis,
    Binary,
    Block,
    Buffer,
    Call,
    Cast,
    Const,
    Evaluate,
    Expr,
    For,
    If,
    Kind,
    Let,
    Load,
    PrimFunc,
    Select,
    Stmt,
    Store,
    Unary,
    Var,
    annotation,
    as_int,
    nest,
    seq,
)
from tir.traverse import blocks, loads, loops_to, names, stores, variables, walk

WIDE = "float64"
SLACK = 2.0  # for what the reference rounds itself, and for rewrites that round once more, as of constants that are multiplied
HALF_SLACK = 1.25  # the same where halves are stored: neither is much of their roundings
DIVISION_ROUNDINGS = 3  # u: of the reciprocal, and of its product
TF32_EPS = 2.0**-11  # by which factors of blocks annotated `tf32` may be off
LANES = 8
MANY = 10_000_000  # points of loops from which on scheduling them pays
ONE_THREAD = "llvm -num-cores 1"
MAX_BOUND = 0.1  # of the scale of a result: one that is checked within more is not checked
MAX_LOOSE = 0.25  # of the elements of an output may have a larger bound, as indices of almost equal maxima

EXACT_FUNCTIONS = frozenset({"abs", "floor", "ceil", "nearbyint", "round", "trunc", "copysign", "fmod"})
INFINITE = Const(math.inf, WIDE)
ZERO = Const(0.0, WIDE)


class NoBound(ValueError):
    """Why the errors of a function have no bound that means something."""


@dataclass(frozen=True)
class Expected:
    """What an output should hold, float64 or its integers, and how far a right result may be from it, by element: 0 where it is
    infinite or NaN, which must be met, and infinite where any result may be right."""

    value: np.ndarray
    bound: np.ndarray

    def wrong(self, found: np.ndarray) -> np.ndarray:
        """Which elements of a result, float64 or integers, are wrong."""
        with np.errstate(invalid="ignore"):
            off = np.abs(found.astype(WIDE) - self.value.astype(WIDE))
        same = (found == self.value) | ((found != found) & (self.value != self.value))
        return ~(same | (off <= self.bound) | (self.bound == math.inf))

    @property
    def relative(self) -> np.ndarray:
        """The bounds, as parts of the scale of their elements; 0 where all of an output is 0, which is compared with no scale."""
        with np.errstate(invalid="ignore", divide="ignore"):
            scale = scale_of(self.value.astype(WIDE))
            return np.where((self.bound == 0) | (scale == 0), 0.0, self.bound / scale)

    @property
    def loose(self) -> bool:
        """Whether too many results are accepted for a comparison to mean something."""
        return bool(self.bound.size) and bool(np.mean(self.relative > MAX_BOUND) > MAX_LOOSE)

    @property
    def tolerance(self) -> float:
        """The largest bound, relative to the scale of its element, of those that mean something."""
        return float(np.max(self.relative, where=self.relative <= MAX_BOUND, initial=0.0))


class Reference:
    """A function in float64 that gives, beside what each parameter that is written should hold, how far off that may be.

    Raises NoBound for a program that cannot be followed, as one of threads of a GPU.
    """

    def __init__(self, func: PrimFunc):
        self._func, self._carried = func, _Carried(func)
        fast = work(func) > MANY
        self._kernel = build(by_rows(self._carried.func, LANES) if fast else self._carried.func, "llvm" if fast else ONE_THREAD)

    def __call__(self, arrays: Sequence) -> dict[int, Expected]:
        """The results, by position, of a call with these arguments, which are left as they are."""
        found: dict[int, tuple[np.ndarray, ...]] = {}
        given: list = []
        for i, (p, array) in enumerate(zip(self._func.params, arrays, strict=True)):
            if p.name not in self._carried.stored:
                given.append(array)
                continue
            kept = self._carried.buffers.get(p.name, (p,))
            value = to_float(array, p.dtype) if dtypes.is_float(p.dtype) else np.array(array)
            found[i] = (value, *(np.zeros(array.shape) for _ in kept[1:]))
            given += found[i]
        self._kernel(*given)
        return {i: self._expected(self._func.params[i].dtype, *kept) for i, kept in found.items()}

    def _expected(self, dtype: str, value: np.ndarray, *kept: np.ndarray) -> Expected:
        error = kept[0] if kept else np.zeros(value.shape)
        if len(kept) > 1:
            _, size, terms = kept
            rounded = (error != 0) | (size > dtypes.exact_integers(dtype))
            with np.errstate(invalid="ignore"):
                error = np.where(np.isfinite(value), error + rounded * unit(dtype) * size * terms, 0.0)
        slack = HALF_SLACK if dtypes.is_half(dtype) else SLACK
        return Expected(value, slack * np.where(np.isnan(error), math.inf, error))


def work(func: PrimFunc) -> int:
    """The number of points of the largest nest of loops, as far as their extents are known."""
    points = [math.prod(as_int(loop.extent) for loop in loops_to(func.body, b.name)) for b in blocks(func.body) if b.iters]
    return max(points, default=0)


def by_rows(func: PrimFunc, lanes: int = 0) -> PrimFunc:
    """A function whose reductions lie outside of the last spatial loop, where that walks along rows of what is read: each sum is
    made in the order that it had, but of many elements at once. With `lanes`, of so many, and by all threads."""
    schedule = Schedule(func)
    for block in blocks(func.body):
        spatial, reduced = ([it for it in block.iters if it.axis is axis] for axis in (Axis.SPATIAL, Axis.REDUCE))
        rows = {name for load in loads(block.body) if load.indices for name in variables(load.indices[-1])}
        if spatial and reduced and spatial[-1].var.name in rows - {it.var.name for it in reduced}:
            with suppress(ScheduleError):
                schedule.reorder(*(str(it.binding) for it in (*spatial[:-1], *reduced, spatial[-1])))
        elif reduced:
            continue
        if lanes and spatial:
            with suppress(ScheduleError):
                schedule.vectorize(schedule.split(str(spatial[-1].binding), [None, lanes])[1])
            with suppress(ScheduleError):
                schedule.parallel(schedule.get_loops(block.name)[0])
    return schedule.func


def scale_of(expected: np.ndarray, least: float = 0.0) -> np.ndarray:
    """The size that errors are measured against where nothing better is known: max(|expected|, rms(expected), least), float64."""
    finite = expected[np.isfinite(expected)]
    rms = math.sqrt(float(np.mean(np.square(finite)))) if finite.size else 0.0
    return np.maximum(np.abs(expected), max(rms, least))


def to_float(array: np.ndarray, dtype: str) -> np.ndarray:
    """An array of storage of `dtype` as float64."""
    if dtype == "bfloat16":
        array = np.asarray(array.view("uint16").astype("uint32") << 16).view("float32")
    return np.array(array, WIDE)


def unit(dtype: str) -> float:
    """The unit roundoff of a float: the most by which rounding to nearest changes a number, relative to it."""
    return dtypes.TABLE[dtype].eps / 2


Pair = tuple[Expr, Expr | None]  # a value, and how far it may be off; of a bool, whether it may be the other one


@dataclass
class _Carried:
    """The function that carries errors: `func`, with these for each buffer that is stored, in `buffers`: its values in float64,
    their errors, and of a sum the sum of its terms' magnitudes and the number of the terms that are not 0."""

    original: PrimFunc
    func: PrimFunc = field(init=False)
    buffers: dict[str, tuple[Buffer, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        func = self.original
        self.stored = {s.buffer.name for s in stores(func.body)}
        self._taken = names(func)
        self._lets: list[tuple[Var, Expr]] = []
        self._known: dict[str, Pair] = {}  # of variables that are bound to what may err
        self._meaning: dict[str, Expr] = {}  # of them
        self._tf32 = False
        lets = {n.var.name: n.value for n in walk(func.body) if isinstance(n, Let)}
        sums = {t.buffer.name for t in stores(func.body) if _term(t, lets.get(getattr(t.value, "name", ""), t.value))}
        for name in self._erring(func):
            b = next(s.buffer for s in stores(func.body) if s.buffer.name == name)
            of_floats = dtypes.is_float(b.dtype)
            kept = [b.with_(dtype=WIDE) if of_floats else b, b.with_(name=self._fresh(f"{name}_error"), dtype=WIDE)]
            if of_floats and name in sums:
                kept += [b.with_(name=self._fresh(f"{name}_{what}"), dtype=WIDE) for what in ("size", "terms")]
            self.buffers[name] = tuple(kept)
        self.func = PrimFunc(
            f"{func.name}_errors",
            tuple(b for p in func.params for b in (self._kept(p) if isinstance(p, Buffer) else (p,))),
            self.statement(func.body),
            tuple(b for a in func.allocs for b in self._kept(a)),
        )

    def _fresh(self, name: str) -> str:
        while name in self._taken:
            name += "_"
        self._taken.add(name)
        return name

    def _kept(self, buffer: Buffer) -> tuple[Buffer, ...]:
        return self.buffers.get(buffer.name, (buffer,))

    def _erring(self, func: PrimFunc) -> list[str]:
        """The buffers that hold what may err: floats that are stored, and what is computed of them."""
        found = {s.buffer.name for s in stores(func.body) if dtypes.is_float(s.buffer.dtype)}
        before = -1
        while len(found) > before:
            before = len(found)
            lets = {n.var.name for n in walk(func.body) if isinstance(n, Let) and _computed(n.value, found, set())}
            found |= {s.buffer.name for s in stores(func.body) if _computed(s, found, lets)}
        return [b for b in dict.fromkeys(s.buffer.name for s in stores(func.body)) if b in found]

    # --- statements ----------------------------------------------------------------------------------------------------

    def statement(self, s: Stmt) -> Stmt:
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
                    allocs=tuple(b for a in allocs for b in self._kept(a)),
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
                self._known[var.name], self._meaning[var.name] = pair if own is None else (ZERO, None), value
                if own is not None:
                    self._known[f"{var.name}+"] = pair
                return self._wrapped(self.statement(body), lets)
            case Allocate(buffer, body):
                made = self.statement(body)
                for b in reversed(self._kept(buffer)):
                    made = Allocate(b, made)
                return made
            case Evaluate():
                return s
            case _ if hasattr(s, "stmts"):
                return seq(*map(self.statement, s.stmts))
        raise NoBound(f"a statement of {type(s).__name__} is not followed")

    def _wrapped(self, s: Stmt, lets: Sequence[tuple[Var, Expr]]) -> Stmt:
        for var, value in reversed(lets):
            s = Let(var, value, s)
        return s

    def _if(self, condition: Expr, then: Stmt, orelse: Stmt | None) -> Stmt:
        value, unsure = self._value(condition)
        lets, self._lets = self._lets, []
        branches = [None if s is None else self.statement(s) for s in (then, orelse)]
        made: Stmt = If(value, *branches)  # type: ignore[arg-type]
        if unsure is not None:
            lost = [self._lose(s.buffer) for b in (then, orelse) if b is not None for s in stores(b)]
            made = seq(made, If(unsure, seq(*lost)))
        return self._wrapped(made, lets)

    def _lose(self, buffer: Buffer) -> Stmt:
        """All elements of a buffer may be anything."""
        loops = [(Var(self._fresh("lost")), extent) for extent in buffer.shape]
        return nest(loops, Store(self._kept(buffer)[1], tuple(v for v, _ in loops), INFINITE))

    def _store(self, s: Store) -> Stmt:
        places, unsure = self._indices(s.indices, None)
        kept = self._kept(s.buffer)
        meaning = self._meaning.get(s.value.name, s.value) if isinstance(s.value, Var) else s.value
        term = _term(s, meaning) if len(kept) > 2 else None
        results: list[Expr]
        if term is not None:
            sign, t = term
            v, e = self._known[f"{s.value.name}+"] if isinstance(s.value, Var) else self._value(t)
            old, off, size, count = (self._let(Load(b, places)) for b in kept)
            exact = Binary("==", v, Call("nearbyint", (v,), WIDE))
            if e is not None:
                exact = Binary("and", exact, e <= 0.0)
            v = self._let(v)
            size = self._let(Binary("max", size, _abs(old)) + _abs(v))
            u = unit(s.buffer.dtype)
            small = self._let(_abs(v) <= size * u)
            part = self._finite(v, Select(exact, ZERO, _abs(v) * Select(small, Const(1.0, WIDE), Const(u, WIDE))))
            more = part if e is None else part + e
            results = [Binary(sign, old, v), off + more, size, count + Select(small, ZERO, Const(1.0, WIDE))]
        else:
            v, e = self._value(s.value)
            if e is not None and v.dtype == "bool":
                e = Select(e, Const(1.0, WIDE), ZERO)
            results = [v, ZERO if e is None else e, ZERO, ZERO][: len(kept)]
        results = [self._let(r) for r in results]
        made = seq(*(Store(b, places, r) for b, r in zip(kept, results, strict=True)))
        if unsure is not None:
            made = seq(made, If(unsure, self._lose(s.buffer)))
        lets, self._lets = self._lets, []
        return self._wrapped(made, lets)

    # --- values --------------------------------------------------------------------------------------------------------

    def _let(self, e: Expr) -> Expr:
        if isinstance(e, (Const, Var)):
            return e
        var = Var(self._fresh(f"x{len(self._taken)}"), e.dtype)
        self._lets.append((var, e))
        return var

    def _plain(self, e: Expr) -> bool:
        """An expression of integers alone, none of which may err."""
        return not any(
            dtypes.is_float(n.dtype) or (isinstance(n, Load) and n.buffer.name in self.buffers)
            or (isinstance(n, Var) and n.name in self._known)
            for n in walk(e) if isinstance(n, Expr)
        )  # fmt: skip

    def _indices(self, indices: tuple[Expr, ...], guard: Expr | None) -> tuple[tuple[Expr, ...], Expr | None]:
        """Indices as they are used, and whether one may be another."""
        made, unsure = [], None
        for i in indices:
            v, e = (i, None) if self._plain(i) else self._value(i, guard)
            made.append(v)
            unsure = _or(unsure, None if e is None else _not(e <= 0.0))
        return tuple(made), unsure

    def _value(self, e: Expr, guard: Expr | None = None) -> Pair:
        """An expression in float64, or as its integers, and its error, None for none at all; in what is read only where `guard`
        holds, nothing is read elsewhere."""
        if isinstance(e, Var) and e.name in self._known:
            return self._known[e.name]
        if not dtypes.is_float(e.dtype) and self._plain(e):
            if guard is not None and any(isinstance(n, Load) or (isinstance(n, Binary) and n.op in "//%") for n in walk(e)):
                e = Select(guard, e, Const(False if e.dtype == "bool" else 0, e.dtype), lazy=True)
            return self._let(e), None
        match e:
            case Const(value, dtype):
                return Const(_nearest(value, dtype), WIDE), None
            case Var(_, dtype):
                return self._let(Cast(WIDE, e)), None
            case Load():
                pair = self._load(e, guard)
            case Cast(dtype, value):
                pair = self._cast(*self._value(value, guard), value.dtype, dtype)
            case Unary("neg", a):
                v, error = self._value(a, guard)
                pair = Unary("neg", v), error
            case Unary("not", a):
                v, error = self._value(a, guard)
                pair = _not(v), error
            case Binary(op, a, b) if op in LOGICAL:
                (x, unsure), (y, other) = self._value(a, guard), self._value(b, guard)
                pair = Binary(op, x, y), _or(unsure, other)
            case Binary(op, a, b) if op in COMPARISONS:
                pair = self._compare(op, self._value(a, guard), self._value(b, guard), same=a == b)
            case Binary(op, a, b):
                pair = self._binary(op, self._value(a, guard), self._value(b, guard), e.dtype)
            case Select(condition, a, b, lazy):
                pair = self._select(self._value(condition, guard), a, b, lazy, guard)
            case Call(op, args, dtype):
                pair = self._call(op, [self._value(a, guard) for a in args], dtype)
            case _:
                raise NoBound(f"an expression of {type(e).__name__} is not followed")
        v, error = pair
        return self._let(v), None if error is None else self._let(error)

    def _load(self, e: Load, guard: Expr | None) -> Pair:
        places, unsure = self._indices(e.indices, guard)

        def read(b: Buffer) -> Expr:
            load = Load(b, places)
            zero = Const(False if b.dtype == "bool" else (dtypes.TABLE[b.dtype].kind == "float" and 0.0) or 0, b.dtype)
            return self._let(load if guard is None else Select(guard, load, zero, lazy=True))

        name, dtype = e.buffer.name, e.buffer.dtype
        error: Expr | None = None
        if name not in self.buffers:
            v = read(e.buffer)
            v = self._let(Cast(WIDE, v)) if dtypes.is_float(dtype) else v
        else:
            v, error, *magnitude = map(read, self.buffers[name])
            if magnitude:
                size, count = magnitude
                few = Binary("and", error <= 0.0, size <= float(dtypes.exact_integers(dtype)))
                error = self._finite(v, Select(few, ZERO, error + count * size * unit(dtype)))
        if self._tf32 and dtype == "float32":
            error = self._finite(v, _abs(v) * TF32_EPS if error is None else error + _abs(v) * TF32_EPS)
        if unsure is not None:
            error = Select(unsure, INFINITE, ZERO if error is None else error)
        if dtype == "bool" and error is not None:
            error = _not(error <= 0.0)
        return v, error

    def _finite(self, v: Expr, error: Expr) -> Expr:
        """The error of a value: 0 where that is infinite or NaN, which must be met."""
        return Select(_abs(v) <= dtypes.TABLE[WIDE].largest, error, ZERO)

    def _rounded(self, v: Expr, e: Expr | None, dtype: str, units: float = 1.0) -> Pair:
        """A value that is rounded to a type, to so many units: nothing where it is exact and its type holds it."""
        u = units * unit(dtype)
        v = self._let(v)
        size = self._let(_abs(v))
        if dtype == WIDE:
            return v, self._finite(v, size * u if e is None else e + size * u)
        t = dtypes.TABLE[dtype]
        smallest = t.tiny * (t.eps if dtype == "float16" else 1.0)  # others may be flushed to zero
        off = size * u + smallest if e is None else e + (size + e) * u + smallest
        held = Binary("==", Cast(WIDE, Cast(dtype, v)), v)
        off = self._let(Select(held if e is None else Binary("and", held, e <= 0.0), ZERO, off))
        over = t.largest * (1 + t.eps / 4)
        least, most = (size, size) if e is None else (size - e, self._let(size + e))
        infinite = self._let(least >= over)
        off = Select(infinite, ZERO, Select(most < over, off, INFINITE))
        limited = Select(infinite, Select(v > 0.0, INFINITE, Const(-math.inf, WIDE)), v)
        return limited, Select(Binary("==", v, v), off, ZERO)

    def _cast(self, v: Expr, e: Expr | None, source: str, dtype: str) -> Pair:
        if source == dtype:
            return v, e
        if dtype == "bool":
            unsure = None if e is None else Binary("and", _not(e <= 0.0), _not(_abs(_float(v)) > e))
            return Cast("bool", v), unsure
        if source == "bool" and e is not None:
            e = Select(e, Const(1.0, WIDE), ZERO)
        if dtypes.is_float(dtype):
            v = v if dtypes.is_float(source) else self._let(Cast(WIDE, v))
            return (v, e) if dtypes.holds(dtype, source) else self._rounded(v, e, dtype)
        if e is None:
            return Cast(dtype, v), None
        low, high = (Call("trunc", (Binary(op, _float(v), e),), WIDE) for op in "-+")
        whole = Call("trunc", (_float(v),), WIDE)
        return Cast(dtype, v), self._counted(_float(v), Binary("max", high - whole, whole - low), e, dtype)

    def _counted(self, v: Expr, moved: Expr, e: Expr, dtype: str) -> Expr:
        """How far an integer is off that `moved` so far: infinite where it may leave its type."""
        low, high = (Const(float(x), WIDE) for x in dtypes.limits(dtype))
        inside = Binary("and", v - e >= low, v + e <= high)
        return Select(e <= 0.0, ZERO, Select(inside, moved, INFINITE))

    def _compare(self, op: str, a: Pair, b: Pair, same: bool) -> Pair:
        (x, ex), (y, ey) = a, b
        e = _add(ex, ey)
        if e is None or same:
            return Binary(op, x, y), None
        if x.dtype == "bool":
            return Binary(op, x, y), _or(ex, ey)
        e = self._let(e)
        return Binary(op, x, y), Binary("and", _not(e <= 0.0), _not(_abs(_float(x) - _float(y)) > e))

    def _binary(self, op: str, a: Pair, b: Pair, dtype: str) -> Pair:
        (x, ex), (y, ey) = a, b
        if dtype == "bool":
            return Binary(op, x, y), _or(ex, ey)
        v = self._let(Binary(op, x, y))
        if op in ("min", "max"):
            if ex is None and ey is None:
                return v, None
            low, high = (
                Binary(op, *(_float(n) if e is None else Binary(sign, _float(n), e) for n, e in (a, b))) for sign in "-+"
            )
            return v, self._finite(_float(v), Binary("max", high - _float(v), _float(v) - low))
        of_floats = dtypes.is_float(dtype)
        e: Expr | None
        if op in ("+", "-"):
            e = _add(ex, ey)
        elif op == "*":
            e = _add(_times(ex, y), _times(ey, x))
            e = e if ex is None or ey is None else _add(e, ex * ey)
        elif op == "/" and ey is None:
            e = None if ex is None else ex / _abs(y)
        elif op == "/" and ey is not None:
            top = _abs(v) * ey if ex is None else ex + _abs(v) * ey
            e = Select(_abs(y) > ey, top / (_abs(y) - ey), Select(_sum((ex, ey)) <= 0.0, ZERO, INFINITE))
        elif of_floats:
            e = self._moved(lambda p, q: Binary(op, p, q), v, [a, b])
            v, e = self._rounded(v, e, dtype, 3.0)
            return v, e if op == "//" else e + _abs(y) * (2 * unit(dtype))  # type: ignore[operator]
        else:
            e = None if ex is None and ey is None else Select(_sum((ex, ey)) <= 0.0, ZERO, INFINITE)
        if not of_floats:
            return v, None if e is None else self._counted(
                Binary(op, _float(x), _float(y)) if op in "+-*" else _float(v), e, e, dtype
            )
        return self._rounded(v, None if e is None else self._let(e), dtype, DIVISION_ROUNDINGS if op == "/" else 1.0)

    def _select(self, condition: Pair, a: Expr, b: Expr, lazy: bool, guard: Expr | None) -> Pair:
        c, unsure = condition
        guards = guard, guard
        if lazy:
            either = [self._let(_or(unsure, x)) for x in (c, _not(c))]  # type: ignore[arg-type]
            guards = tuple(self._let(g if guard is None else Binary("and", guard, g)) for g in either)  # type: ignore[assignment]
        (x, ex), (y, ey) = (self._value(branch, g) for branch, g in zip((a, b), guards, strict=True))
        v = Select(c, x, y)
        none = FALSE if x.dtype == "bool" else ZERO
        e: Expr | None = None
        if ex is not None or ey is not None:
            e = Select(c, none if ex is None else ex, none if ey is None else ey)
        if unsure is None:
            return v, e
        if x.dtype == "bool":
            return v, _or(e, Binary("and", unsure, Binary("!=", x, y)))
        both = [z for z in (ex, ey) if z is not None]
        most = ZERO if not both else both[0] if len(both) == 1 else Binary("max", *both)
        apart = _abs(_float(x) - _float(y))
        return v, Select(unsure, Select(Binary("==", _float(x), _float(y)), most, apart + most), ZERO if e is None else e)

    def _call(self, op: str, args: list[Pair], dtype: str) -> Pair:
        values, errors = [v for v, _ in args], [e for _, e in args if e is not None]
        if not dtypes.is_float(dtype):
            v = self._let(Call(op, tuple(values), dtype))
            if op == "abs" or not errors:
                return v, errors[0] if errors else None
            return v, Select(_sum(errors) <= 0.0, ZERO, INFINITE)
        v = self._let(Call(op, tuple(values), WIDE))
        moved = errors[0] if op == "abs" and errors else self._moved(lambda *x: Call(op, x, WIDE), v, args) if errors else None
        if op in ("sin", "cos") and moved is not None:
            moved = Binary("min", errors[0], Const(2.0, WIDE))
        if op in EXACT_FUNCTIONS:
            return v, moved
        ulps = INTRINSICS[op].ulps[dtype == WIDE]
        units = 1.0 + 2 * ulps * unit(dtypes.computed(dtype)) / unit(dtype)
        return self._rounded(v, moved, dtype, units)

    def _moved(self, f: Callable[..., Expr], v: Expr, args: Sequence[Pair]) -> Expr | None:
        """How far from `v` a function is at the ends of the intervals of its arguments, in each of which it is monotone."""
        corners: list[list[Expr]] = [[]]
        for x, e in args:
            ends = [x] if e is None else [self._let(x - e), self._let(x + e)]
            corners = [[*c, end] for c in corners for end in ends]
        if len(corners) == 1:
            return None
        far: Expr = ZERO
        for c in corners:
            off = self._let(_abs(f(*c) - v))
            far = self._let(Binary("max", far, Select(Binary("==", off, off), off, INFINITE)))
        return self._finite(v, Select(_sum(e for _, e in args) <= 0.0, ZERO, far))


def _computed(node: Stmt | Expr, erring: set[str], lets: set[str]) -> bool:
    """Whether a store, or a value, is of floats, or of what may err."""
    parts = (node.value, *node.indices) if isinstance(node, Store) else (node,)
    return any(
        (isinstance(n, Load) and n.buffer.name in erring) or (isinstance(n, Var) and n.name in lets)
        or (isinstance(n, Expr) and dtypes.is_float(n.dtype) and not isinstance(n, (Load, Const)))
        for part in parts for n in walk(part)
    )  # fmt: skip


def _term(s: Store, value: Expr) -> tuple[str, Expr] | None:
    """The sign and the term that a store adds to what it overwrites; None where it does something else."""
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
    """The term of a sum that a variable stands for, which is stored in what it is a sum of."""
    for s in stores(body):
        if s.value == var and dtypes.is_float(s.buffer.dtype) and (found := _term(s, value)) is not None:
            return found[1]
    return None


def _nearest(value: float, dtype: str) -> float:
    """A literal as its type holds it."""
    if dtype == "bfloat16":
        bits = int(np.float32(value).view(np.uint32))
        return float(np.uint32(bits + 0x7FFF + ((bits >> 16) & 1) & 0xFFFF0000).view(np.float32)) if value == value else value
    with np.errstate(over="ignore"):
        return float(np.dtype(dtypes.storage(dtype)).type(value))


def _abs(e: Expr) -> Expr:
    return Const(abs(e.value), e.dtype) if isinstance(e, Const) else Call("abs", (e,), e.dtype)


def _float(e: Expr) -> Expr:
    return e if e.dtype == WIDE else Cast(WIDE, e)


def _not(e: Expr) -> Expr:
    return Unary("not", e)


def _or(a: Expr | None, b: Expr | None) -> Expr | None:
    return b if a is None else a if b is None else Binary("or", a, b)


def _add(a: Expr | None, b: Expr | None) -> Expr | None:
    return b if a is None else a if b is None else a + b


def _sum(errors: Iterable[Expr | None]) -> Expr:
    return sum((e for e in errors if e is not None), ZERO)


def _times(error: Expr | None, factor: Expr) -> Expr | None:
    return None if error is None else error * _abs(_float(factor))
