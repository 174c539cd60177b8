"""Chains of calls that only move elements become the shortest ones.

Reshapes, transposes and slices of a source give its elements at strides, as long as a reshape of strided elements is strided:

    value[i0, i1, ...] = source.flat[offset + i0 * stride0 + i1 * stride1 + ...]

One view, one slice and one transpose follow from the strides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from ..ir import Call, Graph, Value
from ..kinds import affine_indices
from ..ops import definition
from .rewriting import Rewriting, rewrite


@dataclass(frozen=True)
class Strided:
    """Elements of `source`, in their order, from `offset` on at `strides`; a dimension of extent 1 has the stride 0."""

    source: Value
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int = 0

    @property
    def is_row(self) -> bool:
        """True where the elements follow each other without gaps."""
        inner = 1
        for extent, stride in zip(reversed(self.shape), reversed(self.strides), strict=True):
            if extent > 1 and stride != inner:
                return False
            inner *= extent
        return True

    def reshaped(self, shape: Sequence[int]) -> Strided | None:
        """The same elements in another shape; None where that has no strides."""
        runs: list[list[int]] = []  # extents and strides of dimensions merged where they are contiguous
        for extent, stride in zip(self.shape, self.strides, strict=True):
            if extent == 1:
                continue
            if runs and runs[-1][1] == extent * stride:
                runs[-1] = [runs[-1][0] * extent, stride]
            else:
                runs.append([extent, stride])
        strides = []
        for extent in reversed(shape):
            if extent == 1:
                strides.append(0)
                continue
            left, stride = runs[-1]
            if left % extent:
                return None
            strides.append(stride)
            runs[-1] = [left // extent, stride * extent]
            if left == extent:
                runs.pop()
        return replace(self, shape=tuple(shape), strides=tuple(reversed(strides)))

    def read(self, indices: Sequence[Sequence[int]] | None, shape: tuple[int, ...]) -> Strided | None:
        """The elements at indices, by their factors of axes, and a constant; None where elements recur or run backwards."""
        if indices is None:
            return None
        *strides, offset = (
            sum(i * stride for i, stride in zip(of, self.strides, strict=True)) for of in zip(*indices, strict=True)
        )
        strides = [0 if extent == 1 else stride for extent, stride in zip(shape, strides, strict=True)]
        fits = all(stride > 0 or extent == 1 for extent, stride in zip(shape, strides, strict=True))
        return replace(self, shape=shape, strides=tuple(strides), offset=self.offset + offset) if fits else None

    def part(self, axis: int, start: int, count: int, step: int = 1) -> Strided:
        """`count` elements of an axis, from `start` on."""
        shape, strides = [*self.shape], [*self.strides]
        shape[axis], strides[axis] = count, strides[axis] * step if count > 1 else 0
        return replace(self, shape=tuple(shape), strides=tuple(strides), offset=self.offset + start * self.strides[axis])


def whole(value: Value) -> Strided:
    """A value as its own elements."""
    strides = tuple(0 if e == 1 else prod(value.shape[n + 1 :]) for n, e in enumerate(value.shape))
    return Strided(value, value.shape, strides)


def simplify_layouts(graph: Graph) -> Graph:
    """Merge consecutive moves into one, or into a view where elements stay in order.

    A value with other readers is kept where the result is a contiguous part of it, which needs no kernel of its own.
    """
    consumers, outputs = graph.consumers(), set(graph.outputs)

    def needed(value: Value) -> bool:
        """True where a value is an output, or has several readers or one that is no move."""
        readers = consumers.get(value, [])
        return value in outputs or len(readers) > 1 or not all(definition(c).moves for c in readers)

    def rule(r: Rewriting, call: Call) -> list[Call] | None:
        if not definition(call).moves:
            return None
        chains = [list(_chain(r, call, v)) for v in call.outputs]
        if not all(chains):
            return None
        calls: list[Call] = []
        for value, chain in zip(call.outputs, chains, strict=True):
            found = _best(chain, needed)
            emitted = None if found is None else _calls(r, found, value)
            if emitted is None:
                return None
            calls += emitted
        return calls

    return rewrite(graph, rule)


def _best(chain: Sequence[Strided], needed: Callable[[Value], bool]) -> Strided | None:
    """The best of a value's strided forms, nearest source first, to make it by; None to leave it as it is."""
    nearest, farthest = chain[0], chain[-1]
    if farthest.is_row:
        return farthest
    row = next((s for s in chain[:-1] if s.is_row and needed(s.source)), None)
    return row or (None if nearest is farthest else farthest)


def _chain(r: Rewriting, call: Call, value: Value) -> Iterator[Strided]:
    """The strided forms of a value over the input of its producer, over the input of that one's producer, and so on."""
    steps: list[tuple[Call, Value]] = []
    while True:
        steps.insert(0, (call, value))
        found: Strided | None = whole(call.values[0])
        for step, result in steps:
            found = None if found is None else _step(r, step, result, found)
        if found is None:
            return
        yield found
        value = call.values[0]
        before = r.producers.get(value)
        if before is None or not definition(before).moves:
            return
        call = before


def _step(r: Rewriting, call: Call, result: Value, s: Strided) -> Strided | None:
    """The result of a call on strided elements; None where it is not strided."""
    rank = len(s.shape)
    match call.operator:
        case _ if definition(call).view:
            return s.reshaped(result.shape)
        case "Gather":
            index = r.known(call.inputs[1])
            axis = call.attribute("axis", 0) % rank
            if index is None:
                return None
            indices = index.reshape(-1) % s.shape[axis]
            step = int(indices[1] - indices[0]) if indices.size > 1 else 1
            if step < 1 or (np.diff(indices) != step).any():
                return None
            return s.part(axis, int(indices[0]), indices.size, step).reshaped(result.shape)
        case _:
            return s.read(affine_indices(call, call.outputs.index(result)), result.shape)


# --- calls -------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Level:
    """A dimension of a view of a source, of which `count` elements are taken from `begin` on."""

    extent: int
    begin: int
    count: int


def _calls(r: Rewriting, s: Strided, result: Value) -> list[Call] | None:
    """The calls that make a value: a view, a slice, a transpose and a view, as far as needed; None where these cannot."""
    found = _levels(s)
    if found is None:
        return None
    levels, order = _ordered(found, s.shape)
    value, name, calls = s.source, result.name, list[Call]()

    def append(operator: str, suffix: str, **attributes: Any) -> None:
        nonlocal value
        calls.append(r.call(operator, [value], f"{name}_{suffix}", **attributes))
        value = calls[-1].outputs[0]

    extents = tuple(x.extent for x in levels)
    if value.shape != extents:
        append("Reshape", "view", shape=extents)
    axes = tuple(n for n, x in enumerate(levels) if x.count < x.extent)
    if axes:
        begins = [levels[n].begin for n in axes]
        ends = tuple(b + levels[n].count for b, n in zip(begins, axes, strict=True))
        append("Slice", "part", starts=tuple(begins), ends=ends, axes=axes)
    perm = [levels.index(x) for x in order]
    moving = [n for n in perm if levels[n].count > 1]
    if moving != sorted(moving):
        append("Transpose", "transposed", perm=tuple(perm))
    if value.shape != result.shape or not calls:
        append("Reshape", "shaped", shape=result.shape)
    return [*calls[:-1], replace(calls[-1], outputs=(result,))]


def _levels(s: Strided) -> list[tuple[_Level, int | None]] | None:
    """The dimensions of the view of the source, outermost first, each with its dimension of the value, or None where one element
    of it is taken. None where no view fits the strides."""
    total = prod(s.source.shape)
    moving = sorted((stride, extent, n) for n, (extent, stride) in enumerate(zip(s.shape, s.strides, strict=True)) if extent > 1)
    levels: list[tuple[_Level, int | None]] = []
    inner = 1  # elements of the source in the levels so far

    def add(extent: int, count: int, dimension: int | None) -> None:
        nonlocal inner
        levels.insert(0, (_Level(extent, s.offset // inner % extent if count < extent else 0, count), dimension))
        inner *= extent

    for number, (stride, extent, dimension) in enumerate(moving):
        outside = moving[number + 1][0] if number + 1 < len(moving) else total
        if stride % inner or outside % stride:
            return None
        if stride > inner:
            add(stride // inner, 1, None)
        room = outside // stride
        begin = s.offset // stride % room
        if begin + extent > room:
            return None
        add(extent if room % extent == 0 and begin % extent == 0 else room, extent, dimension)
    if total > inner:
        add(total // inner, 1, None)
    return levels


def _ordered(levels: list[tuple[_Level, int | None]], shape: Sequence[int]) -> tuple[list[_Level], list[_Level]]:
    """The levels, and their order in the value. Levels of one element take its dimensions of extent 1, or stand in front where
    these are too few. Further dimensions of extent 1 get new levels."""
    level_of = {dimension: x for x, dimension in levels if dimension is not None}
    single = [x for x, dimension in levels if dimension is None]
    spare = max(0, len(single) - sum(e == 1 for e in shape))
    order, single, found = single[:spare], single[spare:], [x for x, _ in levels]
    for n, extent in enumerate(shape):
        if extent > 1:
            order.append(level_of[n])
        elif single:
            order.append(single.pop(0))
        else:
            new = _Level(1, 0, 1)
            found.insert(found.index(order[-1]) + 1 if order else 0, new)
            order.append(new)
    return found, order
