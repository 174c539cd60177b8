"""Primitives that change loops: their ranges, their order, and how their iterations run."""
