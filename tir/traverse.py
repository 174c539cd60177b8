"""Traversal of nodes, derived from their dataclass fields.

`children` and `map_children` see every Node in a field or in a tuple field, buffers and their shapes included. All rewrites
return the same object where nothing changed.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import fields
from math import prod
from operator import is_
from typing import TypeVar

from .ir.blocks import Axis, Block
from .ir.buffers import Buffer, Load
from .ir.depth import MAX_DEPTH, MAX_NODES, make_room
from .ir.expressions import Binary, Call, Cast, Const, Expr, Select, Var
from .ir.foreign import Address, Foreign, Opaque
from .ir.functions import PrimFunc
from .ir.memo import memoized
from .ir.nodes import Node
from .ir.statements import Allocate, For, If, Kind, Let, Seq, Stmt, Store

# The result of a rewrite: a node of the same sort as the given one (expression, statement, function).
N = TypeVar("N", bound=Node)

_FIELDS: dict[type, tuple[str, ...]] = {}
_PLAIN = {"str", "int", "bool", "tuple[int, ...]", "Kind", "Axis", "Annotations", "Any"}


def _node_fields(cls: type) -> tuple[str, ...]:
    """The names of the fields that can hold nodes, in order."""
    names = _FIELDS.get(cls)
    if names is None:
        names = _FIELDS[cls] = tuple(f.name for f in fields(cls) if f.type not in _PLAIN)
    return names


def children(node: Node) -> list[Node]:
    """The nodes directly below, in field order."""
    kind = type(node)
    if kind is Var or kind is Const:
        return []
    if kind is Binary:  # the most frequent of the others
        return [node.a, node.b]  # type: ignore[attr-defined]
    if kind is Load:
        return [node.buffer, *node.indices]  # type: ignore[attr-defined]
    if kind is Buffer:
        return [*node.shape]  # type: ignore[attr-defined]
    result: list[Node] = []
    for name in _node_fields(kind):
        value = getattr(node, name)
        if type(value) is tuple:
            result += [item for item in value if isinstance(item, Node)]
        elif isinstance(value, Node):
            result.append(value)
    return result


def substatements(node: Node) -> tuple[Stmt, ...]:
    """The statements directly below, in program order: a block's init before its body."""
    kind = type(node)
    if kind is For or kind is Let or kind is Allocate or kind is PrimFunc or kind is Opaque:
        return (node.body,)  # type: ignore[attr-defined]
    if kind is Seq:
        return node.stmts  # type: ignore[attr-defined]
    if kind is Block:
        return (node.body,) if node.init is None else (node.init, node.body)  # type: ignore[attr-defined]
    if kind is If:
        return (node.then,) if node.orelse is None else (node.then, node.orelse)  # type: ignore[attr-defined]
    return ()


def tree_size(node: Node) -> int:
    """The number of nodes of a tree. A shared node counts at each occurrence, and is visited once."""
    return _size_and_depth(node)[0]


def tree_depth(node: Node) -> int:
    """The number of levels of nodes."""
    return _size_and_depth(node)[1]


def make_room_for(node: N) -> N:
    """The node, after Python's recursion limit is raised as far as its depth needs."""
    tree_depth(node)
    return node


def too_large(*nodes: Node) -> str:
    """A message about the limit that nodes exceed, of size or of depth; empty if they exceed neither."""
    sizes, depths = zip(*map(_size_and_depth, nodes), strict=True)
    if sum(sizes) > MAX_NODES:
        return f"{sum(sizes)} nodes, and at most {MAX_NODES} can be compiled"
    if max(depths) > MAX_DEPTH:
        return f"{max(depths)} levels of nodes, and at most {MAX_DEPTH} can be compiled"
    return ""


@memoized
def _size_and_depth(node: Node) -> tuple[int, int]:
    """The size and the depth of a tree, to which Python's recursion limit is raised; iterative, as it may be deeper."""
    known: dict[int, tuple[int, int]] = {}
    left = [node]
    while left:
        n = left[-1]
        size, depth, waits = 1, 0, False
        for c in children(n):
            found = (1, 1) if type(c) is Var or type(c) is Const else known.get(id(c))
            if found is None:
                left.append(c)
                waits = True
            elif not waits:
                size, depth = size + found[0], max(depth, found[1])
        if not waits:
            known[id(n)] = size, depth + 1
            left.pop()
    size, depth = known[id(node)]
    if depth <= MAX_DEPTH:
        make_room(depth)
    return size, depth


def map_children(node: N, fn: Callable[[Node], Node]) -> N:
    """A copy with each direct child `c` replaced by `fn(c)`; `node` itself if every result is its argument."""
    kind = type(node)
    if kind is Binary:
        a, b = fn(node.a), fn(node.b)  # type: ignore[attr-defined]
        return node if a is node.a and b is node.b else Binary(node.op, a, b)  # type: ignore
    changes = None
    for name in _node_fields(kind):
        value = getattr(node, name)
        new: Node | tuple
        if type(value) is tuple:
            if not value:
                continue
            items = tuple([fn(item) if isinstance(item, Node) else item for item in value])
            new = value if all(map(is_, items, value)) else items
        elif isinstance(value, Node):
            new = fn(value)
        else:
            continue
        if new is not value:
            changes = changes or {}
            changes[name] = new
    return node if changes is None else node.with_(**changes)


def map_statements(node: N, fn: Callable[[Stmt], Stmt]) -> N:
    """A copy with each direct substatement `s` replaced by `fn(s)`; `node` itself if every result is its argument."""
    old = substatements(node)
    new = [fn(s) for s in old]
    if all(map(is_, new, old)):
        return node
    if type(node) is Seq:
        return node.with_(stmts=tuple(new))
    if type(node) is Block and len(new) > 1:
        return node.with_(init=new[0], body=new[1])
    if type(node) is If:
        return node.with_(then=new[0], **({"orelse": new[1]} if len(new) > 1 else {}))
    return node.with_(body=new[0])


def walk(node: Node) -> Iterator[Node]:
    """The node and everything below it, parents first, in program order."""
    stack = [node]
    while stack:
        current = stack.pop()
        yield current
        if type(current) is not Var and type(current) is not Const:
            stack += children(current)[::-1]


def walk_stmts(node: Node) -> Iterator[Stmt]:
    """The statements of `node`, parents first, in program order; expressions are not entered."""
    stack = [node] if isinstance(node, Stmt) else list(reversed(substatements(node)))
    while stack:
        current = stack.pop()
        yield current  # type: ignore[misc]
        stack += substatements(current)[::-1]


def rewrite(node: N, fn: Callable[[Node], Node | None]) -> N:
    """Rewrite bottom-up: each node, its children already rewritten, becomes `fn(node)`, or stays where that is None."""
    buffers: dict[int, Node] = {}

    def visit(n: Node) -> Node:
        kind = type(n)
        if kind is Buffer and id(n) in buffers:
            return buffers[id(n)]
        mapped = n if kind is Var or kind is Const else map_children(n, visit)
        result = fn(mapped)
        if result is None:
            result = mapped
        if kind is Buffer:
            buffers[id(n)] = result
        return result

    return visit(node)  # type: ignore[return-value]


def rewrite_statements(node: N, fn: Callable[[Stmt], Stmt]) -> N:
    """Rewrite bottom-up: each statement, its substatements already rewritten, becomes `fn(statement)`; also `node` itself."""

    def visit(s: Stmt) -> Stmt:
        return fn(map_statements(s, visit))

    return visit(node) if isinstance(node, Stmt) else map_statements(node, visit)  # type: ignore[return-value]


def substitute(node: N, mapping: Mapping[Var, Expr] | Mapping[str, Expr]) -> N:
    """Replace free variables, all at once; keys are variables or their names. Where a value has another dtype than its variable,
    the node stays well typed: index arithmetic is widened, a value from memory is cast."""
    if not mapping or type(node) is Const:
        return node
    by_name = {k if type(k) is str else k.name: v for k, v in mapping.items()}  # type: ignore[union-attr]
    buffers: dict[int, Node] = {}
    mixed = False

    def visit(n: Node) -> Node:
        nonlocal mixed
        kind = type(n)
        if kind is Var:
            value = by_name.get(n.name)  # type: ignore[attr-defined]
            if value is None:
                return n
            if value.dtype == n.dtype:  # type: ignore[attr-defined]
                return value
            mixed = True
            return _of_dtype(value, n.dtype)  # type: ignore[attr-defined]
        if kind is Const:
            return n
        if kind is Buffer:
            known = buffers.get(id(n))
            if known is None:
                known = buffers[id(n)] = map_children(n, visit)
            return known
        new = map_children(n, visit)
        return _fit_dtypes(new, n) if mixed and new is not n else new

    return visit(node)  # type: ignore[return-value]


_INDICES = ("int32", "int64")  # dtypes of index arithmetic, which is exact


def _of_dtype(value: Expr, dtype: str) -> Expr:
    """A value in place of a variable of another dtype: unchanged if it is index arithmetic (see `_fit_dtypes`), else a cast."""
    plain = value.dtype in _INDICES and dtype in _INDICES and not any(type(n) in (Load, Call) for n in walk(value))
    return value if plain else Cast(dtype, value)


def _fit_dtypes(n: Node, before: Node) -> Node:
    """A copy of a node whose operands differ in dtype from `before`: widened in index arithmetic, cast where a dtype is fixed."""

    def fitted(e: Expr, dtype: str) -> Expr:
        return e if e.dtype == dtype else e.with_(dtype=dtype) if type(e) is Const else Cast(dtype, e)

    match n:
        case Binary(_, a, b) if a.dtype != b.dtype:
            return n.with_(a=fitted(a, "int64"), b=fitted(b, "int64"))
        case Select(_, a, b) if a.dtype != b.dtype:
            return n.with_(true_value=fitted(a, "int64"), false_value=fitted(b, "int64"))
        case Store(buffer, _, value):
            return n.with_(value=fitted(value, buffer.dtype))
        case Let(var, value):
            return n.with_(value=fitted(value, var.dtype))
        case For(var, extent):
            return n.with_(extent=fitted(extent, var.dtype))
        case Call(_, args):
            return n.with_(args=tuple(fitted(a, b.dtype) for a, b in zip(args, before.args, strict=True)))  # type: ignore[attr-defined]
        case _:
            return n


def replace_buffers(node: N, mapping: Mapping[str, Buffer]) -> N:
    """Replace buffers by name wherever they are read, written, listed or allocated."""
    return rewrite(node, lambda n: mapping.get(n.name) if type(n) is Buffer else None)


def move_accesses(node: N, place: Callable[[Buffer, tuple[Expr, ...]], tuple[Buffer, tuple[Expr, ...]] | None]) -> N:
    """Redirect each load and store to the buffer and the indices `place(buffer, indices)`; None leaves it unchanged."""

    def visit(n: Node) -> Node | None:
        if isinstance(n, Load | Store) and (new := place(n.buffer, n.indices)) is not None:
            return n.with_(buffer=new[0], indices=new[1])
        return None

    return rewrite(node, visit)


def replace_stmt(node: N, old: Stmt, new: Stmt) -> N:
    """Replace the statement `old` (by identity); ValueError if the tree does not hold it."""
    found = False

    def visit(n):
        nonlocal found
        if n is old:
            found = True
            return new
        return n if found else map_statements(n, visit)

    result = visit(node)
    if not found:
        raise ValueError("the statement to replace is not in this tree")
    return result


def path_where(node: Node, wanted: Callable[[Stmt], bool]) -> list[Stmt]:
    """The path of statements from the root to the first that is wanted, inclusive; [] if none is."""
    if isinstance(node, Stmt) and wanted(node):
        return [node]
    for child in substatements(node):
        below = path_where(child, wanted)
        if below:
            return [node, *below] if isinstance(node, Stmt) else below
    return []


def path_to(node: Node, name: str) -> list[Stmt]:
    """The path of statements from the root to the loop or block called `name`, inclusive; [] if none has that name."""
    return path_where(node, lambda s: isinstance(s, (For, Block)) and s.name == name)


def loops_to(node: Node, name: str) -> list[For]:
    """The loops of the path to the loop or block called `name`, outermost first; [] if none has that name."""
    return loops_in(path_to(node, name))


def blocks(node: Node) -> list[Block]:
    """The blocks, in program order; outer before inner."""
    return [s for s in walk_stmts(node) if isinstance(s, Block)]


def loops(node: Node) -> list[For]:
    """The loops, in program order; outer before inner."""
    return [s for s in walk_stmts(node) if isinstance(s, For)]


def loops_in(path: Iterable[Stmt]) -> list[For]:
    """The loops among the statements of a path, such as `path_to` gives."""
    return [s for s in path if type(s) is For]


def iterations(nest: Iterable[For]) -> int:
    """The number of iterations of nested loops; symbolic extents count as 1."""
    return prod(x.extent.value for x in nest if isinstance(x.extent, Const))


def perfect_nest(stmt: Stmt, kind: Kind | None = None) -> tuple[list[For], Stmt]:
    """The perfect nest of loops that starts at a statement, and its body. With `kind`, loops below the first are of that kind."""
    found: list[For] = []
    while isinstance(stmt, For) and (not found or kind in (None, stmt.kind)):
        found.append(stmt)
        stmt = stmt.body
    return found, stmt


def variables(*nodes: Node) -> set[str]:
    """The names of all variables used in the nodes, bound ones included."""
    result: set[str] = set()
    stack = list(nodes)
    while stack:
        n = stack.pop()
        kind = type(n)
        if kind is Var:
            result.add(n.name)  # type: ignore[attr-defined]
        elif kind is not Const:
            stack += children(n)
    return result


@memoized
def variable_names(node: Node) -> frozenset[str]:
    """The names of all variables used in a node, bound ones included; memoized."""
    return frozenset(variables(node))


def axis_loops(block: Block, *axes: Axis) -> set[str]:
    """The variables in the bindings of a block's axes of the given kinds; for REDUCE, its reduction loops."""
    return variables(*(it.binding for it in block.iters if it.axis in axes))


def pure_reduction_loops(block: Block) -> set[str]:
    """The loops in the reduction bindings of a block, and in no other binding."""
    return axis_loops(block, Axis.REDUCE) - axis_loops(block, Axis.SPATIAL, Axis.OPAQUE)


def loads(node: Node) -> list[Load]:
    return [n for n in walk(node) if type(n) is Load]


def divisions(*nodes: Node) -> list[Binary]:
    """The nodes `//` and `%`."""
    return [n for node in nodes for n in walk(node) if type(n) is Binary and n.op in ("//", "%")]


def stores(node: Node) -> list[Store]:
    return [n for n in walk_stmts(node) if type(n) is Store]


@memoized
def loaded_names(node: Node) -> frozenset[str]:
    """The names of the buffers that are loaded from."""
    return frozenset(x.buffer.name for x in loads(node))


@memoized
def stored_names(node: Node) -> frozenset[str]:
    """The names of the buffers that are stored to."""
    return frozenset(x.buffer.name for x in stores(node))


@memoized
def accessed_names(node: Node) -> frozenset[str]:
    """The names of the buffers that are loaded from or stored to."""
    own = (frozenset([node.buffer.name]),) if isinstance(node, Load | Store) else ()
    return frozenset().union(*own, *map(accessed_names, children(node)))


@memoized
def has_foreign_calls(stmt: Stmt) -> bool:
    return type(stmt) is Opaque or any(map(has_foreign_calls, substatements(stmt)))


def foreign_calls(stmt: Stmt) -> list[Opaque]:
    return [s for s in walk_stmts(stmt) if type(s) is Opaque] if has_foreign_calls(stmt) else []


def named_buffers(call: Foreign) -> list[Buffer]:
    """The distinct buffers among the arguments of a foreign call, in order."""
    found = [n.buffer for n in walk(call) if type(n) in (Address, Load)]  # type: ignore[attr-defined]
    return list({b.name: b for b in found}.values())


def written_by(call: Foreign) -> set[str]:
    """The names of the buffers that a foreign call may write: all but those behind read-only pointers."""
    match call:
        case Foreign("tvm_access_ptr", (_, Address(), *_, Const(value=mode))) if not int(mode) & 2:
            return set()
    given = {a.buffer.name for a in call.args if type(a) is Address}
    inner = (written_by(a) if type(a) is Foreign else {x.buffer.name for x in loads(a)} for a in call.args)
    return given.union(*inner)


def bound_names(node: Node) -> Iterator[tuple[str, str, Stmt | None]]:
    """The names bound in a function or statement, each with its kind and the statement that binds it (None: the function)."""
    if isinstance(node, PrimFunc):
        yield from ((p.name, "buffer" if isinstance(p, Buffer) else "size", None) for p in (*node.params, *node.allocs))
    for s in walk_stmts(node):
        match s:
            case For():
                yield s.name, "loop", s
            case Let(var):
                yield var.name, "let", s
            case Allocate(buffer):
                yield buffer.name, "buffer", s
            case Block():
                yield s.name, "block", s
                yield from ((b.name, "buffer", s) for b in s.allocs)
                yield from ((it.var.name, "iteration variable", s) for it in s.iters)


def names(func: PrimFunc) -> set[str]:
    """Every name bound in a function: parameters, buffers, loops, blocks, iteration variables and lets."""
    return {name for name, _, _ in bound_names(func)}


def fresh(taken: set[str], wanted: str, others: Container[str] = (), tried: dict[str, int] | None = None) -> str:
    """`wanted`, or `wanted_1`, `wanted_2`, ... : the first that is neither in `taken` nor in `others`; it is added to `taken`.

    `tried` keeps the suffix at which the next call with the same sets resumes, by name."""
    n = 0 if tried is None else tried.get(wanted, 0)
    name = f"{wanted}_{n}" if n else wanted
    while name in taken or name in others:
        n += 1
        name = f"{wanted}_{n}"
    if tried is not None:
        tried[wanted] = n
    taken.add(name)
    return name


def with_fresh_loops(s: Stmt, taken: set[str]) -> Stmt:
    """A copy of `s` with fresh names for its loops, thread loops excepted; the names are added to `taken`."""
    match s:
        case For(var, _, body) if s.kind is not Kind.THREAD:
            new = var.with_(name=fresh(taken, var.name))
            return s.with_(var=new, body=with_fresh_loops(substitute(body, {var.name: new}), taken))
        case _:
            return map_statements(s, lambda c: with_fresh_loops(c, taken))
