"""The report: one page with every figure, whatever the run was like."""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ElementTree
from dataclasses import replace

import numpy as np
import pytest

from codegen.target import Target
from search.measure import Candidate, Measurement, Origin, Parent
from search.measure.reference import NamedWorkload
from search.policy.lineage import Generation
from search.population.sample import sample
from search.report import page, write
from search.report.derivations import by_block, edges, graph
from search.report.figures import model_accuracy
from search.report.lineage import changes, columns, line
from search.report.population import islands, plane
from search.space.sketch import Sketch
from search.task import Task
from search.tuning.result import Result, failures
from tests.browser import needs_browser, rendered
from tests.search.once import generate
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
        "speed of the candidates by trial", "scores of the model against measured speeds", "roofline with the candidates",
        "seconds by phase",
    ]  # fmt: skip
    assert len(figures) == 4
    for figure in figures:
        ElementTree.fromstring(figure)  # whole
    names = re.findall(r' id="([^"]+)"', text)
    assert len(set(names)) == len(names) and set(re.findall(r'(?:href="|url\()#([\w-]+)', text)) <= set(names)
    assert not re.search(r"""(src|href)=["'](?!#|data:)|@import|<script src|<link""", text)
    names = [set(re.findall(r'id="([^"]+)"', f)) & set(re.findall(r"url\(#([^)]+)\)", f)) for f in figures]
    assert sum(map(len, names)) == len(set().union(*names))  # no figure refers to parts of another
    assert (
        "after 7 of earlier runs" in text
        and "scored 54,321 candidates a second" in text
        and "4,000 by formulas" in text
        and "50% of the time" in text
    )
    assert "The peak is 100 GFLOP/s, as measured" in text and "Memory moves 50 GB/s" in text
    assert "for i_0, i_1, j, k in T.grid(3, 3, 109, 13)" in text and "for i, j, k in T.grid(7, 109, 13)" in text
    assert "3 candidates; rank correlation 1.00" in text
    row = r"<td style=text-align:left>sketch 1</td><td style=text-align:left>C: &lt;strips&gt;</td><td>2</td><td>2</td><td>1</td><td>10 us</td>"
    assert re.search(row, text) and "<td style=text-align:left>as written</td><td>100 us</td>" in text
    assert '<span class="plus">    for i_0 in 3, i_1 in 3, j in 109, k in 13 where i_0 * 3 + i_1 &lt; 7:</span>' in text
    assert "s.split(&#x27;i&#x27;, [None, 3])  # i_0, i_1" in text
    assert "`k` &lt;carries&gt; a dependence</td>" in text and "and more" not in text


@pytest.mark.parametrize("changes", [
    {"measurements": (), "outcomes": {}},
    {"peak": None, "numpy": None, "baseline": None},
    {"trace": None, "interrupted": True, "phases": {}},
    {"measurements": (RUN[3],)},
    {"baseline": None, "baseline_stopped": 2.5},
    {"measurements": tuple(ok(n * 1e-5, "sketch 0", 0.5) for n in (1, 2, 3))},
    {"measurements": tuple(ok(n * 1e-5, "sketch 0", -math.inf if n < 3 else 0.5) for n in (1, 2, 3))},
], ids=["no trials", "nothing to compare with", "as written", "only failures", "stopped", "scores alike", "not to be tried"])  # fmt: skip
def test_the_page_is_whole_where_something_is_missing(changes):
    text = page(result(*RUN, **changes) if "measurements" not in changes else result(**changes))
    for figure in drawings(text):
        ElementTree.fromstring(figure)
    assert len(drawings(text)) >= 3 and text.endswith("</html>\n")
    assert ("<td style=text-align:left>as written</td><td>&gt; 2.5 s</td><td>stopped</td>" in text) == (
        "baseline_stopped" in changes
    )


def test_what_computes_nothing_has_no_roofline():
    a = te.placeholder((7, 13), name="A")
    func = te.create_prim_func([a, te.compute((13, 7), lambda i, j: a[j, i], name="B")])
    text = page(result(*RUN, task=Task.of(func, "llvm -num-cores 1")), bandwidth=5e10)
    assert "roofline" not in text.lower() and "calls a second" in text and text.endswith("</html>\n")


def bred(sketch: Sketch, row, origin: Origin, seconds: float, **scores: float) -> Measurement:
    candidate = Candidate(sketch.name, row, sketch.trace(row).as_json(), None, scores, origin)
    return Measurement(candidate, "ok", (seconds,), max_error=1e-7)


@pytest.fixture(scope="module")
def evolved() -> Result:
    """A run in which a row was sampled, bred on without being measured, and made into the winner by crossover."""
    func = workloads.make("gmm", SHAPE).func
    sketch, *_ = generate(func, target := Target("llvm -num-cores 1"))
    rows = [*map(tuple, np.unique(sample(sketch, target, 9, np.random.default_rng(0)), axis=0)[:3].tolist())]
    sampled = bred(sketch, rows[0], Origin("sample", 1), 4e-5, formula=-9.0)
    between = Origin("scale", 2, 0, (Parent(rows[0]),))
    best = bred(
        sketch, rows[2], Origin("crossover", 2, 1, (Parent(rows[1], between), Parent(rows[0]))), 1e-5, formula=-8.0, trees=3.0
    )
    generations = (Generation(sketch.name, 1, 0, np.array(rows[:1])), Generation(sketch.name, 2, 0, np.array(rows)))
    return result(
        sampled, bred(sketch, rows[1], Origin("move", 1), 3e-5, formula=-9.5, trees=1.0), best, trace=best.candidate.trace,
        sketches=(sketch,), generations=generations, rules={sketch.name: sketch.rules},
        explanation={"l1_bytes": -0.5, "waste": 0.1, "lanes": 0.0},
    )  # fmt: skip


def test_the_line_of_the_winner(evolved):
    (sketch,), rows = evolved.sketches, [a.row for a in line(evolved)]
    assert [(a.origin.operator, a.trial) for a in line(evolved)] == [("sample", 1), ("scale", 2), ("crossover", 3)]
    moved = changes(sketch, rows[0], rows[1])
    assert moved and all((a, b) == (rows[0][c], rows[1][c]) for name, a, b in moved for c in [columns(sketch).index(name)])
    text = page(evolved)
    name, old, new = moved[0]
    assert f"<li><b>scale, batch 2, generation 0</b> – {name} <b>{old} → {new}</b>" in text
    assert "crossover of 2 rows, batch 2, generation 1" in text and "trial 3: 10 us" in text
    assert text.count("what changed in the nest") >= 1
    assert line(result(*RUN, trace=None)) == []  # as written: no trial won


def test_each_model_has_a_scale_and_a_correlation_of_its_own(evolved):
    run = [m for n in range(2) for m in evolved.measurements]
    found = model_accuracy(replace(evolved, measurements=tuple(run)))
    assert [(name, count, round(correlation, 2)) for name, count, correlation, _ in found] == [
        ("formula", 6, 0.5), ("trees", 4, 1.0),
    ]  # fmt: skip


def test_nothing_is_faster_than_the_peak(evolved):
    fast = replace(evolved, peak=1e9, numpy=None)
    assert fast.ceiling == evolved.task.flop / 1e-5 > 1e9
    text = page(fast)
    assert "<td>100.0%</td>" in text and "the speed of the fastest kernel: the measurement, on a busy machine, gave 1." in text
    assert max(float(share) for share in re.findall(r"<td>([\d.]+)%</td>", text)) <= 100
    assert replace(evolved, peak=None).ceiling is None


def test_the_map_has_each_generation_and_what_was_measured(evolved):
    (island,) = islands(evolved)
    assert [(f["batch"], f["generation"], len(f["points"])) for f in island["frames"]] == [(1, 0, 1), (2, 0, 3)]
    assert [(m["trial"], m["parents"], m["best"]) for m in island["measured"]] == [
        (1, (), False),
        (2, (), False),
        (3, (2, 1), True),
    ]
    places = {tuple(p) for f in island["frames"] for p in f["points"]}
    assert {(m["x"], m["y"]) for m in island["measured"]} == places  # one plane for both
    assert all(0 <= v <= 1 for p in places for v in p)
    assert plane(np.ones((3, 1))).tolist() == [[0.5, 0.5]] * 3  # rows that do not differ


def test_operators_and_opinions(evolved):
    text = page(evolved)
    assert "<td style=text-align:left>crossover</td><td>1</td><td>1</td><td>3.00 ×</td><td>1</td>" in text
    assert re.findall(r">([+-]\d+%)<", text) == ["-39%", "+11%"]


def test_rules_are_drawn_on_the_graph():
    func = workloads.make("mlp", (7, 13, 5, 11)).func
    assert edges(func) == [("C", "D", "C"), ("D", "F", "D")]
    assert by_block(("C: tile: 2", "D: skip", "C_global: copy", "no block"), ["C", "D", "F"]) == {
        "C": ["tile: 2"], "D": ["skip"], "": ["C_global: copy", "no block"],
    }  # fmt: skip
    assert re.findall(r'class="name"[^>]*>(\w+)<', graph(func)) == ["C", "D", "F"]


@needs_browser
def test_the_map_in_a_browser(evolved, tmp_path):
    write(tmp_path / "report.html", evolved)
    shown = rendered(tmp_path / "report.html", tmp_path)
    assert re.search(r'<option value="0">sketch \d+ \(3 measured\)</option>', shown)
    drawn = shown[shown.index('id="plane"') :]
    drawn = drawn[: drawn.index("</svg>")]
    assert drawn.count('class="row"') == 3 and drawn.count('class="blue"') == 2 and drawn.count('class="orange"') == 1
    assert drawn.count("descent") == 2 and "batch 2, generation 0; 3 measured" in shown


def test_what_failed():
    assert failures(RUN) == [("crash", 1, "SIGSEGV"), ("illegal", 1, "`k` <carries> a dependence")]


def test_the_page_is_written_to_a_file(tmp_path, monkeypatch):
    monkeypatch.setattr("codegen.peak.copy_bandwidth", lambda target, threads: 5e10)
    small = Task.of(workloads.make("gmm", SHAPE).func, "llvm -num-cores 1 -l3 1024")
    for run, bandwidth in ((result(*RUN), None), (result(*RUN, task=small), 5e10)):  # arrays in the cache, and beyond it
        write(tmp_path / "report.html", run)
        assert (tmp_path / "report.html").read_text(encoding="utf-8") == page(run, bandwidth)
    with pytest.raises(OSError):
        write(tmp_path / "no" / "report.html", result(*RUN))
