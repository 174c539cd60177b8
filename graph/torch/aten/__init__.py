"""The operators of torch's ATen, as composites of the operators of `graph.ops`, in the module of each family.

They are of the domain `aten`, those of quantised tensors of `quantized_decomposed` or `torchao`, and have the name of their
overload: `aten.add.Tensor`, without `default`. Operands are those of
torch's schemas: values, numbers, lists of them, names of element types, None. Tensors, element types and shapes are torch's.
"""

from . import (  # noqa: F401, I001
    attention, elementwise, indexing, making, moving, norms, pooling, products, quantisation, recurrence, reductions,
    resizing, sorting,
)  # fmt: skip
from .types import aten

for family in (elementwise, indexing, making, moving, norms, products, quantisation, reductions, resizing, sorting):
    for overloads, define in family.OPERATORS.items():
        aten(*overloads.split())(define)
