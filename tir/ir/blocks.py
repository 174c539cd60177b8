"""Blocks, the units of scheduling, and their axes."""

from __future__ import annotations

from dataclasses import field
from enum import Enum

from .buffers import Buffer, Region
from .expressions import TRUE, Expr, Var
from .nodes import Annotations, Node, node
from .statements import Stmt


class Axis(Enum):
    """The kind of a block iteration variable: data parallel, a commutative reduction, or ordered."""

    SPATIAL = "S"
    REDUCE = "R"
    OPAQUE = "O"


NOT_SPATIAL = (Axis.REDUCE, Axis.OPAQUE)  # kinds of axes whose iterations cannot run side by side


@node
class Iter(Node):
    """A block iteration variable over `range(extent)`, bound to an expression of the loop variables around the block."""

    var: Var
    extent: Expr
    axis: Axis
    binding: Expr

    @property
    def domain(self) -> tuple[Expr, Expr]:
        """The conditions, over loop variables, that the binding is in the domain."""
        return self.binding >= 0, self.binding < self.extent


@node
class Block(Stmt):
    """The unit of scheduling: `body` runs for the bound values of `iters`, where `predicate` (over loop variables) holds.

    `init`, if any, runs before `body` in the first iteration of the reduction: where every REDUCE iteration variable is 0.
    `reads` and `writes` are kept only where the author stated them; `analysis.regions` derives them.
    """

    name: str
    iters: tuple[Iter, ...]
    body: Stmt
    init: Stmt | None = None
    predicate: Expr = TRUE
    reads: tuple[Region, ...] | None = None
    writes: tuple[Region, ...] | None = None
    allocs: tuple[Buffer, ...] = ()
    annotations: Annotations = field(default=(), hash=False)

    @property
    def spatial(self) -> tuple[Iter, ...]:
        """The data parallel axes."""
        return tuple(it for it in self.iters if it.axis is Axis.SPATIAL)

    @property
    def reduction(self) -> tuple[Iter, ...]:
        """The reduction axes."""
        return tuple(it for it in self.iters if it.axis is Axis.REDUCE)

    @property
    def is_reduction(self) -> bool:
        return bool(self.reduction)

    @property
    def first_step(self) -> tuple[Expr, ...]:
        """The conditions, over loop variables, of the first step of the reduction."""
        return tuple(it.binding.equal(0) for it in self.reduction)
