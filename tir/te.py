"""Tensor expressions: computations written as index formulas, and their conversion to a function of the IR.

    A = te.placeholder((M, K), name="A")
    k = te.reduce_axis((0, K), name="k")
    C = te.compute((M, N), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    func = te.create_prim_func([A, B, C])

The vocabulary is that of Halide and TVM's `te`. Each `compute` becomes one block of spatial axes (and reduce axes, with the
reducer's identity as its init). A reduction inside a formula has a block of its own.
"""

from __future__ import annotations

import builtins
import inspect
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, overload

from . import dtypes
from .constants import with_constants
from .elementwise import *  # noqa: F403
from .elementwise import __all__ as elementwise
from .elementwise import (
    all,
    any,
    as_condition,
    equal,
    floordiv,
    floormod,
    if_then_else,
    intrinsic,
    maximum,
    minimum,
    of_numpy,
    select,
)
from .ir import (
    TRUE,
    Annotations,
    Axis,
    Block,
    Buffer,
    Const,
    Expr,
    If,
    Iter,
    Let,
    Load,
    Node,
    Operators,
    PrimFunc,
    Select,
    Stmt,
    Store,
    Var,
    as_expr,
    as_index,
    binary,
    cast,
    const,
    need_name,
    nest,
    node,
    refuse_compared,
    seq,
    with_deep_recursion,
)
from .traverse import fresh, map_children, rewrite, substitute, too_large, walk

__all__ = [
    *elementwise, "Reducer", "ReduceAxis", "Tensor", "argmax", "argmin", "comm_reducer", "compute", "const", "create_prim_func",
    "indexdiv", "indexmod", "intrinsic", "max", "mean", "min", "of_numpy", "placeholder", "prod", "reduce_axis", "scan",
    "scatter", "size_var", "sum", "var", "where",
]  # fmt: skip


indexdiv, indexmod = floordiv, floormod
where = if_then_else


class Tensor(Operators):
    """An input, or one output of an operation. Index it to read an element: `A[i, k]`; one of rank 0 stands for its element.

    `shape` is a tuple of ints (or of expressions, where sizes are symbolic); `dtype` the name of the element type.
    """

    op: Placeholder | Compute | Scatter

    def __init__(self, op: Placeholder | Compute | Scatter, output: int, shape: tuple[Expr, ...], dtype: str, name: str):
        self.op, self.output, self._shape, self.dtype, self.name = op, output, shape, dtype, name

    @property
    def shape(self) -> tuple[int | Expr, ...]:
        return tuple(s.value if isinstance(s, Const) else s for s in self._shape)

    @property
    def ndim(self) -> int:
        return len(self._shape)

    @property
    def T(self) -> Tensor:
        """A tensor of the same elements with the order of its dimensions reversed."""
        return compute(self._shape[::-1], lambda *i: self[i[::-1]], name=f"{self.name}_T")

    def __matmul__(self, other: Tensor) -> Tensor:
        """The matrix product, as of numpy's arrays: more than two dimensions are a batch, one is a vector.

        Raises ValueError for shapes that do not fit.
        """
        return _matmul(self, other) if isinstance(other, Tensor) else NotImplemented

    def __getitem__(self, indices) -> TensorRead:
        indices = indices if isinstance(indices, tuple) else (indices,)
        if len(indices) != self.ndim:
            raise IndexError(f"{self.name} has {self.ndim} dimension(s) {self.shape}, but was indexed with {len(indices)}")
        return TensorRead(self, tuple(as_index(i) for i in indices))

    def __call__(self, *indices) -> TensorRead:
        return self[indices]

    def __iter__(self):
        raise TypeError(f"{self.name} has elements only where it is indexed, so it cannot be iterated over")

    def as_scalar(self) -> TensorRead:
        if self.ndim:
            raise TypeError(f"{self.name} of shape {self.shape} is not a scalar; index it")
        return self[()]

    def __repr__(self) -> str:
        return f"Tensor({self.name}, shape={self.shape}, dtype={self.dtype})"

    def __bool__(self):
        raise TypeError(f"tensor {self.name} has no truth value before it runs")


@node
class TensorRead(Expr):
    """An element of a tensor; becomes a Load in `create_prim_func`."""

    tensor: Tensor
    indices: tuple[Expr, ...]

    @property
    def dtype(self) -> str:
        return self.tensor.dtype

    def text(self, show: Callable[[Expr], str]) -> str:
        return f"{self.tensor.name}[{', '.join(map(show, self.indices)) or '()'}]"


@node
class ReduceAxis(Expr):
    """A reduction variable over `range(start, start + extent)`, usable as an index and in expressions."""

    var: Var
    start: Expr
    extent: Expr

    @property
    def dtype(self) -> str:
        return self.var.dtype

    @property
    def value(self) -> Expr:
        return self.var if self.start == const(0, self.start.dtype) else self.var + self.start

    def text(self, show: Callable[[Expr], str]) -> str:
        return show(self.value)


@dataclass(frozen=True)
class Reducer:
    """A commutative, associative operation on one or several values, with its identity. Call it on expressions and axes."""

    name: str
    combine: Callable  # (accumulated..., new...) -> value or tuple of values
    identity: Callable  # (dtype...) -> value or tuple of values

    def __call__(self, expr, axis=None, where=None):
        """The reduction of `expr` (an expression, or a tuple of them for a reducer of several values) over `axis`.

        `axis` is a `reduce_axis`, or several; `where`, a bool expression, leaves out the iterations for which it is false.
        Raises TypeError where an axis is something else, or none is given, and ValueError where two have one name.
        """
        sources, axes = tuple(map(as_expr, _as_tuple(expr))), _reduce_axes(self.name, axis)
        identities = _as_tuple(self.identity(*(s.dtype for s in sources)))
        if len(identities) != len(sources):
            raise TypeError(f"{self.name}: {len(sources)} value(s) to reduce, but the identity has {len(identities)}")
        try:
            identities = tuple(cast(as_expr(v, s.dtype), s.dtype) for v, s in zip(identities, sources, strict=True))
        except (TypeError, ValueError) as error:
            raise TypeError(f"{self.name}: the identity of a dtype must be a number of that dtype; {error}") from None
        condition = TRUE if where is None else as_condition(where)
        results = tuple(Reduce(self, sources, identities, axes, condition, i) for i in range(len(sources)))
        return results if isinstance(expr, (tuple, list)) else results[0]


def _reduce_axes(name: str, axis: Any) -> tuple[ReduceAxis, ...]:
    if axis is None:
        raise TypeError(f"{name}: an axis to reduce over is missing: k = te.reduce_axis((0, n)), then axis=k")
    axes = _as_tuple(axis)
    for a in axes:
        if not isinstance(a, ReduceAxis):
            raise TypeError(f"{name}: axis must be a te.reduce_axis, as te.reduce_axis((0, n)) makes, got {a!r}")
    if not axes:
        raise TypeError(f"{name}: at least one axis is needed")
    names = [a.var.name for a in axes]
    if twice := next((n for n in names if names.count(n) > 1), None):
        raise ValueError(f"{name}: two axes are named `{twice}`; give each its own: te.reduce_axis((0, n), name='k')")
    return axes


@node
class Reduce(Expr):
    """Value `index` of a reduction."""

    reducer: Reducer
    sources: tuple[Expr, ...]
    identities: tuple[Expr, ...]
    axes: tuple[ReduceAxis, ...]
    condition: Expr
    index: int

    @property
    def dtype(self) -> str:
        return self.sources[self.index].dtype

    def text(self, show: Callable[[Expr], str]) -> str:
        return f"{self.reducer.name}({show(self.sources[self.index])}, axis=[{', '.join(map(show, self.axes))}])"


@dataclass(frozen=True, eq=False)
class Placeholder:
    name: str


@dataclass(frozen=True, eq=False)
class Compute:
    name: str
    axes: tuple[Var, ...]
    shape: tuple[Expr, ...]
    values: tuple[Expr, ...]
    attrs: Annotations = ()
    ordered: int | None = None  # the axis along which the elements are computed one after the other


@dataclass(frozen=True, eq=False)
class Scatter:
    """A copy of `target` with `value` stored at `place`, for each point of a domain where `condition` holds."""

    name: str
    target: Tensor
    axes: tuple[Var, ...]
    extents: tuple[Expr, ...]
    place: tuple[Expr, ...]
    value: Expr
    condition: Expr

    @property
    def values(self) -> tuple[Expr, ...]:
        return (self.value,)

    @property
    def shape(self) -> tuple[Expr, ...]:
        return self.target._shape


def _as_tuple(value) -> tuple:
    return tuple(value) if isinstance(value, (tuple, list)) else (value,)


def _shape(shape, name: str) -> tuple[Expr, ...]:
    try:
        result = tuple(map(as_index, _as_tuple(shape)))
    except TypeError as error:
        raise TypeError(f"{name}: a shape is a tuple of integers and sizes (te.var), got {shape!r}: {error}") from None
    for d in result:
        if isinstance(d, Const) and d.value < 0:
            raise ValueError(f"{name}: extents must be at least 0, got shape {tuple(str(d) for d in result)}".replace("'", ""))
    wide = {d.dtype for d in result if not isinstance(d, Const)} & {"int64"}  # one such size makes all axes int64
    return tuple(const(d.value, "int64") if wide and isinstance(d, Const) else d for d in result)


def var(name: str = "n", dtype: dtypes.DTypeLike = "int32") -> Var:
    """A symbolic size: a scalar parameter of the function, of an integer dtype."""
    of = dtypes.check(dtype)
    if not dtypes.is_int(of):
        raise TypeError(f"var {name}: a size must be an integer, got dtype {of}")
    return Var(need_name(name), of)


size_var = var


def placeholder(shape: Sequence[int | Expr], dtype: dtypes.DTypeLike = "float32", name: str = "placeholder") -> Tensor:
    """An input tensor of the given shape (integers of at least 0, and sizes that `te.var` makes) and dtype (see `tir.dtypes`).

    Raises TypeError or ValueError for any other shape, dtype or name.
    """
    return Tensor(Placeholder(need_name(name)), 0, _shape(shape, name), dtypes.check(dtype), name)


def reduce_axis(dom: tuple[int | Expr, int | Expr], name: str = "rv") -> ReduceAxis:
    """A reduction variable over `range(dom[0], dom[1])`, for the `axis` of a reducer.

    Raises TypeError where the domain is no pair of integers, and ValueError where it ends before it starts.
    """
    try:
        start, stop = (as_index(d) for d in dom)
    except (TypeError, ValueError) as error:
        raise TypeError(f"reduce_axis {name}: the domain must be a pair (start, stop) of integers, got {dom!r}") from error
    if isinstance(start, Const) and not isinstance(stop, Const):
        start = const(start.value, stop.dtype)
    extent = const(stop.value - start.value) if isinstance(start, Const) and isinstance(stop, Const) else stop - start
    if isinstance(extent, Const) and extent.value < 0:
        raise ValueError(f"reduce_axis {name}: the domain {dom!r} ends before it starts")
    return ReduceAxis(Var(need_name(name), extent.dtype), start, extent)


def _axes(names: Iterable[str], extents: Sequence[Expr]) -> tuple[Var, ...]:
    return tuple(Var(n, e.dtype) for n, e in zip(names, extents, strict=True))


def _need_function(value: Any, what: str) -> None:
    if isinstance(value, Tensor) or not callable(value):
        raise TypeError(f"{what}, got {value!r}")


@overload
def compute(
    shape: Sequence[int | Expr], fcompute: Callable[..., Expr | float], name: str = ..., attrs: Mapping[str, Any] | None = ...
) -> Tensor: ...


@overload
def compute(
    shape: Sequence[int | Expr], fcompute: Callable[..., Sequence], name: str = ..., attrs: Mapping[str, Any] | None = ...
) -> tuple[Tensor, ...]: ...


def compute(
    shape: Sequence[int | Expr], fcompute: Callable, name: str = "compute", attrs: Mapping[str, Any] | None = None
) -> Tensor | tuple[Tensor, ...]:
    """A tensor whose element at `(i, j, ...)` is `fcompute(i, j, ...)`.

    `fcompute` returns an expression; for a tuple of these the result is a tuple of tensors of one shape, computed together. Its
    parameters name the axes; the dtype of its expression is the tensor's. A reduction that is not the whole body is computed
    before, as a tensor of its own. `attrs`, JSON data, become annotations of the block. Raises TypeError for another number of
    indices than of dimensions, for other results, and for a reduction inside a reduction or under `if_then_else`. Raises
    ValueError for a body that is too large.
    """
    shape = _shape(shape, need_name(name))
    _need_function(fcompute, f"{name}: fcompute is a function of the indices, such as `lambda i, j: A[j, i]`")
    if attrs is not None and not (isinstance(attrs, Mapping) and builtins.all(isinstance(k, str) for k in attrs)):
        raise TypeError(f"{name}: attrs is a dict of names and JSON data, got {attrs!r}")
    parameters = inspect.signature(fcompute).parameters.values()
    indices = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    axis_names = [p.name for p in indices]
    if len(axis_names) > len(shape):  # parameters with a default need not be indices
        axis_names = [p.name for p in indices if p.default is p.empty]
    if inspect.Parameter.VAR_POSITIONAL in {p.kind for p in parameters}:  # `*i` takes the other indices
        axis_names += [f"i{n}" for n in range(len(axis_names), len(shape))]
    if len(axis_names) != len(shape):
        raise TypeError(f"{name}: the shape has {len(shape)} dimension(s), but the function takes {len(axis_names)} index(es)")
    axes = _axes(map(need_name, axis_names), shape)
    try:
        result = with_deep_recursion(lambda: fcompute(*axes))
    except RecursionError as error:
        raise ValueError(
            f"{name}: the body is nested too deeply for Python ({error}); give parts of it a compute of their own"
        ) from error
    if result is None:
        raise TypeError(f"{name}: the function gives None; does it lack a `return`?")
    try:
        for v in _as_tuple(result):
            refuse_compared(v)
        values = tuple(as_expr(v) for v in _as_tuple(result))
    except TypeError as error:
        raise TypeError(f"{name}: the function gives {result!r}: {error}") from None
    for v in values:
        if excess := too_large(*_parts(v)):
            raise ValueError(f"{name}: written out, the body has {excess}; give parts of it a compute of their own")
    values = with_deep_recursion(lambda: _reductions_apart(name, axes, shape, values))
    for v in values:
        _check_reductions(name, v)
    op = Compute(name, axes, shape, values, tuple(sorted((attrs or {}).items())))
    many = isinstance(result, (tuple, list))
    outputs = tuple(Tensor(op, i, shape, v.dtype, f"{name}_v{i}" if many else name) for i, v in enumerate(values))
    return outputs if many else outputs[0]


def _reductions_apart(name: str, axes: tuple[Var, ...], shape: tuple[Expr, ...], values: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """The values of a formula with each reduction inside them read from a tensor of its own: `te.sum(x, axis=k) / 7` divides what
    another block sums. A choice of `if_then_else` stays as it is, for its reads may be out of bounds elsewhere."""
    if builtins.all(isinstance(v, Reduce) and v.sources is getattr(values[0], "sources", None) for v in values):
        return values
    apart: dict[tuple, Compute] = {}

    def visit(n: Node) -> Node:
        if isinstance(n, Reduce):
            key = (n.reducer, n.sources, n.axes, n.condition)
            if key not in apart:
                outputs = tuple(Reduce(n.reducer, n.sources, n.identities, n.axes, n.condition, i) for i in range(len(n.sources)))
                for output in outputs:
                    _check_reductions(name, output)
                apart[key] = Compute(f"{name}_{n.reducer.name}", axes, shape, outputs)
            op = apart[key]
            label = f"{op.name}_v{n.index}" if len(op.values) > 1 else op.name
            return TensorRead(tensors.setdefault((op, n.index), Tensor(op, n.index, shape, n.dtype, label)), axes)
        return n if isinstance(n, (Var, Const)) or (isinstance(n, Select) and n.lazy) else map_children(n, visit)

    tensors: dict[tuple[Compute, int], Tensor] = {}
    return tuple(visit(v) for v in values)  # type: ignore[misc]


def _check_reductions(name: str, value: Expr) -> None:
    """Refuse a reduction inside the parts of a value, and an axis over which nothing reduces."""
    for n in (n for part in _parts(value) for n in walk(part)):
        if isinstance(n, Reduce):
            place = "inside a reduction" if isinstance(value, Reduce) else "under if_then_else"
            raise TypeError(f"{name}: `{n.reducer.name}` is {place}; give it a compute of its own")
        if isinstance(n, ReduceAxis) and n not in (value.axes if isinstance(value, Reduce) else ()):
            raise TypeError(f"{name}: nothing reduces over `{n.var}`; put it in, as in te.sum(..., axis={n.var})")


def _matmul(a: Tensor, b: Tensor) -> Tensor:
    """The product of two tensors by the rules of numpy's `@`."""
    what = f"{a.name} @ {b.name}"
    if not a.ndim or not b.ndim:
        raise ValueError(f"{what}: a tensor without dimensions is a number; write `*`")
    columns = b.ndim > 1
    if a.shape[-1] != b.shape[-2 if columns else -1]:
        raise ValueError(
            f"{what}: the last dimension of {a.shape} must be the {'last but one' if columns else 'one'} of {b.shape}"
        )
    k = reduce_axis((0, a._shape[-1]), name="k")
    batch = _broadcast(what, a, b)
    rows = a._shape[-2:-1]

    def element(*index: Var) -> Expr:
        row, column = index[len(batch) : len(batch) + len(rows)], index[len(batch) + len(rows) :]
        left, right = (_broadcast_index(t, index[: len(batch)]) for t in (a, b))
        return sum(a[(*left, *row, k)] * b[(*right, k, *column)], axis=k)

    return compute((*batch, *rows, *(b._shape[-1:] if columns else ())), element, name="matmul")


def _broadcast(what: str, a: Tensor, b: Tensor) -> tuple[Expr, ...]:
    """The dimensions of a batch of two tensors: all but the last two, aligned at their ends, where 1 fits any extent."""
    ranks = builtins.max(a.ndim, b.ndim) - 2
    one = const(1)
    batch = []
    for left, right in zip(*(((one,) * ranks + t._shape[:-2])[-ranks:] if ranks > 0 else () for t in (a, b)), strict=True):
        if left != right and not left.is_one and not right.is_one:
            raise ValueError(f"{what}: the batches of {a.shape} and {b.shape} differ")
        batch.append(right if left.is_one else left)
    return tuple(batch)


def _broadcast_index(t: Tensor, index: tuple[Var, ...]) -> tuple[Expr, ...]:
    """The index into the batch of one tensor at an index of the batch of a product."""
    extents = t._shape[:-2]
    own = index[len(index) - len(extents) :]
    return tuple(const(0, i.dtype) if e.is_one else i for i, e in zip(own, extents, strict=True))


def scan(
    shape: Sequence[int | Expr], fcompute: Callable, axis: int, dtype: dtypes.DTypeLike = "float32", name: str = "scan"
) -> Tensor:
    """A tensor computed in order along `axis`: `fcompute(y, i, j, ...)` may read earlier elements of the tensor itself, `y`.

    A running sum: `te.scan((n,), lambda y, i: x[i] + te.if_then_else(i >= 1, y[i - 1], 0.0), axis=0)`. Raises as `compute` does,
    and ValueError for an axis that does not exist.
    """
    extents = _shape(shape, need_name(name))
    axes = _axes((f"i{n}" for n in range(len(extents))), extents)
    _need_function(fcompute, f"{name}: fcompute is a function of the tensor and the indices, such as `lambda y, i: ...`")
    if isinstance(axis, bool) or not isinstance(axis, int):
        raise TypeError(f"{name}: the axis is the number of a dimension, from 0 on, got {axis!r}")
    if not 0 <= axis < len(axes):
        raise ValueError(f"{name}: the axis {axis} does not exist; the tensor has {len(axes)} dimension(s)")
    result = Tensor(Placeholder(name), 0, extents, dtypes.check(dtype), name)  # its own formula may read it
    result.op = Compute(name, axes, result._shape, (cast(as_expr(fcompute(result, *axes)), result.dtype),), ordered=axis)
    return result


def scatter(target: Tensor, domain: Sequence[int | Expr], fscatter: Callable, name: str = "scatter") -> Tensor:
    """A copy of a tensor with values stored at computed places.

    `fscatter(y, i, j, ...)` gives, for a point of the domain, the indices, the value, and the condition of the store. The value
    may read the tensor itself, `y`, at these indices. Points are taken in order: of several stores to one element the last
    counts. Axes of the domain that are indices themselves run in any order, since their stores never meet. The indices must be
    in bounds where the condition holds.
    """
    extents = _shape(domain, need_name(name))
    if not isinstance(target, Tensor):
        raise TypeError(f"{name}: the target is a tensor, got {target!r}")
    stored_at = f"{name}: fscatter is a function of the tensor and the point that gives (indices, value, condition)"
    _need_function(fscatter, stored_at)
    axes = _axes((f"k{n}" for n in range(len(extents))), extents)
    result = Tensor(Placeholder(name), 0, target._shape, target.dtype, name)
    found = fscatter(result, *axes)
    if not (isinstance(found, tuple) and len(found) == 3 and isinstance(found[0], (tuple, list))):
        raise TypeError(f"{stored_at}, got {found!r}")
    place, value, condition = found
    if len(place) != target.ndim:
        raise ValueError(f"{name}: {target.name} has {target.ndim} dimension(s), but the place has {len(place)}")
    stored = cast(as_expr(value, target.dtype), target.dtype)
    result.op = Scatter(
        name, target, axes, extents, tuple(map(as_index, place)), stored, TRUE if condition is True else as_condition(condition)
    )
    return result


# --- reducers ----------------------------------------------------------------------------------------------------------


def comm_reducer(fcombine: Callable, fidentity: Callable, name: str = "reduce") -> Reducer:
    """A reducer of your own: `fcombine(x, y)` on values (or tuples of values), `fidentity(dtype)` its neutral element.

    For several values at once, as in argmax, both take and return tuples: `fcombine((i, x), (j, y))`, `fidentity(dt_i, dt_x)`.
    The operation must be commutative and associative; schedules reorder it.
    """
    for what, function in (("fcombine", fcombine), ("fidentity", fidentity)):
        if not callable(function):
            raise TypeError(f"comm_reducer {name}: {what} must be a function, got {function!r}")
    return Reducer(name, fcombine, fidentity)


def _neutral(name: str, value: int) -> Callable:
    """An identity for the reducer `name`: `value` in any dtype of numbers."""

    def identity(dtype: str) -> Const:
        if dtype == "bool":
            raise TypeError(f"{name} needs numbers, got bool; use .astype('int32'), or te.max for any and te.min for all")
        return const(value, dtype)

    return identity


def _first(better: str) -> Callable:
    """A combiner of pairs (index, value) that keeps the `better` value, of equal ones that of the smaller index."""

    def combine(x, y):
        taken = any(binary(better, x[1], y[1]), all(equal(x[1], y[1]), x[0] < y[0]))
        return select(taken, x[0], y[0]), select(taken, x[1], y[1])

    return combine


def _no_index(dtype: str) -> Const:
    """The identity of an index: the largest number of its dtype."""
    return const(dtypes.limits(dtype)[1], dtype)


sum = comm_reducer(lambda x, y: x + y, _neutral("sum", 0), name="sum")
prod = comm_reducer(lambda x, y: x * y, _neutral("prod", 1), name="prod")
max = comm_reducer(maximum, lambda dtype: const(dtypes.limits(dtype)[0], dtype), name="max")
min = comm_reducer(minimum, lambda dtype: const(dtypes.limits(dtype)[1], dtype), name="min")
# Of pairs (index, value): `te.argmax((k, A[i, k]), axis=k)`; of equal values the first.
argmax = comm_reducer(_first(">"), lambda index, value: (_no_index(index), const(dtypes.limits(value)[0], value)), name="argmax")
argmin = comm_reducer(_first("<"), lambda index, value: (_no_index(index), const(dtypes.limits(value)[1], value)), name="argmin")


def mean(expr, axis=None, where=None) -> Expr:
    """The mean of a float over `axis`, a `reduce_axis` or several; `where` leaves out the iterations for which it is false.

    The sum and the division are blocks of their own. Halves are summed in float32. Raises TypeError for other dtypes.
    """
    value, axes = as_expr(expr), _reduce_axes("mean", axis)
    if not dtypes.is_float(value.dtype):
        raise TypeError(f"mean needs a floating argument, got {value.dtype}; use .astype('float32')")
    wide = dtypes.computed(value.dtype)
    if where is None:
        count = math.prod((cast(a.extent, wide) for a in axes), start=const(1.0, wide))
    else:
        count = sum(cast(as_condition(where), wide), axes)
    return cast(sum(cast(value, wide), axes, where) / count, value.dtype)


# --- conversion to a function ------------------------------------------------------------------------------------------


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
    sizes = {v.name: v for t in order for d in t._shape for v in walk(d) if isinstance(v, Var)}
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
            buffers[t.op, t.output] = Buffer(fresh(taken, t.name, tried=tried), t._shape, t.dtype)
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
            axes = _axes((f"i{n}" for n in range(len(op.shape))), op.shape)
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
            stack.extend((r.tensor, False) for r in reversed(_reads(t.op)))
    return list(order.values())


def _parts(value: Expr) -> tuple[Expr, ...]:
    return (*value.sources, value.condition) if isinstance(value, Reduce) else (value,)


def _reads(op: Placeholder | Compute | Scatter) -> list[TensorRead]:
    if isinstance(op, Placeholder):
        return []
    parts = [part for v in op.values for part in _parts(v)]
    if isinstance(op, Scatter):
        parts += [TensorRead(op.target, ()), *op.place, op.condition]
    return [n for part in parts for n in walk(part) if isinstance(n, TensorRead)]


Domain = list[tuple[Var, Expr, Axis]]
Buffers = dict[tuple[Placeholder | Compute | Scatter, int], Buffer]  # by operation, and which of its outputs


class _IterNames(set[str]):
    """The names of the iteration variables of a function so far; `tried` is for the names of loops (see `fresh`)."""

    def __init__(self) -> None:
        self.tried: dict[str, int] = {}


def _iters(domain: Domain, taken: set[str], iter_names: _IterNames) -> tuple[list[Var], tuple[Iter, ...]]:
    """The loops over a domain, and the iteration variables of the block inside. Names of iteration variables may repeat between
    blocks; names of loops differ from them."""
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
        if len(_as_tuple(combined)) != len(outputs):
            raise TypeError(f"{reduce.reducer.name}: fcombine gives {len(_as_tuple(combined))} value(s) for {len(outputs)}")
        values = [cast(as_expr(v, b.dtype), b.dtype) for v, b in zip(_as_tuple(combined), outputs, strict=True)]
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
