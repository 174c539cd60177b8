"""Copies of a statement."""

from __future__ import annotations

from tir.ir import For, Kind, Stmt
from tir.traverse import fresh, map_statements, substitute


def with_fresh_loops(s: Stmt, taken: set[str]) -> Stmt:
    """A copy of `s` whose loops, but for those bound to threads, have names of their own, which are added to `taken`."""
    match s:
        case For(var, _, body) if s.kind is not Kind.THREAD:
            new = var.with_(name=fresh(taken, var.name))
            return s.with_(var=new, body=with_fresh_loops(substitute(body, {var.name: new}), taken))
        case _:
            return map_statements(s, lambda c: with_fresh_loops(c, taken))
