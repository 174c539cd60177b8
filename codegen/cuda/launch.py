"""What the host does: which kernels to launch, with which grids and scalars, in order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tir.ir import Call, Const, Evaluate, Expr, For, If, Seq, Stmt
from tir.simplify import simplify
from tir.traverse import substitute, variables

from .program import LAUNCH, Program


def evaluate(e: Expr, scalars: Mapping[str, int]) -> int:
    """An integer or boolean expression of the host. Raises KeyError with the name of a variable without a value."""
    value = simplify(substitute(e, {name: Const(n) for name, n in scalars.items()}))
    if not isinstance(value, Const):
        raise KeyError(", ".join(sorted(variables(value))) or str(value))
    return int(value.value)


def launches(program: Program, sizes: Mapping[str, int]) -> Iterator[tuple[int, tuple[int, int, int], dict[str, int]]]:
    """The launches of one call: the number of the kernel, its grid (never empty), and the values of all scalars."""

    def visit(s: Stmt, scalars: dict[str, int]) -> Iterator[tuple[int, tuple[int, int, int], dict[str, int]]]:
        match s:
            case Seq(stmts):
                for x in stmts:
                    yield from visit(x, scalars)
            case For(var, extent, body):
                for i in range(evaluate(extent, scalars)):
                    yield from visit(body, {**scalars, var.name: i})
            case If(condition, then, orelse):
                if evaluate(condition, scalars):
                    yield from visit(then, scalars)
                elif orelse is not None:
                    yield from visit(orelse, scalars)
            case Evaluate(Call(op, (Const(number),))) if op == LAUNCH:
                x, y, z = (evaluate(g, scalars) for g in program.kernels[number].grid)
                if x * y * z > 0:
                    yield number, (x, y, z), scalars
            case _:
                raise TypeError(f"the host cannot run {type(s).__name__}")

    yield from visit(program.host, dict(sizes))
