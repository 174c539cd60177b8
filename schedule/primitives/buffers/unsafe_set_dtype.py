"""unsafe_set_dtype: a temporary in another dtype."""

from __future__ import annotations

from math import copysign, isfinite

from tir import dtypes
from tir.analysis.context import accesses
from tir.arith.bounds import bounds
from tir.arith.intervals import Ranges
from tir.ir import Cast, Const, Expr, Load, Node, PrimFunc, Select, Store, cast
from tir.nearest import did_you_mean
from tir.traverse import rewrite

from ...error import ScheduleError
from ...legality.dataflow import buffer_of
from ...primitive import BlockName, BufferPlace, find_block, need_not_parameter, primitive


@primitive
def unsafe_set_dtype(func: PrimFunc, block: BlockName, buffer_index: BufferPlace, dtype: str) -> tuple[PrimFunc, None]:
    """Store a temporary in another dtype. The name is TensorIR's, but here the step is checked to be exact.

    The buffer is given by its number among those that `block` writes, from 0, or by name. Stored values are converted to `dtype`,
    and loaded ones back. If `dtype` holds all values of the old dtype, loaded values that are cast further are cast directly.

    Rewrite   X = T.alloc_buffer(shape, "int32");  X[i] = x;  S(X[i])
           => X = T.alloc_buffer(shape, "int8");  X[i] = T.Cast("int8", x);  S(T.Cast("int32", X[i]))
    Legal     if the buffer is a temporary, and `dtype` can hold each value stored in it. Such a value is converted from a
              narrower dtype, a constant, an integer with bounds that fit, or a choice of these.
    Example   chain: s.unsafe_set_dtype("B", 0, "float64")
    """
    writer = find_block(func, block)
    buffer = buffer_of(writer, buffer_index, written=True)
    mark = (writer, f"writes {buffer.name}")
    if dtype not in dtypes.TABLE:
        known = ", ".join(dtypes.TABLE)
        raise ScheduleError(f"`{dtype}` is no dtype; these are {known}", hint=did_you_mean(dtype, dtypes.TABLE))
    hint = f"cache_write({block!r}, {buffer_index!r}, 'global')"
    need_not_parameter(func, buffer, "holds what the caller put there", mark, hint)
    if dtype == buffer.dtype:
        raise ScheduleError(f"`{buffer.name}` holds {dtype} already", mark, hint="there is nothing to change")
    for s, around in accesses(func.body):
        if type(s) is Store and s.buffer.name == buffer.name and not _fits(around.closed(s.value), dtype, around.ranges({})):
            raise ScheduleError(
                f"`{buffer.name}` holds `{s.value}` of {s.value.dtype}, which {dtype} may not hold exactly",
                (s, f"stores to {buffer.name}"),
                hint=f"store a value that {dtype} holds: x.astype({dtype!r}) in the program rounds it",
            )
    new, wider = buffer.with_(dtype=dtype), dtypes.holds(dtype, buffer.dtype)

    def visit(n: Node) -> Node | None:
        match n:
            case Cast(to, Cast(_, Load() as load)) if wider and load.buffer.name == buffer.name:
                return cast(load, to)
            case Load() if n.buffer.name == buffer.name:
                return Cast(buffer.dtype, n.with_(buffer=new))
            case Store() if n.buffer.name == buffer.name:
                return n.with_(buffer=new, value=_in_dtype(n.value, dtype))
        return None

    func = rewrite(func, visit)
    return rewrite(func, lambda n: new if n == buffer else None), None


def _in_dtype(value: Expr, dtype: str) -> Expr:
    """A value in another dtype; an exact cast from this dtype is undone."""
    match value:
        case Cast(wide, inner) if inner.dtype == dtype and dtypes.holds(wide, dtype):
            return inner
    return cast(value, dtype)


def _fits(value: Expr, dtype: str, ranges: Ranges) -> bool:
    """True where a dtype can hold a value exactly."""
    if dtypes.holds(dtype, value.dtype):
        return True
    match value:
        case Const(number):
            whole = isfinite(number) and number == int(number) and (number != 0 or copysign(1.0, number) > 0)
            return whole and _within(int(number), int(number), dtype)
        case Cast(_, inner):
            return dtypes.holds(value.dtype, inner.dtype) and _fits(inner, dtype, ranges)
        case Select(_, a, b):
            return _fits(a, dtype, ranges) and _fits(b, dtype, ranges)
    if not dtypes.is_int(value.dtype):
        return False
    low, high = bounds(value, ranges)
    return low is not None and high is not None and _within(low, high, dtype)


def _within(low: int, high: int, dtype: str) -> bool:
    least, most = (-exact, exact) if (exact := dtypes.exact_integers(dtype)) else dtypes.limits(dtype)
    return least <= low and high <= most
