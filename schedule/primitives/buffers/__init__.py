"""Primitives that change where values are stored, and in which layout."""

from . import (
    cache_read,
    cache_write,
    lift_alloc,
    pack,
    reindex,
    set_scope,
    stage_mem,
    stage_padding,
    storage_align,
    transform_layout,
    write_in_place,
)

__all__ = [
    "cache_read",
    "cache_write",
    "lift_alloc",
    "pack",
    "reindex",
    "set_scope",
    "stage_mem",
    "stage_padding",
    "storage_align",
    "transform_layout",
    "write_in_place",
]
