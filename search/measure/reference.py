"""References for a function: inputs, expected results, and the tolerance of a correct program."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import workloads
from tir import dtypes
from tir.arrays import content, from_float, read, to_float
from tir.ir import Buffer, PrimFunc, const_shape
from tir.nearest import no_such
from tir.traverse import stored_names
from workloads.workload import max_error

from .exact import largest_integers
from .ranges import index_bounds, meaningful
from .rounding import MAX_BOUND, Expected, Reference

EXACT_FILE = "exact"  # a file beside the data that marks a function without rounding
CANARY_BYTE = 0xA5
CANARY_BYTES = 4096  # bytes of canary on either side of each array
MIN_TOLERANCE = 1e-300  # the tolerance if no bound has a scale
CHUNK_ELEMENTS = 1 << 15  # elements compared at a time


class Distribution(NamedTuple):
    """Random floats from `low` to `high`, or one of the two if `whole`; all but a `share` of the elements are `rest`."""

    low: float
    high: float
    share: float = 1.0
    rest: float = 0.0
    whole: bool = False


# Distributions of floats for a function without a named workload, tried in turn. The results must be finite, not all subnormal
# (as a product of many factors), and bounded. Long sums of halves need few terms that are not 0: 1 or -1, or exp of few.
DISTRIBUTIONS = (
    Distribution(-1.0, 1.0),
    Distribution(-0.05, 0.05),
    Distribution(0.1, 1.0),
    Distribution(0.9, 1.1),
    Distribution(0.01, 0.05),
    Distribution(-1.0, 1.0, 1 / 4, whole=True),
    Distribution(-1.0, 1.0, 1 / 16, whole=True),
    Distribution(-1.0, 1.0, 1 / 64, -40.0),
)


@dataclass(frozen=True, slots=True)
class NamedWorkload:
    """The name, shape and dtype of a workload of `tir.workloads`, which gives a reference in float64 numpy, and times it."""

    name: str
    shape: tuple[int, ...]
    dtype: str = "float32"

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> NamedWorkload:
        """The workload of its `dataclasses.asdict` data."""
        return cls(data["name"], tuple(data["shape"]), data["dtype"])

    def instance(self) -> workloads.Instance:
        return workloads.make(self.name, self.shape, self.dtype)


def outputs(func: PrimFunc) -> tuple[int, ...]:
    """The positions of the written parameters."""
    written = stored_names(func.body)
    return tuple(i for i, p in enumerate(func.params) if isinstance(p, Buffer) and p.name in written)


def random_array(
    shape: tuple[int, ...],
    dtype: str,
    rng: np.random.Generator,
    low: float = -1.0,
    high: float = 1.0,
    within: tuple[int, int] | None = None,
) -> np.ndarray:
    """Random data: floats uniform in `low .. high`, integers in -8 .. 8, or 0 .. 8 if unsigned, and bools. With `within`, floats
    and integers are integers in those bounds."""
    if dtypes.is_float(dtype):
        values = rng.uniform(low, high, shape) if within is None else rng.integers(*within, shape, endpoint=True)
        return from_float(values.astype("float64" if dtype == "float64" else "float32"), dtype)
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if within is not None:
        return rng.integers(*within, shape, dtype=dtype, endpoint=True)
    return rng.integers(-8 if dtype.startswith("int") else 0, 9, shape).astype(dtype)


def given_inputs(func: PrimFunc, inputs: Mapping[str, Any]) -> dict[int, np.ndarray]:
    """Arrays for inputs of a function, by position instead of by name (see `tir.arrays.read`). ValueError for a name that is no
    input, another shape or dtype, or indices out of bounds."""
    written, bounds = outputs(func), index_bounds(func)
    named = {p.name: (i, p) for i, p in enumerate(func.params) if isinstance(p, Buffer) and i not in written}
    found = {}
    for name, value in inputs.items():
        if name not in named:
            raise ValueError(f"inputs: {no_such('input', name, named)}")
        position, buffer = named[name]
        try:
            array = read(value, buffer.dtype, const_shape(buffer))
        except TypeError as error:
            raise ValueError(f"inputs: `{name}` {error}") from None
        low, high = bounds.get(name, (None, None))
        if low is not None and array.size and (array.min() < low or array.max() > high):
            raise ValueError(
                f"inputs: the elements of `{name}` are indices from {low} to {high}, got some from {array.min()} to {array.max()}"
            )
        found[position] = np.ascontiguousarray(array)
    return found


def random_inputs(
    func: PrimFunc, rng: np.random.Generator, distribution: int = 0, integers: int | None = None
) -> list[np.ndarray]:
    """A random array for each parameter, outputs included, within the ranges for which the function is defined (see `ranges`).
    With `integers`, floats are integers up to that magnitude."""
    how, known = DISTRIBUTIONS[distribution], meaningful(func)
    if integers is not None:
        known = {b.name: (-integers, integers) for b in func.buffers if dtypes.is_float(b.dtype)} | known
    arrays = [random_array(const_shape(b), b.dtype, rng, how.low, how.high, known.get(b.name)) for b in func.buffers]
    for b, array in zip(func.buffers, arrays, strict=True):
        if how.share < 1.0 and dtypes.is_float(b.dtype) and b.name not in known:
            if how.whole:
                array[...] = from_float(rng.choice([how.low, how.high], array.shape), b.dtype)
            array[rng.random(array.shape) >= how.share] = from_float(np.array(how.rest), b.dtype)
    return arrays


def stored_error(stored: np.ndarray, dtype: str, expected: np.ndarray, scale: np.ndarray) -> float:
    """The `max_error` of an array in the storage of `dtype`, in chunks that stay in the caches."""
    largest = 0.0
    flat = [array.reshape(-1) for array in (stored, expected, scale)]
    for n in range(0, expected.size, CHUNK_ELEMENTS):
        got, wanted, size = (array[n : n + CHUNK_ELEMENTS] for array in flat)
        largest = max(largest, max_error(to_float(got, dtype), wanted, size))
    return largest


def given_file(directory: Path, number: int) -> Path:
    """The file of the given array of a parameter."""
    return directory / f"{number}.given.npy"


def make_reference(func: PrimFunc, workload: NamedWorkload | None, seed: int, distribution: int, directory: Path) -> bool:
    """Write the inputs of a function into `directory`; for a named workload also the expected results, and return True."""
    rng = np.random.default_rng(seed)
    given = {i: np.load(file) for i in range(len(func.params)) if (file := given_file(directory, i)).exists()}
    for old in ("tolerance.json", EXACT_FILE):
        (directory / old).unlink(missing_ok=True)
    if workload is None:
        given_floats = any(dtypes.is_float(func.params[i].dtype) for i in given)
        integers = None if distribution or given_floats else largest_integers(func)
        if integers is not None:
            (directory / EXACT_FILE).touch()
        for i, array in enumerate(random_inputs(func, rng, distribution, integers)):
            np.save(directory / f"{i}.npy", given.get(i, array))
        return False
    instance = workload.instance()
    inputs = tuple(given.get(i, array) for i, array in enumerate(instance.inputs(rng)))
    count = len(inputs)
    garbage = [random_array(const_shape(b), b.dtype, rng) for b in func.buffers[count:]]
    for i, array in enumerate((*inputs, *garbage)):
        np.save(directory / f"{i}.npy", array)
    bounds = {}
    for i, bounded in enumerate(instance.reference(inputs), count):
        np.save(directory / f"{i}.expected.npy", bounded.value)
        np.save(directory / f"{i}.scale.npy", np.broadcast_to(bounded.scale, bounded.value.shape))
        bounds[str(i)] = bounded.tolerance(workload.dtype)
    (directory / "tolerance.json").write_text(json.dumps(bounds))
    return True


@lru_cache(4)
def reference_of(func: PrimFunc) -> Reference:
    """The reference of a function, built once."""
    return Reference(func)


class Arrays:
    """The arrays of kernels in a worker: loaded from files, aligned to 64 bytes, with canaries around them."""

    def __init__(self, func: PrimFunc, directory: Path):
        self._func, self._outputs, self._directory = func, outputs(func), directory
        self.initial = [np.load(directory / f"{i}.npy", mmap_mode="r") for i in range(len(func.params))]
        placed = [_aligned(array.shape, array.dtype) for array in self.initial]
        self.working = [array for array, _ in placed]
        self._margins = [margins for _, margins in placed]
        self.reset()

    def reset(self) -> None:
        """Restore every array to its state before the first call, canaries included."""
        for initial, working, margins in zip(self.initial, self.working, self._margins, strict=True):
            for margin in margins:
                margin[:] = CANARY_BYTE
            np.copyto(working, initial)

    @property
    def exact(self) -> bool:
        """True if no result is rounded."""
        return (self._directory / EXACT_FILE).exists()

    @property
    def has_reference(self) -> bool:
        return (self._directory / "tolerance.json").exists()

    def accept(self) -> dict[str, Any]:
        """Compute the expected results; those of an exact function are its outputs. `good` is True if all are finite, none has
        only subnormal numbers, and none is loose. `loose` is a message on a result with bounds so large that they hide faults, or
        empty. NoBound for a function whose errors cannot be bounded."""
        found, bounds, loose = {}, {}, ""
        if not self.exact:
            found = reference_of(self._func)(self.initial)
        good = True
        for i in self._outputs:
            kind = dtypes.TABLE[self._func.params[i].dtype]
            taken = found.get(i) or Expected(to_float(self.working[i], kind.name), np.zeros(self.working[i].shape))
            expected, part = taken.value.astype("float64"), taken.tolerance or MIN_TOLERANCE
            bounds[str(i)] = part if taken.bound.any() else 0.0
            good &= bool(np.isfinite(expected).all() and (not expected.size or np.abs(expected).max() >= kind.tiny))
            if taken.loose:
                loose = f"rounding may change `{self._func.params[i].name}` by more than {MAX_BOUND} of its scale"
            np.save(self._directory / f"{i}.expected.npy", expected)
            # Relative to this scale, the tolerance is the bound.
            np.save(self._directory / f"{i}.scale.npy", taken.bound / part)
        (self._directory / "tolerance.json").write_text(json.dumps(bounds))
        return {"good": good and not loose, "loose": loose}

    def verdict(self) -> dict[str, Any]:
        """The verdict on the arrays after one call since `reset`: ok, or wrong_result with a message; max_error and tolerance."""
        bounds = json.loads((self._directory / "tolerance.json").read_text())
        worst, bound = 0.0, max(bounds.values(), default=0.0)
        for i, (initial, working, margins) in enumerate(zip(self.initial, self.working, self._margins, strict=True)):
            name = self._func.params[i].name
            if any((margin != CANARY_BYTE).any() for margin in margins):
                return {"outcome": "wrong_result", "message": f"wrote outside of `{name}`"}
            if i not in self._outputs:
                if not np.array_equal(content(initial), content(working)):
                    return {"outcome": "wrong_result", "message": f"changed the input `{name}`"}
                continue
            expected, scale = (np.load(self._directory / f"{i}.{kind}.npy", mmap_mode="r") for kind in ("expected", "scale"))
            error = stored_error(working, self._func.params[i].dtype, expected, scale)
            if error / max(bounds[str(i)], 1e-300) > worst / max(bound, 1e-300) or worst == 0.0:
                worst, bound = error, bounds[str(i)]
            if not error <= bounds[str(i)]:
                message = f"`{name}` is off by {error:.3g} of its scale; the tolerance is {bounds[str(i)]:.3g}"
                return {"outcome": "wrong_result", "message": message, "max_error": error, "tolerance": bounds[str(i)]}
        return {"outcome": "ok", "max_error": worst, "tolerance": bound}


def _aligned(shape: tuple[int, ...], dtype: np.dtype) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray]]:
    """An array at a multiple of 64, and the bytes before and after it, CANARY_BYTES or more on each side."""
    size = math.prod(shape) * dtype.itemsize
    storage = np.empty(size + 2 * CANARY_BYTES + 64, np.uint8)
    start = CANARY_BYTES + -(storage.ctypes.data + CANARY_BYTES) % 64
    before, own, after = np.split(storage, (start, start + size))
    return own.view(dtype).reshape(shape), (before, after)
