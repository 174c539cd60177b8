"""The search space of a function: its sketches, derived block by block by `rules`, then annotated.

`generation` asks the backend of a target for its spaces, which `derivation` defines; so its names are imported at first use.
"""

from typing import TYPE_CHECKING, Any

from tir.nearest import no_attribute

from .derivation import GPU_SPACES, SPACES, Derivation, Space, best_first, departures

if TYPE_CHECKING:
    from .generation import generate, named, opened

__all__ = [
    "GPU_SPACES", "SPACES", "Derivation", "Space", "best_first", "departures", "generate", "named",
    "opened",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in __all__:
        from . import generation

        return getattr(generation, name)
    raise no_attribute(__name__, name, __all__)
