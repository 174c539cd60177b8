"""What a GPU offers to a block of threads."""

from __future__ import annotations

import re
from dataclasses import dataclass

from codegen.target import Target

STATIC = 48 * 1024  # bytes of shared memory that every architecture gives to a block
# With permission of the driver (CUDA C++ programming guide, technical specifications by compute capability).
SHARED = {70: 96, 72: 96, 75: 64, 80: 163, 86: 99, 87: 163, 89: 99, 90: 227, 100: 227, 103: 227, 110: 227, 120: 99, 121: 99}
AMPERE = 80  # the first with asynchronous copies, and with the tensor cores that instructions are emitted for


@dataclass(frozen=True, slots=True)
class Device:
    """The limits of a block: threads, bytes of shared memory, registers of a thread and of all, and virtual threads. `modern`
    tells whether copies to shared memory run on their own, and tensor cores can be used."""

    shared: int
    modern: bool
    threads: int = 1024
    registers: int = 255
    register_file: int = 65536
    virtual: int = 16


def device(target: Target) -> Device:
    """The limits of the target's architecture."""
    number = int(re.findall(r"\d+", target.arch)[0])
    return Device(SHARED.get(number, STATIC // 1024) * 1024, number >= AMPERE)
