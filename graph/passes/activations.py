"""Recognition of activations by the function that they compute, however it is written.

Sums, differences, products and quotients by numbers make a value a polynomial of x and of E, one function of a polynomial of x.
Each row of the table has the two polynomials of an operator.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import isclose, pi, sqrt

from tir import dtypes

from ..ir import Attribute, Call, Value
from .rewriting import Rewriting, each_call

Polynomial = dict[tuple[int, int], float]  # factors, by the exponents of x and of E
Values = dict[Value, Polynomial]

MAX_STEPS = 8  # calls between an activation's result and its input
MAX_TERMS = 6  # terms of a polynomial
TOLERANCE = 4e-6  # relative error of factors, which are float32 numbers in files, or have as many digits
UNITS_OF_HALVES = 3  # relative error of factors of halves, in unit roundoffs: one of each of the numbers that make a factor


@dataclass(frozen=True)
class ActivationForm:
    """An operator of x that is the polynomial `result` of x and E, where E is `function` of the polynomial `argument` of x."""

    operator: str
    attributes: Mapping[str, Attribute]
    function: str
    bounds: Mapping[str, Attribute]  # attributes of the function
    argument: Polynomial
    result: Polynomial


_HALVES = {(1, 0): 0.5, (1, 1): 0.5}
_ROOT = sqrt(2 / pi)
_SIXTH: dict[str, Attribute] = {"alpha": 1 / 6, "beta": 0.5}

FORMS = (
    ActivationForm("Gelu", {}, "Erf", {}, {(1, 0): sqrt(0.5)}, _HALVES),
    ActivationForm("Gelu", {"approximate": "tanh"}, "Tanh", {}, {(1, 0): _ROOT, (3, 0): 0.044715 * _ROOT}, _HALVES),
    ActivationForm("HardSigmoid", _SIXTH, "Clip", {"min": 0, "max": 6}, {(1, 0): 1, (0, 0): 3}, {(0, 1): 1 / 6}),
    ActivationForm("HardSwish", {}, "Clip", {"min": 0, "max": 6}, {(1, 0): 1, (0, 0): 3}, {(1, 1): 1 / 6}),
    ActivationForm("HardSwish", {}, "Clip", {"min": 0, "max": 1}, {(1, 0): 1 / 6, (0, 0): 0.5}, {(1, 1): 1}),
    ActivationForm("HardSwish", {}, "HardSigmoid", _SIXTH, {(1, 0): 1}, {(1, 1): 1}),
)
_FUNCTIONS = tuple(dict.fromkeys(f.function for f in FORMS))
_DEFAULTS: dict[str, Attribute] = {"beta": 0.5}  # of omitted attributes; no form has another default


@each_call
def recognise_activations(r: Rewriting, call: Call) -> Value | None:
    """GELU (with erf, or as tanh approximates it), hard sigmoid, hard swish and 1 / (1 + exp(-x)) become one call each."""
    if call.operator not in ("Add", "Mul", "Div", "Reciprocal") or not dtypes.is_float(call.outputs[0].dtype):
        return None
    if (x := _logistic(r, call)) is not None:
        return r("Sigmoid", x)
    kind = call.outputs[0].dtype
    for function in _functions(r, call):
        argument = function.values[0]
        for x in dict.fromkeys((argument, *_leading_to(r, argument, MAX_STEPS))):
            given, found = _polynomial(r, argument, {x: _X}), _polynomial_of(r, call, {x: _X, function.outputs[0]: _E})
            for form in FORMS:
                same = form.function == function.operator and all(
                    _near(function.attribute(n, _DEFAULTS.get(n)), v, kind) for n, v in form.bounds.items()
                )
                if same and _equal(given, form.argument, kind) and _equal(found, form.result, kind):
                    return r(form.operator, x, **form.attributes)
    return None


def _logistic(r: Rewriting, call: Call) -> Value | None:
    """The x of a call that computes 1 / (1 + exp(-x)); None for other calls."""
    if call.operator == "Div" and r.number(call.inputs[0]) != 1:
        return None
    below = r.producer(call.inputs[-1], "Add") if call.operator in ("Div", "Reciprocal") else None
    for one, power in (below.values, below.values[::-1]) if below is not None else ():
        negated = r.producer(p.values[0], "Neg") if r.number(one) == 1 and (p := r.producer(power, "Exp")) is not None else None
        if negated is not None and negated.outputs[0].shape == call.outputs[0].shape:
            return negated.values[0]
    return None


# --- operands ------------------------------------------------------------------------------------------------------------


def _functions(r: Rewriting, call: Call) -> Iterator[Call]:
    """The calls of the table's functions that a call depends on by sums and products."""
    for value in _before(call, call.outputs[0]):
        for inner in (value, *_leading_to(r, value, MAX_STEPS)):
            if (function := r.producer(inner, *_FUNCTIONS)) is not None:
                yield function


def _leading_to(r: Rewriting, value: Value, steps: int) -> Iterator[Value]:
    """The values of the same shape that a value depends on by at most so many steps of sums and products."""
    call = r.producer(value, "Add", "Sub", "Mul", "Div", "Neg")
    for before in _before(call, value) if call is not None and steps else ():
        yield before
        yield from _leading_to(r, before, steps - 1)


def _before(call: Call, value: Value) -> list[Value]:
    return [v for v in call.values if v.shape == value.shape]


# --- polynomials -----------------------------------------------------------------------------------------------------------

_X: Polynomial = {(1, 0): 1.0}
_E: Polynomial = {(0, 1): 1.0}


def _polynomial(r: Rewriting, value: Value, known: Values, steps: int = MAX_STEPS) -> Polynomial | None:
    """A value as a polynomial of the `known` values, or None."""
    if value in known:
        return known[value]
    if (number := r.number(value)) is not None:
        return {(0, 0): number}
    call = r.producer(value, "Add", "Sub", "Mul", "Div", "Neg")
    return _polynomial_of(r, call, known, steps - 1) if call is not None and steps else None


def _polynomial_of(r: Rewriting, call: Call, known: Values, steps: int = MAX_STEPS) -> Polynomial | None:
    """The result of a call as a polynomial, or None."""
    parts = [_polynomial(r, v, known, steps) for v in call.values]
    if any(p is None or len(p) > MAX_TERMS for p in parts):
        return None
    match call.operator, parts:
        case "Neg", [dict(a)]:
            return {e: -f for e, f in a.items()}
        case "Add", [dict(a), dict(b)]:
            return _sum(a, b, 1)
        case "Sub", [dict(a), dict(b)]:
            return _sum(a, b, -1)
        case "Mul", [dict(a), dict(b)]:
            product: Polynomial = {}
            for (i, j), f in a.items():
                product = _sum(product, {(i + k, j + n): f * g for (k, n), g in b.items()}, 1)
            return product
        case "Div", [dict(a), dict(b)] if set(b) == {(0, 0)} and b[0, 0]:
            return {e: f / b[0, 0] for e, f in a.items()}
        case _:
            return None


def _sum(a: Polynomial, b: Polynomial, sign: int) -> Polynomial:
    return {e: a.get(e, 0.0) + sign * b.get(e, 0.0) for e in {**a, **b}}


def _equal(found: Polynomial | None, wanted: Polynomial, dtype: str) -> bool:
    return found is not None and set(found) == set(wanted) and all(_near(found[e], f, dtype) for e, f in wanted.items())


def _near(found: object, wanted: object, dtype: str) -> bool:
    """True for equal numbers, but for the roundings of an element type."""
    most = max(TOLERANCE, UNITS_OF_HALVES * dtypes.unit(dtype))
    return isinstance(found, (int, float)) and isinstance(wanted, (int, float)) and isclose(found, wanted, rel_tol=most)
