"""The sketches of a function: derived by the rules of a space, then annotated."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from codegen.target import Target
from schedule.open_schedule import OpenSchedule
from tir.ir import PrimFunc
from tir.nearest import no_such

from ..backends import search_backend
from .derivation import MAX_SKETCHES, Derivation, Space, best_first, check_shapes
from .rules import Rule
from .sketch import Sketch

Opening = Callable[[OpenSchedule], object]  # a user's search space: a function that schedules with open numbers


def named(name: str, kind: str = "llvm") -> Space:
    """The space of that name. `full` has all rules; `ansor` has the rules of the paper and tile sizes that divide the extent.
    `limited` has tiles SRS with an innermost size of at most 16 and fixed compute locations. GPUs (targets of the kind `cuda`)
    have the first two. ValueError for another name."""
    known = search_backend(kind).spaces
    if name not in known:
        raise ValueError(no_such(f"space for {kind}", name, known))
    return known[name]


def generate(
    func: PrimFunc,
    target: str | Target,
    rules: Sequence[Rule] | None = None,
    space: str | Space | Opening = "full",
    max_sketches: int = MAX_SKETCHES,
) -> list[Sketch]:
    """The sketches of `func` (Ansor, section 4.1), at least one: from the last block to the first, each rule that applies
    branches the derivation. If the space has templates, the first sketches begin with the matched blocks scheduled by them.

    `space` is a name or a Space; `rules`, if given, replace its own and its templates, in the order of preference. At most
    `max_sketches` sketches come in the order of their departures from the first choice, as in limited discrepancy search (Harvey
    and Ginsberg, IJCAI 1995). Or `space` is a function that calls the primitives of an `OpenSchedule`: the only sketch is then
    its result.

    Raises ValueError for a symbolic size, an unknown space, or a block without an applicable rule (`Skip` always is);
    ScheduleError for a refused step of a function.
    """
    target = Target(target)
    if not isinstance(space, (str, Space)):
        return [opened(func, target, space)]
    chosen = space if isinstance(space, Space) else named(space, target.kind)
    used = (chosen.rules, chosen.templates) if rules is None else (tuple(rules), None)
    derivation = Derivation(func, target, *used)
    sketches: list[Sketch] = []
    for state in best_first(derivation, max_sketches):
        sketch = chosen.sketch(state, f"sketch {len(sketches)}", func)
        # Rules may repeat the steps of templates.
        if derivation.templates is None or all(s.steps != sketch.steps for s in sketches):
            sketches.append(sketch)
    return sketches


def opened(func: PrimFunc, target: Target, opening: Opening) -> Sketch:
    """The sketch by a user's function from the open schedule of `func`."""
    check_shapes(func)
    schedule = OpenSchedule(func, target)
    opening(schedule)
    return schedule.finish(getattr(opening, "__name__", "open schedule"), func)
