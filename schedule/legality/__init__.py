"""Legality: what primitives check before they rewrite. Dataflow, dependences, windows of axes, reducers, requirements on
blocks."""
