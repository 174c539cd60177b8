"""Functions to verify: their parts, and what `verify` says of them."""

from __future__ import annotations

from tir.ir import Axis, Buffer, For, Iter, PrimFunc, Stmt, Var, const
from tir.verify import verify

i, j, k = Var("i"), Var("j"), Var("k")
vi, vj, vk = Var("v_i"), Var("v_j"), Var("v_k")


def buffer(name: str, *shape: int, dtype: str = "float32", scope: str = "global") -> Buffer:
    return Buffer(name, tuple(const(d) for d in shape), dtype, scope)


A, B, C = buffer("A", 7, 13), buffer("B", 13), buffer("C", 7, 13)
T = buffer("T", 7, 13)


def spatial(var: Var, extent: int, binding) -> Iter:
    return Iter(var, const(extent), Axis.SPATIAL, binding)


def reduce(var: Var, extent: int, binding) -> Iter:
    return Iter(var, const(extent), Axis.REDUCE, binding)


def func(body: Stmt, *params, allocs: tuple[Buffer, ...] = ()) -> PrimFunc:
    return PrimFunc("main", params or (A, B, C), body, allocs)


def grid(block: Stmt) -> Stmt:
    return For(i, const(7), For(j, const(13), block))


ITERS = (spatial(vi, 7, i), spatial(vj, 13, j))


def messages(f: PrimFunc) -> list[str]:
    return [str(x) for x in verify(f)]
