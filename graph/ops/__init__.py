"""The operators, in the module of each family: small functions that make tensor expressions of tensors, or calls of others."""

from . import (  # noqa: F401, I001
    activations, attention, channels_last, control, convolution, earlier, elementwise, indexing, layout, learners, loops,
    microsoft, norms, pooling, products, quantization, recurrence, resampling, resize, rows, sequences, sorting, spectra,
    unpacked, winograd,
)  # fmt: skip
from .registry import (
    Apply, Operator, alternatives, anonymous, composite, definition, find, function, function_name, names, operator,
    placeholder, qualified, result_types, tensors, unknown, versions,
)  # fmt: skip

__all__ = [
    "Apply", "Operator", "alternatives", "anonymous", "composite", "definition", "find", "function", "function_name",
    "names", "operator", "placeholder", "qualified", "result_types", "tensors", "unknown", "versions",
]  # fmt: skip
