"""What docs/glossary.md says of the code is there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_modules_of_the_glossary_exist():
    text = (ROOT / "docs" / "glossary.md").read_text()
    paths = re.findall(r"`([\w/]+(?:/|\.py))`", text)
    assert len(paths) > 50 and [p for p in paths if not (ROOT / p).exists()] == []
