"""The name under which a named computation is given to `autotune`: `search.oracle.Workload`."""

from .measure.reference import Workload

__all__ = ["Workload"]
