"""Polynomials, their intervals and their division by constants, in one namespace; `tir.arith` has them by modules."""

from .arith.division import floordiv, recombine, remainder
from .arith.intervals import UNBOUNDED, Interval, Ranges, polynomial_bounds
from .arith.polynomial import (
    Monomial,
    Polynomial,
    add,
    as_constant,
    coefficient,
    constant,
    linear,
    multiply,
    names_in,
    nonpositive,
    polynomial,
    scale,
    split_terms,
    to_expr,
)

__all__ = [
    "UNBOUNDED", "Interval", "Monomial", "Polynomial", "Ranges", "add", "as_constant", "coefficient", "constant", "floordiv",
    "linear", "multiply", "names_in", "nonpositive", "polynomial", "polynomial_bounds", "recombine", "remainder", "scale",
    "split_terms", "to_expr",
]  # fmt: skip
