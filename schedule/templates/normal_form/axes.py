"""The normal form of axes: none counts backwards, is divided, or is a digit of a number together with another. Axes of one
iteration that hide the axis along memory are dropped."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice, pairwise, permutations

from schedule.open_schedule import OpenSchedule, extent, is_spatial, lane_bits
from schedule.rewriting.index_map import IndexMap
from tir.arith.bounds import ranges_of, without_units
from tir.arith.mixed_radix import lower_factors, split_variable
from tir.arith.polynomial import Polynomial, linear, polynomial
from tir.arith.simplify import simplify
from tir.ir import Binary, Block, Const, Expr, Iter, Load, Store, Var
from tir.traverse import divisions, loads, substitute, variables, walk

from ..block_analysis import address, regular, stored

MAX_STEPS = 16  # changes of the axes of one block
MIN_MEMBERS = 3  # least output channels of a group that fill registers better than rows of each channel by itself


def plain_axes(s: OpenSchedule, block: str) -> None:
    """Change the axes of a block, one after the other, until their accesses are as plain as they get."""
    for _ in range(MAX_STEPS):
        b = s.block(block)
        if not isinstance(b.body, Store) or not regular(b):
            return
        index_map = next((m for change in (reversed_axes, split, fused, dropped) if (m := change(s, b)) is not None), None)
        if index_map is None or not s.attempt(OpenSchedule.transform_block_layout, block, index_map, True):
            return


def reversed_axes(s: OpenSchedule, b: Block) -> IndexMap | None:
    """The index map that reverses the axes that count backwards in all indices of one axis alone. For an axis in a sum that is
    divided, as in transposed convolutions, its sign there decides."""
    alone: dict[str, set[bool]] = {}
    divided: dict[str, set[bool]] = {}
    for p in map(polynomial, _indices(b)):
        if (found := linear(p)) is not None:
            alone.setdefault(found[0], set()).add(found[1] < 0)
    for divided_sum in (p for i in _indices(b) for p in islice(_sums(i), 1, None)):
        for monomial, coefficient in divided_sum.items():
            match monomial:
                case (Var(name),):
                    divided.setdefault(name, set()).add(coefficient < 0)
    names = [name for name, backwards in (alone | divided).items() if backwards == {True}]
    return _axis_map(b, lambda it: [extent(it) - 1 - it.var] if it.var.name in names else [it.var]) if names else None


def split(s: OpenSchedule, b: Block) -> IndexMap | None:
    """The index map that splits the first axis that is divided by constants where it is read. It stays whole where no address
    divides it. So it does in an elementwise block that keeps the order of its parts in parameters, if vectors along it have the
    same parts each."""
    indices = [i for x in _accesses(b) for i in x.indices]
    divisors = lower_factors(part for i in indices for part in _first_parts(i))
    parameters = {p.name for p in s.func.buffers}
    for it in b.iters:
        if not any(it.var.name in _divided(address(b, x)) for x in _accesses(b)):
            continue
        own = stored(b).buffer.name
        places = [x for x in _accesses(b) if x.buffer.name != own and it.var.name in variables(*x.indices)]
        for factors in _divisor_lists(divisors.get(it.var.name, []), extent(it)):
            alone = b.is_reduction and is_spatial(it) and not _is_group_axis(b, it)
            if not all(_parts_apart(i, it, factors, alone) for x in places for i in x.indices):
                continue
            across = stored(b).indices[-1:] == (it.var,) and not _fill_vectors(s, b, factors)
            made = any(x.buffer.name not in parameters and it.var.name in _divided(address(b, x)) for x in places)
            if b.is_reduction or made or across or any(_swaps_strides(b, x, it, factors) for x in places):
                tiles = [n // m for m, n in pairwise(factors)][::-1]
                return IndexMap.identity([x.var.name for x in b.iters]).tile(b.iters.index(it), *tiles)
    return None


def _is_group_axis(b: Block, it: Iter) -> bool:
    """True where an axis of the result, not the last, says by its quotient which group of channels a convolution sums."""
    if stored(b).indices[-1:] == (it.var,):
        return False
    summed = {r.var for r in b.iters if not is_spatial(r) and extent(r) > 1}
    for p in map(polynomial, _indices(b)):
        alone = [m[0] for m in p if len(m) == 1]
        for atom in alone:
            match atom:
                case Binary("//", it.var, Const(each)) if each >= MIN_MEMBERS and not summed.isdisjoint(alone):
                    return True
    return False


def _divisor_lists(divisors: list[int], length: int) -> Iterator[list[int]]:
    """The lists of divisors by which an axis may be split, 1 in front: all of them, or all but one."""
    for left_out in (None, *divisors):
        factors = [1, *(n for n in divisors if n != left_out)]
        if len(factors) > 1 and factors[-1] < length and all(n % m == 0 for m, n in pairwise([*factors, length])):
            yield factors


def _first_parts(e: Expr) -> Iterator[Expr]:
    """The quotients and remainders of axes in an index, without those that are taken of a remainder."""
    for n in walk(e):
        match n:
            case Binary("//" | "%", a, Const()) if not any(isinstance(x, Binary) and x.op == "%" for x in walk(a)):
                yield n


def _divided(e: Expr) -> set[str]:
    """The axes that an expression divides into parts."""
    return variables(*divisions(e))


def _parts_apart(index: Expr, it: Iter, factors: list[int], alone: bool) -> bool:
    """True where an index has an axis in multiples of its parts alone, and, with `alone` or divided, one part at most."""
    if it.var.name not in variables(index):
        return True
    replaced, mine = _in_parts(index, it, factors)
    found = [_plain_terms(p, mine) for p in _sums(replaced)]
    return all(terms is not None and (len(terms) <= 1 or (n == 0 and not alone)) for n, terms in enumerate(found))


def _fill_vectors(s: OpenSchedule, b: Block, factors: list[int]) -> bool:
    """True where each factor of a split is a multiple of the lanes of a vector, or divides them."""
    lanes = s.target.machine.lanes(lane_bits(b))
    return all(n % lanes == 0 or lanes % n == 0 for n in factors)


def _swaps_strides(b: Block, x: Load | Store, it: Iter, factors: list[int]) -> bool:
    """True where a low part of an axis has a larger stride in memory than the next higher part."""
    replaced, mine = _in_parts(address(b, x), it, factors)
    terms = _plain_terms(polynomial(replaced), mine) or {}
    distances = [terms[name] for name in sorted(terms)]
    return any(low > high > 0 for low, high in pairwise(distances))


def _in_parts(e: Expr, it: Iter, factors: list[int]) -> tuple[Expr, set[str]]:
    """An expression over the parts of an axis, split by `factors`, and the names of these parts."""
    parts, whole = split_variable(it.var, factors)
    ranges = {part.name: (0, b // a - 1) for part, (a, b) in zip(parts, pairwise([*factors, extent(it)]), strict=True)}
    return simplify(substitute(e, {it.var: whole}), ranges), {*ranges}


def _sums(e: Expr) -> Iterator[Polynomial]:
    """The polynomials of an index and of all dividends in it, the index first."""
    p = polynomial(e)
    yield p
    for n in {a for monomial in p for a in monomial if isinstance(a, Binary) and a.op in ("//", "%")}:
        yield from _sums(n.a)


def _plain_terms(p: Polynomial, names: set[str]) -> dict[str, int] | None:
    """The coefficients of some variables in a sum; None where it has one in another kind of term, but for dividends."""
    found: dict[str, int] = {}
    for monomial, coefficient in p.items():
        match monomial:
            case (Var(name),) if name in names:
                found[name] = coefficient
            case (Binary("//" | "%", _, Const()),):
                pass
            case _ if any(not names.isdisjoint(variables(a)) for a in monomial):
                return None
    return found


def fused(s: OpenSchedule, b: Block) -> IndexMap | None:
    """The index map that fuses the first two axes that occur only as the digits of one number."""
    places = [i for x in _accesses(b) for i in x.indices]
    for outer, inner in permutations(b.iters, 2):
        if is_spatial(outer) is not is_spatial(inner) or extent(outer) == 1 or extent(inner) == 1:
            continue
        if all(_only_digits(i, outer, inner) for i in places) and not _used_elsewhere(b, {outer.var.name, inner.var.name}):
            number = outer.var * extent(inner) + inner.var
            return _axis_map(b, lambda it: [number] if it is outer else [] if it is inner else [it.var])  # noqa: B023
    return None


def _only_digits(index: Expr, outer: Iter, inner: Iter) -> bool:
    """True where an index has two axes only as the digits of one number, times a factor, or not at all."""
    low, high = inner.var.name, outer.var.name
    for p in _sums(index):
        found = _plain_terms(p, {low, high})
        if found is None or (found and (low not in found or found.get(high) != found[low] * extent(inner))):
            return False
    return True


def _used_elsewhere(b: Block, names: set[str]) -> bool:
    """True where axes occur outside of the indices of accesses."""

    def count(node) -> int:
        return sum(isinstance(n, Var) and n.name in names for n in walk(node))

    inside = sum(count(i) for x in _accesses(b, once=False) for i in x.indices)
    return count(b.body) != inside


def dropped(s: OpenSchedule, b: Block) -> IndexMap | None:
    """The index map without some axes of one iteration; None if there are none. They are the last indices of an access, and in no
    sum of axes; or reduction axes that some operand lacks. A reduction keeps a reduction axis, and a block an axis."""
    units = {it.var.name for it in b.iters if extent(it) == 1}
    indices = [i for x in _accesses(b) for i in x.indices]
    summed = {v for i in indices if not isinstance(i, Var) for v in variables(i)}
    last = {name for x in _accesses(b) for name in _last_units(x, units)} - summed
    if any(len({it.axis for it in b.iters if it.var.name in variables(i)}) > 1 for i in indices):  # channels of convolutions
        last -= {name for name in last if all(name in variables(*x.indices) for x in _accesses(b))}
    read = [variables(*x.indices) for x in _accesses(b) if x.buffer.name != stored(b).buffer.name]
    last |= {
        it.var.name for it in b.iters if it.var.name in units and not is_spatial(it) and not all(it.var.name in r for r in read)
    }
    kept = [it for it in b.iters if it.var.name not in last]
    if not last or not kept or (b.is_reduction and all(map(is_spatial, kept))):
        return None
    return _axis_map(b, lambda it: [] if it.var.name in last else [it.var])


def _last_units(x: Load | Store, units: set[str]) -> Iterator[str]:
    """The axes of `units` that are the last indices of an access, behind others."""
    found = []
    for i in reversed(x.indices):
        if isinstance(i, Var) and i.name in units:
            found.append(i.name)
        elif not isinstance(i, Const):
            yield from found
            return


def _axis_map(b: Block, outputs: Callable[[Iter], Iterable[Expr]]) -> IndexMap:
    """The index map from the axes of a block to the `outputs` of each, in order."""
    return IndexMap(tuple(it.var for it in b.iters), tuple(e for it in b.iters for e in outputs(it)))


def _accesses(b: Block, once: bool = True) -> list[Load | Store]:
    """The accesses of a block, the written one first: each once, or all of them."""
    found: list[Load | Store] = [stored(b), *loads(b.body)]
    written = Load(stored(b).buffer, stored(b).indices)
    return [x for x in dict.fromkeys(found) if x != written] if once else found


def _indices(b: Block) -> list[Expr]:
    """The simplified indices of all accesses of a block."""
    ranges = without_units(ranges_of([b]))
    return [simplify(i, ranges) for x in _accesses(b) for i in x.indices]
