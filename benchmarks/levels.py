"""The default schedule for each level of x86-64 that this processor has, in turns with that for the processor itself.

Kernels for a level are what ships to machines that are not known. Each is compared with a float64 reference first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import tir
from codegen.peak import peak_flops
from codegen.processor import host_processor

from . import cpu, pages, programs
from .options import Options
from .runner import Effort, circumstances, race, ratios, warm

THREADED = True

# A feature that a processor has if it has the level.
LEVELS = {"x86-64-v2": "+sse4.2", "x86-64-v3": "+avx2", "x86-64-v4": "+avx512vl"}

ROWS = cpu.ROWS

DEFAULT = ("gemm-1024", "gemm-128", "mlp", "conv-56x64", "conv-7x512", "conv-7x7", "depthwise-112x32", "softmax", "layernorm")

INTRODUCTION = """\
# The default schedule for each level of x86-64

Made by `python -m benchmarks levels --rows all --threads 1 --save DIR`: kernels for the processor itself, and for the levels
of x86-64 that it has, in turns in one process. `x` is the speed beside that of the processor's own, `%` the part of the peak
of multiply-adds that the level has here.
"""


def targets(threads: int) -> dict[str, tir.Target]:
    """This processor, "native", and the levels that it has, by name."""
    _, features = host_processor()
    here = tir.Target("llvm", num_cores=threads)
    caches = {"l1": here.l1, "l2": here.l2, "l3": here.l3}
    held = [level for level, feature in LEVELS.items() if feature in features.split(",")]
    return {"native": here, **{level: tir.Target("llvm", num_cores=threads, mcpu=level, **caches) for level in held}}


def measure(row: str, options: Options) -> Iterator[dict[str, Any]]:
    """One result: of each level the time, the speed relative to native, and the part of the level's peak."""
    entry = cpu.TABLE[row]
    instance = programs.instance(entry.program, entry.shape)
    result: dict[str, Any] = {"threads": options.threads, "program": entry.program, "shape": list(entry.shape), **circumstances()}
    inputs, outputs = programs.arrays(instance, options.seed)
    check, calls = instance.checker(inputs), {}
    for level, target in targets(options.threads).items():
        kernel = tir.build(tir.default_schedule(instance.func, target).func, target)
        calls[level] = kernel.bind(*inputs, *outputs)
        found = cpu.checked(calls[level], outputs, check)
        if not found.ok:
            yield {**result, "error": f"{level}: {found}"}
            return
    timings = race(calls, Effort(seconds=options.seconds, warm=warm(options.threads)))
    peaks = {level: peak_flops(target, dtype=instance.dtype) for level, target in targets(options.threads).items()}
    compared = {
        level: {
            **timing.as_json(),
            "of_native": ratios(timing, timings["native"])[0],
            "of_peak": instance.flop / timing.median / peaks[level],
        }
        for level, timing in timings.items()
    }
    result |= {"levels": compared, "peaks": peaks}
    pages.keep(options.save, "levels", row, result, write)
    yield result


def lines(results: Sequence[dict[str, Any]]) -> pages.Lines:
    """A line a result, with the time, the speed beside native and the part of the peak of each level."""
    names = list(dict.fromkeys(level for r in results for level in r.get("levels", ())))
    found = []
    for r in results:
        if "levels" not in r:
            found.append(pages.failed(r))
            continue
        cells = [
            f"{1e3 * v['median_s']:.3g} ms {v['of_native']:.2f} x {v['of_peak']:.0%}" if (v := r["levels"].get(name)) else "-"
            for name in names
        ]
        found.append([r["row"], str(r["threads"]), *cells])
    return ["row", "threads", *names], found


table, write = pages.both("levels", "x: of native's speed; %: of the peak of the level", INTRODUCTION, ROWS, lines)
