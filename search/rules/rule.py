"""What a sketch rule is."""

from __future__ import annotations

from enum import Enum
from typing import Protocol

from ..sketch import State


class Verdict(Enum):
    """A rule's answer about a block."""

    SKIP = "does not apply"
    APPLY = "applies, and so may others"
    ONLY = "applies, and no later rule does"


class Rule(Protocol):
    """A way to develop a block. `apply` returns new states (`state.fired(...)` makes the copy to work on), in each of which the
    block is done, unless the rule leaves it in `state.pending`."""

    name: str

    def applies(self, state: State, block: str) -> Verdict: ...

    def apply(self, state: State, block: str) -> list[State]: ...
