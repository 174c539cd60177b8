"""The report's page: the figures and the tables around them."""

from __future__ import annotations

from html import escape
from pathlib import Path

from ..provenance import processor, versions
from ..result import Result
from . import figures

CSS = """
body { font: 15px/1.5 system-ui, sans-serif; color: #222; background: #fff; }
body { max-width: 1080px; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; margin-bottom: 0; } h2 { font-size: 1.1rem; margin: 2rem 0 .3rem; } p { margin: .3rem 0; color: #555; }
table { border-collapse: collapse; margin: .6rem 0; } td, th { padding: .2rem .9rem .2rem 0; text-align: right; }
td:first-child, th:first-child { text-align: left; } th { border-bottom: 1px solid #ccc; font-weight: 600; }
td.text { text-align: left; } svg { max-width: 100%; height: auto; }
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(420px, 1fr)); gap: 0 2rem; }
.pair > * { min-width: 0; } pre { background: #f6f6f4; padding: .8rem; overflow: auto; font-size: 12px; line-height: 1.35; }
"""


def write(path: str | Path, result: Result) -> None:
    """Write the report of a run to a file. The memory's bandwidth is measured first, for the roofline; OSError if the file
    cannot be written, ModuleNotFoundError without matplotlib."""
    from codegen.peak import copy_bandwidth

    text = page(result, copy_bandwidth(result.task.target, threads=result.task.threads))
    Path(path).write_text(text, encoding="utf-8")


def page(result: Result, bandwidth: float | None = None) -> str:
    """The report as HTML, with nothing that has to be loaded from elsewhere. `bandwidth` is that of the memory in bytes a second;
    without it the roofline has no slope."""
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
        shares += f" The cost model judged {result.scored_per_second:,.0f} candidates a second."
    roof = "The roof is what arithmetic and memory allow if every parameter is moved once"
    roof += f": {result.peak / 1e9:.0f} GFLOP/s" if result.peak else ""
    roof += f", {bandwidth / 1e9:.0f} GB/s." if bandwidth else "."
    sections = [
        f"<h1>{escape(title)}</h1>",
        f"<p>{escape(task.target)} on {escape(processor())}; {task.threads} thread{'s' if task.threads > 1 else ''}; {tried}</p>",
        _timings(result),
        _section("Speed by trial", "Each candidate, and the best checked one so far.", figures.tuning_curve(result)),
        '<div class="pair">',
        _section("Predicted and measured", "What the cost model said before it was measured.", figures.predicted(result)),
        _section("Roofline", roof, figures.roofline(result, bandwidth)),
        _section("Sketches", "How the trials were shared out, and which sketches won.", figures.sketches(result)),
        _section("Time", shares, figures.phases(result)),
        "</div>",
        _failures(result),
        _programs(result),
        f"<p>{escape(made)}</p>",
    ]
    body = "\n".join(s for s in sections if s)
    head = f'<meta charset="utf-8"><title>Tuning of {escape(title)}</title><style>{CSS}</style>'
    return f'<!DOCTYPE html>\n<html lang="en"><head>{head}</head>\n<body>\n{body}\n</body></html>\n'


def _section(title: str, text: str, figure: str | None) -> str:
    return "" if figure is None else f"<section><h2>{title}</h2><p>{text}</p>\n{figure}</section>"


def _timings(result: Result) -> str:
    """The table of the end: what was written, found, and numpy."""
    rows = []
    for name, seconds in (("as written", result.baseline), ("best", result.seconds), ("numpy", result.numpy)):
        if seconds is None:
            continue
        speed = result.task.flop / seconds
        share = f"{speed / result.peak:.1%}" if result.peak else "–"
        ratio = f"{result.numpy / seconds:.2f}" if result.numpy else "–"
        rows.append((name, f"{seconds * 1e3:.4g} ms", f"{speed / 1e9:.2f}", share, ratio))
    return _table(("", "time", "GFLOP/s", "of peak", "× numpy"), rows)


def _failures(result: Result) -> str:
    rows = [(kind, str(n), message) for kind, n, message in figures.failures(result.measurements)]
    return "<h2>Failures</h2>" + _table(("outcome", "candidates", "commonest reason"), rows, text=2) if rows else ""


def _programs(result: Result) -> str:
    """The loop nest as it was written beside the best one."""
    written, best = result.task.func.script(), result.schedule.func.script()
    columns = (("As written", written), (f"Best, {result.seconds * 1e3:.4g} ms", best))
    cells = "".join(f"<div><h2>{title}</h2><pre>{escape(script)}</pre></div>" for title, script in columns)
    return f'<div class="pair">{cells}</div>'


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]], text: int | None = None) -> str:
    """A table; column number `text` is words."""

    def cell(n: int, value: str) -> str:
        return f"<td{' class=text' if n == text else ''}>{escape(value)}</td>"

    lines = ["<tr>" + "".join(f"<th>{escape(h)}</th>" for h in head) + "</tr>"]
    lines += ["<tr>" + "".join(cell(n, value) for n, value in enumerate(row)) + "</tr>" for row in rows]
    return f"<table>{''.join(lines)}</table>"
