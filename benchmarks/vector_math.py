"""ns per element of each function of `codegen.llvm.math` and of numpy: one thread, in turn, on 4096 elements in the cache."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from statistics import quantiles

import numpy as np

from codegen.llvm.elementwise import compile_elementwise, host_avx512
from codegen.llvm.math import ARITY, FORMATS, FUNCTIONS

ELEMENTS = 4096
CALLS = 24  # a run times so many calls
RUNS = 31

PEERS: dict[str, Callable[..., np.ndarray]] = {  # numpy has no erf
    "exp": np.exp,
    "log": np.log,
    "tanh": np.tanh,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "pow": np.power,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "abs": np.abs,
    "floor": np.floor,
    "ceil": np.ceil,
}


def nanoseconds(function: Callable[..., object], *arguments: np.ndarray) -> float:
    start = time.perf_counter()
    for _ in range(CALLS):
        function(*arguments)
    return (time.perf_counter() - start) / (CALLS * ELEMENTS) * 1e9


def run() -> Iterator[dict]:
    rng = np.random.default_rng(0)
    avx512 = host_avx512()
    for dtype in FORMATS:
        lanes = (64 if avx512 else 32) // np.dtype(dtype).itemsize
        for op in FUNCTIONS:
            arguments = [rng.uniform(0.1, 4.0, ELEMENTS).astype(dtype) for _ in range(ARITY[op])]
            ours = compile_elementwise(op, dtype, lanes, avx512).bind(*arguments, np.empty(ELEMENTS, dtype))
            times: dict[str, list[float]] = {"ours": [], "numpy": []}
            for _ in range(RUNS + 1):
                times["ours"].append(nanoseconds(ours))
                if op in PEERS:
                    times["numpy"].append(nanoseconds(PEERS[op], *arguments))
            result = {"op": op, "dtype": dtype, "lanes": lanes, "avx512": avx512, "threads": 1, "runs": RUNS}
            for name, samples in times.items():
                if samples:
                    low, median, high = (round(ns, 4) for ns in quantiles(samples[1:], n=4))  # the first run warms up
                    result |= {f"{name}_ns": median, f"{name}_quartiles_ns": [low, high]}
            yield result
