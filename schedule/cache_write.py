"""cache_write: a buffer is written through a copy of it."""

from __future__ import annotations

from tir.ir import Axis, Block, Buffer, Let, PrimFunc, Seq, Stmt, Store
from tir.traverse import replace_buffers, stores, walk_stmts

from .cache_read import copy_block, need_scope
from .dataflow import (
    Insertion,
    Leaf,
    Names,
    Scope,
    buffer_of,
    edited,
    locate,
    need_complete,
    need_only_writer,
    parts,
    shared,
    with_buffer,
)
from .error import ScheduleError, listing, nearest
from .placement import laid_out, loops_and_ranges
from .primitive import primitive
from .private import holds
from .window import Unproved, Window, affine_index, shifted, windows


@primitive
def cache_write(
    func: PrimFunc, block: str, write_buffer_index: int | str, storage_scope: str, consumer_blocks: list[str] | None = None
) -> tuple[PrimFunc, str]:
    """Write a buffer through a copy in another memory; returns the name of the copying block.

    The buffer is given by its number among those that `block` writes, or by name. Readers go on reading the buffer, except
    `consumer_blocks`, which read the copy. Copy and block are named after the buffer and the scope: `C_local`.

    Rewrite   S: C[i] = f(i)
           => S: C_local[i] = f(i)
              for ax0 in range(N): C[ax0] = C_local[ax0]
              The copying block stands after the nest of `block`; inside loops shared with readers of C it copies the part
              that is finished in their iteration.
    Legal     if the block is data parallel or a reduction with its init, alone in writing C, and what is copied is all
              written: C is a temporary copied as a whole, or the block runs over its whole domain and each of its axes
              indexes a dimension of C. What `consumer_blocks` read of a C that had values before has been written by then.
    Example   matmul: s.cache_write("C", 0, "local")
    """
    scope, leaf = locate(func, block)
    memory = need_scope(storage_scope)
    producer: Block = leaf.stmt  # type: ignore[assignment]
    target = buffer_of(producer, write_buffer_index, written=True)
    need_complete(scope, leaf, "given a copy to write")
    need_only_writer(scope, leaf, "given a copy to write")
    readers = [r for r in scope.readers(target.name) if r is not leaf]
    early = next((r for r in readers if r.order < leaf.order), None)
    if early is not None:
        raise ScheduleError(
            f"{early.quoted} reads `{target.name}` before `{block}` writes it", (early.stmt, "first"), (producer, "then")
        )
    known = {r.name: r for r in readers if type(r.stmt) is Block}
    for w in consumer_blocks or ():
        if w not in known:
            raise ScheduleError(
                f"`{w}` is not a block that reads `{target.name}`; these are {listing(known)}", hint=nearest(w, known)
            )
    moved = [known[w] for w in dict.fromkeys(consumer_blocks or ())]
    for r in moved:
        if target.name in scope.outputs and not holds(scope, leaf, r, target.name):
            raise ScheduleError(
                f"{r.quoted} may read elements of `{target.name}` that `{block}` has not written by then, and the copy lacks",
                (producer, f"writes {target.name}"),
                (r.stmt, f"reads {target.name}"),
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
    found = finished(scope, leaf, target, copying, loops)
    placed = laid_out(copying, found, ranges, names, exact=True)
    changes: list[tuple[Stmt, Stmt | None]] = [(x.stmt, replace_buffers(x.stmt, {target.name: copy})) for x in (leaf, *moved)]  # type: ignore[misc]
    return with_buffer(edited(func, changes, Insertion(body, position, placed)), scope, copy), copying.name


def finished(scope: Scope, leaf: Leaf, target: Buffer, copying: Block, loops: list) -> dict[str, Window]:
    """The windows of the copying block's axes that are written in an iteration of `loops`; refuses where they are not exact."""
    block: Block = leaf.stmt  # type: ignore[assignment]
    try:
        share = windows(block, loops, [x for x in leaf.loops if not any(x is o for o in loops)])
        dims = _dimensions(block, target)
    except Unproved as reason:
        # A buffer of its own is copied as a whole; of one from outside of a block, other parts may be those of other instances.
        own = scope.block is None or any(b.name == target.name for b in scope.block.allocs)
        if not loops and own and target.name not in scope.outputs:
            return {}
        where = f" in an iteration of `{loops[-1].name}`" if loops else ""
        raise ScheduleError(
            f"it cannot be shown which part of `{target.name}` is written by `{block.name}`{where}: {reason}",
            *([(loops[-1], "the loop")] if loops else []),
            (block, f"writes {target.name}"),
        ) from None
    result: dict[str, Window] = {}
    for it, (v, offset) in zip(copying.iters, dims, strict=True):
        window = share[v]
        result[it.var.name] = Window(shifted(window.start, offset), window.extent, window.limits)
    return result


def _dimensions(block: Block, target: Buffer) -> list[tuple[str, int]]:
    """For each dimension the axis that indexes it, with its offset; raises Unproved unless each axis indexes one."""
    axes = [it.var.name for it in block.iters if it.axis is Axis.SPATIAL]
    found = None
    for s in stores(block):
        if s.buffer.name == target.name:
            dims = [affine_index(i, axes) for i in s.indices]
            if None in dims or sorted(d[0] for d in dims if d) != sorted(axes):
                raise Unproved("its axes are not those of the buffer")
            if found is not None and dims != found:
                raise Unproved("it writes at several places")
            found = dims
    if found is None or any(not isinstance(s, (Store, Seq, Let)) for s in walk_stmts(block.body)):
        raise Unproved("it may not reach its store")
    return found  # type: ignore[return-value]
