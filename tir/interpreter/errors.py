"""Errors of the interpreter, and the trap that generated code raises."""

from __future__ import annotations


class InterpreterError(Exception):
    """Error of a program without a meaning: a trap fired while it ran, or it could not be turned into Python."""


class OutOfBounds(InterpreterError, IndexError):
    """An index outside its buffer, or a block iteration variable bound outside its domain."""


class DivisionByZero(InterpreterError, ZeroDivisionError):
    """An integer `//` or `%` by zero."""


class InvalidShift(InterpreterError):
    """A shift by a negative number of bits, or by at least the width of its dtype."""


class Uninitialised(InterpreterError):
    """A reduction block updated an element before its init ran for that element."""


class Trap(Exception):
    """Raised by generated code: the number of the site in the program, and the offending value."""

    def __init__(self, site: int, value: int):
        super().__init__(site, value)
        self.site, self.value = site, value
