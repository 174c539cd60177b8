"""Clones of statements: copies whose loops, blocks and buffers have fresh names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType

from tir.arith.bounds import bounds, ranges_of
from tir.arith.intervals import Interval, Ranges
from tir.arith.prove import prove
from tir.arith.simplify import simplify
from tir.ir import Allocate, Axis, Block, Buffer, Expr, For, Iter, Let, Stmt, Store, Var, conjunction, nest
from tir.traverse import loads, loops_in, map_statements, replace_buffers, rewrite_statements, substitute, variables, walk_stmts

from ..error import ScheduleError
from ..legality.requirements import need_no_threads
from .edits import Names, S


def clone(stmt: S, names: Names, block_suffix: str = "", keep: bool = False) -> S:
    """A copy of a statement with fresh names of loops, lets and allocated buffers, and blocks named with the suffix.

    With `keep`, only the blocks get new names, and these only with a suffix.
    """
    variables: dict[str, Expr] = {}
    buffers: dict[str, Buffer] = {}
    blocks: dict[str, str] = {}
    for s in walk_stmts(stmt):
        match s:
            case For(var) | Let(var) if not keep:
                variables[var.name] = Var(names.loop(var.name), var.dtype)
            case Allocate(buffer) if not keep:
                buffers[buffer.name] = buffer.with_(name=names.buffer(buffer.name))
            case Block(name):
                if block_suffix or not keep:
                    blocks[name] = names.block(name + block_suffix)
                if not keep:
                    buffers |= {b.name: b.with_(name=names.buffer(b.name)) for b in s.allocs}
    result = substitute(stmt, variables)
    if buffers:
        result = replace_buffers(result, buffers)
    return rewrite_statements(result, lambda s: s.with_(name=blocks[s.name]) if type(s) is Block and s.name in blocks else s)


def in_own_loops(
    block: Block, loops: Iterable[For], names: Names, suffix: str = "", values: Mapping[str, Expr] = MappingProxyType({})
) -> Stmt:
    """A block in copies of loops under fresh names; other loop variables are replaced by `values`."""
    copies: list[For] = []
    mapping: dict[str, Expr] = dict(values)
    for x in loops:
        extent = substitute(x.extent, values)
        extent = extent if extent is x.extent else simplify(extent)
        copies.append(x.with_(var=Var(names.loop(x.name + suffix), x.var.dtype), extent=substitute(extent, mapping)))
        mapping[x.name] = copies[-1].var
    iters = tuple(it.with_(binding=substitute(it.binding, mapping)) for it in block.iters)
    return nest(copies, block.with_(iters=iters, predicate=substitute(block.predicate, mapping)))


def init_block(reduction: Block, iters: Iterable[Iter], conditions: Iterable[Expr], ranges: Ranges, names: Names) -> Block:
    """A block for the init of a reduction, over the axes among `iters` that do not reduce, without loops."""
    assert reduction.init is not None
    return Block(
        names.block(f"{reduction.name}_init"),
        tuple(it for it in iters if it.axis is not Axis.REDUCE),
        reduction.init,
        predicate=conjunction(*(c for c in conditions if not prove(c, ranges))),
        reads=() if reduction.reads is not None and not loads(reduction.init) else None,
        writes=reduction.writes,
    )


def with_starting_inits(
    stmt: Stmt,
    ranges: dict[str, Interval],
    around: Sequence[Stmt],
    facts: Sequence[Expr] = (),
    starts: Callable[[set[str]], bool] | None = None,
) -> Stmt:
    """`stmt`, a copy that runs in some iterations only, with the inits of the reductions that start in it.

    An init is dropped if a reduction axis is provably never 0, given the facts. Else the reduction must start here. `starts`,
    called with the loops that drive it, is True if the copy runs where these are 0; None means always. Refuses if neither is
    certain. Refuses to drop the init of a cross-thread reduction, with loops in the statement or on the path to it, `around`.
    """

    def started(b: Block, inside: dict[str, Interval], loops: tuple[For, ...], outer: dict[Var, Expr]) -> Block:
        if b.init is None:
            return b
        steps = [substitute(it.binding, outer) for it in b.reduction]
        if any((bounds(step, inside)[0] or 0) >= 1 or prove(step >= 1, inside, facts) for step in steps):
            need_no_threads(b, loops, variables(*steps))
            return b.with_(init=None)
        if starts is not None and not starts(variables(*steps)):
            raise ScheduleError(
                f"it cannot be shown in which part the reduction `{b.name}` starts with its init",
                (b, "a reduction"),
                hint="decompose_reduction first",
            )
        return b

    def visit(s, inside: dict[str, Interval], loops: tuple[For, ...], outer: dict[Var, Expr]):
        if type(s) is Block:
            s = started(s, inside, loops, outer)
            if type(s.body) is Store:
                return s
            outer = {**outer, **{it.var: substitute(it.binding, outer) for it in s.iters}}
        within = ranges_of([s], inside)
        own = (*loops, s) if type(s) is For else loops
        return map_statements(s, lambda c: visit(c, within, own, outer))

    return visit(stmt, ranges, tuple(loops_in(around)), {})
