"""Primitives that change loops: their ranges, their order, and how their iterations run."""

from . import add_unit_loop, annotate, bind, fuse, loop_partition, merge, parallel, reorder, split, tile, unroll, vectorize

__all__ = [
    "add_unit_loop",
    "annotate",
    "bind",
    "fuse",
    "loop_partition",
    "merge",
    "parallel",
    "reorder",
    "split",
    "tile",
    "unroll",
    "vectorize",
]
