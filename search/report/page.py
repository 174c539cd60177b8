"""The page of the report: figures and tables."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from html import escape
from pathlib import Path

from codegen.timing import duration
from tir.files import write_atomically

from ..measure.provenance import processor, versions
from ..policy.ranking import correlation
from ..tuning.result import Result
from . import figures

CSS = """
body { font: 15px/1.5 system-ui, sans-serif; color: #222; background: #fff; }
body { max-width: 1080px; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; margin-bottom: 0; } h2 { font-size: 1.1rem; margin: 2rem 0 .3rem; } p { margin: .3rem 0; color: #555; }
table { border-collapse: collapse; margin: .6rem 0; } td, th { padding: .2rem .9rem .2rem 0; text-align: right; }
td:first-child, th:first-child { text-align: left; } th { border-bottom: 1px solid #ccc; font-weight: 600; }
td.text, th.text { text-align: left; } summary { color: #555; cursor: pointer; } svg { max-width: 100%; height: auto; }
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(420px, 1fr)); gap: 0 2rem; }
.pair > * { min-width: 0; } pre { background: #f6f6f4; padding: .8rem; overflow: auto; font-size: 12px; line-height: 1.35; }
"""


def write(path: str | Path, result: Result) -> None:
    """Write the report of a run to a file, after measuring the bandwidth of the memory for the roofline. OSError if the file
    cannot be written, ModuleNotFoundError without matplotlib."""
    from codegen.peak import copy_bandwidth

    text = page(result, copy_bandwidth(result.task.target, threads=result.task.threads))
    write_atomically(Path(path), text)


def page(result: Result, bandwidth: float | None = None) -> str:
    """The report as one self-contained HTML page. `bandwidth` is that of the memory in bytes a second; without it the roofline
    has no slope."""
    task = result.task
    title = task.name if task.workload is None else f"{task.name} {', '.join(map(str, task.workload.shape))}"
    made = ", ".join(f"{name} {version}" for name, version in versions().items())
    tried = f"{result.trials} trials in {result.elapsed:.1f} s"
    if result.earlier:
        tried += f", after {result.earlier} of earlier runs"
    if result.interrupted:
        tried += ", interrupted"
    shares = f"Candidates were running, to be timed and checked, for {result.measuring:.0%} of the time."
    if result.scored_per_second is not None:
        shares += f" The cost model scored {result.scored_per_second:,.0f} candidates a second."
    if any(result.scored.values()):
        symbolic, concrete = (result.scored.get(how, 0) for how in ("symbolic", "concrete"))
        shares += f" It scored {symbolic:,} by formulas that they share, {concrete:,} each as a program of its own."
    roof = "The roof is the limit of arithmetic and memory if every parameter is moved once"
    roof += f": {result.peak / 1e9:.0f} GFLOP/s" if result.peak else ""
    roof += f", {bandwidth / 1e9:.0f} GB/s." if bandwidth else "."
    sections = [
        f"<h1>{escape(title)}</h1>",
        f"<p>{escape(task.target)} on {escape(processor())}; {task.threads} thread{'s' if task.threads > 1 else ''}; {tried}</p>",
        _timings(result),
        section("Speed by trial", "Each candidate, and the best checked one so far.", figures.tuning_curve(result)),
        '<div class="pair">',
        section("Predicted and measured", _ranking(result), figures.predicted(result)),
        section("Roofline", roof, figures.roofline(result, bandwidth)),
        section("Sketches", "How the trials were divided, and which sketches gave new bests.", figures.sketches(result)),
        section("Time", shares, figures.phases(result)),
        "</div>",
        _sketches(result),
        _failures(result),
        _programs(result),
        f"<p>{escape(made)}</p>",
    ]
    return document(f"Tuning of {title}", sections)


def document(title: str, sections: Sequence[str]) -> str:
    """A page of these sections, those that are empty left out."""
    body = "\n".join(s for s in sections if s)
    head = f'<meta charset="utf-8"><title>{escape(title)}</title><style>{CSS}</style>'
    return f'<!DOCTYPE html>\n<html lang="en"><head>{head}</head>\n<body>\n{body}\n</body></html>\n'


def section(title: str, text: str, figure: str | None) -> str:
    """A figure with its title and what it shows; nothing where there is none."""
    return "" if figure is None else f"<section><h2>{title}</h2><p>{text}</p>\n{figure}</section>"


def _timings(result: Result) -> str:
    """The table of times: the original program, the best one, and numpy."""
    rows = []
    if result.baseline_stopped is not None:
        rows.append(("as written", f"> {duration(result.baseline_stopped)}", "stopped", "–", "–"))
    for name, seconds in (("as written", result.baseline), ("best", result.seconds), ("numpy", result.numpy)):
        if seconds is None:
            continue
        speed = result.task.flop / seconds
        share = f"{speed / result.peak:.1%}" if result.peak else "–"
        ratio = f"{result.numpy / seconds:.2f}" if result.numpy else "–"
        rows.append((name, duration(seconds), f"{speed / 1e9:.2f}", share, ratio))
    return table(("", "time", "GFLOP/s", "of peak", "× numpy"), rows)


def _ranking(result: Result) -> str:
    """How well the scores of the cost model rank the candidates."""
    text = "The score of each candidate before it was measured, and its speed."
    found = correlation(result.measurements)
    return text if found is None else f"{text} Rank correlation: {found:.2f}."


def _sketches(result: Result) -> str:
    """One row for each sketch, the fastest first: its rules, its trials and its best time."""
    won, of = figures.wins(result.measurements), defaultdict(list)
    for m in result.measurements:
        of[m.candidate.sketch].append(m)
    rows = []
    for name, tried in sorted(of.items(), key=lambda item: min(m.seconds for m in item[1])):
        best = min(m.seconds for m in tried)
        valid = sum(m.outcome == "ok" for m in tried)
        made = "; ".join(result.rules.get(name, ()))
        rows.append((name, made, str(len(tried)), str(valid), str(won[name]), duration(best) if valid else "–"))
    head = ("sketch", "made by", "trials", "valid", "new bests", "best")
    return "<h2>Candidates by sketch</h2>" + table(head, rows, text=1) if rows else ""


def _failures(result: Result) -> str:
    rows = [(kind, str(n), message) for kind, n, message in figures.failures(result.measurements)]
    return "<h2>Failures</h2>" + table(("outcome", "candidates", "most common reason"), rows, text=2) if rows else ""


def _programs(result: Result) -> str:
    """The original loop nest beside the best one, the scripts of both, and the trace of the best."""
    written, best = result.task.func, result.schedule.func
    columns = (("As written", written), (f"Best, {duration(result.seconds)}", best))
    cells = "".join(f"<div><h2>{title}</h2><pre>{escape(func.outline())}</pre></div>" for title, func in columns)
    more = (
        ("The script as written", written.script()),
        ("The best script", best.script()),
        ("Its steps", str(result.schedule.trace)),
    )
    folded = "".join(f"<details><summary>{title}</summary><pre>{escape(text)}</pre></details>" for title, text in more)
    return f'<div class="pair">{cells}</div>{folded}'


def table(head: Sequence[str], rows: Sequence[Sequence[str]], text: int | None = None) -> str:
    """A table; column number `text` is left-aligned text."""

    def cell(n: int, value: str, tag: str = "td") -> str:
        return f"<{tag}{' class=text' if n == text else ''}>{escape(value)}</{tag}>"

    lines = ["<tr>" + "".join(cell(n, h, "th") for n, h in enumerate(head)) + "</tr>"]
    lines += ["<tr>" + "".join(cell(n, value) for n, value in enumerate(row)) + "</tr>" for row in rows]
    return f"<table>{''.join(lines)}</table>"
