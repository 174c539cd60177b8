"""Proofs that two iterations of a loop nest touch different elements.

Accesses are index tuples over loop variables (block variables and lets substituted). Two instances of a nest are compared under
a relation of their loop variables: less than, greater than, equal, or unrelated. Index tuples never coincide if in some dimension
the difference of their polynomials is provably not zero. The proof is by bounds, or by uniqueness: a sum of terms c x with small
|x| represents each number once (mixed radix; Euclid's division). Loops whose variables appear under // or % by constants, as
after fuse, are first split by these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise, product
from math import gcd

from ..arith.bounds import ranges_of
from ..arith.injectivity import determined
from ..arith.intervals import Interval, Ranges, polynomial_bounds
from ..arith.mixed_radix import lower_factors, split_variable
from ..arith.polynomial import Polynomial, add, constant, multiply, names_in, polynomial, to_expr
from ..arith.simplify import simplify
from ..ir import Allocate, Block, Const, Expr, For, Let, Node, Stmt, Store, Var
from ..traverse import children, loads, substitute, variables, walk_stmts
from .context import Access, Context, accesses

Indices = tuple[Expr, ...]


@dataclass(slots=True)
class Unit:
    """The unit of dependences below a loop: a block, or the expressions of a statement outside of blocks."""

    stmt: Stmt
    parts: tuple[Node, ...]  # the block itself, or the expressions of the statement
    env: dict[str, Expr]  # of the lets around it
    _accesses: dict[str, list[Access]] | None = field(default=None, repr=False)

    @property
    def by_buffer(self) -> dict[str, list[Access]]:
        """The distinct accesses, by the name of their buffer."""
        if self._accesses is None:
            found: list[Access] = []
            for n, around in (x for part in self.parts for x in accesses(part, Context(bindings=self.env))):
                indices = tuple([around.closed(i) for i in n.indices])
                conditions = tuple([around.closed(b.predicate) for b in around.blocks])
                found.append(Access(n.buffer, indices, isinstance(n, Store), conditions))
            self._accesses = {}
            for a in {(a.buffer.name, a.indices, a.is_store): a for a in reversed(found)}.values():
                self._accesses.setdefault(a.buffer.name, []).insert(0, a)
        return self._accesses

    @property
    def accesses(self) -> list[Access]:
        return [a for of_buffer in self.by_buffer.values() for a in of_buffer]


def units(stmt: Stmt) -> list[Unit]:
    """The units below a statement, in program order. A block without iteration variables stands for the units inside it."""
    result: list[Unit] = []

    def visit(s: Stmt, env: dict[str, Expr]) -> None:
        if isinstance(s, Store) or (isinstance(s, Block) and s.iters):
            result.append(Unit(s, (s,), env))
            return
        below = list(children(s))
        parts = tuple(c for c in below if isinstance(c, Expr) and type(c) is not Var and type(c) is not Const)
        if parts:
            result.append(Unit(s, parts, env))
        inside = {**env, s.var.name: _resolved(s.value, env)} if isinstance(s, Let) else env
        for c in below:
            if isinstance(c, Stmt):
                visit(c, inside)

    visit(stmt, {})
    return [u for u in result if isinstance(u.stmt, Block) or u.accesses]


def _resolved(expr: Expr, env: Mapping[str, Expr]) -> Expr:
    if type(expr) is Var:
        return env.get(expr.name, expr)
    return substitute(expr, env) if env else expr


def local_buffers(stmt: Stmt) -> set[str]:
    """The buffers allocated within a statement: each of its instances has its own."""
    of_blocks = {b.name for s in walk_stmts(stmt) if type(s) is Block for b in s.allocs}
    return of_blocks | {s.buffer.name for s in walk_stmts(stmt) if type(s) is Allocate}


# --- instances -----------------------------------------------------------------------------------------------------------

LESS, GREATER, SAME, ANY = "<", ">", "=", "*"
Case = tuple[dict[str, Polynomial], dict[str, Polynomial], Ranges]  # substitutions for the variables of either instance; ranges


class Instances:
    """Pairs of instances of a loop nest, over the loops of `nest`; `around` is the same in both, `below` unrelated."""

    def __init__(self, around: Iterable[For], nest: Iterable[For], below: Iterable[For], indices: Iterable[Indices]):
        self.around, self.nest, self.below_loops = list(around), list(nest), list(below)
        self.ranges: dict[str, Interval] = ranges_of([*self.around, *self.nest, *self.below_loops])
        self.below = {loop.name for loop in self.below_loops}
        self.parts: dict[str, list[tuple[str, int | None]]] = {}  # of a loop, outermost first: variable, extent
        self.expansion: dict[str, Expr] = {}
        divided = lower_factors(e for ix in indices for e in ix)
        for loop in self.nest:
            _, high = self.ranges[loop.name]
            size = None if high is None else high + 1
            factors = [1]
            for w in divided.get(loop.name, ()):
                if w % factors[-1] == 0 and (size is None or w < size):
                    factors.append(w)
            parts = [loop.var]
            if len(factors) > 1:
                parts, self.expansion[loop.name] = split_variable(loop.var, factors)
            counts = [*(b // a for a, b in pairwise(factors)), None if size is None else -(-size // factors[-1])]
            self.parts[loop.name] = [(d.name, n) for d, n in zip(parts, counts, strict=True)][::-1]
            for name, n in self.parts[loop.name]:
                self.ranges[name] = (0, None if n is None else n - 1)
        self._polynomials: dict[Expr, Polynomial] = {}
        self._distinct: dict[tuple, tuple[bool, Indices, Indices]] = {}
        self._renamings: dict[tuple[int, int, str], Polynomial] = {}
        self._known_cases: dict[tuple, list[Case]] = {}

    def polynomial(self, e: Expr) -> Polynomial:
        """An index as a polynomial over the parts of split loops; all variables are int32, as new ones are."""
        known = self._polynomials.get(e)
        if known is None:
            known = _with_atoms(polynomial(e), self._expanded)
            if any(type(atom) is Var and atom.dtype != "int32" for m in known for atom in m):
                known = _with_atoms(known, lambda atom: _variable(atom.name) if type(atom) is Var else None)
            self._polynomials[e] = known
        return known

    def _expanded(self, atom: Expr) -> Polynomial | None:
        if type(atom) is not Var:
            return polynomial(simplify(_resolved(atom, self.expansion), self.ranges))
        return polynomial(self.expansion[atom.name]) if atom.name in self.expansion else None

    def distinct(self, a: Indices, b: Indices, relation: Mapping[str, str]) -> bool:
        """True where `a` and `b` provably differ, in two instances whose loops are in `relation`, or else SAME."""
        for x, y in zip(a, b, strict=True):
            if type(x) is Var and type(y) is Var and x.name == y.name and relation.get(x.name) in (LESS, GREATER):
                return True
        key = (id(a), id(b), *relation.items())
        known = self._distinct.get(key)
        if known is None:
            known = self._distinct[key] = (self._are_distinct(a, b, relation), a, b)  # a and b keep their ids
        return known[0]

    def _are_distinct(self, a: Indices, b: Indices, relation: Mapping[str, str]) -> bool:
        pairs = [(self.polynomial(x), self.polynomial(y)) for x, y in zip(a, b, strict=True)]
        same = [p for p, _ in pairs] if a == b else []
        return all(self._differ(pairs, case) or self._contradicted(same, case) for case in self._cases(relation))

    def _contradicted(self, polynomials: list[Polynomial], case: Case) -> bool:
        """True if instances that agreed in all of `polynomials` would agree in a variable in which they differ in this case."""
        first, second, _ = case
        changed = {**first, **second}
        plain = [p for p in polynomials if not any(loads(atom) for m in p for atom in m)]  # memory may have changed
        known = set().union(*map(names_in, plain)) - changed.keys()
        return any(len(changed[name]) > 1 for name in changed.keys() & determined(plain, known, self.ranges))

    def _differ(self, pairs: list[tuple[Polynomial, Polynomial]], case: Case) -> bool:
        """True where some pair provably differs in this case."""
        first, second, ranges = case
        return any(_nonzero(add(self._renamed(p, first, "l"), self._renamed(q, second, "r"), -1), ranges) for p, q in pairs)

    def _renamed(self, p: Polynomial, mapping: dict[str, Polynomial], side: str) -> Polynomial:
        key = (id(p), id(mapping), side)  # both live as long as this object, so their ids are unique
        known = self._renamings.get(key)
        if known is None:
            known = self._renamings[key] = _renamed(p, mapping, side)
        return known

    def _cases(self, relation: Mapping[str, str]) -> list[Case]:
        """The renamings of the variables of the two instances that together cover the relation."""
        key = tuple(relation.items())
        known = self._known_cases.get(key)
        if known is None:
            known = self._known_cases[key] = list(self._make_cases(relation))
        return known

    def _make_cases(self, relation: Mapping[str, str]) -> Iterator[Case]:
        ranges = dict(self.ranges)
        first: dict[str, Polynomial] = {}
        second: dict[str, Polynomial] = {}

        def free(name: str) -> None:
            ranges[name + "'"] = ranges[name]
            second[name] = _variable(name + "'")

        for name in self.below:
            free(name)
        choices: list[list[tuple[str, int]]] = []
        for loop in self.nest:
            direction = relation.get(loop.name, SAME)
            if direction == ANY:
                for name, _ in self.parts[loop.name]:
                    free(name)
            elif direction in (LESS, GREATER):
                choices.append([(loop.name, n) for n, (_, s) in enumerate(self.parts[loop.name]) if s is None or s > 1])
        for chosen in product(*choices):
            f, s, r = dict(first), dict(second), dict(ranges)
            for loop_name, place in chosen:
                name, size = self.parts[loop_name][place]
                step = name + "+"
                r[step] = (1, None if size is None else size - 1)
                r[name] = (0, None if size is None else size - 2)
                further = s if relation[loop_name] == LESS else f
                further[name] = {(Var(name),): 1, (Var(step),): 1}
                for other, _ in self.parts[loop_name][place + 1 :]:
                    r[other + "'"] = r[other]
                    s[other] = _variable(other + "'")
            yield f, s, r


def _variable(name: str) -> Polynomial:
    return {(Var(name),): 1}


def _renamed(p: Polynomial, mapping: Mapping[str, Polynomial], side: str) -> Polynomial:
    def renamed(atom: Expr) -> Polynomial | None:
        if type(atom) is Var:
            return mapping.get(atom.name)
        if loads(atom):
            return _variable(f"{atom}@{side}")  # memory may have changed between the two
        moved = {n: to_expr(mapping[n]) for n in variables(atom) if n in mapping}
        return {(substitute(atom, moved),): 1} if moved else None

    return _with_atoms(p, renamed)


def _with_atoms(p: Polynomial, of: Callable[[Expr], Polynomial | None]) -> Polynomial:
    """A polynomial with `of(atom)` in place of each atom, which stays where that is None."""
    result: Polynomial = {}
    for m, c in p.items():
        term = constant(c)
        for atom in m:
            value = of(atom)
            term = multiply(term, {(atom,): 1} if value is None else value)
        result = add(result, term)
    return result


def _nonzero(p: Polynomial, ranges: Ranges) -> bool:
    """True where a polynomial is provably never zero."""
    terms = sorted(((abs(c), *polynomial_bounds({m: c}, ranges)) for m, c in p.items() if m), key=lambda term: term[0])
    return _never_zero(p.get((), 0), terms)


Term = tuple[int, int | None, int | None]  # |coefficient|, lowest and highest value of the term


def _never_zero(const: int, terms: list[Term]) -> bool:
    """True where const + a multiple of each coefficient, within its bounds, is never zero.

    Let P be const and the terms of small coefficients, and S the other terms, all multiples of g. A zero needs a multiple of g
    among the values of P. If P has none, the sum is never zero; if it has m alone, P = m and S = -m must both be possible.
    """
    low, high = _sum_interval(const, terms)
    if (low is not None and low > 0) or (high is not None and high < 0):
        return True
    for cut in range(len(terms)):
        g = gcd(*(c for c, _, _ in terms[cut:]))
        low, high = _sum_interval(const, terms[:cut])
        if low is None or high is None:
            return False
        multiple = -(-low // g) * g
        if multiple > high:
            return True
        if cut and multiple + g > high:
            return _never_zero(const - multiple, terms[:cut]) or _never_zero(multiple, terms[cut:])
    return False


def _sum_interval(const: int, terms: list[Term]) -> Interval:
    low: int | None = const
    high: int | None = const
    for _, a, b in terms:
        low = None if low is None or a is None else low + a
        high = None if high is None or b is None else high + b
    return low, high


# --- questions -----------------------------------------------------------------------------------------------------------


def spatial_bindings(block: Block, env: Mapping[str, Expr]) -> Indices:
    """The bindings of the spatial axes of a block."""
    return tuple(_resolved(it.binding, env) for it in block.spatial)


def conflicts(
    ignored: set[str], first: Sequence[Unit], second: Sequence[Unit] | None = None
) -> Iterator[tuple[int, int, list[tuple[Access, Access]]]]:
    """Pairs of conflicting units, by number, with the pairs of their accesses to one buffer, not `ignored`, of which one is a
    store. Without `second`, the units of `first` are paired among each other, but no block with itself."""
    users: dict[str, list[int]] = {}
    for m, unit in enumerate(first if second is None else second):
        for name in unit.by_buffer.keys() - ignored:
            users.setdefault(name, []).append(m)
    for n, a in enumerate(first):
        for m in sorted({m for name in a.by_buffer for m in users.get(name, ())}):
            b = first[m] if second is None else second[m]
            if second is not None or n < m or (n == m and not isinstance(a.stmt, Block)):
                shared = (name for name in a.by_buffer if name in b.by_buffer and name not in ignored)
                accesses = ((x, y) for name in shared for x in a.by_buffer[name] for y in b.by_buffer[name])
                if pairs := [(x, y) for x, y in accesses if x.is_store or y.is_store]:
                    yield n, m, pairs


def conflict_marks(first: Unit, second: Unit, x: Access, y: Access) -> list[tuple[Stmt, str]]:
    if first is second:
        return [(first.stmt, f"{' and '.join(sorted({x.verb, y.verb}))} `{x.buffer.name}`")]
    return [(first.stmt, f"{x.verb} `{x.buffer.name}`"), (second.stmt, f"{y.verb} `{x.buffer.name}`")]
