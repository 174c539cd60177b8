"""Primitives that change where values are stored, and in which layout."""

from . import (
    annotate_buffer_access,
    cache_index,
    cache_read,
    cache_write,
    lift_alloc,
    pack,
    read_at,
    reindex,
    set_axis_separator,
    set_scope,
    stage_mem,
    stage_padding,
    storage_align,
    transform_layout,
    unsafe_set_dtype,
    write_in_place,
)

__all__ = [
    "annotate_buffer_access",
    "cache_index",
    "cache_read",
    "cache_write",
    "lift_alloc",
    "pack",
    "read_at",
    "reindex",
    "set_axis_separator",
    "set_scope",
    "stage_mem",
    "stage_padding",
    "storage_align",
    "transform_layout",
    "unsafe_set_dtype",
    "write_in_place",
]
