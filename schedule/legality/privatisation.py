"""Privatisation: temporaries of which each iteration of a loop may have its own copy."""

from __future__ import annotations

from tir.analysis.regions import accessed
from tir.analysis.write_before_read import writes_before_reads
from tir.arith.bounds import ranges_of
from tir.arith.prove import prove
from tir.ir import Block, For, Let, PrimFunc, Seq, Stmt, Store, seq
from tir.traverse import stores, walk_stmts

from ..primitive import last_loop
from .axis_windows import affine_index, covered_windows, difference
from .dataflow import Leaf, Scope, loops_and_ranges, scope_of, shared
from .iter_map import Unproved


def private_buffers(func: PrimFunc, path: list[Stmt], *others: list[Stmt]) -> set[str]:
    """The temporaries of which each iteration of the last loop on a path, or on each of several in one block, may have its own.

    Such a buffer is accessed under these loops only, and all that an iteration reads of it has been written in the same iteration
    before. The code generator uses the same test when it privatises.
    """
    paths = [path, *others]
    scope = scope_of(func, path)
    under = [leaf for leaf in scope.leaves if any(leaf.under(p[-1]) for p in paths)]
    names = {n for leaf in under for n in leaf.writes} - scope.outputs
    for leaf in scope.leaves:
        if leaf not in under:
            names -= leaf.reads | leaf.writes
    touched = {id(leaf.stmt): leaf.reads | leaf.writes for leaf in under}

    def using(name: str, s: Stmt) -> Stmt | None:
        """The part of a statement that accesses a buffer, in its loops."""
        if id(s) in touched:
            return s if name in touched[id(s)] else None
        if type(s) is Seq:
            kept = [part for x in s.stmts if (part := using(name, x)) is not None]
            return seq(*kept) if kept else None
        assert isinstance(s, For), "only loops and sequences are around the leaves of a scope"
        body = using(name, s.body)
        return None if body is None else s.with_(body=body)

    def owned(name: str) -> bool:
        parts = [(using(name, last_loop(p).body), ranges_of(p)) for p in paths]
        return all(part is None or writes_before_reads(part, scope.buffer(name), ranges) for part, ranges in parts)

    return {name for name in names if owned(name)}


def writes_all_reads(scope: Scope, writer: Leaf, reader: Leaf, name: str) -> bool:
    """Whether all that `reader` reads of a buffer, in an iteration of the loops around both, `writer` has written in it."""
    block = writer.stmt
    if type(block) is not Block or any(not isinstance(s, (Store, Seq, Let)) for s in walk_stmts(block.init or block.body)):
        return False
    common = shared(writer.above, reader.above)
    outer, ranges = loops_and_ranges(common, scope.ranges)
    try:
        visited = covered_windows(block, outer, writer.loops[len(outer) :])
    except Unproved:
        return False
    region = accessed((*reader.above, reader.stmt)[len(common)], ranges, (name,))[0].get(name)
    axes = {it.var.name: it for it in block.spatial}
    for s in stores(block.init or block.body):
        if s.buffer.name != name or region is None:
            continue
        held = True
        seen: set[str] = set()
        for index, r, dim in zip(s.indices, region.ranges, s.buffer.shape, strict=True):
            place = affine_index(index, axes)
            if place is None:
                held = held and difference(r.min, index) == 0 and prove(r.extent <= 1, ranges)
                continue
            v, offset = place
            window = visited[v]
            start, end, domain = window.start + offset, r.min + r.extent, axes[v].extent + offset
            # Nothing outside of the buffer is read, so a window that ends where the buffer does holds all that is beyond.
            low = prove(start <= r.min, ranges) or prove(start <= 0, ranges)
            high = any(prove(x <= start + window.extent, ranges) for x in (end, dim))
            whole = offset == 0 and prove(dim <= domain, ranges)
            inside = whole or (prove(r.min >= offset, ranges) and prove(end <= domain, ranges))
            held = held and low and high and inside and v not in seen
            seen.add(v)
        if held:
            return True
    return False
