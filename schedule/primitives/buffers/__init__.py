"""Primitives that change the memory of values, and their layout in it."""
