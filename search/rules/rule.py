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
    """A way to develop a block. `apply` returns new states, made with `state.fired(self.name, block)` and then scheduled further;
    none where it turns out to be illegal. In each the block counts as done, unless the rule puts it back into `pending`."""

    name: str

    def applies(self, state: State, block: str) -> Verdict: ...

    def apply(self, state: State, block: str) -> list[State]: ...
