"""Mathematical functions of several vectors at a time."""

from __future__ import annotations

from tir.intrinsics import INTRINSICS
from tir.ir import Call, Const, For, Kind, PrimFunc, Stmt, Store, seq
from tir.traverse import fresh, loads, map_statements, names, substitute, variables, walk, with_fresh_loops

from ..processor import fuses_multiply_add
from .contiguous import contiguous
from .memory_hints import with_steps

VECTORS = 4  # vectors computed at a time: two leave more latency, and the values of eight do not fit in registers


def interleave_functions(func: PrimFunc, target) -> PrimFunc:
    """Rewrite   for c in range(n): for v in vectorized(w): B[c * w + v] = exp(A[c * w + v])
              => for c in range(n // 4): for v in vectorized(4 * w): B[c * 4 * w + v] = exp(A[c * 4 * w + v])
                 for c in range(n % 4): for v in vectorized(w): B[(c + n // 4 * 4) * w + v] = ...

    where the body calls functions that are dependence chains of some twenty instructions: too long for a processor to start on
    the next vectors in time. LLVM writes an operation on four vectors as four independent instructions. Each element is computed
    as before.
    """
    taken = names(func)

    def visit(s: Stmt) -> Stmt:
        match s:
            case For(chunk, Const(int(n)), For(lane, Const(int(w)), Store() as body, Kind.VECTORIZED) as inner, kind) if (
                kind in (Kind.UNROLLED, Kind.SERIAL) and n > 1 and _waits(body, target) and _joins(body, s, inner)
            ):
                count = min(n, VECTORS) & -2
                wide, whole = lane.with_(name=fresh(taken, f"{lane.name}_wide")), n // count * count
                joined = For(wide, Const(count * w), substitute(body, {chunk: chunk * count, lane: wide}), Kind.VECTORIZED)
                pieces: list[Stmt] = [s.with_(extent=Const(whole // count), body=joined, annotations=with_steps(s, count))]
                if n > whole:
                    rest = s.with_(extent=Const(n - whole), body=substitute(inner, {chunk: chunk + whole}))
                    pieces.append(with_fresh_loops(rest, taken))
                return seq(*pieces)
            case _:
                return map_statements(s, visit)

    return func.with_(body=visit(func.body))


def _waits(s: Store, target) -> bool:
    """True where a store calls functions that become long chains of vector instructions."""
    from ..llvm.math import LIBRARY

    calls = [n for n in walk(s.value) if isinstance(n, Call)]
    if any(n.op in LIBRARY or (n.dtype == "float64" and not fuses_multiply_add(target.features)) for n in calls):
        return False
    return any(max(INTRINSICS[n.op].ulps) > 0.5 for n in calls)


def _joins(s: Store, vectors: For, lanes: For) -> bool:
    """True where consecutive vectors of a store are adjacent in the last dimension of each array."""
    others = [i for indices in (s.indices, *(x.indices for x in loads(s.value))) for i in indices[:-1]]
    return contiguous(s, (vectors, lanes)) and not variables(*others) & {vectors.name, lanes.name}
