"""One plan for all sizes of a network: its kernels, the addresses of its values and the constants that follow from sizes.

The network is read at some of its sizes, the samples. Samples with the same groups and wiring have a plan if all their integers,
in functions, shapes and places, are polynomials of the sizes (`general`). One entry then serves all sizes. It reads a table of
words, which is computed when a size is first called.

Between sizes at which the network was read and agreed with the polynomials, a plan serves without reading it again (`Survey`). At
others the network may differ: a Slice up to row 5 is another polynomial at fewer rows.

Values in the arena keep the order of their addresses at the largest sample, as `memory.plan` gives them. At all sizes a value
begins after all below it that live at the same time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import blake2b
from math import prod

import numpy as np

from codegen import Target
from codegen.steps import Address, Copy, Invoke, Step, Word
from tir import dtypes
from tir.arrays import content

from .donation import Donation
from .fusion import Group
from .general import Numbers, fitted, is_constant
from .ir import Graph, Value
from .kernels import GroupKernel
from .memory import ARENA, MemoryPlan, input_base, lifetimes, output_base
from .model import checked_entry, loaded
from .places import Places, places
from .tables import Coverage, Formulas, Polynomial, Row, TableProgram, Tables, leading, ones_of, polynomial_value, sized_elements

TABLE = "table"  # the block of the words of a size, and of the constants that follow from it
MAX_FITTED_ELEMENTS = 16  # elements of a constant that may be polynomials of the sizes, as those of a shape
MAX_FITTED_INTEGER = 1 << 31  # largest magnitude of such an element: larger ones are no sizes or indices, but masks
MAX_SURVEYED_ELEMENTS = 1 << 16  # elements of a constant that surveys compare: each survey keeps an array of its own
MIN_DISTINCT = 3  # least different values of a size among the samples of a plan: two give a polynomial, the third checks it


@dataclass(frozen=True, eq=False)
class Sample:
    """The groups of a network at the sizes `row`. `values` are its inputs, outputs and what groups read and make, in order."""

    row: Row
    graph: Graph
    groups: tuple[Group, ...]
    found: tuple[Donation, ...]
    values: tuple[Value, ...]
    inside: Places
    numbers: tuple[Numbers, ...]
    free: frozenset[str] = frozenset()

    @classmethod
    def of(
        cls, row: Row, graph: Graph, groups: Sequence[Group], found: Sequence[Donation], free: frozenset[str] = frozenset()
    ) -> Sample:
        """The sample of a graph without the calls of donations."""
        inside = places(graph)
        read = [v for g in groups for v in (*g.inputs, *g.outputs)]
        named = dict.fromkeys([*graph.inputs, *read, *graph.outputs])
        values = tuple(dict.fromkeys([*named, *(inside[v].root for v in named)]))
        texts = {func: Numbers.of(func) for func in dict.fromkeys(g.func for g in groups)}
        return cls(row, graph, tuple(groups), tuple(found), values, inside, tuple(texts[g.func] for g in groups), free)

    @cached_property
    def ones(self) -> frozenset[str]:
        """The sizes that are 1: they have no loops, so functions differ from those at larger sizes."""
        return ones_of(self.row, self.free)

    @cached_property
    def structure(self) -> tuple:
        """All but the integers: texts of functions, wiring, and kinds of values."""
        at = {v: n for n, v in enumerate(self.values)}
        groups = tuple(
            (n.text, tuple(at[v] for v in g.inputs), tuple(at[v] for v in g.outputs))
            for g, n in zip(self.groups, self.numbers, strict=True)
        )
        kinds = tuple((v.name in self.graph.constants, v.dtype, len(v.shape), at[self.inside[v].root]) for v in self.values)
        outputs = tuple((at[v], self.inside[v].root.nbytes == v.nbytes) for v in self.graph.outputs)
        donated = tuple((at[d.input], at[d.output]) for d in self.found)
        return groups, kinds, tuple(at[v] for v in self.graph.inputs), outputs, donated

    @cached_property
    def constants(self) -> dict[int, np.ndarray]:
        """The constants by the positions of their values, without those that lie in others."""
        found = self.graph.constants
        return {n: found[v.name] for n, v in enumerate(self.values) if v.name in found and self.inside[v].root == v}

    def with_constants(self, found: Mapping[int, np.ndarray]) -> Sample:
        """The sample with these arrays in place of its constants."""
        structure = self.structure
        own = {self.values[n].name: a for n, a in found.items()}
        result = replace(self, graph=self.graph.with_(constants=own))
        result.__dict__.update(structure=structure, constants=dict(found))
        return result

    def without_calls(self) -> Sample:
        result = replace(self, graph=self.graph.with_(calls=()))
        result.__dict__.update({name: self.__dict__[name] for name in ("structure", "constants")})
        return result

    def sharing(self, first: Sample) -> Sample:
        """The sample with the arrays of `first`, a sample of the same structure, for all equal constants."""
        both = {n: (a, first.constants[n]) for n, a in self.constants.items()}
        return self.with_constants({n: b if same(a, b) else a for n, (a, b) in both.items()})


def same(a: np.ndarray, b: np.ndarray) -> bool:
    """True where two arrays have the same bytes and shape."""
    return a is b or (a.shape == b.shape and a.dtype == b.dtype and np.array_equal(content(a), content(b)))


@dataclass(frozen=True, eq=False)
class Survey:
    """A network as it is read at the sizes `row`, before passes. `numbers` has the text of its calls and of constants of one
    integer; None where it refuses these sizes. `constants` are all others, large ones None."""

    row: Row
    numbers: Numbers | None
    constants: tuple[np.ndarray | None, ...] = ()

    @classmethod
    def of(cls, row: Row, graph: Graph | None) -> Survey:
        if graph is None:
            return cls(row, None)
        single = {name: a for name, a in graph.constants.items() if a.size == 1 and _integers(a, a.shape)}
        others = (a if a.size <= MAX_SURVEYED_ELEMENTS else None for name, a in graph.constants.items() if name not in single)
        text = "\n".join([str(graph), *(str(int(a.item())) for a in single.values())])
        return cls(row, Numbers.of_text(text), tuple(others))


class NotPlanned(Exception):
    """The reason why samples have no plan."""


class OpenPlan:
    """The plan of a network for combinations of sizes of which the same ones are 1 as in its samples."""

    def __init__(self, names: Sequence[str], taken: Sequence[Sample]):
        """The plan of samples of one structure. Raises NotPlanned."""
        taken = sorted(taken, key=lambda s: -prod(s.row.values()))
        self.names, self.largest, self.ones = tuple(names), taken[0], taken[0].ones
        self.rows = [s.row for s in taken]
        self._open = [n for n in names if n not in self.ones]
        if any(len({row[name] for row in self.rows}) < MIN_DISTINCT for name in self._open):
            raise NotPlanned("too few samples")
        self._fitted: dict[tuple[int, ...], Polynomial] = {}
        columns = [[v.shape for v in s.values] for s in taken]
        self.shapes = [tuple(map(self._formula, zip(*found, strict=True))) for found in zip(*columns, strict=True)]
        places = ([s.inside[v].offset for v in s.values] for s in taken)
        self.offsets = [self._formula(found) for found in zip(*places, strict=True)]
        self.sized = self._sized(taken)
        self.constants = [self.largest.values[n] for n in self.largest.constants]
        self._positions = {v: n for n, v in enumerate(self.largest.values)}
        self.digests = {n: digest(a) for n, a in self.largest.constants.items()}
        by_values: dict[tuple, tuple[Polynomial, ...]] = {}
        self.functions: list[tuple[Polynomial, ...]] = []
        for numbers in zip(*(s.numbers for s in taken), strict=True):
            values = tuple(n.values for n in numbers)
            if values not in by_values:
                by_values[values] = tuple(map(self._formula, zip(*values, strict=True)))
            self.functions.append(by_values[values])
        self.coverage = self._covering()  # no sizes until `survey`

    def _formula(self, values: Sequence[int]) -> Polynomial:
        values = tuple(values)
        if (found := self._fitted.get(values)) is None:
            found = fitted(self._open, self.rows, values)
            if found is None or 1 < len(self.rows) <= len(found):
                raise NotPlanned(f"integers that are no polynomial of the sizes: {values}")
            self._fitted[values] = found
        return found

    def _sized(self, taken: Sequence[Sample]) -> dict[int, Formulas | None]:
        """The constants that follow from sizes, by position: polynomials, or None for a leading part that is not contiguous."""
        result: dict[int, Formulas | None] = {}
        for n, whole in taken[0].constants.items():
            arrays = [s.constants[n] for s in taken]
            if all(a.ndim == whole.ndim and same(leading(whole, a.shape), a) for a in arrays):
                if any(a.shape != whole.shape and not leading(whole, a.shape).flags.c_contiguous for a in arrays):
                    result[n] = None
            elif whole.size <= MAX_FITTED_ELEMENTS and all(_integers(a, whole.shape) for a in arrays):
                columns = zip(*(a.reshape(-1).astype(np.int64).tolist() for a in arrays), strict=True)
                result[n] = Formulas.of(self.names, [self._formula(column) for column in columns])
            else:
                raise NotPlanned(f"the constant `{taken[0].values[n].name}` is another one at each size")
        return result

    def sized_values(self) -> list[tuple[Value, Formulas | None]]:
        """The constants that follow from sizes, as values of the largest sample."""
        return [(self.largest.values[n], found) for n, found in self.sized.items()]

    def shape(self, value: Value) -> tuple[Polynomial, ...]:
        """The shape of a value of the largest sample. A value of no sample has the same shape at all sizes."""
        n = self._positions.get(value)
        return tuple((((), extent),) for extent in value.shape) if n is None else self.shapes[n]

    def offset(self, value: Value) -> Polynomial:
        """The offset of a value inside of another one, in bytes."""
        n = self._positions.get(value)
        return (((), 0),) if n is None else self.offsets[n]

    def is_open(self, value: Value) -> bool:
        """True for a value of the largest sample whose shape or elements follow from the sizes."""
        n = self._positions.get(value)
        return n is not None and (n in self.sized or not all(map(is_constant, self.shapes[n])))

    def survey(self, surveys: Sequence[Survey]) -> None:
        """Find the sizes that the plan covers: those between agreeing surveys; none if a survey between them disagrees."""
        own = [s for s in surveys if ones_of(s.row, self.largest.free) == self.ones]
        known = {tuple(s.row.values()): s for s in own}
        first = [known[tuple(row.values())] for row in self.rows]
        read = [s.numbers for s in first if s.numbers is not None]
        if len({numbers.text for numbers in read}) != 1:
            return
        try:
            formulas = [self._formula(values) for values in zip(*(numbers.values for numbers in read), strict=True)]
        except NotPlanned:
            return

        def agrees(s: Survey) -> bool:
            if s.numbers is None or s.numbers.text != read[0].text:
                return False
            if any(polynomial_value(f, s.row) != n for f, n in zip(formulas, s.numbers.values, strict=True)):
                return False
            return len(s.constants) == len(first[0].constants) and all(
                self._follows(s.row, a, [other.constants[n] for other in first]) for n, a in enumerate(s.constants)
            )

        agreeing = [agrees(s) for s in own]
        within = np.array([self.coverage.octagon(s.row) for s, agreed in zip(own, agreeing, strict=True) if agreed])
        covered = self._covering(tuple(within.min(0).tolist()), tuple(within.max(0).tolist()))
        if not any(s.row in covered for s, agreed in zip(own, agreeing, strict=True) if not agreed):
            self.coverage = covered

    def _follows(self, row: Row, array: np.ndarray | None, first: Sequence[np.ndarray | None]) -> bool:
        """True for a constant that follows `first`, those of samples: the same leading part, or the same polynomials."""
        found = [a for a in first if a is not None]
        if array is None or len(found) < len(first):
            return True
        if array.ndim == found[0].ndim and same(leading(array, found[0].shape), leading(found[0], array.shape)):
            return True
        if array.size > MAX_FITTED_ELEMENTS or not all(_integers(a, array.shape) for a in (array, *found)):
            return False
        columns = zip(array.reshape(-1).tolist(), *(a.reshape(-1).astype(np.int64).tolist() for a in found), strict=True)
        with suppress(NotPlanned):
            return all(polynomial_value(self._formula(others), row) == n for n, *others in columns)
        return False

    def _covering(self, least: tuple[int, ...] = (), most: tuple[int, ...] = ()) -> Coverage:
        """The sizes between these bounds. Constants that follow from sizes limit them to the largest ones of samples."""
        bounded = self._open if any(map(self.is_open, self.constants)) else ()
        limits = {name: max(row[name] for row in self.rows) for name in bounded}
        ones, free = (tuple(sorted(names)) for names in (self.ones, self.largest.free))
        return Coverage(self.names, ones, least, most, limits, tuple(self.rows), free)

    def serves(self, sample: Sample) -> bool:
        """True where the plan gives what was read at these sizes."""
        if sample.structure != self.largest.structure or sample.ones != self.ones:
            return False
        row = sample.row
        numbers = (tuple(polynomial_value(f, row) for f in formulas) for formulas in self.functions)
        shapes = [tuple(polynomial_value(f, row) for f in formulas) for formulas in self.shapes]
        offsets = [polynomial_value(f, row) for f in self.offsets]
        return (
            all(a == b.values for a, b in zip(numbers, sample.numbers, strict=True))
            and shapes == [v.shape for v in sample.values]
            and offsets == [sample.inside[v].offset for v in sample.values]
            and all(self._is_constant(n, sample.constants[n], row) for n in self.digests)
        )

    def _is_constant(self, n: int, array: np.ndarray, row: Row) -> bool:
        elements = self.sized.get(n)
        if elements is None:
            return digest(array) == self.digests[n]
        return same(array, sized_elements(elements, [row[name] for name in self.names], array))


def digest(array: np.ndarray) -> bytes:
    """A hash of the shape and the bytes of an array."""
    return blake2b(content(array).data, digest_size=16, person=repr(array.shape).encode()[:16]).digest()


def is_planned(names: Sequence[str], taken: Sequence[Sample]) -> bool:
    """True for samples of one structure that have a plan."""
    with suppress(NotPlanned):
        OpenPlan(names, taken)
        return True
    return False


def _integers(array: np.ndarray, shape: tuple[int, ...]) -> bool:
    if array.shape != shape or array.dtype.kind not in "iuf":
        return False
    return bool((np.abs(array) <= MAX_FITTED_INTEGER).all() and (array == np.rint(array)).all())


class Program(TableProgram):
    """The steps of an open plan, compiled once, whose addresses are words of a table, and the weights."""

    native = staticmethod(checked_entry)

    def __init__(
        self, plan: OpenPlan, groups: Sequence[Group], kernels: Sequence[GroupKernel], layout: MemoryPlan,
        constants: Mapping[str, np.ndarray], weights: Mapping[str, np.ndarray], target: Target,
    ):  # fmt: skip
        """The program by `groups`, `layout` and `constants` of the largest sample, after preparations."""
        self.plan, self.kernels, self.layout, graph = plan, tuple(kernels), layout, plan.largest.graph
        donated = {d.output.name: d.input.name for d in plan.largest.found}
        own = [v for v in graph.inputs if v.name not in donated]
        values = [*(v for g in groups for v in (*g.inputs, *g.outputs, *g.scratch)), *graph.inputs, *graph.outputs]
        values = list(dict.fromkeys([*values, *(layout.places[v].root for v in values)]))
        at = self._at = {v: n for n, v in enumerate(values)}
        roots = [at[layout.places[v].root] for v in values]
        self.sized = {at[v]: v for v, _ in plan.sized_values() if v in at}
        addresses = [layout.addresses.get(v, Address("")) for v in values]
        self._bases = [TABLE if root in self.sized else addresses[root].base for root in roots]
        tables = Tables(
            coverage=plan.coverage,
            dimensions=Formulas.of(plan.names, [f for v in values for f in plan.shape(v)]),
            ends=np.cumsum([len(v.shape) for v in values]).tolist(),
            itemsizes=[dtypes.nbytes(v.dtype) for v in values],
            roots=roots,
            parts=Formulas.of(plan.names, [plan.offset(v) for v in values]),
            offsets=[a.offset for a in addresses],  # where they follow from no size
            below=_below(layout, groups, graph, at),
            sized={at[v]: (constants[v.name], found) for v, found in plan.sized_values() if v in at},
            copied=[at[v] for v in layout.copied.values()],
            inputs=[(at[v], v.name, v.dtype) for v in own],
            outputs=[(at[v], v.name, v.dtype) for v in graph.outputs],
        )
        self.steps = self._steps(graph, groups, [*layout.copied])
        labels = [k.func.name for k in self.kernels]
        super().__init__(graph.name, tables, weights, labels, len(self.steps), target.num_cores, donated)
        made = (output_base(n) for n, v in enumerate(graph.outputs) if v.name not in donated)
        self.bases = [TABLE, *self.weights, ARENA, *map(input_base, range(len(own))), *made]
        self.codes = {k.main.symbol: k.main.code for k in self.kernels}
        self.functions = loaded(self.bases, self.steps, self.codes, target)

    def _steps(self, graph: Graph, groups: Sequence[Group], copied: Sequence[int]) -> list[Step]:
        """The steps of a call. Words of its table are the addresses of values, the sizes, and the bytes of copies."""

        def address(value: Value) -> Address:
            n = self._at[value]
            return Address(self._bases[n], Word(n))

        first = len(self._at)
        sizes = [Word(first + n) for n in range(len(self.plan.names))]
        steps: list[Step] = []
        for group, kernel in zip(groups, self.kernels, strict=True):
            addresses = tuple(map(address, (*group.inputs, *group.outputs, *group.scratch)))
            steps.append(Invoke(kernel.main.symbol, addresses, tuple(sizes[: len(kernel.sizes)])))
        first += len(sizes)
        return steps + [Copy(Address(output_base(n)), address(graph.outputs[n]), Word(first + m)) for m, n in enumerate(copied)]


def _below(layout: MemoryPlan, groups: Sequence[Group], graph: Graph, at: Mapping[Value, int]) -> list[tuple[int, list[int]]]:
    """The values in the arena by their addresses, each with the values after whose ends it must begin."""
    lives = lifetimes(graph, groups, layout.places)
    held = sorted(
        (v for v, a in layout.addresses.items() if a.base == ARENA), key=lambda v: (layout.addresses[v].offset, v.nbytes)
    )
    under: dict[Value, set[Value]] = {}
    result = []
    for n, value in enumerate(held):
        overlapping = [v for v in held[:n] if lives[v].overlaps(lives[value])]
        under[value] = {*overlapping, *(u for v in overlapping for u in under[v])}
        direct = [v for v in overlapping if not any(v in under[w] for w in overlapping)]
        result.append((at[value], [at[v] for v in direct]))
    return result
