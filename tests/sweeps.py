"""Families of swept cases: a part of each always runs, the rest with `--all` only, as in CI.

A mark above a parametrised test says which cases always run. They meet every class, rule, dtype and branch of the family, and every
seed that once found a fault; several marks add up. The summary of a run counts what was left out. A case that is named by its id runs.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import pytest


def quick(chosen: Callable[..., bool]) -> pytest.MarkDecorator:
    """Mark of a test whose cases always run where `chosen` holds of the parameters that it names."""
    names = tuple(inspect.signature(chosen).parameters)
    return pytest.mark.quick.with_args(
        lambda family: [chosen(*(case.callspec.params[name] for name in names)) for case in family]
    )


def one_in(count: int) -> pytest.MarkDecorator:
    """Mark of a test of which one case in `count` always runs: the diagonals of a product, so that all values are met."""
    return pytest.mark.quick.with_args(lambda family: [sum(places) % count == 0 for places in zip(*_places(family), strict=True)])


def _places(family: list[Any]) -> Iterator[list[int]]:
    """For each parametrisation of a family the place of each case in its list of values, from 0."""
    for mark in family[0].iter_markers("parametrize"):
        names = mark.args[0] if not isinstance(mark.args[0], str) else [name.strip() for name in mark.args[0].split(",")]
        values = [tuple(id(case.callspec.params[name]) for name in names) for case in family]
        order = {value: place for place, value in enumerate(dict.fromkeys(values))}
        yield [order[value] for value in values]


def register(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "quick(chosen): cases that run without --all, too")
    config.pluginmanager.register(Selection(config), "sweeps")


class Selection:
    """Leaves cases of a run out, and counts them; of several workers those of one."""

    def __init__(self, config: pytest.Config):
        self._all = config.getoption("--all")
        self._named = tuple(argument for argument in config.args if argument.endswith("]"))
        self._left: list[Any] = []
        self.counts: dict[str, list[int]] = {}  # of each family how many cases always run, and how many with --all only

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        families: dict[str, list[pytest.Item]] = {}
        for item in items:
            if item.get_closest_marker("quick"):
                families.setdefault(item.nodeid.partition("[")[0], []).append(item)
        extra = {item for name, family in families.items() for item in self._extra(name, family)}
        if not self._all:
            self._left = [item for item in items if item in extra and not item.nodeid.endswith(self._named)]
            left = set(self._left)
            items[:] = [item for item in items if item not in left]
            config.hook.pytest_deselected(items=self._left)

    def _extra(self, name: str, family: list[pytest.Item]) -> list[pytest.Item]:
        """The cases of a family that run with `--all` only."""
        if not hasattr(family[0], "callspec"):
            raise pytest.UsageError(f"{name} has a mark of tests.sweeps, and no cases to choose from")
        chosen = [any(marks) for marks in zip(*(mark.args[0](family) for mark in family[0].iter_markers("quick")), strict=True)]
        self.counts[name] = [sum(chosen), len(chosen) - sum(chosen)]
        return [case for case, always in zip(family, chosen, strict=True) if not always]

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if hasattr(session.config, "workeroutput"):
            session.config.workeroutput["left_out"] = len(self._left)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        left = getattr(node, "workeroutput", {}).get("left_out", 0)
        if left and not self._left:
            self._left = [node] * left
            node.config.hook.pytest_deselected(items=self._left)
