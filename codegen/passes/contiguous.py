"""Loops that walk each array from one element to the next."""

from __future__ import annotations

from collections.abc import Sequence

from tir.analysis.positions import position
from tir.arith.polynomial import coefficient
from tir.ir import Const, For, Load, Store
from tir.traverse import loads, rewrite, variables


def contiguous(store: Store, loops: Sequence[For]) -> bool:
    """True where nested loops of constant extents, the outermost first, walk the array that a store writes one element after the
    other, and in each array that it reads do so too, or stay at one place; and every iteration can run before any other."""
    names, read = {x.name for x in loops}, loads(store.value)
    if any(x.buffer == store.buffer or x.buffer.scope == "register" for x in read) or store.buffer.scope == "register":
        return False
    bare = rewrite(store.value, lambda n: Const(0, n.dtype) if isinstance(n, Load) else None)
    return not variables(bare) & names and moves(store, loops) == 1 and all(moves(x, loops) is not None for x in read)


def moves(access: Load | Store, loops: Sequence[For]) -> int | None:
    """1 where loops walk an array from one element to the next, 0 where they stay at one element, else None."""
    offset, length = position(access.buffer, access.indices), 1
    step = coefficient(offset, loops[-1].name)
    for x in reversed(loops):
        assert isinstance(x.extent, Const)
        if step not in (0, 1) or coefficient(offset, x.name) != step * length:
            return None
        length *= int(x.extent.value)
    return step
