"""Tiles of shared memory loaded some iterations ahead."""

from __future__ import annotations

from schedule.annotation_values import value_of
from schedule.intrinsics import is_grouped
from schedule.machine import AMPERE_CAPABILITY, compute_capability
from tir import dtypes
from tir.arith.simplify import simplify
from tir.ir.buffers import Load
from tir.ir.expressions import Call, Const, Expr, Select, conjunction
from tir.ir.functions import PrimFunc
from tir.ir.statements import Allocate, Evaluate, For, If, Kind, Seq, Stmt, Store, seq
from tir.memory import SHARED
from tir.traverse import fresh, loads, loops, map_statements, names, rewrite, stores, substitute, walk_stmts, with_fresh_loops

from .free_variables import unallocated
from .gpu_kernels import GPUKernel, map_kernels

STAGES = "pipeline_stages"  # an annotation of a loop: the number of copies of each tile, used in rotation; 1 is no pipeline
DOUBLE = "double_buffer"  # an annotation of a loop: two copies
ASYNCHRONOUS = "asynchronous"  # a call around a stored value: a copy that need not be complete before the wait for it
COMMIT = "copy_async_commit"  # a call: ends a group of copies
WAIT = "copy_async_wait"  # a call: waits for all groups but the latest ones, whose number is the argument


def inject_software_pipeline(func: PrimFunc, target) -> PrimFunc:
    """Rewrite   for k in range(n): load tile k; use the tile          # annotated `pipeline_stages: s`
              => for p in range(s - 1): load tile p
                 for k in range(n): wait for tile k; if k + s - 1 < n: load tile k + s - 1; use tile k

    with s copies of each tile, used in rotation. The tiles are the buffers that the loop allocates in shared memory; the
    statements that load them come first and read nothing that the loop writes. Other loops stay as they are. Warpgroups, which
    multiply while they go on, first use tile k and then load.
    """
    taken = names(func)

    def visit(s: Stmt) -> Stmt:
        s = map_statements(s, visit)
        if isinstance(s, For) and s.kind is Kind.SERIAL and (n := stage_count(s)) > 1:
            return _ahead(s, n, taken) or s
        return s

    return func.with_(body=visit(func.body))


def stage_count(loop: For) -> int:
    """The number of copies of each tile of a loop, by its annotations. Raises ValueError for any other value."""
    n: int = value_of(loop, STAGES, 2 if value_of(loop, DOUBLE, False) else 1)
    return n


def _ahead(loop: For, n: int, taken: set[str]) -> Stmt | None:
    tiles, inner = unallocated(loop.body, SHARED)
    if not tiles or not isinstance(inner, Seq) or loop.extent.is_one:
        return None
    names = {b.name for b in tiles}
    first: list[Stmt] = []
    made = {s.buffer.name for s in stores(inner)}
    for s in inner.stmts:
        if not {x.buffer.name for x in stores(s)} <= names or {x.buffer.name for x in loads(s)} & made:
            break
        first.append(s)
    rest = inner.stmts[len(first) :]
    if not first or not rest or any(x.buffer.name in names for s in rest for x in stores(s)):
        return None
    wide = {b.name: b.with_(shape=(Const(n), *b.shape)) for b in tiles}

    def at(s: Stmt, turn: Expr) -> Stmt:
        def change(x):
            match x:
                case Load(buffer, indices) if buffer.name in wide:
                    return Load(wide[buffer.name], (turn, *indices))
                case Store(buffer, indices, value) if buffer.name in wide:
                    value = Call(ASYNCHRONOUS, (value,), value.dtype) if copied_element(value, buffer.dtype) else value
                    return Store(wide[buffer.name], (turn, *indices), value)
            return None

        return rewrite(s, change)

    def load(k: Expr) -> Stmt:
        """Load tile k, if there is one."""
        return If(simplify(k < loop.extent), substitute(at(with_fresh_loops(seq(*first), taken), loop.var % n), {loop.var: k}))

    commit, wait = Evaluate(Call(COMMIT, (), "int32")), Evaluate(Call(WAIT, (Const(n - 2),), "int32"))
    p = loop.var.with_(name=fresh(taken, f"{loop.name}_ahead"))
    steps = [seq(load(loop.var + (n - 1)), commit), *(at(s, loop.var % n) for s in rest)]
    if any(is_grouped(x) for s in rest for x in loops(s)):
        steps = [*steps[1:], steps[0]]
    body: Stmt = seq(
        For(p, Const(n - 1, p.dtype), seq(load(p), commit), Kind.UNROLLED),
        loop.with_(body=seq(wait, *steps)),
    )
    for b in reversed(tiles):
        body = Allocate(wide[b.name], body)
    return body


def copied_element(value: Expr, dtype: str) -> tuple[Load, Expr | None] | None:
    """The element of global memory that a value copies, and the condition without which it is 0; None for other values."""
    match value:
        case Load(buffer) if buffer.scope == "global" and buffer.dtype == dtype:
            return value, None
        case Select(condition, inner, Const(0)) if not loads(condition) and (found := copied_element(inner, dtype)) is not None:
            x, other = found
            return x, condition if other is None else conjunction(condition, other)
    return None


def lower_async_copies(func: PrimFunc, target) -> PrimFunc:
    """Make the copies of a kernel synchronous where the target has no asynchronous ones, or none moves enough bytes."""

    def change(n):
        match n:
            case Store(_, _, Call(op, (value,))) if op == ASYNCHRONOUS:
                return n.with_(value=value)
            case Evaluate(Call(op)) if op in (COMMIT, WAIT):
                return Evaluate(Const(0))
        return None

    def kept(kernel: GPUKernel) -> Stmt:
        pending = [s for s in stores(kernel.body) if is_call_of(s.value, ASYNCHRONOUS)]
        if compute_capability(target.arch) >= AMPERE_CAPABILITY and any(
            dtypes.nbytes(s.buffer.dtype) >= 4 or _in_vector(kernel.body, s) for s in pending
        ):
            return kernel.body
        return rewrite(kernel.body, change)

    return map_kernels(func, kept)


def is_call_of(e: Expr, op: str) -> bool:
    """True where an expression is a call of `op`."""
    return isinstance(e, Call) and e.op == op


def _in_vector(body: Stmt, store: Store) -> bool:
    """True where a store is in a vectorised loop, which may move enough bytes at once."""
    return any(
        isinstance(s, For) and s.kind is Kind.VECTORIZED and any(x is store for x in stores(s.body)) for s in walk_stmts(body)
    )
