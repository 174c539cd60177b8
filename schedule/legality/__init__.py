"""Legality: what primitives check first. Dataflow, dependences, windows of axes, reducers, requirements on blocks."""
