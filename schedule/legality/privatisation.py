"""Privatisation: temporaries with a copy for each iteration of a loop."""

from __future__ import annotations

from tir.analysis.write_before_read import writes_before_reads
from tir.arith.bounds import ranges_of
from tir.ir import PrimFunc, Stmt, nest, seq

from ..primitive import last_loop
from .dataflow import BlockScope, Leaf, loops_and_ranges, scope_of, shared


def private_buffers(func: PrimFunc, path: list[Stmt], *others: list[Stmt]) -> set[str]:
    """The temporaries that are private to iterations of the last loop on a path, or of these on several paths in one block.

    Such a buffer is accessed under these loops only, and an iteration reads only elements that it has written before. The code
    generator privatises by the same test.
    """
    paths = [path, *others]
    scope = scope_of(func, path)
    under = [leaf for leaf in scope.leaves if any(leaf.under(p[-1]) for p in paths)]
    names = {n for leaf in under for n in leaf.writes} - scope.outputs
    for leaf in scope.leaves:
        if leaf not in under:
            names -= leaf.reads | leaf.writes
    bodies = [(last_loop(p).body, ranges_of(p)) for p in paths]
    return {name for name in names if all(writes_before_reads(body, scope.buffer(name), ranges) for body, ranges in bodies)}


def writes_all_reads(scope: BlockScope, writer: Leaf, reader: Leaf, name: str) -> bool:
    """True where `reader` reads only elements of a buffer that `writer` wrote in the same iteration of the loops around both."""
    outer, ranges = loops_and_ranges(shared(writer.above, reader.above), scope.ranges)
    both = seq(*(nest(leaf.inside(outer), leaf.stmt) for leaf in (writer, reader)))
    return writes_before_reads(both, scope.buffer(name), ranges)
