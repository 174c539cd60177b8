"""The work of the host: the kernels to launch, with their grids and scalars, in order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tir.arith.enumeration import evaluate
from tir.arrays import ArgumentError
from tir.ir import Call, Const, Evaluate, For, If, Seq, Stmt

from ..passes.gpu_kernels import AXES, GRID_LIMITS
from .program import LAUNCH, Program


def launches(program: Program, sizes: Mapping[str, int]) -> Iterator[tuple[int, tuple[int, int, int], dict[str, int]]]:
    """The launches of one call: the number of the kernel, its grid (never empty), and the values of all scalars."""

    def visit(s: Stmt, scalars: dict[str, int]) -> Iterator[tuple[int, tuple[int, int, int], dict[str, int]]]:
        match s:
            case Seq(stmts):
                for child in stmts:
                    yield from visit(child, scalars)
            case For(var, extent, body):
                for i in range(int(evaluate(extent, scalars))):
                    yield from visit(body, {**scalars, var.name: i})
            case If(condition, then, orelse):
                if evaluate(condition, scalars):
                    yield from visit(then, scalars)
                elif orelse is not None:
                    yield from visit(orelse, scalars)
            case Evaluate(Call(op, (Const(number),))) if op == LAUNCH:
                x, y, z = (int(evaluate(g, scalars)) for g in program.kernels[number].grid)
                if x * y * z <= 0:
                    return
                if too_many := [(a, n) for a, n in zip(AXES, (x, y, z), strict=True) if n > GRID_LIMITS[a]]:
                    (axis, count), name = too_many[0], program.kernels[number].name
                    raise ArgumentError(f"{name}: {count} blocks along {axis}; CUDA has at most {GRID_LIMITS[axis]}")
                yield number, (x, y, z), scalars
            case _:
                raise TypeError(f"the host cannot run {type(s).__name__}")

    yield from visit(program.host, dict(sizes))
