"""Operators of a script: Python's on numbers, nodes of the IR on expressions."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..ir import Const, Expr, binary, negative
from ..te import elementwise
from . import namespace
from .source import syntax
from .values import is_python_value

if TYPE_CHECKING:
    from .expressions import Expressions

# Texts may come from files of others: these limits bound the time and the memory of Python's computations in them.
MAX_BITS = 1024  # of a number: the largest float has as many
MAX_ITEMS = 100_000  # of a tuple, a list or a string

_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
    ast.MatMult: operator.matmul,
}
_UNARY: dict[type[ast.unaryop], Any] = {
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Not: operator.not_,
    ast.Invert: operator.invert,
}
# Comparisons without a sign are for Python's values only.
_COMPARE: dict[type[ast.cmpop], tuple[str, Any]] = {
    ast.Eq: ("==", operator.eq),
    ast.NotEq: ("!=", operator.ne),
    ast.Lt: ("<", operator.lt),
    ast.LtE: ("<=", operator.le),
    ast.Gt: (">", operator.gt),
    ast.GtE: (">=", operator.ge),
    ast.In: ("", lambda a, b: a in b),
    ast.NotIn: ("", lambda a, b: a not in b),
    ast.Is: ("", operator.is_),
    ast.IsNot: ("", operator.is_not),
}
# Upper bounds of the bits of results, for operators on integers whose results outgrow the operands.
_BITS: dict[Callable[[Any, Any], Any], Callable[[int, int], int]] = {
    operator.pow: lambda a, b: a.bit_length() * max(b, 0),
    operator.lshift: lambda a, b: a.bit_length() + b,
    operator.mul: lambda a, b: a.bit_length() + b.bit_length(),
}


def on_python(function: Callable[[Any, Any], Any], a: Any, b: Any) -> Any:
    """A binary operator of Python on Python's values; ValueError for a result too large for a program, and for `%` on text."""
    if isinstance(a, int) and isinstance(b, int) and function in _BITS and _BITS[function](a, b) > MAX_BITS:
        raise ValueError(f"a number of more than {MAX_BITS} bits")
    if isinstance(a, str) and function is operator.mod:
        raise ValueError("`%` formats no text here; write an f-string")
    counted = [x for x in (a, b) if isinstance(x, (str, tuple, list))]
    times = [x for x in (a, b) if isinstance(x, int)]
    if counted and sum(map(len, counted)) * max([1, *times]) > MAX_ITEMS:
        raise ValueError(f"more than {MAX_ITEMS} items")
    return function(a, b)


def operate(read: Expressions, node: ast.BinOp) -> Any:
    """The value of a binary operator: on numbers Python's, else a node."""
    a, b, function = read.value(node.left), read.value(node.right), _BINARY[type(node.op)]
    if is_python_value(a) and is_python_value(b):
        return read.guard(on_python, node, function, a, b)
    a, b = read.convert.number(a, node.left), read.convert.number(b, node.right)
    if function is operator.matmul:
        raise read.error("`@` is not in the dialect", node)
    return read.guard(function, node, a, b)


def unary(read: Expressions, node: ast.UnaryOp) -> Any:
    """The value of an operator on one operand: on a number Python's, else a node."""
    value = read.value(node.operand)
    if is_python_value(value):
        return read.guard(_UNARY[type(node.op)], node, value)
    value = read.convert.number(value, node.operand)
    match node.op:
        case ast.UAdd():
            return value
        case ast.USub() if isinstance(value, Const) and value.dtype != "bool":
            return read.guard(namespace.Type(value.dtype), node, -value.value)
    ours = {ast.USub: negative, ast.Not: elementwise.logical_not, ast.Invert: elementwise.bitwise_not}[type(node.op)]
    return read.guard(ours, node, value)


def logic(read: Expressions, node: ast.BoolOp) -> Any:
    """The value of `and` and `or`, to the left; conditions known to Python are decided as Python does."""
    op = "and" if isinstance(node.op, ast.And) else "or"
    result = read.value(node.values[0])
    for n in node.values[1:]:
        if isinstance(result, Expr):
            result = read.guard(binary, n, op, result, read.number(n))
        elif bool(result) != (op == "and"):
            return result
        else:
            result = read.value(n)
    return result


def compare(read: Expressions, node: ast.Compare) -> Any:
    """The value of comparisons; a chain `a < b < c` means `a < b and b < c`."""
    result: Any = None
    left_node: ast.expr = node.left
    left = read.value(left_node)
    for op, right_node in zip(node.ops, node.comparators, strict=True):
        right = read.value(right_node)
        sign, python = _COMPARE[type(op)]
        known = not isinstance(left, Expr) and not isinstance(right, Expr)
        if not sign and not known:
            raise read.error(f"`{syntax(op)}` does not compare expressions", node)
        if not sign or (known and is_python_value(left) and is_python_value(right)):
            part: Any = read.guard(python, node, left, right)
        else:
            left, right = read.convert.number(left, left_node), read.convert.number(right, right_node)
            part = read.guard(binary, node, sign, left, right)
        if result is None or (not isinstance(result, Expr) and result):
            result = part
        elif isinstance(result, Expr):
            result = read.guard(binary, node, "and", result, part)
        left, left_node = right, right_node
    return result
