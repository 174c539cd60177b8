"""Primitives that draw a number or a place at random; the trace keeps the decision."""
