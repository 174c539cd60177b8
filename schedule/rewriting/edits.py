"""Edits of a function: statements replaced and inserted, buffers allocated, fresh names."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from operator import is_
from typing import TypeVar

from tir.ir import Block, Buffer, Expr, For, PrimFunc, Seq, Stmt, Store, seq
from tir.traverse import bound_names, fresh, map_statements, move_accesses, rewrite_statements, substatements, walk_stmts

from ..error import ScheduleError
from ..primitive import find_block

S = TypeVar("S", bound=Stmt)
T = TypeVar("T", Block, PrimFunc)


@dataclass(frozen=True, eq=False)
class Insertion:
    """A statement to insert before statement number `position` of `body`, a Seq or a single statement."""

    body: Stmt
    position: int
    new: Stmt


def edited(func: PrimFunc, changes: Iterable[tuple[Stmt, Stmt | None]], *insertions: Insertion) -> PrimFunc:
    """`func` with statements replaced, by identity, and others inserted, all into one body.

    None as the new statement removes the old one, and the loops and sequences that become empty."""
    if insertions:
        around = list(statements_of(insertions[0].body))
        for x in sorted(insertions, key=lambda x: x.position, reverse=True):
            around.insert(x.position, x.new)
        func = edited(func, [(insertions[0].body, seq(*around))])
    table = {id(old): new for old, new in changes}

    def visit(stmt: Stmt) -> Stmt | None:
        if id(stmt) in table:
            return table[id(stmt)]
        if type(stmt) is Store or (type(stmt) is Block and type(stmt.body) is Store and id(stmt.body) not in table):
            return stmt
        old = substatements(stmt)
        new = [visit(s) for s in old]
        if all(map(is_, new, old)):
            return stmt
        left = [s for s in new if s is not None]
        if type(stmt) is Seq:
            return seq(*left) if left else None
        changed = iter(left)
        return map_statements(stmt, lambda _: next(changed)) if len(left) == len(new) else None

    body = visit(func.body)
    assert body is not None, "a function keeps at least the block that was moved"
    return func.with_(body=body)


def statements_of(body: Stmt) -> tuple[Stmt, ...]:
    """The statements of a body in order."""
    return body.stmts if type(body) is Seq else (body,)


def pick_position(index: int, first: int, last: int, where: For) -> int:
    """The position in a loop's body for an `index`: -1 the last possible, -2 the first, otherwise the number itself."""
    if index == -1:
        return last
    if index == -2:
        return first
    if first <= index <= last:
        return index
    possible = f"{first}" if first == last else f"{first} to {last}"
    raise ScheduleError(
        f"index {index} is not possible, only {possible} (or -1 for the last, -2 for the first)", (where, "the loop")
    )


def with_buffer(func: PrimFunc, block: Block | None, buffer: Buffer) -> PrimFunc:
    """`func` with a buffer allocated in a block, found again by name, or (None) in the function."""
    if block is None:
        return func.with_(allocs=(*func.allocs, buffer))
    current = find_block(func, block.name)
    return edited(func, [(current, current.with_(allocs=(*current.allocs, buffer)))])


def with_extents(func: PrimFunc, extents: Mapping[str, Expr]) -> PrimFunc:
    """`func` with new extents of loops, by loop name."""
    return rewrite_statements(func, lambda s: s.with_(extent=extents[s.name]) if type(s) is For and s.name in extents else s)


def with_accesses(stmt: S, moved: Mapping[str, tuple[Buffer, Callable[[tuple[Expr, ...]], tuple[Expr, ...]]]]) -> S:
    """`stmt` with accesses redirected to another buffer at a function of the indices, by buffer name; stated regions dropped."""

    def place(old: Buffer, indices: tuple[Expr, ...]) -> tuple[Buffer, tuple[Expr, ...]] | None:
        buffer, new = moved.get(old.name, (old, None))
        return None if new is None else (buffer, new(indices))

    return rewrite_statements(move_accesses(stmt, place), lambda s: unstated(s, *moved) if type(s) is Block else s)


def unstated(block: Block, *names: str) -> Block:
    """A block without its stated reads, or writes, if one of the named buffers is among them."""
    stated = {key: None for key in ("reads", "writes") if any(r.buffer.name in names for r in getattr(block, key) or ())}
    return block.with_(**stated) if stated else block


def without_buffers(func: PrimFunc, names: Iterable[str]) -> PrimFunc:
    """`func` without the allocations of some buffers; stated reads, or writes, that name one are dropped."""
    dropped = set(names)

    def without(n: T) -> T:
        kept = tuple(b for b in n.allocs if b.name not in dropped)
        return n if len(kept) == len(n.allocs) else n.with_(allocs=kept)

    def changed(s: Stmt) -> Stmt:
        return without(unstated(s, *dropped)) if type(s) is Block else s

    return without(rewrite_statements(func, changed))


@dataclass(frozen=True, eq=False)
class Names:
    """Fresh names for a function. Loops, buffers and lets differ from each other, and so do blocks. Loops differ from blocks and
    iteration variables, too. Several blocks may share names of iteration variables."""

    outer: set[str]  # buffers, loops, lets, parameters
    axes: set[str]  # iteration variables of blocks
    handles: set[str]  # loops and blocks
    around: set[str]  # iteration variables of blocks that hold others, which may be visible anywhere

    @staticmethod
    def of(func: PrimFunc) -> Names:
        names = Names(set(), set(), set(), set())
        names.add(func)
        return names

    def add(self, node: Stmt | PrimFunc) -> None:
        """Reserve the names in a statement, too, such as one that was removed from the function."""
        for name, what, s in bound_names(node):
            if what == "iteration variable":
                self.axes.add(name)
                if type(s) is Block and any(isinstance(inner, Block) for inner in walk_stmts(s.body)):
                    self.around.add(name)
            elif what != "block":
                self.outer.add(name)
            if what in ("loop", "block"):
                self.handles.add(name)

    def loop(self, wanted: str) -> str:
        name = fresh({*self.outer, *self.axes, *self.handles}, wanted)
        self.outer.add(name)
        self.handles.add(name)
        return name

    def buffer(self, wanted: str) -> str:
        name = fresh({*self.outer, *self.axes}, wanted)
        self.outer.add(name)
        return name

    def axis(self, wanted: str, visible: Collection[str] = ()) -> str:
        """A name for an iteration variable that differs from `visible`, those of the blocks inside its own."""
        name = fresh({*self.outer, *self.around, *visible}, wanted)
        self.axes.add(name)
        return name

    def block(self, wanted: str) -> str:
        return fresh(self.handles, wanted)
