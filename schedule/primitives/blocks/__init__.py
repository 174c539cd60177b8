"""Primitives that make blocks, change their axes or formulas, or put an instruction in their place."""
