"""The operators: each one small function that makes tensor expressions of tensors, in the module of its family."""

from . import activations, convolution, elementwise, layout, norms, products, recurrence, rows  # noqa: F401
from .registry import Operator, find, function, is_view, names, operator, placeholder, result_types, tensors, versions

__all__ = [
    "Operator", "find", "function", "is_view", "names", "operator", "placeholder", "result_types", "tensors", "versions",
]  # fmt: skip
