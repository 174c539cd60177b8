"""Index maps: functions from indices to indices, from constructors, functions or text, and their inverses on a box."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from typing import Any

from tir.arith.bounds import extent_range
from tir.arith.intervals import Interval
from tir.arith.iter_map import lower_factors, split_variable
from tir.arith.polynomial import Polynomial, polynomial
from tir.arith.prove import prove
from tir.arith.simplify import simplify
from tir.arith.symbolic import is_one
from tir.ir import Binary, Const, Expr, PrimFunc, Var, as_index
from tir.script import ScriptError
from tir.script import tir as namespace
from tir.script.expressions import Expressions
from tir.script.printer import expr_text
from tir.script.source import Source
from tir.traverse import blocks, rewrite, substatements, substitute, variables

from ..error import ScheduleError
from .edits import Names


@dataclass(frozen=True, slots=True)
class IndexMap:
    """A function from indices to indices: `outputs` over the variables `inputs`.

    It is built from `identity` by `permute`, `tile` and `fuse`, each of which changes the outputs, or read from a function or its
    text: `IndexMap.identity(2).tile(0, 16).permute(0, 2, 1)` is `lambda i0, i1: (i0 // 16, i1, i0 % 16)`. The primitives that
    take an index map take all three; traces store the text.
    """

    inputs: tuple[Var, ...]
    outputs: tuple[Expr, ...]

    @staticmethod
    def identity(names: int | Iterable[str]) -> IndexMap:
        """The map of each index to itself; `names` are those of the indices, or their number."""
        inputs = tuple(Var(n) for n in ([f"i{n}" for n in range(names)] if isinstance(names, int) else names))
        return IndexMap(inputs, inputs)

    def permute(self, *order: int) -> IndexMap:
        """The outputs in another order: number `order[0]` first. Those of one value may be left out."""
        if len(set(order)) < len(order) or not set(order) <= set(range(len(self.outputs))):
            raise ScheduleError(f"an order is of different numbers from 0 to {len(self.outputs) - 1}, got {list(order)}")
        return IndexMap(self.inputs, tuple(self.outputs[n] for n in order))

    def tile(self, number: int, *factors: int) -> IndexMap:
        """Output `number` as `len(factors) + 1` outputs in its place: tiles, whose extents the factors are, outermost first."""
        self._need_outputs(number, 1)
        if any(f < 1 for f in factors):
            raise ScheduleError(f"factors must be at least 1, got {min(factors)}", hint="tile(0, 16)")
        rest, parts = self.outputs[number], []
        for factor in reversed(factors):
            parts.append(rest % factor)
            rest = rest // factor
        return IndexMap(self.inputs, (*self.outputs[:number], rest, *reversed(parts), *self.outputs[number + 1 :]))

    def fuse(self, number: int, *extents: int) -> IndexMap:
        """Output `number` and the `len(extents)` outputs after it as one, in which the last runs fastest; `extents` are those of
        the outputs after it."""
        self._need_outputs(number, len(extents) + 1)
        following = self.outputs[number + 1 : number + 1 + len(extents)]
        fused = reduce(lambda e, part: e * part[1] + part[0], zip(following, extents, strict=True), self.outputs[number])
        return IndexMap(self.inputs, (*self.outputs[:number], fused, *self.outputs[number + 1 + len(extents) :]))

    def _need_outputs(self, number: int, count: int) -> None:
        if not 0 <= number <= len(self.outputs) - count:
            raise ScheduleError(f"`{self}` has no outputs {number} to {number + count - 1}", hint="numbers start at 0")

    def __call__(self, indices: Sequence[Expr]) -> tuple[Expr, ...]:
        """The outputs for given indices."""
        table = {v.name: i for v, i in zip(self.inputs, indices, strict=True)}
        return tuple(substitute(e, table) for e in self.outputs)

    def __str__(self) -> str:
        names = ", ".join(v.name for v in self.inputs)
        results = [expr_text(e) for e in self.outputs]
        return f"lambda {names}: ({', '.join(results)}{',' if len(results) == 1 else ''})"


@dataclass(frozen=True, slots=True)
class Layout:
    """An index map on a box of given extents: the box `extents` that holds all places, and the way back.

    `inverse` are the old indices over the variables `places`; a place belongs to an old index if the `conditions` hold there,
    and is padding otherwise. `sources` says for each place which of the old variables it is made of.
    """

    places: tuple[Var, ...]
    extents: tuple[Expr, ...]
    inverse: tuple[Expr, ...]
    conditions: tuple[Expr, ...]
    sources: tuple[frozenset[str], ...]

    @property
    def ranges(self) -> dict[str, Interval]:
        return {v.name: extent_range(e) for v, e in zip(self.places, self.extents, strict=True)}


def index_map_text(index_map: IndexMap | Callable[..., Any] | str, rank: Callable[[], int]) -> str:
    """An index map as the text that traces hold. A function is called once, on variables, `rank()` of them if it takes `*i`."""
    if isinstance(index_map, (str, IndexMap)):
        return str(index_map)
    if not callable(index_map):
        raise ScheduleError(f"an index map is a function such as `lambda i, j: (j, i)`, or its text, got {index_map!r}")
    names: list[str] = []
    for p in inspect.signature(index_map).parameters.values():
        if p.kind is p.VAR_POSITIONAL:
            names += [f"{p.name}{n}" for n in range(rank() - len(names))]
        elif p.kind in (p.KEYWORD_ONLY, p.VAR_KEYWORD):
            raise ScheduleError(
                f"an index map takes indices in order, this one takes `{p.name}` by name", hint="lambda i, j: (j, i)"
            )
        else:
            names.append(p.name)
    inputs = tuple(Var(n) for n in names)
    try:
        return str(_from_outputs(inputs, index_map(*inputs)))
    except TypeError as error:
        raise ScheduleError(f"the index map cannot be applied to `{', '.join(names)}`: {error}") from None


def parse_index_map(text: str | IndexMap, rank: int) -> IndexMap:
    """The index map of a text such as `lambda i, j: (j, i)`; refuses what is none, or does not take `rank` indices."""
    if isinstance(text, IndexMap):
        return text
    try:
        tree = ast.parse(text, mode="eval").body
    except SyntaxError as error:
        raise ScheduleError(f"the index map {text!r} is not Python: {error.msg}", hint="lambda i, j: (j, i)") from None
    if not isinstance(tree, ast.Lambda) or tree.args.vararg or tree.args.kwonlyargs or tree.args.kwarg:
        raise ScheduleError(f"an index map is a function such as 'lambda i, j: (j, i)', got {text!r}")
    inputs = tuple(Var(a.arg) for a in (*tree.args.posonlyargs, *tree.args.args))
    if len(inputs) != rank:
        raise ScheduleError(
            f"the index map {text!r} takes {len(inputs)} indices, and there are {rank}",
            hint=f"lambda {', '.join(f'i{n}' for n in range(rank))}: ...",
        )
    evaluator = Expressions(Source("<index map>", (text,)), {"T": namespace}, live=False)
    evaluator.scope.names.update({v.name: v for v in inputs})
    evaluator.scope.variables.update(v.name for v in inputs)
    try:
        return _from_outputs(inputs, evaluator.value(tree.body))
    except (ScriptError, TypeError) as error:
        reason = error.reason if isinstance(error, ScriptError) else str(error)
        raise ScheduleError(f"the index map {text!r} cannot be evaluated: {reason}") from None


def _from_outputs(inputs: tuple[Var, ...], result: Any) -> IndexMap:
    outputs = tuple(as_index(e) for e in (result if isinstance(result, (tuple, list)) else (result,)))
    if not outputs:
        raise ScheduleError("the index map gives no index", hint="lambda i, j: (j, i)")
    return IndexMap(inputs, outputs)


def place_names(func: PrimFunc, names: Names, count: int) -> list[str]:
    """Names for the axes of a new block: those of blocks inside one another differ, so that none hides another."""
    nested = [[b, *inside] for b in blocks(func.body) if (inside := [x for s in substatements(b) for x in blocks(s)])]
    taken = {it.var.name for nest in nested for b in nest for it in b.iters}
    return [names.axis(f"v{n}", taken) for n in range(count)]


# --- inverses ------------------------------------------------------------------------------------------------------------


def invert(index_map: IndexMap, extents: Sequence[Expr], places: Sequence[str]) -> Layout:
    """The layout of a box under an index map, over variables called `places`; refuses a map that it cannot show to be one to one.

    Each index is read as a number, cut into digits where the map divides it by constants (a sum such as `i * 13 + j` of whole
    indices, j < 13, is first taken as one number). The map is one to one if every output is again a number made of such
    digits, and every digit occurs in one output. Where a cut does not divide the extent, the highest digit is rounded up: what
    that adds is padding.
    """
    sizes = {v.name: simplify(e) for v, e in zip(index_map.inputs, extents, strict=True)}
    outputs, fused = _flattened_sums(tuple(simplify(e) for e in index_map.outputs), sizes)
    parts = {name for terms in fused.values() for name, _ in terms}
    digits, numbers = _digits_of_indices({name: size for name, size in sizes.items() if name not in parts}, outputs)
    values, used, shape = _digits_from(index_map, outputs, digits, numbers, places, fused)

    ranges = {p: extent_range(e) for p, e in zip(places, shape, strict=True)}
    back = {name: simplify(substitute(e, values), ranges) for name, e in numbers.items()}
    rounded = {d.number: d.weight * d.count for d in digits.values()}  # by the highest digit, which comes last
    conditions = [back[name] < sizes[name] for name, size in rounded.items() if not prove(size.equal(sizes[name]), {})]
    for number, terms in fused.items():
        for part, digit in _digit_values(back[number], terms, sizes).items():
            back[part] = simplify(digit, ranges)
    sources: list[set[str]] = [set() for _ in shape]
    for name, position in used.items():
        number = digits[name].number
        sources[position].update([part for part, _ in fused[number]] if number in fused else [number])
    return Layout(
        tuple(Var(p) for p in places),
        tuple(shape),
        tuple(back[v.name] for v in index_map.inputs),
        tuple(c for c in conditions if not prove(c, ranges)),
        tuple(frozenset(s) for s in sources),
    )


Terms = list[tuple[str, int]]  # the variables of a sum that counts through them, lowest first, and their weights


def _mixed_radix(p: Polynomial, sizes: Mapping[str, Expr]) -> tuple[Terms, Expr] | None:
    """The terms of a sum, and how many values it has; None unless each weighs as much as those below it have values."""
    terms: Terms = []
    reach: Expr = Const(1)
    for monomial, weight in sorted(p.items(), key=lambda term: term[1]):
        match monomial:
            case (Var(name),) if name in sizes and reach == Const(weight):
                terms.append((name, weight))
                reach = simplify(reach * sizes[name])
            case _:
                return None
    return terms, reach


def _digit_values(number: Expr, terms: Terms, sizes: Mapping[str, Expr]) -> dict[str, Expr]:
    """Each variable of a sum from its value."""
    found: dict[str, Expr] = {}
    for name, weight in terms:
        quotient = number if is_one(weight) else number // weight
        found[name] = quotient if name == terms[-1][0] else quotient % sizes[name]
    return found


@dataclass(frozen=True, slots=True)
class _Digit:
    """A part of an index: the number it belongs to, its weight there, and how many values it has."""

    number: str
    weight: int
    count: Expr


def _digits_of_indices(sizes: Mapping[str, Expr], outputs: Sequence[Expr]) -> tuple[dict[str, _Digit], dict[str, Expr]]:
    """Numbers cut into digits where the outputs divide them: the digits by name, and the numbers in terms of them."""
    digits: dict[str, _Digit] = {}
    numbers: dict[str, Expr] = {}
    weights = lower_factors(outputs)
    for name, size in sizes.items():
        edges = [1, *weights.get(name, ())]
        strange = next(((a, b) for a, b in pairwise(edges) if b % a), None)
        if strange is not None:
            raise ScheduleError(
                f"the index map divides `{name}` by {strange[0]} and {strange[1]}, neither a multiple of the other",
                hint=f"cut `{name}` at numbers each a multiple of the one before, as 4 and 8",
            )
        top = simplify((size + (edges[-1] - 1)) // edges[-1])
        counts: list[Expr] = [*(Const(b // a, size.dtype) for a, b in pairwise(edges)), top]
        parts, numbers[name] = split_variable(Var(name), edges)
        for digit, weight, count in zip(parts, edges, counts, strict=True):
            digits[digit.name] = _Digit(name, weight, count)
    return digits, numbers


def _digits_from(
    index_map: IndexMap,
    outputs: Sequence[Expr],
    digits: Mapping[str, _Digit],
    numbers: Mapping[str, Expr],
    places: Sequence[str],
    fused: Mapping[str, Terms],
) -> tuple[dict[str, Expr], dict[str, int], list[Expr]]:
    """Each digit in terms of the places, the number of the output that it occurs in, and the extents of the outputs.

    Refuses unless each output is a number made of digits, and each digit of more than one value occurs in one output.
    """
    counts = {name: d.count for name, d in digits.items()}
    ranges = {name: extent_range(count) for name, count in counts.items()}
    values: dict[str, Expr] = {name: Const(0) for name in digits}
    used: dict[str, int] = {}
    shape: list[Expr] = []
    for position, (place, e) in enumerate(zip(places, outputs, strict=True)):
        counted = _mixed_radix(polynomial(simplify(substitute(e, numbers), ranges)), counts)
        if counted is None:
            output = expr_text(index_map.outputs[position])
            raise _unproved(f"`{output}` is not a number made of indices, their quotients and remainders")
        terms, reach = counted
        for name, _ in terms:
            if name in used:
                raise _not_one_to_one(digits[name].number, "occurs twice in", fused)
            used[name] = position
        values |= _digit_values(Var(place), terms, counts)
        shape.append(reach)
    for name, d in digits.items():
        if name not in used and d.count != Const(1, d.count.dtype):
            raise _not_one_to_one(d.number, "is missing from", fused)
    return values, used, shape


def _flattened_sums(outputs: tuple[Expr, ...], sizes: dict[str, Expr]) -> tuple[tuple[Expr, ...], dict[str, Terms]]:
    """The outputs with each sum under `//` and `%` made one variable, and the terms of each such number.

    `sizes` gets the extents of the new numbers.
    """
    fused: dict[str, Terms] = {}
    known: dict[frozenset, str] = {}
    constants = {name: size for name, size in sizes.items() if type(size) is Const}

    def visit(n):
        match n:
            case Binary("//" | "%" as op, Binary("+" | "-" | "*") as a, Const()) if variables(a):
                p = polynomial(a)
                key = frozenset(p.items())
                if key not in known:
                    counted = _mixed_radix(p, constants)
                    if counted is None:
                        raise _unproved(f"`{expr_text(a)}` does not count through its indices")
                    known[key] = number = f"sum{len(known)}"
                    fused[number], sizes[number] = counted
                return Binary(op, Var(known[key]), n.b)
        return None

    results = tuple(rewrite(e, visit) for e in outputs)
    parts = [name for terms in fused.values() for name, _ in terms]
    left = set().union(*(variables(e) for e in results), set())
    if len(parts) != len(set(parts)) or left & set(parts):
        twice = next(p for p in parts if p in left or parts.count(p) > 1)
        raise _unproved(f"`{twice}` occurs in a sum and elsewhere too")
    return results, fused


def _unproved(reason: str) -> ScheduleError:
    hint = "an index goes whole or cut by constants: lambda i, j: (i // 4, j, i % 4)"
    return ScheduleError(f"the index map cannot be shown to be one to one: {reason}", hint=hint)


def _not_one_to_one(number: str, how: str, fused: Mapping[str, Terms]) -> ScheduleError:
    what = "a part of a sum" if number in fused else f"`{number}`, or a part of it,"
    return ScheduleError(
        f"the index map is not one to one: {what} {how} the result", hint="each index, or each part of it, occurs once"
    )
