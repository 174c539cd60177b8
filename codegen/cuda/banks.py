"""Shared memory: whether the threads of a warp meet in its banks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tir.arith.enumeration import distinct_rows, evaluate
from tir.arith.intervals import Interval
from tir.ir import Expr
from tir.memory import WARP
from tir.traverse import variables

from .program import DeviceFunction

BANKS = 32
WORD = 4  # bytes of a bank that go out at once


@dataclass(frozen=True)
class BankAccess:
    """The load or store of each thread: `width` bytes at element number `offset` of a buffer whose elements have `size` bytes."""

    offset: Expr
    size: int
    width: int


def ways(access: BankAccess, kernel: DeviceFunction, ranges: Mapping[str, Interval]) -> int:
    """The number of different words of one bank that some threads of a warp want at once: 1 where none waits for another.

    At once are the 32, 16 or 8 threads that move 128 bytes with 4, 8 or 16 each (`ldmatrix`: 8 rows of 16 bytes). All threads are
    taken to be active; other variables in the place are at their smallest values, and then at their largest. A place that depends
    on memory counts as 1.
    """
    x, y, z = kernel.block
    thread = np.arange(x * y * z)
    places = {"x": thread % x, "y": thread // x % y, "z": thread // (x * y)}
    values = {kernel.indices[f"threadIdx.{a}"].name: place for a, place in places.items()}
    others = variables(access.offset) - set(values)
    words = np.arange(max(1, access.width // WORD))
    group = thread // (WARP // len(words))
    worst = 1
    for end in (0, 1):
        fixed = {name: np.asarray(ranges.get(name, (0, 0))[end] or 0) for name in others}
        try:
            offset = evaluate(access.offset, {**values, **fixed})
        except ValueError:
            return 1
        first = np.broadcast_to(offset * access.size // WORD, thread.shape)
        wanted = np.stack(np.broadcast_arrays(group[:, None], first[:, None] + words), axis=-1).reshape(-1, 2)
        different, _ = distinct_rows(wanted)
        bank = different[:, 0] * BANKS + different[:, 1] % BANKS
        worst = max(worst, int(np.unique(bank, return_counts=True)[1].max()))
    return worst
