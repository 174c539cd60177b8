"""Expressions, and the functions that make them: operators, constants, conversions, conditions."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from .. import dtypes
from .nodes import Node, node, printer

COMPARISONS = ("==", "!=", "<", "<=", ">", ">=")
LOGICAL = ("and", "or")
ARITHMETIC = ("+", "-", "*", "/", "//", "%", "min", "max")
_OF_BOOL = frozenset((*COMPARISONS, *LOGICAL))


def functions() -> Any:
    """The functions of expressions and tensors, imported on first use: they build on this module."""
    import tir

    return tir.te


Infix = Callable[[Any, Any], Any]


def _infix(op: str) -> tuple[Infix, Infix]:
    """The methods of an operator on expressions: with the expression to the left, and to the right."""
    return lambda self, other: binary(op, self, other), lambda self, other: binary(op, other, self)


def _function(name: str) -> tuple[Infix, Infix]:
    """The two methods of an operator that stands for a function of `te`."""
    return lambda self, other: getattr(functions(), name)(self, other), lambda self, other: getattr(functions(), name)(
        other, self
    )


class Operators:
    """Python's operators, which make expressions, and numpy's functions of one element or two (`elementwise.UFUNCS`)."""

    __slots__ = ()

    __add__, __radd__ = _infix("+")
    __sub__, __rsub__ = _infix("-")
    __mul__, __rmul__ = _infix("*")
    __truediv__, __rtruediv__ = _infix("/")
    __floordiv__, __rfloordiv__ = _infix("//")
    __mod__, __rmod__ = _infix("%")
    __lt__, __gt__ = _infix("<")[0], _infix(">")[0]
    __le__, __ge__ = _infix("<=")[0], _infix(">=")[0]
    __pow__, __rpow__ = _function("pow")
    __lshift__, __rlshift__ = _function("shift_left")
    __rshift__, __rrshift__ = _function("shift_right")
    __and__, __rand__ = _function("bitwise_and")
    __or__, __ror__ = _function("bitwise_or")
    __xor__, __rxor__ = _function("bitwise_xor")

    def __neg__(self):
        return negative(as_expr(self))

    def __abs__(self):
        return functions().abs(self)

    def __invert__(self):
        return functions().bitwise_not(self)

    def as_scalar(self) -> Expr:
        """The expression that this stands for: an expression itself, the element of a tensor of rank 0."""
        raise NotImplementedError

    def __array_ufunc__(self, ufunc, method, *inputs, **options):
        return functions().of_numpy(ufunc, method, inputs, options)


class Expr(Operators, Node):
    """A scalar expression; `dtype` names its element type."""

    __slots__ = ()
    if TYPE_CHECKING:

        @property
        def dtype(self) -> str: ...

    def as_scalar(self) -> Expr:
        return self

    def equal(self, other) -> Expr:
        """The expression `self == other` (the operator `==` compares the two trees instead)."""
        return binary("==", self, other)

    def not_equal(self, other) -> Expr:
        return binary("!=", self, other)

    def astype(self, dtype: dtypes.DTypeLike) -> Expr:
        """This value converted to `dtype`: floats truncate toward zero to integers, anything nonzero becomes True."""
        return cast(self, dtype)

    @property
    def is_zero(self) -> bool:
        """True where this is the constant 0, of any dtype."""
        return isinstance(self, Const) and self.value == 0

    @property
    def is_one(self) -> bool:
        """True where this is the constant 1, of any dtype."""
        return isinstance(self, Const) and self.value == 1

    def __bool__(self):
        raise TypeError(
            f"`{self}` has no truth value before it runs; use te.if_then_else, te.select, te.all or te.any instead of if, and, or"
        )

    def __str__(self) -> str:
        return printer().expr_text(self)


@node
class Const(Expr):
    """A literal: an int, float or bool of the given dtype. Equality tells 0.0 from -0.0, as programs do."""

    value: Any  # an int, float or bool, as dtype says
    dtype: str = "int32"

    def __eq__(self, other: object) -> bool:
        if type(other) is not Const or self.dtype != other.dtype:
            return False
        a, b = self.value, other.value
        return a is b or (a == b and (a != 0 or math.copysign(1, a) == math.copysign(1, b)))


@node
class Var(Expr):
    """A named scalar: a loop variable, a block iteration variable, a let binding or a symbolic size."""

    name: str
    dtype: str = "int32"


@node
class Binary(Expr):
    """`a op b`, both of one dtype; `op` is one of ARITHMETIC, COMPARISONS or LOGICAL. `//` and `%` floor; `/` is for floats."""

    op: str
    a: Expr
    b: Expr

    @property
    def dtype(self) -> str:
        e: Expr = self
        while type(e) is Binary and e.op not in _OF_BOOL:  # no recursion: a sum may be longer than Python has calls
            e = e.a
        return "bool" if type(e) is Binary else e.dtype


@node
class Unary(Expr):
    """`neg` (arithmetic) or `not` (bool)."""

    op: str
    a: Expr

    @property
    def dtype(self) -> str:
        return self.a.dtype


@node
class Cast(Expr):
    dtype: str
    value: Expr


@node
class Select(Expr):
    """`true_value if condition else false_value`. Both sides may be evaluated, unless `lazy`: then only the chosen one is,
    so that the other may access out of bounds (`T.if_then_else`)."""

    condition: Expr
    true_value: Expr
    false_value: Expr
    lazy: bool = False

    @property
    def dtype(self) -> str:
        return self.true_value.dtype


@node
class Call(Expr):
    """An intrinsic applied to arguments; `op` is one of `intrinsics.INTRINSICS`."""

    op: str
    args: tuple[Expr, ...]
    dtype: str


TRUE = Const(True, "bool")
FALSE = Const(False, "bool")


def const(value, dtype: dtypes.DTypeLike | None = None) -> Const:
    """A literal; without `dtype`, Python's int is int32 (int64 where it does not fit), float is float32, bool is bool."""
    if type(value) is int and dtype in (None, "int32") and -(2**31) <= value < 2**31:  # most often
        return Const(value)
    if dtype is None:
        if isinstance(value, bool):
            dtype = "bool"
        elif isinstance(value, int):
            dtype = "int32" if -(2**31) <= value < 2**31 else "int64"
        elif isinstance(value, float):
            dtype = "float32"
        elif hasattr(value, "dtype") and getattr(value, "ndim", None) == 0:  # a numpy scalar
            dtype, value = str(value.dtype), value.item()
        else:
            raise TypeError(
                f"cannot make an expression of {value!r} ({type(value).__name__}); use numbers, indices, elements A[i, j]"
            )
    dtype = dtypes.check(dtype)
    if dtypes.is_float(dtype):
        try:
            return Const(float(value) if value == value else math.nan, dtype)  # one NaN object, which equals itself in a tuple
        except (TypeError, ValueError):
            raise TypeError(f"{value!r} is not a number, and cannot be a constant of dtype {dtype}") from None
    if dtype == "bool":
        return Const(bool(value), dtype)
    if value != int(value):
        raise TypeError(f"{value!r} is not an integer, and cannot be a constant of dtype {dtype}")
    low, high = dtypes.limits(dtype)
    if not low <= value <= high:
        raise TypeError(f"{value!r} does not fit {dtype} ({low} .. {high})")
    # `+` makes a bool an int and leaves a SymbolicInt as it is
    return Const(+value if isinstance(value, int) else int(value), dtype)


def as_expr(value, dtype: str | None = None) -> Expr:
    """`value` as an expression: Python and numpy numbers become constants (of `dtype`, if given), tensors of rank 0 elements."""
    return value.as_scalar() if isinstance(value, Operators) else const(value, dtype)


def as_index(value) -> Expr:
    """`value` as an integer expression; TypeError otherwise."""
    result = as_expr(value)
    if not dtypes.is_int(result.dtype):
        raise TypeError(f"an index must be an integer, got {result} of dtype {result.dtype}")
    return result


def cast(value: Expr, dtype: dtypes.DTypeLike) -> Expr:
    dtype = dtypes.check(dtype)
    return value if value.dtype == dtype else Cast(dtype, value)


def unify(a, b) -> tuple[Expr, Expr]:
    """Both operands as expressions of one dtype. A Python number takes the dtype of the expression beside it."""
    if not isinstance(a, Operators):
        b = as_expr(b)
        a = _literal_beside(a, b.dtype)
    elif not isinstance(b, Operators):
        a = as_expr(a)
        b = _literal_beside(b, a.dtype)
    a, b = as_expr(a), as_expr(b)
    if a.dtype == b.dtype:
        return a, b
    dtype = dtypes.promote(a.dtype, b.dtype)
    return cast(a, dtype), cast(b, dtype)


def refuse_compared(value) -> None:
    """Raise TypeError for Python's True and False where an expression is expected: `i == j` of expressions gives these."""
    if isinstance(value, bool):
        raise TypeError(f"got {value}, no expression: `==` and `!=` compare structure; te.equal and te.not_equal compare values")


def _literal_beside(value, dtype: str) -> Const:
    """A number as a constant of `dtype`, if that holds numbers of its kind and size; else of its own dtype."""
    if dtype != "bool":
        refuse_compared(value)
    kinds = (int, float) if dtypes.is_float(dtype) else int if dtypes.is_int(dtype) else bool
    low, high = dtypes.limits(dtype)
    fits = isinstance(value, kinds) and (low <= value <= high or value != value)
    return const(value, dtype if fits else None)


ON_CONDITIONS = {"+": "or", "max": "or", "*": "and", "min": "and"}  # arithmetic operators on two conditions


def binary(op: str, a, b) -> Binary:
    """`a op b` with the operands brought to one dtype. A sum or maximum of conditions is `or`, their product or minimum `and`.

    Raises TypeError where that dtype does not have the operator.
    """
    a, b = unify(a, b)
    if a.dtype == "bool" and op in ARITHMETIC:
        if op not in ON_CONDITIONS:
            raise TypeError(f"`{op}` does not take bool, in `{a} {op} {b}`; use .astype('int32')")
        op = ON_CONDITIONS[op]
    if op in LOGICAL and a.dtype != "bool":
        raise TypeError(f"`{op}` needs bool operands, got {a.dtype} in `{a} {op} {b}`")
    if op == "/" and not dtypes.is_float(a.dtype):
        raise TypeError(f"`/` needs floating operands, got {a.dtype} in `{a} / {b}`; use // or .astype('float32')")
    return Binary(op, a, b)


def negative(value: Expr) -> Unary:
    """`-value`; TypeError for a condition."""
    if value.dtype == "bool":
        raise TypeError(f"`-` does not take bool, in `-{value}`; use te.logical_not or .astype('int32')")
    return Unary("neg", value)


def conjunction(*conditions: Expr) -> Expr:
    """`a and b and ...` without the trivially true; TRUE if nothing remains."""
    kept: list[Expr] = []
    for c in conditions:
        for part in conjuncts(c):
            if part != TRUE and part not in kept:
                kept.append(part)
    result: Expr = TRUE
    for c in kept:
        result = c if result is TRUE else Binary("and", result, c)
    return result


def conjuncts(condition: Expr) -> tuple[Expr, ...]:
    """The parts of a chain of `and`."""
    match condition:
        case Binary("and", a, b):
            return conjuncts(a) + conjuncts(b)
        case _:
            return () if condition == TRUE else (condition,)


def all_zero(variables: Iterable[Var]) -> dict[str, Expr]:
    """The value 0 for each variable, by its name."""
    return {v.name: Const(0, v.dtype) for v in variables}


def as_int(expr: Expr, what: str = "a value") -> int:
    if isinstance(expr, Const):
        return int(expr.value)
    raise ValueError(f"{what} is symbolic: `{expr}`; a constant is needed here")
