"""The arguments of a kernel, checked against the parameters of its function."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from math import prod
from typing import Any

import numpy as np

from tir import dtypes
from tir.arith.simplify import simplify
from tir.arrays import ArgumentError
from tir.assumptions import broken_assumption
from tir.ir import Buffer, Const, Expr, PrimFunc
from tir.traverse import substitute

AddressOf = Callable[[Buffer, Any, tuple[int, ...]], int]


def argument_words(func: PrimFunc, written: Set[str], arrays: Sequence[Any], address: AddressOf) -> dict[str, int]:
    """The arguments as machine words by parameter name, in order: sizes, and addresses of arrays.

    `address(parameter, array, shape)` gives the address of an array that fits a buffer of that shape, or raises TypeError;
    `written` are the buffers that may share no memory with another. Raises ArgumentError.
    """
    name, params = func.name, func.params
    if len(arrays) != len(params):
        raise ArgumentError(f"{name} takes {len(params)} argument(s) ({', '.join(p.name for p in params)}), got {len(arrays)}")
    sizes: dict[str, Const] = {}
    for p, a in zip(params, arrays, strict=True):
        if not isinstance(p, Buffer):
            if not isinstance(a, (int, np.integer)) or isinstance(a, bool):
                raise ArgumentError(f"{name}: {p.name} is a size and must be an int, got {type(a).__name__}")
            low, high = dtypes.limits(p.dtype)
            if not low <= a <= high:
                raise ArgumentError(f"{name}: {p.name} is a size and must fit {p.dtype}, got {a}")
            sizes[p.name] = Const(int(a))
    if (broken := broken_assumption(func, {name: int(size.value) for name, size in sizes.items()})) is not None:
        raise ArgumentError(broken)
    words: dict[str, int] = {}
    spans: list[tuple[int, int, str]] = []
    for p, a in zip(params, arrays, strict=True):
        if not isinstance(p, Buffer):
            words[p.name] = int(a)
            continue
        shape = _shape(name, p, sizes)
        try:
            start = words[p.name] = address(p, a, shape)
        except TypeError as error:
            raise ArgumentError(f"{name}: {p.name} {error}") from None
        end = start + prod(shape) * dtypes.nbytes(p.dtype)
        for other_start, other_end, other in spans:
            if start < other_end and other_start < end and {other, p.name} & written:
                out = other if other in written else p.name
                raise ArgumentError(f"{name}: {other} and {p.name} overlap in memory, and {out} is written; pass a copy")
        spans.append((start, end, p.name))
    return words


def dimension_value(d: Expr, sizes: Mapping[str, Expr]) -> int | None:
    """A dimension for these sizes; None where it depends on others."""
    found = d if isinstance(d, Const) else simplify(substitute(d, sizes))
    return int(found.value) if isinstance(found, Const) else None


def _shape(name: str, p: Buffer, sizes: Mapping[str, Expr]) -> tuple[int, ...]:
    dims = tuple(n for d in p.shape if (n := dimension_value(d, sizes)) is not None)
    if len(dims) < len(p.shape):
        known = ", ".join(map(str, p.shape)) + "," * (len(p.shape) == 1)
        raise ArgumentError(
            f"{name}: the shape ({known}) of {p.name} depends on sizes that are not parameters of the function; "
            "list them there, too (te.var)"
        )
    return dims
