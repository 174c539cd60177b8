"""Primitives that change where values are stored, and in which layout."""
