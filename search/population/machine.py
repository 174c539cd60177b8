"""The machine model of a target, as one of the class that its kind has."""

from __future__ import annotations

from typing import TypeVar

from codegen.target import Target
from schedule.machine import CPU, GPU

M = TypeVar("M", CPU, GPU)


def machine_of(target: Target, kind: type[M]) -> M:
    """The machine model of a target, which is a `kind`: backends are looked up by the kind of the target."""
    machine = target.machine
    assert isinstance(machine, kind)
    return machine
