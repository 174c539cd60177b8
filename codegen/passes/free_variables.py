"""The buffers that a statement uses, and its free variables and buffers."""

from __future__ import annotations

from tir.ir import Allocate, Buffer, For, Let, Load, Node, Seq, Stmt, Store, Var, seq
from tir.traverse import children, map_statements, walk


def used(n: Node) -> dict[str, Buffer]:
    """The buffers that `n` loads or stores, by name, in order."""
    return {x.buffer.name: x.buffer for x in walk(n) if isinstance(x, Load | Store)}


class Uses:
    """The names of the buffers that nodes load or store, each node looked at once."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Node, frozenset[str]]] = {}  # by identity; the nodes are kept, so that none takes another's

    def of(self, n: Node) -> frozenset[str]:
        if id(n) not in self._known:
            own = (frozenset([n.buffer.name]),) if isinstance(n, Load | Store) else ()
            self._known[id(n)] = n, frozenset().union(*own, *map(self.of, children(n)))
        return self._known[id(n)][1]

    def part(self, s: Stmt, name: str) -> Stmt:
        """A statement, which uses a buffer, without those in its sequences that do not; what does not use it stays as it is."""
        if name not in self.of(s):
            return s
        if isinstance(s, Seq):
            return seq(*(self.part(x, name) for x in s.stmts if name in self.of(x)))
        return map_statements(s, lambda x: self.part(x, name))


def free_names(s: Stmt) -> tuple[dict[str, Var], dict[str, Buffer]]:
    """The variables and the buffers that `s` uses but does not bind, by name, in order."""
    variables: dict[str, Var] = {}
    buffers: dict[str, Buffer] = {}

    def visit(n: Node, bound: frozenset[str]) -> None:
        match n:
            case Var(name):
                if name not in bound:
                    variables.setdefault(name, n)
            case For(var, extent, body):
                visit(extent, bound)
                visit(body, bound | {var.name})
            case Let(var, value, body):
                visit(value, bound)
                visit(body, bound | {var.name})
            case Allocate(buffer, body):
                visit(buffer, bound | {buffer.name})
                visit(body, bound | {buffer.name})
            case Buffer(name, shape):
                if name not in bound:
                    buffers.setdefault(name, n)
                for d in shape:
                    visit(d, bound)
            case _:
                for c in children(n):
                    visit(c, bound)

    visit(s, frozenset())
    return variables, buffers
