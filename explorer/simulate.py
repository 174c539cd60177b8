"""Runs of small programs, recorded frame by frame: loop values, accesses, and hits of a simulated cache."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby, zip_longest
from math import prod
from typing import Any

import numpy as np

from tir import dtypes
from tir.interpreter.generate import Generator
from tir.interpreter.python_functions import plain_names
from tir.ir import Buffer, For, Kind, PrimFunc, as_int, const_shape
from tir.traverse import loops

LINE = 4  # elements of a line of the simulated cache
LINES = 16  # lines of each worker's cache
WORKERS = 2  # workers that share the iterations of a parallel loop
MAX_ACCESSES = 3000  # accesses of a stage in a page
MAX_DRAWN_ELEMENTS = 1024  # most elements of a buffer that is drawn whole
MAX_EVENTS = 60_000  # statements executed in a run, which ends then

Access = tuple[str, int, bool]  # buffer, element, True for a write


@dataclass(frozen=True)
class Event:
    """One execution of a statement: the values of the loops around it, and its accesses."""

    loops: tuple[tuple[str, int], ...]
    accesses: tuple[Access, ...]


@dataclass
class SimulatedRun:
    """The run of a small program: its `buffers` with their shapes, the shown `frames`, and the numbers of `hits` and `misses` of
    all accesses. A frame has for each worker the values of its loops, the number of lanes, and its accesses. An access is a
    buffer, an element, and flags: 1 for a miss, 2 for a write."""

    buffers: list[tuple[str, tuple[int, ...]]]
    frames: list[list[tuple[dict[str, int], int, list[tuple[int, int, int]]]]] = field(default_factory=list)
    hits: int = 0
    misses: int = 0
    steps: int = 0  # the number of frames, shown or not
    misses_of: Counter[str] = field(default_factory=Counter)  # by buffer

    def as_json(self) -> dict[str, Any]:
        """The run as JSON data for the page."""
        touched: list[set[int]] = [set() for _ in self.buffers]
        for buffer, element, _ in (a for f in self.frames for _, _, own in f for a in own):
            touched[buffer].add(element)
        drawn = [_compacted(shape, elements) for (_, shape), elements in zip(self.buffers, touched, strict=True)]
        frames = [
            [
                [values, lanes, [n for b, element, how in own for n in (b, drawn[b][1].get(element, element), how)]]
                for values, lanes, own in f
            ]
            for f in self.frames
        ]
        buffers = [{"name": n, "shape": list(s), "drawn": d} for (n, s), (d, _) in zip(self.buffers, drawn, strict=True)]
        return {"buffers": buffers, "frames": frames, "hits": self.hits, "misses": self.misses, "steps": self.steps}


def _compacted(shape: tuple[int, ...], elements: set[int]) -> tuple[list[int], dict[int, int]]:
    """The drawn shape of a buffer, and its elements' new positions. A large buffer is reduced to accessed rows and columns."""
    if prod(shape) <= MAX_DRAWN_ELEMENTS:
        return list(shape), {}
    last = shape[-1]
    rows = {n: k for k, n in enumerate(sorted({p // last for p in elements}))}
    columns = {n: k for k, n in enumerate(sorted({p % last for p in elements}))}
    return [len(rows), len(columns)], {p: rows[p // last] * len(columns) + columns[p % last] for p in elements}


class Full(Exception):
    """The end of a run after MAX_EVENTS."""


class _Memory:
    """An array that logs its accesses; elements are 0 until they are written."""

    def __init__(self, name: str, dtype: str, shape: Sequence[int], tell: _Log):
        self.name, self.shape, self._tell = name, tuple(shape), tell
        self._zero = np.zeros((), dtypes.storage(dtype))[()]
        self._values: dict[int, Any] = {}

    def _element(self, index: Any) -> int:
        index = index if isinstance(index, tuple) else (index,)
        element = 0
        for i, extent in zip(index, self.shape, strict=True):
            element = element * extent + int(i)
        return element

    def __getitem__(self, index: Any) -> Any:
        element = self._element(index)
        self._tell.touched(self.name, element, False)
        return self._values.get(element, self._zero)

    def __setitem__(self, index: Any, value: Any) -> None:
        element = self._element(index)
        self._values[element] = value
        self._tell.touched(self.name, element, True)


class _Log:
    def __init__(self) -> None:
        self.now: dict[str, int] = {}
        self.events: list[Event] = []
        self.memories: dict[str, _Memory] = {}
        self._open: list[Access] = []

    def counted(self, name: str, extent: int) -> Iterator[int]:
        """The iterations of a loop."""
        for n in range(extent):
            self.now[name] = n
            yield n
        self.now.pop(name, None)

    def touched(self, name: str, element: int, write: bool) -> None:
        self._open.append((name, element, write))
        if write:
            self.events.append(Event(tuple(self.now.items()), tuple(self._open)))
            self._open = []
            if len(self.events) >= MAX_EVENTS:
                raise Full

    def memory(self, name: str, dtype: str, shape: Sequence[int]) -> _Memory:
        self.memories[name] = made = _Memory(name, dtype, shape, self)
        return made


class _Watched(Generator):
    """The interpreter's program, with loops and arrays that are logged."""

    def _for(self, loop: For) -> None:
        at = len(self._body.lines)
        super()._for(loop)
        line = self._body.lines[at]
        head, _, rest = line.partition(" in range(")
        self._body.lines[at] = f"{head} in counted({loop.name!r}, {rest}"

    def _allocate(self, b: Buffer) -> None:
        shape = ", ".join(self._expr(d) for d in b.shape)
        self._line(f"{self._declare(b)} = memory({b.name!r}, {b.dtype!r}, ({shape}{',' if len(b.shape) == 1 else ''}))")


def events(func: PrimFunc) -> tuple[list[Event], list[tuple[str, tuple[int, ...]]]]:
    """The accesses of each execution of a statement, in order, and the buffers. The arrays are full of zeros."""
    program, log = _Watched(func, fast=False, traps=False), _Log()
    names = {**plain_names(), "counted": log.counted, "memory": log.memory}
    exec(compile(program.text, f"<explorer: {func.name}>", "exec"), names)
    arguments = [log.memory(p.name, p.dtype, const_shape(p)) if isinstance(p, Buffer) else 1 for p in func.params]
    with np.errstate(all="ignore"):
        try:
            names[program.functions[-1]](*arguments, np.random.default_rng(0))
        except Full:
            pass
    return log.events, [(m.name, m.shape) for m in log.memories.values()]


def run(func: PrimFunc) -> SimulatedRun:
    """The run of a small program, frame by frame: lanes of a vector together, workers of a parallel loop side by side."""
    return replayed(func, *events(func))


def replayed(func: PrimFunc, found: Sequence[Event], buffers: list[tuple[str, tuple[int, ...]]]) -> SimulatedRun:
    """The run of a program whose events were recorded."""
    result, numbers = SimulatedRun(buffers), {name: n for n, (name, _) in enumerate(buffers)}
    kinds = {x.name: x.kind for x in loops(func.body)}
    extents = {x.name: as_int(x.extent, "an extent") for x in loops(func.body)}
    caches: list[OrderedDict[tuple[int, int], None]] = [OrderedDict() for _ in range(WORKERS)]
    shown = 0
    for together in _concurrent(_lanes(found, kinds), kinds, extents):
        frame = []
        for worker, group in together:
            accesses = []
            for name, element, write in (a for e in group for a in e.accesses):
                hit = _touch(caches[worker], (numbers[name], element // LINE))
                result.hits, result.misses = result.hits + hit, result.misses + (not hit)
                result.misses_of[name] += not hit
                accesses.append((numbers[name], element, (not hit) + 2 * write))
            frame.append((dict(group[0].loops), len(group), accesses))
            shown += len(accesses)
        result.steps += 1
        if shown <= MAX_ACCESSES:
            result.frames.append(frame)
    return result


def _touch(cache: OrderedDict[tuple[int, int], None], line: tuple[int, int]) -> bool:
    """Access a line of a cache; True for a hit. A full cache evicts the least recently used line."""
    hit = line in cache
    cache[line] = None
    cache.move_to_end(line)
    if len(cache) > LINES:
        cache.popitem(last=False)
    return hit


Group = list[Event]


def _lanes(found: Sequence[Event], kinds: dict[str, Kind]) -> list[Group]:
    """Groups of events, each of one vector instruction: a statement, in iterations that differ in vectorised loops alone."""

    def key(e: Event) -> tuple:
        return tuple((n, v) for n, v in e.loops if kinds.get(n) is not Kind.VECTORIZED)

    groups: list[Group] = []
    for _, same in groupby(found, key):
        by_statement: dict[tuple, Group] = {}
        for e in same:
            vector = any(kinds.get(n) is Kind.VECTORIZED for n, _ in e.loops)
            statement = (e.accesses[-1][0], len(e.accesses)) if vector else (id(e),)
            by_statement.setdefault(statement, []).append(e)
        groups += by_statement.values()
    return groups


def _concurrent(groups: Sequence[Group], kinds: dict[str, Kind], extents: dict[str, int]) -> Iterator[list[tuple[int, Group]]]:
    """Lists of (worker, group) that run at once. In a parallel loop each worker has a share of the iterations."""

    def depth(group: Group) -> int | None:
        """The place of the outermost parallel loop among those around a group."""
        return next((n for n, (name, _) in enumerate(group[0].loops) if kinds.get(name) is Kind.PARALLEL), None)

    def region(group: Group) -> object:
        at = depth(group)
        return None if at is None else (group[0].loops[at][0], group[0].loops[:at])

    for key, own in groupby(groups, region):
        if key is None:
            yield from ([(0, g)] for g in own)
            continue
        shares: list[list[Group]] = [[] for _ in range(WORKERS)]
        for g in own:
            name, value = g[0].loops[depth(g) or 0]
            shares[min(WORKERS - 1, value * WORKERS // max(1, extents[name]))].append(g)
        for together in zip_longest(*shares):
            yield [(w, g) for w, g in enumerate(together) if g is not None]
