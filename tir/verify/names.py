"""Names are unique."""

from __future__ import annotations

from collections.abc import Iterator

from ..ir import Allocate, Block, Buffer, For, PrimFunc, Stmt, sayable
from ..traverse import walk
from .report import Finding


def check_names(func: PrimFunc) -> Iterator[Finding]:
    """Each name has one meaning. The names of loops and blocks, by which schedules refer to them, differ from all others."""
    seen: dict[str, str] = {}

    def take(name: str, what: str, stmt: Stmt | None = None) -> Iterator[Finding]:
        if not sayable(name):
            yield Finding("error", f"the {what} `{name}` is not named by an identifier", stmt)
        if name in seen:
            other = f"two {what}s are" if seen[name] == what else f"a {seen[name]} and a {what} are both"
            yield Finding("error", f"{other} called `{name}`", stmt)
        seen.setdefault(name, what)

    for p in func.params:
        yield from take(p.name, "buffer" if isinstance(p, Buffer) else "size")
    for b in func.allocs:
        yield from take(b.name, "buffer")
    iters: dict[str, Stmt] = {}
    block_names: dict[str, Stmt] = {}
    for n in walk(func.body):
        match n:
            case For():
                yield from take(n.name, "loop", n)
            case Block():
                if n.name in block_names:
                    yield Finding("error", f"two blocks are called `{n.name}`", n)
                block_names[n.name] = n
                for b in n.allocs:
                    yield from take(b.name, "buffer", n)
                own = [it.var.name for it in n.iters]
                for name in own:
                    if own.count(name) > 1:
                        yield Finding("error", f"block `{n.name}` has two iteration variables called `{name}`", n)
                    iters.setdefault(name, n)
            case Allocate(buffer):
                yield from take(buffer.name, "buffer", n)
    for name, stmt in block_names.items():
        if seen.get(name) == "loop":
            yield Finding("error", f"a loop and a block are both called `{name}`", stmt)
    for name, stmt in iters.items():
        if name in seen:
            yield Finding("error", f"a {seen[name]} and an iteration variable are both called `{name}`", stmt)
