"""Annotations about memory: non-temporal stores and software prefetches. `codegen.llvm.memory` writes their instructions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from schedule.annotation_values import value_of
from tir.ir import Block, For, PrimFunc
from tir.traverse import stored_names, walk

from .free_variables import accessed_buffers

NON_TEMPORAL = "non_temporal"  # an annotation of loops and blocks; once they are lowered, an attribute of the function
PREFETCH = "prefetch"
IN_ORDER = "in_order"  # an annotation of unrolled loops: a copy loads its own elements, none before the end of the copy before it


def streamed_buffers(func: PrimFunc) -> tuple[str, ...]:
    """The buffers that a loop or block names by `non_temporal: "C"` or `["C", "D"]`.

    Raises ValueError if the value is no name or list of names, or names a buffer that is not written there.
    """
    found: dict[str, None] = {}
    for s in walk(func.body):
        if isinstance(s, For | Block) and (value := value_of(s, NON_TEMPORAL, None)) is not None:
            names = [value] if isinstance(value, str) else value
            written = stored_names(s)
            for name in names:
                if name not in written:
                    raise ValueError(
                        f"{_where(s)}: {NON_TEMPORAL} names `{name}`, which is not written there; {_listing(written)} is"
                    )
                found[name] = None
    return tuple(found)


def prefetches(loop: For) -> tuple[tuple[str, int], ...]:
    """The (buffer, distance in iterations) that a loop names by `prefetch: ["B", 8]` or `[["A", 4], ["B", 8]]`.

    Raises ValueError for a value of another form.
    """
    value = value_of(loop, PREFETCH, ())
    entries = [value] if value and isinstance(value[0], str) else value
    return tuple((name, distance) for name, distance in entries)


def with_steps(loop: For, count: int) -> tuple[tuple[str, Any], ...]:
    """The annotations of a loop once `count` iterations are one: prefetch distances are divided by `count`."""
    ahead = [[name, max(1, distance // count)] for name, distance in prefetches(loop)]
    return tuple((key, ahead if key == PREFETCH else value) for key, value in loop.annotations)


def check_prefetches(func: PrimFunc) -> None:
    """Raise ValueError if a `prefetch` is malformed or names a buffer that its loop does not access."""
    for s in walk(func.body):
        if isinstance(s, For):
            for name, _ in prefetches(s):
                if name not in accessed_buffers(s.body):
                    known = _listing(accessed_buffers(s.body))
                    raise ValueError(f"{_where(s)}: {PREFETCH} names `{name}`, which is not accessed there; {known} is")


def _where(s: For | Block) -> str:
    return f"{'loop' if isinstance(s, For) else 'block'} `{s.name}`"


def _listing(names: Iterable[str]) -> str:
    return ", ".join(f"`{n}`" for n in sorted(names)) or "nothing"
