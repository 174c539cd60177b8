"""Comparison of programs of one computation, timed in turns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from codegen import Kernel, Target, backend, build
from codegen.runtime.timing import duration, in_turns
from schedule import Schedule
from tir import display
from tir.ir import Const, PrimFunc, need_func

from ..drawing.html import alone
from ..drawing.svg import strips
from ..measure.reference import random_inputs
from ..task import flop

SAMPLE_SECONDS = 1e-3  # of a sample, filled by calls in a row
MIN_ROUNDS = 5
_HEAD = ("", "median", "quartiles", "GFLOP/s", "× fastest")

ComparedProgram = PrimFunc | Schedule | Kernel


@dataclass(frozen=True)
class Compared:
    """The times of compared programs: for each name the seconds of a call in each round of turns.

    `flop` is the number of operations, 0 if unknown; `reports` describes the innermost loops of each.
    """

    samples: dict[str, tuple[float, ...]]
    flop: int = 0
    reports: dict[str, str] = field(default_factory=dict, repr=False)

    @property
    def seconds(self) -> dict[str, float]:
        """The medians, fastest first."""
        medians = {name: float(np.median(s)) for name, s in self.samples.items()}
        return dict(sorted(medians.items(), key=lambda item: item[1]))

    def _rows(self) -> list[tuple[str, ...]]:
        best = next(iter(self.seconds.values()))
        rows: list[tuple[str, ...]] = []
        for name, median in self.seconds.items():
            low, high = np.quantile(self.samples[name], (0.25, 0.75))
            speed = f"{self.flop / median / 1e9:.1f}" if self.flop else ""
            rows.append((name, duration(median, 3), f"{duration(low, 3)} .. {duration(high, 3)}", speed, f"{median / best:.2f}"))
        return rows

    def __str__(self) -> str:
        return display.aligned_columns([_HEAD, *self._rows()]) + "\n"

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> display.Bundle:
        drawn = strips("samples of each program", [(name, self.samples[name]) for name in self.seconds], 600)
        return display.bundle(str(self), display.html_table(_HEAD, self._rows()) + alone(drawn))


def compare(
    programs: Mapping[str, ComparedProgram] | Sequence[ComparedProgram],
    target: str | Target = "llvm",
    *,
    inputs: Sequence[Any] | None = None,
    seconds: float = 1.0,
    seed: int = 0,
) -> Compared:
    """Time functions, schedules or kernels of one computation in turns, in this process.

    All are called with `inputs`, arrays for all parameters, by default random ones. Each round gives each program a sample of
    about a millisecond; rounds go on until `seconds` are over, with MIN_ROUNDS at least. ValueError for a program with other
    parameters than the first, TypeError for any other object, and the errors of `tir.build`.
    """
    if not isinstance(programs, (Mapping, list, tuple)):
        raise TypeError(f"compare takes programs in a list or by name, got {type(programs).__name__}")
    named = dict(programs) if isinstance(programs, Mapping) else {str(n): p for n, p in enumerate(programs)}
    if not named:
        raise ValueError("compare takes at least one program")
    target = Target(target)
    if backend(target).device is not None:
        raise ValueError(f"compare is for processors, target llvm, got {target.kind}; kernels of a GPU have .time")
    kernels = {name: _kernel(p, target) for name, p in named.items()}
    first = next(iter(kernels.values()))
    for name, kernel in list(kernels.items())[1:]:
        if [p.with_(name="") for p in kernel.func.params] != [p.with_(name="") for p in first.func.params]:
            raise ValueError(f"{name!r} takes other parameters than {next(iter(kernels))!r}: {kernel!r}")
    arrays = random_inputs(first.func, np.random.default_rng(seed)) if inputs is None else list(inputs)
    calls = {name: kernel.bind(*arrays) for name, kernel in kernels.items()}
    samples = map(tuple, in_turns(list(calls.values()), seconds, MIN_ROUNDS, sample=SAMPLE_SECONDS))
    fixed = all(isinstance(d, Const) for b in first.func.buffers for d in b.shape)
    reports = {name: _report(kernel) for name, kernel in kernels.items()}
    return Compared(dict(zip(calls, samples, strict=True)), flop(first.func) if fixed else 0, reports)


def _report(kernel: Kernel) -> str:
    """The report on the innermost loops; empty if the kernel is not x86 code."""
    try:
        return str(kernel.report())
    except ValueError:
        return ""


def _kernel(program: ComparedProgram, target: Target) -> Kernel:
    if isinstance(program, Kernel):
        return program
    made = build(program if isinstance(program, Schedule) else need_func(program, "compare"), target)
    assert isinstance(made, Kernel)
    return made
