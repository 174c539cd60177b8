"""The function of the IR that computes tensors: a block for each formula."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..constants import with_constants
from ..ir.blocks import Axis, Block, Iter
from ..ir.buffers import Buffer, Load
from ..ir.expressions import TRUE, Expr, Select, Var, as_expr, cast
from ..ir.functions import PrimFunc
from ..ir.names import need_name
from ..ir.nodes import Node
from ..ir.statements import If, Let, Stmt, Store, nest, seq
from ..traverse import fresh, rewrite, substitute, walk
from .reductions import Reduce, parts_of
from .tensors import Compute, Operation, Placeholder, Scatter, Tensor, TensorRead
from .variables import ReduceAxis, as_tuple, axes_of


def create_prim_func(args: Sequence[Tensor | Var], name: str = "main", constants: Sequence[Tensor] = ()) -> PrimFunc:
    """The function that computes the tensors with a formula in `args` from the placeholders in `args`.

    `args` are the parameters in call order; symbolic sizes that are not listed follow, and a kernel's call may leave them out.
    Other computed tensors become allocated buffers. Every compute becomes one block, named like its tensor; loops are named like
    its axes, with a suffix where a name is taken. `constants` are inputs with the same elements at every call, such as weights:
    what depends on them alone, such as packed copies, is prepared once. Raises TypeError for arguments that are neither tensors
    nor sizes. Raises ValueError for an input that is missing or listed twice, a constant that is not listed, or no formula.
    """
    args = list(args) if isinstance(args, Sequence) else [args]
    for a in args:
        if not isinstance(a, (Tensor, Var)):
            raise TypeError(f"create_prim_func takes tensors and size variables, got {type(a).__name__}")
    if len({id(a) for a in args}) != len(args):
        raise ValueError("create_prim_func: a tensor is listed twice")
    order = _topological([a for a in args if isinstance(a, Tensor)])
    sizes = {v.name: v for t in order for d in t.extents for v in walk(d) if isinstance(v, Var)}
    args += [v for v in sizes.values() if v not in args]
    listed = {id(a) for a in args}
    for t in order:
        if isinstance(t.op, Placeholder) and id(t) not in listed:
            raise ValueError(f"create_prim_func: the input {t.name} is read but not in the argument list")

    taken: set[str] = {a.name for a in args if isinstance(a, Var)}
    buffers: Buffers = {}  # by operation, and which of its outputs
    tried: dict[str, int] = {}
    for t in [*(a for a in args if isinstance(a, Tensor)), *order]:
        if (t.op, t.output) not in buffers:
            buffers[t.op, t.output] = Buffer(fresh(taken, t.name, tried=tried), t.extents, t.dtype)
    iter_names = _IterNames()
    body: list[Stmt] = []
    for op in dict.fromkeys(t.op for t in order):
        if isinstance(op, Placeholder):
            continue
        for i, value in enumerate(op.values):  # outputs that are not listed need a buffer, too
            if (op, i) not in buffers:
                buffers[op, i] = Buffer(fresh(taken, f"{op.name}_v{i}"), op.shape, value.dtype)
        if isinstance(op, Compute):
            body.append(_block(op, buffers, taken, iter_names))
        else:
            axes = axes_of((f"i{n}" for n in range(len(op.shape))), op.shape)
            copy = Compute(op.name, axes, op.shape, (op.target[axes],))
            name = fresh(taken, f"{op.name}_copy")
            body.append(_block(copy, buffers | {(copy, 0): buffers[op, 0]}, taken, iter_names, name))
            body.append(_scatter(op, buffers, taken, iter_names))
    if not body:
        raise ValueError("create_prim_func: nothing to compute, every argument is a placeholder")
    params = tuple(a if isinstance(a, Var) else buffers[a.op, a.output] for a in args)
    allocs = tuple(b for b in buffers.values() if b not in params)
    func = PrimFunc(need_name(name), params, seq(*body), allocs, (("tir.noalias", True),))
    if not isinstance(constants, Sequence):
        raise TypeError(f"create_prim_func: constants is a list of inputs, got {constants!r}")
    if not constants:
        return func
    for t in constants:
        if not isinstance(t, Tensor) or id(t) not in listed:
            raise ValueError(f"create_prim_func: the constant {getattr(t, 'name', t)} is not in the argument list")
    return with_constants(func, [buffers[t.op, t.output].name for t in constants])


def _topological(outputs: list[Tensor]) -> list[Tensor]:
    """All tensors needed, producers first; iterative, so that long chains are no problem."""
    order: dict[int, Tensor] = {}
    entered: set[int] = set()
    stack = [(t, False) for t in reversed(outputs)]
    while stack:
        t, ready = stack.pop()
        if ready:
            order[id(t)] = t
        elif id(t) not in entered:
            entered.add(id(t))
            stack.append((t, True))
            stack.extend((r.tensor, False) for r in reversed(reads(t.op)))
    return list(order.values())


def reads(op: Operation) -> list[TensorRead]:
    if isinstance(op, Placeholder):
        return []
    parts = [part for v in op.values for part in parts_of(v)]
    if isinstance(op, Scatter):
        parts += [TensorRead(op.target, ()), *op.place, op.condition]
    return [n for part in parts for n in walk(part) if isinstance(n, TensorRead)]


Domain = list[tuple[Var, Expr, Axis]]
Buffers = dict[tuple[Operation, int], Buffer]  # by operation, and which of its outputs


class _IterNames(set[str]):
    """The names of the iteration variables of a function so far; `tried` is for the names of loops (see `fresh`)."""

    def __init__(self) -> None:
        self.tried: dict[str, int] = {}


def _iters(domain: Domain, taken: set[str], iter_names: _IterNames) -> tuple[list[Var], tuple[Iter, ...]]:
    """The loops over a domain, and the block's iteration variables, whose names may repeat between blocks."""
    loop_vars = []
    for v, _, _ in domain:
        loop_vars.append(Var(fresh(taken, v.name, iter_names, iter_names.tried), v.dtype))
    used: set[str] = set()
    iter_vars = [Var(fresh(used, f"v_{v.name}"), v.dtype) for v, _, _ in domain]
    clash = {v.name for v in iter_vars} & taken
    if clash:
        iter_vars = [Var(fresh(taken, v.name), v.dtype) for v in iter_vars]
    iter_names.update(v.name for v in iter_vars)
    rows = zip(iter_vars, domain, loop_vars, strict=True)
    return loop_vars, tuple(Iter(v, e, axis, lv) for v, (_, e, axis), lv in rows)


def _converter(domain: Domain, iters: Sequence[Iter], buffers: Buffers) -> Callable[[Expr], Expr]:
    """A function from expressions over tensors and a domain to expressions over buffers and the variables of a block."""
    to_block = {v.name: it.var for (v, _, _), it in zip(domain, iters, strict=True)}

    def visit(n: Node):
        if isinstance(n, TensorRead):
            return Load(buffers[n.tensor.op, n.tensor.output], n.indices)
        if isinstance(n, ReduceAxis):
            return n.value
        return None

    return lambda expr: rewrite(substitute(expr, to_block), visit)


def _block(op: Compute, buffers: Buffers, taken: set[str], iter_names: _IterNames, name: str | None = None) -> Stmt:
    outputs = [buffers[op, i] for i in range(len(op.values))]
    reduce = op.values[0] if isinstance(op.values[0], Reduce) else None
    axes = enumerate(zip(op.axes, op.shape, strict=True))
    domain = [(v, e, Axis.OPAQUE if n == op.ordered else Axis.SPATIAL) for n, (v, e) in axes]
    if reduce is not None:
        domain += [(a.var, a.extent, Axis.REDUCE) for a in reduce.axes]
    block_name = name or (outputs[0].name if len(outputs) == 1 else fresh(taken, op.name))
    loop_vars, iters = _iters(domain, taken, iter_names)
    convert = _converter(domain, iters, buffers)
    place = tuple(it.var for it in iters[: len(op.axes)])
    init = None
    if reduce is None:
        values = [convert(v) for v in op.values]
    else:
        old, new = tuple(Load(b, place) for b in outputs), tuple(map(convert, reduce.sources))
        combined = reduce.reducer.combine(*old, *new) if len(outputs) == 1 else reduce.reducer.combine(old, new)
        if len(as_tuple(combined)) != len(outputs):
            raise TypeError(f"{reduce.reducer.name}: fcombine gives {len(as_tuple(combined))} value(s) for {len(outputs)}")
        values = [cast(as_expr(v, b.dtype), b.dtype) for v, b in zip(as_tuple(combined), outputs, strict=True)]
        condition = convert(reduce.condition)
        if condition != TRUE:
            values = [Select(condition, v, o, lazy=True) for v, o in zip(values, old, strict=True)]
        init = seq(*(Store(b, place, i) for b, i in zip(outputs, reduce.identities, strict=True)))

    block = Block(block_name, iters, _simultaneous(outputs, place, values, taken), init, annotations=op.attrs)
    return nest(zip(loop_vars, (extent for _, extent, _ in domain), strict=True), block)


def _scatter(op: Scatter, buffers: Buffers, taken: set[str], iter_names: _IterNames) -> Stmt:
    """The stores of a scatter into the buffer that holds the copy."""
    axes = zip(op.axes, op.extents, strict=True)
    domain = [(v, e, Axis.SPATIAL if v in op.place else Axis.OPAQUE) for v, e in axes]
    loop_vars, iters = _iters(domain, taken, iter_names)
    convert, buffer = _converter(domain, iters, buffers), buffers[op, 0]
    store: Stmt = Store(buffer, tuple(map(convert, op.place)), convert(op.value))
    if op.condition != TRUE:
        store = If(convert(op.condition), store)
    return nest(zip(loop_vars, op.extents, strict=True), Block(buffer.name, iters, store))


def _simultaneous(outputs: list[Buffer], place: tuple[Expr, ...], values: list[Expr], taken: set[str]) -> Stmt:
    """Store all values as if at once: with several outputs each is bound by a let before the first store."""
    if len(outputs) == 1:
        return Store(outputs[0], place, values[0])
    bound = [Var(fresh(taken, f"v_{b.name}"), b.dtype) for b in outputs]
    body = seq(*(Store(b, place, v) for b, v in zip(outputs, bound, strict=True)))
    for v, value in zip(reversed(bound), reversed(values), strict=True):
        body = Let(v, value, body)
    return body
