"""Valid values of the annotations that code generation reads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tir.arith.symbolic import SymbolicChoice
from tir.ir import Block, For, annotation

MAX_STAGES = 16  # buffers of a software pipeline in shared memory
MAX_RESIDENT = 32  # blocks of an SM (CUDA C++ programming guide, technical specifications)
MAX_COUNT = 2**31 - 1  # iterations or statements: sums and products of two stay within 64 bits

# Of a sum of products whose second factor is int8: its neighbours along the last axis of the sum, two by two from the first one
# on, times any uint8 add up within 16 bits.
NARROW_PAIRS = "narrow_pairs"
Rule = tuple[str, Callable[[Any], bool]]  # the valid values in words, and a test for them


def _integer(low: int, high: int) -> Rule:
    def valid(value: Any) -> bool:
        return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high

    return f"an integer from {low} to {high}", valid


def _is_names(value: Any) -> bool:
    return isinstance(value, str) or (isinstance(value, list | tuple) and all(isinstance(n, str) for n in value))


def _is_prefetch(value: Any) -> bool:
    match value:
        case [str(), distance]:
            return _integer(1, MAX_COUNT)[1](distance)
        case list() | tuple():
            return all(isinstance(v, list | tuple) and len(v) == 2 and _is_prefetch(v) for v in value)
    return False


_FLAG: Rule = "True or False", lambda value: isinstance(value, bool)

RULES: dict[str, Rule] = {
    "schedule": ('"static" or "dynamic"', lambda value: value in ("static", "dynamic")),
    "chunk": _integer(0, MAX_COUNT),
    "pragma_auto_unroll_max_step": _integer(0, MAX_COUNT),
    "pipeline_stages": _integer(1, MAX_STAGES),
    "resident_blocks": _integer(1, MAX_RESIDENT),
    "prefetch": (f'["buffer", distance], the distance from 1 to {MAX_COUNT}, or a list of these', _is_prefetch),
    "non_temporal": ("the name of a buffer or a list of names", _is_names),
    "double_buffer": _FLAG,
    "combine_lanes": _FLAG,
    "in_order": _FLAG,
    "allow_reciprocal": _FLAG,
    "tf32": _FLAG,
    NARROW_PAIRS: _FLAG,
}


def refusal(key: str, value: Any) -> str | None:
    """The reason why `value`, or a value of an open choice, is invalid for an annotation; None for a valid one."""
    if key in RULES:
        words, valid = RULES[key]
        for v in value.values if isinstance(value, SymbolicChoice) else (value,):
            if not valid(v):
                return f"the annotation {key} must be {words}, got {v!r}"
    return None


def value_of(s: For | Block, key: str, default: Any) -> Any:
    """The value of an annotation of a loop or block, or `default`; ValueError for an invalid value."""
    value = annotation(s.annotations, key, default)
    if value is not default and (reason := refusal(key, value)):
        raise ValueError(f"{'loop' if isinstance(s, For) else 'block'} `{s.name}`: {reason}")
    return value
