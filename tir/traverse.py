"""Traversal of nodes, derived once from their dataclass fields.

`children` and `map_children` see every Node in a field or in a tuple field, buffers and their shapes included. All rewrites
return the same object where nothing changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from typing import TypeVar

from .ir import Allocate, Block, Buffer, Const, Expr, For, Let, Load, Node, PrimFunc, Stmt, Store, Var

# The result of a rewrite: a node of the same sort as the given one (expression, statement, function).
N = TypeVar("N", bound=Node)

_FIELDS: dict[type, tuple[str, ...]] = {}
_PLAIN = {"str", "int", "bool", "Kind", "Axis", "Annotations", "Any"}


def _node_fields(cls: type) -> tuple[str, ...]:
    """The names of the fields that can hold nodes, in order."""
    names = _FIELDS.get(cls)
    if names is None:
        names = _FIELDS[cls] = tuple(f.name for f in fields(cls) if f.type not in _PLAIN)
    return names


def children(node: Node) -> Iterator[Node]:
    """The nodes directly below, in field order."""
    for name in _node_fields(type(node)):
        value = getattr(node, name)
        if isinstance(value, Node):
            yield value
        elif isinstance(value, tuple):
            for item in value:
                if isinstance(item, Node):
                    yield item


def map_children(node: N, fn: Callable[[Node], Node]) -> N:
    """A copy with each direct child `c` replaced by `fn(c)`; `node` itself if every result is its argument."""
    changes = None
    for name in _node_fields(type(node)):
        value = getattr(node, name)
        new: Node | tuple
        if isinstance(value, Node):
            new = fn(value)
        elif isinstance(value, tuple) and value:
            items = [fn(item) if isinstance(item, Node) else item for item in value]
            new = value if all(a is b for a, b in zip(items, value, strict=True)) else tuple(items)
        else:
            continue
        if new is not value:
            changes = changes or {}
            changes[name] = new
    return node if changes is None else node.with_(**changes)


def walk(node: Node) -> Iterator[Node]:
    """The node and everything below it, parents first, in program order."""
    stack = [node]
    while stack:
        current = stack.pop()
        yield current
        if type(current) is not Var and type(current) is not Const:
            stack.extend(reversed(tuple(children(current))))


def walk_stmts(node: Node) -> Iterator[Stmt]:
    """The statements of `node`, parents first, in program order; expressions are not entered."""
    stack = [node]
    while stack:
        current = stack.pop()
        if isinstance(current, Stmt):
            yield current
        stack.extend(c for c in reversed(tuple(children(current))) if isinstance(c, Stmt))


def rewrite(node: N, fn: Callable[[Node], Node | None]) -> N:
    """Bottom-up: each node, its children already rewritten, is replaced by `fn(node)`, or kept where that is None."""
    buffers: dict[int, Node] = {}

    def visit(n: Node) -> Node:
        if isinstance(n, Buffer):
            if id(n) not in buffers:
                buffers[id(n)] = apply(n)
            return buffers[id(n)]
        return apply(n)

    def apply(n: Node) -> Node:
        mapped = n if type(n) is Var or type(n) is Const else map_children(n, visit)
        result = fn(mapped)
        return mapped if result is None else result

    return visit(node)  # type: ignore[return-value]


def substitute(node: N, mapping: Mapping[Var, Expr] | Mapping[str, Expr]) -> N:
    """Replace free variables, all at once; keys are variables or their names."""
    by_name = {k if isinstance(k, str) else k.name: v for k, v in mapping.items()}
    if not by_name:
        return node
    return rewrite(node, lambda n: by_name.get(n.name) if type(n) is Var else None)


def replace_buffers(node: N, mapping: Mapping[str, Buffer]) -> N:
    """Replace buffers by name wherever they are read, written, listed or allocated."""
    return rewrite(node, lambda n: mapping.get(n.name) if type(n) is Buffer else None)


def replace_stmt(node: N, old: Stmt, new: Stmt) -> N:
    """Replace the statement `old` (by identity); ValueError if it is not there."""
    found = False

    def visit(n: Node) -> Node:
        nonlocal found
        if n is old:
            found = True
            return new
        return map_children(n, visit) if isinstance(n, (Stmt, PrimFunc)) and not found else n

    result = visit(node)
    if not found:
        raise ValueError("the statement to replace is not in this tree")
    return result  # type: ignore[return-value]


def path_to(node: Node, name: str) -> tuple[Stmt, ...]:
    """The statements from the root to the loop or block called `name`, that one included; () if there is none."""
    if isinstance(node, (For, Block)) and node.name == name:
        return (node,)
    for child in children(node):
        if isinstance(child, Stmt):
            below = path_to(child, name)
            if below:
                return (node, *below) if isinstance(node, Stmt) else below
    return ()


def blocks(node: Node) -> list[Block]:
    """The blocks, in program order; outer before inner."""
    return [s for s in walk_stmts(node) if isinstance(s, Block)]


def loops(node: Node) -> list[For]:
    """The loops, in program order; outer before inner."""
    return [s for s in walk_stmts(node) if isinstance(s, For)]


def variables(node: Node) -> set[str]:
    """The names of all variables used in `node`, bound ones included."""
    return {n.name for n in walk(node) if type(n) is Var}


def loads(node: Node) -> list[Load]:
    return [n for n in walk(node) if type(n) is Load]


def stores(node: Node) -> list[Store]:
    return [n for n in walk_stmts(node) if type(n) is Store]


def names(func: PrimFunc) -> set[str]:
    """Every name bound in a function: parameters, buffers, loops, blocks, iteration variables and lets."""
    taken = {p.name for p in func.params} | {b.name for b in func.allocs}
    for s in walk_stmts(func.body):
        match s:
            case For() | Let():
                taken.add(s.var.name)
            case Block():
                taken.add(s.name)
                taken.update(it.var.name for it in s.iters)
                taken.update(b.name for b in s.allocs)
            case Allocate(buffer):
                taken.add(buffer.name)
    return taken


def fresh(taken: set[str], wanted: str) -> str:
    """`wanted`, or `wanted_1`, `wanted_2`, ... : the first that is free; it is added to `taken`."""
    name, n = wanted, 0
    while name in taken:
        n += 1
        name = f"{wanted}_{n}"
    taken.add(name)
    return name
