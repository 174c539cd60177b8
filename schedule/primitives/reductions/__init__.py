"""Primitives that take a reduction apart, or change what it works on."""
