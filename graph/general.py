"""Kernels of open sizes: one for all functions of a network that differ only in numbers that follow from its sizes.

The functions of groups are compared at several sizes, as scripts. Where scripts differ in integers alone, each integer is a
polynomial of the sizes, which gives one function of open sizes. It is compiled by the schedule of one of them (`search.sizes`).

A kernel serves a function at other sizes only if its script, with these sizes, is the script of that function. So a polynomial
that holds by chance costs time, never a wrong result.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, combinations_with_replacement, product
from math import prod

import numpy as np

from codegen import ObjectCache, Target
from codegen.cache import compiler_sources, data_key
from codegen.constants import split_constants
from codegen.llvm.build import build, llvm_ir
from schedule import ScheduleError
from search.compilation import looked_up, scheduled
from search.records import Records
from search.sizes import adapted
from tir.ir import Buffer, PrimFunc
from tir.script import parse
from tir.verify.bounds import refuse_out_of_bounds

from .kernels import NAME_DIGITS, CompiledFunction, GroupKernel, encoded, main_and_preparation
from .tables import Polynomial, Row, polynomial_value

MAX_SAMPLES = 7  # combinations of these values that are compared: one more than a polynomial of two sizes has coefficients
MIN_LARGEST_SAMPLE = 9  # of each size, so that several are above the few rows at which groups are others
FURTHER_SAMPLES = 2  # other combinations, which show a function that is a polynomial at those alone
MAX_DEGREE = 2  # of polynomials
INTEGER = re.compile(r"T\.int64\((-?\d+)\)|(?<![\w.])(\d+)(?![\w.])")

Text = tuple[tuple[str, ...], tuple[bool, ...]]


@dataclass(frozen=True)
class Numbers:
    """The script of a function: the text between its integers, and those, with the texts that they replace."""

    between: tuple[str, ...]
    wide: tuple[bool, ...]  # the integers that are of int64
    values: tuple[int, ...]

    @property
    def text(self) -> Text:
        """All but the values."""
        return self.between, self.wide

    @classmethod
    def of(cls, func: PrimFunc) -> Numbers:
        return cls.of_text(func.script())

    @classmethod
    def of_text(cls, text: str) -> Numbers:
        found = list(INTEGER.finditer(text))
        ends = [0, *(m.end() for m in found)]
        begins = [*(m.start() for m in found), len(text)]
        between = tuple(text[end:begin] for end, begin in zip(ends, begins, strict=True))
        return cls(between, tuple(m[1] is not None for m in found), tuple(int(m[1] or m[2]) for m in found))

    def with_(self, texts: Sequence[str]) -> str:
        """The script with texts in place of its integers."""
        return "".join(part for pair in zip(self.between, (*texts, ""), strict=True) for part in pair)


@dataclass(frozen=True, eq=False)
class OpenKernel(GroupKernel):
    """A kernel that takes sizes. `opened` is its scheduled function."""

    opened: PrimFunc | None = None

    def llvm_ir(self) -> str:
        assert self.opened is not None
        return llvm_ir(split_constants(self.opened)[1], self.target)


@dataclass(frozen=True)
class _General:
    """A compiled function of open sizes; `formulas` has a polynomial for each integer of its script."""

    formulas: tuple[Polynomial, ...]
    opened: PrimFunc
    parts: tuple[CompiledFunction, CompiledFunction | None]


class GeneralKernels:
    """Kernels of open sizes for the functions of a network whose open sizes are `names`."""

    def __init__(self, names: Sequence[str], target: Target, records: Records | None, cache: ObjectCache | None):
        self.names, self.target, self.records, self.cache = tuple(names), target, records, cache
        self._known: dict[Text, list[_General]] = {}

    def learned(self, row: Row, func: PrimFunc, numbers: Numbers, formulas: tuple[Polynomial, ...]) -> OpenKernel | None:
        """The kernel for a function whose integers are these polynomials; None where no schedule can be made for open sizes."""
        known = self._known.setdefault(numbers.text, [])
        general = next((g for g in known if g.formulas == formulas), None)  # others may be slower, as for any number of rows
        if general is None and (general := self._compiled(row, func, numbers, formulas)) is not None:
            known.append(general)
        return None if general is None else self._at(general, func, row)

    def kernel(self, func: PrimFunc, row: Row) -> OpenKernel | None:
        """The kernel for a function at these sizes, None where none is certain to be it."""
        found = Numbers.of(func)
        for general in self._known.get(found.text, ()):
            if tuple(polynomial_value(f, row) for f in general.formulas) == found.values:
                return self._at(general, func, row)
        return None

    def _at(self, general: _General, func: PrimFunc, row: Row) -> OpenKernel:
        (main, preparation), sizes = general.parts, tuple(row[name] for name in self.names)
        return OpenKernel(func, main.symbol, self.target, None, main, preparation, sizes, general.opened)

    def _compiled(self, row: Row, func: PrimFunc, numbers: Numbers, formulas: tuple[Polynomial, ...]) -> _General | None:
        variables = {name: f"size_{n}" for n, name in enumerate(self.names)}
        opened = parse(_script(numbers, formulas, variables))
        assert isinstance(opened, PrimFunc)
        values = {variables[name]: row[name] for name in self.names}
        key = data_key([compiler_sources(__file__), str(self.target), opened.script(), values])
        name = f"{func.name}_{key[:NAME_DIGITS]}"
        static = scheduled(func, self.target, looked_up(func, self.target, self.records))
        try:
            general = adapted(opened, static.trace, values).func.with_(name=name)
            refuse_out_of_bounds(general)
        except ScheduleError:
            return None
        data = None if self.cache is None else self.cache.get(key)
        if data is None:
            kernel = build(general, self.target, None)
            shapes = {b.name: b for b in func.buffers}  # of one sample: an entry of the cache has known ones, and names count
            parts = [CompiledFunction.of(part) for part in kernel.parts]
            data = encoded([_named(part, shapes) for part in parts])
            if self.cache is not None:
                self.cache.put(key, data)
        return _General(formulas, general, main_and_preparation(data))


def _named(part: CompiledFunction, shapes: Mapping[str, Buffer]) -> CompiledFunction:
    return CompiledFunction(part.symbol, tuple(shapes.get(b.name, b) for b in part.params), part.scratch, part.code)


def samples(names: Sequence[str], named: Sequence[Row]) -> list[dict[str, int]]:
    """Combinations of sizes at which functions are compared, the largest first: some of each size up to its largest named one,
    all above 1; and, where 1 is named of some sizes, as a loop of one iteration is none, combinations of 1 and others."""
    largest = largest_samples(names, named)
    values = {name: _spread(most) for name, most in largest.items()}
    rng = np.random.default_rng(0)
    rows = []
    ones = [[name] if any(row[name] == 1 for row in named) else [] for name in names]
    for single in product(*([[], one] if one else [[]] for one in ones)):
        fixed = {name for one in single for name in one}
        free = [name for name in names if name not in fixed]
        found = [dict(zip(free, row, strict=True)) for row in product(*(values[name] for name in free))]
        if len(found) > MAX_SAMPLES:
            chosen = rng.choice(len(found) - 1, MAX_SAMPLES - 1, replace=False)
            found = [*(found[n] for n in sorted(chosen.tolist())), found[-1]]
        between = ({name: int(rng.integers(2, largest[name] + 1)) for name in free} for _ in range(FURTHER_SAMPLES))
        rows += [{name: row.get(name, 1) for name in names} for row in (*reversed(found), *between) if row]
    return list({tuple(row.items()): row for row in rows}.values())


def largest_samples(names: Sequence[str], named: Sequence[Row]) -> dict[str, int]:
    return {name: max(MIN_LARGEST_SAMPLE, *(row[name] for row in named)) for name in names}


def _spread(largest: int) -> list[int]:
    """Sizes from 3 up to `largest`, even and odd: as many as a polynomial of degree 2 has coefficients."""
    middle = (largest + 3) // 2
    return [3, middle + (middle % 2 == largest % 2), largest]


def _script(numbers: Numbers, formulas: Sequence[Polynomial], variables: Mapping[str, str]) -> str:
    """The script of the function of open sizes, which are its last parameters."""
    texts = [_text(f, wide, variables) for f, wide in zip(formulas, numbers.wide, strict=True)]
    lines = numbers.with_(texts).splitlines()
    at = next(n for n, line in enumerate(lines) if line.startswith("def "))
    quoted = re.sub(r"T\.Buffer\(\(([^\"]*?)\), \"", lambda m: f'T.Buffer(({_quoted(m[1])}), "', lines[at])
    lines[at] = quoted.removesuffix("):") + "".join(f", {v}: T.int32" for v in variables.values()) + "):"
    return "\n".join(lines) + "\n"


def _quoted(shape: str) -> str:
    """A shape of a parameter, whose open sizes are strings, as they are defined after it."""
    dimensions = [f'"{d}"' if "size_" in d else d for d in re.split(r",\s*", shape) if d]
    return ", ".join(dimensions) + "," * shape.endswith(",")


def _text(formula: Polynomial, wide: bool, variables: Mapping[str, str]) -> str:
    if is_constant(formula):
        value = sum(factor for _, factor in formula)
        return f"T.int64({value})" if wide else str(value)
    factors = [
        [*([str(factor)] if factor != 1 or not names else []), *(variables[n] for n in names)] for names, factor in formula
    ]
    terms = map(" * ".join, factors)
    text = f"({' + '.join(terms)})"
    return f'T.Cast("int64", {text})' if wide else text


def is_constant(formula: Polynomial) -> bool:
    return all(not product for product, _ in formula)


def fitted(names: Sequence[str], rows: Sequence[Row], values: Sequence[int]) -> Polynomial | None:
    """The simplest polynomial with integer factors that has these values; None without one."""
    if len(set(values)) == 1:
        return (((), values[0]),)
    for basis in _bases(names):
        if 1 < len(basis) >= len(rows):  # one sample more than there are factors, which would find another function
            continue
        matrix = np.array([[prod(row[n] for n in product) for product in basis] for row in rows], float)
        factors = np.rint(np.linalg.lstsq(matrix, np.array(values, float), rcond=None)[0]).astype(int).tolist()
        formula = tuple((product, factor) for product, factor in zip(basis, factors, strict=True) if factor) or (((), 0),)
        if all(polynomial_value(formula, row) == value for row, value in zip(rows, values, strict=True)):
            return formula
    return None


def _bases(names: Sequence[str]) -> Iterator[list[tuple[str, ...]]]:
    """Products of sizes to make polynomials of, the fewest first."""
    products = [p for degree in range(MAX_DEGREE + 1) for p in combinations_with_replacement(names, degree)]
    yield [()]
    yield from ([p] for p in products[1:])
    yield from ([(), p] for p in products[1:])
    if len(names) > 2:  # more than the samples have all factors of
        yield [(), *((name,) for name in names)]
        yield from ([*few] for count in (2, 3) for few in combinations(products, count))
    yield products
