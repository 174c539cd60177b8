"""Primitives that take a reduction apart, or change its operands."""
