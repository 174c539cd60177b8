"""docs/glossary.md: the modules that it names exist, and its meanings begin with a noun."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "glossary.md").read_text()


def test_the_modules_of_the_glossary_exist():
    paths = re.findall(r"`([\w/]+(?:/|\.py))`", TEXT)
    assert len(paths) > 50 and [p for p in paths if not (ROOT / p).exists()] == []


def test_no_meaning_begins_with_a_clause():
    """Not "What is generated for", but "A processor or GPU that code is generated for"."""
    meanings = [row.split(" | ")[1] for row in TEXT.splitlines() if row.startswith("| ") and not row.startswith("| term |")]
    assert len(meanings) > 50
    assert [m for m in meanings if re.match(r"(What|Where|When|Which|Who|Whether|How|Why|Those|That)\b", m)] == []
