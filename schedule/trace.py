"""Traces: the steps of a schedule as data, which print as Python and are stored as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from tir.display import code
from tir.script.printer import show_text

from .primitive import REGISTRY
from .random_variables import Ref, map_leaves, references

FORMAT_VERSION = 1
REFERENCE_KEY = "$drawn"


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"a name is a text, got {value!r}")
    return value


def _freeze(value: Any) -> Any:
    return tuple(_freeze(v) for v in value) if isinstance(value, (list, tuple)) else value


def _thaw(value: Any) -> Any:
    return [_thaw(v) for v in value] if isinstance(value, tuple) else value


def _from_json(value: Any) -> Any:
    match value:
        case dict() if set(value) == {REFERENCE_KEY}:
            return Ref(value[REFERENCE_KEY])
        case list():
            return [_from_json(v) for v in value]
        case dict():
            return {k: _from_json(v) for k, v in value.items()}
        case _:
            return value


@dataclass(frozen=True, slots=True)
class Step:
    """One application of a primitive: its name, its arguments by parameter name (JSON data, lists frozen to tuples), its results.

    Randomly drawn values have `names`. A later step refers to such a value by a `Ref` in its arguments, so a changed decision
    reaches it.
    """

    name: str
    args: tuple[tuple[str, Any], ...]
    results: tuple[Any, ...] = ()
    names: tuple[str, ...] = ()

    @staticmethod
    def of(name: str, bound: dict[str, Any], result: Any) -> Step:
        results = () if result is None else _freeze(result if isinstance(result, list) else [result])
        return Step(name, tuple((k, _freeze(v)) for k, v in bound.items()), results)

    @property
    def bound(self) -> dict[str, Any]:
        """The arguments by parameter name, as the primitive takes them."""
        return {k: _thaw(v) for k, v in self.args}

    def with_args(self, **changes: Any) -> Step:
        return replace(self, args=tuple({**dict(self.args), **{k: _freeze(v) for k, v in changes.items()}}.items()))

    def __str__(self) -> str:
        """The call as Python on a schedule `s`, its results as a comment."""
        known = REGISTRY.get(self.name)
        call = known.text(self.bound) if known else f"{self.name}({', '.join(f'{k}={v!r}' for k, v in self.bound.items())})"
        made = f"  # {', '.join(map(str, self.results))}" if self.results else ""
        return f"s.{call}{made if made.isprintable() else ''}"


@dataclass(frozen=True, slots=True)
class Trace:
    """The steps of a schedule, in order."""

    steps: tuple[Step, ...] = ()

    def __len__(self) -> int:
        return len(self.steps)

    def __iter__(self) -> Iterator[Step]:
        return iter(self.steps)

    def __getitem__(self, index: int) -> Step:
        return self.steps[index]

    def __add__(self, other: Trace) -> Trace:
        return Trace(self.steps + other.steps)

    def __str__(self) -> str:
        """The trace as Python statements on a schedule `s`."""
        used = references([s.args for s in self.steps])
        lines = []
        for step in self.steps:
            known = REGISTRY.get(step.name)
            several = len(step.names) > 1 or (known is not None and known.draws_a_list)
            target = f"[{', '.join(step.names)}] = " if several else "".join(f"{n} = " for n in step.names)
            lines.append((target if used & set(step.names) else "") + f"{step}\n")
        return "".join(lines)

    def __repr__(self) -> str:
        return f"<Trace of {len(self.steps)} step(s)>"

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return code(str(self))

    def show(self) -> None:
        """Print the trace, coloured in a terminal."""
        show_text(str(self))

    def apply_to_schedule(self, sch: Any, remove_postproc: bool = False) -> None:
        """Take the steps on a schedule. ScheduleError names the first refused step; those before it stay taken."""
        if remove_postproc:
            raise ValueError("a trace does not say where postprocessing begins; cut it first: Trace(trace.steps[:n])")
        sch.follow(self)

    def as_json(self) -> dict[str, Any]:
        def as_data(value: Any) -> Any:
            return {REFERENCE_KEY: value.name} if isinstance(value, Ref) else value

        return {
            "version": FORMAT_VERSION,
            "steps": [
                {"name": s.name, "args": map_leaves(s.bound, as_data), "results": _thaw(s.results)}
                | ({"names": [*s.names]} if s.names else {})
                for s in self.steps
            ],
        }

    def to_json(self) -> str:
        return json.dumps(self.as_json())

    @staticmethod
    def from_json(data: str | dict[str, Any]) -> Trace:
        """The trace from the output of `to_json` or `as_json`; ValueError for anything else."""
        try:
            content = json.loads(data) if isinstance(data, str) else data
        except (json.JSONDecodeError, RecursionError) as error:
            raise ValueError(f"a trace is what Trace.to_json gave, {str(data)[:60]!r} is not JSON: {error}") from None
        if not isinstance(content, dict) or "steps" not in content:
            raise ValueError(f"a trace is a JSON object with `version` and `steps`, got {str(data)[:60]!r}")
        if content.get("version") != FORMAT_VERSION:
            raise ValueError(f"this trace has version {content.get('version')!r}; version {FORMAT_VERSION} is understood")
        try:
            steps = tuple(
                Step(
                    _text(s["name"]),
                    tuple((k, _freeze(_from_json(v))) for k, v in s["args"].items()),
                    _freeze(s.get("results", ())),
                    tuple(map(_text, s.get("names", ()))),
                )
                for s in content["steps"]
            )
        except (KeyError, TypeError, AttributeError, RecursionError) as error:
            raise ValueError(f"a step of a trace is an object with `name`, `args` and `results`: {error!r}") from error
        return Trace(steps)
