"""fuse_reduction_epilogue: the addend of a reduction's result becomes the value that the reduction starts from."""

from __future__ import annotations

from functools import partial, reduce

from tir.arith.bounds import ranges_of
from tir.arith.simplify import simplify
from tir.ir import Axis, Binary, Block, Const, Expr, Load, PrimFunc, Stmt, Store, Unary, Var
from tir.traverse import loads, substitute

from ...error import Mark, ScheduleError
from ...legality.axis_windows import windows
from ...legality.dataflow import BlockScope, Leaf, locate, running_between
from ...legality.iter_map import proving
from ...legality.reducer import Accumulation, accumulation
from ...legality.requirements import need_complete, need_own_temporary, own_axes, single_store
from ...primitive import BlockName, primitive
from ...rewriting.edits import edited, with_accesses, without_buffers

_IDENTITIES = {"+": 0, "*": 1}


@primitive
def fuse_reduction_epilogue(func: PrimFunc, reduction_block: BlockName, epilogue_block: BlockName) -> tuple[PrimFunc, None]:
    """Move an epilogue, which combines the result of a reduction with a value by its operation, into the init.

    The reduction then accumulates in the output of the epilogue; the epilogue and the buffer between the two are removed.
    Floating results differ by rounding.

    Rewrite   for i: for k: X[i] = X[i] + f(i, k)         # from 0
              for i: D[i] = X[i] + b(i)
           => for i: for k: D[i] = D[i] + f(i, k)         # from b(i)
    Legal     if the reduction has its init, and the epilogue, after it in the same enclosing block, is a single store at its own
              axes. It applies the operation of the reduction to each element of the result once, over its whole domain, in the
              same dtype. The operation is +, *, min, max, and, or; for + also -. The reduction alone writes its buffer, a
              temporary, at its own axes, and only the epilogue reads it. The reduction does not read the output of the epilogue.
              Between the two (in a loop around both: anywhere in it) nothing else writes inputs of the epilogue, or uses its
              output.
    Example   matmul_add: s.fuse_reduction_epilogue("C", "D")
    """
    scope, first = locate(func, reduction_block)
    other, last = locate(func, epilogue_block)
    reduction = first.block
    epilogue = last.block
    marks = ((reduction, "the reduction"), (epilogue, "the epilogue"))
    if other.root is not scope.root:
        raise _refusal(f"`{reduction_block}` and `{epilogue_block}` are not inside the same block", epilogue_block, *marks)
    last = scope.leaf(epilogue)
    accumulated = _accumulation(reduction)
    what = "fused with an epilogue"
    need_own_temporary(scope, first, what)
    result = accumulated.store.buffer
    store = single_store(epilogue)
    need_complete(scope, last, "fused with a reduction")
    reader = next((r for r in scope.readers(result.name) if r is not first and r is not last), None)
    if reader is not None:
        raise _refusal(f"{reader.quoted} reads `{result.name}` too", epilogue_block, (reader.stmt, f"reads {result.name}"))
    if result.name not in last.reads or last.order < first.order:
        hint = "name the block that reduces first, then one after it that reads its result"
        raise ScheduleError(f"`{epilogue_block}` does not read the result of `{reduction_block}`", *marks, hint=hint)
    output = store.buffer
    if output.dtype != result.dtype:
        raise _refusal(f"`{output.name}` holds {output.dtype}, and `{result.name}` {result.dtype}", epilogue_block, *marks)
    rest, place = _combined_with(epilogue, store.value, result.name, accumulated.op)
    own = own_axes(reduction, accumulated.store)
    axes = _epilogue_axes(reduction, epilogue, own, place)
    own_axes(epilogue, store)
    _need_whole_domain(epilogue, last)
    _need_nothing_between(scope, first, last, output.name)

    combined = [substitute(e, axes) for e in rest]
    neutral = type(accumulated.start) is Const and accumulated.start.value == _IDENTITIES.get(accumulated.op)
    parts = combined if neutral and combined else [accumulated.start, *combined]
    into = tuple(simplify(substitute(i, axes), ranges_of([reduction])) for i in store.indices)

    body = with_accesses(reduction.body, {result.name: (output, lambda _: into)})
    init = Store(output, into, reduce(partial(Binary, accumulated.op), parts))
    changes: list[tuple[Stmt, Stmt | None]] = [
        (reduction, reduction.with_(body=body, init=init, reads=None, writes=None)),
        (epilogue, None),
    ]
    return without_buffers(edited(func, changes), [result.name]), None


def _accumulation(block: Block) -> Accumulation:
    """The accumulation of a reduction, from its inputs alone; refuses any other block."""
    found = accumulation(block)
    if found is not None and block.is_reduction and not _uses(found.added, found.store.buffer.name) and not loads(found.start):
        return found
    raise ScheduleError(
        f"`{block.name}` is not a reduction by +, *, min, max, and, or, with its init",
        (block, "the block"),
        hint="do this before decompose_reduction" if block.is_reduction else "name the block that reduces first",
    )


def _refusal(reason: str, epilogue: str, *marks: Mark) -> ScheduleError:
    """The refusal of two blocks, with the hint to run one right after the other."""
    return ScheduleError(reason, *marks, hint=f"reverse_compute_at({epilogue!r}, ...) runs it right after the reduction")


def _combined_with(block: Block, value: Expr, name: str, op: str) -> tuple[list[Expr], tuple[Expr, ...]]:
    """The values that an operation combines with an element of a buffer, and the indices of that element."""
    rest: list[Expr] = []
    while True:
        match value:
            case Load(buffer, indices) if buffer.name == name:
                return rest, indices
            case Binary(found, a, b) if found == op and not _uses(b, name):
                rest.insert(0, b)
                value = a
            case Binary(found, a, b) if found == op and not _uses(a, name):
                rest.insert(0, a)
                value = b
            case Binary("-", a, b) if op == "+" and not _uses(b, name):
                rest.insert(0, Unary("neg", b))
                value = a
            case _:
                reason = f"`{block.name}` does not just combine `{name}` with something by `{op}`, as the reduction does"
                raise _refusal(reason, block.name, (block, "the epilogue"))


def _uses(value: Expr, name: str) -> bool:
    return any(n.buffer.name == name for n in loads(value))


def _epilogue_axes(reduction: Block, epilogue: Block, own: list[str | None], place: tuple[Expr, ...]) -> dict[str, Expr]:
    """The axis of the reduction for each axis of the epilogue."""
    written = {it.var.name: it for it in reduction.iters}
    read = {it.var.name: it for it in epilogue.iters}
    result: dict[str, Expr] = {}
    for axis, index in zip(own, place, strict=True):
        if axis is None:
            continue
        mine = written[axis]
        if type(index) is not Var or index.name not in read or index.name in result or read[index.name].extent != mine.extent:
            reason = f"`{epilogue.name}` does not read each element of the result of `{reduction.name}` once, at `{index}`"
            raise _refusal(reason, epilogue.name, (reduction, "the reduction"), (epilogue, "the epilogue"))
        result[index.name] = mine.var
    for it in epilogue.iters:
        if it.var.name not in result:
            if not it.extent.is_one:
                reason = f"`{epilogue.name}` uses each result for several values of `{it.var.name}`"
                raise _refusal(reason, epilogue.name, (epilogue, "the epilogue"))
            result[it.var.name] = Const(0, it.var.dtype)
    return result


def _need_whole_domain(epilogue: Block, leaf: Leaf) -> None:
    """Refuse an epilogue that may skip a part of its domain."""
    if any(it.axis is not Axis.SPATIAL for it in epilogue.iters):
        raise _refusal(f"`{epilogue.name}` reduces, too", epilogue.name, (epilogue, "the epilogue"))
    with proving(f"that `{epilogue.name}` runs over its whole domain", (epilogue, "the epilogue")):
        windows(epilogue, (), leaf.loops)


def _need_nothing_between(scope: BlockScope, first: Leaf, last: Leaf, output: str) -> None:
    """Refuse if a statement between the two blocks writes inputs of the epilogue, or uses its output."""
    if output in first.reads:
        raise _refusal(f"{first.quoted} reads `{output}`, which {last.quoted} writes", last.name, (first.stmt, f"reads {output}"))
    for leaf in running_between(scope, first.path, last.path):
        if leaf is first or leaf is last:
            continue
        changed = sorted(leaf.writes & last.inputs)
        if changed:
            raise ScheduleError(
                f"{leaf.quoted} writes `{changed[0]}`, which {last.quoted} reads",
                (leaf.stmt, f"writes {changed[0]}"),
                (last.stmt, f"reads {changed[0]}"),
                hint=f"move {leaf.quoted} before {first.quoted} first",
            )
        if output in leaf.reads | leaf.writes:
            raise ScheduleError(
                f"{leaf.quoted} uses `{output}`, which {last.quoted} writes",
                (leaf.stmt, f"uses {output}"),
                (last.stmt, f"writes {output}"),
                hint=f"move {leaf.quoted} before {first.quoted} or after {last.quoted} first",
            )
