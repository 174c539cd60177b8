"""Bank conflicts of the threads of a warp in shared memory, and the sectors of global memory that they need."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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
SECTOR = 32  # bytes of global memory that are moved together


@dataclass(frozen=True)
class ThreadAccess:
    """The load or store of each thread: `width` bytes at element `offset` of a buffer with elements of `size` bytes."""

    offset: Expr
    size: int
    width: int
    shared: bool = True  # else global


def ways(access: ThreadAccess, kernel: DeviceFunction, ranges: Mapping[str, Interval]) -> int:
    """The most different words of one bank that threads of a warp access at once: 1 without conflicts.

    At once are the 32, 16 or 8 threads that move 128 bytes with 4, 8 or 16 each (`ldmatrix`: 8 rows of 16 bytes). All threads
    count as active; other variables of the offset take their smallest values, then their largest. An offset that depends on
    memory counts as 1.
    """
    words = np.arange(max(1, access.width // WORD))
    worst = 1
    for thread, first in _places(access, kernel, ranges):
        wanted = np.stack(
            np.broadcast_arrays((thread // (WARP // len(words)))[:, None], (first // WORD)[:, None] + words), axis=-1
        )
        different, _ = distinct_rows(wanted.reshape(-1, 2))
        bank = different[:, 0] * BANKS + different[:, 1] % BANKS
        worst = max(worst, int(np.unique(bank, return_counts=True)[1].max()))
    return worst


def excess_sectors(access: ThreadAccess, kernel: DeviceFunction, ranges: Mapping[str, Interval]) -> int:
    """The most sectors that a request of a warp moves beyond those that would hold its bytes, by the rules of `ways`."""
    worst, lanes = 0, np.arange(access.width)
    for thread, first in _places(access, kernel, ranges):
        wanted = np.stack(np.broadcast_arrays((thread // WARP)[:, None], first[:, None] + lanes), axis=-1).reshape(-1, 2)
        different, _ = distinct_rows(wanted)
        used, _ = distinct_rows(np.stack([different[:, 0], different[:, 1] // SECTOR], axis=-1))
        nbytes, sectors = (np.unique(x[:, 0], return_counts=True)[1] for x in (different, used))
        worst = max(worst, int((sectors - -(-nbytes // SECTOR)).max()))
    return worst


def _places(
    access: ThreadAccess, kernel: DeviceFunction, ranges: Mapping[str, Interval]
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The threads of a block, and the first byte of each, for the least values of all other variables and for their greatest.
    None where an offset depends on memory."""
    x, y, z = kernel.block
    thread = np.arange(x * y * z)
    places = {"x": thread % x, "y": thread // x % y, "z": thread // (x * y)}
    values = {kernel.indices[f"threadIdx.{a}"].name: place for a, place in places.items()}
    others = variables(access.offset) - set(values)
    for end in (0, 1):
        fixed = {name: np.asarray(ranges.get(name, (0, 0))[end] or 0) for name in others}
        try:
            offset = evaluate(access.offset, {**values, **fixed})
        except ValueError:
            return
        yield thread, np.broadcast_to(offset * access.size, thread.shape)
