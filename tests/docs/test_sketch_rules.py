"""docs/sketch-rules.md: the primitives that leave their numbers open in a space."""

from __future__ import annotations

import re
from pathlib import Path

from schedule.open_schedule import OpenSchedule
from schedule.schedule import Schedule

PAGE = Path(__file__).parents[2] / "docs" / "sketch-rules.md"


def sampling(kind: type) -> set[str]:
    return {name for name in vars(kind) if name.startswith("sample_")}


def test_the_page_names_the_samples_that_are_left_open():
    text = " ".join(PAGE.read_text().split())
    (left_open, decided) = re.findall(r"((?:`sample_\w+`(?:, | and )?)+) (?:draw no number|needs its `decision`)", text)
    assert set(re.findall(r"sample_\w+", left_open)) == sampling(OpenSchedule)
    assert set(re.findall(r"sample_\w+", decided)) == sampling(Schedule) - sampling(OpenSchedule)
