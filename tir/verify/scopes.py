"""Check that variables and buffers are visible where they are used, and that ranks and dtypes agree."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import assert_never

from .. import dtypes
from ..intrinsics import INTRINSICS, SHIFTS
from ..ir.blocks import Block
from ..ir.buffers import Buffer, Load, Region
from ..ir.expressions import ARITHMETIC, COMPARISONS, LOGICAL, Binary, Call, Cast, Const, Expr, Select, Unary, Var
from ..ir.foreign import Foreign, Opaque
from ..ir.functions import PrimFunc
from ..ir.statements import THREAD_AXES, Allocate, Evaluate, For, If, Kind, Let, Seq, Stmt, Store
from ..memory import SCOPES
from ..nearest import no_such
from ..traverse import variables, walk
from .report import Finding


@dataclass(frozen=True)
class _Visible:
    """The visible names: variables with their dtypes, and buffers; and the names that a block hides."""

    variables: dict[str, str]
    buffers: dict[str, Buffer]
    hidden: dict[str, str] = field(default_factory=dict)  # names bound outside the block around, and the name of that block
    iters: frozenset[str] = frozenset()  # iteration variables of the blocks around


def check_scopes(func: PrimFunc) -> list[Finding]:
    """Findings where a name is not visible or is bound again, and where ranks or dtypes do not agree."""
    return _Scopes(func).findings


class _Scopes:
    """Walks a function with the names visible at each statement; `findings` are those so far."""

    def __init__(self, func: PrimFunc):
        self.findings: list[Finding] = []
        self._stmt: Stmt | None = None
        self._sizes = _Visible({p.name: p.dtype for p in func.sizes}, {})
        for p in func.sizes:
            if not dtypes.is_int(p.dtype):
                self._error(f"the scalar parameter `{p.name}` must be an integer, got {p.dtype}")
        here = self._sizes
        for b in (*func.buffers, *func.allocs):
            here = self._declare(b, here, self._sizes)
        self._visit(func.body, here)

    def _error(self, message: str) -> None:
        self.findings.append(Finding("error", message, self._stmt))

    def _declare(self, b: Buffer, here: _Visible, sizes: _Visible) -> _Visible:
        """The visible names with a buffer added, whose shape is over `sizes`."""
        if b.dtype not in dtypes.TABLE:
            self._error(f"buffer `{b.name}` has the unknown dtype {b.dtype!r}")
        if b.scope not in SCOPES:
            self._error(f"buffer `{b.name}`: {no_such('storage scope', b.scope, SCOPES)}")
        for dim in b.shape:
            self._integer(dim, f"a dimension of `{b.name}`", replace(sizes, buffers={}))
            if isinstance(dim, Const) and dim.value < 0:
                self._error(f"buffer `{b.name}` has a dimension of {dim.value}; extents must be at least 0")
        return replace(here, buffers={**here.buffers, b.name: b})

    def _integer(self, e: Expr, what: str, here: _Visible) -> None:
        dtype = self._expr(e, here)
        if dtype is not None and not dtypes.is_int(dtype):
            self._error(f"{what} must be an integer, got `{e}` of dtype {dtype}")

    def _condition(self, e: Expr, what: str, here: _Visible) -> None:
        dtype = self._expr(e, here)
        if dtype is not None and dtype != "bool":
            self._error(f"{what} must be bool, got `{e}` of dtype {dtype}")

    def _bind(self, var: Var, here: _Visible) -> _Visible:
        if var.name in here.variables:
            self._error(f"`{var.name}` is bound again where it is already visible")
        return replace(here, variables={**here.variables, var.name: var.dtype})

    def _visit(self, s: Stmt, here: _Visible) -> None:
        outer, self._stmt = self._stmt, s
        match s:
            case Seq(stmts):
                for x in stmts:
                    self._visit(x, here)
            case For(var, extent, body):
                self._integer(extent, f"the extent of loop `{s.name}`", here)
                if not dtypes.is_int(var.dtype):
                    self._error(f"the loop variable `{s.name}` must be an integer, got {var.dtype}")
                if isinstance(extent, Const) and extent.value < 0:
                    self._error(f"loop `{s.name}` has extent {extent.value}; extents must be at least 0")
                if (s.kind is Kind.THREAD) != bool(s.thread):
                    self._error(f"loop `{s.name}` is {s.kind.value}, and its thread axis is {s.thread!r}")
                elif s.thread and s.thread not in THREAD_AXES:
                    self._error(f"loop `{s.name}` is bound to {s.thread!r}; thread axes are {', '.join(THREAD_AXES)}")
                self._visit(body, self._bind(var, here))
            case Block():
                self._block(s, here)
            case Store(buffer, indices, value):
                self._element(buffer, indices, here)
                dtype = self._expr(value, here)
                if dtype is not None and dtype != buffer.dtype:
                    self._error(f"a value of dtype {dtype} is stored into `{buffer.name}`, which holds {buffer.dtype}")
            case If(condition, then, orelse):
                self._condition(condition, "a condition", here)
                self._visit(then, here)
                if orelse is not None:
                    self._visit(orelse, here)
            case Let(var, value, body):
                dtype = self._expr(value, here)
                if dtype is not None and dtype != var.dtype:
                    self._error(f"`{var.name}` of dtype {var.dtype} is bound to a value of dtype {dtype}")
                self._visit(body, self._bind(var, here))
            case Allocate(buffer, body):
                self._visit(body, self._declare(buffer, here, here))
            case Evaluate(value):
                self._expr(value, here)
            case Opaque(call, body):
                for n in walk(call):
                    if isinstance(n, Foreign):
                        for a in n.args:
                            if isinstance(a, Expr):
                                self._expr(a, here)
                self._visit(body, here)
            case _:
                assert_never(s)  # type: ignore[arg-type]
        self._stmt = outer

    def _block(self, b: Block, here: _Visible) -> None:
        inner = {it.var.name: it.var.dtype for it in b.iters}
        for it in b.iters:
            name = it.var.name
            self._integer(it.extent, f"the extent of `{name}`", replace(self._sizes, buffers=here.buffers))
            self._integer(it.binding, f"the binding of `{name}`", here)
            if not dtypes.is_int(it.var.dtype):
                self._error(f"the iteration variable `{name}` must be an integer, got {it.var.dtype}")
            if isinstance(it.extent, Const) and it.extent.value < 0:
                self._error(f"`{name}` has extent {it.extent.value}; extents must be at least 0")
            self._bind(it.var, here)
        self._condition(b.predicate, "a predicate", here)
        seen = {**self._sizes.variables, **{n: d for n, d in here.variables.items() if n in here.iters}, **inner}
        hidden = {**here.hidden, **{name: b.name for name in here.variables if name not in seen}}
        inside = _Visible(seen, here.buffers, hidden, here.iters | inner.keys())
        for buffer in b.allocs:
            inside = self._declare(buffer, inside, inside)
        for region in (*(b.reads or ()), *(b.writes or ())):
            self._region(b, region, inside)
        if b.init is not None:
            if not b.is_reduction:
                self._error(f"block `{b.name}` has an init, but no reduce axis")
            reduce = {it.var.name for it in b.reduction}
            used = sorted(variables(b.init) & reduce)
            if used:
                self._error(f"the init of block `{b.name}` depends on the reduce axis `{used[0]}`")
            self._visit(b.init, inside)
        self._visit(b.body, inside)

    def _region(self, b: Block, region: Region, here: _Visible) -> None:
        if region.buffer.name not in here.buffers:
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
                self._integer(e, f"a bound of the region of `{region.buffer.name}`", here)

    def _element(self, buffer: Buffer, indices: tuple[Expr, ...], here: _Visible) -> None:
        declared = here.buffers.get(buffer.name)
        if declared is None:
            self._error(f"the buffer `{buffer.name}` is neither a parameter nor allocated around its use")
        elif declared != buffer:
            self._error(f"`{buffer.name}` is used as {_described(buffer)}, but declared as {_described(declared)}")
        if len(indices) != len(buffer.shape):
            self._error(f"`{buffer.name}` has {len(buffer.shape)} dimension(s), but is indexed with {len(indices)}")
        for i in indices:
            self._integer(i, f"an index of `{buffer.name}`", here)

    def _expr(self, e: Expr, here: _Visible) -> str | None:
        """The dtype of an expression that is well formed so far; None after an error was noted."""
        match e:
            case Const(value, dtype):
                return self._literal(value, dtype)
            case Var(name, dtype):
                if name not in here.variables:
                    block = here.hidden.get(name)
                    why = f"not visible inside block `{block}`; bind an iteration variable to it" if block else "not bound here"
                    self._error(f"`{name}` is {why}")
                elif here.variables[name] != dtype:
                    self._error(f"`{name}` is used as {dtype}, but bound as {here.variables[name]}")
                else:
                    return dtype
                return None
            case Load(buffer, indices):
                self._element(buffer, indices, here)
                return buffer.dtype
            case Cast(dtype, value):
                self._expr(value, here)
                return self._known(dtype)
            case Select(c, t, f):
                self._condition(c, "a condition", here)
                return self._same(e, self._expr(t, here), self._expr(f, here))
            case Call(op, args, dtype):
                return self._call(e, op, [self._expr(a, here) for a in args], dtype)
            case Unary(op, a):
                found = self._expr(a, here)
                if op not in ("neg", "not"):
                    self._error(f"unknown operator {op!r} in `{a}`")
                elif found is not None and (found == "bool") != (op == "not"):
                    self._error(f"`{op}` does not take {found}, in `{e}`")
                return found
            case Binary(op, a, b):
                return self._binary(e, op, self._expr(a, here), self._expr(b, here))
            case _:
                self._error(f"`{e}` ({type(e).__name__}) does not belong into a function")
                return None

    def _known(self, dtype: str) -> str | None:
        if dtype not in dtypes.TABLE:
            self._error(f"unknown dtype {dtype!r}")
            return None
        return dtype

    def _literal(self, value, dtype: str) -> str | None:
        if self._known(dtype) is None:
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

    def _call(self, e: Call, op: str, found: list[str | None], dtype: str) -> str | None:
        if op not in INTRINSICS:
            self._error(f"unknown intrinsic {op!r}; known are {', '.join(INTRINSICS)}")
            return None
        intrinsic = INTRINSICS[op]
        if len(found) != intrinsic.arity:
            self._error(f"`{op}` takes {intrinsic.arity} argument(s), got {len(found)}, in `{e}`")
        for d in found:
            if d is not None and d != dtype:
                self._error(f"`{op}` of dtype {dtype} has an argument of dtype {d}, in `{e}`")
            elif d is not None and dtypes.TABLE[d].kind not in intrinsic.kinds:
                self._error(f"`{op}` takes {'floating values' if 'float' in intrinsic.kinds else 'integers'}, got {d}, in `{e}`")
        if op in SHIFTS and isinstance(by := e.args[-1], Const) and not 0 <= by.value < dtypes.bits(dtype):
            self._error(f"`{e}` shifts by {by.value}, and {dtype} has {dtypes.bits(dtype)} bits")
        return dtype

    def _binary(self, e: Binary, op: str, a: str | None, b: str | None) -> str | None:
        dtype = self._same(e, a, b)
        if op not in (*ARITHMETIC, *COMPARISONS, *LOGICAL):
            self._error(f"unknown operator {op!r}, in `{e}`")
            return None
        if dtype is not None:
            kinds = dict.fromkeys(ARITHMETIC, ("float", "int", "uint")) | dict.fromkeys(LOGICAL, ("bool",)) | {"/": ("float",)}
            kind = dtypes.TABLE[dtype].kind
            if kind not in kinds.get(op, (kind,)):
                self._error(f"`{op}` does not take {dtype}, in `{e}`")
            elif op in ("//", "%") and kind != "float" and e.b.is_zero:
                self._error(f"`{e}` divides by zero")
        return "bool" if op in COMPARISONS or op in LOGICAL else dtype


def _described(b: Buffer) -> str:
    shape = ", ".join(str(d) for d in b.shape)
    return f"({shape}) {b.dtype} in {b.scope}"
