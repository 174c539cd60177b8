"""Loops of a graph: the calls that run in each step, their order, and the places of what they carry from step to step.

A step writes a new state to one of two buffers in turn, or to the row of a stacked result, if the state is one. The next step
reads it there. Slices and rows lie in their arrays.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from codegen.runtime.alignment import aligned
from codegen.steps import Move

from .ir import Call, Graph, Value, stable_order
from .ops.loops import BEGIN, END
from .places import Places


@dataclass(frozen=True, eq=False)
class Loop:
    """A loop of a graph. `values` are the outputs of `begin` and of the calls of a step, those of inner loops included."""

    begin: Call
    end: Call
    values: frozenset[Value]

    @cached_property
    def name(self) -> str:
        return self.begin.attribute("loop")

    @property
    def steps(self) -> int | None:
        """The number of steps; None where it is computed, or a condition may end them."""
        return None if self.begin.attribute("conditional") else self.begin.attribute("steps")

    @cached_property
    def states(self) -> list[tuple[Value, Value, Value, Value]]:
        """Four values of each state: the first one, the one that a step reads, the one that it makes, and the last one."""
        count = self.begin.attribute("states")
        both = zip(self.begin.values[1 : 1 + count], self.begin.outputs[1 : 1 + count], strict=True)
        made = zip(self.end.values[1 : 1 + count], self.end.outputs[1 : 1 + count], strict=True)
        return [(*a, *b) for a, b in zip(both, made, strict=True)]

    def arrays(self, call: Call) -> list[tuple[Value, Value, bool]]:
        """The arrays and slices of the call `begin`, or the rows and arrays of `end`, each with True if walked backward."""
        first = 1 + self.begin.attribute("states")
        backward = call.attribute("backward") or (0,) * len(call.outputs[first:])
        return list(zip(call.values[first:], call.outputs[first:], map(bool, backward), strict=True))


def is_loop(call: Call) -> bool:
    """True for the two calls around the steps of a loop."""
    return call.operator in (BEGIN, END)


def loops_of(graph: Graph) -> list[Loop]:
    """The loops of a graph in the order of their first calls: inner loops after outer ones."""
    ends = {c.values[0]: c for c in graph.calls if c.operator == END}
    found = [(c, ends[c.outputs[0]]) for c in graph.calls if c.operator == BEGIN and c.outputs[0] in ends]
    if not found:
        return []
    begins = {end: begin for begin, end in found}
    readers, fixed = graph.consumers(), set[Value]()
    for call in graph.calls:  # calls on constants alone, which are in a loop if only that loop reads them
        if not is_loop(call) and all(v.name in graph.constants or v in fixed for v in call.values):
            fixed |= set(call.outputs)

    def inside(begin: Call, end: Call) -> frozenset[Value]:
        values, left = set[Value](), [begin]
        while left:
            call = left.pop()
            if call is end or values.issuperset(call.outputs):
                continue
            values.update(call.outputs)
            left += [c for v in call.outputs for c in readers.get(v, ())]
            left += [begins[call]] if call in begins else []
        for call in reversed(graph.calls):
            if fixed.issuperset(call.outputs) and not set(graph.outputs) & set(call.outputs):
                own = [c for v in call.outputs for c in readers.get(v, ())]
                if own and all(values.issuperset(c.outputs) for c in own):
                    values |= set(call.outputs)
        return frozenset(values)

    return [Loop(begin, end, inside(begin, end)) for begin, end in found]


def ordered(graph: Graph) -> Graph:
    """The graph with the calls of each loop between its beginning and its end, and all others before or after them."""
    loops = loops_of(graph)
    return graph.with_(calls=tuple(_ordered(graph.calls, loops))) if loops else graph


def _ordered(calls: Sequence[Call], loops: Sequence[Loop]) -> list[Call]:
    """Calls in an order in which they can run, with the calls of each loop together."""
    outer = outermost(loops)
    unit: dict[Value, int] = {}
    for n, loop in enumerate(outer):
        unit |= dict.fromkeys((*loop.values, *loop.end.outputs), n)
    members: list[list[Call]] = [[] for _ in outer]
    for call in calls:
        if call.outputs[0] in unit and unit[call.outputs[0]] < len(outer):
            members[unit[call.outputs[0]]].append(call)
        else:
            unit |= dict.fromkeys(call.outputs, len(members))
            members.append([call])
    own = [{v for c in m for v in c.outputs} for m in members]
    needs = [
        sorted({unit[v] for c in m for v in c.values if v in unit and v not in o}) for m, o in zip(members, own, strict=True)
    ]
    at = {call: n for n, call in enumerate(calls)}
    found: list[Call] = []
    for n in stable_order(needs, [at[m[0]] for m in members]):
        if n < len(outer):
            loop = outer[n]
            body = [c for c in members[n] if c is not loop.begin and c is not loop.end]
            inner = [other for other in loops if other is not loop and _holds(loop, other)]
            found += [loop.begin, *_ordered(body, inner), loop.end]
        else:
            found += members[n]
    return found


def _holds(outer: Loop, inner: Loop) -> bool:
    return inner.begin.outputs[0] in outer.values


def outermost(loops: Sequence[Loop]) -> list[Loop]:
    """The loops that are in no other of these loops."""
    return [one for one in loops if not any(_holds(other, one) for other in loops if other is not one)]


# --- places ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Within:
    """The place of a value inside another: `offset` bytes into `whole`, and further by `moves` from step to step."""

    whole: Value
    offset: int = 0
    moves: tuple[Move, ...] = ()


@dataclass(frozen=True)
class LoopCarried:
    """The place of a state that a step reads: that of its `first` value, then that of the `later` one from the step before."""

    loop: str
    first: Value
    later: Value


@dataclass(frozen=True, eq=False)
class Repetition:
    """A loop whose steps are the groups of a plan from `first` up to `last`, without it. Each step ends with the copies `each`,
    the loop with those of `after`: pairs of a target and a source. `buffers` are the memory of its own."""

    loop: Loop
    first: int
    last: int
    each: tuple[tuple[Value, Value], ...]
    after: tuple[tuple[Value, Value], ...]
    buffers: tuple[Value, ...]

    @property
    def begin(self) -> float:
        """The position where it begins, between two groups; `end` likewise."""
        return self.first - 0.5

    @property
    def end(self) -> float:
        return max(self.first, self.last) - 0.5

    @property
    def read(self) -> list[Value]:
        """The values that the loop itself reads: a computed count, first states, arrays, and sources of copies."""
        count = [] if self.loop.begin.attribute("steps") is not None else [self.loop.begin.values[0]]
        return [*count, *self.loop.begin.values[1:], *(source for _, source in self.each)]


@dataclass(frozen=True)
class LoopPlaces:
    """The repetitions of a plan, and the places of values that change from step to step."""

    repetitions: tuple[Repetition, ...] = ()
    places: Mapping[Value, Within | LoopCarried] = field(default_factory=dict)


def loop_places(graph: Graph, made: Sequence[Value], inside: Places) -> LoopPlaces:
    """The loops of a graph with ordered calls, and the places of what they carry. `made` has the first output of each group."""
    loops = loops_of(graph)
    position = {v: n for n, c in enumerate(graph.calls) for v in c.outputs}
    makers: dict[Value, set[Value]] = {}  # by root: the values that kernels and loops write there
    for call in graph.calls:
        for v in call.outputs:
            if v not in inside.free or call.operator == END:
                makers.setdefault(inside[v].root, set()).add(v)
    places: dict[Value, Within | LoopCarried] = {}
    found = []
    for loop in loops:
        own = loop.values.difference(*(other.values for other in loops if other is not loop and _holds(loop, other)))
        begin, end = position[loop.begin.outputs[0]], position[loop.end.outputs[0]]
        first, last = (sum(position[v] < at for v in made) for at in (begin, end))
        found.append(_repetition(loop, first, last, own, inside, makers, places))
    return LoopPlaces(tuple(found), places)


def _repetition(
    loop: Loop, first: int, last: int, own: Collection[Value], inside: Places, makers: Mapping[Value, set[Value]],
    places: dict[Value, Within | LoopCarried],
) -> Repetition:  # fmt: skip
    """The repetition of a loop whose steps make the `own` values. Adds the places of what it carries to `places`."""
    each, after, buffers = list[tuple[Value, Value]](), list[tuple[Value, Value]](), list[Value]()

    def whole(v: Value) -> bool:
        """True where a value fills its root, and only steps of this loop write there."""
        root = inside[v].root
        return root.nbytes == v.nbytes and bool(makers.get(root)) and makers[root] <= set(own)

    def row(array: Value, nbytes: int, backward: bool) -> Within:
        count = array.shape[0]
        return Within(array, (count - 1) * nbytes if backward else 0, (Move(loop.name, -nbytes if backward else nbytes),))

    for array, piece, backward in loop.arrays(loop.begin):
        places[piece] = row(array, piece.nbytes, backward)
    for made, array, backward in loop.arrays(loop.end):
        root, at = inside[made].root, row(array, made.nbytes, backward)
        if whole(made) and root not in places:
            places[root] = at
        else:
            slot = Value(f"{array.name}.row", made.shape, made.dtype)
            places[slot] = at
            each.append((slot, made))
    for given, state, new, final in loop.states:
        after.append((final, state))
        root = inside[new].root
        if root == state and new.nbytes == state.nbytes:
            places[state] = Within(given)
            continue
        later = new
        if not (whole(new) and root in places):
            if not whole(new):
                later = root = Value(f"{final.name}.next", new.shape, new.dtype)
                each.append((later, new))
            size = aligned(new.nbytes)
            buffers.append(Value(f"{final.name}.turns", (2 * size,), "uint8"))
            places[root] = Within(buffers[-1], 0, (Move(loop.name, size, 2),))
        places[state] = LoopCarried(loop.name, given, later)
    return Repetition(loop, first, last, tuple(each), tuple(after), tuple(buffers))
