"""Formulas over the columns of a matrix, recorded once and evaluated for all rows at a time.

A function that computes with `Number` in place of plain numbers leaves behind a straight-line program: what several results share
is computed once, what is the same in every row is folded, what no result needs is dropped. The program runs on blocks of rows
that stay in the first caches, by a compiled loop that does one step for a whole block at a time; so neither the interpreter nor
the number of rows in a matrix matters much.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from tir.size import Formula, formula

BLOCK = 64  # rows that a step is done for at a time

OPERATIONS = ("column", "store", "+", "-", "*", "/", "//", "%", "min", "max", "<", "<=", "and not", "or", "select", "ceil")
_CODES = {name: n for n, name in enumerate(OPERATIONS)}

Plain = float | int | bool


class Number:
    """A number of every row, float64, that is being recorded; a comparison of such numbers is one, too, 1 where it holds.

    Arithmetic with plain numbers and others of the same recorder makes new ones. `==` is that of objects.
    """

    __slots__ = ("place", "recorder")

    def __init__(self, recorder: Recorder, place: int):
        self.recorder, self.place = recorder, place

    def __add__(self, other: Value) -> Value:
        return self.recorder.operate("+", self, other)

    def __radd__(self, other: Value) -> Value:
        return self.recorder.operate("+", other, self)

    def __sub__(self, other: Value) -> Value:
        return self.recorder.operate("-", self, other)

    def __rsub__(self, other: Value) -> Value:
        return self.recorder.operate("-", other, self)

    def __mul__(self, other: Value) -> Value:
        return self.recorder.operate("*", self, other)

    def __rmul__(self, other: Value) -> Value:
        return self.recorder.operate("*", other, self)

    def __truediv__(self, other: Value) -> Value:
        return self.recorder.operate("/", self, other)

    def __rtruediv__(self, other: Value) -> Value:
        return self.recorder.operate("/", other, self)

    def __lt__(self, other: Value) -> Value:
        return self.recorder.operate("<", self, other)

    def __le__(self, other: Value) -> Value:
        return self.recorder.operate("<=", self, other)

    def __gt__(self, other: Value) -> Value:
        return self.recorder.operate("<", other, self)

    def __ge__(self, other: Value) -> Value:
        return self.recorder.operate("<=", other, self)

    def __bool__(self) -> bool:
        raise TypeError("a recorded number differs from row to row, so it is neither true nor false; use `where`")


Value = Number | Plain


class Recorder:
    """Takes down what is computed with the numbers that it hands out."""

    def __init__(self) -> None:
        self._steps: list[str] = []  # operations by place
        self._operands: list[tuple[int, ...]] = []  # of each, by place; of a column its number
        self._places: dict[tuple, int] = {}
        self._constants: dict[int, float] = {}  # by place
        self._formulas: dict[Formula, Value] = {}

    def number(self, value: int) -> Value:
        """An integer, by its formula if it has one (`tir.size.Size`); floats hold integers below 2^52 and their quotients
        exactly."""
        return self._formula(formula(value))

    def _formula(self, f: Formula) -> Value:
        if f not in self._formulas:
            match f:
                case ("const", value):
                    self._formulas[f] = float(value)
                case ("column", column):
                    self._formulas[f] = Number(self, self._step("column", column))
                case (op, a, b):
                    self._formulas[f] = self.operate(op, self._formula(a), self._formula(b))
        return self._formulas[f]

    def operate(self, op: str, a: Value, b: Value) -> Value:
        """A binary operation; plain where both operands are."""
        if not isinstance(a, Number) and not isinstance(b, Number):
            return _plain(op, a, b)
        match op, a, b:
            case ("+", x, 0) | ("+", 0, x) | ("-", x, 0) | ("*", x, 1) | ("*", 1, x) | ("/", x, 1) | ("//", x, 1):
                return x
            case ("*", _, 0) | ("*", 0, _):
                return 0.0
        if isinstance(a, Number) and isinstance(b, Number) and a.place == b.place:
            match op:
                case "min" | "max":
                    return a
                case "<" | "-":
                    return 0.0
                case "<=":
                    return 1.0
        return Number(self, self._step(op, self._place(a), self._place(b)))

    def ceil(self, a: Number) -> Value:
        return Number(self, self._step("ceil", a.place))

    def select(self, condition: Number, a: Value, b: Value) -> Value:
        """`a` in the rows where the condition holds, `b` in others."""
        x, y = self._place(a), self._place(b)
        return a if x == y else Number(self, self._step("select", condition.place, x, y))

    def _place(self, value: Value) -> int:
        if isinstance(value, Number):
            return value.place
        place = self._step("const", float(value))
        self._constants[place] = float(value)
        return place

    def _step(self, op: str, *operands: Any) -> int:
        key = (op, *operands)
        if key not in self._places:
            self._places[key] = len(self._steps)
            self._steps.append(op)
            self._operands.append(() if op == "const" else operands)
        return self._places[key]

    def compiled(self, results: Mapping[int, Number]) -> Recording:
        """The program that computes `results`, by the row of the output that each becomes."""
        wanted: dict[int, list[int]] = {}
        for row, number in results.items():
            wanted.setdefault(number.place, []).append(row)
        last = [-1] * len(self._steps)  # the last step that uses each value that is needed, its own if it is only a result
        for place in reversed(range(len(self._steps))):
            if place in wanted and last[place] < 0:
                last[place] = place
            if last[place] >= 0 and self._steps[place] != "column":
                for operand in self._operands[place]:
                    if last[operand] < 0:
                        last[operand] = place
        constants = [place for place in self._constants if last[place] >= 0]
        registers = {place: n for n, place in enumerate(constants)}
        count = len(constants)
        free: list[int] = []
        code: list[tuple[int, ...]] = []
        for place, (op, operands) in enumerate(zip(self._steps, self._operands, strict=True)):
            if last[place] < 0 or op == "const":
                continue
            sources = operands
            if op != "column":
                sources = tuple([registers[x] for x in operands])
                free += [registers[x] for x in {*operands} if last[x] == place and self._steps[x] != "const"]
            if free:
                registers[place] = free.pop()
            else:
                registers[place] = count
                count += 1
            code.append((_CODES[op], registers[place], *sources, *(0,) * (3 - len(sources))))
            code += [(_CODES["store"], row, registers[place], 0, 0) for row in wanted.get(place, ())]
            if last[place] == place:
                free.append(registers[place])
        return Recording(
            np.array(code, dtype=np.int32).reshape(-1, 5), np.array([self._constants[p] for p in constants]), max(1, count)
        )


def _plain(op: str, a: Plain, b: Plain) -> Plain:
    match op:
        case "+":
            return a + b
        case "-":
            return a - b
        case "*":
            return a * b
        case "/":
            return a / b
        case "//":
            return a // b
        case "%":
            return a % b
        case "min":
            return min(a, b)
        case "max":
            return max(a, b)
        case "<":
            return a < b
        case "<=":
            return a <= b
        case "or":
            return bool(a or b)
        case "and not":
            return bool(a and not b)
        case _:
            raise ValueError(f"there is no operation {op!r}; there are: {', '.join(OPERATIONS)}")


# --- functions of recorded numbers, or of plain ones ---------------------------------------------------------------------


def where(condition: Value, a: Value, b: Value) -> Value:
    """`a` where the condition holds, else `b`."""
    if isinstance(condition, Number):
        return condition.recorder.select(condition, a, b)
    return a if condition else b


def either(a: Value, b: Value) -> Value:
    """Whether one of two conditions holds."""
    if not isinstance(a, Number):
        return True if a else b
    if not isinstance(b, Number):
        return True if b else a
    return a.recorder.operate("or", a, b)


def and_not(a: Value, b: Value) -> Value:
    """Whether the first condition holds and the second doesn't."""
    if not isinstance(a, Number) and not a:
        return False
    if not isinstance(b, Number):
        return False if b else a
    return b.recorder.operate("and not", a, b)


def least(a: Value, b: Value) -> Value:
    return _operate("min", a, b)


def most(a: Value, b: Value) -> Value:
    return _operate("max", a, b)


def ceil(a: Value) -> Value:
    return a.recorder.ceil(a) if isinstance(a, Number) else float(math.ceil(a))


def _operate(op: str, a: Value, b: Value) -> Value:
    recorder = a.recorder if isinstance(a, Number) else b.recorder if isinstance(b, Number) else None
    return _plain(op, a, b) if recorder is None else recorder.operate(op, a, b)  # type: ignore[arg-type]


# --- evaluation ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Recording:
    """A straight-line program: steps (operation, result, operands) on registers, of which the first hold the constants."""

    code: np.ndarray
    constants: np.ndarray
    registers: int

    def run(self, rows: np.ndarray, out: np.ndarray) -> None:
        """Evaluate all results for an (n, columns) int64 matrix: result k goes to row k of `out`, (results, n) float32."""
        if len(self.code) and len(rows):
            registers = np.empty(self.registers * BLOCK)
            registers[: len(self.constants) * BLOCK] = np.repeat(self.constants, BLOCK)
            interpreter()(self.code, np.ascontiguousarray(rows, dtype=np.int64), registers, out)


def kernel(signature: Any, function: Any) -> Any:
    """A function compiled for a signature, with the object code kept on disk where there is a place for it."""
    import numba

    options = {"nogil": True, "error_model": "numpy"}
    try:
        return numba.njit(signature, cache=True, **options)(function)
    except RuntimeError:  # there is none
        return numba.njit(signature, **options)(function)


@cache
def interpreter() -> Any:
    """The compiled loop over steps; compiling it takes seconds, once."""
    from numba import float32, float64, int32, int64, void

    return kernel(void(int32[:, ::1], int64[:, ::1], float64[::1], float32[:, :]), _run)


def _run(code, rows, registers, out):  # compiled; the numbers of operations are their places in OPERATIONS
    n = rows.shape[0]
    for start in range(0, n, BLOCK):
        size = min(BLOCK, n - start)
        for t in range(code.shape[0]):
            op, d, a = code[t, 0], np.uint32(code[t, 1]), np.uint32(code[t, 2])
            b, c = np.uint32(code[t, 3]), np.uint32(code[t, 4])
            if op == 0:
                for i in range(BLOCK):
                    registers[BLOCK * d + i] = rows[start + min(i, size - 1), a]
                continue
            if op == 1:
                for i in range(size):
                    out[d, start + i] = registers[BLOCK * a + i]
                continue
            d, a, b, c = BLOCK * d, BLOCK * a, BLOCK * b, BLOCK * c
            if op == 2:
                for i in range(BLOCK):
                    registers[d + i] = registers[a + i] + registers[b + i]
            elif op == 3:
                for i in range(BLOCK):
                    registers[d + i] = registers[a + i] - registers[b + i]
            elif op == 4:
                for i in range(BLOCK):
                    registers[d + i] = registers[a + i] * registers[b + i]
            elif op == 5:
                for i in range(BLOCK):
                    registers[d + i] = registers[a + i] / registers[b + i]
            elif op == 6:
                for i in range(BLOCK):
                    registers[d + i] = np.floor(registers[a + i] / registers[b + i])
            elif op == 7:
                for i in range(BLOCK):
                    registers[d + i] = registers[a + i] - np.floor(registers[a + i] / registers[b + i]) * registers[b + i]
            elif op == 8:
                for i in range(BLOCK):
                    registers[d + i] = registers[a + i] if registers[a + i] < registers[b + i] else registers[b + i]
            elif op == 9:
                for i in range(BLOCK):
                    registers[d + i] = registers[a + i] if registers[a + i] > registers[b + i] else registers[b + i]
            elif op == 10:
                for i in range(BLOCK):
                    registers[d + i] = 1.0 if registers[a + i] < registers[b + i] else 0.0
            elif op == 11:
                for i in range(BLOCK):
                    registers[d + i] = 1.0 if registers[a + i] <= registers[b + i] else 0.0
            elif op == 12:
                for i in range(BLOCK):
                    registers[d + i] = registers[a + i] * (1.0 - registers[b + i])
            elif op == 13:
                for i in range(BLOCK):
                    registers[d + i] = registers[a + i] if registers[a + i] > registers[b + i] else registers[b + i]
            elif op == 14:
                for i in range(BLOCK):
                    registers[d + i] = registers[b + i] if registers[a + i] != 0.0 else registers[c + i]
            else:
                for i in range(BLOCK):
                    registers[d + i] = np.ceil(registers[a + i])
