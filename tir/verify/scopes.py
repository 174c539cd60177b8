"""Scopes and dtypes: variables and buffers are visible where they are used, ranks and dtypes agree."""

from __future__ import annotations

from collections.abc import Mapping
from typing import assert_never

from .. import dtypes
from ..ir import (
    ARITHMETIC,
    COMPARISONS,
    INTRINSICS,
    LOGICAL,
    THREAD_AXES,
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
)
from ..memory import SCOPES
from ..nearest import no_such
from ..traverse import variables
from .report import Finding


class Scopes:
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
        if b.scope not in SCOPES:
            self._error(f"buffer `{b.name}`: {no_such('storage scope', b.scope, SCOPES)}")
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
                elif s.thread and s.thread not in THREAD_AXES:
                    self._error(f"loop `{s.name}` is bound to {s.thread!r}; thread axes are {', '.join(THREAD_AXES)}")
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
