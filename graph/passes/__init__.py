"""Passes: pure functions from graph to graph that compute the same. `optimize` runs the list, in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..ir import Graph, verify
from .activations import recognise_activations
from .affine import fold_affine
from .common import merge_common
from .dequantised import fold_dequantised
from .empty import fold_empty
from .factors import move_factors
from .forms import canonicalise
from .gates import move_gates
from .identities import remove_identities
from .layouts import simplify_layouts
from .norms import recognise_norms
from .powers import expand_powers
from .products import merge_products
from .sinking import sink_layouts
from .transposed import expand_transposed
from .unread import remove_unread

Pass = Callable[[Graph], Graph]

PASSES: tuple[Pass, ...] = (
    fold_empty,
    fold_dequantised,
    remove_identities,
    expand_powers,
    canonicalise,
    remove_identities,
    merge_common,
    recognise_norms,
    recognise_activations,
    move_factors,
    simplify_layouts,
    sink_layouts,
    simplify_layouts,
    fold_affine,
    expand_transposed,
    canonicalise,
    sink_layouts,
    move_gates,
    merge_products,
    simplify_layouts,
    remove_identities,
    merge_common,
    remove_unread,
)


def optimize(graph: Graph, passes: Sequence[Pass] = PASSES, observe: Callable[[str, Graph], None] | None = None) -> Graph:
    """The graph after all passes; `observe(name, graph)` sees each result. Raises GraphError for a malformed graph."""
    verify(graph)
    for run in passes:
        graph = run(graph)
        if observe is not None:
            observe(run.__name__, graph)
    return graph
