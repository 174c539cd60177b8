"""Tensors, their elements, and the operations that give them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..ir import Annotations, Const, Element, Expr, Operators, Var, as_index, node
from ..ir.expressions import functions


class Tensor(Operators):
    """An input, or one output of an operation. Index it to read an element: `A[i, k]`; one of rank 0 stands for its element.

    `shape` is a tuple of ints (or of expressions, where sizes are symbolic); `dtype` the name of the element type.
    """

    op: Operation

    def __init__(self, op: Operation, output: int, shape: tuple[Expr, ...], dtype: str, name: str):
        self.op, self.output, self.extents, self.dtype, self.name = op, output, shape, dtype, name

    @property
    def shape(self) -> tuple[int | Expr, ...]:
        return tuple(s.value if isinstance(s, Const) else s for s in self.extents)

    @property
    def ndim(self) -> int:
        return len(self.extents)

    @property
    def T(self) -> Tensor:
        """A tensor of the same elements with the order of its dimensions reversed."""
        return functions().compute(self.extents[::-1], lambda *i: self[i[::-1]], name=f"{self.name}_T")

    def __matmul__(self, other: Tensor) -> Tensor:
        """The matrix product, as of numpy's arrays: more than two dimensions are a batch, one is a vector.

        Raises ValueError for shapes that do not fit.
        """
        return functions().matmul(self, other) if isinstance(other, Tensor) else NotImplemented

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
class TensorRead(Element):
    """An element of a tensor; becomes a Load in `create_prim_func`."""

    tensor: Tensor
    indices: tuple[Expr, ...]

    @property
    def dtype(self) -> str:
        return self.tensor.dtype

    def text(self, show: Callable[[Expr], str]) -> str:
        return f"{self.tensor.name}[{', '.join(map(show, self.indices)) or '()'}]"


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
        return self.target.extents


Operation = Placeholder | Compute | Scatter
