"""Formulas over the columns of a matrix, recorded once and evaluated for all rows at a time.

A function that computes with `Number` in place of plain numbers leaves behind a straight-line program. Common subexpressions are
computed once, constants are folded, unused steps are dropped. A compiled loop runs each step on a block of rows, which stays in
the first caches. So all rows of a block share the cost of interpreting a step.
"""

from __future__ import annotations

import math
import operator
from array import array
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache, reduce

import numpy as np

from tir.arith.enumeration import PYTHON_OPERATORS
from tir.arith.symbolic import Formula, formula

from .compiled import compiled

BLOCK_ROWS = 64  # rows of one step

OPERATIONS = (
    "column", "store", "+", "-", "*", "/", "//", "%", "min", "max", "<", "<=", "select", "ceil", "const",
)  # fmt: skip
_CODES = {name: n for n, name in enumerate(OPERATIONS)}
_COLUMN, _STORE, _SELECT, _CEIL, _CONST = (_CODES[name] for name in ("column", "store", "select", "ceil", "const"))

Plain = float | int | bool


def _operators(op: str) -> tuple[Callable[[Number, Value], Value], Callable[[Number, Value], Value]]:
    """The methods of `Number` for an operation with the number on the left, and on the right."""
    return lambda a, b: a.recorder.operate(op, a, b), lambda a, b: a.recorder.operate(op, b, a)


class Number:
    """A recorded float64 number of every row; a comparison of such numbers is one, too, 1 where it holds.

    Operands are plain numbers and numbers of the same recorder. `==` compares objects.
    """

    __slots__ = ("index", "recorder")

    def __init__(self, recorder: Recorder, index: int):
        self.recorder, self.index = recorder, index

    __add__, __radd__ = _operators("+")
    __sub__, __rsub__ = _operators("-")
    __mul__, __rmul__ = _operators("*")
    __truediv__, __rtruediv__ = _operators("/")
    __lt__, __gt__ = _operators("<")
    __le__, __ge__ = _operators("<=")

    def __bool__(self) -> bool:
        raise TypeError("a recorded number differs from row to row, so it is neither true nor false; use `where`")


Value = Number | Plain


class Recorder:
    """Records the operations on the numbers that it hands out."""

    def __init__(self) -> None:
        self._steps = array("i")  # each an operation and the indices of its operands, -1 for none; of a column its number
        self._indices: dict[tuple[int, ...], int] = {}
        self._constants: dict[float, int] = {}
        self._formulas: dict[Formula, Value] = {}

    def column(self, n: int) -> Number:
        """The number in column `n`."""
        return Number(self, self._step(_COLUMN, n))

    def number(self, value: int) -> Value:
        """An integer, by its formula if it has one; floats hold integers below 2^52 and their quotients exactly."""
        return self._formula(formula(value))

    def _formula(self, f: Formula) -> Value:
        if f not in self._formulas:
            match f:
                case ("const", value):
                    self._formulas[f] = float(value)
                case ("column", column):
                    self._formulas[f] = self.column(column)
                case (op, a, b):
                    self._formulas[f] = self.operate(op, self._formula(a), self._formula(b))
        return self._formulas[f]

    def operate(self, op: str, a: Value, b: Value) -> Value:
        """A binary operation; plain where both operands are."""
        if isinstance(a, Number):
            if isinstance(b, Number):
                x, y = a.index, b.index
                if x == y:
                    match op:
                        case "min" | "max":
                            return a
                        case "<" | "-":
                            return 0.0
                        case "<=":
                            return 1.0
                return Number(self, self._step(_CODES[op], x, y))
            if (b == 0 and op in ("+", "-")) or (b == 1 and op in ("*", "/", "//")):
                return a
        elif not isinstance(b, Number):
            return _operate_plain(op, a, b)
        elif (a == 0 and op == "+") or (a == 1 and op == "*"):
            return b
        if op == "*" and (a == 0 or b == 0):  # numbers equal themselves alone
            return 0.0
        return Number(self, self._step(_CODES[op], self._index(a), self._index(b)))

    def ceil(self, a: Number) -> Value:
        return Number(self, self._step(_CEIL, a.index))

    def select(self, condition: Number, a: Value, b: Value) -> Value:
        """`a` in the rows where the condition holds, `b` in others."""
        x, y = self._index(a), self._index(b)
        return a if x == y else Number(self, self._step(_SELECT, condition.index, x, y))

    def _index(self, value: Value) -> int:
        if isinstance(value, Number):
            return value.index
        if value not in self._constants:
            self._constants[float(value)] = self._add(_CONST)
        return self._constants[value]

    def _step(self, op: int, a: int, b: int = -1, c: int = -1) -> int:
        key = op, a, b, c
        if key not in self._indices:
            self._indices[key] = self._add(*key)
        return self._indices[key]

    def _add(self, op: int, a: int = -1, b: int = -1, c: int = -1) -> int:
        self._steps.extend((op, a, b, c))
        return len(self._steps) // 4 - 1

    def compiled(self, results: Mapping[int, Value]) -> Recording:
        """The program that computes `results`, given by their rows of the output."""
        ordered = sorted((self._index(value), row) for row, value in results.items())
        indices, rows = np.array(ordered, dtype=np.int32).reshape(-1, 2).T.copy()
        steps = np.array(self._steps, dtype=np.int32)
        n, stores = len(steps) // 4, len(indices)
        last, registers, free, constants = np.empty((4, n), dtype=np.int32)
        code, sizes = np.empty((n + stores, 5), dtype=np.int32), np.empty(3, dtype=np.int64)
        allocator()(n, steps, stores, indices, rows, last, registers, free, constants, code, sizes)
        length, used, count = sizes.tolist()
        values = {index: value for value, index in self._constants.items()}
        return Recording(code[:length].copy(), np.array([values[p] for p in constants[:used].tolist()]), max(1, count))


def _operate_plain(op: str, a: Plain, b: Plain) -> Plain:
    if op not in OPERATIONS:
        raise ValueError(f"operation {op!r} is not supported; expected one of {', '.join(OPERATIONS)}")
    return a / b if op == "/" else PYTHON_OPERATORS[op](a, b)


# --- functions of recorded numbers, or of plain ones ---------------------------------------------------------------------


def where(condition: Value, a: Value, b: Value) -> Value:
    """`a` where the condition holds, else `b`."""
    if isinstance(condition, Number):
        return condition.recorder.select(condition, a, b)
    return a if condition else b


def logical_or(a: Value, b: Value) -> Value:
    """True where one of two conditions holds."""
    return where(a, True, b) if isinstance(b, Number) else where(b, True, a)


def and_not(a: Value, b: Value) -> Value:
    """True where the first condition holds and the second doesn't."""
    return where(b, False, a)


def minimum(a: Value, b: Value) -> Value:
    return _operate("min", a, b)


def maximum(a: Value, b: Value) -> Value:
    return _operate("max", a, b)


def product(values: Iterable[Value]) -> Value:
    return reduce(operator.mul, values, 1.0)


def ceil(a: Value) -> Value:
    return a.recorder.ceil(a) if isinstance(a, Number) else float(math.ceil(a))


def _operate(op: str, a: Value, b: Value) -> Value:
    recorder = a.recorder if isinstance(a, Number) else b.recorder if isinstance(b, Number) else None
    return _operate_plain(op, a, b) if recorder is None else recorder.operate(op, a, b)  # type: ignore[arg-type]


# --- evaluation ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Recording:
    """A straight-line program: steps (operation, result, operands) on registers, of which the first hold the constants."""

    code: np.ndarray
    constants: np.ndarray
    registers: int

    def run(self, rows: np.ndarray, out: np.ndarray) -> None:
        """Evaluate an (n, columns) int64 matrix: result k goes to row k of `out`, (results, n) float32 or float64."""
        if len(self.code) and len(rows):
            registers = np.empty(self.registers * BLOCK_ROWS)
            registers[: len(self.constants) * BLOCK_ROWS] = np.repeat(self.constants, BLOCK_ROWS)
            given = np.ascontiguousarray(rows, dtype=np.int64)
            stride, inner = (step // out.itemsize for step in out.strides)
            assert inner == 1
            interpreter(out.dtype.name)(len(self.code), self.code, *given.shape, given, registers, stride, out)


@cache
def allocator() -> Callable[..., None]:
    """The compiled `_allocate_registers`."""
    return compiled(_allocate_registers, "int64", "int32*", "int64", "int32*", "int32*", *["int32*"] * 5, "int64*")


def _allocate_registers(count, steps, stores, indices, rows, last, registers, free, constants, code, sizes):  # compiled
    """Register allocation for `count` steps of four numbers: the code of five for the results at `indices` (ascending), which go
    to `rows` of the output, and the indices of its constants. `sizes` are the numbers of steps, constants and registers. A step
    reuses the register of a number after its last use, `last`; `free` is a stack of registers."""
    for index in range(count):
        last[index] = -1
    for k in range(stores):
        last[indices[k]] = indices[k]  # a mere result has itself
    for step in range(count):
        index = count - 1 - step
        if last[index] >= 0 and steps[4 * index] != _COLUMN:
            for k in range(1, 4):
                operand = steps[4 * index + k]
                if operand >= 0:
                    last[operand] = max(last[operand], index)
    used = 0
    for index in range(count):
        if steps[4 * index] == _CONST and last[index] >= 0:
            constants[used] = index
            registers[index] = used
            last[index] = count  # its register is never reused
            used += 1
    sizes[1] = used
    length, wanted, unused = 0, 0, 0
    for index in range(count):
        op = steps[4 * index]
        if last[index] < 0:
            continue
        if op != _CONST:
            at = 5 * length
            for k in range(5):
                code[at + k] = 0
            code[at] = op
            if op == _COLUMN:
                code[at + 2] = steps[4 * index + 1]
            else:
                for k in range(1, 4):
                    operand = steps[4 * index + k]
                    if operand >= 0:
                        code[at + k + 1] = registers[operand]
                        if last[operand] == index:
                            last[operand] = -2  # so that it is given back once
                            free[unused] = registers[operand]
                            unused += 1
            if unused:
                unused -= 1
                registers[index] = free[unused]
            else:
                registers[index] = used
                used += 1
            code[at + 1] = registers[index]
            length += 1
        while wanted < stores and indices[wanted] == index:
            at = 5 * length
            code[at], code[at + 1], code[at + 2], code[at + 3], code[at + 4] = _STORE, rows[wanted], registers[index], 0, 0
            length += 1
            wanted += 1
        if last[index] == index:
            free[unused] = registers[index]
            unused += 1
    sizes[0], sizes[2] = length, used


@cache
def interpreter(dtype: str) -> Callable[..., None]:
    """The compiled loop over steps, with results of a dtype; compiling it takes seconds, once for a processor."""
    return compiled(_run, "int64", "int32*", "int64", "int64", "int64*", "float64*", "int64", f"{dtype}*")


def _run(length, code, n, columns, rows, registers, stride, out):  # compiled
    """Run `length` steps of five numbers, the first an index of OPERATIONS, on n rows; output row k begins at k * `stride`."""
    for start in range(0, n, BLOCK_ROWS):
        size = min(BLOCK_ROWS, n - start)
        for t in range(length):
            op, d, a = code[5 * t], np.uint32(code[5 * t + 1]), np.uint32(code[5 * t + 2])
            b, c = np.uint32(code[5 * t + 3]), np.uint32(code[5 * t + 4])
            if op == 0:
                for i in range(BLOCK_ROWS):
                    registers[BLOCK_ROWS * d + i] = rows[(start + min(i, size - 1)) * columns + a]
                continue
            if op == 1:
                for i in range(size):
                    out[d * stride + start + i] = registers[BLOCK_ROWS * a + i]
                continue
            d, a, b, c = BLOCK_ROWS * d, BLOCK_ROWS * a, BLOCK_ROWS * b, BLOCK_ROWS * c
            if op == 2:
                for i in range(BLOCK_ROWS):
                    registers[d + i] = registers[a + i] + registers[b + i]
            elif op == 3:
                for i in range(BLOCK_ROWS):
                    registers[d + i] = registers[a + i] - registers[b + i]
            elif op == 4:
                for i in range(BLOCK_ROWS):
                    registers[d + i] = registers[a + i] * registers[b + i]
            elif op == 5:
                for i in range(BLOCK_ROWS):
                    registers[d + i] = registers[a + i] / registers[b + i]
            elif op == 6:
                for i in range(BLOCK_ROWS):
                    registers[d + i] = np.floor(registers[a + i] / registers[b + i])
            elif op == 7:
                for i in range(BLOCK_ROWS):
                    registers[d + i] = registers[a + i] - np.floor(registers[a + i] / registers[b + i]) * registers[b + i]
            elif op == 8:
                for i in range(BLOCK_ROWS):
                    registers[d + i] = registers[a + i] if registers[a + i] < registers[b + i] else registers[b + i]
            elif op == 9:
                for i in range(BLOCK_ROWS):
                    registers[d + i] = registers[a + i] if registers[a + i] > registers[b + i] else registers[b + i]
            elif op == 10:
                for i in range(BLOCK_ROWS):
                    registers[d + i] = 1.0 if registers[a + i] < registers[b + i] else 0.0
            elif op == 11:
                for i in range(BLOCK_ROWS):
                    registers[d + i] = 1.0 if registers[a + i] <= registers[b + i] else 0.0
            elif op == 12:
                for i in range(BLOCK_ROWS):
                    registers[d + i] = registers[b + i] if registers[a + i] != 0.0 else registers[c + i]
            else:
                for i in range(BLOCK_ROWS):
                    registers[d + i] = np.ceil(registers[a + i])
