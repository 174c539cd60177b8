"""The search space of a function: its sketches, derived block by block by `rules`, then annotated.

`generation` asks the backend of a target for its spaces, which `derivation` defines; so its names are imported at first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tir.lazy_names import lazy_names

if TYPE_CHECKING:
    from .derivation import GPU_SPACES, SPACES, Derivation, Space, best_first, departures
    from .generation import generate, named, opened

__all__ = [
    "GPU_SPACES", "SPACES", "Derivation", "Space", "best_first", "departures", "generate", "named",
    "opened",
]  # fmt: skip

__getattr__ = lazy_names(__name__)
