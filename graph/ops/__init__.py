"""The operators: each one small function that makes tensor expressions of tensors, in the module of its family."""

from . import (  # noqa: F401, I001
    activations, convolution, elementwise, indexing, layout, norms, pooling, products, quantization, recurrence, resampling, rows,
)  # fmt: skip
from .registry import Operator, find, function, is_view, names, operator, placeholder, result_types, tensors, versions

__all__ = [
    "Operator", "find", "function", "is_view", "names", "operator", "placeholder", "result_types", "tensors", "versions",
]  # fmt: skip
