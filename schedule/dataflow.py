"""Where the statements of a function stand, what they read and write, and what lies between two places."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from tir.affine import Interval
from tir.analysis.regions import iter_ranges, loop_ranges
from tir.ir import (
    TRUE,
    Allocate,
    Axis,
    Binary,
    Block,
    Buffer,
    Const,
    Expr,
    For,
    Kind,
    Let,
    Load,
    Node,
    PrimFunc,
    Select,
    Seq,
    Stmt,
    Store,
    Var,
    conjuncts,
    seq,
)
from tir.simplify import prove
from tir.traverse import children, loads, map_statements, variables, walk, walk_stmts

from .error import ScheduleError, listing
from .primitive import KIND_WORDS, path_to_block, path_to_loop


def _inside(n: Node) -> Iterable[Node]:
    """The nodes directly below that are executed: `children` without buffers and stated regions, and quicker."""
    kind = type(n)
    if kind is Binary:
        return n.a, n.b  # type: ignore[attr-defined]
    if kind is Load:
        return n.indices  # type: ignore[attr-defined]
    if kind is Var or kind is Const:
        return ()
    if kind is Store:
        return *n.indices, n.value  # type: ignore[attr-defined]
    if kind is Block:
        inside = [it.binding for it in n.iters]  # type: ignore[attr-defined]
        return [x for x in (*inside, n.predicate, n.init, n.body) if x is not None]  # type: ignore[attr-defined]
    return [c for c in children(n) if type(c) is not Buffer]


@dataclass(frozen=True, eq=False)
class Leaf:
    """A block, or a statement that is in none: `above` is the way from the root of the scope to it, itself left out."""

    stmt: Stmt
    above: tuple[Stmt, ...]
    order: int

    @cached_property
    def accesses(self) -> tuple[frozenset[str], frozenset[str]]:
        """The names of the buffers read and of those written."""
        read, written = set(), set()
        stack: list[Node] = [self.stmt]
        while stack:
            n = stack.pop()
            if type(n) is Load:
                read.add(n.buffer.name)
            elif type(n) is Store:
                written.add(n.buffer.name)
            stack.extend(_inside(n))
        return frozenset(read), frozenset(written)

    @property
    def reads(self) -> frozenset[str]:
        return self.accesses[0]

    @property
    def writes(self) -> frozenset[str]:
        return self.accesses[1]

    @property
    def inputs(self) -> frozenset[str]:
        """The buffers read but not written."""
        return self.reads - self.writes

    @cached_property
    def loops(self) -> tuple[For, ...]:
        """The loops around, outermost first, within the scope."""
        return tuple(s for s in self.above if type(s) is For)

    @property
    def name(self) -> str:
        return self.stmt.name if type(self.stmt) is Block else "a statement outside of blocks"

    @property
    def quoted(self) -> str:
        return f"`{self.stmt.name}`" if type(self.stmt) is Block else self.name

    def under(self, stmt: Stmt) -> bool:
        return self.stmt is stmt or any(s is stmt for s in self.above)


@dataclass(frozen=True, eq=False)
class Scope:
    """The body of a block that contains others, or of the whole function, and its leaves in program order."""

    func: PrimFunc
    around: tuple[Stmt, ...]  # from the root of the function to the enclosing block, inclusive; () for the whole function
    root: Stmt

    @cached_property
    def leaves(self) -> tuple[Leaf, ...]:
        found: list[Leaf] = []

        def visit(stmt: Stmt, above: tuple[Stmt, ...]) -> None:
            if type(stmt) is Seq:
                for s in stmt.stmts:
                    visit(s, (*above, stmt))
            elif type(stmt) is For and (type(stmt.extent) is Const or not loads(stmt.extent)):
                visit(stmt.body, (*above, stmt))
            else:
                found.append(Leaf(stmt, above, len(found)))

        visit(self.root, ())
        return tuple(found)

    @property
    def block(self) -> Block | None:
        """The enclosing block; None where the scope is the whole function."""
        return self.around[-1] if self.around else None  # type: ignore[return-value]

    @cached_property
    def outputs(self) -> frozenset[str]:
        """The buffers whose contents matter outside: parameters, and whatever is accessed outside of this scope."""
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
        """The ranges of the variables that come from outside: iteration variables of the enclosing blocks."""
        result: dict[str, Interval] = {}
        for s in self.around:
            if type(s) is Block:
                result |= iter_ranges(s)
        return result

    def leaf(self, stmt: Stmt) -> Leaf:
        return next(leaf for leaf in self.leaves if leaf.stmt is stmt)

    def leaves_under(self, stmt: Stmt) -> list[Leaf]:
        return [leaf for leaf in self.leaves if leaf.under(stmt)]

    @cached_property
    def users(self) -> tuple[dict[str, list[Leaf]], dict[str, list[Leaf]]]:
        """By buffer: the leaves that read it, and those that write it, in program order."""
        readers: dict[str, list[Leaf]] = {}
        writers: dict[str, list[Leaf]] = {}
        for leaf in self.leaves:
            for name in leaf.reads:
                readers.setdefault(name, []).append(leaf)
            for name in leaf.writes:
                writers.setdefault(name, []).append(leaf)
        return readers, writers

    def writers(self, buffer: str) -> list[Leaf]:
        return self.users[1].get(buffer, [])

    def readers(self, buffer: str) -> list[Leaf]:
        return self.users[0].get(buffer, [])

    def buffer(self, name: str) -> Buffer:
        for n in walk(self.root):
            if type(n) is Buffer and n.name == name:
                return n
        raise KeyError(name)


def locate(func: PrimFunc, block: str) -> tuple[Scope, Leaf]:
    """The scope that a block is in, and the block as a leaf of it; refuses a block under an `if` or a `let`."""
    path = path_to_block(func, block)
    target: Block = path[-1]  # type: ignore[assignment]
    scope = _scope(func, path)
    for leaf in scope.leaves:
        if leaf.stmt is target:
            return scope, leaf
    guard = next(s for s in path if any(s is leaf.stmt for leaf in scope.leaves))
    raise ScheduleError(
        f"`{block}` stands under a statement that is neither a loop nor a block", (guard, "on the way"), (target, "the block")
    )


def locate_loop(scope: Scope, moved: Leaf, loop: str) -> tuple[Stmt, ...]:
    """The way from the root of the scope to a loop, inclusive, if a block may be put under it."""
    path = path_to_loop(scope.func, loop)
    target: For = path[-1]  # type: ignore[assignment]
    within = _scope(scope.func, path)
    if within.root is not scope.root:
        raise ScheduleError(
            f"`{loop}` and {moved.quoted} are not inside the same block", (target, "the loop"), (moved.stmt, "the block")
        )
    inside = path[len(scope.around) :]
    strange = next((s for s in inside if not isinstance(s, (For, Seq))), None)
    if strange is not None:
        raise ScheduleError(f"`{loop}` stands under a statement that is neither a loop nor a block", (strange, "on the way"))
    if any(s is target for s in moved.above):
        raise ScheduleError(f"{moved.quoted} is under `{loop}` already", (target, "the loop"), (moved.stmt, "the block"))
    for s in inside:
        if type(s) is For and s.kind is Kind.VECTORIZED:
            raise ScheduleError(
                f"`{s.name}` is vectorized, and nothing can be moved into its lanes",
                (s, KIND_WORDS[s.kind]),
                hint="vectorize afterwards",
            )
    return tuple(inside)


def _scope(func: PrimFunc, path: Sequence[Stmt]) -> Scope:
    cut = max((n for n, s in enumerate(path[:-1]) if type(s) is Block), default=-1)
    around = tuple(path[: cut + 1])
    return Scope(func, around, path[cut + 1])  # the block's body, or its init


def shared(a: Sequence[Stmt], b: Sequence[Stmt]) -> tuple[Stmt, ...]:
    """The statements with which two paths from one root begin."""
    n = 0
    while n < min(len(a), len(b)) and a[n] is b[n]:
        n += 1
    return tuple(a[:n])


def shared_loops(a: Sequence[Stmt], b: Sequence[Stmt]) -> tuple[For, ...]:
    return tuple(s for s in shared(a, b) if type(s) is For)


# --- what kind of block --------------------------------------------------------------------------------------------------


def need_complete(scope: Scope, leaf: Leaf, what: str) -> None:
    """Refuse a block whose result is not a function of its inputs alone: it must be data parallel, or reduce with its init."""
    block: Block = leaf.stmt  # type: ignore[assignment]
    for it in block.iters:
        if it.axis is Axis.OPAQUE:
            raise ScheduleError(
                f"`{block.name}` has the ordered axis `{it.var.name}`, so it cannot be {what}", (block, "ordered axis")
            )
    itself = _old_values(block)
    if itself and not (block.is_reduction and block.init is not None):
        name = sorted(itself)[0]
        hint = None
        if block.is_reduction and any(w.stmt is not block for w in scope.writers(name)):
            hint = "do this before decompose_reduction"
        raise ScheduleError(
            f"`{block.name}` updates `{name}` without an init, so it cannot be {what}",
            (block, f"reads and writes {name}"),
            hint=hint,
        )


def _old_values(block: Block) -> set[str]:
    read = {n.buffer.name for n in loads(block)}
    return read & {n.buffer.name for n in walk(block) if type(n) is Store}


def need_only_writer(scope: Scope, leaf: Leaf, what: str) -> None:
    """Refuse a block that shares a buffer it writes with another writer."""
    for name in sorted(leaf.writes):
        other = next((w for w in scope.writers(name) if w is not leaf), None)
        if other is not None:
            raise ScheduleError(
                f"{other.quoted} writes `{name}` too, so {leaf.quoted} cannot be {what}",
                (leaf.stmt, f"writes {name}"),
                (other.stmt, f"writes {name}"),
            )


def need_temporary(scope: Scope, leaf: Leaf, what: str) -> None:
    """Refuse a block that writes something which is needed outside."""
    for name in sorted(leaf.writes):
        if name in scope.outputs:
            kind = (
                "a parameter of the function" if any(b.name == name for b in scope.func.buffers) else "used outside of this block"
            )
            raise ScheduleError(f"`{name}` is {kind}, so {leaf.quoted} cannot be {what}", (leaf.stmt, f"writes {name}"))


def need_unchanged_inputs(scope: Scope, leaf: Leaf, targets: Iterable[tuple[Stmt, ...]]) -> None:
    """Refuse if a block could read other values at a later place than where it stands.

    Theorem: the block reads the same at each of `targets` (paths from the root of the scope) if, among the statements that run
    from its place to that place, each writer of an input stands before the block, and writes only final values: in every
    iteration of the loops that it shares with the block it writes to an element what it always writes there. Where the input had
    values before, as a parameter has, what the block reads must also have been written when it does. And no input is made inside
    of a parallel loop that the block leaves: each iteration of it may have its own.
    """
    from .private import holds  # which is made of what is in this module

    for target in targets:
        common = shared(leaf.above, target)
        for loop in leaf.loops:
            if loop.kind in (Kind.PARALLEL, Kind.THREAD) and not any(loop is s for s in common):
                inside = next((x for x in scope.leaves_under(loop) if x is not leaf and x.writes & leaf.inputs), None)
                if inside is not None:
                    raise ScheduleError(
                        f"{leaf.quoted} cannot leave `{loop.name}`, in which {inside.quoted} makes what it reads",
                        (loop, KIND_WORDS[loop.kind]),
                        (inside.stmt, f"writes {min(inside.writes & leaf.inputs)}"),
                        (leaf.stmt, "the block"),
                        hint="move blocks before loops are marked",
                    )
        outermost = next((s for s in common if type(s) is For), None)
        if outermost is not None:
            between = scope.leaves_under(outermost)
        else:
            between = _span(scope, (*leaf.above, leaf.stmt)[len(common)], target[len(common)])
        for other in between:
            changed = sorted(other.writes & leaf.inputs)
            if other is leaf or not changed:
                continue
            if other.order > leaf.order:
                raise ScheduleError(
                    f"{other.quoted} writes `{changed[0]}`, which {leaf.quoted} reads, before the new place",
                    (leaf.stmt, f"reads {changed[0]}"),
                    (other.stmt, f"writes {changed[0]}"),
                )
            loops = shared_loops(other.above, leaf.above)
            for name in changed:
                if loops and name in scope.outputs and not holds(scope, other, leaf, name):
                    raise ScheduleError(
                        f"{leaf.quoted} may read elements of `{name}` that {other.quoted} writes only later",
                        (loops[-1], "the loop around both"),
                        (other.stmt, f"writes {name}"),
                        (leaf.stmt, f"reads {name}"),
                    )
            if loops and not _final(scope, other, {loop.name for loop in loops}, {changed[0]}):
                raise ScheduleError(
                    f"{leaf.quoted} may read `{changed[0]}` before {other.quoted} has finished it",
                    (loops[-1], "the loop around both"),
                    (other.stmt, f"writes {changed[0]}"),
                    (leaf.stmt, f"reads {changed[0]}"),
                )


def _span(scope: Scope, first: Stmt, last: Stmt) -> list[Leaf]:
    """The leaves from the first one under `first` to the last one under `last`."""
    orders = [leaf.order for leaf in scope.leaves if leaf.under(first) or leaf.under(last)]
    return list(scope.leaves[min(orders) : max(orders) + 1])


def span(scope: Scope, a: tuple[Stmt, ...], b: tuple[Stmt, ...]) -> list[Leaf]:
    """The leaves under the two different statements below the common part of two paths, and those between."""
    common = shared(a, b)
    return _span(scope, a[len(common)], b[len(common)])


def _final(scope: Scope, writer: Leaf, loops: set[str], seen: set[str]) -> bool:
    """Whether, in every iteration of `loops`, a block writes to each element the value that it always writes there."""
    block = writer.stmt
    if type(block) is not Block:
        return False
    for it in block.iters:
        if it.axis is Axis.OPAQUE or (it.axis is Axis.REDUCE and variables(it.binding) & loops):
            return False
    if block.init is None and writer.reads & writer.writes:
        # The update of a decomposed reduction: its init must run in the same iterations.
        if not block.is_reduction:
            return False
        for name in writer.reads & writer.writes:
            earlier = [w for w in scope.writers(name) if w.order < writer.order]
            if not any(loops <= {loop.name for loop in w.loops} for w in earlier):
                return False
    for name in writer.inputs - seen:
        for other in scope.writers(name):
            inside = {loop.name for loop in shared_loops(other.above, writer.above)} & loops
            if inside and (other.order > writer.order or not _final(scope, other, loops, seen | {name})):
                return False
    return True


# --- safety of running a block at other points ---------------------------------------------------------------------------


def need_safe_domain(scope: Scope, leaf: Leaf, what: str) -> None:
    """Refuse a block that must not run at every point of its domain: its predicate keeps it from accessing out of bounds.

    The predicate may go if it follows from each iteration variable being within its domain, or if every access is within
    bounds at all points of the domain.
    """
    block: Block = leaf.stmt  # type: ignore[assignment]
    if block.predicate == TRUE:
        return
    ranges = {**scope.ranges, **loop_ranges(leaf.above)}
    facts = [f for it in block.iters for f in (it.binding >= 0, it.binding < it.extent)]
    if all(prove(c, ranges, facts) for c in conjuncts(block.predicate)) or in_bounds(
        block, {**scope.ranges, **iter_ranges(block)}
    ):
        return
    raise ScheduleError(
        f"`{block.name}` runs only where `{block.predicate}`, and cannot be {what} without that condition", (block, "guarded")
    )


def in_bounds(block: Block, ranges: Mapping[str, Interval]) -> bool:
    """Whether every access in a block is provably within its buffer at all points of the block's domain."""

    def visit(n, facts: tuple[Expr, ...]) -> bool:
        match n:
            case For() | Block() | Let():
                return False
            case Select(condition, true_value, false_value, True):
                return visit(condition, facts) and visit(true_value, (*facts, condition)) and visit(false_value, facts)
            case Load(buffer, indices) | Store(buffer, indices):
                inside = all(
                    prove(i >= 0, ranges, facts) and prove(i < dim, ranges, facts)
                    for i, dim in zip(indices, buffer.shape, strict=True)
                )
                return inside and all(visit(c, facts) for c in children(n) if type(c) is not Buffer)
            case _:
                return all(visit(c, facts) for c in children(n))

    return all(visit(part, ()) for part in (block.init, block.body) if part is not None)


# --- edits ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Insertion:
    """A statement to be put before statement number `position` of `body` (a Seq, or a single statement taken as one)."""

    body: Stmt
    position: int
    new: Stmt


def edited(func: PrimFunc, changes: Iterable[tuple[Stmt, Stmt | None]], insertion: Insertion | None = None) -> PrimFunc:
    """`func` with statements replaced, by identity, and one inserted; None removes, with the loops and sequences left empty."""
    table = {id(old): new for old, new in changes}

    def visit(stmt: Stmt) -> Stmt | None:
        new = changed(stmt)
        if insertion is not None and stmt is insertion.body and type(stmt) is not Seq:
            return seq(*((insertion.new, new) if insertion.position == 0 else (new, insertion.new)))
        return new

    def changed(stmt: Stmt) -> Stmt | None:
        if id(stmt) in table:
            return table[id(stmt)]
        if type(stmt) is Seq:
            kept = [visit(s) for s in stmt.stmts]
            if insertion is not None and stmt is insertion.body:
                kept.insert(insertion.position, insertion.new)
            elif all(a is b for a, b in zip(kept, stmt.stmts, strict=True)):
                return stmt
            remaining = [s for s in kept if s is not None]
            return seq(*remaining) if remaining else None
        if type(stmt) is For:
            body = visit(stmt.body)
            return stmt if body is stmt.body else None if body is None else stmt.with_(body=body)
        if type(stmt) is Store or (type(stmt) is Block and type(stmt.body) is Store and id(stmt.body) not in table):
            return stmt
        gone = False

        def child(s: Stmt) -> Stmt:
            nonlocal gone
            new = visit(s)
            gone = gone or new is None
            return s if new is None else new

        result = map_statements(stmt, child)
        return None if gone else result

    body = visit(func.body)
    assert body is not None, "a function keeps at least the block that was moved"
    return func.with_(body=body)


def parts(body: Stmt) -> tuple[Stmt, ...]:
    """The statements of a body in order."""
    return body.stmts if type(body) is Seq else (body,)


def pick_position(index: int, first: int, last: int, where: For) -> int:
    """The place in a loop's body that `index` asks for: -1 the last possible, -2 the first, otherwise the number itself."""
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


def with_buffer(func: PrimFunc, scope: Scope, buffer: Buffer) -> PrimFunc:
    """`func` with a buffer allocated: in the function, or in the block that the scope is the body of."""
    block = scope.block
    if block is None:
        return func.with_(allocs=(*func.allocs, buffer))
    current: Block = path_to_block(func, block.name)[-1]  # type: ignore[assignment]
    return edited(func, [(current, current.with_(allocs=(*current.allocs, buffer)))])


def without_buffers(func: PrimFunc, names: Iterable[str]) -> PrimFunc:
    """`func` with buffers no longer allocated."""
    dropped = set(names)

    def visit(n):
        n = map_statements(n, visit)
        if type(n) is Block and any(b.name in dropped for b in n.allocs):
            return n.with_(allocs=tuple(b for b in n.allocs if b.name not in dropped))
        return n

    return visit(func.with_(allocs=tuple(b for b in func.allocs if b.name not in dropped)))


@dataclass(frozen=True, eq=False)
class Names:
    """Fresh names for a function. Loops, buffers and lets differ from each other, loops from blocks and iteration variables,
    blocks from each other; iteration variables may be the same in several blocks."""

    outer: set[str]  # buffers, loops, lets, parameters
    axes: set[str]  # iteration variables of blocks
    handles: set[str]  # loops and blocks
    around: set[str]  # iteration variables of blocks that hold others, which may be visible anywhere

    @staticmethod
    def of(func: PrimFunc) -> Names:
        outer = {p.name for p in func.params} | {b.name for b in func.allocs}
        axes: set[str] = set()
        handles: set[str] = set()
        around: set[str] = set()
        for s in walk_stmts(func.body):
            match s:
                case For(var):
                    outer.add(var.name)
                    handles.add(var.name)
                case Block():
                    handles.add(s.name)
                    axes.update(own := {it.var.name for it in s.iters})
                    if any(isinstance(inner, Block) for inner in walk_stmts(s.body)):
                        around |= own
                    outer.update(buffer.name for buffer in s.allocs)
                case Let(var):
                    outer.add(var.name)
                case Allocate(buffer):
                    outer.add(buffer.name)
        return Names(outer, axes, handles, around)

    def loop(self, wanted: str) -> str:
        name = _fresh(wanted, self.outer, self.axes, self.handles)
        self.outer.add(name)
        self.handles.add(name)
        return name

    def buffer(self, wanted: str) -> str:
        name = _fresh(wanted, self.outer, self.axes)
        self.outer.add(name)
        return name

    def axis(self, wanted: str, visible: Collection[str] = ()) -> str:
        """A name for an iteration variable that is none of `visible`: those of the blocks inside its own."""
        name = _fresh(wanted, self.outer, self.around, visible)
        self.axes.add(name)
        return name

    def block(self, wanted: str) -> str:
        name = _fresh(wanted, self.handles)
        self.handles.add(name)
        return name


def _fresh(wanted: str, *taken: Collection[str]) -> str:
    name, n = wanted, 0
    while any(name in t for t in taken):
        n += 1
        name = f"{wanted}_{n}"
    return name


def buffer_of(block: Block, index: int | str, written: bool) -> Buffer:
    """The buffer that a block reads (or writes), by its number among them or by its name; refuses where there is none.

    The order is that of the stated regions, else of first use; what a reduction with an init accumulates in does not count as
    read.
    """
    stated = block.writes if written else block.reads
    if stated is not None:
        found = {r.buffer.name: r.buffer for r in stated}
    else:
        found = {}
        for part in (block.init, block.body):
            if part is not None:
                for n in walk(part):
                    if type(n) is (Store if written else Load):
                        found.setdefault(n.buffer.name, n.buffer)
        if not written and block.init is not None:
            for s in walk(block.init):
                if type(s) is Store:
                    found.pop(s.buffer.name, None)
    what = "writes" if written else "reads"
    if isinstance(index, str):
        if index not in found:
            raise ScheduleError(
                f"`{block.name}` {what} no buffer called `{index}`, but {listing(found)}", (block, f"{what} {listing(found)}")
            )
        return found[index]
    if not 0 <= index < len(found):
        raise ScheduleError(
            f"`{block.name}` {what} {len(found)} buffer(s), {listing(found)}: there is no number {index}", (block, "the block")
        )
    return list(found.values())[index]
