"""Random functions with every kind of node."""

from __future__ import annotations

import math

import numpy as np

from tir.ir import (
    Allocate,
    Axis,
    Binary,
    Block,
    Buffer,
    Call,
    Cast,
    Const,
    Evaluate,
    Expr,
    For,
    If,
    Iter,
    Kind,
    Let,
    Load,
    PrimFunc,
    Range,
    Region,
    Select,
    Stmt,
    Store,
    Unary,
    Var,
    const,
    seq,
)


class RandomFunction:
    """A random function with every kind of node, well formed or not quite: what matters is that nothing is lost in print."""

    def __init__(self, seed: int):
        self.rng = np.random.default_rng(seed)
        self.taken = 0
        self.buffers = [
            Buffer("A", (const(7), const(13))),
            Buffer("B", (const(5),), "int8"),
            Buffer("C", (), "float64", "shared"),
        ]
        self.sizes = [Var("n"), Var("m", "int64")]
        self.buffers.append(Buffer("D", (self.sizes[0], self.sizes[0] * 2 + 1, Const(3, "int64")), "bfloat16"))

    def pick(self, items):
        return items[int(self.rng.integers(len(items)))]

    def name(self, prefix: str) -> str:
        self.taken += 1
        return f"{prefix}{self.taken}"

    def integer(self, scope: list[Var], dtype: str = "int32", depth: int = 2) -> Expr:
        if depth == 0:
            variables = [v for v in scope if v.dtype == dtype]
            if variables and self.rng.random() < 0.6:
                return self.pick(variables)
            return Const(self.pick([0, 1, 7, -1, -13, 127]), dtype)
        a, b = self.integer(scope, dtype, depth - 1), self.integer(scope, dtype, int(self.rng.integers(depth)))
        match self.pick(["binary", "binary", "neg", "select", "cast", "load", "abs"]):
            case "neg":
                return Unary("neg", a)
            case "select":
                return Select(self.condition(scope, depth - 1), a, b, bool(self.rng.integers(2)))
            case "cast":
                return Cast(dtype, self.value(scope, self.pick(["int64", "float32", "bool", "int32"]), depth - 1))
            case "load" if dtype == "int8":
                return Load(self.buffers[1], (self.integer(scope, depth=depth - 1),))
            case "abs":
                return Call("abs", (a,), dtype)
        return Binary(self.pick(["+", "-", "*", "//", "%", "min", "max"]), a, b)

    def condition(self, scope: list[Var], depth: int = 2) -> Expr:
        if depth == 0:
            return Const(bool(self.rng.integers(2)), "bool")
        match self.pick(["compare", "compare", "and", "or", "not", "equal"]):
            case "compare":
                dtype = self.pick(["int32", "int64", "float32", "float16"])
                op = self.pick(["<", "<=", ">", ">=", "==", "!="])
                return Binary(op, self.value(scope, dtype, depth - 1), self.value(scope, dtype, depth - 1))
            case "not":
                return Unary("not", self.condition(scope, depth - 1))
            case "equal":
                return Binary("==", self.condition(scope, depth - 1), self.condition(scope, depth - 1))
            case op:
                return Binary(op, self.condition(scope, depth - 1), self.condition(scope, depth - 1))

    def value(self, scope: list[Var], dtype: str, depth: int = 2) -> Expr:
        if dtype == "bool":
            return self.condition(scope, depth)
        if not dtype.startswith(("float", "bfloat")):
            return self.integer(scope, dtype, depth)
        if depth == 0:
            return const(self.pick([0.0, -0.0, 1.5, -2.25, 1e-30, 1e30, math.inf, -math.inf, math.nan]), dtype)
        a, b = self.value(scope, dtype, depth - 1), self.value(scope, dtype, int(self.rng.integers(depth)))
        match self.pick(["binary", "neg", "call", "pow", "load", "select", "cast"]):
            case "neg":
                return Unary("neg", a)
            case "call":
                return Call(
                    self.pick(["exp", "log", "sqrt", "rsqrt", "tanh", "erf", "sigmoid", "abs", "floor", "ceil"]), (a,), dtype
                )
            case "pow":
                return Call("pow", (a, b), dtype)
            case "select":
                return Select(self.condition(scope, depth - 1), a, b, bool(self.rng.integers(2)))
            case "cast":
                return Cast(dtype, self.value(scope, self.pick(["int64", "float32", "bool", "float64"]), depth - 1))
            case "load":
                found = [b for b in self.buffers if b.dtype == dtype]
                if found:
                    return self.load(self.pick(found), scope, depth - 1)
        return Binary(self.pick(["+", "-", "*", "/", "min", "max"]), a, b)

    def load(self, buffer: Buffer, scope: list[Var], depth: int) -> Load:
        return Load(buffer, tuple(self.integer(scope, self.pick(["int32", "int64"]), depth) for _ in buffer.shape))

    def buffer(self, scope: list[Var]) -> Buffer:
        shape = tuple(self.pick([const(3), Const(4, "int64"), self.sizes[0]]) for _ in range(int(self.rng.integers(3))))
        return Buffer(self.name("S"), shape, self.pick(["float32", "int8", "float64"]), self.pick(["global", "local"]))

    def notes(self) -> tuple:
        if self.rng.random() < 0.7:
            return ()
        values = [1, -2.5, 'a "b"\\n', True, None, [1, [2, "x"]], {"k": False}, math.inf]
        return tuple((key, self.pick(values)) for key in sorted({self.pick("abc"), self.pick(["d.e", "f g"])}))

    def statement(self, scope: list[Var], depth: int, blocks: bool = True) -> Stmt:
        kinds = ["store", "store", "evaluate"] + (["for", "for", "if", "let", "allocate", "block", "block"] if depth else [])
        match self.pick(kinds):
            case "store":
                b = self.pick(self.buffers)
                to = self.load(b, scope, 1)
                return Store(b, to.indices, self.value(scope, b.dtype))
            case "evaluate":
                return Evaluate(self.value(scope, self.pick(["int32", "float32", "bool"])))
            case "for":
                dtype = self.pick(["int32", "int32", "int64"])
                var = Var(self.name("i"), self.pick([dtype, dtype, "int64"]))
                kind = self.pick(list(Kind))
                extent = self.pick([Const(1, dtype), Const(7, dtype), self.integer(scope, dtype, 1)])
                thread = self.pick(["threadIdx.x", "vthread.y"]) if kind is Kind.THREAD else ""
                return For(var, extent, self.body([*scope, var], depth - 1), kind, self.notes(), thread)
            case "if":
                orelse = self.body(scope, depth - 1) if self.rng.integers(2) else None
                return If(self.condition(scope), self.body(scope, depth - 1), orelse)
            case "let":
                dtype = self.pick(["int32", "int64", "float32", "bool"])
                var = Var(self.name("x"), dtype)
                return Let(var, self.value(scope, dtype), self.body([*scope, var], depth - 1))
            case "allocate":
                b = self.buffer(scope)
                self.buffers.append(b)
                result = Allocate(b, self.body(scope, depth - 1))
                self.buffers.remove(b)
                return result
        return self.block(scope, depth)

    def block(self, scope: list[Var], depth: int) -> Stmt:
        iters = []
        for _ in range(int(self.rng.integers(4))):
            loops = [v for v in scope if v.name.startswith("i")]
            binding = self.pick(loops) if loops and self.rng.integers(2) else self.integer(scope, depth=1)
            extent = self.pick([const(7), Const(7, "int64"), self.sizes[0], const(1)])
            iters.append(Iter(Var(self.name("v"), self.pick(["int32", "int64"])), extent, self.pick(list(Axis)), binding))
        inner = [*scope, *(it.var for it in iters)]
        regions: list = [None, None]
        for n in range(2):
            if self.rng.integers(2):
                chosen = [self.pick(self.buffers) for _ in range(int(self.rng.integers(3)))]
                regions[n] = tuple(self.region(b, inner) for b in chosen)
        allocs = tuple(self.buffer(inner) for _ in range(int(self.rng.integers(2))))
        self.buffers += allocs
        body, init = self.body(inner, depth - 1), self.body(inner, depth - 1) if self.rng.integers(2) else None
        for b in allocs:
            self.buffers.remove(b)
        predicate = self.condition(scope) if self.rng.integers(2) else Const(True, "bool")
        return Block(self.name("b"), tuple(iters), body, init, predicate, *regions, allocs, self.notes())

    def region(self, buffer: Buffer, scope: list[Var]) -> Region:
        ranges = []
        for _ in buffer.shape:
            start = self.pick([const(0), *(v for v in scope if v.dtype == "int32")])
            ranges.append(Range(start, self.pick([const(1), const(4), self.sizes[0]])))
        return Region(buffer, tuple(ranges))

    def body(self, scope: list[Var], depth: int) -> Stmt:
        return seq(*(self.statement(scope, depth) for _ in range(int(self.rng.integers(1, 4)))))

    def function(self) -> PrimFunc:
        params = (*self.buffers[:2], self.sizes[0], *self.buffers[2:], self.sizes[1])
        return PrimFunc(self.pick(["main", "f"]), params, self.body(list(self.sizes), 3), (), self.notes())
