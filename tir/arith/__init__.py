"""Arithmetic on indices: polynomials and their bounds, the simplifier, index digits, numbers that remember their formulas."""
