"""Derivations of sketches by rules, on the graph of the computation."""

from __future__ import annotations

from collections import Counter

from tir.ir import Block, PrimFunc
from tir.traverse import blocks, loads, stores

from ..drawing.html import table
from ..drawing.svg import drawing, text
from ..tuning.result import Result

CELL_WIDTH = 200  # width of a block's column, in units of the drawing


def edges(func: PrimFunc) -> list[tuple[str, str, str]]:
    """The edges of the graph of blocks: the writer, the reader, and the buffer of each."""
    wrote: dict[str, str] = {}
    found: list[tuple[str, str, str]] = []
    for b in _leaves(func):
        for buffer in dict.fromkeys(load.buffer.name for load in loads(b)):
            if wrote.get(buffer, b.name) != b.name:
                found.append((wrote[buffer], b.name, buffer))
        wrote |= {s.buffer.name: b.name for s in stores(b)}
    return found


def _leaves(func: PrimFunc) -> list[Block]:
    return [b for b in blocks(func) if len(blocks(b)) == 1]


def by_block(rules: tuple[str, ...], names: list[str]) -> dict[str, list[str]]:
    """The rules of a sketch by block; those on blocks that rules made are under the empty name."""
    found: dict[str, list[str]] = {}
    for said in rules:
        block, colon, rule = said.partition(": ")
        found.setdefault(block if colon and block in names else "", []).append(rule if colon and block in names else said)
    return found


def derivations(result: Result) -> str:
    """The graph of the blocks, and below it a row for each sketch with its rule for each block."""
    names = [b.name for b in _leaves(result.task.func)]
    tried = Counter(m.candidate.sketch for m in result.measurements)
    if not result.sketches or not names:
        return ""
    rows = []
    for s in sorted(result.sketches, key=lambda s: -tried[s.name]):
        made = by_block(s.rules, names)
        rows.append((s.name, *("; ".join(made.get(n, [])) for n in (*names, "")), str(tried[s.name])))
    head = ("sketch", *names, "on what rules made", "trials")
    return graph(result.task.func) + table(head, rows, text=range(len(head) - 1))


def graph(func: PrimFunc) -> str:
    """The blocks in their order, with arrows from writers to readers."""
    names = [b.name for b in _leaves(func)]
    centre = {n: k * CELL_WIDTH + CELL_WIDTH // 2 for k, n in enumerate(names)}
    parts = []
    for n, at in centre.items():
        parts.append(f'<rect class="block" x="{at - 60}" y="62" width="120" height="28" rx="4"/>')
        parts.append(text(at, 80, n, "middle", "name"))
    for a, b, buffer in edges(func):
        start, end = centre[a], centre[b]
        up = 62 - min(58, 20 + 14 * abs(end - start) // CELL_WIDTH)
        parts.append(f'<path class="line grey" d="M{start + 20} 62C{start + 20} {up} {end - 20} {up} {end - 20} 60"/>')
        parts.append(f'<path class="grey" d="M{end - 24} 54l4 8l4 -8z"/>')
        parts.append(text((start + end) // 2, max(10, up + 8), buffer, "middle"))
    return drawing(
        CELL_WIDTH * max(1, len(names)), 96, "the blocks of the computation, and what passes between them", "".join(parts)
    )
