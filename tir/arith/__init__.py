"""Arithmetic on indices: polynomials, intervals, the simplifier, proofs, iter maps, symbolic integers."""
