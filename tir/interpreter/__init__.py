"""The reference semantics of the IR: a function is translated to plain Python and run.

`run(func, *arrays)` executes it; `source(func)` returns the Python; `compile(func)` returns a callable for repeated use. With
`fast=True` the same program is compiled by numba. All backends are tested against it, so it is accurate rather than quick:

- Integer arithmetic on loaded values wraps at its dtype; index arithmetic (variables and constants only) is exact.
- Each floating operation rounds to its dtype, ties to even; float16 and bfloat16 are computed in float32 first. Intrinsics are
  computed in float64 and rounded once. Division by zero and overflow give infinities and NaN.
- A lazy Select evaluates only the chosen side; all else is evaluated, also the second operand of an `and` or `or` where it loads.

Traps, which make an incorrect program fail instead of giving the right result by chance:

- Parallel, vectorised and thread loops run in a shuffled order, never the ascending one. Only threads that reduce together (see
  `bind`) run in order.
- Allocated buffers start as NaN, or as an integer that programs are unlikely to compute.
- An index outside its buffer, or a binding outside its domain, raises `OutOfBounds` with the values of all variables around it.
- A reduction block that updates an element before it has initialised it raises (plain Python only; numba leaves it to the NaN).

`generate` turns a function into Python, `program` runs it and explains the traps that fire. `python_functions` and
`numba_functions` hold the functions that this Python calls, without and with numba.
"""

from .errors import DivisionByZero, InterpreterError, InvalidShift, OutOfBounds, Uninitialised
from .program import compile, run, source

__all__ = ["DivisionByZero", "InterpreterError", "InvalidShift", "OutOfBounds", "Uninitialised", "compile", "run", "source"]
