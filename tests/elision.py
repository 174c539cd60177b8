"""Scripts in which `...` stands for lines of another script, as in a patch."""

from __future__ import annotations

from itertools import pairwise

DOTS = "..."


def completed(expected: str, before: str) -> str:
    """A script in which each line `...` is replaced by the lines of the script `before` that it stands for.

    They begin after the line above it (in the same block; at the start where there is none), which is unchanged but for the
    indentation. They end where the line below it comes, or where the indentation is less than that of the `...`. The line below is
    not deeper, so that statements are left out whole.
    """
    given, lines, block = before.splitlines(), [], 0  # type: ignore[var-annotated]
    listed = [*expected.splitlines(), ""]
    for line, below in pairwise(listed):
        if line.strip() == DOTS:
            assert _depth(below) <= _depth(line), f"`...` hides what {below.strip()} is in"
            assert block is not None, f"`...` in a block that was not there before, below {lines[-1].strip()}"
            taken = _run(given, lines[-1] if lines else None, below, _depth(line), block)
        else:
            taken = [line]
        for header in (t.strip() for t in taken if t.strip().startswith("with T.block(")):
            block = next((n for n, g in enumerate(given) if g.strip() == header), None)
        lines += taken
    return "\n".join(lines)


def _run(given: list[str], above: str | None, below: str, depth: int, start: int) -> list[str]:
    """The lines between two others, as deep as below `above`; the one above is the first from `start`."""
    shift = 0
    if above is not None:
        places = [n for n in range(start, len(given)) if given[n].strip() == above.strip()]
        assert places, f"the line above a `...` was not there before: {above.strip()}"
        start, shift = places[0] + 1, _depth(above) - _depth(given[places[0]])
    taken = []
    for line in given[start:]:
        if line.strip() == below.strip() or _depth(line) + shift < depth:
            break
        taken.append(" " * (_depth(line) + shift) + line.strip())
    assert taken, f"`...` stands for nothing below {above.strip() if above else 'the start'}"
    return taken


def elided(script: str, before: str) -> str:
    """A script in which `...` stands for the runs of at least two lines that `completed` takes from the script `before`."""
    lines, listed = script.splitlines(), list[str]()
    while lines:
        for end in range(len(lines), 1, -1):
            dots = " " * min(map(_depth, lines[:end])) + DOTS
            if listed[-1:] != [dots] and _completes([*listed, dots, *lines[end:]], before, script.splitlines()):
                listed, lines = [*listed, dots], lines[end:]
                break
        else:
            listed.append(lines.pop(0))
    return "\n".join(listed)


def _completes(listed: list[str], before: str, lines: list[str]) -> bool:
    try:
        return completed("\n".join(listed), before).splitlines() == lines
    except AssertionError:
        return False


def _depth(line: str) -> int:
    return len(line) - len(line.lstrip())
