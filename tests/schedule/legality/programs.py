"""Small programs around a block called `B`, as scopes and leaves."""

from __future__ import annotations

import pytest

from schedule import ScheduleError
from schedule.legality.dataflow import BlockScope, Leaf, locate
from tests.schedule.legality.nests import block, i, k, loops, n, reduce, spatial, stored, v0, v1
from tir.ir import Block, Buffer, Const, For, Kind, PrimFunc, Stmt, Var, nest, seq

A, X, Y, T, U = (Buffer(name, (Const(9),)) for name in "AXYTU")


def over(loop: Var, *body: Stmt, kind: Kind = Kind.SERIAL) -> For:
    return For(loop, Const(9), seq(*body), kind)


def copy(name: str, target: Buffer, source: Buffer, loop: Var = i) -> Block:
    return block(spatial(9, loop), body=stored(target, v0, value=source[v0]), name=name)


def total(target: Buffer, **more) -> Block:
    """target[v0] += A[v1]"""
    return block(spatial(9, i), reduce(9, k), body=stored(target, v0, value=target[v0] + A[v1]), **more)


def located(name: str, *stmts: Stmt) -> tuple[BlockScope, Leaf]:
    """A block of a function of these statements, in which T and U are temporaries."""
    return locate(PrimFunc("main", (A, X, Y, n), seq(*stmts), (T, U)), name)


def alone(b: Block, **extents) -> tuple[BlockScope, Leaf]:
    return located("B", nest(loops(**extents), b))


def named(scope: BlockScope, name: str) -> Leaf:
    return next(x for x in scope.leaves if x.name == name)


def refusal(function, *args, **more) -> str:
    """The reason, the notes at lines of the program, and the hint."""
    with pytest.raises(ScheduleError) as caught:
        function(*args, **more)
    error = caught.value
    return " | ".join([error.reason, ", ".join(note for _, note in error.marks), str(error.hint)])
