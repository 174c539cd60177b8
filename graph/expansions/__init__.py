"""Operators that are written out as others while a file is read: by functions here, or as ONNX itself defines them."""

from . import branches, casts, loops, parts, quantized, resize, sequences  # noqa: F401
from .body import Body, Expansion, Part, all_nodes, expansion, find, names
from .functions import has_function, write_function

__all__ = ["Body", "Expansion", "Part", "all_nodes", "expansion", "find", "has_function", "names", "write_function"]
