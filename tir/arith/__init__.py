"""Arithmetic on indices: polynomials, intervals, the simplifier, proofs, enumeration, symbolic integers."""
