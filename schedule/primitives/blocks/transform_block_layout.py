"""transform_block_layout: a block over other iteration variables."""

from __future__ import annotations

from tir.arith.bounds import without_units
from tir.arith.statements import simplify_tree
from tir.ir import Axis, Iter, PrimFunc, Var, conjunction, nest, seq
from tir.traverse import substitute, variables

from ...error import ScheduleError
from ...legality.dataflow import locate
from ...legality.requirements import own_loops
from ...primitive import BlockName, primitive
from ...rewriting.edits import Names, edited
from ...rewriting.index_map import MapOfAxes, invert, parse_index_map, place_names


@primitive
def transform_block_layout(
    func: PrimFunc, block: BlockName, index_map: MapOfAxes, preserve_unit_iters: bool = False
) -> tuple[PrimFunc, None]:
    """Run a block over `index_map(i, j, ...)` in place of its iteration variables i, j, ...

    New loops, one for each new variable, replace the loops around it. An index map is a function as for `transform_layout`; if it
    divides an extent with a remainder, the block gets a predicate. An index may count backwards, as in `12 - i` with i < 13.
    Variables of one value become that value; with `preserve_unit_iters`, those that are outputs of the index map stay.

    Rewrite   for i in range(7): for j in range(13): S(i, j)
           => for ax0 in range(91): S(ax0 // 13, ax0 % 13)                 # lambda i, j: (i * 13 + j,)
    Legal     if all loops around the block hold nothing else, are serial and not annotated. Each drives one of its variables over
              the whole extent. Variables without a loop have one value, none is opaque, and the block has no predicate. The
              index map is one to one, and each new variable depends on spatial axes only, or on reduction axes only.
    Example   matmul: s.transform_block_layout("C", lambda i, j, k: (j, i, k))
    """
    _, leaf = locate(func, block)
    target = leaf.block
    mapping = parse_index_map(index_map, func, [it.extent for it in target.iters])
    if mapping.separators:
        raise ScheduleError("axis separators are for buffers, not for the axes of a block", (target, "the block"))
    loops = own_loops(leaf)
    names = Names.of(func)
    layout = invert(mapping, [it.extent for it in target.iters], place_names(func, names, len(mapping.outputs)))
    axes = {v.name: it for v, it in zip(mapping.inputs, target.iters, strict=True)}
    iters: list[Iter] = []
    new: list[tuple[Var, object]] = []
    for place, extent, sources, e in zip(layout.places, layout.extents, layout.sources, mapping.outputs, strict=True):
        kinds = {axes[v].axis for v in sources or (variables(e) if preserve_unit_iters else ())}
        if len(kinds) > 1:
            mixed = " and ".join(f"`{axes[v].var.name}`" for v in sorted(sources))
            raise ScheduleError(
                f"the index map mixes {mixed}, which are spatial and of the reduction",
                (target, "the block"),
                hint="keep the axes of the reduction apart: each result of the index map has axes of one kind",
            )
        loop = Var(names.loop(f"ax{len(new)}"), place.dtype)
        new.append((loop, extent))
        iters.append(Iter(place, extent, kinds.pop() if kinds else Axis.SPATIAL, loop))
    back = {it.var.name: e for it, e in zip(target.iters, layout.inverse, strict=True)}
    if target.init is not None and all(it.axis is not Axis.REDUCE for it in iters):
        # The reduction has one step, and no new variable: its init always runs before it.
        target = target.with_(init=None, body=seq(target.init, target.body))
    over = {v.name: loop for v, (loop, _) in zip(layout.places, new, strict=True)}
    ranges = layout.ranges
    if preserve_unit_iters:
        back |= {axes[e.name].var.name: v for e, v in zip(mapping.outputs, layout.places, strict=True) if isinstance(e, Var)}
        ranges = without_units(ranges)
    inner = simplify_tree(substitute(target.with_(iters=()), back), ranges)
    result = inner.with_(iters=tuple(iters), predicate=substitute(conjunction(*layout.conditions), over))
    return edited(func, [(loops[0] if loops else target, nest(new, result))]), None
