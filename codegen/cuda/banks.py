"""Bank conflicts of the threads of a warp in shared memory."""

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
WORD = 4  # bytes that a bank delivers at once


@dataclass(frozen=True)
class BankAccess:
    """The load or store of each thread: `width` bytes at element `offset` of a buffer with elements of `size` bytes."""

    offset: Expr
    size: int
    width: int


def ways(access: BankAccess, kernel: DeviceFunction, ranges: Mapping[str, Interval]) -> int:
    """The most different words of one bank that threads of a warp access at once: 1 without conflicts.

    At once are the 32, 16 or 8 threads that move 128 bytes with 4, 8 or 16 each (`ldmatrix`: 8 rows of 16 bytes). All threads
    count as active; other variables of the offset take their smallest values, then their largest. An offset that depends on
    memory counts as 1.
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
