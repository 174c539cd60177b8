"""Data races between the iterations of loops that run in any order."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from ..analysis.conflicts import Conflict, distinct_accesses, first_conflict, provably_disjoint, with_a_store
from ..analysis.context import Context, accesses_and_blocks
from ..analysis.program_points import IterationScope, accesses_in, grouped_by_buffer, iteration_scopes, size_ranges
from ..analysis.write_before_read import live_ranges, writes_before_reads
from ..ir import IN_ANY_ORDER, Axis, Block, Buffer, For, Kind, PrimFunc, Stmt
from ..memory import PER_THREAD, SHARED
from ..traverse import accessed_names, blocks, stored_names, variables
from .report import Finding


def check_races(func: PrimFunc) -> Iterator[Finding]:
    """Findings where an iteration of a parallel, vectorised or thread loop touches an element that another one writes."""
    made = [(func.allocs, func.body), *((x.allocs, x.body) for x in blocks(func) if x.allocs)]
    loops = [(x.stmt, x) for x in iteration_scopes(func) if isinstance(x.stmt, For) and x.stmt.kind in IN_ANY_ORDER]
    used = {name for loop, _ in loops for name in accessed_names(loop)}
    whole: dict[str, list[Stmt]] = {}  # by temporary, the statements of its live ranges
    uses: dict[str, int] = {}
    for buffers, body in made:
        groups = grouped_by_buffer(accesses_in(body)) if used & {b.name for b in buffers} else {}
        uses |= {b.name: len(groups[b.name]) for b in buffers if b.name in groups}
        whole |= {b.name: [*live_ranges(body, b, size_ranges(func))] for b in buffers if b.name in used}
    for loop, scope in loops:
        if scope.own[loop.name] != 1:
            yield from _races(loop, scope, {name for name, found in whole.items() if any(x is loop for x in found)}, uses)


def _races(s: For, scope: IterationScope, alone: Collection[str], uses: Mapping[str, int]) -> Iterator[Finding]:
    """Findings where iterations of a loop touch elements that others write. Temporaries in `alone` are private to an iteration;
    those with all their accesses in the loop (`uses` counts them) may be."""
    how = {Kind.PARALLEL: "parallel", Kind.VECTORIZED: "vectorized", Kind.THREAD: f"bound to {s.thread}"}[s.kind]
    combined: frozenset[str] = frozenset()  # buffers of a reduction over threads, whose partial results are combined; see `bind`
    reduces = _reduces_over(s)
    if reduces is not None:
        block, axis = reduces
        if not (s.kind is Kind.THREAD and s.thread.startswith("threadIdx") and block.init is not None):
            yield Finding("error", f"loop `{s.name}` is {how}, but block `{block.name}` reduces over it (`{axis}`)", s)
            return
        combined = stored_names(block)
    for name, group in with_a_store(grouped_by_buffer(accesses_in(s.body))).items():
        private = name in alone or len(group) == uses.get(name)
        group = distinct_accesses(group)
        if name in combined or _apart_by_scope(s, group[0].buffer) or provably_disjoint(group, {s.name}, scope):
            continue
        if private:
            if name not in alone or not writes_before_reads(s.body, group[0].buffer, scope.ranges):
                text = f"loop `{s.name}` is {how}; cannot prove that each iteration writes what it reads of `{name}`"
                yield Finding("unproved", text, s)
            continue
        match first_conflict(group, scope.own, scope.outer):
            case Conflict() as conflict:
                yield Finding("error", f"loop `{s.name}` is {how}, but {conflict}", s)
            case None:
                text = f"loop `{s.name}` is {how}; cannot prove that its iterations keep apart in `{name}`"
                yield Finding("unproved", text, s)


def _apart_by_scope(loop: For, buffer: Buffer) -> bool:
    """True where each GPU thread has a buffer of its own, or the threads of a block share it and synchronise."""
    shared = buffer.scope in SHARED and not loop.thread.startswith("blockIdx")
    return loop.kind is Kind.THREAD and (buffer.scope in PER_THREAD or shared)


def _reduces_over(loop: For) -> tuple[Block, str] | None:
    """A block below that binds a reduce axis to the loop, and that axis."""
    for block, around in accesses_and_blocks(loop.body, Context()):
        if isinstance(block, Block):
            for it in block.iters:
                if it.axis is Axis.REDUCE and loop.name in variables(around.closed(it.binding)):
                    return block, it.var.name
    return None
