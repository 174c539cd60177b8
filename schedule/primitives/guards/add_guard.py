"""add_guard: a statement in two versions, one where a condition holds and one where it does not."""

from __future__ import annotations

from tir.arith.bounds import ranges_of
from tir.arith.prove import prove
from tir.arith.simplify import simplify
from tir.arith.statements import drop_implied_conditions
from tir.ir import FALSE, TRUE, Const, Expr, If, PrimFunc, Stmt, Unary
from tir.traverse import substitute, variables

from ...error import ScheduleError
from ...primitive import LoopOrBlockName, named_at, primitive, replace_path
from ...rewriting.clones import clone, with_starting_inits
from ...rewriting.edits import Names
from ...rewriting.predicates import parsed_condition, sharpened


@primitive
def add_guard(func: PrimFunc, block_or_loop: LoopOrBlockName, condition: str) -> tuple[PrimFunc, list[str]]:
    """Write a block or loop twice, once under a condition and once under its negation; returns the names of the two.

    The condition is text, over the loop variables around (within the same block) and the sizes of the function. The first version
    keeps its names. Each version drops the predicates that its condition implies.

    Rewrite   S   =>   if c: S  else: S'
    Legal     if the condition neither always nor never holds: S' is a copy of S under new names, and exactly one of the two runs.
              A reduction whose loops occur in the condition must provably always start in the same version. The other version
              loses the init; a cross-thread reduction is refused.
    Example   matmul: s.split("j", [None, 4]); s.reorder("j_0", "i", "k", "j_1"); s.add_guard("i", "j_0 < 3")
    """
    target, above = named_at(func, block_or_loop)
    holds = parsed_condition(func, above, condition)
    ranges = ranges_of(above[:-1])
    decided = simplify(holds, ranges)
    if decided in (TRUE, FALSE):
        word = "always" if decided == TRUE else "never"
        raise ScheduleError(
            f"the condition {condition!r} {word} holds here",
            (target, "nothing to distinguish"),
            hint="it must hold in some iterations of the loops around, and not in others",
        )
    fails = sharpened(simplify(Unary("not", holds), ranges), ranges)

    def version(stmt: Stmt, fact: Expr) -> Stmt:
        def starts(driving: set[str]) -> bool:
            if not driving & variables(fact):
                return True
            return prove(substitute(fact, {n: Const(0) for n in driving}), ranges)

        return with_starting_inits(drop_implied_conditions(stmt, ranges, [fact]), ranges, above[:-1], [fact], starts)

    version(target, fails)  # refuses, if at all, with marks in the function
    copy = clone(target, Names.of(func))
    both = If(holds, version(target, sharpened(holds, ranges)), version(copy, fails))
    return replace_path(func, above, both), [block_or_loop, copy.name]
