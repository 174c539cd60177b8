"""Primitives that make, move and remove the conditions of statements."""

from . import add_guard, hoist_predicate, peel, trim

__all__ = ["add_guard", "hoist_predicate", "peel", "trim"]
