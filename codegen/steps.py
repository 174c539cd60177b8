"""The steps of a network: calls of kernels, copies and loops of them, at addresses in blocks of memory that a call is given."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace


class Word(int):
    """A number that is known only at run time: the index of its 64-bit word in the first block of memory."""


@dataclass(frozen=True, slots=True)
class Move:
    """A part of an address in a loop: `stride` bytes times the number of the step less `before`. Unless `turns`, a power of two,
    is 0, that number is taken modulo `turns`."""

    loop: str
    stride: int
    turns: int = 0
    before: int = 0


@dataclass(frozen=True, slots=True)
class Address:
    """The address `offset` bytes into the block `base`, and in loops further by `moves`."""

    base: str
    offset: int = 0
    moves: tuple[Move, ...] = ()

    def plus(self, nbytes: int, *moves: Move) -> Address:
        return replace(self, offset=self.offset + nbytes, moves=(*self.moves, *moves)) if nbytes or moves else self

    def earlier(self, loop: str) -> Address:
        """The address in the previous step of a loop."""
        return replace(self, moves=tuple(replace(m, before=m.before + (m.loop == loop)) for m in self.moves))


@dataclass(frozen=True, slots=True)
class Carried:
    """The address of what a step of a loop leaves to the next one: `first` in the first step, then `later`."""

    loop: str
    first: Place
    later: Place

    def plus(self, nbytes: int, *moves: Move) -> Carried:
        return Carried(self.loop, self.first.plus(nbytes, *moves), self.later.plus(nbytes, *moves))

    def earlier(self, loop: str) -> Carried:
        """The address in the previous step of an outer loop."""
        assert loop != self.loop, loop
        return Carried(self.loop, self.first.earlier(loop), self.later.earlier(loop))


Place = Address | Carried


def resolved(place: Place, steps: Mapping[str, int]) -> Address:
    """The address of a place in these steps: their numbers, by the names of loops."""
    if isinstance(place, Carried):
        return resolved(place.later if steps[place.loop] else place.first, steps)
    numbers = [(m.stride, steps[m.loop] - m.before, m.turns) for m in place.moves]
    return Address(place.base, place.offset + sum(stride * (n % turns if turns else n) for stride, n, turns in numbers))


@dataclass(frozen=True, slots=True)
class Invoke:
    """A call of the kernel `symbol` with arrays at these addresses, and `sizes`."""

    symbol: str
    arguments: tuple[Place, ...]
    sizes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy of `nbytes` bytes between two addresses, without overlap."""

    target: Place
    source: Place
    nbytes: int


@dataclass(frozen=True, slots=True)
class Repeat:
    """A loop. Its steps run `count` times, a number or an int64 in memory, or fewer times where the byte at `going` is 0 before a
    step. Then the copies `after` run, at the addresses of the step that would come next."""

    loop: str
    count: int | Place
    going: Place | None
    steps: tuple[Step, ...]
    after: tuple[Copy, ...]


Step = Invoke | Copy | Repeat


def invokes(steps: Sequence[Step]) -> Iterator[Invoke]:
    """The calls of kernels among steps and in their loops, in order."""
    for step in steps:
        if isinstance(step, Repeat):
            yield from invokes(step.steps)
        elif isinstance(step, Invoke):
            yield step


def copies(steps: Sequence[Step]) -> Iterator[Copy]:
    """The copies among steps and in and after their loops, in order."""
    for step in steps:
        if isinstance(step, Repeat):
            yield from copies((*step.steps, *step.after))
        elif isinstance(step, Copy):
            yield step
