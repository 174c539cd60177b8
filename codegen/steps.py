"""The steps of a network: calls of kernels and copies, at addresses in blocks of memory that a call is given."""

from __future__ import annotations

from dataclasses import dataclass


class Word(int):
    """A number that is known when a program runs: a word of 64 bits, by its position in the first block that it is given."""


@dataclass(frozen=True, slots=True)
class Address:
    """An address `offset` bytes beyond the one of the block `base`."""

    base: str
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Invoke:
    """A call of the kernel whose function is `symbol`, on arrays at these addresses, and `sizes`."""

    symbol: str
    arguments: tuple[Address, ...]
    sizes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy of `nbytes` bytes between two addresses, without overlap."""

    target: Address
    source: Address
    nbytes: int


Step = Invoke | Copy
