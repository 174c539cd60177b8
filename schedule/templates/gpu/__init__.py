"""Schedules for GPUs that are known to be good, by pattern: composed from primitives, for any shape, with open numbers.

    s = gpu.schedule(func)    # a Schedule: each nest is bound to blocks and threads

A pattern is recognised by the structure of a block, never by a name. Each module has one: it `matches` blocks, `build`s them with
open numbers, and gives the `seed` of these. Products of matrices and convolutions are tiled through shared memory and registers.
A reduced row has a block, whose threads reduce together; all else has a thread an element. `schedule` takes each template at its
seed; for the search they are rules.
"""

from __future__ import annotations

from dataclasses import dataclass

from schedule.machine import GPU
from schedule.open_schedule import OpenSchedule
from schedule.schedule import Schedule
from tir.ir import PrimFunc
from tir.traverse import blocks

from ..marks import plain_loops
from ..template import Template, Verdict
from . import attention, elements, products, rows, split_sum, tensor_cores, windows

__all__ = ["ANSOR", "TEMPLATES", "Template", "elements", "products", "rows", "schedule", "split_sum", "tensor_cores", "windows"]

TEMPLATES: tuple[Template, ...] = (
    attention.AttentionInOneKernel(), split_sum.SumInStages(), split_sum.SplitSum(), windows.WindowsAsMatrices(),
    tensor_cores.TENSOR_CORES, products.TileThroughShared(), rows.CrossThreadReduction(), elements.InlineElements(),
)  # fmt: skip

ANSOR: tuple[Template, ...] = (
    rows.CrossThreadReduction(ours=False), products.TileThroughShared(ours=False), elements.InlineElements(ours=False),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Device:
    """The part of a target that templates ask for."""

    machine: GPU


def schedule(func: PrimFunc, gpu: GPU | str = "sm_90", tf32: bool = False) -> Schedule:
    """A schedule of `func` for a GPU, or the one that `GPU.of` has for an architecture.

    Each block, the last one first, takes the first template that applies, at its seed. A block that fits no pattern has one
    thread an element; one that cannot be parallel has one thread.

    Products of float16 and bfloat16 matrices run on tensor cores from sm_80 on. Those of float32 do only with `tf32`, or where
    the block is annotated so: factors are then rounded to 10 bits of mantissa.
    """
    s = OpenSchedule(func, Device(GPU.of(gpu) if isinstance(gpu, str) else gpu), [b.name for b in blocks(func)], at_seed=True)
    plain_loops(s)
    for name in s.pending if tf32 else ():
        if products.matched_product(s.block(name)) is not None:
            s.annotate(name, tensor_cores.TF32, True)
    while s.pending:
        block = s.pending.pop()
        tried = (t.apply(s, block) for t in TEMPLATES if t.applies(s, block) is not Verdict.SKIP)
        s = next((made[0] for made in tried if made), s)
    elements.bind_rest(s)
    return s.plain(func)
