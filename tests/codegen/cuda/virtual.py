"""Arrays larger than memory, to run some blocks of a kernel on: inputs repeat one pattern, outputs are zeros until written."""

from __future__ import annotations

import ctypes
import mmap
import os

import numpy as np

PERIOD = 2003 * mmap.PAGESIZE  # bytes of the pattern; no power of two, so that an offset that wrapped reads another element
NORESERVE, FIXED = 0x4000, 0x10  # MAP_NORESERVE and MAP_FIXED of Linux
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]


class VirtualArray:
    """`array` has a shape and dtype, at addresses of its own. With a `pattern` of PERIOD bytes, element n is
    `pattern[n % len(pattern)]`, read-only; else all are 0."""

    def __init__(self, shape: tuple[int, ...], dtype: str, pattern: np.ndarray | None = None):
        self.pattern, self.dtype = pattern, np.dtype(dtype)
        count = int(np.prod(shape, dtype=np.int64))
        self.nbytes = -(-count * self.dtype.itemsize // PERIOD) * PERIOD
        self.address = self._map(None, self.nbytes, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NORESERVE, -1)
        if pattern is not None:
            file = os.memfd_create("pattern")
            os.write(file, pattern.tobytes())
            for start in range(0, self.nbytes, PERIOD):
                self._map(self.address + start, PERIOD, mmap.MAP_SHARED | FIXED, file)
            os.close(file)
        bytes_ = (ctypes.c_ubyte * self.nbytes).from_address(self.address)
        self.array = np.frombuffer(bytes_, self.dtype)[:count].reshape(shape)

    def _map(self, address: int | None, nbytes: int, flags: int, file: int) -> int:
        found = _libc.mmap(address, nbytes, mmap.PROT_READ | mmap.PROT_WRITE, flags, file, 0)
        assert found != ctypes.c_void_p(-1).value, os.strerror(ctypes.get_errno())
        return found

    def __enter__(self) -> VirtualArray:
        return self

    def __exit__(self, *_: object) -> None:
        self.array = np.empty(0)
        _libc.munmap(self.address, self.nbytes)

    def __getitem__(self, flat: np.ndarray | int) -> np.ndarray:
        """Elements of the pattern by their row-major offset."""
        assert self.pattern is not None
        return self.pattern[np.asarray(flat) % len(self.pattern)]

    def written(self) -> np.ndarray:
        """The row-major offsets of elements that are not 0."""
        pages = np.zeros(self.nbytes // mmap.PAGESIZE, np.uint8)
        assert not _libc.mincore(self.address, self.nbytes, pages.ctypes.data)
        each = mmap.PAGESIZE // self.dtype.itemsize
        flat = self.array.reshape(-1)
        found = [p * each + np.flatnonzero(flat[p * each : (p + 1) * each]) for p in np.flatnonzero(pages & 1)]
        return np.concatenate(found) if found else np.zeros(0, np.int64)


def pattern(dtype: str) -> np.ndarray:
    """Elements from 1 to 100, in PERIOD bytes."""
    count = PERIOD // np.dtype(dtype).itemsize
    return np.random.default_rng(0).integers(1, 100, count).astype(dtype)
