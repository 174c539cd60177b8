"""lift_alloc: a temporary of a block moves to the enclosing block or function."""

from __future__ import annotations

from tir.ir import Block, PrimFunc, Var
from tir.nearest import did_you_mean
from tir.traverse import blocks, path_where, variables

from ...error import ScheduleError, listing
from ...primitive import BufferName, is_parameter, primitive
from ...rewriting.edits import with_buffer, without_buffers
from ...rewriting.index_map import IndexMap
from ...rewriting.layouts import with_layout


@primitive
def lift_alloc(func: PrimFunc, buffer: BufferName, n_lifts: int = 1) -> tuple[PrimFunc, None]:
    """Allocate a temporary of a block in the next block around, or else in the function; `n_lifts` times.

    It gets a dimension in front for each axis of the block with more than one value, so that instances still share no memory.
    The backend allocates only the part in use at a time.

    Rewrite   for i: with T.block("B"): v_i = i; X = T.alloc_buffer((13,)); S(v_i, X[j])
           => X = T.alloc_buffer((N, 13))
              for i: with T.block("B"): v_i = i; S(v_i, X[v_i, j])
    Legal     if a block allocates the buffer, and at least `n_lifts` blocks are around it, that one included. The shape, and the
              extents of the axes, use no variables bound inside of the new place. No block inside has an axis of the same name.
    Example   row_buffer: s.lift_alloc("row")
    """
    if n_lifts < 1:
        raise ScheduleError(f"`n_lifts` must be at least 1, got {n_lifts}")
    for _ in range(n_lifts):
        func = _lifted(func, buffer)
    return func, None


def _lifted(func: PrimFunc, name: str) -> PrimFunc:
    owner, around = _owner(func, name)
    target = next(b for b in owner.allocs if b.name == name)
    axes = [it for it in owner.iters if not it.extent.is_one]
    shape = (*(it.extent for it in axes), *target.shape)
    known = {p.name for p in func.params} | {it.var.name for b in around for it in b.iters}
    unknown = sorted(variables(*shape) - known)
    if unknown:
        raise ScheduleError(
            f"the shape of `{name}` depends on `{unknown[0]}`, which is bound further in",
            (owner, f"allocates {name}"),
            hint="allocate it with a shape of constants, or of what is bound further outside",
        )
    for b in blocks(owner.body):
        again = next((it.var.name for it in b.iters if any(it.var.name == a.var.name for a in axes)), None)
        if again is not None:
            raise ScheduleError(
                f"`{b.name}`, inside of `{owner.name}`, has an axis called `{again}` too",
                (owner, "one"),
                (b, "the other"),
                hint=f"write `{b.name}` with an axis of another name",
            )
    old = tuple(Var(f"{name}.{n}", dim.dtype) for n, dim in enumerate(target.shape))
    new = target.with_(shape=shape, axis_separators=tuple(n + len(axes) for n in target.axis_separators))
    func = with_layout(without_buffers(func, [name]), name, new, IndexMap(old, (*(it.var for it in axes), *old)))
    return with_buffer(func, around[-1] if around else None, new)


def _owner(func: PrimFunc, name: str) -> tuple[Block, list[Block]]:
    """The block that allocates a buffer, and the blocks around it, outermost first; refuses other buffers."""
    found = path_where(func, lambda s: type(s) is Block and any(b.name == name for b in s.allocs))
    if found:
        *around, owner = (s for s in found if type(s) is Block)
        return owner, around
    if is_parameter(func, name):
        raise ScheduleError(
            f"`{name}` is a parameter of the function",
            hint="a parameter is the caller's; cache_write or cache_read makes a temporary",
        )
    if any(b.name == name for b in func.allocs):
        raise ScheduleError(
            f"`{name}` is allocated by the function, and cannot be lifted further", hint="with fewer lifts it gets there already"
        )
    known = [b.name for s in blocks(func.body) for b in s.allocs]
    raise ScheduleError(f"no block allocates `{name}`; allocated by blocks are {listing(known)}", hint=did_you_mean(name, known))
