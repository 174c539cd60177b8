"""Functions that are exact on small integers: no order of additions and multiplications rounds a result. On such data a correct
candidate has the results of the reference bit by bit, so one lost term of a million is seen."""

from __future__ import annotations

from math import inf, prod

from tir import dtypes
from tir.ir import Binary, Block, Call, Cast, Const, Expr, Load, PrimFunc, Select, Store, Unary, annotation, as_int
from tir.traverse import blocks, stored_names, stores, walk

MAGNITUDES = (8, 3, 1)  # bounds of the integers in inputs; with larger ones more terms differ


def largest_integers(func: PrimFunc) -> int | None:
    """The largest n of MAGNITUDES for which a function is exact on floats that are integers from -n to n, or None. Exact means
    that each number of its operations, regrouped in any way, is an integer that its type holds. None, too, if no float is
    stored."""
    if not any(dtypes.is_float(s.buffer.dtype) for s in stores(func.body)):
        return None
    return next((n for n in MAGNITUDES if _exact(func, n)), None)


def _exact(func: PrimFunc, n: int) -> bool:
    largest: dict[str, float] = {b.name: n for b in func.buffers if dtypes.is_float(b.dtype)}
    for name in stored_names(func.body):
        largest.pop(name, None)  # the values of an output before the call
    found = blocks(func.body)
    if any(annotation(b.annotations, "tf32", False) for b in found) or len(stores(func.body)) != len(found) + sum(
        b.init is not None for b in found
    ):
        return False
    for block in found:
        store = block.body
        if not isinstance(store, Store) or store.buffer.name in largest:
            return False
        value = _stored(block, store, largest)
        if value == inf:
            return False
        largest[store.buffer.name] = value
    return True


def _stored(block: Block, store: Store, largest: dict[str, float]) -> float:
    """A bound of the magnitudes that a block stores; infinite if they may be rounded."""
    if not dtypes.is_float(store.buffer.dtype):
        return inf
    if block.init is None:
        return _magnitude_bound(store.value, largest)
    times = prod(as_int(it.extent) for it in block.reduction)
    match store.value, block.init:
        case Binary("+", Load() as own, term), Store(_, _, Const(0)) if _is_own(own, store):
            return _if_representable(times * _magnitude_bound(term, largest), store.buffer.dtype)
        case Binary("max" | "min", Load() as own, term), Store() if _is_own(own, store):
            return _magnitude_bound(term, largest)
    return inf


def _is_own(load: Load, store: Store) -> bool:
    return load.buffer.name == store.buffer.name and load.indices == store.indices


def _magnitude_bound(e: Expr, largest: dict[str, float]) -> float:
    """A bound of the magnitude of a float expression; infinite if it may be rounded."""
    if not dtypes.is_float(e.dtype):
        return inf
    match e:
        case Const(value):
            most = abs(value) if float(value).is_integer() else inf
        case Load(buffer):
            most = largest.get(buffer.name, inf)
        case Binary("+" | "-", a, b):
            most = _magnitude_bound(a, largest) + _magnitude_bound(b, largest)
        case Binary("*", a, b):
            factors = _magnitude_bound(a, largest), _magnitude_bound(b, largest)
            most = inf if inf in factors else prod(factors)
        case Binary("max" | "min", a, b):
            most = max(_magnitude_bound(a, largest), _magnitude_bound(b, largest))
        case Select(condition, a, b):
            compared = [x for c in walk(condition) if isinstance(c, Binary) for x in (c.a, c.b) if dtypes.is_float(x.dtype)]
            most = max(_magnitude_bound(x, largest) for x in (a, b, *compared))
        case Unary("neg", a) | Cast(_, a) | Call("abs", (a,)):
            most = _magnitude_bound(a, largest)
        case _:
            most = inf
    return _if_representable(most, e.dtype)


def _if_representable(most: float, dtype: str) -> float:
    """The bound, or infinity if it exceeds the integers that a float type holds exactly."""
    return most if most <= 2 / dtypes.TABLE[dtype].eps else inf
