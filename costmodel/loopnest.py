"""A scheduled program as cost models see it: its statements, the loops around each, and its buffer accesses.

Numbers are integers, or symbolic integers (`tir.arith.symbolic.SymbolicInt`) in the program of a sketch. So one description
serves a single program and a whole population.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import takewhile
from typing import Any

from codegen.constants import prepared_statements
from tir import dtypes
from tir.arith.bounds import bounds, ranges_of
from tir.arith.intervals import Ranges
from tir.arith.polynomial import polynomial
from tir.arith.simplify import simplify
from tir.arith.symbolic import choice_to_int, formula, may_be_zero, symbolic_min
from tir.ir.blocks import Axis, Block
from tir.ir.buffers import Load
from tir.ir.expressions import COMPARISONS, LOGICAL, Binary, Call, Const, Expr, Select, Unary, Var
from tir.ir.functions import PrimFunc
from tir.ir.nodes import Node, annotation
from tir.ir.statements import For, Kind, Let, Stmt, Store
from tir.traverse import children, substitute, variables, walk, walk_stmts


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop around a statement, with its annotations as numbers, 0 where absent. `reduce` marks a loop of a reduction axis, and
    `unroll` is the value of its unroll pragma. Threads take `chunk` iterations at a time, when they are free if `dynamic`. Reads
    are fetched `prefetch` iterations ahead. The statement's stores bypass the caches if `streamed`. On a GPU `stages` tiles take
    turns, and registers leave room for `resident` blocks."""

    name: str
    extent: int
    kind: Kind
    reduce: bool
    thread: str = ""
    unroll: int = 0
    chunk: int = 0
    dynamic: int = 0
    prefetch: int = 0
    streamed: int = 0
    stages: int = 0
    resident: int = 0


@dataclass(frozen=True, slots=True)
class Term:
    """The contribution of loop number `loop` of a statement to an index: `coefficient` times one of `reach` values."""

    loop: int
    coefficient: int
    reach: int


@dataclass(frozen=True, slots=True)
class BufferAccess:
    """A buffer that a statement accesses: per dimension the terms of the index, and the spread of several accesses."""

    buffer: str
    nbytes: int  # of one element
    shape: tuple[int, ...]
    dims: tuple[tuple[Term, ...], ...]
    spread: tuple[int, ...]
    read: bool
    written: bool


@dataclass(frozen=True, slots=True, eq=False)
class Statement:
    """A store and the loops around it, outermost first. `operations` counts the arithmetic of one iteration by kind, and `useful`
    the iterations without those that guards skip. `allocated` is the number of loops around the allocation of the written buffer,
    None for a parameter. `others` counts, for each accessed buffer, the other statements within each loop that access it."""

    block: str
    loops: tuple[Loop, ...]
    accesses: tuple[BufferAccess, ...]
    operations: Mapping[str, int]
    useful: int
    allocated: int | None
    others: Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class ProgramDescription:
    """The statements of a function in program order, without initial values and statements prepared from constants."""

    statements: tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class _FoundStore:
    block: str
    loops: tuple[For, ...]
    store: Store
    bindings: Mapping[str, Expr]
    reduce: frozenset[str]
    useful: int


@dataclass
class DescriptionCache:
    """Descriptions of nests and statements, for other functions with the same ones (the same objects)."""

    nests: dict[tuple[int, ...], tuple[_FoundStore, tuple[Loop, ...], tuple[BufferAccess, ...]]] = field(default_factory=dict)
    statements: dict[tuple, Statement] = field(default_factory=dict)
    equal: dict[tuple, Statement] = field(default_factory=dict)  # by what they describe


def program(func: PrimFunc, cache: DescriptionCache | None = None) -> ProgramDescription:
    """The description of a function, scheduled or not, before it is lowered.

    Statements that are the same in several functions described with the same `cache` are the same objects.
    """
    cache = cache or DescriptionCache()
    found: list[_FoundStore] = []
    elsewhere = prepared_statements(func)

    def visit(
        n: Node, around: tuple[For, ...], block: str, bindings: dict[str, Expr], reduce: frozenset[str], useful: int
    ) -> None:
        match n:
            case For(_, Const(0)):  # never runs
                return
            case Stmt() if any(n is s for s in elsewhere):
                return
            case For(_, extent, body):
                visit(body, (*around, n), block, bindings, reduce, useful * _length(extent) if block else useful)
            case Block(name, iters, body):
                inner = {**bindings, **{it.var.name: substitute(it.binding, bindings) for it in iters}}
                driven = {v for it in iters if it.axis is not Axis.SPATIAL for v in variables(inner[it.var.name])}
                for it in iters:
                    useful = useful * _length(it.extent)
                visit(body, around, name, inner, reduce | driven, useful)
            case Let(var, value, body):
                visit(body, around, block, {**bindings, var.name: substitute(value, bindings)}, reduce, useful)
            case Store():
                found.append(_FoundStore(block, around, n, bindings, reduce, useful))
            case Stmt():
                for c in children(n):
                    visit(c, around, block, bindings, reduce, useful)

    visit(func.body, (), "", {}, frozenset(), 1)
    accessed = [{n.buffer.name for n in walk(f.store) if isinstance(n, (Load, Store))} for f in found]
    inside = [s.allocs for s in walk_stmts(func.body) if isinstance(s, Block)]
    temporary = {b.name for buffers in (func.allocs, *inside) for b in buffers}
    numbers: dict[str, int] = {}  # of the statements of each block so far
    statements = []
    for f in found:
        numbers[f.block] = number = numbers.get(f.block, -1) + 1
        statements.append(_statement(f, number, found, accessed, temporary, cache))
    return ProgramDescription(tuple(statements))


def _length(extent: Expr) -> int:
    """The value of a constant extent; 1 for any other."""
    return extent.value if isinstance(extent, Const) else 1


def _mean_length(extent: Expr, ranges: Ranges) -> int:
    """The mean of the least and the largest value of an extent, such as `i + 1` of a loop in loop `i`; 1 where they are open."""
    low, high = (extent.value,) * 2 if isinstance(extent, Const) else bounds(extent, ranges)
    return 1 if low is None or high is None else -(-(low + high) // 2)


def _statement(
    f: _FoundStore, number: int, found: list[_FoundStore], accessed: list[set[str]], temporary: set[str], cache: DescriptionCache
) -> Statement:
    """The description of a store: one object for equal descriptions, except within one program."""
    key = (id(f.store), *map(id, f.loops))
    if key not in cache.nests:
        cache.nests[key] = f, *_nest(f)  # keeps the objects alive whose ids are the key
    _, loops, accesses = cache.nests[key]
    others = {t.buffer: _other_accesses(f, t.buffer, found, accessed) for t in accesses}
    written = f.store.buffer.name
    outside = None
    if written in temporary:
        outside = min(_shared_loops(f, g) for g, names in zip(found, accessed, strict=True) if written in names)
    whole = (*key, outside, *others.values())
    if whole not in cache.statements:
        new = Statement(f.block, loops, accesses, operations(f.store.value), f.useful, outside, others)
        cache.statements[whole] = cache.equal.setdefault((number, _comparable(new)), new)
    return cache.statements[whole]


def _comparable(value: Any) -> Any:
    """A description to compare: without names of loops and buffers, and with formulas for numbers."""
    match value:
        case int():
            return formula(value)
        case tuple():
            return tuple(map(_comparable, value))
        case Loop() | BufferAccess() | Term():
            return tuple(_comparable(getattr(value, f.name)) for f in fields(value) if f.name not in ("name", "buffer"))
        case Statement(block, loops, accesses, operations, useful, allocated, others):
            counts = tuple(operations.items()), formula(useful), allocated, tuple(others.values())
            return (block, _comparable(loops), _comparable(accesses), *counts)
        case _:
            return value


def _nest(f: _FoundStore) -> tuple[tuple[Loop, ...], tuple[BufferAccess, ...]]:
    """The loops around a store, and its buffer accesses in them."""
    ranges = ranges_of(f.loops)
    loop_numbers = {loop.name: n for n, loop in enumerate(f.loops)}
    extents = tuple(_mean_length(loop.extent, ranges) for loop in f.loops)
    groups: dict[str, list[Load | Store]] = {}
    for n in walk(f.store):
        if isinstance(n, (Load, Store)):
            groups.setdefault(n.buffer.name, []).append(n)
    accesses = []
    for name, uses in groups.items():
        shape = tuple(map(_length, uses[0].buffer.shape))
        dims: list[tuple[Term, ...]] = []
        spread: list[int] = []
        for position, size in enumerate(shape):
            terms: dict[tuple[int, int], Term] = {}  # by loop and number, as a fused loop may occur in several
            offsets: list[int] = []
            for used in dict.fromkeys(access.indices[position] for access in uses):
                index = simplify(substitute(used, f.bindings), ranges)
                new, offset = _terms(index, loop_numbers, extents, size)
                offsets.append(offset)
                for number, term in enumerate(new):
                    key = term.loop, sum(other.loop == term.loop for other in new[:number])
                    if key not in terms or int(term.coefficient) > int(terms[key].coefficient):
                        terms[key] = term
            dims.append(tuple(terms[key] for key in sorted(terms)))
            spread.append(max(offsets) - min(offsets))
        reads, writes = (any(isinstance(access, kind) for access in uses) for kind in (Load, Store))
        accesses.append(BufferAccess(name, dtypes.nbytes(uses[0].buffer.dtype), shape, tuple(dims), tuple(spread), reads, writes))
    accesses.sort(key=lambda t: not t.written)
    written = f.store.buffer.name
    loops = tuple(_loop(x, e, x.name in f.reduce, written) for x, e in zip(f.loops, extents, strict=True))
    return loops, tuple(accesses)


def _loop(x: For, extent: int, reduce: bool, written: str) -> Loop:
    """A loop around a statement that writes the buffer `written`."""

    def asked(key: str, default: object, as_int: Callable[[Any], int]) -> int:
        return choice_to_int(annotation(x.annotations, key, default), as_int)

    return Loop(
        x.name, extent, x.kind, reduce, x.thread,
        unroll=asked("pragma_auto_unroll_max_step", 0, lambda n: n),
        chunk=asked("chunk", 0, lambda n: n),
        dynamic=asked("schedule", "static", lambda way: int(way == "dynamic")),
        prefetch=asked("prefetch", (), _prefetch_distance),
        streamed=asked("non_temporal", (), lambda names: int(written in ((names,) if isinstance(names, str) else names))),
        stages=asked("pipeline_stages", 0, lambda n: n),
        resident=asked("resident_blocks", 0, lambda n: n),
    )  # fmt: skip


def _prefetch_distance(value: Sequence[Any]) -> int:
    """The longest distance among the entries of a `prefetch`."""
    return max((n if isinstance(n, int) else _prefetch_distance(n) for n in value if not isinstance(n, str)), default=0)


def _shared_loops(f: _FoundStore, g: _FoundStore) -> int:
    """The number of loops that two statements share."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] is pair[1], zip(f.loops, g.loops, strict=False)))


def _other_accesses(f: _FoundStore, buffer: str, found: list[_FoundStore], accessed: list[set[str]]) -> tuple[int, ...]:
    """The number of statements other than `f` that access a buffer within each loop of `f`."""
    depths = [_shared_loops(f, g) for g, names in zip(found, accessed, strict=True) if g is not f and buffer in names]
    return tuple(sum(depth > n for depth in depths) for n in range(len(f.loops)))


def _terms(index: Expr, loop_numbers: Mapping[str, int], extents: tuple[int, ...], size: int) -> tuple[list[Term], int]:
    """The terms of loops in an index, and its constant part; a term that is not understood reaches the whole dimension."""
    result: list[Term] = []
    offset = 0
    for monomial, c in polynomial(index).items():
        if monomial == ():
            offset = c
            continue
        parts = _parts(monomial[0], loop_numbers, extents) if len(monomial) == 1 else None
        if parts is None:
            names = [v for a in monomial for v in sorted(variables(a)) if v in loop_numbers]
            result += [Term(loop_numbers[name], 1, symbolic_min(size, extents[loop_numbers[name]])) for name in names]
            continue
        for part in parts:
            coefficient = abs(c) * part.coefficient
            # A loop whose coefficient is 0 in a row has one value there.
            reach = (part.reach - 1) * symbolic_min(1, coefficient) + 1 if may_be_zero(coefficient) else part.reach
            result.append(Term(part.loop, coefficient, reach))
    return result, offset


def _parts(atom: Expr, loop_numbers: Mapping[str, int], extents: tuple[int, ...]) -> list[Term] | None:
    """The terms of loops in a loop variable, or in the quotient or remainder of a sum of such by a constant; None for others.
    Steps of k become steps of k / c, rounded up, in a quotient by c, and of k mod c in a remainder. So a sum gives the same terms
    simplified or not, and whether c divides k or not."""
    match atom:
        case Var(name):
            return [Term(loop_numbers[name], 1, extents[loop_numbers[name]])] if name in loop_numbers else []
        case Binary("//" | "%" as op, a, Const(c)) if c > 0:
            found: list[Term] = []
            for monomial, k in polynomial(a).items():
                inner = _parts(monomial[0], loop_numbers, extents) if len(monomial) == 1 else None if monomial else []
                if inner is None:
                    return None
                found += [Term(t.loop, abs(k) * t.coefficient, t.reach) for t in inner]
            if op == "%":
                return [Term(t.loop, t.coefficient % c, symbolic_min(t.reach, -(-c // t.coefficient))) for t in found]
            last = ((t, symbolic_min(t.reach, t.coefficient * (t.reach - 1) // c + 1)) for t in found)
            return [Term(t.loop, -(-t.coefficient // c), reach) for t, reach in last]
        case _:
            return None


# Ansor's name of a binary operation, which follows the kind of its operands.
_KINDS = {"*": "mul"} | dict.fromkeys(("/", "//", "%"), "divmod") | dict.fromkeys((*COMPARISONS, "min", "max"), "cmp")


def operations(value: Expr) -> Counter[str]:
    """The operations of an expression by Ansor's kinds, without indices and their guards; a * b + c has a `mad`."""
    counts: Counter[str] = Counter()

    def count(kind: str, dtype: str) -> None:
        counts[f"{'float' if dtypes.is_float(dtype) else 'int'}_{kind}"] += 1

    def visit(n: Node, fused: bool = False) -> None:
        match n:
            case Load():
                return
            case Binary(op, a, b) if op not in LOGICAL:
                product = next((x for x in (a, b) if isinstance(x, Binary) and x.op == "*" and op in ("+", "-")), None)
                if not fused:
                    count(_KINDS.get(op, "addsub") if product is None else "mad", a.dtype)
                for x in (a, b):
                    visit(x, x is product)
                return
            case Binary() | Unary("not"):
                counts["bool_op"] += 1
            case Unary(_, a):
                count("addsub", a.dtype)
            case Call(_, _, dtype):
                count("mathfunc", dtype)
            case Select(_, t, f, True):  # guards an access
                visit(t)
                visit(f)
                return
            case Select():
                counts["select_op"] += 1
        for c in children(n):
            visit(c)

    visit(value)
    return counts
