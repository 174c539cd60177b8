"""Primitives that move a block to where its result is needed, or into the expression that needs it."""
