"""bind: iterations as blocks or threads of a GPU."""

from __future__ import annotations

from tir.ir import THREAD_AXES, Axis, Buffer, For, Kind, PrimFunc, conjuncts
from tir.memory import PER_THREAD, SHARED
from tir.nearest import did_you_mean
from tir.traverse import axis_loops, blocks, loads, loops, loops_in, perfect_nest, stored_names, stores, variables, walk

from ...error import ScheduleError
from ...legality.independence import independent_iterations, need_markable, need_no_lanes
from ...legality.privatisation import private_buffers
from ...legality.reducer import reducer_of
from ...primitive import LoopName, blocks_below, loop_at, primitive, replace_path
from .reorder import reorder

# By kind of thread axis: the storage scopes that are private to a block, or to a thread, of a GPU.
OWN_SCOPES = {"blockIdx": (*SHARED, *PER_THREAD), "threadIdx": PER_THREAD, "vthread": PER_THREAD}


def _axis_kind(thread_axis: str) -> str:
    """The kind of a thread axis: "threadIdx" for "threadIdx.x"."""
    return thread_axis.split(".")[0]


def _need_own_axis(target: For, thread_axis: str, outside: list[For], inside: list[For]) -> None:
    """Refuse an axis that a loop outside or inside is bound to already, and blocks inside of threads."""
    kind = _axis_kind(thread_axis)
    for other in (*outside, *inside):
        if other.kind is Kind.THREAD and other.thread == thread_axis:
            first, second = (other, target) if other in outside else (target, other)
            filling = {s.buffer.scope for s in stores(second)} <= set(SHARED) and first.name not in variables(second)
            if kind == "threadIdx" and filling:  # of shared memory, in which no thread has a part
                continue
            raise ScheduleError(
                f"`{other.name}` is bound to {thread_axis} already, and of two loops inside one another only one can be",
                (first, "outer loop"),
                (second, "inside it"),
                hint="fuse the two before binding, or bind this one to another axis",
            )
    for other in outside if kind == "blockIdx" else inside:
        if {kind, _axis_kind(other.thread)} == {"blockIdx", "threadIdx"}:
            first, second = (other, target) if kind == "blockIdx" else (target, other)
            raise ScheduleError(
                "threads cannot start blocks: a loop bound to blockIdx must be outside of those bound to threadIdx",
                (first, "would be threads"),
                (second, "would be blocks"),
                hint="reorder first",
            )


def _same_for_all(loop: For, name: str) -> bool:
    """True where all iterations of a thread loop store the same values to a buffer, so that they can share it."""
    written = stored_names(loop.body) - {name}
    writers = [b for b in blocks(loop.body) if any(s.buffer.name == name for s in stores(b))]
    return not any(loop.name in variables(b) or any(x.buffer.name in written for x in loads(b)) for b in writers)


def _reduces_together(loop: For, outside: list[For]) -> bool:
    """True if the loop drives just the reduction of one block, a cross-thread reduction; refuses one of several results."""
    found = blocks_below(loop.body)
    block = found[0] if len(found) == 1 else None
    if block is None or block.init is None or loop.extent.is_one:
        return False
    driven = {it.axis for it in block.iters if loop.name in variables(it.binding)}
    if driven != {Axis.REDUCE} or perfect_nest(loop)[1] is not block:
        return False
    reducing, below = axis_loops(block, Axis.REDUCE), {x.name for x in loops(loop)}
    placing = axis_loops(block, Axis.SPATIAL) & below
    mixed = reducing & placing  # loops that start and continue reductions
    mixed |= {s.name for s in outside if s.name in reducing and not s.extent.is_one}
    guards = [c for c in conjuncts(block.predicate) if variables(c) & reducing]
    if mixed or any(variables(c) & placing for c in guards):
        return False
    reducer = reducer_of(block, True)
    if len(reducer.outputs) > 1:
        raise ScheduleError(
            f"`{block.name}` has {len(reducer.outputs)} results, which threads cannot reduce together",
            (loop, "cannot be bound"),
            (block, "several results"),
            hint=f"rfactor({loop.name!r}, 0) gives each thread its own partial results",
        )
    return True


def _with_own_steps_inside(func: PrimFunc, target: For, outside: list[For]) -> PrimFunc:
    """`func` with a reduction loop, to be bound to threads, moved outside of the serial reduction loops directly around it.

    These become the steps of each thread."""
    found = blocks_below(target.body)
    if len(found) != 1 or found[0].init is None or target.name not in axis_loops(found[0], Axis.REDUCE):
        return func
    reducing = axis_loops(found[0], Axis.REDUCE)
    steps: list[For] = []
    for s in reversed(outside):
        if s.kind is not Kind.SERIAL or s.name not in reducing or s.body is not (steps[0] if steps else target):
            break
        steps.insert(0, s)
    return reorder(func, target.name, *(s.name for s in steps))[0] if steps else func


@primitive
def bind(func: PrimFunc, loop: LoopName, thread_axis: str) -> tuple[PrimFunc, None]:
    """Run the iterations of a loop as blocks or threads of a GPU, or as virtual threads.

    `thread_axis` is "blockIdx.x", "threadIdx.x" or "vthread.x", or the same with y or z.

    Rewrite   for i in range(N): S(i)   =>   for i in T.thread_binding(N, thread="threadIdx.x"): S(i)
    Legal     if the loop is serial, or bound to another axis, which it leaves, and no loop around is vectorized. The iterations
              are independent, as for `parallel`. Temporaries in shared memory are private to a block, those in local memory to a
              thread, and those in global memory to none. Temporaries in shared memory do not count if all iterations store the
              same values. Nested loops are bound to different axes, blockIdx outside of threadIdx. The threads of a loop around
              may share the iterations of a loop bound to the same threadIdx. That loop stores to shared memory alone, and does
              not use the variable of the loop around.
              A loop bound to threadIdx may also drive the reduction of the only block below it. That has its init and one
              result, and its operation is +, *, min, max, and, or. Serial loops of the reduction directly around this one are put
              inside, as by `reorder`. No other loop around may drive it, no loop from this one on may drive spatial axes as well,
              and no condition may concern both. Each thread reduces its iterations from the init's value, the results are
              combined in any order, and every thread gets the stored result. Floating results differ by rounding.
    Example   elementwise: s.bind("i1", "threadIdx.x")
    """
    target, above = loop_at(func, loop)
    if thread_axis not in THREAD_AXES:
        known = ", ".join(THREAD_AXES)
        raise ScheduleError(f"`{thread_axis}` is no thread axis; these are {known}", hint=did_you_mean(thread_axis, THREAD_AXES))
    need_markable(target, Kind.THREAD)
    kind = _axis_kind(thread_axis)
    if kind == "threadIdx":
        func = _with_own_steps_inside(func, target, loops_in(above[:-1]))
        target, above = loop_at(func, loop)
    outside = loops_in(above[:-1])
    inside = loops(target.body)
    need_no_lanes(above, "lanes of a vector cannot start threads; bind an outer loop")
    _need_own_axis(target, thread_axis, outside, inside)

    def private() -> set[str]:
        scopes = {n.name: n.scope for n in walk(target.body) if isinstance(n, Buffer)}
        own = {name for name in private_buffers(func, above) if scopes[name] in OWN_SCOPES[kind] or scopes[name] in SHARED}
        return {name for name in own if scopes[name] in OWN_SCOPES[kind] or _same_for_all(target, name)}

    if not (kind == "threadIdx" and _reduces_together(target, outside)):
        independent_iterations(above, "bound", private)
    return replace_path(func, above, target.with_(kind=Kind.THREAD, thread=thread_axis)), None
