"""Measures that goals count: numbers of an attempt that are the same on every machine and need no clock."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from math import inf, prod
from typing import TYPE_CHECKING, Any

from codegen.build import build, dump, lower
from codegen.llvm.values import CodegenError
from codegen.target import Target
from explorer.answers import Attempt
from explorer.simulate import MAX_EVENTS, Event, SimulatedRun, events, replayed
from tir import dtypes
from tir.ir import Const, For, If, Kind, PrimFunc, Stmt, const_shape
from tir.traverse import blocks, loads, loops, stores, substatements, walk

if TYPE_CHECKING:
    from codegen.report import Loop

# 16 registers of 8 lanes; code for it is read, not run
X86 = Target("llvm -mtriple x86_64-linux-gnu -mcpu x86-64-v3 -num-cores 1")
SEARCHED = Target("llvm -mtriple x86_64-linux-gnu -mcpu x86-64-v3 -num-cores 2")  # the target of sketches and features


NEAR_ELEMENTS = 16  # in two vectors, or a row of a tile
MAX_TURNS = 1_000_000  # of all loops of a program that is watched: a second


class Unmeasured(Exception):
    """A program that a measure does not apply to, and why."""


@dataclass(frozen=True)
class Counted:
    """A number or a text that a goal compares, and what it is made of."""

    value: float | str
    detail: str = ""


class Subject:
    """An attempt, and what the measures share: the program with small temporaries, its run, its machine code."""

    def __init__(self, attempt: Attempt):
        self.attempt = attempt
        self.func: PrimFunc = attempt.schedule.func

    @cached_property
    def compacted(self) -> PrimFunc:
        """The program, each temporary as small as its region at a time, as the code generator makes it."""
        if not self.func.allocs and not any(b.allocs for b in blocks(self.func)):
            return self.func
        try:
            return lower(self.func, X86, after="compact_buffers")
        except ValueError as error:
            raise Unmeasured(str(error)) from None

    @cached_property
    def recorded(self) -> tuple[list[Event], list[tuple[str, tuple[int, ...]]]]:
        """The executions of statements, and the buffers with their shapes."""
        if (turns := _turns(self.compacted)) > MAX_TURNS:  # a guard may leave out most of them
            raise Unmeasured(f"the loops run {turns} times, which is too many to be watched")
        found, buffers = events(self.compacted)
        if len(found) >= MAX_EVENTS:
            raise Unmeasured(f"the program executes more than {MAX_EVENTS} statements, which is too many to be watched")
        return found, buffers

    @cached_property
    def simulated(self) -> SimulatedRun:
        """The run of the program with a cache for each worker."""
        return replayed(self.compacted, *self.recorded)

    @cached_property
    def inner(self) -> Loop:
        """The innermost loop of the machine code with most multiply-adds."""
        try:
            report: Any = build(self.func, X86).report()
            found = report.loops
        except (CodegenError, ValueError) as error:
            raise Unmeasured(str(error)) from None
        if not found:
            raise Unmeasured("the machine code has no loop: all of it is unrolled")
        return max(found, key=lambda loop: (loop.fma, loop.instructions))

    @cached_property
    def temporaries(self) -> dict[str, int]:
        """The bytes of each temporary."""
        found = self.compacted
        given = {p.name for p in found.params}
        touched = [x.buffer for x in loads(found)] + [x.buffer for x in stores(found)]
        buffers = {b.name: b for b in touched if b.name not in given}
        return {name: prod(const_shape(b)) * dtypes.storage(b.dtype).itemsize for name, b in buffers.items()}


def _turns(node: PrimFunc | Stmt) -> float:
    """The number of times that the bodies of all loops run."""
    inner = sum(map(_turns, substatements(node)))
    if not isinstance(node, For):
        return inner
    return node.extent.value * (1 + inner) if isinstance(node.extent, Const) else inf


def _listed(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.items())


def _misses(s: Subject) -> Counted:
    return Counted(s.simulated.misses, _listed(dict(s.simulated.misses_of.most_common())))


def _steps(s: Subject) -> Counted:
    kinds = [f"{x.name} is {x.kind.name.lower()}" for x in loops(s.compacted.body) if x.kind is not Kind.SERIAL]
    return Counted(s.simulated.steps, ", ".join(kinds) or "every loop is serial")


def _accesses(s: Subject, buffer: str, stored: bool) -> Counted:
    found = Counter(name for e in s.recorded[0] for name, _, write in e.accesses if write == stored)
    return Counted(found[buffer], f"of all buffers: {_listed(dict(found))}")


def _distance(s: Subject, buffer: str) -> Counted:
    last: dict[int, int] = {}
    longest, where = 0, "no element is accessed twice"
    for n, event in enumerate(s.recorded[0]):
        for element in {e for name, e, _ in event.accesses if name == buffer}:
            if n - last.setdefault(element, n) > longest:
                longest = n - last[element]
                around = ", ".join(f"{name} = {value}" for name, value in event.loops)
                where = f"the longest is before {around}"
            last[element] = n
    return Counted(longest, where)


def _leaps(s: Subject, buffer: str) -> Counted:
    read = [element for e in s.recorded[0] for name, element, write in e.accesses if name == buffer and not write]
    if not read:
        names = ", ".join(name for name, _ in s.recorded[1])
        raise Unmeasured(f"no {buffer} is read; there are {names}")
    leaps = sum(abs(b - a) > NEAR_ELEMENTS for a, b in pairwise(read))
    return Counted(leaps, f"{buffer} is read {len(read)} times")


def _temporaries(s: Subject) -> Counted:
    return Counted(sum(s.temporaries.values()), _listed(s.temporaries) or "there is no temporary")


def _guards(s: Subject) -> Counted:
    predicates = [b.name for b in blocks(s.func) if not isinstance(b.predicate, Const)]
    conditions = sum(isinstance(n, If) for n in walk(s.func))
    return Counted(len(predicates) + conditions, f"conditions on {', '.join(predicates)}" if predicates else "")


def _code(count: str) -> Callable[[Subject], Counted]:
    def counted(s: Subject) -> Counted:
        x = s.inner
        parts = f"{x.instructions} instructions: {x.fma} multiply-adds, {x.loads} loads, {x.broadcasts} broadcasts"
        at = f"an iteration of `{x.name}`" if x.name else "an iteration"
        return Counted(getattr(x, count), f"{at} has {parts}, {x.stores} stores, {x.spills} spills")

    return counted


def _peak(s: Subject) -> Counted:
    x = s.inner
    limits = ", ".join(f"{resource} {cycles:.3g}" for resource, cycles in x.bounds[:3])
    return Counted(round(100 * (x.share or 0.0)), f"cycles of an iteration of `{x.name}`, by what limits it: {limits}")


def _operands(s: Subject) -> Counted:
    x = s.inner
    return Counted(x.loads + x.broadcasts, _code("fma")(s).detail)


def _registers(s: Subject) -> Counted:
    spills = s.inner.spills  # first: it says what cannot be compiled
    found = set(re.findall(r"%[xyz]mm(\d+)", dump(s.func, X86, after="asm")))
    return Counted(len(found), f"of 16; spills {spills}")


def _feature(s: Subject, name: str) -> Counted:
    import numpy as np

    from costmodel.features import NAMES, features
    from costmodel.loopnest import program

    described = program(s.func)
    rows = features(described, np.zeros((1, 0)), SEARCHED.machine)[:, 0]
    values = [round(2 ** float(v) - 1, 1) for v in rows[:, NAMES.index(name)]]
    busiest = int(rows[:, NAMES.index("float_mad")].argmax())
    return Counted(values[busiest], f"by statement: {', '.join(f'{v:g}' for v in values)}")


def _sketches(s: Subject, space: str) -> Counted:
    from search.space.generation import generate

    found = generate(s.func, SEARCHED, space=space)
    return Counted(len(found), "; ".join(", ".join(x.rules) for x in found))


def _length(s: Subject, kind: str) -> Counted:
    found = {x.name: x.extent.value for x in loops(s.func.body) if x.kind.name.lower() == kind and isinstance(x.extent, Const)}
    return Counted(max(found.values(), default=0), _listed(found) or f"no loop is {kind}")


def _threads(s: Subject, thread: str) -> Counted:
    found = {x.name: x.extent.value for x in loops(s.func.body) if x.thread == thread and isinstance(x.extent, Const)}
    return Counted(max(found.values(), default=0), _listed(found) or f"no loop is bound to {thread}")


def _taken(s: Subject) -> Counted:
    return Counted(len(s.attempt.trace), "")


@dataclass(frozen=True)
class Measure:
    """A measure: what it counts in words, with `{}` for its argument, and its function."""

    words: str
    count: Callable[..., Counted]


MEASURES = {
    "distance": Measure("statements from one access to an element of {} to the next", _distance),
    "feature": Measure("the feature `{}` of the statement with most multiply-adds", _feature),
    "fma": Measure("multiply-adds in an iteration of the inner loop", _code("fma")),
    "guards": Measure("conditions", _guards),
    "instructions": Measure("instructions in an iteration of the inner loop", _code("instructions")),
    "leaps": Measure(f"reads of {{}} more than {NEAR_ELEMENTS} elements away from the one before", _leaps),
    "length": Measure("iterations of the longest loop that is {}", _length),
    "loads": Measure("loads of {}", lambda s, buffer: _accesses(s, buffer, False)),
    "misses": Measure("misses of the simulated cache", _misses),
    "operands": Measure("loads and broadcasts in an iteration of the inner loop", _operands),
    "peak": Measure("percent of the core's peak that the inner loop allows", _peak),
    "registers": Measure("vector registers in the machine code", _registers),
    "sketches": Measure("sketches in the space `{}`", _sketches),
    "spills": Measure("spills in the inner loop", _code("spills")),
    "steps": Measure("steps of the run, lanes together and two workers at once", _steps),
    "stores": Measure("stores to {}", lambda s, buffer: _accesses(s, buffer, True)),
    "taken": Measure("primitives in the answer", _taken),
    "temporaries": Measure("bytes of temporaries", _temporaries),
    "threads": Measure("threads along {}", _threads),
}
