"""Functions of expressions: of numbers, of conditions, of bits; members of `te`, and of `T` in scripts.

Numbers of Python may stand for expressions. Operators of expressions (`tir.ir.Operators`) and numpy's functions of them end here.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from .. import dtypes
from ..arith.polynomial import wraps
from ..intrinsics import INTRINSICS
from ..ir import Binary, Call, Const, Expr, Select, Unary, as_expr, binary, cast, const, refuse_compared, unify

__all__ = [
    "abs", "acos", "acosh", "all", "any", "asin", "asinh", "atan", "atan2", "atanh", "bit_and", "bit_or", "bit_xor",
    "bitwise_and", "bitwise_not", "bitwise_or", "bitwise_xor", "ceil", "ceildiv", "clip", "copysign", "cos", "cosh",
    "equal", "erf", "exp", "exp2", "expm1", "floor", "floordiv", "floormod", "fmod", "hypot", "if_then_else", "infinity",
    "isfinite", "isinf", "isnan", "log", "log10", "log1p", "log2", "logical_not", "max_value", "maximum", "min_value",
    "minimum", "nearbyint", "not_equal", "popcount", "pow", "round", "rsqrt", "select", "shift_left", "shift_right", "shl", "shr",
    "sigmoid", "sin", "sinh", "sqrt", "tan", "tanh", "trunc",
]  # fmt: skip


def operator(op: str, name: str = "", meaning: str = "") -> Callable[[Any, Any], Binary]:
    """An operator of two expressions as a function, by default of the operator's name."""

    def operate(a, b) -> Binary:
        return binary(op, a, b)

    operate.__name__ = operate.__qualname__ = name or op
    operate.__doc__ = meaning
    return operate


_NUMBERS = "in the dtype that both are converted to; where one is a NaN, the first. Of conditions"
maximum = operator("max", "maximum", f"The larger of two numbers, {_NUMBERS} `or`.")
minimum = operator("min", "minimum", f"The smaller of two numbers, {_NUMBERS} `and`.")
equal = operator("==", "equal", "True where two values are equal, a bool: `==` on expressions compares their structure.")
not_equal = operator("!=", "not_equal", "True where two values differ, a bool: `!=` on expressions compares their structure.")
floordiv = operator("//", "floordiv", "The quotient of two numbers, rounded down.")
floormod = operator("%", "floormod", "The remainder of `floordiv`, which has the sign of `b`.")


def intrinsic(op: str) -> Callable[..., Call]:
    """The function that applies an intrinsic to one value, or to two, converted to one dtype. TypeError for a dtype that the
    intrinsic does not take; most take floats."""

    def apply(x, *y) -> Call:
        values = unify(x, *y) if y else (as_expr(x),)
        if len(values) != INTRINSICS[op].arity:
            raise TypeError(f"{op} takes {INTRINSICS[op].arity} argument(s), got {len(values)}")
        dtype, kinds = values[0].dtype, INTRINSICS[op].kinds
        if dtypes.TABLE[dtype].kind not in kinds:
            wanted, other = ("a floating", "float32") if "float" in kinds else ("an integer", "int32")
            raise TypeError(f"{op} needs {wanted} argument, got {dtype}; use .astype({other!r})")
        return Call(op, tuple(values), dtype)

    apply.__name__ = apply.__qualname__ = op
    apply.__doc__ = INTRINSICS[op].meaning
    return apply


exp, exp2, log, sqrt, rsqrt, tanh = map(intrinsic, ("exp", "exp2", "log", "sqrt", "rsqrt", "tanh"))
log2, log10, log1p, expm1 = map(intrinsic, ("log2", "log10", "log1p", "expm1"))
erf, sigmoid, abs, floor, ceil = map(intrinsic, ("erf", "sigmoid", "abs", "floor", "ceil"))
nearbyint, round, trunc = map(intrinsic, ("nearbyint", "round", "trunc"))
sin, cos, tan, asin, acos, atan = map(intrinsic, ("sin", "cos", "tan", "asin", "acos", "atan"))
sinh, cosh, asinh, acosh, atanh = map(intrinsic, ("sinh", "cosh", "asinh", "acosh", "atanh"))
pow, fmod, atan2, hypot, copysign = map(intrinsic, ("pow", "fmod", "atan2", "hypot", "copysign"))
bit_and, bit_or, bit_xor = map(intrinsic, ("bit_and", "bit_or", "bit_xor"))
shl, shr = map(intrinsic, ("shl", "shr"))


def popcount(x) -> Expr:
    """The number of bits of an integer that are 1, in its dtype; for a negative one, of its two's complement."""
    value = as_expr(x)
    if dtypes.TABLE[value.dtype].kind != "int":
        return intrinsic("popcount")(value)
    return cast(intrinsic("popcount")(cast(value, f"u{value.dtype}")), value.dtype)


def ceildiv(a, b) -> Any:
    """The quotient of two integers, rounded up; of Python's ints an int. TypeError for other numbers."""
    if isinstance(a, int) and isinstance(b, int):
        return -(-a // b)
    quotient = binary("//", a, b)
    a, b = quotient.a, quotient.b
    if not dtypes.is_int(quotient.dtype):
        raise TypeError(f"ceildiv needs integer arguments, got {quotient.dtype}; use te.ceil(a / b)")
    if wraps(quotient):  # a sum of both may not fit their dtype
        return quotient + cast(binary("!=", binary("%", a, b), 0), quotient.dtype)
    return (a + b - 1) // b if isinstance(b, Const) and b.value > 0 else -(-a // b)


def toward_zero(op: str, a, b, positive: bool = False) -> Expr:
    """`//` or `%` of two integers with the quotient rounded toward 0; `positive` asserts that b > 0."""
    result = binary(op, a, b)
    a, b = result.a, result.b
    if dtypes.TABLE[result.dtype].kind == "uint":
        return result
    low = all(a < 0 if positive else not_equal(a < 0, b < 0), not_equal(result if op == "%" else binary("%", a, b), 0))
    return result + cast(low, result.dtype) if op == "//" else result - select(low, b, 0)


def clip(x, low, high) -> Expr:
    """The number of `low` .. `high` nearest to `x`."""
    return minimum(maximum(x, low), high)


def isnan(x) -> Expr:
    """True where a value is NaN, which integers never are."""
    value = as_expr(x)
    return Binary("!=", value, value) if dtypes.is_float(value.dtype) else const(False)


def isinf(x) -> Expr:
    """True where a number is infinite, which integers never are."""
    value = as_expr(x)
    return equal(abs(value), float("inf")) if dtypes.is_float(value.dtype) else const(False)


def isfinite(x) -> Expr:
    """True where a number is neither infinite nor NaN, as integers always are."""
    value = as_expr(x)
    return abs(value) < float("inf") if dtypes.is_float(value.dtype) else const(True)


def bitwise_and(a, b) -> Expr:
    """The bitwise and of integers or conditions; with a constant 2^n - 1 a remainder, which indices may have."""
    a, b = unify(a, b)
    if (
        isinstance(b, Const)
        and dtypes.is_int(b.dtype)
        and 0 < b.value < dtypes.limits(b.dtype)[1]
        and not b.value & (b.value + 1)
    ):
        return binary("%", a, b.value + 1)
    return _on_bits("and", a, b)


def bitwise_or(a, b) -> Expr:
    """The bitwise or of integers or conditions."""
    return _on_bits("or", a, b)


def bitwise_xor(a, b) -> Expr:
    """The bitwise exclusive or of integers or conditions."""
    return _on_bits("xor", a, b)


def _on_bits(op: str, a, b) -> Expr:
    a, b = unify(a, b)
    if a.dtype != "bool":
        return intrinsic(f"bit_{op}")(a, b)
    return Binary("!=" if op == "xor" else op, a, b)


def bitwise_not(a) -> Expr:
    """The bitwise complement of an integer, or the negation of a condition."""
    value = as_expr(a)
    if value.dtype == "bool":
        return logical_not(value)
    if not dtypes.is_int(value.dtype):
        raise TypeError(f"bitwise_not needs an integer argument, got {value.dtype}; use .astype('int32')")
    low, high = dtypes.limits(value.dtype)
    return bit_xor(value, const(-1 if low else high, value.dtype))


def shift_left(a, b) -> Expr:
    """a 2^b, wrapped around."""
    return _shifted(shl, "*", a, b)


def shift_right(a, b) -> Expr:
    """a / 2^b, rounded down."""
    return _shifted(shr, "//", a, b)


def _shifted(shift: Callable, op: str, a, b) -> Expr:
    """A shift; by a constant as `*` or `//`, which indices may have."""
    a, b = unify(a, b)
    bits = dtypes.bits(a.dtype)
    if isinstance(b, Const) and dtypes.is_int(a.dtype) and 0 <= b.value < bits - 1:
        return binary(op, a, const(1 << b.value, a.dtype))
    return shift(a, b)


def infinity(dtype: dtypes.DTypeLike) -> Expr:
    """Infinity in a floating dtype; TypeError for other dtypes."""
    if not dtypes.is_float(dtype := dtypes.check(dtype)):
        raise TypeError(f"infinity is for floats, not {dtype}")
    return const(float("inf"), dtype)


def max_value(dtype: dtypes.DTypeLike) -> Expr:
    """The largest finite value of a dtype."""
    dtype = dtypes.check(dtype)
    return const(dtypes.TABLE[dtype].largest or dtypes.limits(dtype)[1], dtype)


def min_value(dtype: dtypes.DTypeLike) -> Expr:
    """The smallest finite value of a dtype."""
    dtype = dtypes.check(dtype)
    return const(-dtypes.TABLE[dtype].largest or dtypes.limits(dtype)[0], dtype)


# The counterparts of numpy's functions of elements under other names.
UFUNCS: dict[str, Callable[..., Any]] = {
    "add": operator("+"), "subtract": operator("-"), "multiply": operator("*"), "divide": operator("/"),
    "floor_divide": floordiv, "remainder": floormod, "power": pow, "float_power": pow, "negative": lambda x: -x,
    "absolute": abs, "fabs": abs, "rint": nearbyint, "fmax": maximum, "fmin": minimum,
    "less": operator("<"), "less_equal": operator("<="), "greater": operator(">"), "greater_equal": operator(">="),
    "logical_and": operator("and"), "logical_or": operator("or"),
    "invert": bitwise_not, "left_shift": shift_left, "right_shift": shift_right,
    "arcsin": asin, "arccos": acos, "arctan": atan, "arcsinh": asinh, "arccosh": acosh, "arctanh": atanh, "arctan2": atan2,
}  # fmt: skip


def of_numpy(ufunc: Any, method: str, inputs: tuple, options: Mapping[str, Any]) -> Any:
    """A function of numpy applied to expressions: its counterpart in `UFUNCS`, or of its name here. Arrays give an array of
    expressions. Raises TypeError for a function without counterpart."""
    name = ufunc.__name__
    function: Any = UFUNCS.get(name) or (globals()[name] if name in __all__ else None)
    if function is None or method != "__call__" or options:
        raise TypeError(f"np.{name} has no counterpart on expressions; the functions of te are {', '.join(__all__)}")
    if builtins.any(isinstance(x, np.ndarray) and x.ndim for x in inputs):
        return np.frompyfunc(function, len(inputs), 1)(*(x if isinstance(x, np.ndarray) else _boxed(x) for x in inputs))
    return function(*(x.item() if isinstance(x, np.ndarray) else x for x in inputs))


def _boxed(value: Any) -> np.ndarray:
    """An array of rank 0 with one object."""
    box = np.empty((), object)
    box[()] = value
    return box


def if_then_else(condition, true_value, false_value) -> Expr:
    """`true_value` where `condition` holds, else `false_value`; only the chosen one is evaluated.

    So padding may be written as `te.if_then_else(te.all(i >= 1, i < n), A[i - 1], 0.0)`. The values are converted to one dtype.
    Raises TypeError for a condition that is not bool.
    """
    t, f = unify(true_value, false_value)
    return Select(as_condition(condition), t, f, lazy=True)


def select(condition, true_value, false_value) -> Expr:
    """`true_value` where `condition` holds, else `false_value`; both may be evaluated. Otherwise as `if_then_else`."""
    t, f = unify(true_value, false_value)
    return Select(as_condition(condition), t, f)


def as_condition(value) -> Expr:
    """`value` as a condition; TypeError for values of other dtypes, and for Python's True and False."""
    refuse_compared(value)
    found = as_expr(value)
    if found.dtype != "bool":
        raise TypeError(f"a condition must be bool, got `{found}` of dtype {found.dtype}; compare it: x != 0")
    return found


def all(*conditions) -> Expr:
    """True where every condition holds."""
    return _fold("and", conditions)


def any(*conditions) -> Expr:
    """True where at least one condition holds."""
    return _fold("or", conditions)


def _fold(op: str, conditions) -> Expr:
    if not conditions:
        raise TypeError(f"te.{'all' if op == 'and' else 'any'} needs at least one condition")
    result = as_condition(conditions[0])
    for c in conditions[1:]:
        result = Binary(op, result, as_condition(c))
    return result


def logical_not(condition) -> Expr:
    """True where a condition does not hold."""
    return Unary("not", as_condition(condition))
