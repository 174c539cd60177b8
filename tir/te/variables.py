"""Sizes, axes of reductions, and the shapes and axes of tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from .. import dtypes
from ..ir import Const, Expr, Var, as_index, const, need_name, node


@node
class ReduceAxis(Expr):
    """A reduction variable over `range(start, start + extent)`, usable as an index and in expressions."""

    var: Var
    start: Expr
    extent: Expr

    @property
    def dtype(self) -> str:
        return self.var.dtype

    @property
    def value(self) -> Expr:
        return self.var if self.start == const(0, self.start.dtype) else self.var + self.start

    def text(self, show: Callable[[Expr], str]) -> str:
        return show(self.value)


def as_tuple(value) -> tuple:
    return tuple(value) if isinstance(value, (tuple, list)) else (value,)


def shape_of(shape, name: str) -> tuple[Expr, ...]:
    try:
        result = tuple(map(as_index, as_tuple(shape)))
    except TypeError as error:
        raise TypeError(f"{name}: a shape is a tuple of integers and sizes (te.var), got {shape!r}: {error}") from None
    for d in result:
        if isinstance(d, Const) and d.value < 0:
            raise ValueError(f"{name}: extents must be at least 0, got shape {tuple(str(d) for d in result)}".replace("'", ""))
    wide = {d.dtype for d in result if not isinstance(d, Const)} & {"int64"}  # one such size makes all axes int64
    return tuple(const(d.value, "int64") if wide and isinstance(d, Const) else d for d in result)


def var(name: str = "n", dtype: dtypes.DTypeLike = "int32") -> Var:
    """A symbolic size: a scalar parameter of the function, of an integer dtype."""
    of = dtypes.check(dtype)
    if not dtypes.is_int(of):
        raise TypeError(f"var {name}: a size must be an integer, got dtype {of}")
    return Var(need_name(name), of)


size_var = var


def reduce_axis(dom: tuple[int | Expr, int | Expr], name: str = "rv") -> ReduceAxis:
    """A reduction variable over `range(dom[0], dom[1])`, for the `axis` of a reducer.

    Raises TypeError where the domain is no pair of integers, and ValueError where it ends before it starts.
    """
    try:
        start, stop = (as_index(d) for d in dom)
    except (TypeError, ValueError) as error:
        raise TypeError(f"reduce_axis {name}: the domain must be a pair (start, stop) of integers, got {dom!r}") from error
    if isinstance(start, Const) and not isinstance(stop, Const):
        start = const(start.value, stop.dtype)
    extent = const(stop.value - start.value) if isinstance(start, Const) and isinstance(stop, Const) else stop - start
    if isinstance(extent, Const) and extent.value < 0:
        raise ValueError(f"reduce_axis {name}: the domain {dom!r} ends before it starts")
    return ReduceAxis(Var(need_name(name), extent.dtype), start, extent)


def axes_of(names: Iterable[str], extents: Sequence[Expr]) -> tuple[Var, ...]:
    return tuple(Var(n, e.dtype) for n, e in zip(names, extents, strict=True))
