"""Lowering: the list of passes from a scheduled function to one that a backend can write down."""

from __future__ import annotations

from collections.abc import Callable

from tir.ir import Const, For, Kind, PrimFunc, Stmt
from tir.simplify import simplify_tree
from tir.traverse import map_children, substitute

from .compact_buffers import compact_buffers
from .guards import clip_loops, version_guards
from .lanes import combine_lanes
from .lower_blocks import lower_blocks
from .order import order_unrolled
from .registers import promote_registers
from .unroll import unroll
from .unswitch import unswitch
from .vectors import split_vectors

Pass = Callable[[PrimFunc, object], PrimFunc]


def simplify_all(func: PrimFunc, target) -> PrimFunc:
    """Simplify every expression; loops of one iteration disappear."""

    def visit(s: Stmt) -> Stmt:
        if isinstance(s, For) and s.extent == Const(1, s.extent.dtype) and s.kind is not Kind.THREAD:
            return visit(substitute(s.body, {s.var: Const(0, s.var.dtype)}))  # type: ignore[arg-type]
        return map_children(s, lambda c: visit(c) if isinstance(c, Stmt) else c)  # type: ignore[return-value]

    return simplify_tree(func.with_(body=visit(func.body)))  # type: ignore[return-value]


# In order. Each takes and returns a whole function; `lower(..., after=name)` stops behind one of them.
CPU_PASSES: tuple[Pass, ...] = (
    lower_blocks,
    simplify_all,
    combine_lanes,
    compact_buffers,
    unswitch,
    clip_loops,
    version_guards,
    split_vectors,
    unroll,
    promote_registers,
    order_unrolled,
    simplify_all,
)


def pass_names() -> list[str]:
    """The names of the CPU passes; the second run of one is called `name_2`."""
    result: list[str] = []
    for p in CPU_PASSES:
        n = sum(x.split("_2")[0] == p.__name__ for x in result)
        result.append(p.__name__ if n == 0 else f"{p.__name__}_{n + 1}")
    return result


def lower(func: PrimFunc, target, after: str | None = None, observe: Callable[[str, PrimFunc], None] | None = None) -> PrimFunc:
    """The function after all passes, or after the one called `after`; `observe(name, func)` sees each result.

    Raises ValueError for a name that is not in `pass_names()`.
    """
    known = pass_names()
    if after is not None and after not in known:
        raise ValueError(f"there is no pass {after!r}; the passes are {', '.join(known)}")
    for name, run in zip(known, CPU_PASSES, strict=True):
        func = run(func, target)
        if observe is not None:
            observe(name, func)
        if name == after:
            break
    return func
