"""The search space of a function: its sketches, derived block by block by `rules`, then annotated."""

from .derivation import GPU_SPACES, SPACES, Derivation, Space, annotated, best_first, departures, generate, named, opened

__all__ = [
    "GPU_SPACES", "SPACES", "Derivation", "Space", "annotated", "best_first", "departures", "generate", "named",
    "opened",
]  # fmt: skip
