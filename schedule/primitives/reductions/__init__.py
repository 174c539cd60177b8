"""Primitives that take a reduction apart, or change what it works on."""

from . import decompose_padding, decompose_reduction, factor_out, fuse_reduction_epilogue, make_unsigned, pad_einsum, rfactor

__all__ = [
    "decompose_padding",
    "decompose_reduction",
    "factor_out",
    "fuse_reduction_epilogue",
    "make_unsigned",
    "pad_einsum",
    "rfactor",
]
