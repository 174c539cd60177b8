"""Conversions of element types."""

from __future__ import annotations

from .body import expansion


@expansion("CastLike", 15)
def cast_like(body, node, values):
    body.cast(node.input[0], values[1].dtype, node.output[0])
