"""Pipelines of LLVM's optimiser side by side: how long each takes for some kernels, and how fast these are.

By this the one in `codegen.llvm.compile` was chosen. Others add to it or leave something out, are LLVM's own (its vectorisers and
unroller off, as the schedule has decided), or generate code at another level.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import llvmlite.binding as llvm

import tir
from codegen import lower
from codegen.llvm.compile import PASSES, TUNING, Library, machine
from codegen.llvm.emit import emit, symbol

from . import programs
from .options import Options
from .runner import Effort, circumstances, race


class Pipeline(NamedTuple):
    """Passes by name, or the level of LLVM's own; and the level of code generation, if not ours."""

    passes: tuple[str, ...] | int
    code: int | None = None


CHOSEN = "chosen"

PIPELINES: dict[str, Pipeline] = {
    CHOSEN: Pipeline(PASSES),
    "no simplify_cfg": Pipeline(tuple(p for p in PASSES if p != "simplify_cfg")),
    "and instruction_combine": Pipeline((*PASSES, "instruction_combine")),
    "and new_gvn, dead_code_elimination": Pipeline((*PASSES, "new_gvn", "dead_code_elimination")),
    "and loop_strength_reduce": Pipeline((*PASSES, "loop_strength_reduce")),
    "code at -O2": Pipeline(PASSES, code=2),
    "code at -O1": Pipeline(PASSES, code=1),
    "-O1": Pipeline(1),
    "-O2": Pipeline(2),
    "-O3": Pipeline(3),
}

PROGRAMS: dict[str, tuple[int, ...]] = {
    "gmm": (512, 509, 512),
    "conv2d": (1, 28, 28, 64, 128, 3, 3, 1, 1),
    "depthwise": (1, 56, 56, 64, 3, 3, 1, 1),
    "softmax": (512, 1000),
    "layernorm": (512, 1000),
}

ROWS = tuple(PROGRAMS)

DEFAULT = ROWS


def measure(row: str, options: Options) -> Iterator[dict[str, Any]]:
    """A result a pipeline: milliseconds from LLVM IR to machine code, and the kernel's median time, relative to the chosen
    one's."""
    target = tir.Target("llvm", num_cores=1)
    instance = programs.instance(row, PROGRAMS[row])
    lowered = lower(tir.default_schedule(instance.func, target).func, target)
    text = emit(lowered, target)
    inputs, outputs = programs.arrays(instance, options.seed)
    arrays = [*inputs, *outputs]
    compiled: dict[str, float] = {}
    contenders: dict[str, Callable[[], object]] = {}
    for name, pipeline in PIPELINES.items():
        machine_code(text, target, pipeline)  # once, so that all of LLVM is in memory
        start = time.perf_counter()
        code = machine_code(text, target, pipeline)
        compiled[name] = 1e3 * (time.perf_counter() - start)
        function = Library([code], [symbol(lowered)], target).function(symbol(lowered), len(arrays))
        contenders[name] = partial(function, *(a.ctypes.data for a in arrays))
    timings = race(contenders, Effort(seconds=options.seconds))
    chosen, about = timings[CHOSEN].median, circumstances()
    for name, timing in timings.items():
        run = {"run_ms": 1e3 * timing.median, "run_ratio": timing.median / chosen}
        yield {"pipeline": name, "llvm_ms": compiled[name], **run, **about}


def machine_code(text: str, target: tir.Target, pipeline: Pipeline) -> bytes:
    """The object file of a module by some pipeline."""
    described = machine(target, pipeline.code)
    module = llvm.parse_assembly(text)
    module.verify()
    options = llvm.create_pipeline_tuning_options()
    level = {"speed_level": pipeline.passes} if isinstance(pipeline.passes, int) else {}
    for key, value in {**TUNING, **level}.items():
        setattr(options, key, value)
    builder = llvm.create_pass_builder(described, options)
    if isinstance(pipeline.passes, int):
        passes = builder.getModulePassManager()
    else:
        passes = llvm.create_new_module_pass_manager()
        for name in pipeline.passes:
            getattr(passes, f"add_{name}_pass")()
    passes.run(module, builder)
    return described.emit_object(module)
