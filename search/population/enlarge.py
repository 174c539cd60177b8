"""Enlarged axes for a function of unchanged structure, so that a schedule of it has no special cases.

A schedule of a short axis is full of special cases: levels of one iteration, tiles that cover the whole axis. The result of the
same steps on a long axis holds for both, because each enlarged number keeps its original value as its formula
(`tir.arith.symbolic.SymbolicInt`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

from tir.arith.bounds import bounds
from tir.arith.intervals import Interval
from tir.arith.simplify import simplify
from tir.arith.symbolic import SymbolicInt
from tir.ir import Block, Buffer, Const, Expr, For, Load, Node, PrimFunc, Store, Var
from tir.traverse import blocks, loops, rewrite, walk

ExtentKey = tuple[str, str, int]  # ("axis", block, number), ("loop", name, 0) or ("dimension", buffer, number)
RoundUp = Callable[[int], int]  # the smallest suitable length of an axis from its argument on

MAX_ATTEMPTS = 100  # to find a length that suits several axes


def enlarge(func: PrimFunc, wanted: Mapping[tuple[str, str], RoundUp]) -> PrimFunc:
    """`func` with longer axes, those (block, name of the variable) in `wanted`, and longer loops and dimensions that follow.

    An axis has the length of its loop, and of the dimensions that it alone indexes. A dimension with an index computed from axes
    grows with the index, and an index that counts down starts further up. A function with an axis that is not a loop, or with two
    lengths that each ask for more than the other, is returned unchanged.
    """
    lengths = _lengths(func)
    same, grow = _relations(func, lengths)
    if same is None:
        return func
    classes: dict[ExtentKey, ExtentKey] = {key: same(key) for key in lengths}
    rounds: dict[ExtentKey, list[RoundUp]] = defaultdict(list)
    for block in blocks(func):
        for n, it in enumerate(block.iters):
            if (block.name, it.var.name) in wanted:
                rounds[classes["axis", block.name, n]].append(wanted[block.name, it.var.name])
    new = {c: lengths[c] for c in classes.values()}

    def at_least(c: ExtentKey, length: int) -> int:
        for _ in range(MAX_ATTEMPTS):  # a length that suits one axis need not suit another
            suits = length
            for rounded in rounds.get(c, ()):
                suits = rounded(suits)
            if suits == length:
                break
            length = suits
        return length

    for c in new:
        new[c] = at_least(c, new[c])
    for _ in range(len(new) + 1):
        before = dict(new)
        starts: dict[tuple[str, Expr], int] = {}  # added to the index of a block, so that it starts further up
        for key, index, block in grow:
            axes = [("axis", block.name, n) for n in range(len(block.iters))]
            low, high = _ends(index, block, [lengths[axis] for axis in axes])
            least, most = _ends(index, block, [new[classes[axis]] for axis in axes])
            if low is not None and high is not None and least is not None and most is not None:
                c = classes[key]
                new[c] = max(new[c], at_least(c, lengths[key] + most - least - (high - low)))
                if least < low:
                    starts[block.name, index] = low - least
        if new == before:
            changed = {p: new[c] for p, c in classes.items() if new[c] != lengths[p] or c in rounds}
            return _with_lengths(func, changed, starts) if changed else func
    return func


def _lengths(func: PrimFunc) -> dict[ExtentKey, int]:
    """The constant extents of all axes, loops and dimensions."""
    found: dict[ExtentKey, Expr] = {("loop", x.name, 0): x.extent for x in loops(func.body)}
    found |= {("axis", b.name, n): it.extent for b in blocks(func) for n, it in enumerate(b.iters)}
    found |= {("dimension", x.name, n): d for x in walk(func) if type(x) is Buffer for n, d in enumerate(x.shape)}
    return {key: extent.value for key, extent in found.items() if type(extent) is Const}


def _relations(func: PrimFunc, lengths: dict[ExtentKey, int]):
    """A map from places to representatives of equally long ones, or None, and the computed indices of other dimensions."""
    parent: dict[ExtentKey, ExtentKey] = {}

    def same(key: ExtentKey) -> ExtentKey:
        while key in parent:
            key = parent[key]
        return key

    grow: list[tuple[ExtentKey, Expr, Block]] = []
    for block in blocks(func):
        axes = {it.var.name: ("axis", block.name, n) for n, it in enumerate(block.iters)}
        pairs: list[tuple[ExtentKey, ExtentKey]] = []
        for it in block.iters:
            if type(it.binding) is not Var:
                return None, []
            pairs.append((axes[it.var.name], ("loop", it.binding.name, 0)))
        accesses = [node for node in walk(block) if isinstance(node, (Load, Store))]
        for key, index in ((("dimension", x.buffer.name, n), i) for x in accesses for n, i in enumerate(x.indices)):
            if type(index) is Var and index.name in axes and lengths.get(key) == lengths.get(axes[index.name]):
                pairs.append((axes[index.name], key))
            elif key in lengths:
                grow.append((key, index, block))
        for a, b in pairs:
            if a not in lengths or b not in lengths or lengths[a] != lengths[b]:
                return None, []
            if same(a) != same(b):
                parent[same(a)] = same(b)
    return same, grow


def _ends(index: Expr, block: Block, lengths: Sequence[int]) -> Interval:
    """The least and the largest value of an index for some lengths of the axes."""
    ranges: dict[str, Interval] = {it.var.name: (0, n - 1) for it, n in zip(block.iters, lengths, strict=True)}
    return bounds(index, ranges)


def _with_lengths(func: PrimFunc, lengths: Mapping[ExtentKey, int], starts: Mapping[tuple[str, Expr], int]) -> PrimFunc:
    """The function with other lengths, and with indices of blocks that start further up; both keep the old value as formula."""

    def size(key: ExtentKey, extent: Expr) -> Expr:
        if key not in lengths or type(extent) is not Const:
            return extent
        return extent.with_(value=SymbolicInt(lengths[key], ("const", extent.value)))

    def start(index: Expr, block: str) -> Expr:
        further = starts.get((block, index))
        return index if further is None else simplify(index + Const(SymbolicInt(further, ("const", 0)), index.dtype))

    def moved(node: Node, block: str) -> Node | None:
        return node.with_(indices=tuple(start(i, block) for i in node.indices)) if isinstance(node, (Load, Store)) else None

    def visit(node: Node) -> Node | None:
        match node:
            case Buffer(name, shape):
                return node.with_(shape=tuple(size(("dimension", name, n), d) for n, d in enumerate(shape)))
            case For(var, extent):
                return node.with_(extent=size(("loop", var.name, 0), extent))
            case Block(name, iters):
                axes = tuple(it.with_(extent=size(("axis", name, n), it.extent)) for n, it in enumerate(iters))
                return rewrite(node, lambda inner: moved(inner, name)).with_(iters=axes)
            case _:
                return None

    return rewrite(func, visit)
