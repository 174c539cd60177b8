"""The file of a saved model: plain arrays in an `.npz`, all checked before use."""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from tir.files import write_atomically
from tir.nearest import near_file

from .features import NAMES

FORMAT = 1  # version of the file; to be increased when features or arrays change their meaning

# The type of each array, and its dimensions by name; s statements, p programs, t trees of n + 1 leaves.
ARRAYS = {
    "matrix": ("float32", ("s", "columns")),
    "program": ("int64", ("s",)),
    "task": ("int64", ("p",)),
    "seconds": ("float64", ("p",)),
    "tasks": ("str", ("tasks",)),
    "features": ("int32", ("t", "n")),
    "thresholds": ("float32", ("t", "n")),
    "values": ("float32", ("t", "leaves")),
    "counts": ("int64", ("two",)),
}


def write(path: str | Path, arrays: Mapping[str, np.ndarray], is_gpu: bool) -> None:
    """Write the ARRAYS of a model for a processor, or for a GPU."""
    write_arrays(path, format=FORMAT, names=NAMES, is_gpu=is_gpu, **arrays)


def write_arrays(path: str | Path, **arrays: ArrayLike) -> None:
    """Write arrays to a `.npz` file; an older file stays until all is written."""
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **{name: np.asarray(array) for name, array in arrays.items()})  # type: ignore[arg-type]
    write_atomically(Path(path), buffer.getvalue())


def read(path: str | Path, is_gpu: bool) -> dict[str, np.ndarray]:
    """The ARRAYS in a file. FileNotFoundError without a file; ValueError unless it is a model of this version and kind."""
    if not Path(path).exists():
        raise FileNotFoundError(f"model {path} does not exist{near_file(path) or '; GBDTModel.save writes one'}")
    try:
        if not zipfile.is_zipfile(path):
            raise ValueError("it is no .npz file")
        with np.load(path, allow_pickle=False) as data:
            if "format" not in data or "names" not in data:
                raise ValueError("it holds something else")
            current = data["format"].tolist() == FORMAT and data["names"].tolist() == list(NAMES)
            kind = bool(data["is_gpu"]) if current else is_gpu
            found = {name: data[name] for name in ARRAYS} if current else {}
    except (ValueError, KeyError, OSError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(f"{path} is no model that GBDTModel.save wrote, or is damaged: {error}") from None
    if not current:
        raise ValueError(f"{path} holds a model over other features than this version has; train it anew from records")
    if kind != is_gpu:
        one, other = ("a GPU", "a processor") if kind else ("a processor", "a GPU")
        raise ValueError(f"{path} holds a model for {one}, which says nothing of {other}")
    if (problem := _problem(found)) is not None:
        raise ValueError(f"{path} is no model that GBDTModel.save wrote, or is damaged: {problem}")
    return found


def _problem(found: Mapping[str, np.ndarray]) -> str | None:
    """The fault in the arrays of a model, or None; compiled code does not check indices, so they are checked here."""
    sizes: dict[str, int] = {"columns": len(NAMES) + 1, "two": 2}
    for name, (dtype, dims) in ARRAYS.items():
        array = found[name]
        if array.ndim != len(dims) or (array.dtype.kind != "U" if dtype == "str" else array.dtype != dtype):
            return f"`{name}` is {array.dtype} of shape {array.shape}"
        for dim, size in zip(dims, array.shape, strict=True):
            if sizes.setdefault(dim, size) != size:
                return f"`{name}` has the shape {array.shape}, which does not fit the others"
    leaves = sizes["leaves"]
    if sizes["n"] != leaves - 1 or leaves & (leaves - 1):
        return f"trees of {leaves} leaves and {sizes['n']} inner nodes"
    for name, size in (("program", sizes["p"]), ("task", sizes["tasks"]), ("features", sizes["columns"])):
        if found[name].size and not 0 <= found[name].min() <= found[name].max() < size:
            return f"`{name}` has numbers outside of 0..{size - 1}"
    for name in ("matrix", "thresholds", "values", "seconds"):
        if np.isnan(found[name]).any():
            return f"`{name}` has elements that are no numbers"
    if (found["seconds"] <= 0).any() or (found["counts"] < 0).any():
        return "times or counts that are not positive"
    return None
