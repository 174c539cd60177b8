"""The sample_* primitives: random choices, kept in the trace.

Each returns the chosen value and a decision that repeats the choice; a schedule returns the first and records the second. A given
decision replaces the random draw. Steps that take a drawn value refer to it, so they follow another decision in a replay.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from tir.ir import Const, PrimFunc

from ...error import ScheduleError
from ...legality.dataflow import locate
from ...primitive import BlockName, Decision, LoopName, Randomness, constant_extent, find_loop, primitive
from ...rewriting.placement import INLINE, ROOT
from ..placement.compute_at import compute_at
from ..placement.compute_inline import compute_inline
from ..placement.reverse_compute_at import reverse_compute_at

MAX_FACTORS = 100  # of a loop; `_ways` recurses as deep


@primitive
def sample_perfect_tile(
    func: PrimFunc,
    loop: LoopName,
    n: int,
    max_innermost_factor: int = 16,
    decision: Decision[list[int | None]] = None,
    rng: Randomness = None,
) -> tuple[PrimFunc, tuple[list[int | None], list[int | None]]]:
    """Choose factors for `split` whose product is the extent of a loop; returns `n` integers, outermost first.

    All such lists whose last factor is at most `max_innermost_factor` (no limit for -1, nor for n = 1) are equally likely. For a
    symbolic extent the first is None, which `split` infers, and all others are 1. A given `decision` is returned in place of a
    random choice. Source: MetaSchedule, NeurIPS 2022.

    Rewrite   none: the function stays as it is.
    Legal     if n is at least 1. A given decision must be such a list.
    Example   matmul: s.split("j", s.sample_perfect_tile("j", 2, decision=[13, 1]))
    """
    if type(find_loop(func, loop).extent) is not Const:
        only: list[int | None] = [None, *[1] * (_positive(n) - 1)]
        if decision is not None and decision != only:
            raise ScheduleError(f"the extent of `{loop}` is symbolic, so the decision can only be {only}, got {decision}")
        return func, (only, only)
    extent, limit = _extent_and_limit(func, loop, n, max_innermost_factor)
    if decision is not None:
        known = _need_product(decision, n, loop, extent)
        _need_innermost_within(known, limit, max_innermost_factor)
        return func, (decision, decision)
    factors: list[int | None] = [*_perfect_factors(extent, n, limit, _generator(rng))]
    return func, (factors, factors)


@primitive
def sample_partitioned_tile(
    func: PrimFunc,
    loop: LoopName,
    n: int,
    partition_pos: int = 0,
    innerpart_factor: int = 1,
    decision: Decision[list[int]] = None,
    rng: Randomness = None,
) -> tuple[PrimFunc, tuple[list[int], list[int]]]:
    """Choose factors for `split` whose product is the extent of a loop; returns `n` integers, outermost first.

    The product of those from number `partition_pos` on is a multiple of `innerpart_factor`. All such lists are equally likely. A
    `decision` is used as for `sample_perfect_tile`.

    Rewrite   none: the function stays as it is.
    Legal     if the extent is a constant, n at least 1, and `partition_pos` from 0 to n. `innerpart_factor` divides the extent,
              and is 1 if `partition_pos` is n. A given decision must be such a list.
    Example   matmul: s.split("j", s.sample_partitioned_tile("j", 3, 1, 13, decision=[1, 13, 1]))
    """
    extent = _sampled_extent(func, loop)
    if not 0 <= partition_pos <= _positive(n):
        raise ScheduleError(f"`partition_pos` must be from 0 to {n}, got {partition_pos}")
    if innerpart_factor < 1 or extent % innerpart_factor or (partition_pos == n and innerpart_factor != 1):
        of = f"of the {extent} iterations of `{loop}`" if partition_pos < n else "of 1, the product of no factors"
        raise ScheduleError(f"`innerpart_factor` must be a divisor {of}, got {innerpart_factor}")
    if decision is not None:
        _need_product(decision, n, loop, extent)
        if math.prod(decision[partition_pos:]) % innerpart_factor:
            raise ScheduleError(
                f"in the decision {decision} the product of {decision[partition_pos:]} is no multiple of {innerpart_factor}"
            )
        return func, (decision, decision)
    draw, outer = _generator(rng), partition_pos
    products = [p for p in _divisors(extent) if p % innerpart_factor == 0]
    weights = np.array([_ways(extent // p, outer) * _ways(p, n - outer) for p in products], dtype=float)
    inner = products[int(draw.choice(len(products), p=weights / weights.sum()))]
    factors = [*_perfect_factors(extent // inner, outer, extent, draw), *_perfect_factors(inner, n - outer, extent, draw)]
    return func, (factors, factors)


@lru_cache(4096)
def _divisors(extent: int) -> tuple[int, ...]:
    return tuple(d for d in range(1, extent + 1) if extent % d == 0)


@lru_cache(4096)
def _ways(rest: int, count: int) -> int:
    """The number of ways to write `rest` as a product of `count` factors."""
    if count <= 1:
        return int(count == 1 or rest == 1)
    return sum(_ways(rest // d, count - 1) for d in _divisors(rest))


def _perfect_factors(extent: int, n: int, limit: int, draw: np.random.Generator) -> list[int]:
    """`n` factors of an extent, the last at most `limit`; all such lists are equally likely."""

    def factor(rest: int, count: int) -> int:
        options = [d for d in _divisors(rest) if count < n or d <= limit]
        weights = np.array([_ways(rest // d, count - 1) for d in options], dtype=float)
        return options[int(draw.choice(len(options), p=weights / weights.sum()))]

    return _sample_factors(extent, n, factor) if n else []


def _need_product(decision: list[int] | list[int | None], n: int, loop: str, extent: int) -> list[int]:
    """A decision of `n` factors whose product is the extent of a loop; refuses any other."""
    known = _need_factors(decision, n, loop)
    if math.prod(known) != extent:
        raise ScheduleError(f"the decision {decision} has the product {math.prod(known)}, but `{loop}` has {extent} iterations")
    return known


@primitive
def sample_tile(
    func: PrimFunc,
    loop: LoopName,
    n: int,
    max_innermost_factor: int = 16,
    decision: Decision[list[int]] = None,
    rng: Randomness = None,
) -> tuple[PrimFunc, tuple[list[int], list[int]]]:
    """Choose factors for `split` that need not divide the extent of a loop; returns `n` integers, outermost first.

    From the innermost on, each factor is drawn with a uniform logarithm from 1 to the remaining extent. The innermost is at most
    `max_innermost_factor` (-1 is no limit). The outermost is the remaining extent, rounded up. A `decision` is used as for
    `sample_perfect_tile`.

    Rewrite   none: the function stays as it is.
    Legal     if the extent is a constant and n at least 1. A given decision has n factors, each at least 1. The first must be the
              extent divided by the product of the others, rounded up. The last is at most `max_innermost_factor`, unless n is 1.
    Example   matmul: s.split("j", s.sample_tile("j", 2, decision=[4, 4]))
    """
    extent, limit = _extent_and_limit(func, loop, n, max_innermost_factor)
    if decision is not None:
        _need_factors(decision, n, loop)
        inner = math.prod(decision[1:])
        if decision[0] != -(-extent // inner):
            raise ScheduleError(
                f"in the decision {decision}, {decision[0]} times {inner} iterations do not just cover the {extent} of `{loop}`",
                hint=f"the first factor must be {-(-extent // inner)}",
            )
        return func, (_need_innermost_within(decision, limit, max_innermost_factor), decision)
    draw = _generator(rng)

    def factor(rest: int, count: int) -> int:
        most = min(rest, limit) if count == n else rest
        return min(most, int(math.exp(draw.uniform(0.0, math.log(most + 1)))))

    factors = _sample_factors(extent, n, factor)
    return func, (factors, factors)


@primitive
def sample_categorical(
    func: PrimFunc, candidates: list[Any], probs: list[float], decision: Decision[int] = None, rng: Randomness = None
) -> tuple[PrimFunc, tuple[Any, int]]:
    """Choose one of several values (JSON data) with the given probabilities; returns it. The decision is its number, from 0.

    A `decision` is used as for `sample_perfect_tile`. Source: MetaSchedule, NeurIPS 2022.

    Rewrite   none: the function stays as it is.
    Legal     if there is a candidate, and as many probabilities, none negative, of the sum 1 (up to rounding).
    Example   matmul: s.annotate("i", "unroll", s.sample_categorical([0, 16, 64], [0.2, 0.4, 0.4], decision=1))
    """
    if not candidates:
        raise ScheduleError("at least one candidate is needed")
    if len(candidates) != len(probs):
        raise ScheduleError(f"there are {len(candidates)} candidates, but {len(probs)} probabilities")
    if any(p < 0 for p in probs) or not math.isclose(sum(probs), 1.0, abs_tol=len(probs) * 1e-6):
        raise ScheduleError(f"probabilities are at least 0 and add up to 1, got {probs} (sum {sum(probs):g})")
    if decision is None:
        weights = np.array(probs, dtype=float)
        decision = int(_generator(rng).choice(len(candidates), p=weights / weights.sum()))
    elif not 0 <= decision < len(candidates):
        raise ScheduleError(f"the decision must be a number from 0 to {len(candidates) - 1}, got {decision}")
    return func, (candidates[decision], decision)


@primitive
def sample_compute_location(
    func: PrimFunc, block: BlockName, decision: Decision[int] = None, rng: Randomness = None
) -> tuple[PrimFunc, tuple[str, int]]:
    """Choose a place for a block; returns a loop for `compute_at` (`reverse_compute_at` if nothing reads it).

    It may also return "root", to leave the block where it is, or "inline". All legal places are equally likely. The decision is
    -1 for the root, -2 for inline, or the number of a loop around the first consumer (or last producer), outermost 0. It is used
    as for `sample_perfect_tile`. Source: MetaSchedule, NeurIPS 2022.

    Rewrite   none: the function stays as it is.
    Legal     always. A given decision must be one of the possible places.
    Example   chain: s.compute_at("B", s.sample_compute_location("B", decision=0))
    """
    places = compute_locations(func, block)
    if decision is None:
        decision = list(places)[int(_generator(rng).integers(len(places)))]
    elif decision not in places:
        possible = ", ".join(f"{number} ({place})" for number, place in places.items())
        raise ScheduleError(f"`{block}` cannot be computed at place {decision}; possible are {possible}")
    return func, (places[decision], decision)


def compute_locations(func: PrimFunc, block: str) -> dict[int, str]:
    """The legal places of a block, by the decision of `sample_compute_location`."""
    scope, moved = locate(func, block)
    target = moved.block
    consumers = [c for c in scope.leaves if c is not moved and c.reads & moved.writes]
    producers = [p for p in scope.leaves if p is not moved and p.writes & moved.reads]
    places = {-1: ROOT}
    if consumers and _possible(lambda: compute_inline(func, target.name)):
        places[-2] = INLINE
    if consumers:
        loops, move = consumers[0].loops, compute_at
    else:
        loops, move = (producers[-1].loops if producers else ()), reverse_compute_at
    for number, loop in enumerate(loops):
        if _possible(lambda name=loop.name: move(func, block, name)):
            places[number] = loop.name
    return places


def _possible(call) -> bool:
    try:
        call()
    except ScheduleError:
        return False
    return True


def _sampled_extent(func: PrimFunc, loop: str) -> int:
    found = find_loop(func, loop)
    extent = int(constant_extent(found))
    if extent == 0:
        raise ScheduleError(f"`{loop}` has no iterations to divide", (found, "runs over 0"), hint="drop_empty() leaves it out")
    return extent


def _extent_and_limit(func: PrimFunc, loop: str, n: int, max_innermost_factor: int) -> tuple[int, int]:
    """The extent of a loop, and the limit of the innermost of its `n` factors."""
    extent = _sampled_extent(func, loop)
    _positive(n)
    if max_innermost_factor < 1 and max_innermost_factor != -1:
        raise ScheduleError(f"`max_innermost_factor` must be at least 1, or -1 for no limit, got {max_innermost_factor}")
    return extent, extent if max_innermost_factor == -1 or n == 1 else max_innermost_factor


def _sample_factors(extent: int, n: int, factor: Callable[[int, int], int]) -> list[int]:
    """`n` factors that cover an extent, outermost first; `factor(rest, count)` draws them from the innermost on."""
    factors: list[int] = []
    for count in range(n, 1, -1):
        factors.append(factor(extent, count))
        extent = -(-extent // factors[-1])
    return [extent, *reversed(factors)]


def _need_innermost_within(decision: list[int], limit: int, max_innermost_factor: int) -> list[int]:
    """A decision whose last factor is at most the limit; refuses any other."""
    if decision[-1] > limit:
        raise ScheduleError(f"the innermost factor {decision[-1]} is more than `max_innermost_factor`, {max_innermost_factor}")
    return decision


def _need_factors(decision: list[int] | list[int | None], n: int, loop: str) -> list[int]:
    known = [f for f in decision if f is not None and f >= 1]
    if len(decision) != n or len(known) != n:
        raise ScheduleError(f"a decision for `{loop}` is a list of {n} integers of at least 1, got {decision}")
    return known


def _positive(n: int) -> int:
    if n < 1:
        raise ScheduleError(f"`n` must be at least 1, got {n}")
    if n > MAX_FACTORS:
        raise ScheduleError(f"`n` must be at most {MAX_FACTORS}, got {n}")
    return n


def _generator(rng: np.random.Generator | None) -> np.random.Generator:
    if rng is None:
        raise ScheduleError(
            "a choice at random needs a source of randomness, or a decision",
            hint="Schedule(func, seed=0), or rng=np.random.default_rng(0); in a space, a branch",
        )
    return rng
