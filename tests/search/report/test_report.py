"""The report: one page with every figure, whatever the run was like."""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ElementTree

import pytest

pytest.importorskip("matplotlib")

from search.measure import Candidate, Measurement
from search.measure.reference import NamedWorkload
from search.report import page, write
from search.report.figures import failures
from search.task import Task
from search.tuning.result import Result
from tir import te, workloads

SHAPE = (7, 13, 109)
SPLIT = {"version": 1, "steps": [{"name": "split", "args": {"loop": "i", "factors": [None, 3]}, "results": ["i_0", "i_1"]}]}


def result(*measurements: Measurement, **changes) -> Result:
    task = Task.of(workloads.make("gmm", SHAPE).func, "llvm -num-cores 1", workload=NamedWorkload("gmm", SHAPE))
    outcomes = {"ok": sum(m.outcome == "ok" for m in measurements)}
    values = {
        "task": task, "trace": SPLIT, "seconds": 1e-5, "outcomes": outcomes, "baseline": 1e-4, "baseline_stopped": None,
        "numpy": 2e-5, "max_error": 1e-7, "tolerance": 1e-6, "peak": 1e11, "elapsed": 10.0, "interrupted": False, "problem": "",
        "measurements": measurements, "phases": {"prepare": 1.0, "propose": 1.0, "build": 2.0, "run": 4.0, "race": 1.0},
    }  # fmt: skip
    return Result(**(values | changes))


def ok(seconds: float, sketch: str, score: float | None = None, error: float | None = 1e-7) -> Measurement:
    return Measurement(Candidate(sketch, (1,), SPLIT, score), "ok", (seconds,), max_error=error)


RUN = (
    ok(3e-5, "sketch 0", -1.0), ok(1e-5, "sketch 1", 0.5), ok(2e-5, "sketch 1", 0.2, error=None),
    Measurement(Candidate("sketch 0", (2,), SPLIT), "crash", message="SIGSEGV"),
    Measurement(Candidate("sketch 0", (3,), SPLIT), "illegal", message="`k` <carries> a dependence\nand more"),
)  # fmt: skip


def drawings(text: str) -> list[str]:
    return re.findall(r"<svg.*?</svg>", text, re.DOTALL)


def test_the_page_holds_every_figure_and_needs_nothing_else():
    rules = {"sketch 0": ("C: inline",), "sketch 1": ("C: <strips>",)}
    text = page(
        result(*RUN, earlier=7, scored_per_second=54321.0, scored={"symbolic": 4000, "concrete": 13}, rules=rules), bandwidth=5e10
    )
    figures = drawings(text)
    labels = [re.search(r'aria-label="([^"]+)"', f)[1] for f in figures]
    assert labels == [
        "speed of the candidates by trial", "predicted scores against measured speeds", "roofline with the candidates",
        "trials and wins by sketch", "seconds by phase",
    ]  # fmt: skip
    for figure in figures:
        ElementTree.fromstring(figure)  # whole
    names = re.findall(r' id="([^"]+)"', text)
    assert len(set(names)) == len(names) and set(re.findall(r'(?:href="|url\()#([\w-]+)', text)) <= set(names)
    assert not re.search(r"""(src|href)=["'](?!#|data:)|@import|<script|<link""", text)
    names = [set(re.findall(r'id="([^"]+)"', f)) & set(re.findall(r"url\(#([^)]+)\)", f)) for f in figures]
    assert sum(map(len, names)) == len(set().union(*names))  # no figure refers to parts of another
    assert (
        "after 7 of earlier runs" in text
        and "scored 54,321 candidates a second" in text
        and "4,000 by formulas" in text
        and "50% of the time" in text
    )
    assert "100 GFLOP/s, 50 GB/s" in text
    assert "for i_0, i_1, j, k in T.grid(3, 3, 109, 13)" in text and "for i, j, k in T.grid(7, 109, 13)" in text
    assert "Rank correlation: 1.00." in text
    row = r"<td>sketch 1</td><td class=text>C: &lt;strips&gt;</td><td>2</td><td>2</td><td>1</td><td>10 us</td>"
    assert re.search(row, text) and "<td>as written</td><td>100 us</td>" in text
    assert "for i_0 in 3, i_1 in 3, j in 109, k in 13 where i_0 * 3 + i_1 &lt; 7:" in text  # the bare nest
    assert "s.split(&#x27;i&#x27;, [None, 3])  # i_0, i_1" in text
    assert "`k` &lt;carries&gt; a dependence</td>" in text and "and more" not in text


@pytest.mark.parametrize(
    "changes",
    [
        {"measurements": (), "outcomes": {}},
        {"peak": None, "numpy": None, "baseline": None},
        {"trace": None, "interrupted": True, "phases": {}},
        {"measurements": (RUN[3],)},
        {"baseline": None, "baseline_stopped": 2.5},
        {"measurements": tuple(ok(n * 1e-5, "sketch 0", 0.5) for n in (1, 2, 3))},
        {"measurements": tuple(ok(n * 1e-5, "sketch 0", -math.inf if n < 3 else 0.5) for n in (1, 2, 3))},
    ],
    ids=["no trials", "nothing to compare with", "as written", "only failures", "stopped", "scores alike", "not to be tried"],
)
def test_the_page_is_whole_where_something_is_missing(changes):
    text = page(result(*RUN, **changes) if "measurements" not in changes else result(**changes))
    for figure in drawings(text):
        ElementTree.fromstring(figure)
    assert len(drawings(text)) >= 4 and text.endswith("</html>\n")
    assert ("<td>as written</td><td>&gt; 2.5 s</td><td>stopped</td>" in text) == ("baseline_stopped" in changes)


def test_what_computes_nothing_has_no_roofline():
    a = te.placeholder((7, 13), name="A")
    func = te.create_prim_func([a, te.compute((13, 7), lambda i, j: a[j, i], name="B")])
    text = page(result(*RUN, task=Task.of(func, "llvm -num-cores 1")), bandwidth=5e10)
    assert "roofline" not in text.lower() and "calls a second" in text and text.endswith("</html>\n")


def test_what_failed():
    assert failures(RUN) == [("crash", 1, "SIGSEGV"), ("illegal", 1, "`k` <carries> a dependence")]


def test_the_page_is_written_to_a_file(tmp_path, monkeypatch):
    monkeypatch.setattr("codegen.peak.copy_bandwidth", lambda target, threads: 5e10)
    write(tmp_path / "report.html", result(*RUN))
    assert (tmp_path / "report.html").read_text(encoding="utf-8") == page(result(*RUN), 5e10)
    with pytest.raises(OSError):
        write(tmp_path / "no" / "report.html", result(*RUN))
