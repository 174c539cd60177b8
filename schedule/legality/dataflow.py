"""Dataflow: the place of each block, its reads and writes, and the statements that run between two places."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import takewhile

from tir.arith.bounds import ranges_of
from tir.arith.intervals import Interval, Ranges
from tir.assumptions import assumptions
from tir.ir import Allocate, Block, Buffer, Const, Expr, For, If, Kind, Let, Load, PrimFunc, Seq, Stmt, Store
from tir.nearest import did_you_mean
from tir.traverse import blocks, children, loaded_names, loads, loops_in, stored_names, substatements, walk

from ..error import Mark, ScheduleError, listing
from ..primitive import KIND_WORDS, block_at, find_loop, loop_at


@dataclass(frozen=True, eq=False)
class Leaf:
    """A block, or a statement outside of blocks; `above` is the path from the root of the scope to it, without it."""

    stmt: Stmt
    above: tuple[Stmt, ...]
    order: int

    @property
    def block(self) -> Block:
        """The block, where it is known to be one."""
        assert type(self.stmt) is Block
        return self.stmt

    @property
    def reads(self) -> frozenset[str]:
        return loaded_names(self.stmt)

    @property
    def writes(self) -> frozenset[str]:
        return stored_names(self.stmt)

    @property
    def inputs(self) -> frozenset[str]:
        """The buffers read but not written."""
        return self.reads - self.writes

    @cached_property
    def loops(self) -> tuple[For, ...]:
        """The loops around, outermost first, within the scope."""
        return tuple(loops_in(self.above))

    @cached_property
    def exclusive_loops(self) -> tuple[For, ...]:
        """The loops that hold the leaf alone, outermost first."""
        count = len(list(takewhile(lambda s: type(s) is For, reversed(self.above))))
        return self.loops[len(self.loops) - count :]

    def inside(self, outer: Iterable[For]) -> list[For]:
        """The loops around the leaf without those in `outer`."""
        return [x for x in self.loops if not any(x is o for o in outer)]

    @property
    def name(self) -> str:
        return self.stmt.name if type(self.stmt) is Block else "a statement outside of blocks"

    @property
    def quoted(self) -> str:
        return f"`{self.stmt.name}`" if type(self.stmt) is Block else self.name

    @property
    def path(self) -> tuple[Stmt, ...]:
        """The path from the root of the scope to it, inclusive."""
        return (*self.above, self.stmt)

    def under(self, stmt: Stmt) -> bool:
        return any(s is stmt for s in self.path)


@dataclass(frozen=True, eq=False)
class BlockScope:
    """The body of a block that contains others, or of the function, and its leaves in program order."""

    func: PrimFunc
    around: tuple[Stmt, ...]  # from the root of the function to the enclosing block, inclusive; () for the whole function
    root: Stmt
    through: tuple[Stmt, ...] = ()  # `if` statements whose children count as leaves instead of themselves

    @cached_property
    def leaves(self) -> tuple[Leaf, ...]:
        found: list[Leaf] = []

        def visit(stmt: Stmt, above: tuple[Stmt, ...]) -> None:
            if type(stmt) is Seq:
                inside = (*above, stmt)
                for s in stmt.stmts:
                    visit(s, inside)
            elif type(stmt) is For and (type(stmt.extent) is Const or not loads(stmt.extent)):
                visit(stmt.body, (*above, stmt))
            elif any(stmt is s for s in self.through):
                for s in substatements(stmt):
                    visit(s, (*above, stmt))
            else:
                found.append(Leaf(stmt, above, len(found)))

        visit(self.root, ())
        return tuple(found)

    @cached_property
    def written(self) -> frozenset[str]:
        return frozenset().union(*(x.writes for x in self.leaves))

    @property
    def block(self) -> Block | None:
        """The enclosing block; None for the whole function."""
        if not self.around:
            return None
        block = self.around[-1]
        assert isinstance(block, Block)
        return block

    @cached_property
    def outputs(self) -> frozenset[str]:
        """The buffers whose contents matter outside: parameters, and buffers accessed outside of this scope."""
        found = {b.name for b in self.func.buffers}
        stack: list = [self.func.body] if self.around else []
        while stack:
            n = stack.pop()
            if n is not self.root:
                if type(n) in (Load, Store):
                    found.add(n.buffer.name)
                stack.extend(children(n))
        return frozenset(found)

    @cached_property
    def ranges(self) -> dict[str, Interval]:
        """The ranges of the enclosing blocks' iteration variables."""
        return ranges_of(s for s in self.around if type(s) is Block)

    def leaf(self, stmt: Stmt) -> Leaf:
        return next(leaf for leaf in self.leaves if leaf.stmt is stmt)

    def leaves_under(self, stmt: Stmt) -> list[Leaf]:
        return [leaf for leaf in self.leaves if leaf.under(stmt)]

    def writers(self, buffer: str) -> list[Leaf]:
        """The leaves that write a buffer, in program order."""
        return [leaf for leaf in self.leaves if buffer in leaf.writes]

    def readers(self, buffer: str) -> list[Leaf]:
        """The leaves that read a buffer, in program order."""
        return [leaf for leaf in self.leaves if buffer in leaf.reads]

    def buffer(self, name: str) -> Buffer:
        return next(n for n in walk(self.root) if type(n) is Buffer and n.name == name)


def locate(func: PrimFunc, block: str, under_conditions: bool = False) -> tuple[BlockScope, Leaf]:
    """The scope of a block, and the block as a leaf of it; refuses one under a `let`, or an `if` unless `under_conditions`."""
    target, path = block_at(func, block)
    scope = scope_of(func, path)
    if under_conditions:
        scope = replace(scope, through=tuple(s for s in path[len(scope.around) :] if type(s) is If))
    for leaf in scope.leaves:
        if leaf.stmt is target:
            return scope, leaf
    guard = next(s for s in path if any(s is leaf.stmt for leaf in scope.leaves))
    raise _unsupported_parent(f"`{block}` stands", guard, (target, "the block"))


def _unsupported_parent(stands: str, stmt: Stmt, *marks: Mark) -> ScheduleError:
    """The refusal of a place inside a statement that is neither a block nor a loop whose extent needs no loads."""
    match stmt:
        case If(condition):
            what = f"`if {condition}`"
            hint = "do this before add_guard and hoist_predicate, or make the condition one of the block (T.where)"
        case For():
            what = f"`{stmt.name}`, a loop whose extent is read from memory"
            hint = "run over the largest extent, and make the rest a condition of the block (T.where)"
        case Let(var):
            what, hint = f"the binding of `{var.name}`", f"write its value where `{var.name}` is used"
        case Allocate(buffer):
            what, hint = f"the allocation of `{buffer.name}`", "allocate it in the function or in a block (T.alloc_buffer)"
        case _:
            what, hint = f"a statement of kind {type(stmt).__name__}", "move it out of that statement in the program"
    return ScheduleError(f"{stands} under {what}; only loops and blocks may be around it", (stmt, "around it"), *marks, hint=hint)


def loop_around(leaf: Leaf, func: PrimFunc, loop: str) -> int:
    """The number of a loop among those around a block, outermost first; refuses a loop elsewhere."""
    target = find_loop(func, loop)
    for n, x in enumerate(leaf.loops):
        if x is target:
            return n
    around = [x.name for x in leaf.loops]
    raise ScheduleError(
        f"`{loop}` is not a loop around {leaf.quoted}; these are {listing(around)}",
        (target, "the loop"),
        (leaf.stmt, "the block"),
        hint=None if around else f"add_unit_loop({leaf.name!r}) makes one",
    )


def locate_loop(scope: BlockScope, moved: Leaf, loop: str) -> tuple[For, tuple[Stmt, ...]]:
    """A loop, and the path from the root of the scope to it, inclusive; refuses if the block may not move under it."""
    target, path = loop_at(scope.func, loop)
    within = scope_of(scope.func, path)
    if within.root is not scope.root:
        here = f"the block `{scope.block.name}`" if scope.block is not None else "the function, in no other block"
        raise ScheduleError(
            f"`{loop}` and {moved.quoted} are not inside the same block",
            (target, "the loop"),
            (moved.stmt, "the block"),
            hint=f"choose a loop that is directly inside {here}",
        )
    inside = path[len(scope.around) :]
    strange = next((s for s in inside if any(s is leaf.stmt for leaf in scope.leaves)), None)
    if strange is not None:
        raise _unsupported_parent(f"what is in `{loop}` stands", strange)
    if any(s is target for s in moved.above):
        raise ScheduleError(
            f"{moved.quoted} is under `{loop}` already",
            (target, "the loop"),
            (moved.stmt, "the block"),
            hint="blocks move into other nests; reorder changes the order of the loops around one",
        )
    need_not_vectorized(inside, "nothing can be moved into its lanes")
    return target, tuple(inside)


def need_not_vectorized(path: Iterable[Stmt], so: str) -> None:
    """Refuse a path with a vectorized loop on it; `so` is the consequence, for the message."""
    for s in path:
        if type(s) is For and s.kind is Kind.VECTORIZED:
            raise ScheduleError(f"`{s.name}` is vectorized, and {so}", (s, KIND_WORDS[s.kind]), hint="vectorize afterwards")


def scope_of(func: PrimFunc, path: Sequence[Stmt]) -> BlockScope:
    """The scope of the last statement of a path."""
    cut = max((n for n, s in enumerate(path[:-1]) if type(s) is Block), default=-1)
    around = tuple(path[: cut + 1])
    return BlockScope(func, around, path[cut + 1])  # the block's body, or its init


def shared(a: Sequence[Stmt], b: Sequence[Stmt]) -> tuple[Stmt, ...]:
    """The common prefix of two paths from one root."""
    return tuple(x for x, _ in takewhile(lambda pair: pair[0] is pair[1], zip(a, b, strict=False)))


def shared_loops(a: Sequence[Stmt], b: Sequence[Stmt]) -> tuple[For, ...]:
    return tuple(loops_in(shared(a, b)))


def loops_and_ranges(path: tuple[Stmt, ...], outside: Ranges) -> tuple[list[For], dict[str, Interval]]:
    """The loops on a path, outermost first, and the ranges of their variables and of the outside ones."""
    return loops_in(path), ranges_of(path, outside)


def facts_of(scope: BlockScope, loops: Iterable[For]) -> list[Expr]:
    """The conditions that hold in some loops of a scope: on variables with symbolic extents, and on sizes."""
    axes = [(it.var, it.extent) for s in scope.around if type(s) is Block for it in s.iters]
    bound = [*axes, *((x.var, x.extent) for x in loops)]
    return [*(v < extent for v, extent in bound if type(extent) is not Const), *assumptions(scope.func)]


def span(scope: BlockScope, a: tuple[Stmt, ...], b: tuple[Stmt, ...]) -> list[Leaf]:
    """The leaves from one path to the other: under the first differing statement of each, and between them."""
    n = len(shared(a, b))
    orders = [leaf.order for leaf in scope.leaves if leaf.under(a[n]) or leaf.under(b[n])]
    return list(scope.leaves[min(orders) : max(orders) + 1])


def running_between(scope: BlockScope, a: tuple[Stmt, ...], b: tuple[Stmt, ...]) -> list[Leaf]:
    """The leaves that may run between two places: all in the outermost loop around both, or without one their `span`."""
    outermost = next(iter(shared_loops(a, b)), None)
    return span(scope, a, b) if outermost is None else scope.leaves_under(outermost)


def buffer_of(block: Block, index: int | str, written: bool) -> Buffer:
    """The buffer that a block reads (or writes), by its number among these or by its name; refuses an unknown one."""
    found = used_buffers(block, written)
    what = "writes" if written else "reads"
    if isinstance(index, str):
        need_outside(block, index)
        if index not in found:
            reason = f"`{block.name}` {what} no buffer called `{index}`, but {listing(found)}"
            raise ScheduleError(reason, (block, f"{what} {listing(found)}"), hint=did_you_mean(index, found))
        return found[index]
    if not 0 <= index < len(found):
        reason = f"`{block.name}` {what} {len(found)} buffer(s), {listing(found)}: number {index} does not exist"
        raise ScheduleError(reason, (block, "the block"), hint="numbers start at 0; a name does as well")
    return list(found.values())[index]


def named_buffer(stmt: For | Block, name: str) -> Buffer:
    """The buffer of this name that a loop or block uses; refuses an unknown name."""
    found = {n.name: n for n in walk(stmt) if type(n) is Buffer}
    if name not in found:
        reason = f"`{stmt.name}` uses no buffer called `{name}`, but {listing(found)}"
        raise ScheduleError(reason, (stmt, "here"), hint=did_you_mean(name, found))
    return found[name]


def _allocating_blocks(stmt: Stmt) -> dict[str, Block]:
    """The allocating block of each buffer that blocks in a statement, itself included, allocate."""
    return {b.name: owner for owner in blocks(stmt) for b in owner.allocs}


def need_outside(stmt: For | Block, name: str) -> None:
    """Refuse a buffer that is allocated inside of a loop or block."""
    if owner := _allocating_blocks(stmt).get(name):
        reason = f"`{name}` is allocated inside of `{owner.name}`, and nothing outside has it"
        raise ScheduleError(reason, (owner, f"allocates {name}"), hint=f"name a block or loop inside of `{owner.name}`")


def used_buffers(block: Block, written: bool) -> dict[str, Buffer]:
    """The buffers that a block reads (or writes), by name, in the order of the stated regions, else of first use.

    Without stated regions, buffers allocated in the block are left out, and from the reads the accumulators of a reduction with
    its init.
    """
    stated = block.writes if written else block.reads
    if stated is not None:
        return {r.buffer.name: r.buffer for r in stated}
    kind = Store if written else Load
    nodes = (n for part in (block.init, block.body) if part is not None for n in walk(part))
    found = {n.buffer.name: n.buffer for n in nodes if type(n) is kind}
    left_out = {*_allocating_blocks(block)}
    if not written and block.init is not None:
        left_out |= {s.buffer.name for s in walk(block.init) if type(s) is Store}
    return {name: buffer for name, buffer in found.items() if name not in left_out}
