"""Display of objects in a notebook: highlighted scripts, coloured diffs and tables, next to their plain text."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from html import escape

Bundle = dict[str, str]  # by media type

GREEN, RED = "#1a7f37", "#b8362f"


def bundle(text: str, html: str) -> Bundle:
    """The result of `_repr_mimebundle_`: a text and its HTML."""
    return {"text/plain": text.rstrip("\n"), "text/html": html}


def code(text: str) -> Bundle:
    """A script or other Python, highlighted."""
    from pygments import highlight
    from pygments.formatters import HtmlFormatter
    from pygments.lexers import PythonLexer

    return bundle(text, highlight(text, PythonLexer(), HtmlFormatter(noclasses=True, nobackground=True, style="default")))


def preformatted(text: str) -> str:
    return f"<pre>{escape(text)}</pre>"


def coloured_diff(text: str) -> Bundle:
    """A unified diff, its lines coloured."""
    lines = []
    for line in text.splitlines():
        colour = {"+": GREEN, "-": RED}.get(line[:1], "")
        shown = escape(line)
        lines.append(f'<span style="color:{colour}">{shown}</span>' if colour else shown)
    return bundle(text, "<pre>" + "\n".join(lines) + "</pre>")


def html_table(head: Sequence[str], rows: Sequence[Sequence[str]], text: Container[int] = (0,)) -> str:
    """An HTML table. Columns numbered in `text` are aligned left; the page's style aligns the others right."""

    def line(cells: Sequence[str], tag: str) -> str:
        sides = (" style=text-align:left" if n in text else "" for n in range(len(cells)))
        return f"<tr>{''.join(f'<{tag}{side}>{escape(c)}</{tag}>' for side, c in zip(sides, cells, strict=True))}</tr>"

    return f"<table><thead>{line(head, 'th')}</thead><tbody>{''.join(line(row, 'td') for row in rows)}</tbody></table>"


def aligned_columns(rows: Sequence[Sequence[str]]) -> str:
    """Rows as lines of text in columns: the first aligned left, the others right."""
    widths = [max(len(row[n]) for row in rows) for n in range(len(rows[0]))] if rows else []
    return "\n".join(
        "  ".join(c.rjust(w) if n else c.ljust(w) for n, (c, w) in enumerate(zip(r, widths, strict=True))).rstrip() for r in rows
    )


def tally(counts: Mapping[str, int]) -> str:
    """The counts that are not 0: `61 ok, 2 run_timeout`."""
    return ", ".join(f"{n} {kind}" for kind, n in counts.items() if n) or "none"


def count_text(n: int, noun: str) -> str:
    """A number of things in words: `1 trial`, `2 trials`."""
    return f"{n:,} {noun}{'s' * (n != 1)}"
