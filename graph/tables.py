"""Programs whose addresses are words of a table: they run a plan for all sizes without a compiler.

The entry of a plan (see `planned`) reads addresses, sizes and numbers of bytes from a table. This module has the polynomials that
give the table of a size, the sizes at which they hold, and the network that calls the entry with a table.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import log, prod
from typing import Any

import numpy as np

from codegen.runtime.alignment import aligned
from codegen.runtime.memory import aligned_memory
from tir.arrays import content

from .ir import Value
from .network import Entry, Network

ROOM = "room of buffers"  # the size that is the length of buffers of caches that grow (see `growth`)

Row = Mapping[str, int]
Polynomial = tuple[tuple[tuple[str, ...], int], ...]  # terms: the names of the sizes in a product, and its factor


@dataclass(frozen=True, eq=False)
class Formulas:
    """Polynomials of sizes as a matrix of factors, one row each. `products` are those of sizes, by the positions of these."""

    products: list[list[int]]
    matrix: np.ndarray

    @classmethod
    def of(cls, names: Sequence[str], formulas: Sequence[Polynomial]) -> Formulas:
        products = sorted({product for f in formulas for product, _ in f})
        at = {product: n for n, product in enumerate(products)}
        matrix = np.zeros((len(formulas), len(products)), np.int64)
        for n, formula in enumerate(formulas):
            for product, factor in formula:
                matrix[n, at[product]] += factor
        return cls([[names.index(name) for name in product] for product in products], matrix)

    @classmethod
    def read(cls, written: Any) -> Formulas | None:
        return None if written is None else cls(written[0], np.array(written[1], np.int64).reshape(-1, len(written[0])))

    def written(self) -> Any:
        return self.products, self.matrix.tolist()

    def __call__(self, sizes: Sequence[int]) -> list[int]:
        return (self.matrix @ np.array([prod(sizes[n] for n in p) for p in self.products], np.int64)).tolist()


def leading(whole: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """The leading part of an array."""
    return whole[tuple(slice(0, n) for n in shape)]


def sized_elements(elements: Formulas, sizes: Sequence[int], like: np.ndarray) -> np.ndarray:
    """The constant whose elements are these polynomials, in the shape and type of `like`."""
    return np.array(elements(sizes)).astype(like.dtype).reshape(like.shape)


def polynomial_value(formula: Polynomial, row: Row) -> int:
    """The value of a polynomial at some sizes."""
    return sum(factor * prod(row[name] for name in names) for names, factor in formula)


def ones_of(row: Row, free: Collection[str] = ()) -> frozenset[str]:
    """The sizes that are 1, without those of no loop."""
    return frozenset(name for name, size in row.items() if size == 1 and name not in free)


@dataclass(frozen=True)
class Coverage:
    """The sizes that a plan covers, none without `least`. Those named in `ones` are 1; the others have an `octagon` between
    `least` and `most`, and are at most their `limits`. `rows` are the sizes of the samples. Those that are `free` are never
    taken for 1; ROOM, which only strides follow from, may be any."""

    names: tuple[str, ...]
    ones: tuple[str, ...]
    least: tuple[int, ...]
    most: tuple[int, ...]
    limits: Row
    rows: tuple[Row, ...]
    free: tuple[str, ...] = ()

    @property
    def open(self) -> list[str]:
        return [name for name in self.names if name not in self.ones and name != ROOM]

    def __contains__(self, row: Row) -> bool:
        if not self.least or ones_of(row, self.free) != frozenset(self.ones):
            return False
        within = all(a <= n <= b for a, n, b in zip(self.least, self.octagon(row), self.most, strict=True))
        return within and all(row[name] <= self.limits.get(name, row[name]) for name in self.open)

    def octagon(self, row: Row) -> list[int]:
        """The open sizes, and the sums and differences of each two. Their bounds describe sizes below a limit, or one size below
        another (octagons: Mine, Higher-Order and Symbolic Computation 19, 2006)."""
        sizes = [row[name] for name in self.open]
        return [*sizes, *(n for a, b in combinations(sizes, 2) for n in (a + b, a - b))]

    def distance(self, row: Row) -> float:
        """The distance to the nearest sample: the sum of the magnitudes of the logarithms of the ratios of sizes, each plus 1."""
        return min(sum(abs(log((row[name] + 1) / (other[name] + 1))) for name in self.names) for other in self.rows)

    def __str__(self) -> str:
        """The ranges of the sizes."""
        between = dict(zip(self.open, zip(self.least, self.most, strict=True), strict=False))
        ranges = ((n, *between.get(n, (1, 1))) for n in self.names if n != ROOM)
        return ", ".join(f"{n} = {a}" if a == b else f"{n} = {a} to {min(b, self.limits.get(n, b))}" for n, a, b in ranges)


@dataclass(frozen=True, eq=False)
class Tables:
    """The tables of a program, whose values are known by positions. `dimensions` are those of all shapes, one after the other,
    and `ends` the ends of shapes. A value lies `parts` bytes inside of its root, one of `roots`.

    Roots in the arena begin after those `below`, others at `offsets`. `sized` are constants that follow from sizes: the largest
    ones, with formulas of the elements or None for a leading part. `copied` are values that are copied to outputs. `inputs` and
    `outputs` are positions, names and types.
    """

    coverage: Coverage
    dimensions: Formulas
    ends: list[int]
    itemsizes: list[int]
    roots: list[int]
    parts: Formulas
    offsets: list[int]
    below: list[tuple[int, list[int]]]
    sized: dict[int, tuple[np.ndarray, Formulas | None]]
    copied: list[int]
    inputs: list[tuple[int, str, str]]
    outputs: list[tuple[int, str, str]]

    def at(self, row: Row) -> tuple[tuple[Value, ...], tuple[Value, ...], np.ndarray, int]:
        """The inputs and outputs at these sizes, the table with the constants behind it, and the bytes of the arena."""
        sizes = [row[name] for name in self.coverage.names]
        dimensions = self.dimensions(sizes)
        shapes = [tuple(dimensions[begin:end]) for begin, end in zip([0, *self.ends], self.ends, strict=False)]
        nbytes = [prod(shape, start=size) for shape, size in zip(shapes, self.itemsizes, strict=True)]
        offsets, arena = list(self.offsets), 0
        for n, below in self.below:
            offsets[n] = max((aligned(offsets[m] + nbytes[m]) for m in below), default=0)
            arena = max(arena, offsets[n] + nbytes[n])
        words = len(offsets) + len(sizes) + len(self.copied)
        end = aligned(8 * words)
        for n in self.sized:
            offsets[n], end = end, aligned(end + nbytes[n])
        table = aligned_memory(end)
        parts = (offsets[root] + part for root, part in zip(self.roots, self.parts(sizes), strict=True))
        table[: 8 * words].view(np.int64)[:] = [*parts, *sizes, *(nbytes[n] for n in self.copied)]
        for n, (whole, elements) in self.sized.items():
            found = leading(whole, shapes[n]) if elements is None else sized_elements(elements, sizes, whole)
            table[offsets[n] : offsets[n] + nbytes[n]] = content(found)
        inputs, outputs = (tuple(Value(name, shapes[n], dtype) for n, name, dtype in v) for v in (self.inputs, self.outputs))
        return inputs, outputs, table, arena

    def written(self) -> dict[str, Any]:
        """All but `sized` as numbers, lists and dicts."""
        plain = ("ends", "itemsizes", "roots", "offsets", "below", "copied", "inputs", "outputs")
        formulas = {name: getattr(self, name).written() for name in ("dimensions", "parts")}
        return {"coverage": vars(self.coverage)} | formulas | {name: getattr(self, name) for name in plain}

    @classmethod
    def read(cls, written: Mapping[str, Any], sized: dict[int, tuple[np.ndarray, Formulas | None]]) -> Tables:
        """The tables that `written` gave."""
        covered: dict[str, Any] = {k: v if k == "limits" else tuple(v) for k, v in written["coverage"].items()}
        formulas = {name: Formulas.read(written[name]) for name in ("dimensions", "parts")}
        return cls(**{**written, **formulas, "coverage": Coverage(**covered), "sized": sized})


class TableProgram:
    """A program for many sizes: tables, weights by block, native functions (see `Network._functions`); `num_steps` has copies."""

    def __init__(
        self, name: str, tables: Tables, weights: Mapping[str, np.ndarray], labels: Sequence[str], num_steps: int, threads: int,
        donated: Mapping[str, str],
    ):  # fmt: skip
        self.name, self.tables, self.weights, self.labels = name, tables, dict(weights), list(labels)
        self.num_steps, self.threads, self.donated = num_steps, threads, dict(donated)
        self.arenas: list[np.ndarray] = []  # of calls that have ended, at any sizes

    functions: tuple[Entry, Entry | None, Entry | None]
    native: Callable[[Network, bool], Entry]  # gives the entry as `Network._native` does

    def at(self, row: Row) -> Planned:
        """The network at these sizes."""
        return Planned(self, *self.tables.at(row))


class Planned(Network):
    """A network of open sizes at given ones: their table of addresses, with the code of all sizes."""

    def __init__(
        self,
        program: TableProgram,
        inputs: tuple[Value, ...],
        outputs: tuple[Value, ...],
        table: np.ndarray,
        arena_nbytes: int,
    ):
        self.program = program
        super().__init__(
            program.name, inputs, outputs, program.weights, arena_nbytes, program.labels, program.num_steps, program.threads,
            program.donated,
        )  # fmt: skip
        self._blocks = (table, *self._blocks)
        self._arenas = program.arenas  # those of all sizes

    @property
    def _functions(self) -> tuple[Entry, Entry | None, Entry | None]:  # type: ignore[override]
        return self.program.functions

    def _native(self, written: bool) -> Entry:
        return self.program.native(self, written)


def nearest(programs: Sequence[TableProgram], row: Row) -> Planned | None:
    """The network at these sizes by the program with the nearest sample; None where no program covers them."""
    found = [p for p in programs if row in p.tables.coverage]
    return min(found, key=lambda p: p.tables.coverage.distance(row)).at(row) if found else None
