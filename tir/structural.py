"""Equality of functions up to names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .ir import Annotations, Block, Buffer, For, Node, PrimFunc, Stmt, Var, need_func
from .traverse import rewrite, rewrite_statements, substitute, walk


def structural_equal(f: PrimFunc, g: PrimFunc) -> bool:
    """True where two functions are equal up to the names of functions, parameters, buffers, loops, blocks and variables. Words
    in the texts of attributes and annotations that are such names count as names, too."""
    return _renamed(need_func(f, "structural_equal")) == _renamed(need_func(g, "structural_equal"))


@dataclass(frozen=True, slots=True)
class _Word:
    """A name within an annotation, as the new names that it may stand for. Two words are equal where they share one."""

    meanings: frozenset[str]

    def __str__(self) -> str:
        return min(self.meanings)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Word) and not self.meanings.isdisjoint(other.meanings)


Words = Mapping[str, frozenset[str]]


def _read(value: Any, words: Words) -> Any:
    """The value of an annotation in comparable form: each text split into words, names as `_Word`."""
    match value:
        case str():
            return [_Word(words[part]) if part in words else part for part in re.split(r"(\w+)", value)]
        case list() | tuple():
            return [_read(v, words) for v in value]
        case dict():
            items = ((_read(k, words), _read(v, words)) for k, v in value.items())
            return sorted(items, key=lambda item: "".join(map(str, item[0])))
        case _:
            return value


def _renamed(func: PrimFunc) -> PrimFunc:
    """The function with its names replaced by numbered ones, in order of occurrence."""
    axes: dict[str, list[str]] = {}  # the names of a block's iteration variables

    def scoped(s: Stmt) -> Stmt:
        """A block with unique names for its iteration variables: blocks may share such names."""
        if not isinstance(s, Block):
            return s
        axes[s.name] = [it.var.name for it in s.iters]
        own = {it.var.name: it.var.with_(name=f" {len(axes)}.{n}") for n, it in enumerate(s.iters)}
        inner = substitute(s.with_(iters=()), own)
        iters = tuple(it.with_(var=own[it.var.name]) for it in s.iters)
        return inner.with_(iters=iters, predicate=s.predicate)  # which is over loops, not over the axes

    func = rewrite_statements(func, scoped)
    names: dict[tuple[type, str], str] = {}
    for n in walk(func):
        if isinstance(n, Var | Buffer | Block):
            names.setdefault((type(n), n.name), f"n{len(names)}")
    words: dict[str, frozenset[str]] = {func.name: frozenset(["main"])}
    for (_, name), new in names.items():
        words[name] = words.get(name, frozenset()) | {new}

    def read(annotations: Annotations, words: Words) -> Annotations:
        return tuple((key, _read(value, words)) for key, value in annotations)

    def visit(n: Node) -> Node | None:
        match n:
            case Var() | Buffer():
                return n.with_(name=names[type(n), n.name])
            case Block() if n.annotations:
                own = {name: frozenset([it.var.name]) for name, it in zip(axes[n.name], n.iters, strict=True)}
                return n.with_(name=names[Block, n.name], annotations=read(n.annotations, words | own))
            case Block():
                return n.with_(name=names[Block, n.name])
            case For() if n.annotations:
                return n.with_(annotations=read(n.annotations, words))
            case PrimFunc():
                return n.with_(name="main", attrs=read(n.attrs, words))
            case _:
                return None

    return rewrite(func, visit)
