"""Sketches as text: rules, open numbers, and the program with these as names."""

from __future__ import annotations

from collections.abc import Sequence

from tir.arith.bounds import extent_range
from tir.arith.simplify import simplify
from tir.arith.symbolic import Formula, SymbolicInt
from tir.ir import Binary, Block, Const, Expr, For, Iter, Node, Var
from tir.traverse import loops, rewrite, variables

from ..population.symbolic import symbolic
from .sketch import Sketch


def sketch_text(sketch: Sketch, variant: Sequence[int] | None = None) -> str:
    """The rules of a sketch and the meaning of its columns as comments, and its program as a script. The names t0, t1, ... stand
    for the numbers in the columns. `variant` picks the options of branches, by default the first ones."""
    shown = (0,) * len(sketch.branches) if variant is None else tuple(variant)
    lines = [f"# {sketch.name}", *(f"#   {rule}" for rule in sketch.rules), *(f"#   {text}" for text in _columns(sketch, shown))]
    return "\n".join([*lines, _script(sketch, shown), ""])


def _columns(sketch: Sketch, variant: Sequence[int]) -> list[str]:
    """The meaning of each column, in the order of columns."""
    found: list[tuple[int, str]] = []
    for t in sketch.tiles:
        names = ", ".join(f"t{c}" for c in t.columns)
        notes = [*(["divides the extent"] if t.perfect else []), *([f"innermost at most {t.limit}"] if t.limit else [])]
        notes += ["vectorised"] if t.vector else []
        what = f"tile{'s' if t.columns[1:] else ''} of {t.axis.removeprefix('v_')} in {t.block} (of {t.extent})"
        found.append((t.columns[0], "; ".join([f"{names}: {what}", *notes])))
    labels: dict[int, list[str]] = {}
    for branch, value in zip(sketch.branches, variant, strict=True):
        if branch.column not in labels or len(branch.options) > len(labels[branch.column]):
            labels[branch.column] = [f"[{x}]" if n == value else x for n, x in enumerate(branch.labels)]
    for c in sketch.choices:
        options = labels.get(c.column) or list(map(str, c.options))
        found.append((c.column, f"t{c.column}: {c.name}: {' | '.join(options)}"))
    return [text for _, text in sorted(found)]


def _script(sketch: Sketch, variant: Sequence[int]) -> str:
    func = rewrite(symbolic(sketch, variant), _named)
    ranges = {x.name: extent_range(x.extent, {}) for x in loops(func.body) if isinstance(x.extent, Const)}

    def simpler(node: Node) -> Node | None:
        if isinstance(node, Iter) and not isinstance(node.binding, Var) and variables(node.binding) <= ranges.keys():
            return node.with_(binding=simplify(node.binding, ranges))
        return None

    text = rewrite(func, simpler).script()
    return text[text.index("@T.prim_func") :].rstrip()


def _named(node: Node) -> Node | None:
    match node:
        case Const(SymbolicInt() as value):
            return _expression(value.formula)
        case For() | Block() if any(isinstance(v, SymbolicInt) for _, v in node.annotations):
            named = tuple((k, _text(v.formula) if isinstance(v, SymbolicInt) else v) for k, v in node.annotations)
            return node.with_(annotations=named)
        case _:
            return None


def _expression(formula: Formula) -> Expr:
    """A formula as an expression of the names of columns."""
    quotient = _ceiling(formula)
    if quotient is not None:
        return Var(f"ceildiv({_text(quotient[0])}, {_text(quotient[1])})")
    match formula:
        case ("column", n):
            return Var(f"t{n}")
        case ("const", value):
            return Const(int(value))
        case (op, a, b):
            return Binary(op, _expression(a), _expression(b))
        case _:
            raise ValueError(f"{formula!r} is no formula")


def _ceiling(formula: Formula) -> tuple[Formula, Formula] | None:
    """The operands a and b of a ceiling division, -(-a // b); None for any other formula."""
    match formula:
        case ("-", ("const", 0), ("//", ("-", ("const", 0), a), b)):
            return a, b
        case ("-", ("const", 0), ("//", ("const", int() as a), b)):
            return ("const", -a), b
        case _:
            return None


def _text(formula: Formula) -> str:
    return str(_expression(formula))
