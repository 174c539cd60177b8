"""The arguments of a run, checked against the parameters of its function."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..arith.enumeration import UnknownValue, evaluate
from ..arrays import ArgumentError, host_array, refuse_other, refuse_written
from ..assumptions import broken_assumption
from ..ir import Buffer, Expr, PrimFunc, Var
from ..traverse import stored_names


def check_arguments(func: PrimFunc, args: tuple) -> list:
    """The arguments as the generated code takes them, checked against the parameters."""
    signature = ", ".join(p.name for p in func.params)
    if len(args) != len(func.params):
        raise TypeError(f"{func.name}({signature}) takes {len(func.params)} argument(s), got {len(args)}")
    sizes: dict[str, int] = {}
    for p, a in zip(func.params, args, strict=True):
        if isinstance(p, Var):
            if isinstance(a, bool) or not isinstance(a, (int, np.integer)):
                raise TypeError(f"{func.name}: the size `{p.name}` must be an int, got {a!r}")
            sizes[p.name] = int(a)
    if (broken := broken_assumption(func, sizes)) is not None:
        raise ValueError(broken)
    stored = stored_names(func.body)
    values = []
    for p, a in zip(func.params, args, strict=True):
        values.append(sizes[p.name] if isinstance(p, Var) else _array(func.name, p, a, sizes, p.name in stored))
    arrays = [(p, v) for p, v in zip(func.params, values, strict=True) if isinstance(p, Buffer)]
    for n, (p, a) in enumerate(arrays):
        for q, b in arrays[:n]:
            if (p.name in stored or q.name in stored) and _overlap(a, b):
                raise ValueError(f"{func.name}: `{q.name}` and `{p.name}` share memory, and one of them is written")
    return values


def _overlap(a: Any, b: Any) -> bool:
    if not np.may_share_memory(a, b):
        return False
    try:
        return np.shares_memory(a, b, max_work=100_000)  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return True


def _array(func: str, p: Buffer, a: Any, sizes: dict[str, int], stored: bool) -> np.ndarray:
    shape = tuple(_size(d, sizes, p) for d in p.shape)
    try:
        found = host_array(a)
        if found is None:
            raise TypeError(f"must be an array, got {type(a).__name__}")
        refuse_other(found, p.dtype, shape)
        if stored:
            refuse_written(found, a)
    except TypeError as error:
        raise ArgumentError(f"{func}: `{p.name}` {error}") from None
    return found.array.view(np.uint16) if p.dtype == "float16" else found.array


def _size(e: Expr, sizes: dict[str, int], p: Buffer) -> int:
    try:
        return int(evaluate(e, sizes))
    except UnknownValue:
        given = ", ".join(sizes) or "none"
        raise ValueError(f"the dimension `{e}` of `{p.name}` is not given by the scalar parameters ({given})") from None
