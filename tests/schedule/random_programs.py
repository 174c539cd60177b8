"""Small random programs: stages of tensor expressions, loops with statements in no block, blocks by hand, lowered functions.

All values stay small integers, so that float sums are exact in any order.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import codegen
from tests.schedule import random_kinds
from tests.schedule.random_kinds import draw
from tir import te
from tir.ir import TRUE, Axis, Block, Buffer, Const, Expr, For, If, Iter, PrimFunc, Stmt, Store, Var, nest, seq
from tir.traverse import loops, replace_stmt

EXTENTS = (1, 2, 3, 4, 5, 7)
POINTS = 120  # elements of a tensor, at most: the interpreter is slow
TERMS = 15  # of a reduction, at most: float32 sums of such sums are exact


def program(rng: np.random.Generator) -> PrimFunc:
    """A random program."""
    if rng.random() < 0.4:
        return random_kinds.program(rng)
    kind = rng.random()
    if kind < 0.04:
        return partial(rng)
    if kind < 0.42:
        return stages(rng)
    if kind < 0.50:
        return sized(rng)
    if kind < 0.55:
        return windows(rng)
    if kind < 0.65:
        return matrix_chain(rng)
    if kind < 0.73:
        return statements(rng)
    if kind < 0.75:
        return scratch(rng)
    if kind < 0.82:
        return blocks_in_one_nest(rng)
    if kind < 0.88:
        return done_again(rng)
    if kind < 0.90:
        return gathers(rng)
    if kind < 0.92:
        return forms(rng)
    if kind < 0.94:
        return nested(rng)
    if kind < 0.97:
        return layers(rng)
    return codegen.lower(stages(rng) if rng.random() < 0.5 else matrix_chain(rng), codegen.Target("llvm"))


def stages(rng: np.random.Generator) -> PrimFunc:
    """One to four stages of tensor expressions: elementwise, windows with padding, reductions, several consumers and outputs."""
    dtype = draw(rng, ("float32", "float32", "float32", "float64", "int32", "int8", "uint8"))
    inputs = [te.placeholder(_shape(rng), dtype, name="AB"[n]) for n in range(int(rng.integers(1, 3)))]
    tensors = list(inputs)
    for n in range(int(rng.integers(1, 5))):
        tensors.append(_stage(rng, tensors, len(inputs), f"S{n}"))
    made = tensors[len(inputs) :]
    read = {id(t) for t in _read_by(made)}
    outputs = [t for n, t in enumerate(made) if n == len(made) - 1 or id(t) not in read or rng.random() < 0.2]
    return te.create_prim_func([*inputs, *outputs])


def _shape(rng: np.random.Generator) -> tuple[int, ...]:
    shape = [int(draw(rng, EXTENTS)) for _ in range(int(draw(rng, (0, 1, 1, 2, 2, 2, 3))))]
    while np.prod(shape, dtype=int) > POINTS:
        shape[int(np.argmax(shape))] = 2
    return tuple(shape)


def _read_by(tensors: list[te.Tensor]) -> list[te.Tensor]:
    from tir.te.functions import reads

    return [read.tensor for t in tensors for read in reads(t.op)]


def _stage(rng: np.random.Generator, tensors: list[te.Tensor], inputs: int, name: str) -> te.Tensor:
    source = tensors[-1] if rng.random() < 0.7 else draw(rng, tensors)
    dtype = source.dtype
    if rng.random() < 0.6 and source.shape:
        shape = tuple(int(d) for d in source.shape)
        if rng.random() < 0.3:
            shape = tuple(int(shape[k]) for k in rng.permutation(len(shape)))
    else:
        shape = _shape(rng)
    axes: list[te.ReduceAxis] = []
    terms: list[int] = []
    if rng.random() < 0.5:
        room = TERMS
        for r in range(int(rng.integers(1, 3))):
            extent = min(int(draw(rng, EXTENTS)), room)
            room = max(1, room // extent)
            terms.append(extent)
            axes.append(te.reduce_axis((0, extent), name=f"{name.lower()}r{r}"))

    def formula(*place: Expr) -> Expr:
        around = [(p, d) for p, d in zip(place, shape, strict=True)]
        around += [(a.value, d) for a, d in zip(axes, terms, strict=True)]
        value = _read(rng, source, around)
        what = rng.integers(7)
        other = draw(rng, tensors)
        if other.dtype != dtype:
            other = source
        if what == 0:
            value = value + _read(rng, other, around)
        elif what == 1 and any(source is t for t in tensors[:inputs]):
            value = value * _read(rng, draw(rng, tensors[:inputs]), around)
        elif what == 2:
            value = te.maximum(value, te.const(1, dtype))
        elif what == 3:
            value = value + te.const(int(rng.integers(0, 4)), dtype)
        elif what == 4 and around:
            x, d = draw(rng, around)
            value = draw(rng, (te.if_then_else, te.select))(x < max(1, d // 2), value, te.const(2, dtype))
        elif what == 5:
            value = value * te.const(2, dtype)
        if not axes:
            return value
        where = te.not_equal((axes[0].value + (place[0] if place else 0)) % 3, 1) if rng.random() < 0.15 else None
        return draw(rng, (te.sum, te.sum, te.max, te.min))(value, axis=axes, where=where)

    return te.compute(shape, formula, name=name)


def _read(rng: np.random.Generator, tensor: te.Tensor, around: list[tuple[Expr, int]]) -> Expr:
    """A read of `tensor` near a place, in bounds by its indices or by a guard; `around` are variables with their extents."""
    indices: list[Expr] = []
    guards: list[Expr] = []
    left = list(around)
    for dim in tensor.shape:
        size = int(dim)
        fitting = [n for n, (_, d) in enumerate(left) if d == size] or list(range(len(left)))
        if not fitting or rng.random() < 0.05:
            indices.append(te.const(int(rng.integers(size))))
            continue
        chosen = fitting[0] if rng.random() < 0.7 else draw(rng, fitting)
        x, extent = left[chosen] if rng.random() < 0.1 else left.pop(chosen)
        what = rng.integers(12)
        if what == 0:
            x = size - 1 - x
            if extent > size:
                guards.append(x >= 0)
        elif what == 1:
            x = x // 2
            if (extent + 1) // 2 > size:
                guards.append(x < size)
        elif what == 2:
            x = x % size
        elif what == 3 and 2 * extent - 1 <= size:
            x = x * 2
        elif what in (4, 5, 6):
            others = [(y, e) for y, e in around if y is not x]
            y, e = draw(rng, others) if others and rng.random() < 0.5 else (te.const(1), 2)
            sign = int(draw(rng, (1, -1)))
            low, high = (0, extent + e - 2) if sign > 0 else (-(e - 1), extent - 1)
            x = x + y if sign > 0 else x - y
            guards += [x >= 0] * (low < 0) + [x < size] * (high >= size)
        elif extent < size:
            x = x + int(rng.integers(size - extent + 1))
        elif extent > size:
            guards.append(x < size)
        indices.append(x)
    value = tensor(*indices)
    return te.if_then_else(te.all(*guards), value, te.const(0, tensor.dtype)) if guards else value


def matrix_chain(rng: np.random.Generator) -> PrimFunc:
    """A matmul or two, with something done to the result."""
    m, n, k, p = (int(draw(rng, EXTENTS[1:])) for _ in range(4))
    if rng.random() < 0.3:
        return biased(rng, m, n, k)
    if rng.random() < 0.2:
        return product_of_bytes(rng, m, n, k)
    A, B, E = te.placeholder((m, k), name="A"), te.placeholder((k, n), name="B"), te.placeholder((n, p), name="E")
    r, t = te.reduce_axis((0, k), name="k"), te.reduce_axis((0, n), name="n")
    C = te.compute((m, n), lambda i, j: te.sum(A[i, r] * B[r, j], axis=r), name="C")
    match rng.integers(4):
        case 0:
            return te.create_prim_func([A, B, C])
        case 1:
            D = te.compute((m, n), lambda i, j: te.maximum(C[i, j], 0.0), name="D")
            return te.create_prim_func([A, B, D])
        case 2:
            F = te.compute((m, p), lambda i, j: te.sum(C[i, t] * E[t, j], axis=t), name="F")
            return te.create_prim_func([A, B, E, F])
        case _:
            D = te.compute((m, n), lambda i, j: C[i, j] + 1.0, name="D")
            F = te.compute((m, p), lambda i, j: te.sum(D[i, t] * E[t, j], axis=t), name="F")
            return te.create_prim_func([A, B, E, F])


def biased(rng: np.random.Generator, m: int, n: int, k: int) -> PrimFunc:
    """A matmul to which a row or a matrix is added, perhaps from the other side, perhaps cut off below."""
    A, B = te.placeholder((m, k), name="A"), te.placeholder((k, n), name="B")
    whole = rng.random() < 0.5
    E = te.placeholder((m, n) if whole else (n,), name="E")
    r = te.reduce_axis((0, k), name="k")
    C = te.compute((m, n), lambda i, j: te.sum(A[i, r] * B[r, j], axis=r), name="C")
    left = rng.random() < 0.3

    def formula(i, j):
        e = E[i, j] if whole else E[j]
        return e + C[i, j] if left else C[i, j] + e

    D = te.compute((m, n), formula, name="D")
    if rng.random() < 0.4:
        return te.create_prim_func([A, B, E, te.compute((m, n), lambda i, j: te.maximum(D[i, j], 0.0), name="F")])
    return te.create_prim_func([A, B, E, D])


def product_of_bytes(rng: np.random.Generator, m: int, n: int, k: int) -> PrimFunc:
    """A matmul of int8, the sums int32."""
    A, B = te.placeholder((m, k), "int8", name="A"), te.placeholder((k, n), draw(rng, ("int8", "uint8")), name="B")
    r = te.reduce_axis((0, k), name="k")
    C = te.compute((m, n), lambda i, j: te.sum(A[i, r].astype("int32") * B[r, j].astype("int32"), axis=r), name="C")
    return te.create_prim_func([A, B, C])


def sized(rng: np.random.Generator) -> PrimFunc:
    """Stages over sizes that only a call knows: elementwise, windows, sums, a matmul, a transposition."""
    n, k = te.var("n"), draw(rng, (te.var("k"), 3, 5))
    A = te.placeholder((n, k), name="A")
    r = te.reduce_axis((0, k), name="r")
    given: list[Any] = [A]
    match rng.integers(5):
        case 0:
            C = te.compute((n, k), lambda i, j: A[i, j] + 1.0, name="C")
        case 1:
            C = te.compute((n,), lambda i: te.sum(A[i, r], axis=r), name="C")
        case 2:
            B = te.placeholder((k, n), name="B")
            C = te.compute((n, n), lambda i, j: te.sum(A[i, r] * B[r, j], axis=r), name="C")
            given.append(B)
        case 3:
            w = te.reduce_axis((0, 3), name="w")
            X = te.compute((n + 2, k), lambda i, j: te.if_then_else(te.all(i >= 1, i < n + 1), A[i - 1, j], 0.0), name="X")
            C = te.compute((n, k), lambda i, j: te.sum(X[i + w, j], axis=w), name="C")
        case _:
            C = te.compute((k, n), lambda i, j: A[j, i] * 2.0, name="C")
    made = [C]
    if rng.random() < 0.5:
        made.append(te.compute(C.shape, lambda *i: te.maximum(C(*i), 1.0), name="D"))
    return te.create_prim_func([*given, *(made if rng.random() < 0.2 else made[-1:]), n, *([k] if isinstance(k, Var) else [])])


def windows(rng: np.random.Generator) -> PrimFunc:
    """Two or three stages each element of which is a sum over a window of the stage before: rows that can be kept."""
    m, n = (int(draw(rng, EXTENTS[2:])) for _ in range(2))
    w, depth = int(draw(rng, (2, 3))), int(draw(rng, (1, 1, 2)))
    step = draw(rng, (1, 1, 2)) if w == 3 else 1
    rows = [m]
    for _ in range(depth):
        rows.append((rows[-1] - 1) * step + w)
    A = te.placeholder((rows[-1], n), name="A")
    last = te.compute((rows[-1], n), lambda i, j: A[i, j] + 1.0, name="B")
    for d in reversed(range(depth)):
        last = _window_sums(rng, last, rows[d], n, w, step, f"C{d}")
    return te.create_prim_func([A, last])


def _window_sums(rng: np.random.Generator, source: te.Tensor, m: int, n: int, w: int, step: int, name: str) -> te.Tensor:
    if rng.random() < 0.5:
        r = te.reduce_axis((0, w), name="r")
        return te.compute((m, n), lambda i, j: te.sum(source[i * step + r, j], axis=r), name=name)
    return te.compute((m, n), lambda i, j: source[i * step, j] + source[i * step + (w - 1), j], name=name)


def layers(rng: np.random.Generator) -> PrimFunc:
    """A padded temporary, sums of windows of it, and what is left after a maximum."""
    m, n, w = (int(draw(rng, EXTENTS[1:])) for _ in range(3))
    A = te.placeholder((m, n), name="A")
    r = te.reduce_axis((0, w), name="r")
    low = int(rng.integers(0, w))
    B = te.compute((m, n), lambda i, j: A[i, j] + 1.0, name="B")
    source = B if rng.random() < 0.5 else A
    P = te.compute((m, n + w - 1), lambda i, j: te.if_then_else(te.all(j >= low, j < n + low), source[i, j - low], 0.0), name="P")
    C = te.compute((m, n), lambda i, j: te.sum(P[i, j + r], axis=r), name="C")
    return te.create_prim_func([A, te.compute((m, n), lambda i, j: te.maximum(C[i, j], 0.0), name="D")])


def nested(rng: np.random.Generator) -> PrimFunc:
    """A chain of two or three stages, row by row inside blocks, through rows that one of the blocks allocates."""
    m, n = (int(draw(rng, EXTENTS)) for _ in range(2))
    A, B = (Buffer(x, (Const(m), Const(n))) for x in "AB")
    rows = [Buffer(f"row{s}", (Const(n),)) for s in range(int(rng.integers(1, 3)))]
    i, one, outer, inner = Var("i"), Var("one"), Var("v_i"), Var("v_one")
    stmts: list[Stmt] = []
    for s, (row, before) in enumerate(zip([*rows, None], [None, *rows], strict=True)):
        j, v = Var(f"j{s}"), Var("v_j")
        value = A[outer, v] + 1.0 if before is None else before[v] * 2.0
        store = Store(B, (outer, v), value) if row is None else Store(row, (v,), value)
        stmts.append(For(j, Const(n), Block(f"S{s}", (Iter(v, Const(n), Axis.SPATIAL, j),), store)))
    held = [b for b in rows if rng.random() < 0.7]
    deeper = Block("inner", (Iter(inner, Const(1), Axis.SPATIAL, one),), seq(*stmts), allocs=tuple(b for b in rows if b in held))
    block = Block(
        "outer",
        (Iter(outer, Const(m), Axis.SPATIAL, i),),
        For(one, Const(1), deeper),
        allocs=tuple(b for b in rows if b not in held),
    )
    return PrimFunc("main", (A, B), For(i, Const(m), block))


def statements(rng: np.random.Generator) -> PrimFunc:
    """Statements in no block, with dependences, some under a condition."""
    m, n = (int(draw(rng, EXTENTS)) for _ in range(2))
    buffers = [Buffer(x, (Const(m + 2), Const(n + 2))) for x in "AB"]
    i, j = Var("i"), Var("j")

    def place() -> tuple[Expr, Expr]:
        a, b = (int(x) for x in rng.integers(0, 3, 2))
        return (i + a, j + b) if rng.random() < 0.85 else (i + a, Const(b))

    def store() -> Stmt:
        target = draw(rng, buffers)
        value = te.maximum(draw(rng, buffers)[place()], draw(rng, buffers)[place()])
        made: Stmt = Store(target, place(), value + 1.0 if rng.random() < 0.5 else value)
        return If(i < max(1, m // 2), made) if rng.random() < 0.2 else made

    body = seq(*(store() for _ in range(int(rng.integers(1, 4)))))
    if rng.random() < 0.3:
        k, l = Var("k"), Var("l")
        again = Store(buffers[0], (k, l), buffers[1][k, l] + 2.0)
        return PrimFunc("main", tuple(buffers), seq(nest([(i, m), (j, n)], body), nest([(k, m), (l, n)], again)))
    return PrimFunc("main", tuple(buffers), nest([(i, m), (j, n)], body))


def scratch(rng: np.random.Generator) -> PrimFunc:
    """Statements in no block, of which each iteration passes its value on through places that others use too, perhaps in
    branches that each do so."""
    m, n = (int(draw(rng, EXTENTS)) for _ in range(2))
    A, B, t = Buffer("A", (Const(m), Const(n))), Buffer("B", (Const(m), Const(n))), Buffer("t", (Const(POINTS),))
    i, j = Var("i"), Var("j")
    place = draw(rng, (Const(0), i, j, j // 2, j % 2, i + j // 2))

    def part(name: str) -> Stmt:
        if rng.random() < 0.5:
            return seq(Store(t, (place,), A[i, j] + 1.0), Store(B, (i, j), t[place] * 2.0))
        f, g = Var(f"f{name}"), Var(f"g{name}")
        fill = For(f, Const(2), Store(t, (place + f,), A[i, j] + f.astype("float32")))
        return seq(fill, For(g, Const(1), Store(B, (i, j), t[place + 1 - g] * 2.0)))

    body = part("") if rng.random() < 0.6 else If(i < max(1, m // 2), part(""), part("1"))
    return PrimFunc("main", (A, B), nest([(i, m), (j, n)], body), allocs=(t,))


def blocks_in_one_nest(rng: np.random.Generator) -> PrimFunc:
    """Two blocks in one nest, the second reading what the first has written, or will write."""
    m, n = (int(draw(rng, EXTENTS)) for _ in range(2))
    A, B, C = (Buffer(x, (Const(m + 1), Const(n + 1))) for x in "ABC")
    i, j, vi, vj = Var("i"), Var("j"), Var("vi"), Var("vj")
    iters = (Iter(vi, Const(m), Axis.SPATIAL, i), Iter(vj, Const(n), Axis.SPATIAL, j))
    p, q = (int(x) for x in rng.integers(0, 2, 2))
    body = seq(
        Block("B", iters, Store(B, (vi, vj), A[vi, vj] + 1.0)), Block("C", iters, Store(C, (vi, vj), B[vi + p, vj + q] * 3.0))
    )
    return PrimFunc("main", (A, B, C), nest([(i, m), (j, n)], body))


def done_again(rng: np.random.Generator) -> PrimFunc:
    """A reduction, done again in every iteration of a loop around or inside its spatial loops."""
    m, n, k = (int(draw(rng, EXTENTS)) for _ in range(3))
    A = te.placeholder((m, k), name="A")
    r = te.reduce_axis((0, k), name="k")
    func = te.create_prim_func([A, te.compute((m,), lambda i: te.sum(A[i, r], axis=r), name="C")])
    target = draw(rng, loops(func)[:2])
    return func.with_(body=replace_stmt(func.body, target, For(Var("again"), Const(n), target)))


def partial(rng: np.random.Generator) -> PrimFunc:
    """Blocks whose loops leave out a part of the domains of their axes: at an end, above a diagonal, or every other step
    of a reduction."""
    m, n = (int(draw(rng, EXTENTS[2:])) for _ in range(2))
    first, rows, columns = int(rng.integers(2)), int(rng.integers(2, m + 1)), int(rng.integers(1, n + 1))
    diagonal = rng.random() < 0.2 and rows <= n
    sums = rng.random() < 0.5
    step = 2 if sums and rng.random() < 0.2 and 2 * columns - 1 <= n else 1
    A = Buffer("A", (Const(rows), Const(n)))
    B = Buffer("B", (Const(m),) if sums else (Const(m), Const(n)))
    C = Buffer("C", (Const(m), Const(n)))
    i, j, vi, vj, x, y = (Var(name) for name in ("i", "j", "vi", "vj", "x", "y"))
    iters = (
        Iter(vi, Const(m), Axis.SPATIAL, i + first),
        Iter(vj, Const(n), Axis.REDUCE if sums else Axis.SPATIAL, j if diagonal else j * step),
    )
    where = te.all(i < rows - 1) if rng.random() < 0.2 else TRUE
    value = A[vi, vj] * 2.0
    body = Store(B, (vi,), B[vi] + value) if sums else Store(B, (vi, vj), value)
    made = Block("B", iters, body, Store(B, (vi,), Const(0.0, "float32")) if sums else None, where)
    nested = nest([(i, Const(rows - first)), (j, i + first + 1 if diagonal else Const(columns))], made)
    run = [x >= first, x < (rows - 1 if where != TRUE and first == 0 else rows)]
    if not sums:
        run.append(y <= x if diagonal else y < columns)
    read = te.if_then_else(te.all(*run), B[x] if sums else B[x, y], te.const(1, "float32"))
    p, q = Var("p"), Var("q")
    reader = Block("C", (Iter(x, Const(m), Axis.SPATIAL, p), Iter(y, Const(n), Axis.SPATIAL, q)), Store(C, (x, y), read + 1.0))
    return PrimFunc("main", (A, C), seq(nested, nest([(p, Const(m)), (q, Const(n))], reader)), (B,))


def gathers(rng: np.random.Generator) -> PrimFunc:
    """Reads at places that are themselves read from memory."""
    m, n = (int(draw(rng, EXTENTS)) for _ in range(2))
    A, I = te.placeholder((n,), name="A"), te.placeholder((m,), "int32", name="I")
    B = te.compute((n,), lambda i: A[i] + 1.0, name="B")
    C = te.compute((m,), lambda i: B[I[i] % n], name="C")
    D = te.compute((m,), lambda i: C[i] * 2.0 + B[i % n], name="D")
    return te.create_prim_func([A, I, *([C] if rng.random() < 0.3 else []), D])


def forms(rng: np.random.Generator) -> PrimFunc:
    """A running sum or maximum, values stored at computed places, or the place of the largest value, and what is made of it by
    operators of integers."""
    m, n = (int(draw(rng, EXTENTS)) for _ in range(2))
    X = te.placeholder((m, n), "int32", name="X")
    match int(rng.integers(3)):
        case 0:
            axis, combine = int(rng.integers(2)), draw(rng, (te.maximum, lambda x, y: x + y))

            def running(y, i, j):
                at, before = ((i, y[i - 1, j]), (j, y[i, j - 1]))[axis]
                return te.if_then_else(at >= 1, combine(X[i, j], before), X[i, j])

            made = te.scan((m, n), running, axis, "int32", name="Y")
        case 1:
            u = int(draw(rng, EXTENTS))
            I, U = te.placeholder((u,), "int32", name="I"), te.placeholder((u, n), "int32", name="U")
            Y = te.scatter(X, (u, n), lambda y, k, j: ((I[k] % m, j), y[I[k] % m, j] + U[k, j], U[k, j] > 0), name="Y")
            return te.create_prim_func([X, I, U, Y, _formula(rng, Y)])
        case _:
            r = te.reduce_axis((0, n), name="r")
            place, best = te.compute((m,), lambda i: draw(rng, (te.argmax, te.argmin))((r, X[i, r]), axis=r), name="Y")
            made = te.compute((m, n), lambda i, j: place[i] * 2 + best[i] - X[i, j], name="Z")
    return te.create_prim_func([X, _formula(rng, made)])


def _formula(rng: np.random.Generator, made: te.Tensor) -> te.Tensor:
    """Operators of integers on each element."""
    operators = (
        lambda x: te.floordiv(x, 3) + te.floormod(x, 3),
        lambda x: te.clip(x, -2, 5),
        lambda x: te.bitwise_xor(te.shift_left(x, 1), te.bitwise_not(x)),
        lambda x: te.abs(x) - te.ceildiv(x, 2),
        lambda x: te.round(x.astype("float32") * 0.5).astype("int32"),
        lambda x: te.trunc(x.astype("float32") * 0.5).astype("int32"),
    )
    chosen = draw(rng, operators)
    return te.compute(made.shape, lambda *i: chosen(made(*i)), name="F")
