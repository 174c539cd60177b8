"""A function while it is read: what its statements have declared so far."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from .. import dtypes
from ..ir import Buffer, Expr, Iter, Stmt, Var
from ..traverse import N, substitute
from .expressions import Arguments, Expressions
from .names import SourceNames
from .scopes import Scope

Wrapper = Callable[[Stmt], Stmt]  # a statement around all that follow it
Body = Callable[[], Stmt | None]  # reads the statements of a body; None where they only declare


@dataclass
class Header:
    """The header of a block or of the function, collected while its statements are read."""

    scope: Scope
    block: bool
    iters: list[Iter] = field(default_factory=list)
    allocs: list[Buffer] = field(default_factory=list)
    annotations: dict[str, Any] = field(default_factory=dict)
    stated: dict[str, Any] = field(default_factory=dict)  # the other fields of the block
    begun: bool = False  # True once a statement has been read
    lets: dict[str, Expr] = field(default_factory=dict)  # bound directly in it; its header may use them

    def closed(self, node: N) -> N:
        """The node without the lets of this block, which start only after its header."""
        return substitute(node, self.lets) if self.lets else node


@dataclass
class Draft:
    """The names given so far, the headers of the blocks around the statement that is read, and symbolic sizes."""

    read: Expressions
    names: SourceNames
    branches: int = 0  # conditions around the statement that is read
    asserted: list[Expr] = field(default_factory=list)  # conditions on sizes, of the function
    headers: list[Header] = field(default_factory=list)  # that of the function first
    scalars: list[Var] = field(default_factory=list)  # parameters
    sizes: list[Var] = field(default_factory=list)  # that the body declares; they become the last parameters

    @property
    def header(self) -> Header:
        return self.headers[-1]

    @property
    def directly(self) -> bool:
        """True for a statement that stands directly in the body of the header."""
        return self.header.scope is self.read.scopes.here

    def block_header(self, given: Arguments) -> Header:
        """The block whose body directly contains a statement."""
        if not self.header.block or not self.directly:
            raise given.error(f"`{given.function}` stands directly in a block", 'with T.block("C"): ...')
        return self.header

    def declare_size(self, name: str, dtype: str, node: ast.AST) -> None:
        """A new symbolic size."""
        if dtype not in dtypes.TABLE or not dtypes.is_int(dtype):
            raise self.read.error(f"a size must be an integer, not {dtype}", node)
        var = Var(self.names.buffer(name), dtype)
        self.sizes.append(var)
        self.read.scopes.root.variables.add(var.name)
        self.read.scopes.bind(name, var)
