"""Passes: pure functions from graph to graph that compute the same. `optimize` runs the list, in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..ir import Graph, verify
from .activations import recognise_activations
from .affine import fold_affine
from .common_subexpressions import merge_common
from .conv_transpose import expand_transposed
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
from .unread import remove_unread

Pass = Callable[[Graph], Graph]

# A pass may rely on those before it. Beside each stands the reason for its place. What depends on the target stands around
# them (`compilation.passes_for`): integers and narrow weights before, channels last and minimal filtering after (`last_passes`).
PASSES: tuple[Pass, ...] = (
    fold_empty,  # first, so that no later rule meets a value without elements
    fold_dequantised,  # dequantised weights are constants before all passes that change constant weights
    remove_identities,  # a concatenation without its empty parts may have one part left
    expand_powers,  # before activations are recognised, which is done in products, not in powers
    canonicalise,  # after the powers: their products, too, get the one form of all calls that mean the same
    remove_identities,  # canonical forms have views around them; a view of a view would hide that two calls have the same input
    merge_common,  # finds equal calls by operator, inputs and attributes: needs canonical calls without superfluous views
    recognise_norms,  # the steps of a norm read `x - mean(x)` twice, which is one value only after equal calls are merged
    recognise_activations,  # needs merged calls, too; independent of the norms
    move_factors,  # after activations: it would move their last factor, as the 0.5 of a GELU, behind the product that reads it
    simplify_layouts,  # reduces moves to views and transposes, which the next pass sinks
    sink_layouts,  # after factors: it would put moves between a factor and its product
    simplify_layouts,  # a move that has sunk meets others, and they merge or cancel
    fold_affine,  # reads the calls right behind a convolution or a product, where no view or transpose is left
    expand_transposed,  # after scales are folded: the moves behind phases would part a convolution from its scale
    canonicalise,  # convolutions of phases are new, and may be products or have taps in padding; folded biases may be 0
    sink_layouts,  # the moves that interleave phases, and new views, sink behind the elementwise calls that follow
    move_gates,  # makes weights that are not constant: after all passes that change constant weights of convolutions
    merge_products,  # needs the final weights of products, and readers that only move
    simplify_layouts,  # the split of a merged product and the move behind each part become one move
    remove_identities,  # a move that has become a view may be a view of a view, or change nothing
    merge_common,  # passes have made calls and small constants that are equal
    remove_unread,  # last: merging leaves constants that no call reads
)


def optimize(graph: Graph, passes: Sequence[Pass] = PASSES, observe: Callable[[str, Graph], None] | None = None) -> Graph:
    """The graph after all passes; `observe(name, graph)` sees each result. Raises GraphError for a malformed graph."""
    verify(graph)
    for run in passes:
        graph = run(graph).from_nodes_of(graph)
        if observe is not None:
            observe(run.__name__, graph)
    return graph
