"""Files of safetensors: their arrays by name, mapped into memory, and graphs whose constants they are.

A file is the length of its header, 8 bytes, the header in JSON, which has type, shape and place of each array, and their bytes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import prod
from pathlib import Path

import numpy as np

from tir import dtypes

from .ir import Graph, GraphError, constant, type_text, typed

TYPES = {
    "F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "I64": "int64", "I32": "int32", "I16": "int16",
    "I8": "int8", "U64": "uint64", "U32": "uint32", "U16": "uint16", "U8": "uint8", "BOOL": "bool",
}  # fmt: skip


def load_safetensors(path: str | Path) -> dict[str, np.ndarray]:
    """The arrays of a file, or of all `*.safetensors` in a folder, by name, read-only and mapped into memory. Raises GraphError
    for a file of another format, and for an element type that is not supported."""
    path = Path(path)
    found: dict[str, np.ndarray] = {}
    for file in sorted(path.glob("*.safetensors")) if path.is_dir() else [path]:
        data = np.memmap(file, np.uint8, "r") if file.stat().st_size else np.zeros(0, np.uint8)
        try:
            begin = 8 + int.from_bytes(data[:8].tobytes(), "little")
            header = json.loads(data[8:begin].tobytes())
            for name, about in header.items():
                if name != "__metadata__":
                    found[name] = _array(data[begin:], about["dtype"], about["shape"], *about["data_offsets"])
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise GraphError(f"{file} is not a file of safetensors, or is damaged: {error}") from None
    return found


def _array(data: np.ndarray, kind: str, shape: list[int], begin: int, end: int) -> np.ndarray:
    if kind not in TYPES:
        raise ValueError(f"the element type {kind} is not supported")
    dtype = TYPES[kind]
    if not 0 <= begin <= end <= len(data) or end - begin != prod(shape) * dtypes.nbytes(dtype):
        raise ValueError(f"bytes {begin} to {end} do not hold {dtype}{shape}")
    return typed(data[begin:end].view(dtypes.storage(dtype)).reshape(shape), dtype)


def with_weights(graph: Graph, weights: str | Path | Mapping[str, np.ndarray]) -> Graph:
    """The graph with these arrays, or those of a file of safetensors, as its constants of the same names; others stay. One
    GraphError lists all that the graph lacks, or has in another type or shape."""
    arrays = weights if isinstance(weights, Mapping) else load_safetensors(weights)
    wrong = []
    for name, array in arrays.items():
        if (own := graph.constants.get(name)) is None:
            wrong.append(f"`{name}`: the graph has no constant of this name")
        elif (wanted := type_text(constant(name, own))) != (given := type_text(constant(name, array))):
            wrong.append(f"`{name}`: the graph has {wanted}, the weights {given}")
    if wrong:
        left = [name for name, a in graph.constants.items() if name not in arrays and a.size > 1]
        rest = [f"constants that are not given: {', '.join(left)}"] if left else []
        raise GraphError("\n  ".join([f"graph {graph.name}: {len(wrong)} weights do not fit", *wrong, *rest]))
    return graph.with_(constants={**graph.constants, **arrays})
