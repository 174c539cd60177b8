"""Windows that slide over the rows of an image."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tir.arith.polynomial import coefficient
from tir.ir import Binary, Const, For, If, Kind, Load, PrimFunc, Stmt, Store, conjunction, nest
from tir.traverse import fresh, loads, map_statements, names, perfect_nest, substitute, variables

from .positions import position


class _Window(NamedTuple):
    """Unrolled loops: accumulators that `step` tells apart read, at number `kernel` of a sum, `step * stride + kernel`."""

    step: For
    kernel: For
    stride: int


def slide_windows(func: PrimFunc, target) -> PrimFunc:
    """Rewrite   for r in unroll(k): for h in unroll(n): acc[h] = acc[h] + A[s * h + r] * w[r]
              => for y in unroll(s * (n - 1) + k): for h in unroll(n):
                     if 0 <= y - s * h < k: acc[h] = acc[h] + A[y] * w[y - s * h]

    where A is read in vectors and w is not: each vector is loaded once, and used by all accumulators at once. In the order of the
    sum it is used again in later rounds, so that it is loaded again or stays in a register for long. Each accumulator sees the
    same operations in the same order, so the numbers stay.
    """
    taken = names(func)

    def visit(s: Stmt) -> Stmt:
        if not isinstance(s, For) or s.kind is not Kind.UNROLLED:
            return map_statements(s, visit)
        loops = perfect_nest(s, Kind.UNROLLED)
        window = _window(loops)
        return s if window is None else _slid(loops, window, fresh(taken, "row"))

    return func.with_(body=visit(func.body))


def _slid(loops: Sequence[For], window: _Window, name: str) -> Stmt:
    step, kernel, stride = window
    row = kernel.var.with_(name=name)
    number = row - (step.var if stride == 1 else step.var * stride)
    inside = conjunction(Binary(">=", number, Const(0)), Binary("<", number, kernel.extent))
    body = If(inside, substitute(loops[-1].body, {kernel.var: number}))
    rows = Const(stride * (_extent(step) - 1) + _extent(kernel))
    around = [For(row, rows, body, Kind.UNROLLED) if x is kernel else x for x in loops if x is not step]
    return nest([*around, step], body)  # type: ignore[return-value]


def _window(loops: Sequence[For]) -> _Window | None:
    """The loops of a window in a nest around an update of a register; None if there are none."""
    lane = loops[-1].body
    update = lane.body if isinstance(lane, For) and lane.kind is Kind.VECTORIZED else None
    if not isinstance(update, Store) or update.buffer.scope != "register" or not isinstance(lane, For):
        return None
    read = loads(update.value)
    if any(x.buffer == update.buffer and x.indices != update.indices for x in read):
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
    """How many numbers of the kernel lie between what two neighbours read, if they read something in common."""
    offset = position(x.buffer, x.indices)
    across, along = coefficient(offset, step.name), coefficient(offset, kernel.name)
    if not across or not along or across % along:
        return None
    stride = across // along
    return stride if 0 < stride < _extent(kernel) and _extent(step) > 1 else None


def _extent(loop: For) -> int:
    assert isinstance(loop.extent, Const)
    return int(loop.extent.value)
