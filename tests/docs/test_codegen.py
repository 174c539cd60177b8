"""docs/codegen.md: every pass has a section, and its example is what the pass does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import codegen.passes
import tir

PAGE = Path(__file__).parents[2] / "docs" / "codegen.md"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^(?=##+ )", re.MULTILINE)


def statements(script: str) -> str:
    """A script without the function's header."""
    lines = script[script.index("\ndef ") + 1 :].splitlines()[1:]
    return "".join(f"{line[4:]}\n" for line in lines if "func_attr" not in line and 'T.block("root")' not in line)


def sections() -> dict[str, tuple[str, str, str]]:
    """The code, the loops before and the loops after, of each section about a pass."""
    parts = HEADING.split(PAGE.read_text())[1:]
    found = {}
    for part in parts:
        if name := re.match(r"### `(\w+)`", part):
            (_, code), (_, before), (_, after) = BLOCK.findall(part)
            found[name[1]] = (code, before, after)
    return found


@pytest.fixture(scope="module")
def names() -> dict:
    """What the page defines before its first section."""
    namespace: dict = {}
    exec(BLOCK.findall(PAGE.read_text())[0][1], namespace)
    return namespace


def test_every_pass_has_a_section():
    assert list(sections()) == list(dict.fromkeys(p.__name__ for p in codegen.passes.CPU_PASSES))


@pytest.mark.parametrize("name", sections())
def test_examples(name, names):
    code, before, after = sections()[name]
    exec(code, names)
    stages = ["", *codegen.pass_names()]
    earlier = stages[stages.index(name) - 1]
    func, target = names["func"], names.pop("older", names["target"])  # an older processor, of one section alone
    assert statements(tir.dump(func, target, after=earlier) if earlier else func.script()) == before
    assert statements(tir.dump(func, target, after=name)) == after
