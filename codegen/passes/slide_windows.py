"""Windows that slide over the rows of an image."""

from __future__ import annotations

from collections.abc import Sequence, Set
from functools import reduce
from math import prod
from typing import NamedTuple

from schedule.rewriting.edits import statements_of
from tir.analysis.positions import position
from tir.arith.polynomial import coefficient
from tir.ir.buffers import Buffer, Load, const_shape
from tir.ir.expressions import Binary, Const, Expr, Var, conjunction
from tir.ir.functions import PrimFunc
from tir.ir.statements import Allocate, For, If, Kind, Stmt, Store, nest, seq
from tir.traverse import fresh, loads, map_statements, names, perfect_nest, stores, substitute, variables

from .free_variables import unallocated


class _Window(NamedTuple):
    """Unrolled loops: accumulator `step` reads row `step * stride + kernel` for term `kernel` of its sum."""

    step: For
    kernel: For
    stride: int


def slide_windows(func: PrimFunc, target) -> PrimFunc:
    """Rewrite   for r in unroll(k): for h in unroll(n): acc[h] = acc[h] + A[s * h + r] * w[r]
              => for y in unroll(s * (n - 1) + k): for h in unroll(n):
                     if 0 <= y - s * h < k: acc[h] = acc[h] + A[y] * w[y - s * h]

    where A is read in vectors and w is not: each vector is loaded once for all accumulators. In the order of the sum it would be
    loaded again by later iterations, or would stay in a register until then. Each accumulator sees the same operations in the
    same order, so results are bitwise equal. Where accumulators take more than half of the registers, the epilogue of each runs
    as soon as its sum is complete, which frees its register.
    """
    taken = names(func)

    def crowded(update: Stmt) -> bool:
        sums = [x.buffer for x in stores(update) if x.buffer.scope == "register"]
        return 2 * sum(prod(const_shape(b)[:-1]) for b in sums) > target.registers

    def visit(s: Stmt) -> Stmt:
        match s:
            case For(kind=Kind.UNROLLED):
                loops = perfect_nest(s, Kind.UNROLLED)[0]
                window = _window_loops(loops)
                return s if window is None else _slid(loops, window, fresh(taken, "row"))
            case Allocate(Buffer(scope="register")):
                buffers, body = unallocated(s, ("register",))
                parts = statements_of(body)
                for n, x in enumerate(parts):
                    loops = perfect_nest(x, Kind.UNROLLED)[0] if isinstance(x, For) and x.kind is Kind.UNROLLED else []
                    window = _window_loops(loops) if loops and crowded(loops[-1].body) else None
                    if window is not None and loops[0] is window.kernel:
                        last = _following(loops, window, parts[n + 1 :])
                        rows = _slid(loops, window, fresh(taken, "row"), parts[n + 1 : n + 1 + last])
                        result = seq(*parts[:n], rows, *map(visit, parts[n + 1 + last :]))
                        return reduce(lambda body, b: Allocate(b, body), reversed(buffers), result)
        return map_statements(s, visit)

    return func.with_(body=visit(func.body))


def _following(loops: Sequence[For], window: _Window, rest: Sequence[Stmt]) -> int:
    """The number of statements directly after a window that process each accumulator by itself. They read nothing that is written
    for other accumulators, and what they write for one has its number among the indices."""
    update = loops[-1].body
    axes = {x.buffer: x.indices.index(window.step.var) for x in stores(update)}
    seen = {x.buffer for x in loads(update)} | axes.keys()
    changed: set[Buffer] = set()  # whose indices do not name an accumulator
    for n, s in enumerate(rest):
        if not isinstance(s, For) or s.kind is not Kind.UNROLLED or s.extent != window.step.extent:
            return n
        written, read = stores(s), loads(s)
        axes |= {x.buffer: x.indices.index(s.var) for x in written if s.var in x.indices and x.buffer not in seen}
        apart = {x.buffer for x in written} - axes.keys()
        others = {x.buffer for x in read} - axes.keys()
        both: list[Load | Store] = [*written, *read]
        own = all(x.indices[axes[x.buffer]] == s.var for x in both if x.buffer in axes)
        if not own or apart & (seen | others) or others & changed or any(b.scope == "register" for b in apart | others):
            return n
        seen |= apart | others | axes.keys()
        changed |= apart
    return len(rest)


def _slid(loops: Sequence[For], window: _Window, name: str, following: Sequence[Stmt] = ()) -> Stmt:
    step, kernel, stride = window
    row = kernel.var.with_(name=name)

    def number_of(step: Var) -> Expr:
        return row - (step if stride == 1 else step * stride)

    number = number_of(step.var)
    inside = conjunction(Binary(">=", number, Const(0)), Binary("<", number, kernel.extent))
    body = If(inside, substitute(loops[-1].body, {kernel.var: number}))
    rows = Const(stride * (_extent(step) - 1) + _extent(kernel))
    around = [For(row, rows, body, Kind.UNROLLED) if x is kernel else x for x in loops if x is not step]
    rows_of_image = nest([*around, step], body)
    assert isinstance(rows_of_image, For)
    if not following:
        return rows_of_image
    done = [x.with_(body=If(Binary("==", number_of(x.var), Const(_extent(kernel) - 1)), x.body)) for x in following]  # type: ignore[attr-defined]
    return rows_of_image.with_(body=seq(rows_of_image.body, *done))


def _window_loops(loops: Sequence[For]) -> _Window | None:
    """The window of a nest whose updates of registers all have the same one; else None."""
    body = loops[-1].body
    first, *others = [_window_of(loops, x, {y.buffer for y in stores(body)}) for x in statements_of(body)]
    return first if all(x == first for x in others) else None


def _window_of(loops: Sequence[For], lane: Stmt, updated: Set[Buffer]) -> _Window | None:
    """The window of a vector's update of a register; None without one, or where it reads other registers that are `updated`."""
    update = lane.body if isinstance(lane, For) and lane.kind is Kind.VECTORIZED else None
    if not isinstance(update, Store) or update.buffer.scope != "register" or not isinstance(lane, For):
        return None
    read = loads(update.value)
    if any(x.buffer in updated and (x.buffer, x.indices) != (update.buffer, update.indices) for x in read):
        return None
    indexing = [x for x in loops if update.indices.count(x.var) == 1]
    for x in read:
        if x.buffer.scope == "register" or lane.name not in variables(*x.indices):
            continue
        for step in indexing:
            for kernel in (r for r in loops if r.name not in variables(*update.indices)):
                stride = _stride(x, step, kernel)
                others = [o for o in read if o != x and kernel.name in variables(*o.indices)]
                if stride is not None and not any(lane.name in variables(*o.indices) for o in others):
                    return _Window(step, kernel, stride)
    return None


def _stride(x: Load, step: For, kernel: For) -> int | None:
    """The distance between the elements that neighbouring accumulators read, in steps of `kernel`; None if they share none."""
    offset = position(x.buffer, x.indices)
    across, along = coefficient(offset, step.name), coefficient(offset, kernel.name)
    if not across or not along or across % along:
        return None
    stride = across // along
    return stride if 0 < stride < _extent(kernel) and _extent(step) > 1 else None


def _extent(loop: For) -> int:
    assert isinstance(loop.extent, Const)
    return int(loop.extent.value)
