"""Primitives that draw a number or a place; the decision is in the trace."""
