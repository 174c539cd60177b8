"""Whether two functions are the same but for names."""

from __future__ import annotations

from .ir import Block, Buffer, Node, PrimFunc, Stmt, Var, need_func
from .traverse import rewrite, rewrite_statements, substitute, walk


def structural_equal(f: PrimFunc, g: PrimFunc) -> bool:
    """Whether two functions differ at most in the names of functions, parameters, buffers, loops, blocks, variables."""
    return _renamed(need_func(f, "structural_equal")) == _renamed(need_func(g, "structural_equal"))


def _renamed(func: PrimFunc) -> PrimFunc:
    """The function with names that say in which order things occur."""
    number = 0

    def scoped(s: Stmt) -> Stmt:
        """A block whose iteration variables have names of their own: those of several blocks may be the same."""
        nonlocal number
        if not isinstance(s, Block):
            return s
        number += 1
        own = {it.var.name: it.var.with_(name=f" {number}.{n}") for n, it in enumerate(s.iters)}
        inner = substitute(s.with_(iters=()), own)
        iters = tuple(it.with_(var=own[it.var.name]) for it in s.iters)
        return inner.with_(iters=iters, predicate=s.predicate)  # which is over loops, not over the axes

    func = rewrite_statements(func, scoped)
    names: dict[tuple[type, str], str] = {}
    for n in walk(func):
        if isinstance(n, Var | Buffer | Block):
            names.setdefault((type(n), n.name), f"n{len(names)}")

    def visit(n: Node) -> Node | None:
        return n.with_(name=names[type(n), n.name]) if isinstance(n, Var | Buffer | Block) else None

    return rewrite(func, visit).with_(name="main")
