"""Index maps: functions from indices to indices, from constructors, functions or text, and their inverses on a box."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import pairwise
from typing import Annotated, Any, ClassVar

from tir.arith.bounds import extent_range
from tir.arith.intervals import Interval
from tir.arith.mixed_radix import Terms, lower_factors, mixed_radix, split_variable, values_of_terms
from tir.arith.polynomial import polynomial
from tir.arith.prove import prove
from tir.arith.simplify import simplify
from tir.ir import Binary, Const, Expr, PrimFunc, Var, are_axis_separators, as_index, is_script_name
from tir.script import ScriptError
from tir.script import tir as namespace
from tir.script.expressions import Expressions
from tir.script.printer import expr_text
from tir.script.source import Source, python_tree
from tir.traverse import blocks, rewrite, substatements, substitute, variables

from ..error import ScheduleError
from ..primitive import ArgumentKind
from .edits import Names

INDEX_MAP = "the index map"


@dataclass(frozen=True, slots=True)
class IndexMap:
    """A function from indices to indices: `outputs` over the variables `inputs`.

    It is built from `identity` by `permute`, `tile` and `fuse` of the outputs, or read from a function or its text. For example,
    `IndexMap.identity(2).tile(0, 16).permute(0, 2, 1)` is `lambda i0, i1: (i0 // 16, i1, i0 % 16)`. Primitives accept all three;
    traces store the text. `AXIS_SEPARATOR` among the outputs begins a new group of dimensions, as for `set_axis_separator`;
    `separators` are their numbers.
    """

    AXIS_SEPARATOR: ClassVar[str] = "axis separator"

    inputs: tuple[Var, ...]
    outputs: tuple[Expr, ...]
    separators: tuple[int, ...] = ()

    @staticmethod
    def identity(names: int | Iterable[str]) -> IndexMap:
        """The map of each index to itself; `names` are the names of the indices, or their number."""
        given = [f"i{n}" for n in range(names)] if isinstance(names, int) else list(names)
        if not given or len(set(given)) < len(given) or not all(isinstance(n, str) and is_script_name(n) for n in given):
            reason = f"an index map has at least one index, each with a name of its own, got {names!r}"
            raise ScheduleError(reason, hint='IndexMap.identity(2), or IndexMap.identity(["i", "j"])')
        inputs = tuple(Var(n) for n in given)
        return IndexMap(inputs, inputs)

    def permute(self, *order: int) -> IndexMap:
        """The outputs in another order: number `order[0]` first. Outputs of one value may be left out."""
        if not order or len(set(order)) < len(order) or not set(order) <= set(range(len(self.outputs))):
            raise ScheduleError(f"an order is one or more different numbers from 0 to {len(self.outputs) - 1}, got {list(order)}")
        return IndexMap(self.inputs, tuple(self.outputs[n] for n in order))

    def tile(self, number: int, *factors: int) -> IndexMap:
        """Output `number` split into `len(factors) + 1` outputs; the factors are the extents of the tiles, outermost first."""
        self._need_outputs(number, 1)
        _need_positive("factors", factors, "tile(0, 16)")
        rest, parts = self.outputs[number], []
        for factor in reversed(factors):
            parts.append(rest % factor)
            rest = rest // factor
        return IndexMap(self.inputs, (*self.outputs[:number], rest, *reversed(parts), *self.outputs[number + 1 :]))

    def fuse(self, number: int, *extents: int) -> IndexMap:
        """Outputs `number` to `number + len(extents)` as one, the last fastest; `extents` are those after the first."""
        self._need_outputs(number, len(extents) + 1)
        _need_positive("extents", extents, "fuse(0, 16)")
        following = self.outputs[number + 1 : number + 1 + len(extents)]
        fused = reduce(lambda e, part: e * part[1] + part[0], zip(following, extents, strict=True), self.outputs[number])
        return IndexMap(self.inputs, (*self.outputs[:number], fused, *self.outputs[number + 1 + len(extents) :]))

    def _need_outputs(self, number: int, count: int) -> None:
        if not isinstance(number, int) or not 0 <= number <= len(self.outputs) - count:
            which = f"output {number!r}" if count == 1 else f"{count} outputs from {number!r} on"
            raise ScheduleError(f"`{self}` has no {which}", hint="numbers start at 0")

    def __call__(self, indices: Sequence[Expr]) -> tuple[Expr, ...]:
        """The outputs for given indices."""
        table = {v.name: i for v, i in zip(self.inputs, indices, strict=True)}
        return tuple(substitute(e, table) for e in self.outputs)

    def __str__(self) -> str:
        names = ", ".join(v.name for v in self.inputs)
        results = [expr_text(e) for e in self.outputs]
        for n in reversed(self.separators):
            results.insert(n, repr(self.AXIS_SEPARATOR))
        return f"lambda {names}: ({', '.join(results)}{',' if len(results) == 1 else ''})"


IndexFunction = IndexMap | Callable[..., Any] | str
FunctionOfAxes = Annotated[Callable[..., Any] | str, ArgumentKind.OF_AXES]
MapOfAxes = Annotated[IndexFunction, ArgumentKind.OF_AXES]
MapOfIndices = Annotated[IndexFunction, ArgumentKind.OF_INDICES]
PadValue = int | float | Annotated[Callable[..., Any], ArgumentKind.OF_NEW_INDICES] | str | None


def _need_positive(what: str, given: Sequence[Any], example: str) -> None:
    strange = [n for n in given if isinstance(n, bool) or not isinstance(n, int) or n < 1]
    if strange:
        raise ScheduleError(f"{what} must be integers of at least 1, got {strange[0]!r}", hint=example)


@dataclass(frozen=True, slots=True)
class Layout:
    """An index map on a box of given extents: the box `extents` of new indices, and the inverse.

    `inverse` are the old indices over the variables `places`, the new indices. Where the `conditions` do not hold, a place is
    padding. `sources` has the old variables that each place depends on.
    """

    places: tuple[Var, ...]
    extents: tuple[Expr, ...]
    inverse: tuple[Expr, ...]
    conditions: tuple[Expr, ...]
    sources: tuple[frozenset[str], ...]

    @property
    def ranges(self) -> dict[str, Interval]:
        return {v.name: extent_range(e) for v, e in zip(self.places, self.extents, strict=True)}


def function_text(function: IndexFunction, rank: Callable[[], int], what: str) -> str:
    """The text of a function of indices, for traces; it returns expressions or tuples of them.

    It is called once, on variables, `rank()` of them if it takes `*i`."""
    if isinstance(function, (str, IndexMap)):
        return str(function)
    if not callable(function):
        raise ScheduleError(f"{_a(what)} is a function such as `lambda i, j: (j, i)`, or its text, got {function!r}")
    names: list[str] = []
    parameters = list(inspect.signature(function).parameters.values())
    several = any(p.kind is p.VAR_POSITIONAL for p in parameters)  # then keyword parameters are the last indices
    for p in parameters:
        if p.kind is p.VAR_POSITIONAL:
            names += [f"{p.name}{n}" for n in range(rank() - len(parameters) + 1)]
        elif p.kind is p.VAR_KEYWORD or (p.kind is p.KEYWORD_ONLY and not several):
            raise ScheduleError(f"{what} takes indices in order, this one takes `{p.name}` by name", hint="lambda i, j: (j, i)")
        else:
            names.append(p.name)
    named = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]
    try:
        result = function(*map(Var, names[: len(names) - len(named)]), **{name: Var(name) for name in named})
    except TypeError as error:
        raise ScheduleError(f"{what} cannot be applied to `{', '.join(names)}`: {error}") from None
    return f"lambda {', '.join(names)}: {_result_text(result)}"


def _a(what: str) -> str:
    """`what` as the subject of a definition: an index map gets the indefinite article."""
    return "an index map" if what == INDEX_MAP else what


def _result_text(result: Any) -> str:
    if isinstance(result, (tuple, list)):
        return f"({', '.join(map(_result_text, result))}{',' if len(result) == 1 else ''})"
    return expr_text(result) if isinstance(result, Expr) else repr(result)


def parse_index_map(index_map: IndexFunction, func: PrimFunc, before: Sequence[Expr]) -> IndexMap:
    """The index map of a function or a text such as `lambda i, j: (j, i)`, over indices of extents `before` and sizes."""
    if isinstance(index_map, IndexMap):
        return index_map
    text = function_text(index_map, lambda: len(before), INDEX_MAP)
    inputs, result = parsed_function(text, func, [e.dtype for e in before], INDEX_MAP)
    try:
        return _from_outputs(inputs, result)
    except TypeError as error:
        raise ScheduleError(f"the index map {text!r} cannot be evaluated: {error}") from None


def parsed_function(text: str, func: PrimFunc, dtypes: Sequence[str], what: str) -> tuple[tuple[Var, ...], Any]:
    """The parameters of a function given as text, one for each of `dtypes`, and its result; it may use the sizes of `func`."""
    rank = len(dtypes)
    try:
        tree = python_tree(text, mode="eval").body
    except SyntaxError as error:
        raise ScheduleError(f"{what} {text!r} is not Python: {error.msg}", hint="lambda i, j: (j, i)") from None
    if not isinstance(tree, ast.Lambda) or tree.args.vararg or tree.args.kwonlyargs or tree.args.kwarg:
        raise ScheduleError(f"{_a(what)} is a function such as 'lambda i, j: (j, i)', got {text!r}")
    names = [a.arg for a in (*tree.args.posonlyargs, *tree.args.args)]
    if len(names) != rank:
        raise ScheduleError(
            f"{what} {text!r} takes {len(names)} indices, and there are {rank}",
            hint=f"lambda {', '.join(f'i{n}' for n in range(rank))}: ...",
        )
    inputs = tuple(Var(name, dtype) for name, dtype in zip(names, dtypes, strict=True))
    evaluator = Expressions(Source("<index map>", (text,)), {"T": namespace}, live=False)
    for v in (*func.sizes, *inputs):
        evaluator.scopes.bind(v.name, v)
    try:
        return inputs, evaluator.value(tree.body)
    except (ScriptError, TypeError, RecursionError) as error:
        reason = error.reason if isinstance(error, ScriptError) else str(error)
        raise ScheduleError(f"{what} {text!r} cannot be evaluated: {reason}") from None


def _from_outputs(inputs: tuple[Var, ...], result: Any) -> IndexMap:
    given = list(result) if isinstance(result, (tuple, list)) else [result]
    marks = [n for n, e in enumerate(given) if isinstance(e, str) and e == IndexMap.AXIS_SEPARATOR]
    outputs = tuple(as_index(e) for n, e in enumerate(given) if n not in marks)
    if not outputs:
        raise ScheduleError("the index map gives no index", hint="lambda i, j: (j, i)")
    separators = tuple(n - before for before, n in enumerate(marks))
    if not are_axis_separators(separators, len(outputs)):
        raise ScheduleError("axis separators stand between indices", hint="lambda i, j: (i, IndexMap.AXIS_SEPARATOR, j)")
    return IndexMap(inputs, outputs, separators)


def place_names(func: PrimFunc, names: Names, count: int) -> list[str]:
    """Names for the axes of a new block that differ from those of nested blocks, so that none hides another."""
    nested = [[b, *inside] for b in blocks(func.body) if (inside := [x for s in substatements(b) for x in blocks(s)])]
    taken = {it.var.name for nest in nested for b in nest for it in b.iters}
    return [names.axis(f"v{n}", taken) for n in range(count)]


# --- inverses ------------------------------------------------------------------------------------------------------------


def invert(index_map: IndexMap, extents: Sequence[Expr], places: Sequence[str]) -> Layout:
    """The layout of a box under an index map, over variables called `places`; refuses a map that is not provably one to one.

    A source is an index, or a sum of whole indices under `//` and `%`: `i * 13 + j` with j < 13. Division by constants
    splits it into parts. The map is one to one if every output is a sum of parts in mixed radix, and every part occurs in one
    output. If a factor does not divide the extent, the extent of the highest part is rounded up, which adds padding. An index may
    count backwards, as in `12 - i` with i < 13.
    """
    sizes = {v.name: simplify(e) for v, e in zip(index_map.inputs, extents, strict=True)}
    backwards: dict[str, Expr] = {name: sizes[name] - 1 - Var(name, sizes[name].dtype) for name in _counting_down(index_map)}
    if backwards:
        forwards = IndexMap(index_map.inputs, tuple(simplify(substitute(e, backwards)) for e in index_map.outputs))
        layout = invert(forwards, extents, places)
        found = zip(index_map.inputs, layout.inverse, strict=True)
        inverse = (simplify(sizes[v.name] - 1 - e, layout.ranges) if v.name in backwards else e for v, e in found)
        return replace(layout, inverse=tuple(inverse))
    outputs, fused = _flattened_sums(tuple(simplify(e) for e in index_map.outputs), sizes)
    summed = {name for terms in fused.values() for name, _ in terms}
    parts, wholes = _parts_of_sources({name: size for name, size in sizes.items() if name not in summed}, outputs)
    values, used, shape = _values_of_parts(index_map, outputs, parts, wholes, places, fused)

    ranges = {p: extent_range(e) for p, e in zip(places, shape, strict=True)}
    back = {name: simplify(substitute(e, values), ranges) for name, e in wholes.items()}
    rounded = {p.source: p.lower_factor * p.extent for p in parts.values()}  # by the highest part, which comes last
    conditions = [back[name] < sizes[name] for name, size in rounded.items() if not prove(size.equal(sizes[name]), {})]
    for source, terms in fused.items():
        for name, value in values_of_terms(back[source], terms, sizes).items():
            back[name] = simplify(value, ranges)
    sources: list[set[str]] = [set() for _ in shape]
    for name, position in used.items():
        source = parts[name].source
        sources[position].update([index for index, _ in fused[source]] if source in fused else [source])
    return Layout(
        tuple(Var(p, extent.dtype) for p, extent in zip(places, shape, strict=True)),
        tuple(shape),
        tuple(back[v.name] for v in index_map.inputs),
        tuple(c for c in conditions if not prove(c, ranges)),
        tuple(frozenset(s) for s in sources),
    )


def _counting_down(index_map: IndexMap) -> set[str]:
    """The indices that outputs subtract, and nowhere add."""
    names = {v.name for v in index_map.inputs}
    signs: dict[str, set[bool]] = {}
    for e in index_map.outputs:
        for monomial, coefficient in polynomial(simplify(e)).items():
            match monomial:
                case (Var(name),) if name in names:
                    signs.setdefault(name, set()).add(coefficient < 0)
    return {name for name, found in signs.items() if found == {True}}


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of a source, see `invert`: `source // lower_factor % extent`."""

    source: str
    lower_factor: int
    extent: Expr


def _parts_of_sources(sizes: Mapping[str, Expr], outputs: Sequence[Expr]) -> tuple[dict[str, _Part], dict[str, Expr]]:
    """Sources split at the divisors in the outputs: the parts by name, and each source as the sum of its parts."""
    parts: dict[str, _Part] = {}
    wholes: dict[str, Expr] = {}
    factors = lower_factors(outputs)
    for name, size in sizes.items():
        edges = [1, *factors.get(name, ())]
        strange = next(((a, b) for a, b in pairwise(edges) if b % a), None)
        if strange is not None:
            raise ScheduleError(
                f"the index map divides `{name}` by {strange[0]} and {strange[1]}, neither a multiple of the other",
                hint=f"divide `{name}` by numbers each a multiple of the one before, as 4 and 8",
            )
        top = simplify((size + (edges[-1] - 1)) // edges[-1])
        extents: list[Expr] = [*(Const(b // a, size.dtype) for a, b in pairwise(edges)), top]
        variables_of_parts, wholes[name] = split_variable(Var(name, size.dtype), edges)
        for part, factor, extent in zip(variables_of_parts, edges, extents, strict=True):
            parts[part.name] = _Part(name, factor, extent)
    return parts, wholes


def _values_of_parts(
    index_map: IndexMap,
    outputs: Sequence[Expr],
    parts: Mapping[str, _Part],
    wholes: Mapping[str, Expr],
    places: Sequence[str],
    fused: Mapping[str, Terms],
) -> tuple[dict[str, Expr], dict[str, int], list[Expr]]:
    """Each part in terms of the places, the number of its output, and the extents of the outputs.

    Refuses unless each output is a sum of parts in mixed radix, and each part of more than one value occurs in one output.
    """
    extents = {name: p.extent for name, p in parts.items()}
    ranges = {name: extent_range(extent) for name, extent in extents.items()}
    values: dict[str, Expr] = {name: Const(0) for name in parts}
    used: dict[str, int] = {}
    shape: list[Expr] = []
    for position, (place, e) in enumerate(zip(places, outputs, strict=True)):
        found = mixed_radix(polynomial(simplify(substitute(e, wholes), ranges)), extents)
        if found is None:
            output = expr_text(index_map.outputs[position])
            raise _unproved(f"`{output}` is not a sum of indices, their quotients and remainders, in mixed radix")
        terms, count = found
        for name, _ in terms:
            if name in used:
                raise _not_one_to_one(parts[name].source, "occurs twice in", fused)
            used[name] = position
        values |= values_of_terms(Var(place, count.dtype), terms, extents)
        shape.append(count)
    for name, p in parts.items():
        if name not in used and not p.extent.is_one:
            raise _not_one_to_one(p.source, "is missing from", fused)
    return values, used, shape


def _flattened_sums(outputs: tuple[Expr, ...], sizes: dict[str, Expr]) -> tuple[tuple[Expr, ...], dict[str, Terms]]:
    """The outputs with each sum under `//` and `%` made one variable, and the terms of each such sum.

    `sizes` gets the extents of the new variables.
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
                    found = mixed_radix(p, constants)
                    if found is None:
                        raise _unproved(f"`{expr_text(a)}` is not a sum of indices in mixed radix")
                    known[key] = source = f"sum{len(known)}"
                    fused[source], sizes[source] = found
                return Binary(op, Var(known[key]), n.b)
        return None

    results = tuple(rewrite(e, visit) for e in outputs)
    summed = [name for terms in fused.values() for name, _ in terms]
    left = variables(*results)
    if len(summed) != len(set(summed)) or left & set(summed):
        twice = next(name for name in summed if name in left or summed.count(name) > 1)
        raise _unproved(f"`{twice}` occurs in a sum and elsewhere too")
    return results, fused


def _unproved(reason: str) -> ScheduleError:
    hint = "an index goes whole or divided by constants: lambda i, j: (i // 4, j, i % 4)"
    return ScheduleError(f"the index map cannot be shown to be one to one: {reason}", hint=hint)


def _not_one_to_one(source: str, how: str, fused: Mapping[str, Terms]) -> ScheduleError:
    what = "a part of a sum" if source in fused else f"`{source}`, or a part of it,"
    return ScheduleError(
        f"the index map is not one to one: {what} {how} the result", hint="each index, or each part of it, occurs once"
    )
