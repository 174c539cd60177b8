"""Order: loops that run in any order may."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ..affine import Interval
from ..analysis.regions import accessed, clip
from ..ir import Axis, Block, For, Kind, Let, PrimFunc, Stmt, Var
from ..memory import PER_THREAD
from ..simplify import prove
from ..traverse import children, stores, variables
from .accesses import Access, accesses_in, constant_extents, range_of
from .axes import access_verb
from .ownership import Conflict, by_buffer, distinct_accesses, first_conflict, touches_own
from .report import Finding

_ANY_ORDER = (Kind.PARALLEL, Kind.VECTORIZED, Kind.THREAD)


def check_races(func: PrimFunc) -> Iterator[Finding]:
    """Iterations of a parallel, vectorised or thread loop do not touch what another one writes."""
    sizes: dict[str, Interval] = {p.name: (1, None) for p in func.params if isinstance(p, Var)}
    temporary = {b.name for b in func.allocs}
    total = {name: len(group) for name, group in grouped(accesses_in(func.body)).items()}

    def visit(s: Stmt, ranges: dict[str, Interval], extents: dict[str, int | None]) -> Iterator[Finding]:
        if isinstance(s, Block):
            ranges = {**ranges, **{it.var.name: range_of(it.extent, ranges) for it in s.iters}}
            extents = {**extents, **constant_extents((it.var.name, it.extent) for it in s.iters)}
        elif isinstance(s, For):
            inner = {**ranges, s.name: range_of(s.extent, ranges)}
            own = constant_extents([(s.name, s.extent)])
            if s.kind in _ANY_ORDER and own[s.name] != 1:
                yield from loop(s, inner, extents, own)
            ranges, extents = inner, {**extents, **own}
        for child in children(s):
            if isinstance(child, Stmt):
                yield from visit(child, ranges, extents)

    def loop(s: For, ranges: dict[str, Interval], outer: dict[str, int | None], own: dict[str, int | None]) -> Iterator[Finding]:
        how = {Kind.PARALLEL: "parallel", Kind.VECTORIZED: "vectorized", Kind.THREAD: f"bound to {s.thread}"}[s.kind]
        reduces = _reduces_over(s)
        together = (
            reduces is not None and s.kind is Kind.THREAD and s.thread.startswith("threadIdx") and reduces[0].init is not None
        )
        if reduces is not None and not together:
            block, name = reduces
            yield Finding("error", f"loop `{s.name}` is {how}, but block `{block.name}` reduces over it (`{name}`)", s)
            return
        for name, group in by_buffer(accesses_in(s.body)).items():
            scope = group[0].buffer.scope
            if reduces is not None and any(x.buffer.name == name for x in stores(reduces[0])):
                continue  # the threads combine what each of them has; `bind` says when
            if s.kind is Kind.THREAD and (
                scope in PER_THREAD or (scope.startswith("shared") and not s.thread.startswith("blockIdx"))
            ):
                continue
            group = distinct_accesses(group)
            if touches_own(group, {s.name}, set(outer), ranges):
                continue
            if name in temporary and total.get(name) == len(accesses_of(s.body, name)):
                if not _covered(s.body, name, ranges):
                    yield Finding(
                        "unproved",
                        f"loop `{s.name}` is {how}; cannot prove that each iteration writes what it reads of `{name}`",
                        s,
                    )
                continue
            fixed = {n: e for n, e in outer.items() if any(n in variables(i) for a in group for i in (*a.indices, *a.conditions))}
            match first_conflict(group, own, fixed):
                case Conflict() as c:
                    yield Finding("error", f"loop `{s.name}` is {how}, but {c.text(access_verb(c.access))}", s)
                case None:
                    yield Finding(
                        "unproved", f"loop `{s.name}` is {how}; cannot prove that its iterations keep apart in `{name}`", s
                    )

    yield from visit(func.body, sizes, dict.fromkeys(sizes))


def grouped(accesses: Iterable[Access]) -> dict[str, list[Access]]:
    groups: dict[str, list[Access]] = {}
    for a in accesses:
        groups.setdefault(a.buffer.name, []).append(a)
    return groups


def accesses_of(s: Stmt, name: str) -> list[Access]:
    return [a for a in accesses_in(s) if a.buffer.name == name]


def _reduces_over(loop: For) -> tuple[Block, str] | None:
    """A block below that binds a reduce axis to the loop, and that axis."""

    def visit(s: Stmt, touched: set[str]) -> tuple[Block, str] | None:
        if isinstance(s, Block):
            inner = set(touched)
            for it in s.iters:
                if variables(it.binding) & touched:
                    if it.axis is Axis.REDUCE:
                        return s, it.var.name
                    inner.add(it.var.name)
            touched = inner
        elif isinstance(s, Let) and variables(s.value) & touched:
            touched = touched | {s.var.name}
        for child in children(s):
            if isinstance(child, Stmt):
                found = visit(child, touched)
                if found is not None:
                    return found
        return None

    return visit(loop.body, {loop.name})


def _covered(body: Stmt, name: str, ranges: dict[str, Interval]) -> bool:
    """Whether the box that `body` reads of a buffer lies within the box that it writes."""
    reads, writes = accessed(body, ranges, (name,))
    if name not in reads:
        return True
    if name not in writes:
        return False
    read, written = clip(reads[name], ranges), clip(writes[name], ranges)
    for r, w in zip(read.ranges, written.ranges, strict=True):
        if not (prove(w.min <= r.min, ranges) and prove(r.min + r.extent <= w.min + w.extent, ranges)):
            return False
    return True
