"""What a template of sums of products is, and the ways to build one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from schedule.machine import CPU
from schedule.open_schedule import Way
from tir.ir import Block


class Template(Protocol):
    """A module: what a block is to it, whether that is worth a sketch, an estimate of cycles of one core, infinite where it is no
    default, and what builds it. If there are variants, each worth a sketch, a function `variants` of what was found and of the
    processor gives them, the seed's first."""

    @property
    def NAME(self) -> str: ...

    def matches(self, block: Block, /) -> Any: ...

    def suits(self, found: Any, processor: CPU, /) -> bool: ...

    def cycles(self, found: Any, processor: CPU, /) -> float: ...

    @property
    def build(self) -> Callable[..., None]: ...


def ways(template: Template, found: Any, processor: CPU) -> list[tuple[str, Way]]:
    """The ways to build a template, each with a label, the seed's first."""

    def way(*variant: str) -> tuple[str, Way]:
        return "".join((template.NAME, *variant)), lambda s: template.build(s, found, *variant)

    variants = getattr(template, "variants", None)
    return [way()] if variants is None else [way(v) for v in variants(found, processor)]


__all__ = ["Template", "ways"]
