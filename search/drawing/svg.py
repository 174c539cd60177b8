"""Charts as SVG: axes with points, lines and bars, classes coloured by the page's style, tips at the pointer."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from html import escape

Span = tuple[float, float]
Point = tuple[float, float]

LEFT, RIGHT, TOP, BOTTOM = 52, 14, 10, 36  # margins, in units of the drawing
CHARACTER_WIDTH = 6.2  # average width of a character
BAR = 21  # height of a bar with the space around it
COLOURS = ("blue", "orange", "green", "violet", "teal", "brown", "pink", "grey")


class Scale:
    """A linear or logarithmic scale of values between two places."""

    def __init__(self, span: Span, start: float, end: float, log: bool = False):
        low, high = span
        if log:
            low = max(low, 1e-12)
            high = max(high, low * 1.001)
        elif high <= low:
            low, high = low - 0.5, low + 0.5
        self.low, self.high, self.start, self.end, self.log = low, high, start, end, log

    def __call__(self, value: float) -> float:
        if self.log:
            share = math.log(max(value, self.low) / self.low) / math.log(self.high / self.low)
        else:
            share = (value - self.low) / (self.high - self.low)
        return round(self.start + share * (self.end - self.start), 2)

    def ticks(self) -> list[float]:
        """About five round values within the scale."""
        if self.log:
            found = [
                m * 10.0**e
                for e in range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
                for m in (1, 2, 5)
            ]
            within = [t for t in found if self.low <= t <= self.high]
            decades = [t for t in within if math.log10(t) == round(math.log10(t))]
            if len(within) > 1:  # else the scale is so narrow that it is about linear
                return decades if len(decades) > 2 else within
        step = round_step((self.high - self.low) / 5)
        first = math.ceil(self.low / step - 1e-9)
        return [n * step for n in range(first, math.floor(self.high / step + 1e-9) + 1)]


def round_step(least: float) -> float:
    """The least number from `least` on of the form 1, 2 or 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(m * power for m in (1, 2, 5, 10) if m * power >= least * (1 - 1e-9))


def number(value: float) -> str:
    """A value as a label of an axis."""
    return f"{value:.4g}" if abs(value) < 10_000 else f"{value:,.0f}"


class Chart:
    """A chart over two scales, in units of the drawing. `label` is for screen readers, `y_text` formats values of the y axis."""

    def __init__(
        self,
        width: int,
        height: int,
        label: str,
        x: Span,
        y: Span,
        xlabel: str,
        ylabel: str,
        *,
        log_x: bool = False,
        log_y: bool = False,
        whole_x: bool = False,
        y_text: Callable[[float], str] = number,
    ):
        self.width, self.height, self.label = width, height, label
        self.x = Scale(x, LEFT, width - RIGHT, log_x)
        self.y = Scale(y, height - BOTTOM, TOP + 14, log_y)
        self._parts: list[str] = []
        self._named: list[tuple[str, str]] = []
        bottom = height - BOTTOM
        for t in self.y.ticks():
            at = self.y(t)
            self._parts.append(f'<path class="grid" d="M{LEFT} {at}H{width - RIGHT}"/>')
            self._parts.append(text(LEFT - 6, at + 4, y_text(t), "end"))
        for t in (t for t in self.x.ticks() if not whole_x or t == round(t)):
            self._parts.append(text(self.x(t), bottom + 15, number(t), "middle"))
        self._parts.append(f'<path class="axis" d="M{LEFT} {bottom}H{width - RIGHT}"/>')
        self._parts += [text((LEFT + width - RIGHT) / 2, height - 4, xlabel, "middle"), text(LEFT - 46, TOP, ylabel)]

    def named(self, kind: str, name: str) -> None:
        """Put a kind of mark into the legend."""
        if (kind, name) not in self._named:
            self._named.append((kind, name))

    def dots(
        self, points: Iterable[Point], kind: str, titles: Sequence[str] = (), size: float = 2.6, *, crossed: bool = False
    ) -> None:
        """Draw points, or crosses for failed candidates, each with a title as its tip."""
        for n, (x, y) in enumerate(points):
            title = f"<title>{escape(titles[n])}</title>" if titles else ""
            at, up = self.x(x), self.y(y)
            if crossed:
                self._parts.append(f'<path class="{kind} line" d="M{at - 3:g} {up - 3:g}l6 6m0-6l-6 6">{title}</path>')
            else:
                self._parts.append(f'<circle class="{kind}" cx="{at:g}" cy="{up:g}" r="{size:g}">{title}</circle>')

    def line(self, points: Sequence[Point], kind: str, *, steps: bool = False) -> None:
        """Draw a line through points, or in steps that end at each."""
        if points:
            corners = [(self.x(x), self.y(y)) for x, y in points]
            path = f"M{corners[0][0]:g} {corners[0][1]:g}" + "".join(
                f"H{x:g}V{y:g}" if steps else f"L{x:g} {y:g}" for x, y in corners[1:]
            )
            self._parts.append(f'<path class="{kind} line" d="{path}"/>')

    def band(self, low: Sequence[Point], high: Sequence[Point], kind: str) -> None:
        """Fill the area between two lines."""
        if low:
            corners = " ".join(f"{self.x(x):g},{self.y(y):g}" for x, y in (*low, *high[::-1]))
            self._parts.append(f'<polygon class="{kind} band" points="{corners}"/>')

    def level(self, y: float, kind: str, name: str) -> None:
        """Draw a dashed horizontal line at a value, with its name in the legend."""
        self._parts.append(f'<path class="{kind} line dashed" d="M{LEFT} {self.y(y):g}H{self.width - RIGHT}"/>')
        self.named(kind, name)

    def svg(self) -> str:
        """The chart, its legend above the axes."""
        at, legend = self.width - RIGHT, ""
        for kind, name in reversed(self._named):
            at -= round(CHARACTER_WIDTH * len(name)) + 22
            legend += f'<circle class="{kind}" cx="{at + 5}" cy="{TOP - 4}" r="4"/>{text(at + 13, TOP, name, kind=kind)}'
        return drawing(self.width, self.height, self.label, "".join(self._parts) + legend)


def bars(label: str, rows: Sequence[tuple[str, float, str, str]], width: int = 520) -> str:
    """Horizontal bars from rows of name, value, text and kind."""
    left = _space([name for name, *_ in rows], width)
    scale = Scale((0.0, max((v for _, v, *_ in rows), default=0.0) or 1.0), left, width - 70)
    parts = []
    for n, (name, value, shown, kind) in enumerate(rows):
        y, end = n * BAR, scale(value)
        parts.append(text(left - 8, y + 14, name, "end"))
        parts.append(f'<rect class="{kind}" x="{left}" y="{y + 3}" width="{max(0.5, end - left):g}" height="{BAR - 6}"/>')
        parts.append(text(end + 5, y + 14, shown))
    return drawing(width, BAR * len(rows) + 2, label, "".join(parts))


def strips(label: str, rows: Sequence[tuple[str, Sequence[float]]], width: int) -> str:
    """Dots of each name's values on a line of its own, from 0."""
    left = _space([name for name, _ in rows], width)
    scale = Scale((0.0, max((v for _, values in rows for v in values), default=1.0)), left, width - 10)
    parts = []
    for n, (name, values) in enumerate(rows):
        parts.append(text(left - 8, n * BAR + 14, name, "end"))
        parts += [f'<circle class="blue" cx="{scale(v):g}" cy="{n * BAR + 10}" r="3"/>' for v in values]
    return drawing(width, BAR * len(rows) + 2, label, "".join(parts))


def _space(names: Sequence[str], width: int) -> int:
    """The width of the names to the left of a drawing."""
    return round(min(0.45 * width, CHARACTER_WIDTH * max(map(len, names), default=0) + 12))


def text(x: float, y: float, content: str, anchor: str = "start", kind: str = "") -> str:
    """Text with its start, middle or end at a place."""
    named = f' class="{kind}"' if kind else ""
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}"{named}>{escape(content)}</text>'


def drawing(width: int, height: int, label: str, content: str) -> str:
    """An SVG element, as wide as its place allows, up to `width`."""
    size = f'viewBox="0 0 {width} {height}" style="max-width:{width}px"'
    return f'<svg class="chart" role="img" aria-label="{escape(label)}" {size}>{content}</svg>'
