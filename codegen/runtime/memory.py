"""Memory of calls: addresses of arrays, aligned blocks, new arrays. It needs numpy alone."""

from __future__ import annotations

import sys
from collections.abc import Callable
from ctypes import c_size_t
from functools import partial
from math import prod

import numpy as np

from tir import dtypes

from .alignment import ALIGNMENT, size_and_alignment

MIN_ALIGNED_BYTES = 1 << 16  # bytes: the least arrays that are made to begin at a cache line, which takes 2 us more

# Bytes from the beginning of a numpy array, as an object of CPython, to the address of its elements: the first field of
# PyArrayObject, which is part of numpy's binary interface. `array.ctypes.data` gives the same and takes ten times as long.
DATA_OFFSET = object.__basicsize__
CPYTHON = sys.implementation.name == "cpython"

DECLINED = -1  # the status of a call that did not run, since its arguments need a closer look


def address(array: np.ndarray) -> int:
    """The address of the elements of an array."""
    return c_size_t.from_address(id(array) + DATA_OFFSET).value if CPYTHON else array.ctypes.data


def aligned_memory(nbytes: int) -> np.ndarray:
    """Memory of `nbytes` bytes that begins at a cache line; large blocks are in large pages, where the system has them."""
    size, alignment = size_and_alignment(max(nbytes, 1), ALIGNMENT)
    memory = np.empty(size + alignment, np.uint8)
    start = -address(memory) % alignment
    return memory[start : start + nbytes]


def maker(shape: tuple[int, ...], dtype: str, zeros: bool = False) -> Callable[[], np.ndarray]:
    """A function that makes arrays of a shape for elements of a dtype of the IR, of zeros or not initialised."""
    found = np.dtype(dtypes.storage(dtype))
    nbytes = prod(shape) * found.itemsize
    if zeros or nbytes < MIN_ALIGNED_BYTES:
        return partial(np.zeros if zeros else np.empty, shape, found)
    return lambda: aligned_memory(nbytes).view(found).reshape(shape)


def new_array(shape: tuple[int, ...], dtype: str, zeros: bool = False) -> np.ndarray:
    return maker(shape, dtype, zeros)()
