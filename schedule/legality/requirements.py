"""Requirements that several primitives place on a block before they move it, copy its result, or decompose it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from tir.analysis.axis_conditions import axis_conditions
from tir.analysis.context import accesses
from tir.analysis.dependence import local_buffers
from tir.analysis.regions import accessed
from tir.arith.bounds import ranges_of
from tir.arith.intervals import Interval, Ranges
from tir.arith.prove import prove
from tir.arith.simplify import simplify
from tir.ir import TRUE, Axis, Block, Const, Expr, For, Iter, Kind, Region, Stmt, Store, Var, conjunction, conjuncts
from tir.traverse import axis_loops, loops_in, pure_reduction_loops, stores, substatements, substitute, variables

from ..error import ScheduleError
from ..primitive import KIND_WORDS, is_parameter
from .dataflow import BlockScope, Leaf, running_between, shared, shared_loops
from .privatisation import writes_all_reads


def need_complete(scope: BlockScope, leaf: Leaf, what: str) -> None:
    """Refuse a block that is neither data parallel nor a reduction with its init: its result depends on more than its inputs."""
    block = leaf.block
    for it in block.iters:
        if it.axis is Axis.OPAQUE:
            reason = f"`{block.name}` has the opaque axis `{it.var.name}`, so it cannot be {what}"
            raise ScheduleError(reason, (block, "opaque axis"), hint=in_any_order(it))
    itself = leaf.reads & leaf.writes - local_buffers(block)
    if itself and not (block.is_reduction and block.init is not None):
        name = sorted(itself)[0]
        decomposed = block.is_reduction and any(w.stmt is not block for w in scope.writers(name))
        hint = "do this before decompose_reduction" if decomposed else f"say with T.init() what `{name}` starts from"
        reason = f"`{block.name}` updates `{name}` without an init, so it cannot be {what}"
        raise ScheduleError(reason, (block, f"reads and writes {name}"), hint=hint)


def in_any_order(it: Iter) -> str:
    return f"if the order does not matter, declare `{it.var.name}` as T.axis.spatial, or T.axis.reduce if it adds up"


def need_whole_reduction(scope: BlockScope, leaf: Leaf, what: str) -> None:
    """Refuse a reduction that continues in other iterations of the enclosing block; `what` ("its copy is") is allocated there."""
    moving = {name for name, r in scope.ranges.items() if r != (0, 0)}
    for it in leaf.block.iters:
        beyond = sorted(variables(it.binding) & moving) if it.axis is Axis.REDUCE else []
        if scope.block is not None and beyond:
            raise ScheduleError(
                f"{leaf.quoted} goes on reducing over `{it.var.name}` in other iterations of `{scope.block.name}`, in which "
                f"{what} allocated",
                (scope.block, f"its `{beyond[0]}` drives the reduction"),
                (leaf.stmt, "reduces"),
                hint="do this before blockize",
            )


def need_read_later(readers: Iterable[Leaf], leaf: Leaf) -> None:
    """Refuse a block if one of its readers runs before it."""
    early = next((r for r in readers if r.order < leaf.order), None)
    if early is not None:
        name = min(early.reads & leaf.writes)
        raise ScheduleError(
            f"{early.quoted} reads `{name}` before {leaf.quoted} writes it",
            (early.stmt, "first"),
            (leaf.stmt, "then"),
            hint=f"let {early.quoted} read another buffer, as it needs the values of before",
        )


def need_only_writer(scope: BlockScope, leaf: Leaf, what: str, apart: Callable[[Leaf], bool] = lambda other: False) -> None:
    """Refuse a block if one of its output buffers has another writer, unless `apart` holds for that."""
    for name in sorted(leaf.writes):
        other = next((w for w in scope.writers(name) if w is not leaf and not apart(w)), None)
        if other is not None:
            decomposed = any(type(s) is Block and s.is_reduction and s.init is None for s in (leaf.stmt, other.stmt))
            raise ScheduleError(
                f"{other.quoted} writes `{name}` too, so {leaf.quoted} cannot be {what}",
                (leaf.stmt, f"writes {name}"),
                (other.stmt, f"writes {name}"),
                hint="do this before decompose_reduction" if decomposed else "let each of the two write a buffer of its own",
            )


def need_temporary(scope: BlockScope, leaf: Leaf, what: str) -> None:
    """Refuse a block that writes a parameter of the function, or a buffer used outside of the scope."""
    for name in sorted(leaf.writes):
        if name in scope.outputs:
            kind = "a parameter of the function" if is_parameter(scope.func, name) else "used outside of this block"
            raise ScheduleError(
                f"`{name}` is {kind}, so {leaf.quoted} cannot be {what}",
                (leaf.stmt, f"writes {name}"),
                hint=f"cache_write({leaf.name!r}, {name!r}, 'global') first: {leaf.quoted} then writes a temporary",
            )


def need_own_temporary(scope: BlockScope, leaf: Leaf, what: str, apart: Callable[[Leaf], bool] = lambda other: False) -> None:
    """Refuse a block unless it is complete and writes temporaries without other writers, but for those that `apart` allows."""
    need_complete(scope, leaf, what)
    need_temporary(scope, leaf, what)
    need_only_writer(scope, leaf, what, apart)


def need_unchanged_inputs(scope: BlockScope, leaf: Leaf, targets: Iterable[tuple[Stmt, ...]]) -> None:
    """Refuse if a block could read other values at a later place than where it stands.

    Theorem: the block reads the same values at each of `targets` (paths from the root of the scope) under these conditions.
    Of the statements that run between the two places, each writer of an input stands before the block. It writes only final
    values: in every iteration of the shared loops the same value to an element. If the input had values before, as a parameter
    has, the elements must also have been written before the block reads them. No input is made inside of a parallel loop that
    the block leaves: each iteration of that may have its own. Values need not be final where the block stays in all loops around
    it and the writer, and what it writes is read in the same iteration of these alone.
    """
    for target in targets:
        _need_shared_inputs(scope, leaf, shared(leaf.above, target))
        for other in running_between(scope, leaf.path, target):
            if other is not leaf and other.writes & leaf.inputs and not _in_one_iteration(scope, leaf, other, target):
                need_final_inputs(scope, leaf, other)


def _in_one_iteration(scope: BlockScope, leaf: Leaf, writer: Leaf, target: tuple[Stmt, ...]) -> bool:
    """True where the writer, the block at both places, and its readers run in this order in each iteration around all."""
    around = len(shared_loops(writer.above, leaf.above))
    if not around or writer.order > leaf.order or len(shared_loops(leaf.above, target)) < around:
        return False
    return all(writes_all_reads(scope, leaf, reader, name) for name in leaf.writes for reader in scope.readers(name))


def _need_shared_inputs(scope: BlockScope, leaf: Leaf, common: tuple[Stmt, ...]) -> None:
    """Refuse to move a block out of a parallel loop (one not on the path `common`) that computes its inputs."""
    for loop in leaf.loops:
        if loop.kind not in (Kind.PARALLEL, Kind.THREAD) or any(loop is s for s in common):
            continue
        inside = next((x for x in scope.leaves_under(loop) if x is not leaf and x.writes & leaf.inputs), None)
        if inside is not None:
            raise ScheduleError(
                f"{leaf.quoted} cannot leave `{loop.name}`, in which {inside.quoted} makes what it reads",
                (loop, KIND_WORDS[loop.kind]),
                (inside.stmt, f"writes {min(inside.writes & leaf.inputs)}"),
                (leaf.stmt, "the block"),
                hint="move blocks before loops are marked",
            )


def need_final_inputs(scope: BlockScope, leaf: Leaf, other: Leaf, hint: str | None = None) -> None:
    """Refuse unless `other` writes the block's inputs before it, and writes final values."""
    changed = sorted(other.writes & leaf.inputs)
    if other.order > leaf.order:
        raise ScheduleError(
            f"{other.quoted} writes `{changed[0]}`, which {leaf.quoted} reads, before the new place",
            (leaf.stmt, f"reads {changed[0]}"),
            (other.stmt, f"writes {changed[0]}"),
            hint=f"let {other.quoted} come after all that reads what {leaf.quoted} writes, or write another buffer",
        )
    loops = shared_loops(other.above, leaf.above)
    if not loops:
        return
    early = next((name for name in changed if name in scope.outputs and not writes_all_reads(scope, other, leaf, name)), None)
    if early is not None:
        reason = f"{leaf.quoted} may read elements of `{early}` that {other.quoted} writes only later"
    elif not _final(scope, other, {loop.name for loop in loops}, {changed[0]}):
        early = changed[0]
        reason = f"{leaf.quoted} may read `{early}` before {other.quoted} has finished it"
    else:
        return
    raise ScheduleError(
        reason,
        (loops[-1], "the loop around both"),
        (other.stmt, f"writes {early}"),
        (leaf.stmt, f"reads {early}"),
        hint=hint or f"compute {other.quoted} in loops of its own, before {leaf.quoted}",
    )


def _final(scope: BlockScope, writer: Leaf, loops: set[str], seen: set[str]) -> bool:
    """True where a block writes the same value to an element in every iteration of `loops`."""
    block = writer.stmt
    if type(block) is not Block:
        return False
    for it in block.iters:
        if it.axis is Axis.OPAQUE or (it.axis is Axis.REDUCE and variables(it.binding) & loops):
            return False
    if block.init is None and writer.reads & writer.writes:
        # The update of a decomposed reduction: an init must write what it reads, in the same iterations.
        for name in writer.reads & writer.writes:
            earlier = [w for w in scope.writers(name) if w.order < writer.order and loops <= {loop.name for loop in w.loops}]
            if not any(writes_all_reads(scope, w, writer, name) for w in earlier):
                return False
    for name in writer.inputs - seen:
        for other in scope.writers(name):
            inside = {loop.name for loop in shared_loops(other.above, writer.above)} & loops
            if inside and (other.order > writer.order or not _final(scope, other, loops, seen | {name})):
                return False
    return True


def conditions_on_axes(scope: BlockScope, leaf: Leaf) -> tuple[list[Expr], list[Expr]]:
    """The conditions of a block's predicate beyond its domain: those over its axes, and those that only loops express."""
    block = leaf.block
    ranges = ranges_of(leaf.above, scope.ranges)
    facts = [f for it in block.iters for f in it.domain]
    sizes = {p.name for p in scope.func.sizes}
    said: list[Expr] = []
    others = []
    for c in conjuncts(block.predicate):
        if not prove(c, ranges, facts):
            found = axis_conditions(block.with_(predicate=c), ranges, sizes)
            said += found
            others += [] if found else [c]
    return said, others


def need_safe_domain(scope: BlockScope, leaf: Leaf, conditions: Sequence[Expr], what: str) -> None:
    """Refuse a block that needs `conditions` to stay in bounds, or to reduce over no more than it does. Others may be dropped."""
    block = leaf.block
    reducing = axis_loops(block, Axis.REDUCE)
    more = any(variables(c) & reducing for c in conditions)
    if not conditions or (not more and in_bounds(block, ranges_of([block], scope.ranges))):
        return
    fault = "reduce over more than it does" if more else "access elements that do not exist"
    raise ScheduleError(
        f"`{block.name}` runs only where `{conjunction(*conditions)}`; {what}, it would run at all points of its axes, and could "
        f"then {fault}",
        (block, "runs under a condition"),
        hint="give its axes extents that need no condition, or let its formula choose (T.if_then_else)",
    )


def in_bounds(block: Block, ranges: Mapping[str, Interval]) -> bool:
    """True where every access in a block is provably within its buffer at all points of the block's domain."""
    parts = substatements(block)
    domain = tuple(it.var < it.extent for it in block.iters if type(it.extent) is not Const)
    return all(
        prove(i >= 0, ranges, around.selected) and prove(i < dim, ranges, (*around.selected, *domain))
        for part in parts
        for n, around in accesses(part)
        for i, dim in zip(n.indices, n.buffer.shape, strict=True)
    )


def single_store(block: Block) -> Store:
    """The only statement of a block, a store; refuses any other block."""
    if type(block.body) is not Store or block.init is not None:
        found = stores(block)
        raise ScheduleError(
            f"`{block.name}` is more than a single store",
            (block.init or found[-1] if found else block, "not the only statement"),
            hint="its formula is needed: it must be one store, without T.init()",
        )
    return block.body


def own_axes(block: Block, store: Store) -> list[str | None]:
    """The axis that indexes each dimension of a store (None: the constant 0); refuses any other index.

    Each axis indexes one dimension, axes of extent 1 possibly none.
    """
    axes = {it.var.name: it for it in block.spatial}
    result: list[str | None] = []
    for index in store.indices:
        if type(index) is Var and index.name in axes and index.name not in result:
            result.append(index.name)
        elif type(index) is Const and index.value == 0:
            result.append(None)
        else:
            raise ScheduleError(
                f"`{block.name}` writes `{store.buffer.name}` at `{index}`, which is not an axis of its own",
                (store, "the store"),
                hint="it must write at X[i, j, ...], each index an axis of the block, or 0",
            )
    for name, it in axes.items():
        if name not in result and not it.extent.is_one:
            raise ScheduleError(
                f"the axis `{name}` of `{block.name}` does not index `{store.buffer.name}`, so the last of its iterations counts",
                (store, "the store"),
                hint=f"leave out the axis `{name}`, or make it a dimension of `{store.buffer.name}`",
            )
    return result


def need_no_threads(reduction: Block, loops: Iterable[For], driving: set[str]) -> None:
    """Refuse to separate the init from a cross-thread reduction; `driving` are the loops that drive it."""
    for x in loops:
        if x.name in driving and x.kind is Kind.THREAD:
            reason = f"`{x.name}`, which drives the reduction, is bound to {x.thread}: threads that reduce together need the init"
            raise ScheduleError(reason, (x, "drives the reduction"), (reduction, "the block"), hint="do this before bind")


def need_loops_for_init(reduction: Block, loops: Iterable[For], reducing: set[str], placing: set[str]) -> None:
    """Refuse a loop that drives both reduction and spatial axes: the init, over the latter, would have no loop of its own.

    Refuse one that drives an opaque axis, too: all of its inits would run before its updates."""
    ordered = axis_loops(reduction, Axis.OPAQUE)
    for x in loops:
        if x.name in reducing and x.name in placing:
            raise drives_both(reduction, x, "decompose_reduction", ", so the init has no loop of its own")
        if x.name in ordered and not x.extent.is_one:
            raise ScheduleError(
                f"`{x.name}` drives an opaque axis of `{reduction.name}`, and all of its inits would run before its updates",
                (x, "drives an opaque axis"),
                (reduction, "the block"),
                hint=f"choose a loop inside of `{x.name}`",
            )


def need_iterations(reduction: Block, loops: Iterable[For], ranges: Ranges, facts: Sequence[Expr]) -> None:
    """Refuse a loop that only reduces and may have no iterations: the init would then not run."""
    for x in loops:
        if x.name in pure_reduction_loops(reduction) and not prove(x.extent >= 1, ranges, facts):
            raise ScheduleError(
                f"`{x.name}`, which drives the reduction of `{reduction.name}`, may have no iterations, and the init would not "
                "run then",
                (x, f"runs over {x.extent}"),
                (reduction, "a reduction"),
                hint=f"decompose_reduction({reduction.name!r}, {x.name!r}) first",
            )


def need_start_at_0(reduction: Block, bindings: Mapping[str, Expr], zeros: Mapping[str, Expr], ranges: Ranges) -> None:
    """Refuse a reduction whose axes, by their `bindings`, are not all 0 in the first iteration of their loops (`zeros`)."""
    for it in reduction.reduction:
        start = simplify(substitute(bindings[it.var.name], zeros), ranges)
        if not start.is_zero:
            reason = f"the reduction axis `{it.var.name}` starts at `{start}`, where no init runs"
            raise ScheduleError(reason, (reduction, "the block"), hint=f"let `{it.var.name}` start at 0")


def drives_both(reduction: Block, loop: For, step: str, so: str = "") -> ScheduleError:
    """The refusal of a loop that drives both reduction and spatial axes of a block; the hint names `step`."""
    reason = f"`{loop.name}` drives the reduction and spatial axes of `{reduction.name}`{so}"
    return ScheduleError(reason, (loop, "drives both"), (reduction, "the block"), hint=f"{step} before the loops are fused")


def updated_reads(reduction: Block) -> tuple[Region, ...] | None:
    """The stated reads of a reduction without its init, which reads its outputs, too."""
    reads = reduction.reads
    if reads is None or reduction.writes is None:
        return reads
    return (*(r for r in reduction.writes if not any(o.buffer.name == r.buffer.name for o in reads)), *reads)


def need_late_readers(scope: BlockScope, leaf: Leaf, target: For) -> None:
    """Refuse if a statement under the loop could observe the earlier initialisation of the block's outputs."""
    for other in scope.leaves_under(target):
        if other is leaf:
            continue
        for name in sorted((other.reads | other.writes) & leaf.writes):
            late = other.order > leaf.order and name not in other.writes
            if late and name in scope.outputs:
                # The old contents of a parameter can be seen where something else is read than what has been computed.
                common = shared(leaf.path, other.path)
                around: list[Stmt] = [*loops_in(common)]
                free = {**scope.ranges, **ranges_of(around)}
                mine, theirs = (x.path[len(common)] for x in (leaf, other))
                late = accessed(theirs, free, (name,))[0].get(name) == accessed(mine, free, (name,))[1].get(name)
            if not late:
                raise ScheduleError(
                    f"{other.quoted} uses `{name}` under `{target.name}`, and could see that it is initialised earlier",
                    (target, "the loop"),
                    (other.stmt, f"uses {name}"),
                    (leaf.stmt, f"writes {name}"),
                    hint=f"choose a loop that is not around {other.quoted}",
                )


def own_loops(leaf: Leaf) -> tuple[For, ...]:
    """The loops around a block; refuses unless they hold nothing else and each is one axis over its whole extent."""
    block = leaf.block
    loops = leaf.exclusive_loops
    if loops != leaf.loops:
        outer = leaf.loops[0]
        raise ScheduleError(
            f"`{block.name}` is not alone in `{outer.name}`",
            (outer, "the loop"),
            (block, "the block"),
            hint="do this before anything is moved there (compute_at, reverse_compute_at)",
        )
    driven = {it.binding.name: it for it in block.iters if type(it.binding) is Var}
    for loop in loops:
        if loop.kind is not Kind.SERIAL or loop.annotations:
            word = "annotated" if loop.kind is Kind.SERIAL else KIND_WORDS[loop.kind]
            raise ScheduleError(f"`{loop.name}` is {word}, which would be lost", (loop, word), hint="mark the new loops instead")
        it = driven.get(loop.name)
        if it is None or it.extent != loop.extent or sum(loop.name in variables(x.binding) for x in block.iters) > 1:
            reason = f"`{loop.name}` is not the loop of one iteration variable of `{block.name}` over its whole extent"
            raise ScheduleError(reason, (loop, "the loop"), (block, "the block"), hint="do this before split, fuse and tile")
    for it in block.iters:
        if it.axis is Axis.OPAQUE:
            raise ScheduleError(
                f"`{it.var.name}` of `{block.name}` is an opaque axis", (block, "opaque axis"), hint=in_any_order(it)
            )
        if not it.extent.is_one and variables(it.binding).isdisjoint(x.name for x in loops):
            raise ScheduleError(
                f"`{it.var.name}` of `{block.name}` has no loop of its own", (block, "the block"), hint="do this before fuse"
            )
    if block.predicate != TRUE:
        reason = f"`{block.name}` runs only where `{block.predicate}`"
        raise ScheduleError(reason, (block, "guarded"), hint="do this before split by a factor that does not divide")
    return loops
