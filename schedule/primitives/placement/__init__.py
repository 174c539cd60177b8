"""Primitives that move a block to where its result is needed, or into the expression that needs it."""

from . import compute_at, compute_inline, reverse_compute_at, reverse_compute_inline

__all__ = ["compute_at", "compute_inline", "reverse_compute_at", "reverse_compute_inline"]
