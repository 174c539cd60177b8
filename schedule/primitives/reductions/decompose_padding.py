"""decompose_padding: a padding block becomes one that fills, and one that copies the inside."""

from __future__ import annotations

from tir.arith.bounds import ranges_of
from tir.arith.intervals import Interval
from tir.arith.polynomial import linear, nonpositive
from tir.arith.prove import prove
from tir.arith.simplify import simplify
from tir.ir import Block, Const, Expr, For, Iter, PrimFunc, Select, Store, Var, conjunction, conjuncts
from tir.traverse import loads, substitute, variables

from ...error import ScheduleError
from ...legality.axis_windows import axes_with_own_loop
from ...legality.dataflow import BlockScope, Leaf, locate, loop_around
from ...legality.instances import narrowed
from ...legality.requirements import need_complete, need_late_readers, single_store
from ...primitive import BlockName, LoopName, primitive
from ...rewriting.clones import in_own_loops
from ...rewriting.edits import Insertion, Names, edited, with_extents

ValueRanges = dict[str, tuple[int, int]]  # by axis or loop: the iterations, end exclusive, without padding


@primitive
def decompose_padding(func: PrimFunc, block: BlockName, loop: LoopName) -> tuple[PrimFunc, str]:
    """Divide a padding block into one that fills everything with the padding, before a loop, and one that copies the values.

    Returns the name of the block that fills, `block` with `_pad_const` added; the other keeps its name. A condition that bounds
    an axis with its own loop, `loop` or one below, cuts that loop. Other conditions join the predicate.

    Rewrite   for i in range(15): P[i] = A[i - 1] if 1 <= i < 14 else 0
           => for i_pad in range(15): P[i_pad] = 0
              for i in range(13): P[i + 1] = A[i]
    Legal     if `loop` is around the block, which is data parallel and only stores a choice between a value and a padding.
              Padding and condition read nothing, and the condition can hold. The other statements under `loop` never write the
              output. They read it only after the block (of a parameter just the elements that the block writes).
    Example   padded: s.decompose_padding("B", "i")
    """
    scope, leaf = locate(func, block)
    target = leaf.block
    place = loop_around(leaf, func, loop)
    around, inner = leaf.loops[place], leaf.loops[place:]
    need_complete(scope, leaf, "decomposed into padding and a copy")
    store = single_store(target)
    chosen = store.value
    if type(chosen) is not Select or loads(chosen.condition) or loads(chosen.false_value):
        raise ScheduleError(
            f"`{block}` does not store a choice between a value and a padding that reads nothing, by a condition on its axes",
            (store, "the store"),
            hint="its value must be T.if_then_else(condition on the axes, value, padding)",
        )
    inside, others = _value_ranges(target, chosen.condition)
    need_late_readers(scope, leaf, around)

    names = Names.of(func)
    used = variables(target.predicate).union(*(variables(it.binding) for it in target.iters))
    kept = [x for x in inner if x.name in used]
    filling = Block(
        names.block(f"{block}_pad_const"),
        target.iters,
        Store(store.buffer, store.indices, chosen.false_value),
        None,
        target.predicate,
        writes=target.writes,
        reads=None if target.reads is None else (),
        annotations=target.annotations,
    )
    cut = _loops_to_cut(scope, leaf, inner, inside)
    copying = _copying(target, store.with_(value=chosen.true_value), inside, others, cut, leaf)
    func = edited(func, [(target, copying)], Insertion(around, 0, in_own_loops(filling, kept, names, "_pad")))
    sizes = {x.name: Const(cut[x.name][1] - cut[x.name][0], x.extent.dtype) for x in inner if x.name in cut}
    return with_extents(func, sizes), filling.name


def _value_ranges(block: Block, condition: Expr) -> tuple[ValueRanges, list[Expr]]:
    """The ranges that a condition bounds some axes of a block to, and its other parts."""
    whole: dict[str, Interval] = {it.var.name: (0, it.extent.value - 1) for it in block.spatial if isinstance(it.extent, Const)}
    bound: dict[Expr, str] = {}
    for c in conjuncts(condition):
        match linear(nonpositive(c) or {}):
            case (name, 1 | -1, _) if name in whole:
                bound[c] = name
    kept = narrowed(whole, bound)
    ranges: ValueRanges = {}
    for name in bound.values():
        low, high = kept[name]
        assert low is not None and high is not None
        ranges[name] = low, high + 1
        if high < low:
            raise ScheduleError(
                f"the condition `{condition}` never holds for `{name}`",
                (block, "only padding"),
                hint="it is padding everywhere: there is nothing to decompose",
            )
    return ranges, [c for c in conjuncts(condition) if c not in bound]


def _loops_to_cut(scope: BlockScope, leaf: Leaf, inner: tuple[For, ...], inside: ValueRanges) -> dict[str, tuple[int, int]]:
    """The loops that alone drive an axis and can be cut to its range, with that range."""
    block = leaf.block
    extents = {it.var.name: it.extent for it in block.iters}
    elsewhere = variables(block.predicate).union(*(variables(x.extent) for x in inner))
    return {
        loop.name: inside[v]
        for v, loop in axes_with_own_loop(block, inner).items()
        if v in inside and loop.extent == extents[v] and loop.name not in elsewhere
        if len(scope.leaves_under(loop)) == 1
    }


def _copying(block: Block, store: Store, inside: ValueRanges, others: list[Expr], cut: ValueRanges, leaf: Leaf) -> Block:
    """The block that runs where there is no padding, its loops cut."""
    iters: list[Iter] = []
    moved: dict[str, Expr] = {}  # by axis: its old value in terms of the new one, and the old binding in terms of the new loops
    shifted: dict[str, Expr] = {}
    conditions: list[Expr] = []
    for it in block.iters:
        low, high = inside.get(it.var.name, (0, 0))
        if it.var.name not in inside:
            iters.append(it)
        elif type(it.binding) is Var and it.binding.name in cut:
            iters.append(it.with_(extent=Const(high - low, it.extent.dtype)))
            moved[it.var.name] = it.var + low if low else it.var
            shifted[it.var.name] = it.binding + cut[it.binding.name][0]
        else:
            iters.append(it)
            conditions += [it.binding >= low, it.binding < high]
    bindings = {it.var.name: it.binding for it in block.iters} | shifted
    conditions += [substitute(c, bindings) for c in others]
    sizes = {loop: (0, high - low - 1) for loop, (low, high) in cut.items()}
    around = {**ranges_of(leaf.loops), **sizes}
    kept = [simplify(c, around) for c in conditions if not prove(c, around)]
    new = block.with_(iters=tuple(iters), predicate=conjunction(block.predicate, *kept), reads=None, writes=None)
    ranges = ranges_of([new])
    place = tuple(simplify(substitute(i, moved), ranges) for i in store.indices)
    return new.with_(body=store.with_(indices=place, value=simplify(substitute(store.value, moved), ranges)))
