"""Primitives that move a block to its consumers or producers, or its formula into theirs."""
