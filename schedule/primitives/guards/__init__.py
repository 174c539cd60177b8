"""Primitives that make, move and remove the conditions of statements."""
