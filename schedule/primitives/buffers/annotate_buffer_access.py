"""annotate_buffer_access: a block states the region of a buffer that it reads or writes."""

from __future__ import annotations

from typing import Any

from tir.analysis.regions import block_regions
from tir.arith.bounds import ranges_of
from tir.arith.prove import prove
from tir.arith.simplify import simplify
from tir.ir import Block, Const, Expr, PrimFunc, Range, Region, as_index, conjuncts
from tir.traverse import substitute

from ...error import ScheduleError
from ...legality.dataflow import buffer_of, used_buffers
from ...primitive import BlockName, BufferPlace, block_at, primitive, replace_path
from ...rewriting.index_map import FunctionOfAxes, function_text, parsed_function


@primitive
def annotate_buffer_access(
    func: PrimFunc, block: BlockName, buffer_index: BufferPlace, buf_type: str, gen_new_ranges: FunctionOfAxes
) -> tuple[PrimFunc, None]:
    """State the region of a buffer that a block reads or writes, in place of the region derived from its body.

    The buffer is given by its number, from 0, among those that the block reads (`buf_type` "read") or writes ("write"), or by
    name. `gen_new_ranges` is a function of the block's iteration variables, or its text. It gives an index, or a pair (start,
    stop), for each dimension.

    Rewrite   with T.block("B"): S   =>   with T.block("B"): T.reads(A[v:v + 3]); S
    Legal     if the region has one range a dimension, and provably contains every element that the body accesses. It is not
              beyond the buffer in all iterations. In some it may be: the part out of bounds is ignored.
    Example   chain: s.annotate_buffer_access("C", 0, "read", lambda i, j: (i, (0, 13)))
    """
    target, above = block_at(func, block)
    if buf_type not in ("read", "write"):
        raise ScheduleError(f"`buf_type` is 'read' or 'write', got {buf_type!r}")
    written = buf_type == "write"
    buffer = buffer_of(target, buffer_index, written)
    text = function_text(gen_new_ranges, lambda: len(target.iters), "`gen_new_ranges`")
    inputs, found = parsed_function(text, func, [it.var.dtype for it in target.iters], "`gen_new_ranges`")
    given = found if isinstance(found, (tuple, list)) else (found,)
    mark = (target, f"accesses {buffer.name}")
    if len(given) != len(buffer.shape):
        raise ScheduleError(f"`{buffer.name}` has {len(buffer.shape)} dimension(s), but there are {len(given)} range(s)", mark)
    try:
        ranges = tuple(map(_range, given))
    except TypeError as error:
        raise ScheduleError(f"`gen_new_ranges` gives no indices: {error}", mark) from None
    region = substitute(Region(buffer, ranges), {v.name: it.var for v, it in zip(inputs, target.iters, strict=True)})

    derived = block_regions(target.with_(reads=None, writes=None))[written]
    _need_contained(target, derived[buffer.name], region)
    known = block_regions(target)[written] | {buffer.name: region}
    stated = tuple(known[name] for name in used_buffers(target, written))
    field = "writes" if written else "reads"
    return replace_path(func, above, target.with_(**{field: stated})), None


def _range(given: Any) -> Range:
    """A range from an index, or from a pair (start, stop)."""
    if isinstance(given, (tuple, list)) and len(given) == 2:
        start, stop = map(as_index, given)
        return Range(start, simplify(stop - start))
    start = as_index(given)
    return Range(start, Const(1, start.dtype))


def _need_contained(block: Block, accessed: Region, stated: Region) -> None:
    """Refuse a region that is always beyond the buffer, or does not provably contain the elements that a block accesses."""
    ranges, facts = ranges_of([block]), conjuncts(block.predicate)
    parts = zip(accessed.ranges, stated.ranges, accessed.buffer.shape, strict=True)
    for n, (inner, outer, dim) in enumerate(parts):
        low = any(prove(c, ranges, facts) for c in (outer.min <= inner.min, outer.min <= 0))
        stop: Expr = outer.min + outer.extent
        high = any(prove(c, ranges, facts) for c in (inner.min + inner.extent <= stop, dim <= stop))
        if any(prove(c, ranges, facts) for c in (outer.min < 0, stop > dim)):
            raise ScheduleError(
                f"`{outer.min} .. {simplify(stop - 1)}` is beyond dimension {n} of `{stated.buffer.name}`, which is `0 .. "
                f"{simplify(dim - 1)}`",
                (block, f"accesses {stated.buffer.name}"),
                hint="a region may be so at the edges, not in every iteration",
            )
        if not (low and high):
            shown = f"{inner.min} .. {simplify(inner.min + inner.extent - 1)}"
            raise ScheduleError(
                f"`{block.name}` accesses `{shown}` of dimension {n} of `{stated.buffer.name}`, "
                f"which is not shown to be within `{outer.min} .. {simplify(stop - 1)}`",
                (block, f"accesses {stated.buffer.name}"),
                hint="state a region that contains it",
            )
