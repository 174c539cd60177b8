"""The memories that a buffer may be in: storage scopes."""

from __future__ import annotations

from .nearest import no_such

SHARED = ("shared", "shared.dyn")  # of a block of GPU threads
WARP_SCOPE = "warp"  # registers that the 32 threads of a warp, threadIdx.x, hold together
PER_THREAD = (WARP_SCOPE, "local", "register")  # of one thread, or of the threads of a warp together
TENSOR_CORE = ("wmma.matrix_a", "wmma.matrix_b", "wmma.accumulator")  # what published programs hold fragments in
SCOPES = ("global", *SHARED, *PER_THREAD, *TENSOR_CORE)

WARP = 32  # the threads of a warp


def check_scope(scope: str) -> str:
    """Return `scope` if it is a storage scope; raise ValueError naming those there are otherwise."""
    if scope not in SCOPES:
        raise ValueError(no_such("storage scope", scope, SCOPES))
    return scope
