"""cache_write: a buffer is written through a copy of it."""

from __future__ import annotations

from collections.abc import Sequence

from tir.analysis.regions import iter_ranges
from tir.ir import Axis, Block, Buffer, Const, Expr, For, Let, Node, PrimFunc, Seq, Stmt, Store, conjunction, conjuncts
from tir.nearest import did_you_mean
from tir.simplify import prove
from tir.traverse import replace_buffers, rewrite, stores, substitute, variables, walk_stmts

from .cache_read import copy_block, need_scope, restricted, where_read
from .dataflow import Leaf, buffer_of, locate, shared
from .edits import Insertion, Names, edited, parts, with_buffer
from .error import ScheduleError, listing
from .placement import laid_out, loops_and_ranges
from .primitive import primitive
from .private import holds
from .requirements import need_complete, need_only_writer, need_read_later
from .window import Unproved, Window, affine_index, shifted, windows


@primitive
def cache_write(
    func: PrimFunc, block: str, write_buffer_index: int | str, storage_scope: str, consumer_blocks: list[str] | None = None
) -> tuple[PrimFunc, str]:
    """Write a buffer through a copy in another memory; returns the name of the copying block.

    The buffer is given by its number among those that `block` writes, from 0, or by name; the memory as for `set_scope`. Readers
    go on reading the buffer, except `consumer_blocks`, which read the copy. Copy and block are named after the buffer and the
    scope: `C_local`.

    Rewrite   S: C[i] = f(i)
           => S: C_local[i] = f(i)
              for ax0 in range(N): C[ax0] = C_local[ax0]
              The copying block stands after the nest of `block`; inside loops shared with readers of C it copies the part
              that is finished in their iteration, under the conditions that the block has on its axes.
    Legal     if the block is data parallel or a reduction with its init, alone in writing C, nothing reads C before it, and what
              is copied is all written: the block runs over its whole domain, or where conditions on its axes hold, and each of
              its spatial axes, plus a constant, indexes one dimension of C, in all stores the same; or C is a temporary of which
              no reader shares a loop with the block, copied as far as it is read. What `consumer_blocks`, each of which must read
              C, read of a C that had values before has been written by then.
    Example   matmul: s.cache_write("C", 0, "local")
    """
    scope, leaf = locate(func, block)
    memory = need_scope(storage_scope)
    producer: Block = leaf.stmt  # type: ignore[assignment]
    target = buffer_of(producer, write_buffer_index, written=True)
    need_complete(scope, leaf, "given a copy to write")
    need_only_writer(scope, leaf, "given a copy to write")
    readers = [r for r in scope.readers(target.name) if r is not leaf]
    need_read_later(readers, leaf)
    known = {r.name: r for r in readers if type(r.stmt) is Block}
    for w in consumer_blocks or ():
        if w not in known:
            raise ScheduleError(
                f"`{w}` is not a block that reads `{target.name}`; these are {listing(known)}", hint=did_you_mean(w, known)
            )
    moved = [known[w] for w in dict.fromkeys(consumer_blocks or ())]
    for r in moved:
        if target.name in scope.outputs and not holds(scope, leaf, r, target.name):
            raise ScheduleError(
                f"{r.quoted} may read elements of `{target.name}` that `{block}` has not written by then, and the copy lacks",
                (producer, f"writes {target.name}"),
                (r.stmt, f"reads {target.name}"),
                hint=f"leave `{r.name}` out of consumer_blocks: it then reads `{target.name}` itself",
            )
    remaining = [r for r in readers if r not in moved]

    # After the nest of the block, or within the loops that it shares with a reader: before the first of them in any case.
    common: tuple[Stmt, ...] = (scope.root,) if type(scope.root) is Seq else ()
    for r in remaining:
        common = max(common, shared((*leaf.above, producer), r.above), key=len)
    body = common[-1] if common else scope.root
    position = next(n for n, s in enumerate(parts(body)) if leaf.under(s)) + 1
    loops, ranges = loops_and_ranges(common, scope.ranges)

    names = Names.of(func)
    copy = Buffer(names.buffer(f"{target.name}_{memory}"), target.shape, target.dtype, storage_scope)
    copying = copy_block(names, copy.name, copy, target)
    # A buffer of its own is copied as far as it is read; of one from outside of a block, other parts may be those of other
    # instances.
    own = scope.block is None or any(b.name == target.name for b in scope.block.allocs)
    try:
        share, conditions = finished(leaf, target, copying, loops)
        placed = restricted(laid_out(copying, share, ranges, names, exact=True), conditions, ranges)
    except Unproved as reason:
        if loops or not own or not readers or target.name in scope.outputs:
            raise unknown_part(leaf, target, loops, reason) from None
        placed = where_read(laid_out(copying, {}, ranges, names), target.name, readers, (), ranges)
    changes: list[tuple[Stmt, Stmt | None]] = [(x.stmt, replace_buffers(x.stmt, {target.name: copy})) for x in (leaf, *moved)]  # type: ignore[misc]
    return with_buffer(edited(func, changes, Insertion(body, position, placed)), scope, copy), copying.name


def finished(leaf: Leaf, target: Buffer, copying: Block, loops: Sequence[For]) -> tuple[dict[str, Window], tuple[Expr, ...]]:
    """The windows of the copying block's axes that are written in an iteration of `loops`, and the conditions on these axes.

    Raises Unproved where windows and conditions are not exactly what is written.
    """
    block: Block = leaf.stmt  # type: ignore[assignment]
    dims = _dimensions(block, target)
    own = {v: it.var - offset if offset else it.var for it, (v, offset) in zip(copying.iters, dims, strict=True)}
    conditions, rest = _on_axes(block)
    share = windows(rest, loops, leaf.inside(loops))
    result: dict[str, Window] = {}
    for it, (v, offset) in zip(copying.iters, dims, strict=True):
        window = share[v]
        result[it.var.name] = Window(shifted(window.start, offset), window.extent, window.limits)
    return result, tuple(substitute(c, own) for c in conditions)


def unknown_part(leaf: Leaf, target: Buffer, loops: Sequence[For], reason: Unproved) -> ScheduleError:
    """The refusal to copy what a block writes of a buffer in an iteration of `loops`."""
    where = f" in an iteration of `{loops[-1].name}`" if loops else ""
    return reason.refusal(
        f"which part of `{target.name}` is written by {leaf.quoted}{where}",
        *([(loops[-1], "the loop")] if loops else []),
        (leaf.stmt, f"writes {target.name}"),
    )


def _on_axes(block: Block) -> tuple[list[Expr], Block]:
    """The conditions of a block on its spatial axes, over these axes, and the block without them.

    Those that only keep an axis within its domain, as those of splits do, stay with the block.
    """
    bindings: dict[Node, Expr] = {it.binding: it.var for it in block.iters if it.axis is Axis.SPATIAL and variables(it.binding)}
    axes = {v.name for v in bindings.values()}  # type: ignore[attr-defined]
    ranges = iter_ranges(block)
    conditions, rest = [], []
    for c in conjuncts(block.predicate):
        over_axes = rewrite(c, lambda n: bindings.get(n))
        if variables(over_axes) <= axes and not prove(over_axes, ranges):
            conditions.append(over_axes)
        else:
            rest.append(c)
    return conditions, block.with_(predicate=conjunction(*rest)) if conditions else block


def _dimensions(block: Block, target: Buffer) -> list[tuple[str, int]]:
    """For each dimension the axis that indexes it, with its offset; raises Unproved unless each axis indexes one."""
    axes = [it.var.name for it in block.iters if it.axis is Axis.SPATIAL]
    found = None
    for s in stores(block):
        if s.buffer.name == target.name:
            dims = [affine_index(i, axes) for i in s.indices]
            if None in dims or sorted(d[0] for d in dims if d) != sorted(axes):
                raise Unproved(
                    "its axes are not those of the buffer", f"each spatial axis must index one dimension of `{target.name}`"
                )
            if found is not None and dims != found:
                raise Unproved("it writes at several places", f"all its stores to `{target.name}` must write one place")
            found = dims
    if found is None:
        raise Unproved("it may not reach its store")
    need_stores(block)
    return found  # type: ignore[return-value]


def need_stores(block: Block) -> None:
    """Raise Unproved unless an instance of a block reaches all of its stores."""
    for s in walk_stmts(block.body):
        if not (isinstance(s, (Store, Seq, Let)) or (type(s) is For and type(s.extent) is Const and s.extent.value > 0)):
            raise Unproved("it may not reach its store")
