"""Memory that the caller lends: large temporaries as parameters."""

from __future__ import annotations

from math import prod

from tir import dtypes
from tir.ir import Allocate, Buffer, For, Kind, PrimFunc, Stmt, const_shape
from tir.traverse import map_statements

from ..llvm.scratch import MAX_STACK_BUFFER_BYTES, MAX_STACK_BYTES


def lend_temporaries(func: PrimFunc, target) -> PrimFunc:
    """Make temporaries of constant size too large for the stack parameters, except those in parallel loops."""
    lent: dict[str, Buffer] = {}
    stack = 0

    def without(s: Stmt) -> Stmt:
        nonlocal stack
        if isinstance(s, For) and s.kind is Kind.PARALLEL and target.num_cores > 1:
            return s
        if isinstance(s, Allocate) and s.buffer.scope != "register" and s.buffer.has_const_shape:
            size = dtypes.nbytes(s.buffer.dtype) * prod(const_shape(s.buffer))
            if size <= MAX_STACK_BUFFER_BYTES and stack + size <= MAX_STACK_BYTES:
                stack += size
            elif lent.setdefault(s.buffer.name, s.buffer) == s.buffer:
                return without(s.body)
        return map_statements(s, without)

    body = without(func.body)
    return func.with_(body=body, params=(*func.params, *lent.values()))
