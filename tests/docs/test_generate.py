"""docs/primitives.md and the pages of its families are what the docstrings say; that its examples run is seen in test_readme."""

from __future__ import annotations

import numpy as np
import pytest

from docs.generate import DOCS, entry, families, pages, parts
from schedule import REGISTRY, Schedule
from tests.arrays import integers
from tests.schedule.harness import round_trip, same_numbers, well_formed
from tir.ir import PrimFunc


def test_the_pages_are_up_to_date():
    written = {p.relative_to(DOCS).as_posix(): p.read_text() for p in (DOCS / "primitives.md", *(DOCS / "primitives").glob("*"))}
    assert written == pages(), "python -m docs.generate writes them anew"


def test_every_primitive_is_in_one_family():
    named = [name for names in families().values() for name in names]
    assert sorted(named) == sorted(REGISTRY)


def rows_of_8(func: PrimFunc, seed: int, sizes: dict[str, int] | None) -> list:
    """Arguments that a softmax of rows does not round: rows of 8 zeros among -inf, in any order."""
    scores, *others = integers(func, seed, sizes)
    order = np.argsort(np.random.default_rng(seed).random(scores.shape), axis=1)
    return [np.where(order < 8, 0, -np.inf).astype(scores.dtype), *others]


@pytest.mark.parametrize("name", sorted(REGISTRY))
def test_examples_keep_the_meaning(name):
    from docs.generate import example

    _, step, before, after = example(name)
    well_formed(after)
    round_trip(after)
    same_numbers(before, after, {"n": 12}, seeds=(0,), drawn=rows_of_8 if name == "rolling_update" else integers)
    s, pasted = Schedule(before, seed=0), Schedule(before)
    exec(step, {"s": s})
    exec(str(s.trace), {"s": pasted})
    assert pasted.func == after and pasted.trace == s.trace, f"the printed trace does something else:\n{s.trace}"


def test_a_docstring_without_its_parts(monkeypatch):
    monkeypatch.setattr(REGISTRY["split"], "__doc__", "Divide a loop.\n\nLegal     always.\n")
    with pytest.raises(ValueError, match="the docstring of `split` has no part Example, Rewrite"):
        entry("split")
    monkeypatch.setattr(
        REGISTRY["split"],
        "__doc__",
        "Divide.\n\nRewrite   a\n       => b\nLegal     always.\nExample   here: s.split('i', [4])\n",
    )
    assert parts("split")["Rewrite"] == "   a\n=> b"
    with pytest.raises(ValueError, match="the example of `split` is on `here`; programs are vector, "):
        entry("split")
