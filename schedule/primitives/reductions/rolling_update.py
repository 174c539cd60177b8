"""rolling_update: sums of exponentials run in the loop that finds their maximum, and are scaled as it grows."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from tir import dtypes
from tir.analysis.dependence import ANY, GREATER, SAME, Instances, units
from tir.arith.bounds import ranges_of
from tir.arith.prove import prove
from tir.ir.blocks import Axis, Block, Iter
from tir.ir.buffers import Buffer, Load
from tir.ir.expressions import Binary, Call, Cast, Const, Expr, Select, Unary, Var, conjunction, conjuncts
from tir.ir.functions import PrimFunc
from tir.ir.statements import For, Stmt, Store, seq
from tir.traverse import axis_loops, loaded_names, loads, loops_in, stored_names, substitute, variables, walk
from tir.traverse import loops as loops_below

from ...error import ScheduleError, listing
from ...legality.dataflow import locate
from ...legality.reducer import accumulation
from ...primitive import LoopName, blocks_below, find_block, find_loop, loop_at, primitive
from ...rewriting.clones import in_own_loops
from ...rewriting.edits import Names, edited, statements_of
from ...rewriting.masked import iterations_above
from ..loops.merge import merge
from .decompose_reduction import decompose_reduction

Row = tuple[Expr, ...]  # the indices of a maximum


@dataclass(frozen=True, slots=True)
class Scaled:
    """A value that is proportional to exp(-m[row]) for a maximum m, in its new form, and the sum that it was divided by."""

    value: Expr
    row: Row
    divisor: Load | None = None


@primitive
def rolling_update(func: PrimFunc, *loops: LoopName) -> tuple[PrimFunc, str]:
    """Merge loops that find a maximum and add up exponentials of differences from it; returns the name of the merged loop.

    The sums are multiplied by a correction in each iteration, and divisions by a sum come after the loop. Floating results differ
    by rounding. An exponential may overflow if its iteration comes before that in which the maximum meets its element. Iterations
    at the end whose x are all -inf by a condition, as behind a causal mask, are cut off, with 0 * v where v is not finite.
    Source: Milakov and Gimelshein, Online normalizer calculation for softmax, arXiv 1805.02867; Dao et al., FlashAttention,
    NeurIPS 2022.

    Rewrite   for o: m[i] = max(m[i], x[i, o])                           # from -inf
              for o: p[i, o] = exp(x[i, o] - m[i])
              for o: l[i] = l[i] + p[i, o]                               # from 0
              for o: y[i] = y[i] + p[i, o] / l[i] * v[o]                 # from 0
           => m[i] = -inf;  l[i] = 0;  y[i] = 0
              for o: c[i] = m[i]
                     m[i] = max(m[i], x[i, o])
                     n[i] = select(m[i] == -inf, 0, m[i]);  c[i] = exp(c[i] - n[i])
                     p[i, o] = exp(x[i, o] - n[i])
                     l[i] = l[i] * c[i];  l[i] = l[i] + p[i, o]
                     y[i] = y[i] * c[i];  y[i] = y[i] + p[i, o] * v[o]
              y[i] = y[i] / l[i]
    Legal     if one reduction over the loops is a maximum, and `merge` is legal but for what depends on it. A block that
              reads it stores an exponential of a difference from it. Blocks that read such a value store, or add up from 0, a
              value that is proportional to it: a product or quotient with others, a conversion, 0 by choice. They do so in
              the iteration that made it, and may divide by a finished sum of the row. All of these are in the given loops.
    Example   weighted_means: s.rolling_update("k", "n", "r", "j")
    """
    inside = {b.name: nest for nest in (find_loop(func, x) for x in loops) for b in blocks_below(nest.body)}
    found = [(find_block(func, name), nest) for name, nest in inside.items()]
    reducing = [(b, a) for b, nest in found if nest.name in axis_loops(b, Axis.REDUCE) and (a := accumulation(b)) is not None]
    maxima = [b for b, a in reducing if a.op == "max"]
    if len(maxima) != 1:
        raise ScheduleError(
            f"one maximum over the loops is needed, got {len(maxima)}",
            *((b, "a maximum") for b in maxima),
            hint="a loop must drive the reduction axis of m[...] = max(m[...], x)",
        )
    names = Names.of(func)
    rolling = _Rolling(maxima[0], inside, names)
    ordered = list(blocks_below(func.body))
    for b in ordered[ordered.index(maxima[0]) + 1 :]:
        rolling.visit(b)
    func = edited(func, rolling.changes).with_(allocs=(*func.allocs, rolling.shift, rolling.correction))
    func, merged = merge(func, *loops)
    rolling.need_same_iteration(func, merged)
    whole, results = find_loop(func, merged), {rolling.top.buffer.name, *rolling.made}
    alone = later_read(func, merged, stored_names(whole.body) - results) is None
    extent = iterations_above(func, merged, rolling.values, results) if alone else whole.extent
    for name in (maxima[0].name, *rolling.sums):
        func, _ = decompose_reduction(func, name, merged)
    return rolling.completed(func, find_loop(func, merged), extent), merged


def later_read(func: PrimFunc, name: str, buffers: Iterable[str]) -> tuple[str, str] | None:
    """One of the buffers that may be read in a loop, in a later iteration of it or of a loop around than that which stores the
    element, and the name of that loop; None if there is none."""
    loop, path = loop_at(func, name)
    around = loops_in(path)
    used = [x for unit in units(loop.body) for buffer in buffers for x in unit.by_buffer.get(buffer, ())]
    pairs = [(x, y) for x in used for y in used if x.buffer == y.buffer and y.is_store and not x.is_store]
    instances = Instances([], around, [*loops_below(loop.body)], [a.indices for pair in pairs for a in pair])
    for level, outer in enumerate(around):
        relation = {x.name: SAME if n < level else GREATER if n == level else ANY for n, x in enumerate(around)}
        for x, y in pairs:
            if not instances.distinct(x.indices, y.indices, relation):
                return x.buffer.name, outer.name
    return None


class _Rolling:
    """The blocks of a rolling update: what depends on the maximum, and how it changes."""

    def __init__(self, maximum: Block, inside: dict[str, For], names: Names):
        store = maximum.body
        assert type(store) is Store
        self.maximum, self.inside, self.names = maximum, inside, names
        self.top = Load(store.buffer, store.indices)
        dtype = self.top.dtype if dtypes.nbytes(self.top.dtype) > 2 else "float32"
        shape, scope = store.buffer.shape, store.buffer.scope
        self.shift, self.correction = (
            Buffer(names.buffer(f"{store.buffer.name}_{what}"), shape, dtype, scope) for what in ("shift", "correction")
        )
        self.scaled: dict[str, tuple[tuple[Expr, ...], Scaled]] = {}  # buffers: the indices stored to, and the value
        self.sums: dict[str, Row] = {}  # reductions over the loop, and the rows of their results
        self.quotients: dict[str, Load] = {}  # sums that are divided after the loop
        self.made: set[str] = set()  # the buffers of the reductions
        found = accumulation(maximum)
        assert found is not None
        self.values = [(maximum.name, found.added)]  # the x of max(m, x) and of exp(x - m), with the blocks that compute these
        self.changes: list[tuple[Stmt, Stmt]] = []

    def visit(self, b: Block) -> None:
        """Learn a block that comes after the maximum."""
        known = {self.top.buffer.name, *self.scaled, *self.made}
        if not loaded_names(b.body) & known - ({self.top.buffer.name, *self.made} if b.name not in self.inside else set()):
            return
        store, found = b.body, accumulation(b)
        if (
            b.name in self.inside
            and type(store) is Store
            and (b.init is None or (found and found.op == "+" and found.start.is_zero))
        ):
            term = store.value if found is None else found.added
            value = self.proportional(term)
            if value is not None and variables(*value.row) <= {it.var.name for it in b.spatial}:
                self.keep(b, store, term, value)
                return
        raise ScheduleError(
            f"`{b.name}` reads {listing(sorted(loaded_names(b.body) & known))}, and is not proportional to exponentials of "
            f"differences from `{self.top.buffer.name}`",
            (b, "the block"), (self.maximum, "the maximum"),
            hint="merge the loops of all blocks that read the exponentials; a sum is only divided by",
        )  # fmt: skip

    def keep(self, b: Block, store: Store, term: Expr, value: Scaled) -> None:
        self.values += [
            (b.name, x.a) for x in walk(term) if type(x) is Binary and x.op == "-" and self.reads_maximum(x.b) is not None
        ]
        new = value.value if store.value == term else store.value.with_(**{"a" if store.value.a == term else "b": value.value})  # type: ignore[attr-defined]
        self.changes.append((b, b.with_(body=store.with_(value=new), reads=None)))
        if self.inside[b.name].name in axis_loops(b, Axis.REDUCE):
            self.sums[b.name] = value.row
            self.made.add(store.buffer.name)
            if value.divisor is not None:
                self.quotients[b.name] = value.divisor
        else:
            self.scaled[store.buffer.name] = store.indices, value

    def proportional(self, e: Expr) -> Scaled | None:
        """A value that is proportional to exp(-m), in its new form; None for others."""
        match e:
            case Call("exp", (Binary("-", a, b),)) if self.free(a) and (row := self.reads_maximum(b)) is not None:
                return Scaled(e.with_(args=(Binary("-", a, Load(self.shift, row)),)), row)
            case Load(buffer, indices) if buffer.name in self.scaled:
                axes, known = self.scaled[buffer.name]
                if len({*axes}) < len(axes) or not all(type(x) is Var for x in axes):
                    return None
                here = {x.name: i for x, i in zip(axes, indices, strict=True)}  # type: ignore[attr-defined]
                divisor = None if known.divisor is None else substitute(known.divisor, here)
                return Scaled(e, tuple(substitute(i, here) for i in known.row), divisor)  # type: ignore[arg-type]
            case Cast(_, a) if dtypes.is_float(e.dtype):
                return self.within(e, "value", a)
            case Unary("neg", a):
                return self.within(e, "a", a)
            case Binary("/", a, Load(buffer, row) as b) if (
                buffer.name in self.made and (found := self.proportional(a)) is not None
            ):
                return Scaled(found.value, found.row, b) if found.divisor is None and row == found.row else None
            case Binary("*" | "/", a, b) if self.free(b):
                return self.within(e, "a", a)
            case Binary("*", a, b) if self.free(a):
                return self.within(e, "b", b)
            case Select(c, a, Const() as b) if b.is_zero and self.free(c):
                return self.within(e, "true_value", a)
        return None

    def within(self, e: Expr, part: str, inner: Expr) -> Scaled | None:
        found = self.proportional(inner)
        return None if found is None else Scaled(e.with_(**{part: found.value}), found.row, found.divisor)

    def free(self, e: Expr) -> bool:
        """True where an expression depends on nothing that changes with the maximum."""
        return not loaded_names(e) & {self.top.buffer.name, *self.scaled, *self.made}

    def reads_maximum(self, e: Expr) -> Row | None:
        e = e.value if type(e) is Cast else e
        return e.indices if type(e) is Load and e.buffer == self.top.buffer else None

    def need_same_iteration(self, func: PrimFunc, name: str) -> None:
        """Refuse a value that is read in another iteration than that which made it, when the maximum was another."""
        if (found := later_read(func, name, self.scaled)) is not None:
            raise ScheduleError(
                f"`{found[0]}` may be read in a later iteration of `{found[1]}` than that which makes it",
                (find_loop(func, name), "the merged loop"),
                hint="the maximum has grown by then; read it where it is made",
            )

    def completed(self, func: PrimFunc, loop: For, extent: Expr) -> PrimFunc:
        """The merged loop of so many iterations with its corrections."""
        self.names = Names.of(func)
        statements: list[Stmt] = []
        for s in statements_of(loop.body):
            after: list[Stmt] = []
            for b in blocks_below(s):
                old = b.name.removesuffix("_update")
                if old == self.maximum.name:
                    shift, correction = (Load(x, self.top.indices) for x in (self.shift, self.correction))
                    top: Expr = self.top if self.top.dtype == shift.dtype else Cast(shift.dtype, self.top)
                    least = top.equal(Const(-math.inf, top.dtype))
                    statements.append(self.nest(func, loop, b, "old", correction, top))
                    after.append(self.nest(func, loop, b, "shift", shift, Select(least, Const(0.0, top.dtype), top)))
                    value = Call("exp", (Binary("-", correction, shift),), top.dtype)
                    after.append(self.nest(func, loop, b, "correction", correction, value))
                elif old in self.sums:
                    place = Load(b.body.buffer, b.body.indices)  # type: ignore[attr-defined]
                    factor = Load(self.correction, self.sums[old])
                    statements.append(self.nest(func, loop, b, "rescaled", place, Binary("*", place, factor), True))
            statements += [s, *after]
        divided = []
        for name, divisor in self.quotients.items():
            b = find_block(func, f"{name}_update")
            place = Load(b.body.buffer, b.body.indices)  # type: ignore[attr-defined]
            divided.append(self.nest(func, loop, b, "quotient", place, Binary("/", place, divisor)))
        return edited(func, [(loop, seq(loop.with_(extent=extent, body=seq(*statements)), *divided))])

    def nest(self, func: PrimFunc, loop: For, b: Block, what: str, place: Load, value: Expr, repeated: bool = False) -> Stmt:
        """The loops of the spatial axes of a block around a store, in each iteration of the loop if `repeated`."""
        _, leaf = locate(func, b.name)
        start = [x.name for x in leaf.loops].index(loop.name) + 1
        inner = [x for x in leaf.loops[start:] if x.name in axis_loops(b, Axis.SPATIAL)]
        reducing = axis_loops(b, Axis.REDUCE)
        iters = list(b.spatial)
        if repeated:
            iters.append(Iter(Var(self.names.axis(f"v_{loop.name}"), loop.var.dtype), loop.extent, Axis.REDUCE, loop.var))
        bound = {it.var: it.binding for it in b.spatial}
        rows = [x for x in loads(value) if x.buffer.name in (self.shift.name, self.correction.name, *self.made)]
        limits = [substitute(i, bound) < d for x in rows for i, d in zip(x.indices, x.buffer.shape, strict=True)]
        conditions = [c for c in (*conjuncts(b.predicate), *limits) if not variables(c) & reducing]
        conditions = [c for c in dict.fromkeys(conditions) if not prove(c, ranges_of(leaf.loops))]
        name = self.names.block(f"{b.name.removesuffix('_update')}_{what}")
        body = Store(place.buffer, place.indices, value)
        return in_own_loops(Block(name, tuple(iters), body, predicate=conjunction(*conditions)), inner, self.names)
