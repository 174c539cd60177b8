"""Annotations that name buffers, which are dropped when a step removes the accesses to the buffer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tir.ir import Block, For, Load, PrimFunc, Stmt, Store, annotated, annotation
from tir.ir.memo import memoized
from tir.traverse import rewrite_statements, substatements, walk, walk_stmts

# By annotation key: the kinds of accesses, below the annotated loop or block, that it applies to.
ACCESSES_BY_KEY: dict[str, tuple[type, ...]] = {"prefetch": (Load, Store), "non_temporal": (Store,)}


def without_stale_annotations(old: PrimFunc, new: PrimFunc) -> PrimFunc:
    """`new`, made from `old` by a step, without annotations for buffers whose accesses the step removed.

    An annotation that named an unknown buffer before the step stays, so that the build can report it.
    """
    stale = {(s.name, key, buffer) for s, key, buffer, accessed in named_buffers(new) if buffer not in accessed}
    sound = {(key, buffer) for _, key, buffer, accessed in named_buffers(old) if buffer in accessed} if stale else set()
    dropped = {entry for entry in stale if entry[1:] in sound}
    return (
        rewrite_statements(new, lambda s: _without_buffers(s, dropped) if isinstance(s, For | Block) else s) if dropped else new
    )


def _without_buffers(s: For | Block, dropped: set[tuple[str, str, str]]) -> Stmt:
    """A loop or block without its annotations in `dropped`, triples of its name, key and buffer."""
    for place, key, buffer in dropped:
        if place == s.name and (value := annotation(s.annotations, key)) is not None:
            kept = _without_buffer(value, buffer)
            others = tuple(a for a in s.annotations if a[0] != key)
            s = s.with_(annotations=others if kept is None else annotated(others, key, kept))
    return s


def named_buffers(func: PrimFunc) -> Iterator[tuple[For | Block, str, str, set[str]]]:
    """The buffers in annotations: the loop or block, the key, the buffer, and those that are accessed below as the key says."""
    for s in walk_stmts(func.body) if _is_annotated(func.body) else ():
        if isinstance(s, For | Block) and s.annotations:
            for key, kinds in ACCESSES_BY_KEY.items():
                if (value := annotation(s.annotations, key)) is not None:
                    accessed = {n.buffer.name for n in walk(s) if isinstance(n, Load | Store) and isinstance(n, kinds)}
                    yield from ((s, key, buffer, accessed) for buffer in _buffer_names(value))


@memoized
def _is_annotated(s: Stmt) -> bool:
    """True where a statement, or one below, has annotations."""
    return (isinstance(s, For | Block) and bool(s.annotations)) or any(map(_is_annotated, substatements(s)))


def _buffer_names(value: Any) -> list[str]:
    """The buffers that an annotation names: `"A"`, `["A", "B"]`, `["A", 8]` or `[["A", 8], ["B", 4]]`."""
    match value:
        case str():
            return [value]
        case [*entries]:
            return [name for entry in entries for name in _buffer_names(entry)]
    return []


def _without_buffer(value: Any, buffer: str) -> Any:
    """An annotation value without one of its buffers; None where no buffer is left."""
    match value:
        case str(name) | [str(name), int()]:
            return None if name == buffer else value
        case [*entries]:
            return [kept for entry in entries if (kept := _without_buffer(entry, buffer)) is not None] or None
    return value
