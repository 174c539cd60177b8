"""The interface of sketch rules, rules from functions, and rules from a file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol, runtime_checkable

from schedule.open_schedule import OpenSchedule
from schedule.templates import Template, Verdict


@runtime_checkable
class Rule(Protocol):
    """A way to schedule a block. `apply` returns new states, each made with `state.fired(self.name, block)` and then changed by
    primitives, or an empty list if that is illegal. In each state the block is done, unless the rule adds it to `pending`
    again."""

    @property
    def name(self) -> str: ...

    def applies(self, state: OpenSchedule, block: str) -> Verdict: ...

    def apply(self, state: OpenSchedule, block: str) -> list[OpenSchedule]: ...


@dataclass(frozen=True, slots=True)
class FunctionRule(Template):
    """A rule of two functions: it applies if `when(state, block)` is true, and `function(state, block)` changes a state in place.

    With `only`, no later rule is tried if it applies. If `function` raises ScheduleError, the rule makes no state, and the
    warning RefusedRule has the reason.
    """

    name: str
    when: Callable[[OpenSchedule, str], bool]
    function: Callable[[OpenSchedule, str], object]
    only: bool = False

    def change(self, new: OpenSchedule, block: str) -> object:
        return self.function(new, block)

    def applies(self, state: OpenSchedule, block: str) -> Verdict:
        if not self.when(state, block):
            return Verdict.SKIP
        return Verdict.ONLY if self.only else Verdict.APPLY


def rule(name: str, when: Callable[[OpenSchedule, str], bool], only: bool = False) -> Callable[[Callable], FunctionRule]:
    """Decorator: a rule from a function that changes a state in place, for blocks with a true `when(state, block)`."""
    return lambda function: FunctionRule(name, when, function, only)


def load_rules(spec: str) -> tuple[Rule, ...]:
    """The rules under `module:name`: a rule, or a tuple or list of several. The module may be the path of a file, as
    `my_rules.py`, with the default name RULES. ValueError for any other object."""
    found = load(spec, "rules", "my_rules:RULES")
    rules = tuple(found) if isinstance(found, (tuple, list)) else (found,)
    for r in rules:
        missing = [part for part in ("name", "applies", "apply") if not hasattr(r, part)]
        if missing or isinstance(r, type):
            what = "is a class, not an object" if isinstance(r, type) else f"has no {' and no '.join(missing)}"
            raise ValueError(f"{spec!r} is no rule: {r!r} {what}")
    return rules


def load(spec: str, what: str, example: str) -> Any:
    """The object called `module:name`; the module may be the path of a file, with the name in `example` as default."""
    module, _, name = spec.partition(":")
    path = Path(module)
    if path.suffix == ".py":
        name = name or example.partition(":")[2]
    if not module or not name:
        raise ValueError(f"{what} should be module:name, for example {example}, got {spec!r}")
    try:
        return getattr(_from_file(path) if path.suffix == ".py" else import_module(module), name)
    except (ImportError, AttributeError, OSError, SyntaxError) as error:
        raise ValueError(f"{what} {spec!r} cannot be loaded: {error}") from error


def _from_file(path: Path) -> ModuleType:
    """The module of a file, under the name of the file."""
    spec = spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None  # as the name ends in .py
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
