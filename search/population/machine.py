"""The machine model of a target, with the class of its kind."""

from __future__ import annotations

from typing import TypeVar

from codegen.target import Target
from schedule.machine import CPU, GPU

M = TypeVar("M", CPU, GPU)


def machine_of(target: Target, kind: type[M]) -> M:
    """The machine model of a target, an instance of `kind`, which its caller knows from the kind of the target."""
    machine = target.machine
    assert isinstance(machine, kind)
    return machine
