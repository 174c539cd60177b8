"""Loops with unit stride in each array."""

from __future__ import annotations

from collections.abc import Sequence

from tir.analysis.positions import position
from tir.arith.polynomial import coefficient
from tir.ir import Const, For, Load, Store
from tir.traverse import loads, rewrite, variables


def contiguous(store: Store, loops: Sequence[For]) -> bool:
    """True where loops of constant extents, outermost first, have stride 1 in the array that a store writes, and 1 or 0 in those
    it reads. No iteration depends on another, and the value has loop variables in loads alone."""
    names, read = {x.name for x in loops}, loads(store.value)
    if any(x.buffer == store.buffer or x.buffer.scope == "register" for x in read) or store.buffer.scope == "register":
        return False
    bare = rewrite(store.value, lambda n: Const(0, n.dtype) if isinstance(n, Load) else None)
    return not variables(bare) & names and unit_stride(store, loops) == 1 and all(unit_stride(x, loops) is not None for x in read)


def unit_stride(access: Load | Store, loops: Sequence[For]) -> int | None:
    """The stride of nested loops as one loop over an array: 1 or 0; None for any other access."""
    offset, length = position(access.buffer, access.indices), 1
    step = coefficient(offset, loops[-1].name)
    for x in reversed(loops):
        assert isinstance(x.extent, Const)
        if step not in (0, 1) or coefficient(offset, x.name) != step * length:
            return None
        length *= int(x.extent.value)
    return step
