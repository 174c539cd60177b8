"""Random programs of all dtypes and index widths: sums of terms of many kinds, buffers of blocks, temporaries of several writers.

All values stay integers that each dtype on the way holds, so that sums are exact in any order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tir import dtypes, te
from tir.ir import Axis, Block, Buffer, Const, Expr, For, If, Iter, Kind, PrimFunc, Stmt, Store, Var, cast, const, nest, seq
from tir.traverse import blocks, loops, rewrite_statements, substitute

EXTENTS = (1, 1, 2, 3, 4, 5, 7, 13)
DTYPES = ("float32", "float32", *dtypes.TABLE)
TERMS = 12  # of a reduction, at most
LARGEST_INPUT = 3


def draw(rng: np.random.Generator, options: Any) -> Any:
    """One of `options`, as it is."""
    return options[int(rng.integers(len(options)))]


def largest(dtype: str) -> int:
    """An integer up to which a dtype, and the sums of a few of such, are exact."""
    if dtypes.is_float(dtype):
        return min(int(1 / dtypes.TABLE[dtype].eps), 1 << 20)
    return min(int(dtypes.limits(dtype)[1]) // 2, 1 << 20)


def _int(dim: Any) -> int:
    return int(getattr(dim, "value", dim))


@dataclass(frozen=True)
class Value:
    """A tensor, and a bound on its elements."""

    tensor: te.Tensor
    bound: int

    @property
    def dtype(self) -> str:
        return self.tensor.dtype


# --- stages -----------------------------------------------------------------------------------------------------------------


class Stages:
    """Stages of tensor expressions, each of one or several terms, of one dtype or converted."""

    def __init__(self, rng: np.random.Generator):
        self.rng = rng
        dtype = draw(rng, DTYPES)
        self.inputs = [Value(te.placeholder(self.shape(), dtype, name=n), LARGEST_INPUT) for n in "AB"[: int(rng.integers(1, 3))]]
        index = draw(rng, ("int32", "int32", "int64", "int8", "uint8"))
        self.places = Value(te.placeholder((int(draw(rng, EXTENTS)),), index, name="P"), LARGEST_INPUT)
        self.values = list(self.inputs)
        self.gathers = False

    def extent(self, n: int) -> Any:
        return te.const(n, "int64") if self.rng.random() < 0.25 else n

    def size(self) -> int:
        """An extent, now and then of nothing."""
        return int(draw(self.rng, EXTENTS)) if self.rng.random() > 0.02 else 0

    def shape(self) -> tuple[Any, ...]:
        sizes = [self.size() for _ in range(int(draw(self.rng, (0, 1, 1, 2, 2, 3))))]
        while np.prod(sizes, dtype=int) > 100:
            sizes[int(np.argmax(sizes))] = 2
        return tuple(map(self.extent, sizes))

    def func(self) -> PrimFunc:
        for n in range(int(self.rng.integers(1, 4))):
            self.values.append(self.stage(f"S{n}"))
        made = [v.tensor for v in self.values[len(self.inputs) :]]
        outputs = [t for n, t in enumerate(made) if n == len(made) - 1 or self.rng.random() < 0.2]
        given = [v.tensor for v in self.inputs] + [self.places.tensor] * self.gathers
        return te.create_prim_func([*given, *outputs])

    def stage(self, name: str) -> Value:
        rng, source = self.rng, draw(self.rng, self.values[-2:])
        dtype = source.dtype
        same = rng.random() < 0.6 and source.tensor.shape
        shape = tuple(self.extent(_int(d)) for d in source.tensor.shape) if same else self.shape()
        axes, extents, left = [], [], TERMS
        for r in range(int(draw(rng, (0, 0, 1, 1, 2)))):
            extents.append(min(self.size(), left))
            left = max(1, left // max(1, extents[-1]))
            axes.append(te.reduce_axis((0, self.extent(extents[-1])), name=f"{name.lower()}r{r}"))
        bound = 0

        def formula(*place: Expr) -> Expr:
            nonlocal bound
            around = [(p, _int(d)) for p, d in zip(place, shape, strict=True)]
            around += [(a.value, d) for a, d in zip(axes, extents, strict=True)]
            value, bound = self.term(source, around)
            count = max(1, int(np.prod(extents, dtype=int)))
            for _ in range(int(draw(rng, (0, 0, 1, 2)))):
                other = draw(rng, [v for v in self.values if v.dtype == dtype])
                more, size = self.term(other, around)
                if dtype == "bool":
                    value = draw(rng, (te.all, te.any))(value, more)
                elif bound * size * count <= largest(dtype) and rng.random() < 0.3:
                    value, bound = value * more, bound * size
                elif (bound + size) * count <= largest(dtype):
                    value, bound = value + more, bound + size
                else:
                    value, bound = te.maximum(value, more), max(bound, size)
            if not axes:
                return value
            if bound * count <= largest(dtype) and dtype != "bool" and rng.random() < 0.6:
                bound *= count
                return draw(rng, (te.sum, te.sum, ADD))(value, axis=axes)
            return draw(rng, (ANY, ALL) if dtype == "bool" else (te.max, te.min, LARGEST))(value, axis=axes)

        tensor = te.compute(shape, formula, name=name)
        return self.converted(Value(tensor, bound), name) if rng.random() < 0.25 else Value(tensor, bound)

    def converted(self, value: Value, name: str) -> Value:
        """The values in another dtype that holds them."""
        signed = value.dtype != "bool" and not value.dtype.startswith("u")
        fitting = [d for d in dtypes.TABLE if largest(d) >= value.bound and d != value.dtype and not (signed and d[0] in "ub")]
        fitting += ["bfloat16"] * (value.bound <= largest("bfloat16"))
        dtype = draw(self.rng, fitting or [value.dtype])
        return Value(te.compute(value.tensor.shape, lambda *i: value.tensor(*i).astype(dtype), name=f"{name}c"), value.bound)

    def term(self, source: Value, around: list[tuple[Expr, int]]) -> tuple[Expr, int]:
        """One term: a read near a place or at one place, a number, a choice by an index or by what is read."""
        rng, dtype = self.rng, source.dtype
        what = int(rng.integers(12))
        if what == 0:
            return self.number(dtype)
        if what == 1:
            return self.read(source, []), source.bound  # the same in all iterations
        if what == 2 and around and dtype != "bool":
            x, n = draw(rng, around)
            if n - 1 <= largest(dtype) // TERMS // 4:
                return te.maximum(x, 0).astype(dtype) if rng.random() < 0.3 else x.astype(dtype), n
        value, bound = self.read(source, around), source.bound
        if what in (3, 4) and around:
            x, n = draw(rng, around)
            other, size = self.number(dtype)
            choose = draw(rng, (te.if_then_else, te.select))
            return choose(x < max(1, n // 2), *((value, other) if what == 3 else (other, value))), max(bound, size)
        if what == 5 and dtype != "bool":
            other, size = self.number(dtype)
            return te.select(value > te.const(1, dtype), value, other), max(bound, size)
        return value, bound

    def number(self, dtype: str) -> tuple[Expr, int]:
        n = int(self.rng.integers(0 if dtype[0] in "ub" and dtype != "bfloat16" else -3, 4))
        return te.const(bool(n % 2) if dtype == "bool" else n, dtype), abs(n)

    def read(self, source: Value, around: list[tuple[Expr, int]]) -> Expr:
        """A read in bounds, by its indices, or by a guard with padding that need not be 0."""
        rng, guards, indices = self.rng, [], []
        left = list(around)
        for dim in source.tensor.shape:
            size = _int(dim)
            if size == 0:  # of which nothing is read
                indices.append(te.const(0))
                guards.append(te.const(False))
                continue
            if not left or rng.random() < 0.1:
                indices.append(te.const(int(rng.integers(size)), draw(rng, ("int32", "int64"))))
                continue
            fitting = [n for n, (_, d) in enumerate(left) if d == size] or list(range(len(left)))
            x, extent = left.pop(fitting[0] if rng.random() < 0.7 else draw(rng, fitting))
            indices.append(self.index(x, extent, size, guards))
        value = source.tensor(*indices)
        return te.if_then_else(te.all(*guards), value, self.number(source.dtype)[0]) if guards else value

    def index(self, x: Expr, extent: int, size: int, guards: list[Expr]) -> Expr:
        """An index below `size` of a variable below `extent`."""
        rng = self.rng
        match int(rng.integers(16)):
            case 0:
                return te.minimum(te.maximum(x - 1, 0), size - 1)
            case 1:
                return te.select(x < max(1, extent // 2), x % size, (x + 1) % size)
            case 2:
                return (x % size).astype(draw(rng, ("int64", "int32")))
            case 3:
                self.gathers = True
                places = self.places.tensor
                loaded = places[x % _int(places.shape[0])]
                return te.minimum(te.maximum(loaded, te.const(0, loaded.dtype)), te.const(size - 1, loaded.dtype))
            case 4:
                self.gathers = True
                places = self.places.tensor
                return (x + te.maximum(places[x % _int(places.shape[0])], 0).astype("int32")) % size
            case 5:
                by = int(rng.integers(1, 3))
                guards += [x - by >= 0, x - by < size]
                return x - by
            case 6:
                by = int(rng.integers(1, 3))
                guards.append(x + by < size)
                return x + by
            case 7:
                return size - 1 - x if extent <= size else (size - 1 - x) % size
            case 8:
                return x // 2 % size
        if extent > size:
            guards.append(x < size)
        return x


ADD = te.comm_reducer(lambda x, y: x + y, lambda t: te.const(0, t), name="add")
LARGEST = te.comm_reducer(lambda x, y: te.select(x > y, x, y), lambda t: te.min_value(t), name="largest")
ANY = te.comm_reducer(lambda x, y: te.any(x, y), lambda t: te.const(False, t), name="any")
ALL = te.comm_reducer(lambda x, y: te.all(x, y), lambda t: te.const(True, t), name="all")


# --- temporaries --------------------------------------------------------------------------------------------------------------


def _elements(name: str, shape: tuple[int, ...], value: Callable[..., Stmt], tag: str = "") -> Stmt:
    """Loops around one block, of which `value` gives the body at its axes."""
    around = [Var(f"{name}{tag}_{n}") for n in range(len(shape))]
    axes = [Var(f"v{n}") for n in range(len(shape))]
    iters = tuple(Iter(v, Const(d), Axis.SPATIAL, x) for v, d, x in zip(axes, shape, around, strict=True))
    return nest(zip(around, map(Const, shape), strict=True), Block(f"{name}{tag}", iters, value(*axes)))


def rewritten(rng: np.random.Generator) -> PrimFunc:
    """A temporary that two or three blocks write: in place, one part each, a sum onto what is there; what reads it in between
    or at the end."""
    dtype = draw(rng, ("float32", "float32", "int32", "int64", "float64"))
    m, n, k = (int(draw(rng, EXTENTS)) for _ in range(3))
    A, B, C, D = (Buffer(x, (Const(m), Const(n)), dtype) for x in "ABCD")
    E = Buffer("E", (Const(m), Const(k)), dtype)
    two = const(2, dtype)
    stmts: list[Stmt] = [_elements("B", (m, n), lambda i, j: Store(B, (i, j), A[i, j] * two))]
    if m > 1 and rng.random() < 0.3:
        h = int(rng.integers(1, m))
        stmts = [
            _elements("B", (h, n), lambda i, j: Store(B, (i, j), A[i, j] * two), "low"),
            _elements("B", (m - h, n), lambda i, j: Store(B, (i + h, j), A[i + h, j] + two), "high"),
        ]
    outputs = [C]
    for t in range(int(draw(rng, (1, 1, 2)))):
        match int(rng.integers(4)):
            case 0:
                stmts.append(_elements("B", (m, n), lambda i, j: Store(B, (i, j), B[i, j] + two), f"again{t}"))
            case 1:
                stmts.append(_elements("B", (m, n), lambda i, j: Store(B, (i, j), te.maximum(B[i, j], A[i, j])), f"most{t}"))
            case 2:
                i, j, r, vi, vj, vr = (Var(f"{x}{t}") for x in ("i", "j", "r", "vi", "vj", "vr"))
                iters = (
                    Iter(vi, Const(m), Axis.SPATIAL, i),
                    Iter(vj, Const(n), Axis.SPATIAL, j),
                    Iter(vr, Const(k), Axis.REDUCE, r),
                )
                update = Block(f"sum{t}", iters, Store(B, (vi, vj), B[vi, vj] + E[vi, vr]))
                stmts.append(nest([(i, Const(m)), (j, Const(n)), (r, Const(k))], update))
            case _:
                stmts.append(_elements("B", (1, n), lambda i, j: Store(B, (i, j), A[i, j] - two), f"row{t}"))
        if t == 0 and D not in outputs and rng.random() < 0.3:
            stmts.append(_elements("D", (m, n), lambda i, j: Store(D, (i, j), B[i, j] + two)))
            outputs.append(D)
    stmts.append(_elements("C", (m, n), lambda i, j: Store(C, (i, j), B[i, j] + const(1, dtype))))
    return PrimFunc("main", (A, E, *outputs), seq(*stmts), (B,))


def owning(rng: np.random.Generator) -> PrimFunc:
    """Blocks with buffers of their own, one in another, some opaque: rows or single elements, written under a condition, in a loop
    or unrolled, in one width of index or in both."""
    dtype = draw(rng, DTYPES[:-1])
    m, n = (int(draw(rng, EXTENTS)) for _ in range(2))
    wide = rng.random() < 0.3

    def size(x: int) -> Const:
        return Const(x, "int64" if wide else "int32")

    A, B = (Buffer(x, (size(m), size(n)), dtype) for x in "AB")
    row = Buffer("row", (size(n),), dtype, draw(rng, ("global", "local")))
    i, j, k, v = (Var(x, size(1).dtype) for x in ("i", "j", "k", "v"))
    one = const(1, dtype)
    filled: Stmt = Store(row, (j,), _plus(A[v, j], one))
    if rng.random() < 0.4:
        filled = seq(Store(row, (j,), one), If(j < size(max(1, n // 2)), filled))
    place = draw(rng, (k, size(n - 1) - k, Const(0, k.dtype)))
    used: Stmt = Store(B, (v, k), _plus(row[place], A[v, k]))
    kinds = (Kind.SERIAL, Kind.SERIAL, Kind.UNROLLED)
    body = seq(For(j, size(n), filled, draw(rng, kinds)), For(k, size(n), used, draw(rng, kinds)))
    if rng.random() < 0.3:  # a block of one iteration around the second part
        u = Var("u", k.dtype)
        body = seq(
            For(j, size(n), filled),
            For(k, size(n), Block("part", (Iter(u, size(n), Axis.SPATIAL, k),), substitute(used, {k: u}))),
        )
    axis = Axis.OPAQUE if rng.random() < 0.15 else Axis.SPATIAL
    block: Stmt = Block("rows", (Iter(v, size(m), axis, i),), body, allocs=(row,))
    made = For(i, size(m), block)
    if rng.random() < 0.3:
        C = Buffer("C", (size(m), size(n)), dtype)
        x, y = (Var(x, k.dtype) for x in ("x", "y"))
        p, q = (Var(x, k.dtype) for x in ("p", "q"))
        iters = (Iter(p, size(m), Axis.SPATIAL, x), Iter(q, size(n), Axis.SPATIAL, y))
        after = Block("C", iters, Store(C, (p, q), _plus(B[p, q], one)))
        return PrimFunc("main", (A, C), seq(made, nest([(x, size(m)), (y, size(n))], after)), (B,))
    return PrimFunc("main", (A, B), made)


def _plus(a: Expr, b: Expr) -> Expr:
    return te.any(a, b) if a.dtype == "bool" else a + b


# --- widths -------------------------------------------------------------------------------------------------------------------


def widened(rng: np.random.Generator, func: PrimFunc) -> PrimFunc:
    """`func` with some of its loops, and some axes of its blocks, of 64 bits."""

    def visit(s: Stmt) -> Stmt:
        if isinstance(s, For) and isinstance(s.extent, Const) and s.var.dtype == "int32" and rng.random() < 0.5:
            new = s.var.with_(dtype="int64")
            return s.with_(var=new, extent=s.extent.with_(dtype="int64"), body=substitute(s.body, {s.var: new}))
        if isinstance(s, Block) and not blocks(s.body) and rng.random() < 0.5:
            chosen = {
                it.var.name: it.var.with_(dtype="int64") for it in s.iters if it.var.dtype == "int32" and rng.random() < 0.5
            }
            inner = substitute(s.with_(iters=(), predicate=Const(True, "bool")), chosen)
            iters = tuple(
                it.with_(var=chosen[it.var.name], extent=_wide(it.extent)) if it.var.name in chosen else it for it in s.iters
            )
            return inner.with_(iters=iters, predicate=s.predicate)
        return s

    return func.with_(body=rewrite_statements(func.body, visit)) if loops(func) else func


def _wide(e: Expr) -> Expr:
    return e.with_(dtype="int64") if isinstance(e, Const) else cast(e, "int64")


def program(rng: np.random.Generator) -> PrimFunc:
    """A random program of these kinds."""
    match int(rng.integers(8)):
        case 0:
            return rewritten(rng)
        case 1:
            return owning(rng)
        case 2:
            return widened(rng, rewritten(rng))
        case _:
            return Stages(rng).func()
