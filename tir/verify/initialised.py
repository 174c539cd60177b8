"""Elements of temporaries that are read are also written, and the first access is no read.

That each is written before it is read, in every iteration, is not proved here: the interpreter traps it, since temporaries
start as NaN.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..analysis.context import Access
from ..arith.enumeration import enumerate_points
from ..ir import Allocate, Block, Buffer, PrimFunc
from ..traverse import variables, walk_stmts
from .accesses import accesses_in, constant_extents, grouped
from .ownership import constant_shape, distinct_accesses
from .report import Finding


def check_initialised(func: PrimFunc) -> Iterator[Finding]:
    """Allocated buffers are written where they are read."""
    for owner in (func, *walk_stmts(func.body)):
        if isinstance(owner, (PrimFunc, Allocate, Block)):
            buffers = (owner.buffer,) if isinstance(owner, Allocate) else owner.allocs
            accesses = grouped(accesses_in(owner.body)) if buffers else {}
            for buffer in buffers:
                yield from _written_first(buffer, accesses.get(buffer.name, []))


def _written_first(buffer: Buffer, accesses: list[Access]) -> Iterator[Finding]:
    loads, stores = [a for a in accesses if not a.is_store], [a for a in accesses if a.is_store]
    if not loads:
        return
    if not stores:
        yield Finding("error", f"`{buffer.name}` is read, but never written", loads[0].stmt)
        return
    if not accesses[0].is_store:
        severity = "unproved" if accesses[0].guarded else "error"
        yield Finding(severity, f"`{buffer.name}` is read before anything is written to it", accesses[0].stmt)
        return
    shape = constant_shape(buffer)
    if None in shape:
        return
    written = np.zeros([d or 0 for d in shape], bool)
    for a in distinct_accesses(stores):
        elements = _elements(a)
        if elements is None:
            return
        written[elements[0]] = True
    for a in distinct_accesses(loads):
        elements = _elements(a)
        if elements is None or not elements[1]:
            return
        missing = ~written[elements[0]]
        if np.any(missing):
            n = int(np.argmax(missing))
            place = ", ".join(str(int(np.broadcast_to(i, missing.shape)[n])) for i in elements[0]) or "()"
            yield Finding("error", f"`{buffer.name}[{place}]` is read, but never written", a.stmt)
            return


def _elements(a: Access) -> tuple[tuple[np.ndarray, ...], bool] | None:
    """The elements that an access touches, as index arrays, and whether it surely does; None if they are too many or unknown."""
    needed = set().union(*(variables(i) for i in a.indices), set())
    points = enumerate_points(constant_extents(a.loops), needed, a.conditions)
    if points is None or not points.whole:
        return None
    indices = points.evaluate(a.indices)
    if indices is None or any(np.any((i < 0) | (i >= d)) for i, d in zip(indices, constant_shape(a.buffer), strict=True)):
        return None  # reported elsewhere
    return tuple(indices), points.certain
