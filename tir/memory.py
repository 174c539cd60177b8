"""Storage scopes: the memories that hold buffers."""

from __future__ import annotations

from .nearest import no_such

SWIZZLED = "shared.swizzled"  # shared memory in the layout that the products of warpgroups read (codegen/passes/swizzle.py)
SHARED = ("shared", "shared.dyn", SWIZZLED)  # of a block of GPU threads
WARP_SCOPE = "warp"  # registers that the 32 threads of a warp, threadIdx.x, hold together
PER_THREAD = (WARP_SCOPE, "local", "register")  # of one thread, or of the threads of a warp together
TENSOR_CORE = ("wmma.matrix_a", "wmma.matrix_b", "wmma.accumulator")  # of fragments, in published programs
SCOPES = ("global", *SHARED, *PER_THREAD, *TENSOR_CORE)

WARP = 32  # the threads of a warp


def check_scope(scope: str) -> str:
    """Return `scope` if it is a storage scope; else raise ValueError, which names the known ones."""
    if scope not in SCOPES:
        raise ValueError(no_such("storage scope", scope, SCOPES))
    return scope
