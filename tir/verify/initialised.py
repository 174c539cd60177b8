"""Elements of temporaries that are read are also written, and the first access is no read.

That each is written before it is read, in every iteration, is not proved here: the interpreter traps it, since temporaries
start as NaN.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from ..analysis.context import Access
from ..analysis.write_before_read import writes_before_reads
from ..arith.bounds import bounds, extent_range
from ..arith.enumeration import enumerate_points
from ..ir import Allocate, Block, Buffer, PrimFunc
from ..traverse import variables, walk_stmts
from .accesses import accesses_in, constant_extents, grouped, size_ranges
from .ownership import constant_shape, distinct_accesses
from .report import Finding


def check_initialised(func: PrimFunc) -> Iterator[Finding]:
    """Allocated buffers are written where they are read."""
    for owner in (func, *walk_stmts(func.body)):
        if isinstance(owner, (PrimFunc, Allocate, Block)):
            buffers = (owner.buffer,) if isinstance(owner, Allocate) else owner.allocs
            accesses = grouped(accesses_in(owner.body)) if buffers else {}
            for buffer in buffers:
                found = accesses.get(buffer.name, [])
                tried = _written_first(buffer, found)
                if tried is not None:
                    yield from tried
                elif not writes_before_reads(owner.body, buffer, size_ranges(func)):
                    yield from _outside(buffer, found)


def _written_first(buffer: Buffer, accesses: list[Access]) -> Sequence[Finding] | None:
    """What is wrong, as trying all iterations shows; None where they are too many, or not known."""
    loads, stores = [a for a in accesses if not a.is_store], [a for a in accesses if a.is_store]
    if not loads:
        return ()
    if not stores:
        return (Finding("error", f"`{buffer.name}` is read, but never written", loads[0].stmt),)
    if not accesses[0].is_store:
        severity = "unproved" if accesses[0].guarded else "error"
        return (Finding(severity, f"`{buffer.name}` is read before anything is written to it", accesses[0].stmt),)
    shape = constant_shape(buffer)
    if None in shape:
        return None
    written = np.zeros([d or 0 for d in shape], bool)
    for a in distinct_accesses(stores):
        elements = _elements(a)
        if elements is None:
            return None
        written[elements[0]] = True
    for a in distinct_accesses(loads):
        elements = _elements(a)
        if elements is None or not elements[1]:
            return None
        missing = ~written[elements[0]]
        if np.any(missing):
            return (_missing(buffer, elements[0], int(np.argmax(missing)), a),)
    return ()


def _missing(buffer: Buffer, elements: Sequence[np.ndarray], n: int, read: Access) -> Finding:
    place = ", ".join(str(int(i.reshape(-1)[n if i.size > 1 else 0])) for i in elements) or "()"
    return Finding("error", f"`{buffer.name}[{place}]` is read, but never written", read.stmt)


def _outside(buffer: Buffer, accesses: list[Access]) -> Iterator[Finding]:
    """Of too many iterations: an element surely read, outside of the box of all writes; else it remains open."""
    boxes = [_box(a) for a in accesses if a.is_store]
    known = [box for box in boxes if box is not None]
    for a in accesses if len(known) == len(boxes) else []:
        points = enumerate_points(constant_extents(a.loops), set().union(*map(variables, a.indices), set()), a.conditions)
        if a.is_store or points is None or not points.certain or (elements := points.evaluate(a.indices)) is None:
            continue
        inside = np.zeros(len(points), bool)
        for box in known:
            inside |= np.logical_and.reduce([(low <= i) & (i <= high) for i, (low, high) in zip(elements, box, strict=True)])
        if not np.all(inside):
            yield _missing(buffer, elements, int(np.argmin(inside)), a)
            return
    yield Finding("unproved", f"cannot prove that all is written that is read of `{buffer.name}`", accesses[0].stmt)


def _box(a: Access) -> list[tuple[int, int]] | None:
    """The box that an access stays in; None where it is not known."""
    ranges = {name: extent_range(extent) for name, extent in a.loops}
    found = [bounds(i, ranges) for i in a.indices]
    return None if any(None in interval for interval in found) else found  # type: ignore[return-value]


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
