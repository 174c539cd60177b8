"""Blocks in loops, with little or nothing in them: enough for questions about their iteration variables."""

from __future__ import annotations

from collections.abc import Iterator

from tir.arith.enumeration import evaluate
from tir.ir import NOTHING, Axis, Block, Buffer, Expr, For, Iter, Stmt, Store, Var, as_expr, conjunction

i, j, k, n = (Var(name) for name in "ijkn")
v0, v1, t, u = (Var(name) for name in ("v0", "v1", "t", "u"))


def spatial(extent, binding) -> tuple:
    return Axis.SPATIAL, extent, binding


def reduce(extent, binding) -> tuple:
    return Axis.REDUCE, extent, binding


def opaque(extent, binding) -> tuple:
    return Axis.OPAQUE, extent, binding


def block(*axes: tuple, where: tuple[Expr, ...] = (), body: Stmt = NOTHING, **more) -> Block:
    """The block `B` with the axes `v0`, `v1`, ..., which runs under some conditions; `more` are other fields of blocks."""
    iters = []
    for number, (axis, extent, binding) in enumerate(axes):
        bound = as_expr(binding)
        iters.append(Iter(Var(f"v{number}", bound.dtype), as_expr(extent), axis, bound))
    return Block("B", tuple(iters), body, predicate=conjunction(*where)).with_(**more)


def stored(buffer: Buffer, *indices, value=0.0) -> Store:
    return Store(buffer, tuple(map(as_expr, indices)), as_expr(value, buffer.dtype))


def loops(**extents) -> list[For]:
    """Loops of these names, the outermost first."""
    ends = {name: as_expr(extent) for name, extent in extents.items()}
    return [For(Var(name, end.dtype), end, NOTHING) for name, end in ends.items()]


def iterations(inner: list[For], values: dict[str, int]) -> Iterator[dict[str, int]]:
    """The values of the loops of a nest in all of its iterations, and those of the variables around it."""
    if not inner:
        yield values
        return
    first, *rest = inner
    for value in range(int(evaluate(first.extent, values))):
        yield from iterations(rest, {**values, first.name: value})


def points(b: Block, inner: list[For], values: dict[str, int]) -> set[tuple[int, ...]]:
    """Where a block runs in a nest of loops: the values of its spatial axes."""
    runs = (at for at in iterations(inner, values) if evaluate(b.predicate, at))
    return {tuple(int(evaluate(it.binding, at)) for it in b.spatial) for at in runs}
