"""Primitives that make blocks, change their axes or formulas, or put an instruction in their place."""

from . import blockize, reorder_block_iter_var, simplify_formula, tensorize, transform_block_layout

__all__ = ["blockize", "reorder_block_iter_var", "simplify_formula", "tensorize", "transform_block_layout"]
