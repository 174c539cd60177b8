"""docs/networks.md: the order of the passes is that of the list."""

from __future__ import annotations

import re
from pathlib import Path

from graph.passes import PASSES

PAGE = Path(__file__).parents[2] / "docs" / "networks.md"


def test_the_page_explains_the_passes_in_their_order():
    section = PAGE.read_text().partition("## The order of the passes\n")[2].partition("\n## ")[0]
    numbered = re.findall(r"^(\d+)\. `(\w+)`", section, re.MULTILINE)
    assert numbered == [(str(n), one.__name__) for n, one in enumerate(PASSES, 1)]
