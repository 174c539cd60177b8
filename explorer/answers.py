"""Schedules as text, of puzzles and of the page that is edited: steps read from a trace's JSON, or from calls in Python, of which
nothing is executed."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from schedule import REGISTRY, Schedule, ScheduleError, Step, Trace
from tir.ir import PrimFunc
from tir.nearest import did_you_mean, no_such
from tir.traverse import loops

MAX_CHARACTERS = 100_000  # of an answer: the longest solution has a hundredth of them
MAX_STEPS = 200
MAX_ELEMENTS = 1000  # of a list, with those of the lists in it: the longest of a solution has a dozen
UNPROVED = ("assume", "unsafe_set_dtype")  # steps that take the user's word for what the compiler cannot prove
QUERIES = ("get_block", "get_child_blocks", "get_consumers", "get_loops", "get_output_blocks", "get_producers")
FORM = 'an answer is a list of calls such as i_0, i_1 = s.split("i", [None, 4])'


class AnswerError(ValueError):
    """A text that is no answer: its line, what is not understood there, and what is. `line` counts from 1."""

    def __init__(self, message: str, line: int | None = None):
        super().__init__(message if line is None else f"line {line}: {message}")
        self.line = line


@dataclass(frozen=True)
class Attempt:
    """An answer, tried: the schedule so far, and the refused step with its error and line (from 1), if any."""

    schedule: Schedule
    refused: Step | None = None
    error: ScheduleError | None = None
    line: int | None = None

    @property
    def trace(self) -> Trace:
        """All steps of the answer, the refused one last."""
        return self.schedule.trace + Trace(() if self.refused is None else (self.refused,))


def attempt(func: PrimFunc, text: str, allowed: Sequence[str] = ()) -> Attempt:
    """An answer, tried on a function up to the first refused step; `allowed` primitives, or all that are proved.

    Raises AnswerError for a text that is neither a trace's JSON nor a list of calls.
    """
    if len(text) > MAX_CHARACTERS:
        raise AnswerError(f"an answer has at most {MAX_CHARACTERS} characters, this one has {len(text)}")
    schedule = Schedule(func, seed=0)
    known = allowed or [name for name in REGISTRY if name not in UNPROVED]
    if text.lstrip().startswith("{"):
        return _trace(schedule, text, known)
    return _Reader(schedule, known).read(text)


def _permit(name: str, known: Sequence[str], taken: int) -> None:
    if name in REGISTRY and name not in known:
        why = "rests on the user's word" if name in UNPROVED else f"is not among the steps of this puzzle: {', '.join(known)}"
        raise AnswerError(f"`{name}` {why}")
    if name not in known:
        near = did_you_mean(name, known)
        raise AnswerError(f"no primitive is named {name!r}{f'; {near}' if near else ''}")
    if taken >= MAX_STEPS:
        raise AnswerError(f"an answer has at most {MAX_STEPS} steps")


def _trace(schedule: Schedule, text: str, known: Sequence[str]) -> Attempt:
    try:
        steps = Trace.from_json(text).steps
    except ValueError as error:
        raise AnswerError(str(error)) from None
    for n, step in enumerate(steps):
        _permit(step.name, known, n)
    try:
        schedule.follow(steps)
    except ScheduleError as error:
        return Attempt(schedule, steps[len(schedule.trace)], error)
    return Attempt(schedule)


class _Reader:
    """The reader of calls on `s`: it evaluates constants, lists, names of results, and takes the steps."""

    def __init__(self, schedule: Schedule, known: Sequence[str]):
        self.schedule, self._known = schedule, known
        self._values: dict[str, Any] = {}

    def read(self, text: str) -> Attempt:
        """The answer in a text, tried up to the first refused step."""
        try:
            statements = ast.parse(text).body
        except (RecursionError, MemoryError):
            raise AnswerError("too deeply nested") from None
        except (SyntaxError, ValueError) as error:
            line = getattr(error, "lineno", None)
            raise AnswerError(f"not Python: {getattr(error, 'msg', error)}", line) from None
        for statement in statements:
            try:
                match statement:
                    case ast.Assign(targets=[target], value=value):
                        self._bind(target, self._value(value))
                    case ast.Expr(value=ast.Constant(value=str())):  # a text about the answer
                        pass
                    case ast.Expr(value=ast.Call() as call):
                        self._value(call)
                    case _:
                        raise AnswerError(f"`{_shown(statement)}` is not understood; {FORM}")
            except AnswerError as error:
                raise AnswerError(str(error), statement.lineno) from None
            except _Refused as refused:
                return Attempt(self.schedule, refused.step, refused.error, statement.lineno)
            except RecursionError:
                raise AnswerError("too deeply nested", statement.lineno) from None
        return Attempt(self.schedule)

    def _bind(self, target: ast.expr, value: Any) -> None:
        match target:
            case ast.Name(id=name) if name != "s":
                self._values[name] = value
            case ast.Tuple(elts=parts) | ast.List(elts=parts) if isinstance(value, (list, tuple)) and len(parts) == len(value):
                for part, own in zip(parts, value, strict=True):
                    self._bind(part, own)
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                found = value if isinstance(value, (list, tuple)) else [value]
                results = ", ".join(map(str, found))
                raise AnswerError(f"`{_shown(target)}` has {len(parts)} names, and there are {len(found)} results: {results}")
            case _:
                raise AnswerError(f"`{_shown(target)}` is not a name for a result")

    def _value(self, e: ast.expr) -> Any:
        match e:
            case ast.Constant(value=None | bool() | int() | float() | str() as value):
                return value
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
                return -value
            case ast.List() | ast.Tuple():
                return self._several(e.elts)
            case ast.Name(id=name) if name in self._values:
                return self._values[name]
            case ast.Name(id=name):
                raise AnswerError(self._unknown(name))
            case ast.Lambda():
                return ast.unparse(e)  # an index map, which the primitive parses
            case ast.Subscript(value=of, slice=place):
                return self._element(self._value(of), place, e)
            case ast.Call(func=ast.Attribute(value=ast.Name(id="s"), attr=name)):
                return self._call(name, e)
        raise AnswerError(f"`{_shown(e)}` is not understood; {FORM}")

    def _unknown(self, name: str) -> str:
        if any(found.name == name for found in loops(self.schedule.func.body)):
            return f"no result is named {name!r}; write the loop's name in quotes: {name!r}"
        return no_such("result", name, self._values) if self._values else f"no result is named {name!r}"

    def _several(self, parts: Sequence[ast.expr]) -> list[Any]:
        found: list[Any] = []
        for part in parts:
            found += self._list(part.value) if isinstance(part, ast.Starred) else [self._value(part)]
            if _size(found) > MAX_ELEMENTS:  # it would double with each line `x = [*x, *x]`, or `x = [x, x]`
                raise AnswerError(f"a list has at most {MAX_ELEMENTS} elements, with those of the lists in it")
        return found

    def _list(self, e: ast.expr) -> list[Any]:
        value = self._value(e)
        if not isinstance(value, (list, tuple)):
            raise AnswerError(f"`*{_shown(e)}` is not a list")
        return list(value)

    def _element(self, of: Any, place: ast.expr, e: ast.expr) -> Any:
        def bound(b: ast.expr | None) -> Any:
            return None if b is None else self._value(b)

        try:
            if isinstance(place, ast.Slice):
                return of[bound(place.lower) : bound(place.upper) : bound(place.step)]
            return of[self._value(place)]
        except (TypeError, IndexError, ValueError) as error:
            raise AnswerError(f"`{_shown(e)}`: {error}") from None

    def _call(self, name: str, call: ast.Call) -> Any:
        if name not in QUERIES:
            _permit(name, self._known, len(self.schedule.trace))
        args = self._several(call.args)
        kwargs = {k.arg: self._value(k.value) for k in call.keywords if k.arg is not None}
        if len(kwargs) < len(call.keywords):
            raise AnswerError("write each argument as name=value, not by **")
        try:
            return getattr(self.schedule, name)(*args, **kwargs)
        except ScheduleError as error:
            if name in QUERIES:
                raise AnswerError(str(error)) from None
            raise _Refused(Step.of(name, dict(REGISTRY[name].bound(tuple(args), kwargs).arguments), None), error) from None
        except (TypeError, ValueError) as error:
            raise AnswerError(f"{name}: {error}") from None


class _Refused(Exception):
    def __init__(self, step: Step, error: ScheduleError):
        super().__init__()
        self.step, self.error = step, error


def _size(value: Any) -> int:
    return 1 + sum(map(_size, value)) if isinstance(value, (list, tuple)) else 1


def _shown(node: ast.AST) -> str:
    text = ast.unparse(node)
    return text if len(text) <= 60 else f"{text[:57]}..."
