"""The page of the report: figures and tables."""

from __future__ import annotations

from collections import defaultdict
from html import escape
from pathlib import Path
from statistics import median

from codegen.backend import backend
from codegen.processor import host_name
from codegen.runtime.timing import duration
from schedule import replay_json
from tir.display import count_text
from tir.files import write_atomically
from tir.ir import buffer_nbytes

from ..drawing.html import document, folded, resource, section, side_by_side, table, wide
from ..tuning.history import first_trials, parents
from ..tuning.result import Result, certainty, failures
from . import figures
from .derivations import derivations
from .lineage import lineage
from .population import population


def write(path: str | Path, result: Result) -> None:
    """Write the report of a run to a file, after measuring the memory's bandwidth for the roofline. Raises OSError."""
    from codegen.peak import copy_bandwidth

    here = backend(result.task.target).device is None
    bandwidth = copy_bandwidth(result.task.target, threads=result.task.threads) if here and not cached(result) else None
    write_atomically(Path(path), page(result, bandwidth))


def cached(result: Result) -> bool:
    """True if all arrays fit into the last cache, so that memory does not limit repeated calls."""
    target = result.task.resolved
    return backend(target).device is None and buffer_nbytes(*result.task.func.buffers) <= target.l3


def page(result: Result, bandwidth: float | None = None) -> str:
    """The report as one self-contained HTML page. Without `bandwidth`, bytes a second, the roofline has no slope."""
    task = result.task
    title = task.name if task.workload is None else f"{task.name} {', '.join(map(str, task.workload.shape))}"
    tried = f"{count_text(result.trials, 'trial')} in {result.elapsed:.1f} s"
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
    failed = [(kind, str(n), message) for kind, n, message in failures(result.measurements)]
    sections = [
        _timings(result),
        *(f"<p>{escape(said[0].upper() + said[1:])}.</p>" for said in certainty(result)),
        section("Speed by trial", "Each candidate, and the best checked one so far.", wide(figures.tuning_curve(result))),
        section("The line of the winner", LINE, lineage(result)),
        _nests(result),
        section("The population", MAP, population(result)),
        section("Rules and sketches", RULES, derivations(result)),
        _model_accuracy(result),
        '<div class="pair">',
        section("What moved the prediction", CONTRIBUTIONS, figures.contributions(result)),
        section("Roofline", _roof(result, bandwidth), figures.roofline(result, bandwidth)),
        section("Time", shares, figures.phases(result)),
        "</div>",
        _operators(result),
        _sketches(result),
        section("Failures", "", table(("outcome", "candidates", "most common reason"), failed, text=(0, 2))),
        _scripts(result),
    ]
    return document(
        f"Tuning of {title}",
        title,
        f"{task.target} on {host_name()}; {count_text(task.threads, 'thread')}; {tried}",
        sections,
        resource("report.css", __file__),
        resource("map.js", __file__) if 'id="population"' in "".join(sections) else "",
    )


LINE = """From a row that was sampled, or that a formula gave, to the fastest: what made each row of the one before, and what that
changed."""
MAP = """Each circle is a row of the sketch, in the two directions in which rows differ most. Violet: a generation, the darker the
better by the models. Blue: measured, the larger the faster; red: failed; orange: the winner; lines lead to the rows they descend
from."""
RULES = "The blocks of the computation and what passes between them; below, the rule that each sketch applied to each block."
CONTRIBUTIONS = """The trees correct a rough estimate of the time. By how much each feature moves that correction for the winner,
compared with all statements that were measured; green makes it faster."""


def _timings(result: Result) -> str:
    """The table of times: the program as written, the default schedule, the best one, and numpy."""
    rows = []
    if result.baseline_stopped is not None:
        rows.append(("as written", f"> {duration(result.baseline_stopped)}", "stopped", "–", "–"))
    known = (("as written", result.baseline), ("default schedule", result.default), ("best", result.seconds))
    for name, seconds in (*known, ("numpy", result.numpy)):
        if seconds is None:
            continue
        speed = result.task.flop / seconds
        share = f"{speed / result.ceiling:.1%}" if result.ceiling else "–"
        ratio = f"{result.numpy / seconds:.2f}" if result.numpy else "–"
        rows.append((name, duration(seconds), f"{speed / 1e9:.2f}", share, ratio))
    return table(("", "time", "GFLOP/s", "of peak", "× numpy"), rows)


def _roof(result: Result, bandwidth: float | None) -> str:
    """The explanation of the lines of the roofline."""
    if not result.ceiling:
        return "The speeds of the candidates; the peak of the machine is not known."
    text = f"The peak is {result.ceiling / 1e9:.0f} GFLOP/s, "
    if result.ceiling == result.peak:
        text += "as measured with multiply-adds in registers."
    else:
        text += f"the speed of the fastest kernel: the measurement, on a busy machine, gave {(result.peak or 0) / 1e9:.0f}."
    if bandwidth:
        return text + f" Memory moves {bandwidth / 1e9:.0f} GB/s; the slope is its limit if every parameter is moved once."
    if cached(result):
        return text + " All arrays fit into the last cache, so that memory sets no limit."
    return text


def _model_accuracy(result: Result) -> str:
    """The scores of each model against measurements."""
    found = []
    for name, count, correlation, figure in figures.model_accuracy(result):
        how = "" if correlation is None else f"; rank correlation {correlation:.2f}"
        found.append(f"<div><h3>{escape(name)}</h3><p>{count} candidates{how}</p>{figure}</div>")
    text = """The scores of each model when a candidate was proposed, on its own scale, against the measured speed. The formula
needs no measurements; the trees score once they have learned from enough. A rank correlation of 1 is the right order, 0 chance;
below 0 a model has not learned yet."""
    return section("Believed and measured", text, f"<div class=models>{''.join(found)}</div>" if found else None)


def _operators(result: Result) -> str:
    """One row for each operator: the success of its measured children."""
    won = figures.wins(result.measurements)
    trials = first_trials(result.measurements)
    tried, gains = defaultdict(list), defaultdict(list)
    for m in result.measurements:
        if m.candidate.origin is not None:
            tried[m.candidate.origin.operator].append(m)
            above = [result.measurements[n - 1].seconds for n in parents(m, trials)]
            if above and m.outcome == "ok" and min(above) < float("inf"):
                gains[m.candidate.origin.operator].append(min(above) / m.seconds)
    rows = []
    for name in sorted(tried, key=lambda n: -len(tried[n])):
        own = tried[name]
        rows.append((
            name, str(len(own)), str(sum(m.outcome == "ok" for m in own)),
            f"{median(gains[name]):.2f} ×" if gains[name] else "–", str(sum(m in won for m in own)),
        ))  # fmt: skip
    head = ("operator", "measured", "valid", "speed-up over the parent", "new bests")
    return section("Operators", "", table(head, rows))


def _sketches(result: Result) -> str:
    """One row for each sketch, the fastest first: its rules, its trials and its best time."""
    won, of = [m.candidate.sketch for m in figures.wins(result.measurements)], defaultdict(list)
    for m in result.measurements:
        of[m.candidate.sketch].append(m)
    rows = []
    for name, tried in sorted(of.items(), key=lambda item: min(m.seconds for m in item[1])):
        best = min(m.seconds for m in tried)
        valid = sum(m.outcome == "ok" for m in tried)
        made = "; ".join(result.rules.get(name, ()))
        rows.append((name, made, str(len(tried)), str(valid), str(won.count(name)), duration(best) if valid else "–"))
    head = ("sketch", "made by", "trials", "valid", "new bests", "best")
    return section("Candidates by sketch", "", table(head, rows, text=(0, 1)))


def _nests(result: Result) -> str:
    """The loop nest of the default schedule, or, if that was no trial, of the program as written, beside the best one."""
    default = next((m for m in result.measurements if m.candidate.sketch == "default" and m.outcome == "ok"), None)
    first, name, seconds = result.task.func, "As written", result.baseline
    if default is not None and default.candidate.trace is not None:
        first = replay_json(first, default.candidate.trace).func
        name, seconds = "Default schedule", result.default
    before, after = side_by_side(first.outline(), result.schedule.func.outline())
    name += "" if seconds is None else f", {duration(seconds)}"
    columns = ((name, before), (f"Best, {duration(result.seconds)}", after))
    return '<div class="pair nests">' + "".join(f"<div><h2>{t}</h2><pre>{text}</pre></div>" for t, text in columns) + "</div>"


def _scripts(result: Result) -> str:
    """The nest and the script as written, the best script, and its steps."""
    written, best = result.task.func, result.schedule.func
    more = (
        ("The loop nest as written", written.outline()),
        ("The script as written", written.script()),
        ("The best script", best.script()),
        ("Its steps", str(result.schedule.trace)),
    )
    return section("Programs", "", "".join(folded(title, text) for title, text in more))
