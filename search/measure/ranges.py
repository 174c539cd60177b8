"""The ranges of inputs for which a function is defined: indices within their buffers, and no divisor of zero."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tir import dtypes
from tir.analysis.context import accesses_and_blocks
from tir.analysis.program_points import ProgramPoint
from tir.arith.bounds import bounds
from tir.arith.intervals import polynomial_bounds
from tir.arith.polynomial import polynomial
from tir.intrinsics import SHIFTS
from tir.ir import Binary, Block, Call, Cast, Const, Expr, Load, PrimFunc, Select, Unary
from tir.traverse import divisions, loads, stores, walk

Span = tuple[int, int]  # the least and the largest value

MAX_DIVISOR = 8  # largest drawn divisor, so that quotients are not all 0


def index_bounds(func: PrimFunc) -> dict[str, Span]:
    """Bounds on the elements of integer buffers, by name, that keep indices within the indexed dimensions. An index is
    considered if it is linear in an element, and its other terms are bounded."""
    found = Spans()
    for index, length, point in _indices(func):
        p = polynomial(point.closed(index))
        for m, factor in p.items():
            load = m[0].value if len(m) == 1 and isinstance(m[0], Cast) else m[0] if len(m) == 1 else None
            if isinstance(load, Load) and dtypes.is_int(load.dtype):
                low, high = polynomial_bounds({other: c for other, c in p.items() if other != m}, point.known)
                if low is not None and high is not None:
                    ends = (-low, length - 1 - high) if factor > 0 else (high - length + 1, low)
                    found.narrow(load, -(-ends[0] // abs(factor)), ends[1] // abs(factor))
    return {name: (low, high) for name, (low, high) in found.items() if low <= high}


def _indices(func: PrimFunc) -> Iterator[tuple[Expr, int, ProgramPoint]]:
    """The indices of all accesses, each with the length of the dimension and the place in the program."""
    for access, point in accesses_and_blocks(func.body, ProgramPoint()):
        for index, dim in () if isinstance(access, Block) else zip(access.indices, access.buffer.shape, strict=True):
            if isinstance(dim, Const):
                yield index, dim.value, point


def meaningful(func: PrimFunc, wanted: Mapping[str, Span] | None = None) -> dict[str, Span]:
    """Ranges of the elements of buffers, by name, for which a function is defined, as far as they can be derived. They keep
    indices within buffers, divisors positive, shifts below the width, and results in the `wanted` ranges."""
    found = Spans({**index_bounds(func), **(wanted or {})})
    for index, length, _ in _indices(func):
        read = {load.buffer.name for load in loads(index)}
        if len(read) == 1 and read.isdisjoint(found):  # not linear, as inside `min`, so that `index_bounds` gives no range
            found.demand(index, 0, length - 1)
    for n in divisions(func.body):
        if dtypes.is_int(n.dtype) and (bounds(n.b, {})[0] or 0) < 1:
            found.demand(n.b, 1, MAX_DIVISOR)
    for call in walk(func.body):
        if isinstance(call, Call) and call.op in SHIFTS:
            found.demand(call.args[1], 0, dtypes.bits(call.dtype) - 1)
    for s in reversed(stores(func.body)):
        if s.buffer.name in found:
            found.demand(s.value, *found[s.buffer.name])
    return dict(found)


class Spans(dict[str, Span]):
    """The spans of elements of buffers, by name."""

    def narrow(self, load: Load, low: int, high: int) -> None:
        """Narrow the range of a buffer's elements to these values."""
        limits = dtypes.limits(load.dtype) if dtypes.is_int(load.dtype) else (low, high)
        before = self.get(load.buffer.name, (int(limits[0]), int(limits[1])))
        self[load.buffer.name] = max(before[0], low), min(before[1], high)

    def demand(self, e: Expr, low: int, high: int) -> None:
        """Narrow the ranges of elements so that a simple expression lies between these two; no range becomes empty."""
        match e:
            case Load(buffer):
                least, most = self.get(buffer.name, (low, high))
                if max(low, least) <= min(high, most) and buffer.dtype != "bool":
                    self.narrow(e, low, high)
            case Cast(_, value) | Call("abs", (value,)):
                self.demand(value, low, high)
            case Unary("neg", value):
                self.demand(value, -high, -low)
            case Binary("+", value, Const(int(by))) | Binary("+", Const(int(by)), value):
                self.demand(value, low - by, high - by)
            case Binary("-", value, Const(int(by))):
                self.demand(value, low + by, high + by)
            case Binary("*" | "min" | "max", a, b):
                self.demand(a, low, high)
                self.demand(b, low, high)
            case Select(_, a, b):  # b first: in `i + n if i < 0 else i` it is the index from the front
                self.demand(b, low, high)
                self.demand(a, low, high)
