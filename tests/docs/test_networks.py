"""The list of passes: the reason for the place of each stands beside it."""

from __future__ import annotations

import inspect
import re

import graph.passes
from graph.passes import PASSES


def test_the_list_explains_the_order_of_the_passes():
    listed = inspect.getsource(graph.passes).partition("PASSES: tuple[Pass, ...] = (\n")[2].partition("\n)\n")[0]
    assert re.findall(r"^    (\w+),  # \w.{20}", listed, re.MULTILINE) == [one.__name__ for one in PASSES]
