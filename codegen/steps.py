"""The steps of a network: calls of kernels, copies and loops of them, at addresses in blocks of memory that a call is given."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace


class Word(int):
    """A number that is known when a program runs: a word of 64 bits, by its position in the first block that it is given."""


@dataclass(frozen=True, slots=True)
class Move:
    """`stride` bytes in each step of a loop, of the steps before the one that was `before` steps ago; modulo `turns` steps, a
    power of two, where that is not 0."""

    loop: str
    stride: int
    turns: int = 0
    before: int = 0


@dataclass(frozen=True, slots=True)
class Address:
    """An address `offset` bytes beyond the one of the block `base`, and in loops as much further as `moves` say."""

    base: str
    offset: int = 0
    moves: tuple[Move, ...] = ()

    def plus(self, nbytes: int, *moves: Move) -> Address:
        return replace(self, offset=self.offset + nbytes, moves=(*self.moves, *moves)) if nbytes or moves else self

    def earlier(self, loop: str) -> Address:
        """The address that this was a step of a loop earlier."""
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
        """The address that this was a step of an outer loop earlier."""
        assert loop != self.loop, loop
        return Carried(self.loop, self.first.earlier(loop), self.later.earlier(loop))


Place = Address | Carried


def resolved(place: Place, steps: Mapping[str, int]) -> Address:
    """An address in these steps of loops, by their names."""
    if isinstance(place, Carried):
        return resolved(place.later if steps[place.loop] else place.first, steps)
    numbers = [(m.stride, steps[m.loop] - m.before, m.turns) for m in place.moves]
    return Address(place.base, place.offset + sum(stride * (n % turns if turns else n) for stride, n, turns in numbers))


@dataclass(frozen=True, slots=True)
class Invoke:
    """A call of the kernel whose function is `symbol`, on arrays at these addresses, and `sizes`."""

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
    """Steps that run `count` times, a number or an int64 in memory, each time while the byte at `going` is not 0. The copies
    `after` run then, at the addresses that the next step would have."""

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
