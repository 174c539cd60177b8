"""Whether a function is well formed, and what could not be proved about it.

`verify(func)` returns a Report; `check(func)` raises VerifyError where it holds errors. Checked are: names (unique, defined
before use, visible), ranks and dtypes, bindings within their domains, accesses within their buffers, axes that are what they are
called, reductions that begin with their init, loops that run in any order only where the order does not matter, and that
buffers are written before they are read.

A finding is an `error` where the function is wrong, with two concrete iterations or the values of the variables as a witness; it
is `unproved` where neither a proof was found nor a counterexample. Proofs are made from affine forms; where these do not suffice
and the iterations are few, all of them are tried; where they are many, some.

A temporary that only one parallel loop uses counts as private to each iteration, which must then write what it reads of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import assert_never

import numpy as np

from . import dtypes
from .affine import Interval, Polynomial, add, constant, polynomial, split_terms
from .affine import bounds as polynomial_bounds
from .analysis.regions import accessed, clip
from .ir import (
    ARITHMETIC,
    COMPARISONS,
    INTRINSICS,
    LOGICAL,
    TRUE,
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
    Region,
    Select,
    Seq,
    Stmt,
    Store,
    Unary,
    Var,
    conjuncts,
)
from .simplify import bounds, prove, simplify
from .traverse import children, stores, substatements, substitute, variables, walk

__all__ = ["Finding", "Report", "VerifyError", "check", "verify"]

POINTS = 100_000  # iterations that are tried where no proof is found
_REST = "<rest>"  # the part of an index that belongs to no axis under question; not an identifier, so it names no variable


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong ("error") or could not be shown to be right ("unproved"), and the statement it is about."""

    severity: str
    message: str
    stmt: Stmt | None = None

    def __str__(self) -> str:
        return f"{self.severity}: {self.message}"


@dataclass(frozen=True)
class Report:
    """What `verify` found, in program order within each check."""

    func: PrimFunc
    findings: tuple[Finding, ...]

    @property
    def errors(self) -> tuple[Finding, ...]:
        return tuple(f for f in self.findings if f.severity == "error")

    @property
    def unproved(self) -> tuple[Finding, ...]:
        return tuple(f for f in self.findings if f.severity == "unproved")

    @property
    def ok(self) -> bool:
        """Whether there are no errors; there may be unproved findings."""
        return not self.errors

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.findings)

    def __str__(self) -> str:
        if not self.findings:
            return f"{self.func.name}: well formed"
        from .script.printer import printed

        out = printed(self.func)
        width = len(str(len(out.lines)))
        parts = [f"{self.func.name}: {len(self.errors)} error(s), {len(self.unproved)} unproved"]
        for f in self.findings:
            parts.append(str(f))
            span = out.spans.get(id(f.stmt))
            if span is not None:
                line, start, end = span
                parts.append(f"    {line + 1:>{width}} | {out.lines[line]}")
                parts.append(f"    {'':>{width}} | {' ' * start}{'^' * (end - start)}")
        return "\n".join(parts)


class VerifyError(Exception):
    """A function is not well formed; `report` holds the findings."""

    def __init__(self, report: Report):
        super().__init__(str(report))
        self.report = report

    def __reduce__(self):
        return VerifyError, (self.report,)


def verify(func: PrimFunc) -> Report:
    """Check that `func` is well formed; see the module's description for what that means."""
    findings = [*_names(func), *_Types(func).findings]
    if any(f.severity == "error" for f in findings):
        return Report(func, tuple(findings))  # the other checks assume names and dtypes that make sense
    findings += _Bounds(func).findings
    findings += _axes(func)
    findings += _repeated(func)
    findings += _started(func)
    findings += _races(func)
    findings += _initialised(func)
    return Report(func, tuple(dict.fromkeys(findings)))


def check(func: PrimFunc) -> None:
    """Raise VerifyError if `func` is not well formed."""
    report = verify(func)
    if not report.ok:
        raise VerifyError(report)


# --- names -------------------------------------------------------------------------------------------------------------


def _names(func: PrimFunc) -> Iterator[Finding]:
    """Each name stands for one thing; loops and blocks, which are handles, share one space of names with nothing else."""
    seen: dict[str, str] = {}

    def take(name: str, what: str, stmt: Stmt | None = None) -> Iterator[Finding]:
        if not name.isidentifier():
            yield Finding("error", f"the {what} `{name}` is not named by an identifier", stmt)
        if name in seen:
            other = f"two {what}s are" if seen[name] == what else f"a {seen[name]} and a {what} are both"
            yield Finding("error", f"{other} called `{name}`", stmt)
        seen.setdefault(name, what)

    for p in func.params:
        yield from take(p.name, "buffer" if isinstance(p, Buffer) else "size")
    for b in func.allocs:
        yield from take(b.name, "buffer")
    iters: dict[str, Stmt] = {}
    block_names: dict[str, Stmt] = {}
    for n in walk(func.body):
        match n:
            case For():
                yield from take(n.name, "loop", n)
            case Block():
                if n.name in block_names:
                    yield Finding("error", f"two blocks are called `{n.name}`", n)
                block_names[n.name] = n
                for b in n.allocs:
                    yield from take(b.name, "buffer", n)
                own = [it.var.name for it in n.iters]
                for name in own:
                    if own.count(name) > 1:
                        yield Finding("error", f"block `{n.name}` has two iteration variables called `{name}`", n)
                    iters.setdefault(name, n)
            case Allocate(buffer):
                yield from take(buffer.name, "buffer", n)
    for name, stmt in block_names.items():
        if seen.get(name) == "loop":
            yield Finding("error", f"a loop and a block are both called `{name}`", stmt)
    for name, stmt in iters.items():
        if name in seen:
            yield Finding("error", f"a {seen[name]} and an iteration variable are both called `{name}`", stmt)


# --- scopes and dtypes -------------------------------------------------------------------------------------------------


class _Types:
    """Every variable and buffer is visible where it is used; ranks and dtypes agree."""

    def __init__(self, func: PrimFunc):
        self.findings: list[Finding] = []
        self._stmt: Stmt | None = None
        self._hidden: dict[str, str] = {}  # names bound outside the block, and the name of that block
        self._iters: set[str] = set()  # iteration variables of the blocks around
        scope = {p.name: p.dtype for p in func.params if isinstance(p, Var)}
        self._sizes = dict(scope)
        buffers: dict[str, Buffer] = {}
        for p in func.params:
            if isinstance(p, Buffer):
                buffers[p.name] = p
                self._declared(p, self._sizes)
            elif not dtypes.is_int(p.dtype):
                self._error(f"the scalar parameter `{p.name}` must be an integer, got {p.dtype}")
        for b in func.allocs:
            buffers[b.name] = b
            self._declared(b, self._sizes)
        self._visit(func.body, scope, buffers)

    def _error(self, message: str) -> None:
        self.findings.append(Finding("error", message, self._stmt))

    def _declared(self, b: Buffer, scope: Mapping[str, str]) -> None:
        if b.dtype not in dtypes.TABLE:
            self._error(f"buffer `{b.name}` has the unknown dtype {b.dtype!r}")
        for dim in b.shape:
            self._integer(dim, f"a dimension of `{b.name}`", scope, {})
            if isinstance(dim, Const) and dim.value < 1:
                self._error(f"buffer `{b.name}` has a dimension of {dim.value}; extents must be at least 1")

    def _integer(self, e: Expr, what: str, scope: Mapping[str, str], buffers: Mapping[str, Buffer]) -> None:
        dtype = self._expr(e, scope, buffers)
        if dtype is not None and not dtypes.is_int(dtype):
            self._error(f"{what} must be an integer, got `{e}` of dtype {dtype}")

    def _condition(self, e: Expr, what: str, scope: Mapping[str, str], buffers: Mapping[str, Buffer]) -> None:
        dtype = self._expr(e, scope, buffers)
        if dtype is not None and dtype != "bool":
            self._error(f"{what} must be bool, got `{e}` of dtype {dtype}")

    def _bind(self, var: Var, scope: Mapping[str, str]) -> dict[str, str]:
        if var.name in scope:
            self._error(f"`{var.name}` is bound again where it is already visible")
        return {**scope, var.name: var.dtype}

    def _visit(self, s: Stmt, scope: dict[str, str], buffers: dict[str, Buffer]) -> None:
        outer, self._stmt = self._stmt, s
        match s:
            case Seq(stmts):
                for x in stmts:
                    self._visit(x, scope, buffers)
            case For(var, extent, body):
                self._integer(extent, f"the extent of loop `{s.name}`", scope, buffers)
                if not dtypes.is_int(var.dtype):
                    self._error(f"the loop variable `{s.name}` must be an integer, got {var.dtype}")
                if isinstance(extent, Const) and extent.value < 1:
                    self._error(f"loop `{s.name}` has extent {extent.value}; extents must be at least 1")
                if (s.kind is Kind.THREAD) != bool(s.thread):
                    self._error(f"loop `{s.name}` is {s.kind.value}, and its thread axis is {s.thread!r}")
                self._visit(body, self._bind(var, scope), buffers)
            case Block():
                self._block(s, scope, buffers)
            case Store(buffer, indices, value):
                self._element(buffer, indices, scope, buffers)
                dtype = self._expr(value, scope, buffers)
                if dtype is not None and dtype != buffer.dtype:
                    self._error(f"a value of dtype {dtype} is stored into `{buffer.name}`, which holds {buffer.dtype}")
            case If(condition, then, orelse):
                self._condition(condition, "a condition", scope, buffers)
                self._visit(then, scope, buffers)
                if orelse is not None:
                    self._visit(orelse, scope, buffers)
            case Let(var, value, body):
                dtype = self._expr(value, scope, buffers)
                if dtype is not None and dtype != var.dtype:
                    self._error(f"`{var.name}` of dtype {var.dtype} is bound to a value of dtype {dtype}")
                self._visit(body, self._bind(var, scope), buffers)
            case Allocate(buffer, body):
                self._declared(buffer, scope)
                self._visit(body, scope, {**buffers, buffer.name: buffer})
            case Evaluate(value):
                self._expr(value, scope, buffers)
            case _:
                assert_never(s)  # type: ignore[arg-type]
        self._stmt = outer

    def _block(self, b: Block, scope: dict[str, str], buffers: dict[str, Buffer]) -> None:
        inside = dict(self._sizes)
        enclosing = {name: dtype for name, dtype in scope.items() if name in self._iters}
        inside |= enclosing
        own: dict[str, str] = {}
        for it in b.iters:
            name = it.var.name
            self._integer(it.extent, f"the extent of `{name}`", self._sizes, buffers)
            self._integer(it.binding, f"the binding of `{name}`", scope, buffers)
            if not dtypes.is_int(it.var.dtype):
                self._error(f"the iteration variable `{name}` must be an integer, got {it.var.dtype}")
            if isinstance(it.extent, Const) and it.extent.value < 1:
                self._error(f"`{name}` has extent {it.extent.value}; extents must be at least 1")
            if name in scope:
                self._error(f"`{name}` is bound again where it is already visible")
            own[name] = it.var.dtype
        self._condition(b.predicate, "a predicate", scope, buffers)
        inside |= own
        for buffer in b.allocs:
            self._declared(buffer, inside)
            buffers = {**buffers, buffer.name: buffer}
        hidden, iters = self._hidden, self._iters
        self._hidden = {**hidden, **{name: b.name for name in scope if name not in inside}}
        self._iters = iters | set(own)
        for region in (*(b.reads or ()), *(b.writes or ())):
            self._region(b, region, inside, buffers)
        if b.init is not None:
            if not b.is_reduction:
                self._error(f"block `{b.name}` has an init, but no reduce axis")
            reduce = {it.var.name for it in b.iters if it.axis is Axis.REDUCE}
            used = sorted(variables(b.init) & reduce)
            if used:
                self._error(f"the init of block `{b.name}` depends on the reduce axis `{used[0]}`")
            self._visit(b.init, inside, buffers)
        self._visit(b.body, inside, buffers)
        self._hidden, self._iters = hidden, iters

    def _region(self, b: Block, region: Region, scope: dict[str, str], buffers: dict[str, Buffer]) -> None:
        if region.buffer.name not in buffers:
            self._error(
                f"block `{b.name}` states a region of `{region.buffer.name}`, "
                "which is neither a parameter nor allocated around it"
            )
        elif len(region.ranges) != len(region.buffer.shape):
            rank = len(region.buffer.shape)
            self._error(
                f"block `{b.name}` states {len(region.ranges)} range(s) of `{region.buffer.name}`, which has {rank} dimension(s)"
            )
        for r in region.ranges:
            for e in (r.min, r.extent):
                self._integer(e, f"a bound of the region of `{region.buffer.name}`", scope, buffers)

    def _element(
        self, buffer: Buffer, indices: tuple[Expr, ...], scope: Mapping[str, str], buffers: Mapping[str, Buffer]
    ) -> None:
        declared = buffers.get(buffer.name)
        if declared is None:
            self._error(f"the buffer `{buffer.name}` is neither a parameter nor allocated around its use")
        elif declared != buffer:
            self._error(f"`{buffer.name}` is used as {_described(buffer)}, but declared as {_described(declared)}")
        if len(indices) != len(buffer.shape):
            self._error(f"`{buffer.name}` has {len(buffer.shape)} dimension(s), but is indexed with {len(indices)}")
        for i in indices:
            self._integer(i, f"an index of `{buffer.name}`", scope, buffers)

    def _expr(self, e: Expr, scope: Mapping[str, str], buffers: Mapping[str, Buffer]) -> str | None:
        """The dtype of an expression that is well formed so far; None after an error was noted."""
        match e:
            case Const(value, dtype):
                return self._literal(e, value, dtype)
            case Var(name, dtype):
                if name not in scope:
                    block = self._hidden.get(name)
                    why = (
                        f"is not visible inside block `{block}`; bind an iteration variable to it"
                        if block
                        else "is not bound here"
                    )
                    self._error(f"`{name}` {why}")
                    return None
                if scope[name] != dtype:
                    self._error(f"`{name}` is used as {dtype}, but bound as {scope[name]}")
                    return None
                return dtype
            case Load(buffer, indices):
                self._element(buffer, indices, scope, buffers)
                return buffer.dtype
            case Cast(dtype, value):
                self._expr(value, scope, buffers)
                return self._known(dtype, e)
            case Select(c, t, f):
                self._condition(c, "a condition", scope, buffers)
                return self._same(e, self._expr(t, scope, buffers), self._expr(f, scope, buffers))
            case Call(op, args, dtype):
                return self._call(e, op, [self._expr(a, scope, buffers) for a in args], dtype)
            case Unary(op, a):
                found = self._expr(a, scope, buffers)
                if op not in ("neg", "not"):
                    self._error(f"unknown operator {op!r} in `{a}`")
                elif found is not None and (found == "bool") != (op == "not"):
                    self._error(f"`{op}` does not take {found}, in `{e}`")
                return found
            case Binary(op, a, b):
                return self._binary(e, op, self._expr(a, scope, buffers), self._expr(b, scope, buffers))
            case _:
                self._error(f"`{e}` ({type(e).__name__}) does not belong into a function")
                return None

    def _known(self, dtype: str, e: Expr) -> str | None:
        if dtype not in dtypes.TABLE:
            self._error(f"unknown dtype {dtype!r}")
            return None
        return dtype

    def _literal(self, e: Const, value, dtype: str) -> str | None:
        if self._known(dtype, e) is None:
            return None
        low, high = dtypes.limits(dtype)
        wanted = bool if dtype == "bool" else float if dtypes.is_float(dtype) else int
        if type(value) is not wanted or not (low <= value <= high or value != value):
            self._error(f"{value!r} is not a literal of dtype {dtype}")
        return dtype

    def _same(self, e: Expr, a: str | None, b: str | None) -> str | None:
        if a is not None and b is not None and a != b:
            self._error(f"operands of dtypes {a} and {b}, in `{e}`")
            return None
        return a or b

    def _call(self, e: Expr, op: str, found: list[str | None], dtype: str) -> str | None:
        if op not in INTRINSICS:
            self._error(f"unknown intrinsic {op!r}; known are {', '.join(INTRINSICS)}")
            return None
        if len(found) != (2 if op == "pow" else 1):
            self._error(f"`{op}` takes {2 if op == 'pow' else 1} argument(s), got {len(found)}, in `{e}`")
        for d in found:
            if d is not None and d != dtype:
                self._error(f"`{op}` of dtype {dtype} has an argument of dtype {d}, in `{e}`")
            elif d is not None and not dtypes.is_float(d) and not (op == "abs" and dtypes.is_int(d)):
                self._error(f"`{op}` takes floating values, got {d}, in `{e}`")
        return dtype

    def _binary(self, e: Expr, op: str, a: str | None, b: str | None) -> str | None:
        dtype = self._same(e, a, b)
        if op not in (*ARITHMETIC, *COMPARISONS, *LOGICAL):
            self._error(f"unknown operator {op!r}, in `{e}`")
            return None
        if dtype is not None:
            wanted = {
                "/": dtypes.is_float(dtype),
                "//": dtypes.is_int(dtype),
                "%": dtypes.is_int(dtype),
                "and": dtype == "bool",
                "or": dtype == "bool",
                "+": dtype != "bool",
                "-": dtype != "bool",
                "*": dtype != "bool",
            }
            if not wanted.get(op, True):
                self._error(f"`{op}` does not take {dtype}, in `{e}`")
        return "bool" if op in COMPARISONS or op in LOGICAL else dtype


def _described(b: Buffer) -> str:
    shape = ", ".join(str(d) for d in b.shape)
    return f"({shape}) {b.dtype} in {b.scope}"


# --- points: trying iterations one by one, all at once -----------------------------------------------------------------


class _Opaque(Exception):
    """An expression whose value is not known before the program runs."""


_EVALUATE: dict[str, Callable] = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
    "==": np.equal,
    "!=": np.not_equal,
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
    "and": np.logical_and,
    "or": np.logical_or,
}


def _evaluate(e: Expr, points: Mapping[str, np.ndarray]) -> np.ndarray:
    """The values of an index expression or condition at many points; _Opaque where it has loads, floats or unknown variables."""
    match e:
        case Const(value) if not dtypes.is_float(e.dtype):
            return np.asarray(value)
        case Var(name) if name in points:
            return points[name]
        case Binary("//" | "%" as op, a, b):
            x, y = _evaluate(a, points), _evaluate(b, points)
            if not np.all(y):
                raise _Opaque
            return x // y if op == "//" else x % y
        case Binary(op, a, b) if op in _EVALUATE:
            return _EVALUATE[op](_evaluate(a, points), _evaluate(b, points))
        case Unary("neg", a):
            return -_evaluate(a, points)
        case Unary("not", a):
            return np.logical_not(_evaluate(a, points))
        case Cast("int32" | "int64", value) if dtypes.is_int(value.dtype):
            return _evaluate(value, points)
        case Select(c, t, f):
            return np.where(_evaluate(c, points), _evaluate(t, points), _evaluate(f, points))
        case _:
            raise _Opaque


@dataclass(frozen=True)
class _Points:
    """Iterations: each variable's value in each of them. `whole` if these are all there are, `certain` if all really happen."""

    values: dict[str, np.ndarray]
    whole: bool
    certain: bool
    count: int

    def __len__(self) -> int:
        return self.count

    def at(self, n: int, names: Iterable[str]) -> str:
        """The variables at point `n`, as text."""
        return ", ".join(f"{name}={int(self.values[name][n])}" for name in names if name in self.values)


def _points(
    extents: Mapping[str, int | None], needed: set[str], conditions: Sequence[Expr], limit: int = POINTS
) -> _Points | None:
    """The iterations of the loops that `needed` and the conditions depend on, where the conditions hold; the first and the last
    of them if there are too many. None if a loop has no constant extent."""
    used = set(needed)
    for c in conditions:
        used |= variables(c)
    names = [n for n in extents if n in used]
    sizes = []
    for name in names:
        extent = extents[name]
        if extent is None:
            return None
        sizes.append(extent)
    full = list(sizes)
    while prod(sizes) > limit:
        largest = sizes.index(max(sizes))
        sizes[largest] = (sizes[largest] + 1) // 2
    count = prod(sizes)
    grid = np.indices(sizes, dtype=np.int64).reshape(len(sizes), count) if sizes else np.zeros((0, 1), np.int64)
    values = dict(zip(names, grid, strict=True))
    whole, certain = full == sizes, True
    if not whole:  # the last iterations too, where mistakes are most likely
        ends = {n: v + (f - s) for (n, v), f, s in zip(values.items(), full, sizes, strict=True)}
        values = {n: np.concatenate([values[n], ends[n]]) for n in values}
    keep = np.ones(len(next(iter(values.values()))) if values else 1, bool)
    for c in conditions:
        try:
            keep &= _evaluate(c, values)
        except _Opaque:
            certain = False
    return _Points({n: v[keep] for n, v in values.items()}, whole, certain, int(np.count_nonzero(keep)))


# --- accesses ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Access:
    """A load or store: its indices over the variables free around the statement and the loops inside it, under `conditions`."""

    stmt: Stmt
    buffer: Buffer
    indices: tuple[Expr, ...]
    is_store: bool
    loops: tuple[tuple[str, Expr], ...]  # the loops inside: name, extent
    conditions: tuple[Expr, ...]
    guarded: bool = False  # executed only under some condition


def _negated(c: Expr) -> Expr:
    match c:
        case Binary("or", a, b):
            return Binary("and", _negated(a), _negated(b))
        case _:
            return Unary("not", c)


def _accesses(root: Stmt, *conditions: Expr) -> list[_Access]:
    """The accesses of a statement to buffers that are not allocated inside it, in the order in which they happen."""
    found: list[_Access] = []

    def expr(e: Expr, stmt: Stmt, env: _Env) -> None:
        match e:
            case Load(buffer, indices):
                for i in indices:
                    expr(i, stmt, env)
                note(stmt, buffer, indices, False, env)
            case Select(c, t, f, True):
                expr(c, stmt, env)
                condition = env.closed(c)
                expr(t, stmt, env.under(condition))
                expr(f, stmt, env.under(_negated(condition)))
            case _:
                for child in children(e):
                    if isinstance(child, Expr):
                        expr(child, stmt, env)

    def note(stmt: Stmt, buffer: Buffer, indices: tuple[Expr, ...], is_store: bool, env: _Env) -> None:
        if buffer.name not in env.private:
            closed = tuple(env.closed(i) for i in indices)
            found.append(_Access(stmt, buffer, closed, is_store, env.loops, env.conditions, env.guarded))

    def visit(s: Stmt, env: _Env) -> None:
        match s:
            case Seq(stmts):
                for x in stmts:
                    visit(x, env)
            case For(var, extent, body):
                expr(extent, s, env)
                visit(body, env.loop(var.name, env.closed(extent)))
            case Block():
                for it in s.iters:
                    expr(it.binding, s, env)
                expr(s.predicate, s, env)
                inner = env.under(*conjuncts(env.closed(s.predicate)))
                inner = inner.bound({it.var.name: env.closed(it.binding) for it in s.iters}).hiding(b.name for b in s.allocs)
                if s.init is not None:
                    first = [inner.closed(it.var).equal(0) for it in s.iters if it.axis is Axis.REDUCE]
                    visit(s.init, inner.under(*first, plain=True))
                visit(s.body, inner)
            case Store(buffer, indices, value):
                for i in indices:
                    expr(i, s, env)
                expr(value, s, env)
                note(s, buffer, indices, True, env)
            case If(condition, then, orelse):
                expr(condition, s, env)
                closed = env.closed(condition)
                visit(then, env.under(*conjuncts(closed)))
                if orelse is not None:
                    visit(orelse, env.under(_negated(closed)))
            case Let(var, value, body):
                expr(value, s, env)
                visit(body, env.bound({var.name: env.closed(value)}) if _is_index(value) else env)
            case Allocate(buffer, body):
                visit(body, env.hiding([buffer.name]))
            case Evaluate(value):
                expr(value, s, env)
            case _:
                assert_never(s)  # type: ignore[arg-type]

    visit(root, _Env(conditions=conditions))
    return found


def _is_index(e: Expr) -> bool:
    """Whether a let of this value may be seen through: an integer without loads."""
    return dtypes.is_int(e.dtype) and not any(isinstance(n, (Load, Call)) for n in walk(e))


@dataclass(frozen=True)
class _Env:
    """What is known on the way down from a statement to an access inside it."""

    bindings: dict[str, Expr] = field(default_factory=dict)
    loops: tuple[tuple[str, Expr], ...] = ()
    conditions: tuple[Expr, ...] = ()
    private: frozenset[str] = frozenset()
    guarded: bool = False

    def closed(self, e: Expr) -> Expr:
        return substitute(e, self.bindings)  # type: ignore[return-value]

    def bound(self, bindings: Mapping[str, Expr]) -> _Env:
        return _Env({**self.bindings, **bindings}, self.loops, self.conditions, self.private, self.guarded)

    def loop(self, name: str, extent: Expr) -> _Env:
        return _Env(self.bindings, (*self.loops, (name, extent)), self.conditions, self.private, self.guarded)

    def under(self, *conditions: Expr, plain: bool = False) -> _Env:
        """Under these conditions too; `plain` if some iteration is sure to satisfy them."""
        return _Env(
            self.bindings, self.loops, self.conditions + conditions, self.private, self.guarded or bool(conditions and not plain)
        )

    def hiding(self, buffers: Iterable[str]) -> _Env:
        return _Env(self.bindings, self.loops, self.conditions, self.private | set(buffers), self.guarded)


def _range_of(extent: Expr, ranges: Mapping[str, Interval]) -> Interval:
    _, high = bounds(extent, ranges)
    return 0, None if high is None else high - 1


def _constant_extents(loops: Iterable[tuple[str, Expr]]) -> dict[str, int | None]:
    return {name: extent.value if isinstance(extent, Const) else None for name, extent in loops}  # type: ignore[misc]


# --- bounds ------------------------------------------------------------------------------------------------------------


class _Bounds:
    """Bindings stay within their domains, and indices within their buffers."""

    def __init__(self, func: PrimFunc):
        self.findings: list[Finding] = []
        self._buffers = {b.name: b for b in func.buffers}
        ranges: dict[str, Interval] = {p.name: (1, None) for p in func.params if isinstance(p, Var)}
        self._visit(func.body, _Known(ranges))

    def _visit(self, s: Stmt, known: _Known) -> None:
        match s:
            case Seq(stmts):
                for x in stmts:
                    self._visit(x, known)
            case For(var, extent, body):
                self._expr(extent, s, known)
                self._visit(body, known.loop(var, extent))
            case Block():
                for it in s.iters:
                    self._expr(it.binding, s, known)
                self._expr(s.predicate, s, known)
                guarded = known.under(s.predicate)
                for it in s.iters:
                    what = f"`{it.var.name}` of block `{s.name}` = `{it.binding}`"
                    self._within(it.binding, it.extent, what, "its domain", s, guarded)
                inner = guarded.block(s)
                for part in (s.init, s.body):
                    if part is not None:
                        self._visit(part, inner)
            case Store(buffer, indices, value):
                self._element(buffer, indices, s, known)
                self._expr(value, s, known)
            case If(condition, then, orelse):
                self._expr(condition, s, known)
                self._visit(then, known.under(condition))
                if orelse is not None:
                    self._visit(orelse, known.under(_negated(condition)))
            case Let(var, value, body):
                self._expr(value, s, known)
                self._visit(body, known.let(var, value))
            case Allocate(_, body):
                self._visit(body, known)
            case Evaluate(value):
                self._expr(value, s, known)
            case _:
                assert_never(s)  # type: ignore[arg-type]

    def _expr(self, e: Expr, stmt: Stmt, known: _Known) -> None:
        match e:
            case Load(buffer, indices):
                self._element(buffer, indices, stmt, known)
            case Select(c, t, f, True):
                self._expr(c, stmt, known)
                self._expr(t, stmt, known.under(c))
                self._expr(f, stmt, known.under(_negated(c)))
            case _:
                for child in children(e):
                    if isinstance(child, Expr):
                        self._expr(child, stmt, known)

    def _element(self, buffer: Buffer, indices: tuple[Expr, ...], stmt: Stmt, known: _Known) -> None:
        for dim, (index, extent) in enumerate(zip(indices, buffer.shape, strict=True)):
            self._expr(index, stmt, known)
            what = f"index `{index}` of dimension {dim} of `{buffer.name}`"
            self._within(index, extent, what, f"0 .. {_last(extent)}", stmt, known)

    def _within(self, index: Expr, extent: Expr, what: str, domain: str, stmt: Stmt, known: _Known) -> None:
        goals = (Binary(">=", index, Const(0, index.dtype)), Binary("<", *_one_dtype(index, extent)))
        if all(known.proves(g) for g in goals):
            return
        # Over the loops: what the loops around reach may be less than the domains of the axes.
        closed, size = known.closed(index), known.closed(extent)
        points = _points(known.extents, variables(closed) | variables(size), known.conditions)
        if points is not None:
            try:
                values = np.broadcast_to(_evaluate(closed, points.values), len(points))
                wrong = (values < 0) | (values >= _evaluate(size, points.values))
            except _Opaque:
                wrong = None
            if wrong is not None:
                if np.any(wrong) and points.certain:
                    n = int(np.argmax(wrong))
                    where = points.at(n, points.values)
                    self.findings.append(
                        Finding("error", f"{what} is {values[n]}, outside {domain}{f', where {where}' if where else ''}", stmt)
                    )
                    return
                if points.whole and not np.any(wrong):
                    return
        self.findings.append(Finding("unproved", f"cannot prove that {what} is within {domain}", stmt))


def _one_dtype(a: Expr, b: Expr) -> tuple[Expr, Expr]:
    if a.dtype == b.dtype:
        return a, b
    if isinstance(b, Const):
        return a, Const(b.value, a.dtype)
    return Cast("int64", a), Cast("int64", b)


def _last(extent: Expr) -> str:
    return str(extent.value - 1) if isinstance(extent, Const) else f"{extent} - 1"


@dataclass(frozen=True)
class _Known:
    """What holds at a place of the program: ranges of the visible variables and facts about them; the same over loops alone."""

    ranges: dict[str, Interval]
    facts: tuple[Expr, ...] = ()
    bindings: dict[str, Expr] = field(default_factory=dict)  # iteration variables and lets, over loop variables
    extents: dict[str, int | None] = field(default_factory=dict)
    conditions: tuple[Expr, ...] = ()  # over loop variables

    def closed(self, e: Expr) -> Expr:
        return substitute(e, self.bindings)  # type: ignore[return-value]

    def proves(self, goal: Expr) -> bool:
        if prove(goal, self.ranges, self.facts):
            return True
        closed = self.closed(goal)
        return closed is not goal and prove(closed, self.ranges, self.conditions)

    def loop(self, var: Var, extent: Expr) -> _Known:
        ranges = {**self.ranges, var.name: _range_of(extent, self.ranges)}
        closed = simplify(self.closed(extent))
        size = closed.value if isinstance(closed, Const) else None
        result = _Known(ranges, self.facts, self.bindings, {**self.extents, var.name: size}, self.conditions)
        return result if isinstance(extent, Const) else result.under(Binary("<", *_one_dtype(var, extent)))

    def under(self, condition: Expr) -> _Known:
        if condition == TRUE:
            return self
        conditions = self.conditions + conjuncts(self.closed(condition))
        return _Known(self.ranges, self.facts + conjuncts(condition), self.bindings, self.extents, conditions)

    def let(self, var: Var, value: Expr) -> _Known:
        if not _is_index(value):
            return self
        ranges = {**self.ranges, var.name: bounds(value, self.ranges)}
        return _Known(ranges, self.facts, {**self.bindings, var.name: self.closed(value)}, self.extents, self.conditions)

    def block(self, b: Block) -> _Known:
        ranges = {**self.ranges, **{it.var.name: _range_of(it.extent, self.ranges) for it in b.iters}}
        facts = self.facts + tuple(
            Binary("<", *_one_dtype(it.var, it.extent)) for it in b.iters if not isinstance(it.extent, Const)
        )
        bindings = {**self.bindings, **{it.var.name: self.closed(it.binding) for it in b.iters}}
        return _Known(ranges, facts, bindings, self.extents, self.conditions)


# --- ownership: iterations that do not touch each other's elements -----------------------------------------------------


def determined(values: Sequence[Polynomial], known: set[str], ranges: Mapping[str, Interval]) -> set[str]:
    """The variables that follow from the values of some expressions and from the `known` variables.

    In `c a + r` with r in an interval narrower than |c|, the value determines a and r: the terms are peeled off by decreasing
    coefficient. From `x // c` and `x % c` follows x.
    """
    equations = list(values)
    atoms: set[Expr] = set()

    def is_known(monomial: tuple[Expr, ...]) -> bool:
        return all(a in atoms or variables(a) <= known for a in monomial)

    changed = True
    while changed:
        changed = False
        for p in equations:
            rest = {m: c for m, c in p.items() if m and not is_known(m)}
            while rest:
                top = max(rest, key=lambda m: abs(rest[m]))
                factor = abs(rest.pop(top))
                low, high = polynomial_bounds(rest, ranges)
                if len(top) != 1 or low is None or high is None or high - low >= factor:
                    break
                atoms.add(top[0])
                if isinstance(top[0], Var):
                    known = known | {top[0].name}
                changed = True
        for a in tuple(atoms):
            match a:
                case Binary("//" | "%" as op, x, Const(c)) if c > 0:
                    other = simplify(Binary("%" if op == "//" else "//", x, Const(c, x.dtype)), ranges)
                    p = polynomial(x)
                    if p not in equations and all(is_known(m) for m in polynomial(other)):
                        equations.append(p)
                        changed = True
    return known


def counts_once(block: Block, loops: Sequence[For]) -> bool:
    """Whether the loops among `loops` that drive the reduction of a block provably count each step at most once, the others
    standing still."""
    bindings = [it.binding for it in block.iters if it.axis is Axis.REDUCE]
    if all(isinstance(e, Var) for e in bindings):
        return True
    driving = set().union(*(variables(e) for e in bindings))
    mine = [x for x in loops if x.name in driving and x.extent != Const(1, x.extent.dtype)]
    names = {x.name for x in mine}
    ranges: dict[str, Interval] = {}
    for x in loops:
        ranges[x.name] = _range_of(x.extent, ranges)
    if names <= determined([polynomial(simplify(e, ranges)) for e in bindings], driving - names, ranges):
        return True
    points = _points(_constant_extents((x.name, x.extent) for x in mine), names, ())
    if points is None or not points.whole:
        return False
    still = {name: np.zeros(len(points), np.int64) for name in driving - names}
    values = [np.broadcast_to(_evaluate(e, {**still, **points.values}), len(points)) for e in bindings]
    return len(np.unique(np.stack(values, axis=1), axis=0)) == len(points)


def _owned(accesses: Sequence[_Access], owners: set[str], fixed: set[str], ranges: Mapping[str, Interval]) -> bool:
    """Whether iterations that differ in `owners` provably touch different elements; `fixed` variables are the same in both."""
    ranges = dict(ranges)
    indices = []
    for a in accesses:
        for name, extent in a.loops:
            ranges[name] = _range_of(extent, ranges)
        indices.append([polynomial(simplify(i, ranges)) for i in a.indices])
    if all(i == indices[0] for i in indices):
        return owners <= determined(indices[0], set(fixed), ranges)
    equations: list[Polynomial] = []
    for dim in range(len(indices[0])):
        parts = [_split(i[dim], owners | fixed, ranges) for i in indices]
        own = parts[0][0]
        if any(p[0] != own for p in parts):
            continue
        lows, highs = [p[1] for p in parts], [p[2] for p in parts]
        low = None if None in lows else min(lows)  # type: ignore[type-var]
        high = None if None in highs else max(highs)  # type: ignore[type-var]
        rest = Var(f"{_REST}{dim}")
        ranges[rest.name] = (low, high)
        equations.append(add(own, {(rest,): 1}))
    return owners <= determined(equations, set(fixed), ranges)


def _split(p: Polynomial, own: set[str], ranges: Mapping[str, Interval]) -> tuple[Polynomial, int | None, int | None]:
    """The terms over the variables `own` alone, and the bounds of all others, constants included."""
    names = set().union(*(variables(a) for m in p for a in m)) if p else set()
    other, mine = split_terms(p, names - own)
    offset = mine.pop((), 0)
    low, high = polynomial_bounds(add(other, constant(offset)), ranges)
    return mine, low, high


@dataclass(frozen=True)
class _Conflict:
    """Two iterations that touch one element, of which one writes; as text."""

    buffer: str
    element: str
    first: str
    second: str
    access: _Access

    def text(self, verb: str) -> str:
        return f"{self.first} writes {self.buffer}[{self.element}], and {self.second} {verb} it too"


@dataclass(frozen=True)
class _Disjoint:
    """All iterations were tried, and none touches what another writes."""


def _tried(
    accesses: Sequence[_Access], owners: Mapping[str, int | None], fixed: Mapping[str, int | None]
) -> _Conflict | _Disjoint | None:
    """What trying the iterations shows; None if that is nothing certain."""
    if any(d is None for d in _shape(accesses[0].buffer)):
        return None
    shape = [d or 0 for d in _shape(accesses[0].buffer)]
    keys, owner_rows, stores, who = [], [], [], []
    whole = certain = True
    for n, a in enumerate(accesses):
        needed = {*owners, *fixed}.union(*(variables(i) for i in a.indices))
        loops = {**fixed, **owners, **_constant_extents(a.loops)}
        points = _points(loops, needed, a.conditions, limit=max(POINTS // (2 * len(accesses)), 1))
        if points is None:
            return None
        element = np.zeros(len(points), np.int64)
        try:
            for i, extent in zip(a.indices, shape, strict=True):
                element = element * extent + _evaluate(i, points.values)
        except _Opaque:
            return None
        whole, certain = whole and points.whole, certain and points.certain
        keys.append(np.stack([*(points.values[f] for f in fixed), element], axis=1))
        owner_rows.append(np.stack([points.values[o] for o in owners], axis=1))
        stores.append(np.full(len(points), a.is_store))
        who.append(np.full(len(points), n))
    key, owner, store, access = (np.concatenate(x) for x in (keys, owner_rows, stores, who))
    if len(key) == 0:
        return _Disjoint() if whole else None
    group = np.unique(key, axis=0, return_inverse=True)[1].reshape(-1)
    rank = np.unique(owner, axis=0, return_inverse=True)[1].reshape(-1)
    order = np.lexsort((~store, group))  # stores first within each element
    group, rank = group[order], rank[order]
    first = np.searchsorted(group, group)  # the first row of each group
    bad = store[order][first] & (rank != rank[first])
    if not np.any(bad):
        return _Disjoint() if whole else None
    if not certain:
        return None
    later = int(np.argmax(bad))
    x, y = int(order[first[later]]), int(order[later])
    place = np.unravel_index(int(key[x, -1]), shape) if shape else ()

    def text(n: int) -> str:
        return ", ".join(f"{name}={int(v)}" for name, v in zip(owners, owner[n], strict=True))

    element_text = ", ".join(str(int(v)) for v in place) or "()"
    return _Conflict(accesses[0].buffer.name, element_text, text(x), text(y), accesses[int(access[y])])


def _shape(b: Buffer) -> list[int | None]:
    return [d.value if isinstance(d, Const) else None for d in b.shape]  # type: ignore[misc]


def _by_buffer(accesses: Iterable[_Access]) -> dict[str, list[_Access]]:
    """The accesses of each buffer that one of them writes."""
    groups: dict[str, list[_Access]] = {}
    for a in accesses:
        groups.setdefault(a.buffer.name, []).append(a)
    return {name: group for name, group in groups.items() if any(a.is_store for a in group)}


def _distinct(accesses: Sequence[_Access]) -> list[_Access]:
    """Without those that touch the same elements in the same iterations in the same way."""
    kept = {(a.indices, a.is_store, a.loops, a.conditions): a for a in reversed(accesses)}
    return list(reversed(kept.values()))


# --- axes --------------------------------------------------------------------------------------------------------------


def _axes(func: PrimFunc) -> Iterator[Finding]:
    """Iterations of a block that differ in a spatial axis touch nothing that one of them writes; reductions update."""
    sizes: dict[str, Interval] = {p.name: (1, None) for p in func.params if isinstance(p, Var)}

    def visit(s: Stmt, ranges: dict[str, Interval], extents: dict[str, int | None]) -> Iterator[Finding]:
        if isinstance(s, Block):
            inner = {**ranges, **{it.var.name: _range_of(it.extent, ranges) for it in s.iters}}
            own = _constant_extents((it.var.name, it.extent) for it in s.iters)
            yield from _block_axes(s, inner, extents, own)
            ranges, extents = inner, {**extents, **own}
        elif isinstance(s, For):
            ranges = {**ranges, s.name: _range_of(s.extent, ranges)}
            extents = {**extents, **_constant_extents([(s.name, s.extent)])}
        for child in children(s):
            if isinstance(child, Stmt):
                yield from visit(child, ranges, extents)

    yield from visit(func.body, sizes, dict.fromkeys(sizes))


def _block_axes(
    b: Block, ranges: dict[str, Interval], outer: dict[str, int | None], own: dict[str, int | None]
) -> Iterator[Finding]:
    spatial = [it.var.name for it in b.iters if it.axis is Axis.SPATIAL and own[it.var.name] != 1]
    private = {a.name for a in b.allocs}
    first = tuple(it.var.equal(0) for it in b.iters if it.axis is Axis.REDUCE)
    bound = {it.binding.name: it.var for it in b.iters if isinstance(it.binding, Var)}
    runs = [substitute(c, bound) for c in conjuncts(b.predicate) if variables(c) <= bound.keys()]
    accesses = ([] if b.init is None else _accesses(b.init, *first, *runs)) + _accesses(b.body, *runs)
    for name, group in _by_buffer(a for a in accesses if a.buffer.name not in private).items():
        group = _distinct(group)
        others = {n: e for n, e in own.items() if n not in spatial}
        if spatial and not _owned(group, set(spatial), set(outer), ranges):
            inner = [_with_loops(a, [(n, Const(e)) for n, e in others.items() if e is not None]) for a in group]
            fixed = {n: e for n, e in outer.items() if any(n in variables(i) for a in group for i in (*a.indices, *a.conditions))}
            match _tried(inner, {n: own[n] for n in spatial}, fixed) if None not in own.values() else None:
                case _Conflict() as c:
                    yield Finding(
                        "error", f"the spatial axes of block `{b.name}` are not: {c.text(_verb(c.access))}", c.access.stmt
                    )
                case None:
                    names = ", ".join(f"`{n}`" for n in spatial)
                    yield Finding(
                        "unproved",
                        f"cannot prove that iterations of block `{b.name}` that differ in {names} keep apart in `{name}`",
                        b,
                    )
        yield from _reduction(b, group, ranges, outer)


def _verb(a: _Access) -> str:
    return "writes" if a.is_store else "reads"


def _with_loops(a: _Access, loops: Sequence[tuple[str, Expr]]) -> _Access:
    return _Access(a.stmt, a.buffer, a.indices, a.is_store, (*loops, *a.loops), a.conditions, a.guarded)


def _reduction(
    b: Block, group: Sequence[_Access], ranges: dict[str, Interval], outer: Mapping[str, int | None]
) -> Iterator[Finding]:
    """A store that several reduction iterations make to one element must combine with what is there."""
    reduce = {it.var.name for it in b.iters if it.axis is Axis.REDUCE and it.extent != Const(1, it.extent.dtype)}
    if not reduce:
        return
    loaded = {a.indices for a in group if not a.is_store}
    for a in group:
        if not a.is_store or not isinstance(a.stmt, Store) or (b.init is not None and any(n is a.stmt for n in walk(b.init))):
            continue
        used = variables(a.stmt.value) & reduce
        spatial = {it.var.name for it in b.iters if it.axis is not Axis.REDUCE}
        if (
            used
            and a.indices not in loaded
            and not reduce & determined([polynomial(i) for i in a.indices], set(outer) | spatial, ranges)
        ):
            names = ", ".join(f"`{n}`" for n in sorted(used))
            yield Finding(
                "error", f"block `{b.name}` reduces over {names}, but overwrites `{a.buffer.name}` instead of updating it", a.stmt
            )


def _restarts(b: Block, values: Sequence[np.ndarray], around: Sequence[np.ndarray]) -> np.ndarray:
    """How often the init of a reduction has run, in each of its iterations in order, for the element that it is at."""
    spatial = [v for it, v in zip(b.iters, values, strict=True) if it.axis is not Axis.REDUCE]
    starts = np.all([v == 0 for it, v in zip(b.iters, values, strict=True) if it.axis is Axis.REDUCE], axis=0)
    count = np.cumsum(starts)
    if spatial or around:
        _, group = np.unique(np.stack([*spatial, *around], axis=1), axis=0, return_inverse=True)
        order = np.argsort(group.reshape(-1), kind="stable")
        count[order] = np.cumsum(starts[order])
    return count


def _repeated(func: PrimFunc) -> Iterator[Finding]:
    """A reduction counts each of its iterations once: from its outermost loop inwards, iterations differ in some binding."""
    sizes: dict[str, Interval] = {p.name: (1, None) for p in func.params if isinstance(p, Var)}

    def visit(
        s: Stmt, loops: tuple[For, ...], ranges: dict[str, Interval], conditions: tuple[Expr, ...] = ()
    ) -> Iterator[Finding]:
        match s:
            case If(condition, then, orelse):
                yield from visit(then, loops, ranges, (*conditions, *conjuncts(condition)))
                if orelse is not None:
                    yield from visit(orelse, loops, ranges, (*conditions, Unary("not", condition)))
                return
            case Block():
                yield from block(s, loops, ranges, conditions)
                loops, ranges = (), {**ranges, **{it.var.name: _range_of(it.extent, ranges) for it in s.iters}}
                conditions = ()
            case For():
                loops, ranges = (*loops, s), {**ranges, s.name: _range_of(s.extent, ranges)}
        for child in children(s):
            if isinstance(child, Stmt):
                yield from visit(child, loops, ranges, conditions)

    def block(b: Block, loops: tuple[For, ...], ranges: dict[str, Interval], conditions: tuple[Expr, ...]) -> Iterator[Finding]:
        reduced = set().union(*(variables(it.binding) for it in b.iters if it.axis is Axis.REDUCE))
        start = next((n for n, loop in enumerate(loops) if loop.name in reduced), len(loops))
        inner = {loop.name for loop in loops[start:] if loop.extent != Const(1, loop.extent.dtype)}
        if not inner:
            return
        known = set(ranges) - inner
        bindings = [it.binding for it in b.iters]
        missing = inner - determined([polynomial(simplify(e, ranges)) for e in bindings], known, ranges)
        if not missing:
            return
        names = [loop.name for loop in loops]
        holds = [*conditions, *conjuncts(b.predicate)]
        points = _points(_constant_extents((n.name, n.extent) for n in loops), set(names), holds)
        if points is not None and len(points):
            try:
                values = [np.broadcast_to(_evaluate(e, points.values), len(points)) for e in bindings]
            except _Opaque:
                values = []
            around = [points.values[n] for n in names[:start]]
            if b.init is not None and values and points.whole:
                around.append(_restarts(b, values, around))
            key = np.stack([*values, *around], axis=1)
            _, first, group = np.unique(key, axis=0, return_index=True, return_inverse=True)
            earlier = first[group.reshape(-1)]
            twice = earlier != np.arange(len(points))
            if values and np.any(twice) and points.certain:
                n = int(np.argmax(twice))
                at = f"once where {points.at(int(earlier[n]), names[start:])}, and again where {points.at(n, names[start:])}"
                what = ", ".join(f"{it.var.name}={int(v[n])}" for it, v in zip(b.iters, values, strict=True))
                yield Finding("error", f"block `{b.name}` counts an iteration of its reduction twice: {what}, {at}", b)
                return
            if values and points.whole and not np.any(twice):
                return
        text = ", ".join(f"`{n}`" for n in names if n in missing)
        yield Finding(
            "unproved", f"cannot prove that block `{b.name}` counts each iteration of its reduction once, over {text}", b
        )

    yield from visit(func.body, (), sizes)


def _started(func: PrimFunc) -> Iterator[Finding]:
    """A reduction with an init begins with it: the first of its iterations, for each element, has every reduce axis at 0."""
    sizes: dict[str, Interval] = {p.name: (1, None) for p in func.params if isinstance(p, Var)}

    def visit(s: Stmt, loops: tuple[For, ...], conditions: tuple[Expr, ...], ranges: dict[str, Interval]) -> Iterator[Finding]:
        match s:
            case Block():
                if s.init is not None:
                    yield from _start(s, loops, (*conditions, *conjuncts(s.predicate)), ranges)
                loops, conditions = (), ()
                ranges = {**ranges, **{it.var.name: _range_of(it.extent, ranges) for it in s.iters}}
            case For():
                loops, ranges = (*loops, s), {**ranges, s.name: _range_of(s.extent, ranges)}
            case If(condition, then, orelse):
                yield from visit(then, loops, (*conditions, *conjuncts(condition)), ranges)
                if orelse is not None:
                    yield from visit(orelse, loops, (*conditions, _negated(condition)), ranges)
                return
        for child in substatements(s):
            yield from visit(child, loops, conditions, ranges)

    yield from visit(func.body, (), (), sizes)


def _start(b: Block, loops: Sequence[For], conditions: Sequence[Expr], ranges: dict[str, Interval]) -> Iterator[Finding]:
    """Where the reduction of a block begins without its init."""
    reducing = [it for it in b.iters if it.axis is Axis.REDUCE]
    others = [it for it in b.iters if it.axis is not Axis.REDUCE]
    driving = set().union(*(variables(it.binding) for it in reducing))
    mine = [x for x in loops if x.name in driving]
    zero = {x.name: Const(0, x.var.dtype) for x in mine}
    if not any(driving & variables(it.binding) for it in others):
        # If an iteration runs, that with these loops at 0, which comes first, does too, and has all reduce axes at 0.
        first = [simplify(substitute(it.binding, zero), ranges) for it in reducing]
        runs = all(prove(substitute(c, zero), ranges, (c,)) for c in conditions)
        if runs and all(e == Const(0, e.dtype) for e in first):
            return
    names = [x.name for x in loops]
    points = _points(_constant_extents((x.name, x.extent) for x in loops), set(names), conditions)
    if points is not None and points.whole and points.certain:
        if not len(points):
            return
        try:
            values = {it.var.name: np.broadcast_to(_evaluate(it.binding, points.values), len(points)) for it in b.iters}
        except _Opaque:
            values = {}
        if values:
            outer = next((n for n, x in enumerate(loops) if x.name in driving), len(loops))
            key = [values[it.var.name] for it in others] + [points.values[n] for n in names[:outer]]
            begin = np.zeros(1, np.int64) if not key else np.unique(np.stack(key, axis=1), axis=0, return_index=True)[1]
            wrong = [n for n in sorted(begin) if any(values[it.var.name][n] for it in reducing)]
            if wrong:
                at = ", ".join(f"{name}={int(v[wrong[0]])}" for name, v in values.items())
                text = f"block `{b.name}` begins its reduction without its init: {at} comes first"
                yield Finding("error", f"{text}, where {points.at(wrong[0], names)}" if names else text, b)
            return
    text = f"cannot prove that block `{b.name}` begins its reduction with its init"
    yield Finding("unproved", text, b)


# --- loops in any order ------------------------------------------------------------------------------------------------

_ANY_ORDER = (Kind.PARALLEL, Kind.VECTORIZED, Kind.THREAD)
_PER_THREAD = ("local", "register")


def _races(func: PrimFunc) -> Iterator[Finding]:
    """Iterations of a parallel, vectorised or thread loop do not touch what another one writes."""
    sizes: dict[str, Interval] = {p.name: (1, None) for p in func.params if isinstance(p, Var)}
    temporary = {b.name for b in func.allocs}
    total = {name: len(group) for name, group in _groups(_accesses(func.body)).items()}

    def visit(s: Stmt, ranges: dict[str, Interval], extents: dict[str, int | None]) -> Iterator[Finding]:
        if isinstance(s, Block):
            ranges = {**ranges, **{it.var.name: _range_of(it.extent, ranges) for it in s.iters}}
            extents = {**extents, **_constant_extents((it.var.name, it.extent) for it in s.iters)}
        elif isinstance(s, For):
            inner = {**ranges, s.name: _range_of(s.extent, ranges)}
            own = _constant_extents([(s.name, s.extent)])
            if s.kind in _ANY_ORDER and own[s.name] != 1:
                yield from loop(s, inner, extents, own)
            ranges, extents = inner, {**extents, **own}
        for child in children(s):
            if isinstance(child, Stmt):
                yield from visit(child, ranges, extents)

    def loop(s: For, ranges: dict[str, Interval], outer: dict[str, int | None], own: dict[str, int | None]) -> Iterator[Finding]:
        how = {Kind.PARALLEL: "parallel", Kind.VECTORIZED: "vectorized", Kind.THREAD: f"bound to {s.thread}"}[s.kind]
        reduces = _reduces_over(s)
        together = (
            reduces is not None and s.kind is Kind.THREAD and s.thread.startswith("threadIdx") and reduces[0].init is not None
        )
        if reduces is not None and not together:
            block, name = reduces
            yield Finding("error", f"loop `{s.name}` is {how}, but block `{block.name}` reduces over it (`{name}`)", s)
            return
        for name, group in _by_buffer(_accesses(s.body)).items():
            scope = group[0].buffer.scope
            if reduces is not None and any(x.buffer.name == name for x in stores(reduces[0])):
                continue  # the threads combine what each of them has; `bind` says when
            if s.kind is Kind.THREAD and (
                scope in _PER_THREAD or (scope.startswith("shared") and not s.thread.startswith("blockIdx"))
            ):
                continue
            group = _distinct(group)
            if _owned(group, {s.name}, set(outer), ranges):
                continue
            if name in temporary and total.get(name) == len(_accesses_of(s.body, name)):
                if not _covered(s.body, name, ranges):
                    yield Finding(
                        "unproved",
                        f"loop `{s.name}` is {how}; cannot prove that each iteration writes what it reads of `{name}`",
                        s,
                    )
                continue
            fixed = {n: e for n, e in outer.items() if any(n in variables(i) for a in group for i in (*a.indices, *a.conditions))}
            match _tried(group, own, fixed):
                case _Conflict() as c:
                    yield Finding("error", f"loop `{s.name}` is {how}, but {c.text(_verb(c.access))}", s)
                case None:
                    yield Finding(
                        "unproved", f"loop `{s.name}` is {how}; cannot prove that its iterations keep apart in `{name}`", s
                    )

    yield from visit(func.body, sizes, dict.fromkeys(sizes))


def _groups(accesses: Iterable[_Access]) -> dict[str, list[_Access]]:
    groups: dict[str, list[_Access]] = {}
    for a in accesses:
        groups.setdefault(a.buffer.name, []).append(a)
    return groups


def _accesses_of(s: Stmt, name: str) -> list[_Access]:
    return [a for a in _accesses(s) if a.buffer.name == name]


def _reduces_over(loop: For) -> tuple[Block, str] | None:
    """A block below that binds a reduce axis to the loop, and that axis."""

    def visit(s: Stmt, touched: set[str]) -> tuple[Block, str] | None:
        if isinstance(s, Block):
            inner = set(touched)
            for it in s.iters:
                if variables(it.binding) & touched:
                    if it.axis is Axis.REDUCE:
                        return s, it.var.name
                    inner.add(it.var.name)
            touched = inner
        elif isinstance(s, Let) and variables(s.value) & touched:
            touched = touched | {s.var.name}
        for child in children(s):
            if isinstance(child, Stmt):
                found = visit(child, touched)
                if found is not None:
                    return found
        return None

    return visit(loop.body, {loop.name})


def _covered(body: Stmt, name: str, ranges: dict[str, Interval]) -> bool:
    """Whether the box that `body` reads of a buffer lies within the box that it writes."""
    reads, writes = accessed(body, ranges, (name,))
    if name not in reads:
        return True
    if name not in writes:
        return False
    read, written = clip(reads[name], ranges), clip(writes[name], ranges)
    for r, w in zip(read.ranges, written.ranges, strict=True):
        if not (prove(w.min <= r.min, ranges) and prove(r.min + r.extent <= w.min + w.extent, ranges)):
            return False
    return True


# --- buffers written before they are read ------------------------------------------------------------------------------


def _initialised(func: PrimFunc) -> Iterator[Finding]:
    """Allocated buffers hold what was written before."""
    nested: list[tuple[Buffer, Stmt]] = []
    for n in walk(func.body):
        if isinstance(n, Allocate):
            nested.append((n.buffer, n.body))
        elif isinstance(n, Block):
            nested += [(b, s) for b in n.allocs for s in (n.body,)]
    everywhere = _groups(_accesses(func.body))
    for buffer in func.allocs:
        yield from _written_first(buffer, everywhere.get(buffer.name, []))
    for buffer, body in nested:
        yield from _written_first(buffer, _accesses_of(body, buffer.name))


def _written_first(buffer: Buffer, accesses: list[_Access]) -> Iterator[Finding]:
    loads, stores = [a for a in accesses if not a.is_store], [a for a in accesses if a.is_store]
    if not loads:
        return
    if not stores:
        yield Finding("error", f"`{buffer.name}` is read, but never written", loads[0].stmt)
        return
    if not accesses[0].is_store:
        severity = "unproved" if accesses[0].guarded else "error"
        yield Finding(severity, f"`{buffer.name}` is read before anything is written to it", accesses[0].stmt)
        return
    shape = _shape(buffer)
    if None in shape:
        return
    written = np.zeros([d or 0 for d in shape], bool)
    for a in _distinct(stores):
        elements = _elements(a)
        if elements is None:
            return
        written[elements[0]] = True
    for a in _distinct(loads):
        elements = _elements(a)
        if elements is None or not elements[1]:
            return
        missing = ~written[elements[0]]
        if np.any(missing):
            n = int(np.argmax(missing))
            place = ", ".join(str(int(np.broadcast_to(i, missing.shape)[n])) for i in elements[0]) or "()"
            yield Finding("error", f"`{buffer.name}[{place}]` is read, but never written", a.stmt)
            return


def _elements(a: _Access) -> tuple[tuple[np.ndarray, ...], bool] | None:
    """The elements that an access touches, as index arrays, and whether it surely does; None if they are too many or unknown."""
    needed = set().union(*(variables(i) for i in a.indices), set())
    points = _points(_constant_extents(a.loops), needed, a.conditions)
    if points is None or not points.whole:
        return None
    try:
        indices = [np.broadcast_to(_evaluate(i, points.values), len(points)) for i in a.indices]
    except _Opaque:
        return None
    if any(np.any((i < 0) | (i >= d)) for i, d in zip(indices, _shape(a.buffer), strict=True)):
        return None  # reported elsewhere
    return tuple(indices), points.certain
