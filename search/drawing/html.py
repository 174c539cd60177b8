"""The parts of self-contained pages, which follow the reader's choice of light or dark."""

from __future__ import annotations

import difflib
import json
from collections.abc import Container, Sequence
from html import escape
from pathlib import Path
from typing import Any

from tir import display

from ..measure.provenance import versions_text


def resource(name: str, module: str = __file__) -> str:
    """The text of a file beside a module, by default this one."""
    return Path(module).with_name(name).read_text(encoding="utf-8")


def document(title: str, heading: str, about: str, sections: Sequence[str], style: str = "", script: str = "") -> str:
    """A page with a heading, a line about it, these sections without empty ones, and the versions of what made it."""
    first, last = f"<h1>{escape(heading)}</h1>\n<p>{escape(about)}</p>", f"<p>{escape(versions_text())}</p>"
    body = "\n".join(s for s in (first, *sections, last) if s)
    head = '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
    head += f"<title>{escape(title)}</title><style>{resource('chart.css')}{resource('page.css')}{style}</style>"
    end = f"<script>{script}</script>\n" if script else ""
    return f'<!DOCTYPE html>\n<html lang="en"><head>{head}</head>\n<body>\n{body}\n{end}</body></html>\n'


def data(name: str, content: Any) -> str:
    """Data for the page's script, escaped so that no text ends the element."""
    text = json.dumps(content, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    return f'<script type="application/json" id="{name}">{text}</script>'


def section(title: str, text: str, content: str | None) -> str:
    """A part of a page with its title, a text unless that is empty, and its contents; empty without contents."""
    about = f"<p>{escape(text)}</p>\n" if text else ""
    return f"<section><h2>{escape(title)}</h2>{about}{content}</section>" if content else ""


def table(head: Sequence[str], rows: Sequence[Sequence[str]], text: Container[int] = (0,)) -> str:
    """A table, which scrolls sideways on small screens; empty without rows."""
    return f'<div class="wide">{display.html_table(head, rows, text)}</div>' if rows else ""


def alone(drawn: str) -> str:
    """A drawing, if not empty, with its style, for a place without one, such as a notebook."""
    return drawn and f"<style>{resource('chart.css')}</style>{drawn}"


def wide(drawn: str) -> str:
    """A drawing that keeps its size on small screens, and scrolls sideways there."""
    return f'<div class="wide drawn">{drawn}</div>'


def folded(title: str, text: str) -> str:
    """Text that unfolds at a click on its title."""
    return f"<details><summary>{escape(title)}</summary><pre>{escape(text)}</pre></details>"


def side_by_side(before: str, after: str) -> tuple[str, str]:
    """Two whole texts as the contents of `pre`, with marks on the lines that the other lacks."""
    old, new = before.splitlines(), after.splitlines()
    marked: tuple[list[str], list[str]] = ([], [])
    for kind, a, b, c, d in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        for lines, found, mark in ((marked[0], old[a:b], "minus"), (marked[1], new[c:d], "plus")):
            shown = "" if kind == "equal" else f' class="{mark}"'
            lines += [f"<span{shown}>{escape(x) or ' '}</span>" for x in found]
    return "".join(marked[0]), "".join(marked[1])


def changed_lines(before: str, after: str) -> str:
    """The difference of two texts as lines with marks, the contents of `pre`; empty if they are equal."""
    found = ""
    for line in [*difflib.unified_diff(before.splitlines(), after.splitlines(), n=2, lineterm="")][2:]:
        mark = {"+": ' class="plus"', "-": ' class="minus"'}.get(line[0], "")
        found += f"<span{mark}>{escape('…' if line[0] == '@' else line)}</span>"
    return found
