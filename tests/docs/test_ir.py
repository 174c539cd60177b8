"""docs/ir.md: the table of nodes has all of them."""

from __future__ import annotations

import re
from pathlib import Path

from tir import ir

PAGE = Path(__file__).parents[2] / "docs" / "ir.md"


def test_the_table_names_every_node():
    rows = re.findall(r"^\| (?:function|statements|expressions|the rest) \| (.*) \|$", PAGE.read_text(), re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`([A-Z]\w*)", row)}
    bases = {ir.Node, ir.Expr, ir.Element, ir.Stmt}
    nodes = {n for n, c in vars(ir).items() if isinstance(c, type) and issubclass(c, ir.Node) and c not in bases}
    assert named == nodes
