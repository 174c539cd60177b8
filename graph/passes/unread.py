"""Removal of calls and constants that no output depends on."""

from __future__ import annotations

from ..ir import Graph


def remove_unread(graph: Graph) -> Graph:
    """Drop the calls and constants that no output of the graph depends on. Inputs stay: they are how the graph is called."""
    read = {v.name for v in graph.outputs}
    kept = []
    for call in reversed(graph.calls):
        if any(v.name in read for v in call.outputs):
            kept.append(call)
            read |= {v.name for v in call.values}
    constants = {name: array for name, array in graph.constants.items() if name in read}
    return graph.with_(calls=tuple(reversed(kept)), constants=constants)
