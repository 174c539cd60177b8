"""Order: loops that run in any order may."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ..analysis.around import Around, elements
from ..analysis.written import self_contained
from ..ir import Axis, Block, Buffer, For, Kind, PrimFunc
from ..memory import PER_THREAD, SHARED
from ..traverse import stores, variables
from .accesses import Scope, accesses_in, grouped, scopes
from .ownership import Conflict, by_buffer, distinct_accesses, first_conflict, touches_own
from .report import Finding

_ANY_ORDER = (Kind.PARALLEL, Kind.VECTORIZED, Kind.THREAD)


def check_races(func: PrimFunc) -> Iterator[Finding]:
    """Iterations of a parallel, vectorised or thread loop do not touch what another one writes."""
    temporary = {b.name for b in func.allocs}
    uses = {name: len(group) for name, group in grouped(accesses_in(func.body)).items() if name in temporary}
    for scope in scopes(func):
        if isinstance(scope.stmt, For) and scope.stmt.kind in _ANY_ORDER and scope.own[scope.stmt.name] != 1:
            yield from _races(scope.stmt, scope, uses)


def _races(s: For, scope: Scope, uses: Mapping[str, int]) -> Iterator[Finding]:
    """Where iterations of a loop touch what others write. Each may have its own of a temporary that is used in the loop alone:
    `uses` counts the accesses to each."""
    how = {Kind.PARALLEL: "parallel", Kind.VECTORIZED: "vectorized", Kind.THREAD: f"bound to {s.thread}"}[s.kind]
    combined: set[str] = set()  # the threads combine what each of them has; `bind` says when
    reduces = _reduces_over(s)
    if reduces is not None:
        block, axis = reduces
        if not (s.kind is Kind.THREAD and s.thread.startswith("threadIdx") and block.init is not None):
            yield Finding("error", f"loop `{s.name}` is {how}, but block `{block.name}` reduces over it (`{axis}`)", s)
            return
        combined = {x.buffer.name for x in stores(block)}
    for name, group in by_buffer(accesses_in(s.body)).items():
        used_here_alone = len(group) == uses.get(name)
        group = distinct_accesses(group)
        if name in combined or _apart_by_scope(s, group[0].buffer) or touches_own(group, {s.name}, scope):
            continue
        if used_here_alone:
            if not self_contained(s.body, group[0].buffer, scope.ranges):
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
    """Whether GPU threads have a buffer each, or share it in a block and take care of its order themselves."""
    shared = buffer.scope in SHARED and not loop.thread.startswith("blockIdx")
    return loop.kind is Kind.THREAD and (buffer.scope in PER_THREAD or shared)


def _reduces_over(loop: For) -> tuple[Block, str] | None:
    """A block below that binds a reduce axis to the loop, and that axis."""
    for block, around in elements(loop.body, Around()):
        if isinstance(block, Block):
            for it in block.iters:
                if it.axis is Axis.REDUCE and loop.name in variables(around.closed(it.binding)):
                    return block, it.var.name
    return None
