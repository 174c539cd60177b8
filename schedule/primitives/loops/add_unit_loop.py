"""add_unit_loop: a loop of one iteration."""

from __future__ import annotations

from tir.ir import Const, For, PrimFunc, Var

from ...primitive import LoopOrBlockName, fresh_names, named_at, primitive, replace_path


@primitive
def add_unit_loop(func: PrimFunc, block_or_loop: LoopOrBlockName) -> tuple[PrimFunc, str]:
    """Put a loop of extent 1 around a block or loop; returns its name.

    Rewrite   S   =>   for u in range(1): S
    Legal     always.
    Example   vector: s.add_unit_loop("i")
    """
    target, above = named_at(func, block_or_loop)
    (name,) = fresh_names(func, "u")
    return replace_path(func, above, For(Var(name), Const(1), target)), name
