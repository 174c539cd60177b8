"""Primitives that make, move and remove the conditions of statements."""

from . import add_guard, assume, hoist_predicate, peel, trim

__all__ = ["add_guard", "assume", "hoist_predicate", "peel", "trim"]
