"""Views: copies in the form that templates expect, through which a block accesses arrays while it is scheduled.

Each is taken out again by `restore`, so that the block accesses the array itself, in the loops that the template made.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from schedule.open_schedule import OpenSchedule, Stage, View, extent, is_spatial
from schedule.rewriting.index_map import IndexMap
from tir.arith.bounds import ranges_of, without_units
from tir.arith.mixed_radix import mixed_radix, values_of_terms
from tir.arith.polynomial import polynomial, to_expr
from tir.arith.simplify import simplify
from tir.ir import Block, Const, Expr, Load, Store, Var, const_shape
from tir.traverse import blocks, divisions, loads, substitute, variables

from .. import elementwise
from ..block_analysis import address, is_elementwise, regular, stored


def plain_arrays(s: OpenSchedule, block: str) -> None:
    """Have a block write at its own axes, and a reduction read each operand from an array of its own, at its own axes."""
    if not isinstance(s.block(block).body, Store) or not regular(s.block(block)):
        return
    _normalise_result(s, block)
    while s.block(block).is_reduction and _normalise_operand(s, block):
        pass


def restore(s: OpenSchedule) -> None:
    """Take out all remaining views; one that cannot go becomes a copy."""
    there = {b.name for b in blocks(s.func)}
    views, s.views = [view for view in s.views if view.block in there], []
    for view in views:
        undo = OpenSchedule.write_in_place if view.written else OpenSchedule.compute_inline
        if not s.attempt(undo, view.block):
            del s.scheduled[view.block]
            if elementwise.matches(s.block(view.block)):
                s.attempt(elementwise.build, view.block)


# --- results -----------------------------------------------------------------------------------------------------------------


def _normalise_result(s: OpenSchedule, block: str) -> None:
    """Have a block that writes at sums of its axes write at the axes: a temporary in that layout, or a view."""
    b = s.block(block)
    store = stored(b)
    if all(isinstance(i, Var) for i in store.indices) or (is_elementwise(b) and not s.get_producers(b.name)):
        return
    if block in s.get_output_blocks():
        if _strides(b, store) is not None:
            s.attempt(_view_of_result, block, store)
    elif (layout := _digit_layout(b, store)) is not None:
        readers = {name: _at_axes_of(s.block(name), store.buffer.name, layout) for name in s.get_consumers(block)}
        if s.attempt(OpenSchedule.transform_layout, block, ("write", 0), layout, None, True):
            for name, axes in readers.items():
                if axes is not None and s.attempt(OpenSchedule.transform_block_layout, name, axes, True):
                    _normalise_result(s, name)


def _at_axes_of(b: Block, buffer: str, layout: IndexMap) -> IndexMap | None:
    """The index map from the axes of an elementwise block to the layout of a temporary; None unless it reads that at its axes."""
    read = {x for x in loads(b.body) if x.buffer.name == buffer}
    if len(read) != 1 or not is_elementwise(b) or not regular(b):
        return None
    (x,) = read
    places = dict(zip(layout.inputs, x.indices, strict=True))
    axes = [it.var for it in b.iters]
    units = {it.var for it in b.iters if extent(it) == 1}
    if not {*axes} - units <= {*x.indices} or not all(isinstance(i, Const) or i in axes for i in x.indices):
        return None
    return IndexMap(tuple(axes), tuple(substitute(e, places) for e in layout.outputs))


def _digit_layout(b: Block, x: Load | Store) -> IndexMap | None:
    """The index map from the indices of an access to the axes that are their digits; None where no axes fill a dimension so."""
    sizes: dict[str, Expr] = {it.var.name: it.extent for it in b.iters}
    dims = tuple(Var(f"d{n}") for n in range(len(x.indices)))
    outputs: list[Expr] = []
    used: list[str] = []
    for dim, index, length in zip(dims, x.indices, x.buffer.shape, strict=True):
        if length.is_one:
            outputs += [dim] if isinstance(index, Var) else []
            continue
        found = mixed_radix(polynomial(simplify(index, ranges_of([b]))), sizes)
        if found is None or found[1] != length:
            return None
        values = values_of_terms(dim, found[0], sizes)
        used += values
        outputs += [values[name] for name, _ in reversed(found[0])]
    return IndexMap(dims, tuple(outputs)) if outputs and len(set(used)) == len(used) else None


def _view_of_result(s: OpenSchedule, block: str, store: Store) -> None:
    copy = s.reindex(block, ("write", 0))
    _record_view(s, copy, stored(s.block(block)).buffer.name, store.buffer.name, written=True)


# --- operands ----------------------------------------------------------------------------------------------------------------


def _normalise_operand(s: OpenSchedule, block: str) -> bool:
    """Have a reduction read its first operand that is not in normal form through a view; False if there is none."""
    b = s.block(block)
    own = stored(b).buffer.name
    views = {view.buffer: view.block for view in s.views}
    for x in loads(b.body):
        dims = _merge_counts(b, x) if x.buffer.name in views else []
        if 0 < len(dims) < len(x.indices) and s.attempt(_merge_dimensions, views[x.buffer.name], const_shape(x.buffer), dims):
            return True
    places = list(dict.fromkeys(x for x in loads(b.body) if x.buffer.name != own and x.buffer.name not in views))
    seen: dict[str, int] = {}
    for x in places:
        number = seen[x.buffer.name] = seen.get(x.buffer.name, -1) + 1
        if (number or _needs_view(b, x)) and s.attempt(_view_of_operand, block, x, number):
            return True
        dims = _merge_counts(b, x)
        if len(dims) < len(x.indices) and not number and s.attempt(_view_of_merged, block, x, dims):
            return True
    return False


def _needs_view(b: Block, x: Load) -> bool:
    """True where an index of an access is no axis, though its axes reach each element once; not for windows side by side."""
    plain = [i for i in x.indices if isinstance(i, Var)]
    if len(plain) == len(x.indices) or (not plain and all(isinstance(i, Const) for i in x.indices)):
        return False
    sums = [i for i in x.indices if not isinstance(i, Var | Const)]
    strides = _strides(b, x) if sums or isinstance(x.indices[-1], Const) else None
    return strides is not None and not (len(x.indices) > 1 and any(_walks_windows(b, i, strides) for i in sums))


def _walks_windows(b: Block, index: Expr, strides: dict[str, int]) -> bool:
    """True where an index walks windows of several dimensions, by strides below those of the result; or windows of one step."""
    reduced = {it.var.name for it in b.iters if not is_spatial(it) and extent(it) > 1}
    single = {it.var.name for it in b.iters if not is_spatial(it)} - reduced
    if single & variables(index) and variables(index) - single:
        return True
    inner, outer = reduced & variables(index), (variables(index) & strides.keys()) - reduced
    return bool(inner and outer) and len(reduced) > 1 and min(strides[v] for v in inner) < min(strides[v] for v in outer)


def _strides(b: Block, x: Load | Store) -> dict[str, int] | None:
    """The stride in memory of each axis, in elements, if an access reaches each element of the array once; None else."""
    place = polynomial(address(b, x))
    turned: dict[str, Expr] = {it.var.name: it.extent - 1 - it.var for it in b.iters if place.get((it.var,), 0) < 0}
    found = mixed_radix(polynomial(substitute(to_expr(place), turned)), {it.var.name: it.extent for it in b.iters})
    if found is None or found[1] != Const(prod(const_shape(x.buffer))):
        return None
    return {name: stride for name, stride in found[0] if isinstance(stride, int)}


def _view_of_operand(s: OpenSchedule, block: str, x: Load, number: int) -> None:
    """Read an operand through a view whose dimensions are its axes, in the order of memory."""
    b = s.block(block)
    several = sum(y.buffer == x.buffer for y in dict.fromkeys(loads(b.body))) > 1
    copy = s.reindex(block, x.buffer.name, number) if several else s.reindex(block, x.buffer.name)
    used = [it.var.name for it in b.iters if it.var.name in variables(*x.indices)]
    order = _axis_order(b, x, used)
    if order != sorted(order):
        s.transform_layout(copy, ("write", 0), IndexMap.identity(len(used)).permute(*order), None, True)
    _record_view(s, copy, stored(s.block(copy)).buffer.name, x.buffer.name, written=False)


def _merge_counts(b: Block, x: Load) -> list[int]:
    """The counts of consecutive dimensions that merge into one each, as parts of one number, with units before them."""
    counts: list[int] = []
    indices: list[Expr] = []
    for i, length in zip(x.indices, x.buffer.shape, strict=True):
        both = simplify(indices[-1] * length + i, without_units(ranges_of([b]))) if indices else i
        unit = isinstance(i, Const) and length.is_one
        if indices and (unit or len(divisions(both)) < len(divisions(indices[-1])) + len(divisions(i))):
            indices[-1] = both
            counts[-1] += 1
        else:
            indices.append(i)
            counts.append(1)
    return counts


def _view_of_merged(s: OpenSchedule, block: str, x: Load, counts: list[int]) -> None:
    """Read an operand through a view that merges `counts` of its dimensions into one each."""
    copy = s.cache_read(block, x.buffer.name, x.buffer.scope, [block])
    _merge_dimensions(s, copy, const_shape(x.buffer), counts)
    _record_view(s, copy, stored(s.block(copy)).buffer.name, x.buffer.name, written=False)


def _merge_dimensions(s: OpenSchedule, copy: str, lengths: Sequence[int], counts: list[int]) -> None:
    """Merge `counts` of the dimensions of a copy's output, of these `lengths`, into one each."""
    merging = IndexMap.identity(len(lengths))
    for n, count in enumerate(counts):
        first = sum(counts[:n])
        merging = merging.fuse(n, *lengths[first + 1 : first + count])
    s.transform_layout(copy, ("write", 0), merging, None, True)
    s.transform_block_layout(copy, merging, True)


def _axis_order(b: Block, x: Load, used: list[str]) -> list[int]:
    """The order of the axes of an access: by dimension, and in a dimension the one of the largest stride first."""
    dims = {name: next(n for n, i in enumerate(x.indices) if name in variables(i)) for name in used}
    strides = _strides(b, x) or {}
    return sorted(range(len(used)), key=lambda n: (dims[used[n]], -strides.get(used[n], 0)))


def _record_view(s: OpenSchedule, block: str, buffer: str, of: str, written: bool) -> None:
    """Record a view, which no template takes."""
    s.views.append(View(block, buffer, of, written))
    s.scheduled[block] = Stage.VIEW
