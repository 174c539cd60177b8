"""Tensor intrinsics: CPU and GPU instructions that `tensorize` puts in the place of a loop nest."""

from __future__ import annotations

from tir.ir import For, PrimFunc
from tir.ir.nodes import annotation
from tir.script import parse

INSTRUCTION = "instruction"  # the key that annotates a loop whose nest is one instruction
WARPGROUP = "wgmma"  # begins the names of the instructions of a warpgroup, four warps, which multiply while they go on


def is_grouped(loop: For) -> bool:
    """True for the loop of a warpgroup's product."""
    return str(annotation(loop.annotations, INSTRUCTION, "")).startswith(WARPGROUP)


def marked(template: str, instruction: str, **parts: object) -> tuple[PrimFunc, PrimFunc]:
    """A description and its implementation: the same nest, its outer loop of 16 rows annotated with the instruction."""
    plain, annotated = "range(16)", f'T.serial(16, annotations={{"{INSTRUCTION}": "{instruction}"}})'
    desc, impl = (parse(template.format(outer=loop, **parts)) for loop in (plain, annotated))
    assert isinstance(desc, PrimFunc) and isinstance(impl, PrimFunc)
    return desc, impl
