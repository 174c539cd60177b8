"""Loops that write consecutive vectors of an array past the caches, whatever its alignment."""

from __future__ import annotations

from collections.abc import Set
from math import gcd

from tir import dtypes
from tir.analysis.positions import position
from tir.arith.simplify import simplify
from tir.ir import Binary, Const, Expr, For, If, Kind, Load, Node, Stmt, Store
from tir.ir import nest as nest_of
from tir.traverse import iterations, rewrite, stores, substatements, substitute, variables

from ..passes.contiguous import contiguous, unit_stride
from ..runtime.alignment import ALIGNMENT
from .memory import STREAMED_ELEMENTS
from .values import Value
from .writer import Writer

MIN_SHIFTED_ITERATIONS = 8  # least iterations of a loop that is shifted to aligned vectors: two run once more


def stream_of(s: For, streamed: Set[str]) -> tuple[Store, list[For]] | None:
    """The store by which a serial loop writes vectors of an array in `streamed`, and the loops around it; None without one."""
    if s.kind is not Kind.SERIAL or not isinstance(s.extent, Const) or s.extent.value < MIN_SHIFTED_ITERATIONS:
        return None
    nest, body = [s], s.body
    while isinstance(body, For) and body.kind in (Kind.UNROLLED, Kind.VECTORIZED) and isinstance(body.extent, Const):
        nest.append(body)
        body = body.body
    if not isinstance(body, Store) or body.buffer.name not in streamed or nest[-1].kind is not Kind.VECTORIZED:
        return None
    unit, size = vector_bytes(body, nest), dtypes.nbytes(body.buffer.dtype)
    return (body, nest) if unit & (unit - 1) == 0 and size in STREAMED_ELEMENTS and contiguous(body, nest) else None


def vector_bytes(store: Store, nest: list[For]) -> int:
    """Bytes that the innermost of some loops stores at once."""
    return int(nest[-1].extent.value) * dtypes.nbytes(store.buffer.dtype)  # type: ignore[attr-defined]


def beside_streams(s: Stmt, streamed: Set[str], nbytes: int) -> bool:
    """True where a statement stores vectors of `nbytes` or more to `streamed` arrays outside of the loops of `stream_of`."""
    match s:
        case For(_, Const(), Store(buffer) as store, Kind.VECTORIZED) if buffer.name in streamed:
            return vector_bytes(store, [s]) >= nbytes
        case For() if stream_of(s, streamed):
            return False
        case For(lane, Const(), If(Binary("<", first, Const()), Store(), None), Kind.VECTORIZED) if first == lane:
            return False  # the last elements of a row
        case For(_, _, _, Kind.UNROLLED | Kind.VECTORIZED):
            return any(x.buffer.name in streamed for x in stores(s))
        case _:
            return any(beside_streams(x, streamed, nbytes) for x in substatements(s))


class Streams(Writer):
    """Writes loops of `stream_of`."""

    def streams(self, s: For) -> bool:
        """Write a loop if it stores consecutive vectors to an array that is not known to be aligned to them:

            for c in range(n): for v in range(w): Y[c * w + v] = f(c * w + v)         # v the lanes and the unrolled loops
         => d = elements from &Y[0] to the next multiple of a vector
            if d > 0: for v in range(w): t[v] = f(v)
                      for k in range(d): Y[k] = t[k]
            for c in range(n - (1 if d > 0 else 0)): for v in range(w): Y[c * w + v + d] = f(c * w + v + d)
            if d > 0: for v in range(w): t[v] = f((n - 1) * w + v)
                      for k in range(w - d): Y[(n - 1) * w + d + k] = t[d + k]

        All stores to Y bypass the caches. An ordinary store to a line that these write in part would wait for memory.
        """
        found = None if self.constants or self.mask or self.lane else stream_of(s, self.streamed.keys())
        if found is None:
            return False
        store, nest = found
        b, size, unit = store.buffer, dtypes.nbytes(store.buffer.dtype), min(ALIGNMENT, vector_bytes(store, nest))
        offset = position(b, [simplify(i, self.ranges) for i in store.indices])
        first = {m: c for m, c in offset.items() if not any(variables(atom) & {x.name for x in nest} for atom in m)}
        start = self.streamed[b.name] if b.name in self.given else ALIGNMENT
        if gcd(start, *(c * size for c in first.values())) % unit == 0:
            return False
        address = self.op(f"ptrtoint ptr {self.pointer_at(b, first)} to i64", "i64")
        before = self.op(f"sub i64 0, {address.name}", "i64")
        nbytes = self.op(f"and i64 {before.name}, {unit - 1}", "i64")
        shift = s.var.with_(name=f"{s.name}.shift.{self.count}")
        self.define(shift.name, self.op(f"udiv exact i64 {nbytes.name}, {size}", "i64"))
        self.ranges[shift.name] = 0, unit // size - 1
        shifted = self.op(f"icmp ne i64 {nbytes.name}, 0", "i1")

        def move(n: Node) -> Node | None:
            return _further(n, shift) if isinstance(n, Load | Store) and unit_stride(n, nest) == 1 else None

        last = int(s.extent.value) - 1  # type: ignore[attr-defined]
        count = self.op(f"select {shifted}, i64 {last}, i64 {last + 1}", "i64")
        self.shifted[b.name] = unit
        self.fork(shifted, lambda: self._end(store, nest, Const(0), Const(0), shift), None)
        self.serial_loop(s.with_(body=rewrite(s.body, move)), Value("0", "i64"), count, certain=True)
        self.fork(shifted, lambda: self._end(store, nest, Const(last), shift, Const(iterations(nest[1:])) - shift), None)
        del self.shifted[b.name]
        return True

    def _end(self, store: Store, nest: list[For], iteration: Const, first: Expr, count: Expr) -> None:
        """Write `count` of the elements that one iteration of a loop stores, from `first` on."""
        loop, *inner = nest
        end = store.buffer.with_(name=f"{store.buffer.name}.end.{self.count}", shape=(Const(iterations(inner)),))
        place: Expr = Const(0)
        for x in inner:
            place = place * x.extent + x.var
        index = loop.var.with_(name=f"{loop.name}.end.{self.count}")
        at = {loop.name: iteration, **{x.name: Const(0) for x in inner}}
        whole = nest_of(inner, store.with_(buffer=end, indices=(place,)))
        self.allocate(end)
        self.stmt(substitute(whole, {loop.name: iteration}))
        # As integers, for which there is a non-temporal store (MOVNTI).
        kind = f"int{dtypes.bits(end.dtype)}"
        copied = _further(substitute(store, at), first + index).with_(buffer=store.buffer.with_(dtype=kind))
        copied = copied.with_(value=Load(end.with_(dtype=kind), (first + index,)))
        self.stmt(For(index, count, copied))


def _further(access: Load | Store, distance: Expr) -> Load | Store:
    """An access that lies `distance` elements further."""
    return access.with_(indices=(*access.indices[:-1], access.indices[-1] + distance))
