"""Memory that watches its accesses: who read and wrote what between barriers, what is written at all, what is on its way."""

from __future__ import annotations

import numpy as np


class PTXError(AssertionError):
    """A trap: a race, a place outside of memory, what nothing wrote, lanes that part at an instruction of a warp."""


# A stamp of an access: the block, the barriers that it has passed, and the thread. 0: nobody.
_BLOCK, _EPOCH, _THREAD = 36, 12, 0
MANY_THREADS = (1 << _EPOCH) - 1
MANY_BLOCKS = 1 << 62


def stamps(block: np.ndarray, epoch: np.ndarray, thread: np.ndarray) -> np.ndarray:
    """The stamps of threads of blocks (both from 0)."""
    return ((block + 1) << _BLOCK) + (epoch << _EPOCH) + (thread << _THREAD)


def _apart(old: np.ndarray, new: np.ndarray) -> np.ndarray:
    """Two accesses that no barrier orders: of two blocks, or of two threads of one between the same barriers."""
    return (old != 0) & (old != new) & ((old >> _EPOCH == new >> _EPOCH) | (old >> _BLOCK != new >> _BLOCK))


class Memory:
    """Bytes of a state space: one array, or as many as there are lanes or blocks, one after the other.

    Accesses are noted for each cell of `cell` bytes, which divide every access.
    """

    def __init__(self, name: str, size: int, cell: int, instances: int = 1, data: np.ndarray | None = None):
        self.name, self.size, self.cell = name, size, cell
        self.stride = -(-size // 32) * 32
        self.data = np.zeros(instances * self.stride, np.uint8)
        self.written = np.zeros(len(self.data) // cell, bool)
        if data is not None:
            self.data[: data.nbytes] = data.reshape(-1).view(np.uint8)
            self.written[:] = True
        self.writer, self.reader = (np.zeros(len(self.written), np.int64) for _ in range(2))
        self.coming, self.unfenced = (np.zeros(len(self.written), bool) for _ in range(2))
        self.multiplied = np.zeros(len(self.written), np.int32)  # products that go on and read a cell

    def at(self, offset: np.ndarray, nbytes: int, instance: np.ndarray | int = 0) -> np.ndarray:
        """The places of accesses, all within this memory and aligned (PTX ISA, "Vectors" and "Addresses as Operands")."""
        if ((offset < 0) | (offset + nbytes > self.size)).any():
            bad = offset[(offset < 0) | (offset + nbytes > self.size)][0]
            raise PTXError(f"{nbytes} bytes at {bad} are outside the {self.size} of {self.name}")
        if (offset % nbytes).any():
            raise PTXError(f"{nbytes} bytes at {offset[offset % nbytes != 0][0]} of {self.name} are not aligned")
        return offset + instance * self.stride

    def load(self, at: np.ndarray, nbytes: int, stamp: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        """Bytes, a row for each access, and which of them nothing wrote, if any."""
        cells, who = self._cells(at, nbytes, stamp)
        self._race(_apart(self.writer[cells], who), cells, "reads")
        written = self.written[cells]
        undefined = None if written.all() else np.repeat(~written.reshape(len(at), -1), self.cell, axis=1)
        old = self.reader[cells]
        other = (old != 0) & (old != who)
        new = np.where(other & (old >> _BLOCK != who >> _BLOCK), MANY_BLOCKS, who)
        new = np.where(other & (old >> _EPOCH == who >> _EPOCH), who | MANY_THREADS, new)
        self.reader[cells] = new
        again = self.reader[cells]
        if (again != new).any():  # several lanes read one cell
            at_once = again != new
            blocks = again[at_once] >> _BLOCK != new[at_once] >> _BLOCK
            self.reader[cells[at_once]] = np.where(blocks, MANY_BLOCKS, new[at_once] | MANY_THREADS)
        return self.data.reshape(-1, nbytes)[at // nbytes], undefined

    def store(self, at: np.ndarray, rows: np.ndarray, stamp: np.ndarray, undefined: np.ndarray | None = None) -> None:
        """Write rows of bytes, of which some may be undefined."""
        cells, who = self._cells(at, rows.shape[1], stamp)
        self._claim(cells, who)
        self.unfenced[cells] = True
        self.written[cells] = True if undefined is None else ~undefined.reshape(len(cells), -1).any(1)
        self.data.reshape(-1, rows.shape[1])[at // rows.shape[1]] = rows

    def expect(self, at: np.ndarray, nbytes: int, stamp: np.ndarray) -> None:
        """Bytes are copied asynchronously to here: until that is waited for, nobody may touch them."""
        cells, who = self._cells(at, nbytes, stamp)
        self._claim(cells, who)
        self.coming[cells] = True

    def arrive(self, at: np.ndarray, rows: np.ndarray, stamp: np.ndarray) -> None:
        """They are there, for the threads that waited."""
        cells = self._places(at, rows.shape[1])
        self.coming[cells] = False
        self.store(at, rows, stamp)

    def _places(self, at: np.ndarray, nbytes: int) -> np.ndarray:
        return ((at // self.cell)[:, None] + np.arange(nbytes // self.cell)).reshape(-1)

    def _cells(self, at: np.ndarray, nbytes: int, stamp: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        cells = self._places(at, nbytes)
        if self.coming[cells].any():
            raise PTXError(f"{self.name}: bytes are touched while a copy to them is on its way, for which nobody waited")
        return cells, np.repeat(stamp, nbytes // self.cell)

    def multiply(self, at: np.ndarray, nbytes: int, stamp: int) -> tuple[np.ndarray, np.ndarray]:
        """The bytes that a product of a warpgroup reads, and their cells, over which it holds its hand until it is waited for."""
        cells = self._places(at, nbytes)
        if self.unfenced[cells].any():
            raise PTXError(f"{self.name}: a product of a warpgroup reads what was stored with no proxy fence behind")
        rows, undefined = self.load(at, nbytes, np.full(len(at), stamp))
        if undefined is not None:
            raise PTXError(f"{self.name}: a product of a warpgroup reads what nothing wrote")
        return rows, cells

    def fence(self, lanes: np.ndarray, threads: int) -> None:
        """Products of warpgroups, too, see what these lanes stored, of blocks of so many threads."""
        cells = np.flatnonzero(self.unfenced)
        self.unfenced[cells[lanes[cells * self.cell // self.stride * threads + (self.writer[cells] & MANY_THREADS)]]] = False

    def _claim(self, cells: np.ndarray, who: np.ndarray) -> None:
        if self.multiplied[cells].any():
            raise PTXError(f"{self.name}: bytes are written while a product of a warpgroup reads them, for which nobody waited")
        self._race(_apart(self.writer[cells], who) | _apart(self.reader[cells], who), cells, "writes")
        self.writer[cells] = who
        self._race(self.writer[cells] != who, cells, "writes")

    def _race(self, wrong: np.ndarray, cells: np.ndarray, verb: str) -> None:
        if wrong.any():
            place = cells[wrong][0] * self.cell % self.stride
            raise PTXError(f"race: a thread {verb} byte {place} of {self.name} that another touches with no barrier between")
