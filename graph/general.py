"""Kernels of open sizes: one for all functions of a network that differ only in numbers that follow from its sizes.

The functions of groups are compared at several sizes, as scripts. Where scripts differ in integers alone, each integer is a
polynomial of the sizes, which gives one function of open sizes. It is compiled by the schedule of one of them (`search.sizes`).

A kernel serves a function at other sizes only if its script, with these sizes, is the script of that function. So a polynomial
that holds by chance costs time, never a wrong result.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement, product
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
from tir.specialize import specialize
from tir.verify.bounds import refuse_out_of_bounds

from .kernels import NAME_DIGITS, CompiledFunction, GroupKernel, encoded, main_and_preparation

SAMPLES_PER_SIZE = 3  # values of each size at which functions are compared: as many as a polynomial of degree 2 has coefficients
MAX_SAMPLES = 9  # combinations of sizes that are compared
MAX_DEGREE = 2  # of polynomials
INTEGER = re.compile(r"T\.int64\((-?\d+)\)|(?<![\w.])(\d+)(?![\w.])")

Row = Mapping[str, int]
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
        text = func.script()
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


Polynomial = tuple[tuple[tuple[str, ...], int], ...]  # of products of sizes, by name, and their factors


class GeneralKernels:
    """Kernels of open sizes for the functions of a network whose open sizes are `names`."""

    def __init__(self, names: Sequence[str], target: Target, records: Records | None, cache: ObjectCache | None):
        self.names, self.target, self.records, self.cache = tuple(names), target, records, cache
        self._samples: dict[tuple[Text, int], list[tuple[Row, PrimFunc, Numbers]]] = {}
        self._known: dict[Text, list[_General]] = {}

    def learn(self, row: Row, funcs: Sequence[PrimFunc]) -> None:
        """Take the functions of the network at a sample of its sizes. Of those that differ in integers alone, the first is taken
        for the first at other samples, and so on."""
        counts: Counter[Text] = Counter()
        for func in dict.fromkeys(funcs):
            found = Numbers.of(func)
            self._samples.setdefault((found.text, counts[found.text]), []).append((row, func, found))
            counts[found.text] += 1

    def compile(self) -> None:
        """Compile a kernel for all functions that occurred at several samples."""
        for (text, _), samples in self._samples.items():
            if len(samples) > 1 and (general := self._compiled(samples)) is not None:
                self._known.setdefault(text, []).append(general)
        self._samples.clear()

    def kernel(self, func: PrimFunc, row: Row) -> OpenKernel | None:
        """The kernel for a function at these sizes, None where none is certain to be it."""
        found, sizes = Numbers.of(func), tuple(row[name] for name in self.names)
        for general in self._known.get(found.text, ()):
            if tuple(_value(f, row) for f in general.formulas) == found.values:
                main, preparation = general.parts
                return OpenKernel(func, main.symbol, self.target, None, main, preparation, sizes, general.opened)
        return None

    def _compiled(self, samples: Sequence[tuple[Row, PrimFunc, Numbers]]) -> _General | None:
        rows = [row for row, _, _ in samples]
        formulas = tuple(fitted(self.names, rows, values) for values in zip(*(n.values for _, _, n in samples), strict=True))
        known = tuple(f for f in formulas if f is not None)
        row, func, numbers = max(samples, key=lambda s: sum(s[0].values()))
        if len(known) < len(formulas):
            return None
        variables = {name: f"size_{n}" for n, name in enumerate(self.names)}
        opened = parse(_script(numbers, known, variables))
        assert isinstance(opened, PrimFunc)
        values = {variables[name]: row[name] for name in self.names}
        assert Numbers.of(specialize(opened, values)).values == numbers.values, opened
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
        return _General(known, general, main_and_preparation(data))


def _named(part: CompiledFunction, shapes: Mapping[str, Buffer]) -> CompiledFunction:
    return CompiledFunction(part.symbol, tuple(shapes.get(b.name, b) for b in part.params), part.scratch, part.code)


def samples(names: Sequence[str], named: Sequence[Row]) -> list[dict[str, int]]:
    """Combinations of sizes at which functions are compared: some of each size up to its largest named one, all above 1; and some
    with a size of 1, where that is named, as a loop of one iteration is none."""
    values = [_spread(max(SAMPLES_PER_SIZE + 1, *(row[name] for row in named))) for name in names]
    rows = [dict(zip(names, row, strict=True)) for row in product(*values)]
    if len(rows) > MAX_SAMPLES:
        chosen = np.random.default_rng(0).choice(len(rows) - 1, MAX_SAMPLES - 1, replace=False)
        rows = [*(rows[n] for n in sorted(chosen.tolist())), rows[-1]]
    for name in names if len(names) > 1 else ():
        if any(row[name] == 1 for row in named):
            rows += [dict(zip(names, row, strict=True)) | {name: 1} for row in zip(*values, strict=True)]
    return rows


def _spread(largest: int) -> list[int]:
    """SAMPLES_PER_SIZE different sizes above 1 and up to `largest`, odd ones where there are enough."""
    odd = list(range(3, largest + 1, 2))
    pool = odd if len(odd) >= SAMPLES_PER_SIZE else list(range(2, largest + 1))
    return [pool[round(k * (len(pool) - 1) / (SAMPLES_PER_SIZE - 1))] for k in range(SAMPLES_PER_SIZE)]


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
    if all(not product for product, _ in formula):
        value = sum(factor for _, factor in formula)
        return f"T.int64({value})" if wide else str(value)
    factors = [
        [*([str(factor)] if factor != 1 or not names else []), *(variables[n] for n in names)] for names, factor in formula
    ]
    terms = map(" * ".join, factors)
    text = f"({' + '.join(terms)})"
    return f'T.Cast("int64", {text})' if wide else text


def _value(formula: Polynomial, row: Row) -> int:
    return sum(factor * prod(row[name] for name in names) for names, factor in formula)


def fitted(names: Sequence[str], rows: Sequence[Row], values: Sequence[int]) -> Polynomial | None:
    """The simplest polynomial with integer factors that has these values; None without one."""
    for basis in _bases(names):
        if len(basis) > len(rows):
            continue
        matrix = np.array([[prod(row[n] for n in product) for product in basis] for row in rows], float)
        factors = np.rint(np.linalg.lstsq(matrix, np.array(values, float), rcond=None)[0]).astype(int).tolist()
        formula = tuple((product, factor) for product, factor in zip(basis, factors, strict=True) if factor) or (((), 0),)
        if all(_value(formula, row) == value for row, value in zip(rows, values, strict=True)):
            return formula
    return None


def _bases(names: Sequence[str]) -> Iterator[list[tuple[str, ...]]]:
    """Products of sizes to make polynomials of, the fewest first."""
    products = [p for degree in range(MAX_DEGREE + 1) for p in combinations_with_replacement(names, degree)]
    yield [()]
    yield from ([p] for p in products[1:])
    yield from ([(), p] for p in products[1:])
    yield products
