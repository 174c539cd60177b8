"""A third kind of target, `interpreted`, whose kernels the interpreter runs: all that adding one takes, and, as a module, the
builder by which worker processes make its kernels."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from codegen import BACKENDS, Backend
from codegen.passes import CPU_PASSES
from costmodel import RandomModel
from search.backends import SearchBackend
from search.measure.builder import schedule
from search.population.cpu import legalize, sample_tiles
from search.space import SPACES
from tir.interpreter import run
from tir.ir import PrimFunc

__all__ = ["BACKEND", "SEARCH_BACKEND", "compile", "schedule", "warm_up"]


def compile(func: PrimFunc, target: object) -> Callable[..., None]:
    """The function as what interprets it."""
    return lambda *arrays: run(func, *arrays)


def warm_up(target: str) -> None:
    """Register the kind in a worker process."""
    BACKENDS.setdefault("interpreted", BACKEND)


BACKEND = Backend(
    "interpreted",
    build=lambda func, target, cache: compile(func, target),
    passes=CPU_PASSES[:2],
    texts={"lines": lambda func, target: str(len(func.script().splitlines()))},
    builder=__name__,
)
SEARCH_BACKEND = SearchBackend(
    "interpreted",
    spaces={"full": SPACES["limited"]},
    sample_tiles=sample_tiles,
    legalize=legalize,
    prior=lambda target: RandomModel(np.random.default_rng(0)),
)
