"""ns per element of each function of `codegen.llvm.math` and of numpy: one thread, in turns, on 4096 elements in the cache."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from codegen import Target, build
from codegen.llvm.math import FORMATS, FUNCTIONS
from schedule import Schedule
from tir import te
from tir.intrinsics import INTRINSICS
from tir.ir import PrimFunc

from .options import Options
from .runner import Effort, circumstances, race

ROWS = tuple(FUNCTIONS)

DEFAULT = ROWS

ELEMENTS = 4096

PEERS: dict[str, Callable[..., np.ndarray]] = {  # numpy has no erf
    "exp": np.exp,
    "log": np.log,
    "tanh": np.tanh,
    "sigmoid": lambda x, out: np.divide(1, np.add(1, np.exp(np.negative(x, out=out), out=out), out=out), out=out),
    "pow": np.power,
    "sqrt": np.sqrt,
    "rsqrt": lambda x, out: np.divide(1, np.sqrt(x, out=out), out=out),
    "abs": np.abs,
    "floor": np.floor,
    "ceil": np.ceil,
}


def vectorised(op: str, dtype: str, lanes: int) -> PrimFunc:
    """The function over ELEMENTS elements, `lanes` at a time."""
    inputs = [te.placeholder((ELEMENTS,), dtype, name=name) for name in ("x", "y")[: INTRINSICS[op].arity]]
    output = te.compute((ELEMENTS,), lambda i: getattr(te, op)(*(a[i] for a in inputs)), name="out")
    s = Schedule(te.create_prim_func([*inputs, output]))
    _, lane = s.split(s.get_loops("out")[0], [None, lanes])
    s.vectorize(lane)
    return s.func


def measure(row: str, options: Options) -> Iterator[dict[str, Any]]:
    """A result for each format."""
    rng = np.random.default_rng(options.seed)
    target = Target("llvm", num_cores=1)
    avx512 = {"avx512f", "avx512vl"} <= target.features
    for dtype in FORMATS:
        lanes = target.lanes(8 * np.dtype(dtype).itemsize)
        arguments = [rng.uniform(0.1, 4.0, ELEMENTS).astype(dtype) for _ in range(INTRINSICS[row].arity)]
        out = np.empty(ELEMENTS, dtype)
        contenders: dict[str, Callable[[], object]] = {
            "tir": build(vectorised(row, dtype, lanes), target).bind(*arguments, np.empty(ELEMENTS, dtype))
        }
        if row in PEERS:
            contenders["numpy"] = partial(PEERS[row], *arguments, out=out)
        result: dict[str, Any] = {"dtype": dtype, "lanes": lanes, "avx512": avx512}
        for name, timing in race(contenders, Effort(seconds=options.seconds / 20, sample=5e-4)).items():
            low, median, high = (
                seconds / ELEMENTS * 1e9 for seconds in (timing.quartiles[0], timing.median, timing.quartiles[1])
            )
            result |= {f"{name}_ns": median, f"{name}_quartiles_ns": [low, high]}
        yield {**result, **circumstances()}
