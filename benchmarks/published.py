"""A published ladder of programs for F = exp(A·B)·E, parsed as they were printed and compiled as they are, one thread.

Each is compared with the float64 reference, then timed beside numpy. `to_naive` is how many times faster a program is than the
lowered naive one (timed once, unless it is that one), `published_to_naive` the same ratio of the published seconds.
The programs lie beside the checkout, in shared/published; where they do not, a row says so.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np

import tir
from tir import workloads
from tir.ir import Allocate, PrimFunc
from tir.script import Module, parse
from tir.traverse import rewrite

from .options import Options
from .runner import ROOT, Effort, circumstances, race

FOLDER = ROOT.parent / "shared" / "published"

SHAPE = (1024, 2048, 1024, 3072)  # M, K, L, N

# The published seconds; the unscheduled blocks have none.
SECONDS: dict[str, float | None] = {
    "00_lowered_naive": 6.2369,
    "01_lowered_reorder": 0.4165,
    "02_lowered_tile_k": 0.3838,
    "03_lowered_tile_all": 0.3761,
    "10_blocks_naive": None,
    "11_blocks_tile_all": 1.0224,
    "12_blocks_merge_exp": 0.879,
    "13_blocks_merge_rows": 0.7925,
    "14_blocks_vectorized": 0.2237,
    "20_blocks_schedule_function": 6.0142,
    "21_blocks_random_tiles": 5.9412,
    "22_blocks_metaschedule": 0.17,
}

NAIVE = "00_lowered_naive"

ROWS = tuple(SECONDS)

DEFAULT = ROWS


def source(name: str) -> str:
    """The text of a program. FileNotFoundError where the programs are not at hand."""
    path = FOLDER / f"{name}.py"
    if not path.exists():
        raise FileNotFoundError(
            f"{path.name} is not in {FOLDER.name} beside the checkout: the published programs are not part of it"
        )
    return path.read_text()


def program(text: str) -> PrimFunc:
    """The function in a program's text, its result F a parameter: the lowered ones allocate it, and nobody would see it."""
    parsed = parse(text)
    return with_output(parsed["main"] if isinstance(parsed, Module) else parsed, "F")


def with_output(func: PrimFunc, name: str) -> PrimFunc:
    """The function with its temporary `name` as the last parameter; the function itself if that is a parameter already."""
    if any(p.name == name for p in func.params):
        return func
    found = {b.name: b for b in func.allocs}

    def visit(n):
        if isinstance(n, Allocate) and n.buffer.name == name:
            found[name] = n.buffer
            return n.body
        return None

    body = rewrite(func.body, visit)
    kept = tuple(b for b in func.allocs if b.name != name)
    return func.with_(params=(*func.params, found[name]), allocs=kept, body=body)


@cache
def _naive_seconds(seed: int) -> float:
    """Seconds of the naive program, once a process."""
    kernel = tir.build(program(source(NAIVE)), target=tir.Target("llvm", num_cores=1))
    instance = workloads.make("mlp", SHAPE)
    inputs, F = instance.inputs(np.random.default_rng(seed)), instance.outputs()[0]
    timing = race({"naive": lambda: kernel(*inputs, F.reshape(-1))}, Effort(seconds=1.0, least=1))
    return timing["naive"].median


def measure(row: str, options: Options) -> Iterator[dict[str, Any]]:
    """One result: milliseconds of the program and of numpy, and the ratios to the naive program."""
    func = program(source(row))
    kernel = tir.build(func, target=tir.Target("llvm", num_cores=1))
    instance = workloads.make("mlp", SHAPE)
    inputs, outputs = instance.inputs(np.random.default_rng(options.seed)), instance.outputs()
    F = outputs[0].reshape(-1) if len(func.buffers[-1].shape) == 1 else outputs[0]
    kernel(*inputs, F)
    if not (found := instance.check(outputs, inputs)).ok:
        raise ArithmeticError(str(found))
    peer = instance.outputs()
    contenders = {"ours": lambda: kernel(*inputs, F), "numpy": lambda: instance.numpy(inputs, peer)}
    timings = race(contenders, Effort(seconds=options.seconds, least=3))
    naive = timings["ours"].median if row == NAIVE else _naive_seconds(options.seed)
    published, first = SECONDS[row], SECONDS[NAIVE]
    yield {
        "median_ms": 1e3 * timings["ours"].median,
        "quartiles_ms": [1e3 * q for q in timings["ours"].quartiles],
        "numpy_ms": 1e3 * timings["numpy"].median,
        "max_error": found.max_error,
        "tolerance": found.tolerance,
        "to_naive": naive / timings["ours"].median,
        **({"published_to_naive": first / published} if published and first else {}),
        **circumstances(),
    }
