"""Annotations about memory: non-temporal stores and software prefetches. `codegen.llvm.memory` writes their instructions."""

from __future__ import annotations

from typing import Any

from schedule.annotation_values import value_of
from schedule.buffer_annotations import ACCESSES_BY_KEY, named_buffers
from tir.ir import Block, For, Load, PrimFunc
from tir.traverse import walk_stmts

NON_TEMPORAL = "non_temporal"  # an annotation of loops and blocks; once they are lowered, an attribute of the function
PREFETCH = "prefetch"
IN_ORDER = "in_order"  # an annotation of unrolled loops: a copy loads its own elements, none before the end of the copy before it


def streamed_buffers(func: PrimFunc) -> tuple[str, ...]:
    """The buffers that a loop or block names by `non_temporal: "C"` or `["C", "D"]`.

    Raises ValueError if an annotation about memory has another form, or names a buffer that is not accessed there.
    """
    for s in walk_stmts(func.body):
        if isinstance(s, For | Block):
            for key in ACCESSES_BY_KEY:
                value_of(s, key, None)
    found: dict[str, None] = {}
    for s, key, buffer, accessed in named_buffers(func):
        if buffer not in accessed:
            done, known = "accessed" if Load in ACCESSES_BY_KEY[key] else "written", ", ".join(f"`{n}`" for n in sorted(accessed))
            where = f"{'loop' if isinstance(s, For) else 'block'} `{s.name}`"
            raise ValueError(f"{where}: {key} names `{buffer}`, which is not {done} there; {known or 'nothing'} is")
        if key == NON_TEMPORAL:
            found[buffer] = None
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
