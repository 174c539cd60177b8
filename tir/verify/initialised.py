"""Check that every element of a temporary that is read is also written, and that the first access is a write.

That every iteration writes before it reads is not proved here: the interpreter traps it, since temporaries start as NaN.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod

import numpy as np

from ..analysis.conflicts import distinct_accesses, touched_elements
from ..analysis.context import Access
from ..analysis.program_points import accesses_in, grouped_by_buffer, size_ranges
from ..analysis.write_before_read import writes_before_reads
from ..arith.bounds import bounds, extent_range
from ..ir import Allocate, Block, Buffer, Const, Load, PrimFunc, Store
from ..traverse import loads, walk_stmts
from .report import Finding

MAX_MARKED_ELEMENTS = 1 << 26  # of a mask of written elements, a byte each: 64 MiB, which any machine can spare


def check_initialised(func: PrimFunc, only: Collection[str] | None = None) -> Iterator[Finding]:
    """Findings where allocated buffers (all, or `only` these) are read but not written."""
    for owner in (func, *walk_stmts(func.body)):
        if isinstance(owner, (PrimFunc, Allocate, Block)):
            buffers = (owner.buffer,) if isinstance(owner, Allocate) else owner.allocs
            accesses = grouped_by_buffer(accesses_in(owner.body)) if buffers else {}
            owned = {b.name: accesses.get(b.name, []) for b in buffers}
            for buffer in (b for b in buffers if only is None or b.name in only):
                found = owned[buffer.name]
                tried = _unwritten_findings(buffer, owned)
                if tried is not None:
                    yield from tried
                elif not writes_before_reads(owner.body, buffer, size_ranges(func)):
                    yield from _outside_boxes(buffer, found)


def _unwritten_findings(buffer: Buffer, owned: Mapping[str, list[Access]]) -> Sequence[Finding] | None:
    """Findings by enumeration; None where too many or unknown. A copied unwritten element counts as unwritten, too."""
    accesses = owned[buffer.name]
    reads = [a for a in accesses if not a.is_store]
    if not reads or 0 in _constant_shape(buffer):  # it has no elements
        return ()
    if len(reads) == len(accesses):
        return (Finding("error", f"`{buffer.name}` is read, but never written", reads[0].stmt),)
    if not accesses[0].is_store:
        severity = "unproved" if accesses[0].guarded else "error"
        return (Finding(severity, f"`{buffer.name}` is read before anything is written to it", accesses[0].stmt),)
    written = _written_mask(buffer.name, owned, frozenset())
    if written is None:
        return None
    for a in distinct_accesses([a for a in reads if _copied_to(a) not in owned.keys() - {buffer.name}]):
        elements = _all_touched(a)
        if elements is None or not elements[1]:
            return None
        missing = ~written[elements[0]]
        if np.any(missing):
            return (_missing(buffer, elements[0], int(np.argmax(missing)), a),)
    return ()


def _written_mask(name: str, owned: Mapping[str, list[Access]], outer: frozenset[str]) -> np.ndarray | None:
    """A mask of the written elements of a buffer, without copies of unwritten ones; None where that is unknown."""
    shape = _constant_shape(owned[name][0].buffer)
    if None in shape or prod(d or 0 for d in shape) > MAX_MARKED_ELEMENTS:
        return None
    written = np.zeros([d or 0 for d in shape], bool)
    others = [a for x in owned.keys() - {name, *outer} for a in owned[x] if not a.is_store and _copied_to(a) == name]
    copies = {(id(a.stmt), a.loops, a.conditions): a for a in others}
    stores = [(a, copies.get((id(a.stmt), a.loops, a.conditions))) for a in owned[name] if a.is_store]
    for a in distinct_accesses([a for a, source in stores if source is None]):
        elements = _all_touched(a)
        if elements is None:
            return None
        written[elements[0]] = True
    for a, source in stores:
        if source is None:
            continue
        there = _written_mask(source.buffer.name, owned, outer | {name})
        elements = _all_touched(a, source)
        if there is None or elements is None:
            return None
        kept = there[elements[0][len(shape) :]]
        written[tuple(i[kept] for i in elements[0][: len(shape)])] = True
    return written


def _copied_to(a: Access) -> str | None:
    """The buffer to which a statement copies the element that it loads, unchanged."""
    match a.stmt:
        case Store(target, _, Load(source)) if source.name == a.buffer.name and not any(map(loads, a.stmt.indices)):
            return target.name
    return None


def _constant_shape(b: Buffer) -> list[int | None]:
    return [d.value if isinstance(d, Const) else None for d in b.shape]  # type: ignore[misc]


def _missing(buffer: Buffer, elements: Sequence[np.ndarray], n: int, read: Access) -> Finding:
    place = ", ".join(str(int(i.reshape(-1)[n if i.size > 1 else 0])) for i in elements) or "()"
    return Finding("error", f"`{buffer.name}[{place}]` is read, but never written", read.stmt)


def _outside_boxes(buffer: Buffer, accesses: list[Access]) -> Iterator[Finding]:
    """A finding among too many iterations: an element certainly read outside the boxes of all writes, else an unproved one."""
    boxes = [_bounding_box(a) for a in accesses if a.is_store]
    known = [box for box in boxes if box is not None]
    for a in accesses if len(known) == len(boxes) else []:
        found = None if a.is_store else touched_elements(a, {})
        if found is None or not found[0].certain:
            continue
        points, elements = found
        inside = np.zeros(len(points), bool)
        for box in known:
            inside |= np.logical_and.reduce([(low <= i) & (i <= high) for i, (low, high) in zip(elements, box, strict=True)])
        if not np.all(inside):
            yield _missing(buffer, elements, int(np.argmin(inside)), a)
            return
    yield Finding("unproved", f"cannot prove that all is written that is read of `{buffer.name}`", accesses[0].stmt)


def _bounding_box(a: Access) -> list[tuple[int, int]] | None:
    """The bounding box of an access; None where it is unknown."""
    ranges = {name: extent_range(extent) for name, extent in a.loops}
    found = [bounds(i, ranges) for i in a.indices]
    return None if any(None in interval for interval in found) else found  # type: ignore[return-value]


def _all_touched(access: Access, *others: Access) -> tuple[tuple[np.ndarray, ...], bool] | None:
    """The indices of elements that accesses of the same iterations touch, and True if all these happen; None if unknown."""
    dims = [d for a in (access, *others) for d in _constant_shape(a.buffer)]
    found = touched_elements(replace(access, indices=(*access.indices, *(i for a in others for i in a.indices))), {})
    if found is None or not found[0].whole or None in dims:
        return None
    points, elements = found
    if any(np.any((i < 0) | (i >= d)) for i, d in zip(elements, dims, strict=True)):
        return None  # reported elsewhere
    return tuple(elements), points.certain
