"""Functions of open sizes: a schedule that is correct for all sizes, made of one for known sizes.

A schedule is made for the function at known sizes, and its steps are taken on the function itself. Each step is checked there as
any other, so the result is correct for all sizes. Refused steps are left out. A loop of unknown length is split such that its
levels don't repeat for nothing at small sizes, and only parts of it become vectors.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import product
from math import prod
from typing import Any

from schedule import REGISTRY, Schedule, ScheduleError, Trace
from schedule.primitive import find_loop, path
from schedule.random_variables import map_leaves, with_values
from tir import dtypes
from tir.ir import Block, Const, For, Kind, PrimFunc
from tir.specialize import specialize
from tir.traverse import blocks, stores

TYPICAL_SIZE = 128  # default of an open size: a few vectors, and more than the rows of a register tile
MAX_VARIANTS = 64  # combinations of named sizes: each is a kernel of its own
MAX_VECTOR_BITS = 1024  # of the vectorised part of a loop of unknown length: two of the widest registers

Sizes = Mapping[str, int | Iterable[int]]


def combinations(func: PrimFunc, named: Sizes | None) -> list[dict[str, int]]:
    """The sizes at which a function should be fast, one dict each: all combinations of the `named` values of its open sizes.

    Without `named`, one combination of TYPICAL_SIZE. ValueError if a size is left out, or if `specialize` refuses one.
    """
    own = [v.name for v in func.sizes]
    if named is None:
        return [dict.fromkeys(own, TYPICAL_SIZE)]
    found = named_rows(own, named, func.name)
    for row in found:
        specialize(func, row)
    return found


def named_rows(own: Sequence[str], named: Sizes, what: str) -> list[dict[str, int]]:
    """All combinations of the `named` values of the open sizes `own`. ValueError if one is left out, or there are too many."""
    if not isinstance(named, Mapping):
        raise TypeError(f"sizes is a dict of sizes by name, such as {{'n': (1, 128)}}, got {named!r}")
    if missing := [name for name in own if name not in named]:
        raise ValueError(f"sizes names sizes for all of {', '.join(own)} of {what}; {', '.join(missing)} is left out")
    values = {name: tuple(v) if isinstance(v, Iterable) else (v,) for name, v in named.items()}
    found: list[dict[str, int]] = [dict(zip(values, row, strict=True)) for row in product(*values.values())]
    if not 1 <= len(found) <= MAX_VARIANTS:
        raise ValueError(f"sizes names {len(found)} combinations for {what}; 1 to {MAX_VARIANTS} can be built")
    return list({tuple(row.items()): row for row in found}.values())


def adapted(func: PrimFunc, trace: Trace, values: Mapping[str, int]) -> Schedule:
    """The schedule of `func` by the steps of one for known sizes, `values`, as far as they are legal for all sizes."""
    s, known = Schedule(func), Schedule(specialize(func, values))
    drawn: dict[str, Any] = {}
    unfused: dict[str, str] = {}
    for step in trace:
        bound = with_values(step.bound, drawn)
        if step.names:  # both schedules get the same random number
            found = _take(known, step.name, bound)
            drawn |= zip(step.names, found if isinstance(found, list) else [found], strict=True)
            continue
        mine = map_leaves(bound, lambda v: unfused.get(v) or _counterpart(v, s, known) if isinstance(v, str) else v)
        try:
            if step.name == "fuse" and (kept := _open_loop(mine["loops"], s)) is not None:
                unfused[_take(known, "fuse", bound)] = kept
                continue
            if step.name == "split":
                factors = _open_level(mine["loop"], bound["loop"], bound["factors"], s, known)
                bound, mine = bound | {"factors": factors}, mine | {"factors": factors}
            _take(known, step.name, bound)
            if step.name == "vectorize":
                mine = {"loop": _vector_part(mine["loop"], s)}
            _take(s, step.name, mine)
        except ScheduleError:
            continue
    _vectorize_rest(s)
    return s


def _vectorize_rest(s: Schedule) -> None:
    """Vectorise innermost loops over the last dimension that a block writes, in place of steps that were left out."""
    for block in blocks(s.func):
        around = [find_loop(s.func, name) for name in s.get_loops(block.name)]
        if block.is_reduction or not around or any(loop.kind is Kind.VECTORIZED for loop in around):
            continue
        inner, last = around[-1], block.iters[-1]
        if last.binding == inner.var and all(x.indices[-1:] == (last.var,) for x in stores(block)):
            with suppress(ScheduleError):
                s.vectorize(_vector_part(inner.name, s))


def _take(s: Schedule, name: str, bound: dict[str, Any]) -> Any:
    args, kwargs = REGISTRY[name].spread(bound)
    return getattr(s, name)(*args, **kwargs)


def _counterpart(name: str, s: Schedule, known: Schedule) -> str:
    """The name in `s` of a loop of `known`, by its place around the same block, as left-out steps change names."""
    if not path(known.func, For, name):
        return name
    for block in blocks(known.func):
        loops = known.get_loops(block.name)
        if name in loops and path(s.func, Block, block.name) and len(own := s.get_loops(block.name)) == len(loops):
            return own[loops.index(name)]
    return name


def _open_loop(loops: Sequence[str], s: Schedule) -> str | None:
    """The first inner loop of unknown length among `loops`, whose divisions nothing can be proved of when fused."""
    return next((name for name in loops[1:] if not isinstance(find_loop(s.func, name).extent, Const)), None)


def _open_level(mine: str, name: str, factors: list, s: Schedule, known: Schedule) -> list:
    """The factors of a split. If the outermost level of a loop of unknown length has one iteration at the known size, the next
    level of several iterations becomes 1. So the outermost level takes its iterations."""
    unknown, length = find_loop(s.func, mine).extent, find_loop(known.func, name).extent
    if isinstance(unknown, Const) or not isinstance(length, Const) or factors[:1] != [None]:
        return factors
    level = next((n for n, f in enumerate(factors[1:-1], 1) if f > 1), None)
    if level is None or length.value > prod(factors[1:]):
        return factors
    return [*factors[:level], 1, *factors[level + 1 :]]


def _vector_part(name: str, s: Schedule) -> str:
    """The loop to vectorise: itself, or the inner part of a split if its length is unknown."""
    if isinstance(find_loop(s.func, name).extent, Const):
        return name
    widest = max(8 * dtypes.nbytes(b.dtype) for b in s.func.buffers)
    return s.split(name, [None, max(1, MAX_VECTOR_BITS // widest)])[1]
