"""The explorer's page: its data, its measurements, and what a browser makes of it."""

from __future__ import annotations

import json
import re

import pytest

from examples.ladder.pages import main as ladder_pages
from explorer.page import explore, page
from explorer.times import Timed
from schedule import Schedule
from tests.browser import needs_browser, rendered
from tests.programs import matmul

from .test_stages import tiled


def content(text: str) -> dict:
    return json.loads(re.search(r'<script type="application/json" id="stages">(.*?)</script>', text, re.DOTALL)[1])


def test_a_page_needs_nothing_else_and_has_every_stage():
    text = page(tiled(), measure=False, title="a < b")
    found = content(text)
    assert "<h1>a &lt; b</h1>" in text and not re.search(r"""(src|href)=["'](?!#|data:)|@import|<link""", text)
    assert [s["title"] for s in found["stages"]][-1] == "s.vectorize('j_1')" and len(found["stages"]) == 6
    assert all(s["measured"] == "not measured" for s in found["stages"])
    last = found["stages"][-1]
    assert '<span class="plus">' in last["after"] and '<span class="minus">' in last["before"] and "vectorized" in last["after"]
    assert "16 lines of 4 elements" in last["which"] and found["runs"][last["run"]]["hits"] > 0


def test_stages_that_are_the_same_share_a_run():
    found = content(page({"one": matmul(3, 4, 5), "two": matmul(3, 4, 5)}, measure=False))
    assert [s["run"] for s in found["stages"]] == [0, 0] and len(found["runs"]) == 1
    assert found["stages"][0]["which"].startswith("The first iterations")


def test_measurements_are_shown(monkeypatch):
    times = [
        Timed(2e-3, "", 8_000_000, 1e10),
        Timed(None, "stopped after 2 s", 8_000_000, 1e10),
        Timed(1e-3, "", 8_000_000, 1e10),
    ]
    monkeypatch.setattr("explorer.page.measured", lambda stages, target, limit: times)
    shown = content(page({n: matmul(3, 4, 5) for n in "abc"}))["stages"]
    assert [s["measured"] for s in shown] == [
        "2 ms, 4.00 GFLOP/s, 40.0% of peak", "stopped after 2 s", "1 ms, 8.00 GFLOP/s, 80.0% of peak",
    ]  # fmt: skip
    assert [s["bar"] for s in shown] == [0.5, 0.0, 1.0]


def test_a_schedule_measures_each_step(tmp_path):
    s = Schedule(matmul(23, 17, 32))
    s.vectorize(s.get_loops("C")[1])
    s.explore(tmp_path / "page.html", "llvm -num-cores 1")
    shown = content((tmp_path / "page.html").read_text(encoding="utf-8"))["stages"]
    assert len(shown) == 2 and all(re.match(r"[\d.]+ \w+, [\d.]+ GFLOP/s, [\d.]+% of peak", x["measured"]) for x in shown)
    assert all(float(re.search(r"([\d.]+)% of peak", x["measured"])[1]) <= 100 for x in shown)
    assert max(x["bar"] for x in shown) == 1.0


def test_bad_input_is_refused(tmp_path):
    with pytest.raises(TypeError) as raised:
        explore(matmul(3, 4, 5), tmp_path / "x.html")
    assert str(raised.value) == "explore takes a Schedule, or a dict of programs by their titles; got PrimFunc"
    with pytest.raises(ValueError, match="explore takes at least one program"):
        explore({}, tmp_path / "x.html")
    assert not (tmp_path / "x.html").exists()


def test_the_ladder_is_pages(tmp_path):
    rungs = "reorder,vectorize,packed"
    assert ladder_pages([str(tmp_path), "--shape", "16,8,8,8", "--no-measure", "--rungs", rungs]) == 0
    names = {p.stem for p in tmp_path.glob("*.html")}
    assert names == {"index", "ladder", "reorder", "vectorize"}  # the tiles of `packed` do not fit
    assert 'href="vectorize.html"' in (tmp_path / "index.html").read_text(encoding="utf-8")


@needs_browser
def test_the_page_in_a_browser(tmp_path):
    explore(tiled(), tmp_path / "page.html", measure=False)
    shown = rendered(tmp_path / "page.html", tmp_path, "#5")
    assert (
        "<h2 id=\"title\">5. s.vectorize('j_1')</h2>" in shown
        and shown.count("aria-current") - shown.count("[aria-current]") >= 1
    )
    assert shown.count("<canvas") == 3 and 'data-loop="j_1" class="running"' in shown
    assert re.search(r'id="counts">so far \d+ hits, \d+ misses; in all \d+ hits, \d+ misses', shown)
    assert re.search(r'id="now">1 of \d+.*4 lanes, i_0=0', shown)
