"""Operations that make tensors: inputs, formulas, scans and scatters."""

from __future__ import annotations

import builtins
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, overload

from .. import dtypes
from ..ir import TRUE, Const, Expr, Node, Select, Var, as_expr, as_index, cast, need_name, refuse_compared, with_deep_recursion
from ..traverse import map_children, too_large, walk
from .elementwise import as_condition
from .reductions import Reduce, parts_of
from .tensors import Compute, Placeholder, Scatter, Tensor, TensorRead
from .variables import ReduceAxis, as_tuple, axes_of, shape_of


def placeholder(shape: Sequence[int | Expr], dtype: dtypes.DTypeLike = "float32", name: str = "placeholder") -> Tensor:
    """An input tensor of the given shape (integers of at least 0, and sizes that `te.var` makes) and dtype (see `tir.dtypes`).

    Raises TypeError or ValueError for any other shape, dtype or name.
    """
    return Tensor(Placeholder(need_name(name)), 0, shape_of(shape, name), dtypes.check(dtype), name)


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
    shape = shape_of(shape, need_name(name))
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
    axes = axes_of(map(need_name, axis_names), shape)
    try:
        result = with_deep_recursion(lambda: fcompute(*axes))
    except RecursionError as error:
        raise ValueError(
            f"{name}: the body is nested too deeply for Python ({error}); give parts of it a compute of their own"
        ) from error
    if result is None:
        raise TypeError(f"{name}: the function gives None; does it lack a `return`?")
    try:
        for v in as_tuple(result):
            refuse_compared(v)
        values = tuple(as_expr(v) for v in as_tuple(result))
    except TypeError as error:
        raise TypeError(f"{name}: the function gives {result!r}: {error}") from None
    for v in values:
        if excess := too_large(*parts_of(v)):
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
    first = values[0] if values else None
    if isinstance(first, Reduce) and builtins.all(isinstance(v, Reduce) and v.sources is first.sources for v in values):
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
    for n in (n for part in parts_of(value) for n in walk(part)):
        if isinstance(n, Reduce):
            place = "inside a reduction" if isinstance(value, Reduce) else "under if_then_else"
            raise TypeError(f"{name}: `{n.reducer.name}` is {place}; give it a compute of its own")
        if isinstance(n, ReduceAxis) and n not in (value.axes if isinstance(value, Reduce) else ()):
            raise TypeError(f"{name}: nothing reduces over `{n.var}`; put it in, as in te.sum(..., axis={n.var})")


def scan(
    shape: Sequence[int | Expr], fcompute: Callable, axis: int, dtype: dtypes.DTypeLike = "float32", name: str = "scan"
) -> Tensor:
    """A tensor computed in order along `axis`: `fcompute(y, i, j, ...)` may read earlier elements of the tensor itself, `y`.

    A running sum: `te.scan((n,), lambda y, i: x[i] + te.if_then_else(i >= 1, y[i - 1], 0.0), axis=0)`. Raises as `compute` does,
    and ValueError for an axis that does not exist.
    """
    extents = shape_of(shape, need_name(name))
    axes = axes_of((f"i{n}" for n in range(len(extents))), extents)
    _need_function(fcompute, f"{name}: fcompute is a function of the tensor and the indices, such as `lambda y, i: ...`")
    if isinstance(axis, bool) or not isinstance(axis, int):
        raise TypeError(f"{name}: the axis is the number of a dimension, from 0 on, got {axis!r}")
    if not 0 <= axis < len(axes):
        raise ValueError(f"{name}: the axis {axis} does not exist; the tensor has {len(axes)} dimension(s)")
    result = Tensor(Placeholder(name), 0, extents, dtypes.check(dtype), name)  # its own formula may read it
    result.op = Compute(name, axes, result.extents, (cast(as_expr(fcompute(result, *axes)), result.dtype),), ordered=axis)
    return result


def scatter(target: Tensor, domain: Sequence[int | Expr], fscatter: Callable, name: str = "scatter") -> Tensor:
    """A copy of a tensor with values stored at computed places.

    `fscatter(y, i, j, ...)` gives, for a point of the domain, the indices, the value, and the condition of the store. The value
    may read the tensor itself, `y`, at these indices. Points are taken in order: of several stores to one element the last
    counts. Axes of the domain that are indices themselves run in any order, since their stores never meet. The indices must be
    in bounds where the condition holds.
    """
    extents = shape_of(domain, need_name(name))
    if not isinstance(target, Tensor):
        raise TypeError(f"{name}: the target is a tensor, got {target!r}")
    stored_at = f"{name}: fscatter is a function of the tensor and the point that gives (indices, value, condition)"
    _need_function(fscatter, stored_at)
    axes = axes_of((f"k{n}" for n in range(len(extents))), extents)
    result = Tensor(Placeholder(name), 0, target.extents, target.dtype, name)
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
