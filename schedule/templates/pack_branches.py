"""Packing: copies of operands in the order in which a tiled block walks them, with branches for which to make, and where."""

from __future__ import annotations

from math import prod

from schedule import ScheduleError
from schedule.machine import CACHE_LINE_BYTES
from schedule.open_schedule import Continuation, OpenSchedule, Operands, element_bits, extent, is_spatial
from schedule.open_trace import Role
from schedule.primitive import find_block
from schedule.rewriting.index_map import IndexMap
from schedule.schedule import Schedule
from tir import dtypes
from tir.ir import Cast, Const, Load, Var
from tir.traverse import loads, loops_to, stored_names, variables, walk

from .block_analysis import driven_axes, stored, transpose_in_squares
from .marks import parallel, prefetch_rows

AS_IT_IS = "as it is"  # an operand is not packed


def choose_packs(state: OpenSchedule, block: str, place: str | None, then: Continuation, few: bool = False) -> None:
    """Branch over the operands of a tiled block: each is read as it is, or from a copy that `pack` makes. Each branch goes on
    with `then`.

    An operand without the vectorised axis is copied at the loop `place`, block by block, or in front where `place` is None. If
    the sum walks its memory, the copy may keep that order, and is made in vectors. One with the vectorised axis is copied in
    front, by all threads, or panel by panel in the outermost loops. With `few`, there is one way to copy each.
    """
    _pack_each(state, block, place, _operands(state, block), then, few)


def _operands(state: OpenSchedule, block: str) -> list[str]:
    """The buffers that a block can read through a packed copy, without those that are computed in its tiles."""
    b = state.block(block)
    nest = b if operands_of(state, block).by_blocks else loops_to(state.func.body, block)[0]
    written = stored_names(nest)
    found = []
    for buffer in dict.fromkeys(load.buffer.name for load in loads(b.body) if load.buffer.name not in written):
        trial = state.copy()
        try:
            copy = trial.pack(block, buffer, preserve_unit_loops=True)
        except ScheduleError:
            continue
        if trial.get_loops(copy):  # more than one element
            found.append(buffer)
    return found


def operands_of(state: OpenSchedule, block: str) -> Operands:
    """The ways in which a tiled block may read packed copies."""
    tiled = state.tiled(block)
    assert tiled is not None and tiled.operands is not None
    return tiled.operands


def _pack_each(state: OpenSchedule, block: str, place: str | None, operands: list[str], then: Continuation, few: bool) -> None:
    if not operands:
        then(state)
        return
    buffer, *rest = operands

    def way(copy: Continuation) -> Continuation:
        def change(new: OpenSchedule) -> None:
            copy(new)
            _pack_each(new, block, place, rest, then, few)

        return change

    ways: dict[str, Continuation] = {}
    load = next(load for load in loads(state.block(block).body) if load.buffer.name == buffer)
    axes = variables(*load.indices)
    vector = state.vector_axes(block)
    along = load.indices[-1]
    transposed = bool(axes & vector) and not (isinstance(along, Var) and along.name in vector)
    how = operands_of(state, block)
    if not transposed or how.gathered:  # else vectors would be gathered from as many lines as they have lanes
        ways[AS_IT_IS] = way(lambda new: None)
    if axes & vector or not how.by_blocks:
        ways["in front"] = way(lambda new: _make_copy(new, block, load, None, transposed))
        panels = _panel_loop(state, block, axes)
        if panels is not None:
            ways["at its panels"] = way(lambda new: _make_copy(new, block, load, panels, transposed))
    else:
        reduce_axes = {it.var.name for it in state.block(block).iters if not is_spatial(it)}
        if isinstance(along, Var) and along.name in reduce_axes:
            ways["by rows"] = way(lambda new: _pack_by_rows(new, block, buffer, place))
        ways["by tiles"] = way(lambda new: _make_copy(new, block, load, place))
    seed = dict(how.seed).get(buffer)
    if few:
        packed = seed if seed in ways and seed != AS_IT_IS else next((label for label in ways if label != AS_IT_IS), None)
        ways = {label: way for label, way in ways.items() if label in (AS_IT_IS, packed)}
    state.branch(f"pack {buffer} for {block}", ways, seed=seed, block=block, role=Role.PACKING, buffer=buffer)


def _panel_loop(state: OpenSchedule, block: str, axes: set[str]) -> str | None:
    """The loop that moves to another panel of an operand with these axes, in a convolution or a batched product. It is the last
    loop of the outer levels that drives one of the axes. All loops around it drive one, too, or have one iteration."""
    tiled = state.tiled(block)
    if tiled is None or not operands_of(state, block).panels:
        return None
    drives = driven_axes(state.block(block))
    parts = tiled.levels[1] if operands_of(state, block).by_blocks else ()
    for outer in (tiled.levels[0] + parts, tiled.levels[0]):
        own = [loop for loop in outer if drives[loop] in axes]
        around = outer[: outer.index(own[-1])] if own else ()
        if own and all(loop in own or state.loop(loop).extent.is_one for loop in around):
            return own[-1]
    return None


def _make_copy(state: OpenSchedule, block: str, load: Load, place: str | None, transposed: bool = False) -> None:
    """Copy an operand at the loop `place`, or in front, by all threads: in vectors along the copy, or `transposed`."""
    copy = _pack_operand(state, block, load.buffer.name)
    if place is not None:
        state.compute_at(copy, place, preserve_unit_loops=True)
        if not transposed:
            _order_by_rows(state, copy, block, load)
    _vectorize_copy(state, copy, place, transposed)
    if transposed:
        _transpose_copy(state, block, load, copy)
    else:
        prefetch_rows(state, copy)
    if load.buffer.name in state.shared:
        _panels_first(state, copy, block, load)


def _panels_first(state: OpenSchedule, copy: str, block: str, load: Load) -> None:
    """Order a packed constant by panels, then by the steps of the sum, whatever parts the sum has."""
    axes, reduce_axes = variables(*load.indices), {it.var.name for it in state.block(block).iters if not is_spatial(it)}
    drives = driven_axes(state.block(block))
    *walked, _ = [drives[loop] in reduce_axes for loop in state.get_loops(block) if drives.get(loop) in axes]
    order = [*(n for n, summed in enumerate(walked) if not summed), *(n for n, summed in enumerate(walked) if summed)]
    if order != sorted(order):
        state.transform_layout(copy, ("write", 0), IndexMap.identity(len(walked) + 1).permute(*order, len(walked)))


def _pack_operand(state: OpenSchedule, block: str, buffer: str) -> str:
    """Pack an operand. Halves that a block converts at each use are converted in the copy. Vectors of constants stay halves: they
    are packed once, and each call would read more memory."""
    copy = state.pack(block, buffer, preserve_unit_loops=True)
    made = stored(state.block(copy)).buffer
    in_vectors = next(x for x in loads(state.block(block).body) if x.buffer == made)
    kept = buffer in state.constants and variables(*in_vectors.indices) & state.vector_axes(block)
    changing = dtypes.is_half(made.dtype) and not kept
    wide = _converted_dtype(state, block, made.name) if changing else None
    if wide is not None:
        state.unsafe_set_dtype(copy, 0, wide)
    return copy


def _converted_dtype(state: OpenSchedule, block: str, buffer: str) -> str | None:
    """The one dtype to which a block converts each element that it loads from a buffer; None without one."""
    body = state.block(block).body
    casts = [n for n in walk(body) if isinstance(n, Cast) and isinstance(n.value, Load) and n.value.buffer.name == buffer]
    count = sum(load.buffer.name == buffer for load in loads(body))
    return casts[0].dtype if len(casts) == count and len({n.dtype for n in casts}) == 1 else None


def _vectorize_copy(state: OpenSchedule, copy: str, place: str | None, transposed: bool = False) -> None:
    if not transposed:
        state.vectorize(state.get_loops(copy)[-1])
    loops = state.get_loops(copy)
    if place is None and state.target.num_cores > 1 and len(loops) > 2:
        parallel(state, loops[:-2])


def _order_by_rows(state: OpenSchedule, copy: str, block: str, load: Load) -> None:
    """Have a vectorised copy finish a row of its source before the next; its loops are the block's that drive the operand."""
    along, axes = variables(load.indices[-1]), variables(*load.indices)
    drives = driven_axes(state.block(block))
    order = [drives[loop] for level in state.tiling(block).levels for loop in level if drives[loop] in axes]
    loops = state.get_loops(copy)[-len(order) :]
    if order[-1] in along:
        rows = [loop for loop, axis in zip(loops, order, strict=True) if axis not in along]
        state.reorder(*rows, *(loop for loop in loops if loop not in rows))


def _transpose_copy(state: OpenSchedule, block: str, load: Load, copy: str) -> None:
    """Copy a transposed operand in squares of as many rows and columns as a vector has lanes. Each row of a square is one load,
    and squares are transposed in registers. An operand with shorter rows is copied element by element."""
    lanes = state.target.lanes(element_bits(state.block(block)))
    *others, last = state.get_loops(copy)
    reduce_axes = {it.var.name: extent(it) for it in state.block(block).iters if not is_spatial(it)}
    along: list[int] = []  # lengths of the reduction axes that are the last dimensions in memory, the fastest first
    for index in reversed(load.indices):
        if not isinstance(index, Var) or index.name not in reduce_axes:
            break
        along.append(reduce_axes[index.name])
    lengths = [x.extent.value for x in map(state.loop, others[-len(along) :]) if isinstance(x.extent, Const)]
    if lengths != along[::-1] or prod(along) < lanes:
        state.unroll(last)
        return
    columns = state.fuse(*others[-len(along) :]) if along[0] % lanes and along[1:] else others[-1]
    transpose_in_squares(state, columns, last, lanes, lanes)


def _pack_by_rows(state: OpenSchedule, block: str, buffer: str, place: str | None) -> None:
    """Copy an operand block by block, in rows along the sum: while it is packed, the sum is inside the rows of a tile."""
    *_, reduce_loops, (row_loop,), _ = state.tiling(block).levels
    sum_loop = reduce_loops[-1]
    state.reorder(row_loop, sum_loop)
    copy = _pack_operand(state, block, buffer)
    state.reorder(sum_loop, row_loop)
    if place is not None:
        state.compute_at(copy, place, preserve_unit_loops=True)
    _vectorize_copy(state, copy, place)
    separate_rows(state, copy)


def separate_rows(s: Schedule, copy: str) -> None:
    """Align the rows of a copy an odd number of cache lines apart, so that they start in different sets of the caches."""
    line = CACHE_LINE_BYTES // dtypes.nbytes(stored(find_block(s.func, copy)).buffer.dtype)
    s.storage_align(copy, 0, -2, 2 * line, line)
