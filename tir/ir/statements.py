"""Statements: loops, stores, choices, definitions and sequences."""

from __future__ import annotations

from dataclasses import field
from enum import Enum

from .buffers import Buffer
from .expressions import TRUE, Const, Expr, Var, as_index
from .nodes import Annotations, Node, node, printer

# The GPU axes that a THREAD loop may be bound to.
THREAD_AXES = (*(f"{kind}.{axis}" for kind in ("blockIdx", "threadIdx", "vthread") for axis in "xyz"), "vthread")


class Kind(Enum):
    """The way the iterations of a loop run."""

    SERIAL = "serial"
    PARALLEL = "parallel"
    VECTORIZED = "vectorized"
    UNROLLED = "unroll"
    THREAD = "thread_binding"


IN_ANY_ORDER = (Kind.PARALLEL, Kind.VECTORIZED, Kind.THREAD)  # kinds of loops whose iterations may run side by side


class Stmt(Node):
    """A statement, which is run for its effect on buffers."""

    __slots__ = ()

    def __str__(self) -> str:
        return printer().stmt_text(self)


@node
class For(Stmt):
    """`for var in range(extent): body`. `thread` names the GPU axis of a THREAD loop ("blockIdx.x", "vthread.x", ...)."""

    var: Var
    extent: Expr
    body: Stmt
    kind: Kind = Kind.SERIAL
    annotations: Annotations = field(default=(), hash=False)
    thread: str = ""

    @property
    def name(self) -> str:
        return self.var.name


@node
class Seq(Stmt):
    """Statements in order; at least two, none itself a Seq (see `seq`)."""

    stmts: tuple[Stmt, ...]


@node
class Store(Stmt):
    buffer: Buffer
    indices: tuple[Expr, ...]
    value: Expr


@node
class If(Stmt):
    condition: Expr
    then: Stmt
    orelse: Stmt | None = None


@node
class Let(Stmt):
    """Bind `var` to `value` within `body`."""

    var: Var
    value: Expr
    body: Stmt


@node
class Allocate(Stmt):
    """`buffer` exists, uninitialised, within `body`."""

    buffer: Buffer
    body: Stmt


@node
class Evaluate(Stmt):
    """Evaluate an expression for its effect."""

    value: Expr


NOTHING = Evaluate(Const(0))  # a statement without effect


def seq(*stmts: Stmt | None) -> Stmt:
    """The statements in order, flattened; None is dropped, a single one is returned as it is."""
    flat: list[Stmt] = []
    for s in stmts:
        if isinstance(s, Seq):
            flat.extend(s.stmts)
        elif s is not None:
            flat.append(s)
    if not flat:
        raise ValueError("seq() needs at least one statement")
    return flat[0] if len(flat) == 1 else Seq(tuple(flat))


def guarded(condition: Expr, body: Stmt) -> Stmt:
    """`body` under `condition`, or `body` itself if that is trivially true."""
    return body if condition == TRUE else If(condition, body)


def nest(loops, body: Stmt) -> Stmt:
    """`body` inside serial loops, outermost first; each loop is (var, extent) or a For whose body is replaced."""
    for loop in reversed(tuple(loops)):
        body = loop.with_(body=body) if isinstance(loop, For) else For(loop[0], as_index(loop[1]), body)
    return body
