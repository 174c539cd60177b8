"""Calls of functions that the IR does not know: they are scheduled and printed, not run."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import field

from .buffers import Buffer, Load
from .expressions import Var
from .nodes import Node, node
from .statements import NOTHING, Evaluate, Stmt, Store, nest, seq


@node
class Text(Node):
    """A text among the arguments of a foreign call."""

    value: str


@node
class Address(Node):
    """The memory of a buffer among the arguments of a foreign call."""

    buffer: Buffer


@node
class Foreign(Node):
    """A call of a function that the IR does not know. Its arguments are expressions, texts, addresses and foreign calls."""

    op: str
    args: tuple[Node, ...]
    dtype: str = ""


@node
class Opaque(Stmt):
    """A foreign call for its effect. `body` models that effect for analyses: it reads all elements of the named buffers, and
    writes those of the ones that are not read-only. It does not model values: a function with a foreign call can be scheduled
    and printed, not run."""

    call: Foreign
    body: Stmt = field(compare=False, hash=False)


def opaque(call: Foreign, buffers: Iterable[Buffer], loop: Callable[[str], str], read_only: Collection[str] = ()) -> Opaque:
    """A foreign call with its effect on `buffers`, some `read_only`; `loop` makes names of the effect's loops."""
    parts = []
    for b in buffers:
        loops = [Var(loop(f"{b.name}_{n}"), dim.dtype) for n, dim in enumerate(b.shape)]
        read = Load(b, tuple(loops))
        effect = Evaluate(read) if b.name in read_only else Store(b, tuple(loops), read)
        parts.append(nest(zip(loops, b.shape, strict=True), effect))
    return Opaque(call, seq(*parts) if parts else NOTHING)
