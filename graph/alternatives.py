"""Other forms of the groups of a network: in parts, or a convolution by another algorithm. Tuning decides between them.

A form stands in place of a function, a group's or a single convolution's, and is known by its key. `Records` keep the forms that
were faster inside of a network.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from search.keys import key

from .fusion import Group, fuse
from .ir import Call, Graph, Value
from .kinds import elementwise, pointwise
from .loops import ordered
from .passes.winograd import Tile, direct_key, fastest, filter_minimally, other_form

if TYPE_CHECKING:
    from codegen import Target

PARTED = "parted"  # the form of a group in parts; those of convolutions are in `passes.winograd`


@dataclass(frozen=True)
class Alternative:
    """Another `form` of the function with this key. `values` are the names of the results of calls in its groups."""

    key: str
    form: str
    values: frozenset[str]


def part(graph: Graph, forms: Mapping[str, str]) -> Graph:
    """The graph whose groups are in parts where `forms`, by the keys of their functions, say so."""
    if PARTED not in forms.values():
        return graph
    return graph.with_(apart=frozenset(v for g in fuse(graph) if forms.get(key(g.func)) == PARTED for v in seams(g)))


def seams(group: Group) -> list[Value]:
    """The values between the parts of a group: the results of all calls but the last that are not pointwise; without such calls,
    what the last one reads of the others. Empty where a part would be elementwise alone: inside of the group it costs least."""
    *inner, last = group.calls
    anchors = [c for c in inner if not pointwise(c)]
    if not anchors:
        made = {v for c in inner for v in c.outputs}
        return [] if pointwise(last) else [v for v in dict.fromkeys(last.values) if v in made]
    rest = [c for c in (*inner, last) if all(c is not a for a in anchors)]
    return [] if all(map(elementwise, rest)) else [c.outputs[0] for c in anchors]


def alternatives(graph: Graph, target: Target) -> Iterator[Alternative]:
    """The other forms of the default groups of a graph after all passes but minimal filtering."""
    choose = fastest(target)
    convolutions: dict[str, tuple[str, str]] = {}  # the key and the other form, by the name of the result

    def noted(call: Call) -> Tile:
        if (form := other_form(call, target)) is not None:
            convolutions[call.outputs[0].name] = direct_key(call), form
        return choose(call)

    found: dict[tuple[str, str], set[str]] = {}
    for group in fuse(ordered(filter_minimally(graph, noted))):
        names = {v.name for c in group.calls for v in c.outputs}
        for other in [convolutions[n] for n in sorted(names & convolutions.keys())]:
            found.setdefault(other, set()).update(names)
        if seams(group):
            found.setdefault((key(group.func), PARTED), set()).update(names)
    return (Alternative(*form, frozenset(names)) for form, names in found.items())
