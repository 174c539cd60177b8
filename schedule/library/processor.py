"""What the library needs to know of a processor to choose tile sizes."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Protocol


class Described(Protocol):
    """Anything that says of a processor what `codegen.Target` says."""

    @property
    def num_cores(self) -> int: ...
    @property
    def vector_bits(self) -> int: ...
    @property
    def registers(self) -> int: ...
    @property
    def l1(self) -> int: ...
    @property
    def l2(self) -> int: ...
    @property
    def l3(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Processor:
    """Threads to use, bits of a vector register, vector registers, and the data caches in bytes: of a core, of a core, shared."""

    cores: int
    vector_bits: int
    registers: int
    l1: int
    l2: int
    l3: int

    @classmethod
    def of(cls, target: Described) -> Processor:
        """The processor that a target describes."""
        return cls(target.num_cores, target.vector_bits, target.registers, target.l1, target.l2, target.l3)

    def lanes(self, bits: int) -> int:
        """How many elements of `bits` bits fill a vector register."""
        return max(1, self.vector_bits // bits)


def partial_results(length: int, lanes: int, registers: int) -> int:
    """How many partial results a reduction of so many steps is to have: up to `registers` vectors of them, such that they divide
    it into two rounds or more, or so many that the last, partial round does not count, or one vector."""
    for count in range(registers, 1, -1):
        if length % (count * lanes) == 0 and length >= 2 * count * lanes:
            return count * lanes
    return registers * lanes if length >= 4 * registers * lanes else lanes


def balanced(tiles: int, most: int, multiple: int) -> int:
    """Tiles of a block, at most `most` and not much fewer, so that the blocks, whose number is a multiple of `multiple`, have
    as little room as possible for tiles that there are not: those need guards."""

    def room(count: int) -> int:
        return ceil(ceil(tiles / count) / multiple) * multiple * count - tiles

    least = max(1, (most + 1) // 2)
    counts = {ceil(tiles / (ceil(ceil(tiles / n) / multiple) * multiple)) for n in range(least, most + 1)}
    return min(counts, key=lambda n: (room(n), -n))
