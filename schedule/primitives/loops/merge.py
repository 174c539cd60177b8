"""merge: sibling nests become one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial, reduce
from itertools import pairwise
from typing import TypeVar

from tir.analysis.conflicts import touched_elements, within
from tir.analysis.context import Access
from tir.analysis.dependence import ANY, GREATER, SAME, Instances, conflict_marks, conflicts, local_buffers, units
from tir.arith.enumeration import as_rows
from tir.arith.simplify import simplify
from tir.ir import For, PrimFunc, Seq, Stmt, Var, nest, seq
from tir.traverse import loops as loops_below
from tir.traverse import loops_in, substitute, walk_stmts

from ...error import ScheduleError, listing
from ...legality.dataflow import shared
from ...legality.privatisation import private_buffers
from ...primitive import LoopName, last_loop, loop_at, need_serial, primitive, replace_path
from ...rewriting.edits import Names

T = TypeVar("T")
Pair = tuple[T, T]  # one for the first nest, one for the second


@primitive
def merge(func: PrimFunc, *loops: LoopName) -> tuple[PrimFunc, str]:
    """Make one loop of sibling loops; returns its name, that of the first with `_m` added.

    The loops stand in different nests under the same statement. All loops of each nest, from the outermost to the given one, are
    merged pairwise: they must be perfectly nested and have equal extents.

    Rewrite   for i in range(N): S(i)
              for j in range(N): T(j)
           => for i_m in range(N):
                  S(i_m)
                  T(i_m)
    Legal     if all merged loops are serial and not annotated, and every dependence from S to T stays within an iteration or goes
              forward. That is: for j before i, T(j) accesses nothing that S(i) writes, and writes nothing that S(i) reads.
              Temporaries used only here do not count if each iteration of either nest reads only elements that it has written.
              Statements between the nests must be independent of the nests that move past them.
    Example   chain: s.merge("i", "i_1")
    """
    if not loops:
        raise ScheduleError("at least one loop is needed", hint="merge('i', 'i_1')")
    if len(set(loops)) < len(loops):
        raise ScheduleError(f"`{next(n for n in loops if loops.count(n) > 1)}` is given twice")
    paths = [loop_at(func, n)[1] for n in loops]
    if len(paths) == 1:
        return func, loops[0]
    common = reduce(shared, paths, tuple(paths[0]))
    order: dict[int, int] = {id(s): n for n, s in enumerate(walk_stmts(func.body))}
    paths.sort(key=lambda p: order[id(p[-1])])
    nests = [_perfect_nest(p, len(common), paths) for p in paths]
    if not common or type(common[-1]) is not Seq:
        raise _not_siblings(paths)  # unreachable for well-formed trees; `_nest` has refused loops inside one another
    siblings: tuple[Stmt, ...] = common[-1].stmts
    places = [next(n for n, s in enumerate(siblings) if s is chain[0]) for chain in nests]
    for a, b in pairwise(nests):
        if a[0] is b[0]:
            raise _not_siblings([p for p in paths if p[-1] in (a[-1], b[-1])])
    _need_same_depth(nests)
    merged = _merged_loops(func, nests[0], [loop for chain in nests for loop in chain])
    bodies = [_body_in(merged, chain, nests[0]) for chain in nests]

    around = loops_in(common)
    private = cache(lambda: private_buffers(func, *paths))
    for n, later in enumerate(bodies):
        for m, earlier in enumerate(bodies[:n]):
            _need_forward(around, merged, (nests[m], nests[n]), (earlier, later), private)
    place = _merge_place(around, siblings, places)
    result = nest(merged, seq(*bodies))
    stmts = [result if n == place else s for n, s in enumerate(siblings) if n == place or n not in places]
    return replace_path(func, list(common), seq(*stmts)), merged[-1].name


def _perfect_nest(path: Sequence[Stmt], depth: int, paths: Sequence[Sequence[Stmt]]) -> list[For]:
    """The loops on a path below its first `depth` statements; refuses unless they are perfectly nested."""
    chain = path[depth:]
    if not chain:
        raise _not_siblings([path, next(p for p in paths if p is not path)])
    for outer, inner in pairwise(chain):
        if type(outer) is not For:
            raise _not_siblings(paths)
        if type(inner) is not For:
            raise ScheduleError(
                f"`{last_loop(path).name}` is not the only statement of `{outer.name}`",
                (outer, "outer loop"),
                (path[-1], "must be its whole body"),
                hint=f"merge loops further outside, or move what else `{outer.name}` holds out of it",
            )
    return [s for s in chain if isinstance(s, For)]


def _not_siblings(paths: Sequence[Sequence[Stmt]]) -> ScheduleError:
    names = [last_loop(p).name for p in paths]
    return ScheduleError(
        f"{listing(names)} are not in different nests under one common statement",
        *((p[-1], "one of them") for p in paths),
        hint="merge takes sibling loops; fuse takes loops inside one another",
    )


def _need_same_depth(nests: Sequence[Sequence[For]]) -> None:
    """Refuse nests of different depth, and loops that are marked or annotated."""
    first = nests[0]
    for chain in nests:
        if len(chain) != len(first):
            raise ScheduleError(
                f"`{first[-1].name}` and `{chain[-1].name}` are not at the same depth below their common ancestor",
                (first[-1], f"loop number {len(first)} of its nest"),
                (chain[-1], f"loop number {len(chain)} of its nest"),
                hint="add_unit_loop makes a nest deeper, fuse makes one flatter",
            )
        for loop in chain:
            need_serial(loop, "merged")


def _body_in(merged: Sequence[For], chain: Sequence[For], first: Sequence[For]) -> Stmt:
    """The body of a nest over the variables of the merged loops; refuses extents that differ from the first nest's."""
    mapping = {old.name: new.var for old, new in zip(chain, merged, strict=True)}
    for mine, old, new in zip(first, chain, merged, strict=True):
        if simplify(substitute(old.extent, mapping)) != simplify(new.extent):
            raise ScheduleError(
                f"`{mine.name}` and `{old.name}` have different extents",
                (mine, f"runs over {mine.extent}"),
                (old, f"runs over {old.extent}"),
                hint="loop_partition cuts off what one of them has more",
            )
    return substitute(chain[-1].body, mapping)


def _merged_loops(func: PrimFunc, chain: Sequence[For], removed: Sequence[For]) -> list[For]:
    """The merged loops, outermost first, with extents over their own variables."""
    names = Names.of(func)
    for taken in (names.outer, names.handles):
        taken.difference_update(loop.name for loop in removed)
    result: list[For] = []
    mapping: dict[str, Var] = {}
    for loop in chain:
        name = names.loop(loop.name if loop.name.endswith("_m") else f"{loop.name}_m")
        var = Var(name, loop.var.dtype)
        result.append(For(var, substitute(loop.extent, mapping), loop.body))
        mapping[loop.name] = var
    return result


def _need_forward(
    around: list[For], merged: list[For], nests: Pair[list[For]], bodies: Pair[Stmt], private: Callable[[], set[str]]
) -> None:
    """Refuse if an iteration of the second body depends on one of the first that would run after it, `private` buffers excepted.

    After merging, the second body at j runs before the first at i exactly if j < i lexicographically. That is, j is less in some
    loop, and equal in all outer ones. For each such loop, each pair of conflicting accesses must touch different elements.
    """
    first, second = nests
    earlier, later = bodies
    ignored = local_buffers(earlier) | local_buffers(later)
    # The units in the function, for messages, and in the merged loops.
    ours = list(zip(units(first[-1].body), units(earlier), strict=True))
    theirs = list(zip(units(second[-1].body), units(later), strict=True))
    found = conflicts(ignored, [a for _, a in ours], [b for _, b in theirs])
    pairs = [((ours[n][0], theirs[m][0]), x, y) for n, m, pairs in found for x, y in pairs]
    if not pairs:
        return
    below = [*loops_below(earlier), *loops_below(later)]
    instances = Instances(around, merged, below, [a.indices for _, x, y in pairs for a in (x, y)])
    for level in range(len(merged)):
        relation = {m.name: SAME if n < level else GREATER if n == level else ANY for n, m in enumerate(merged)}
        for shown, x, y in pairs:
            if not instances.distinct(x.indices, y.indices, relation) and x.buffer.name not in private():
                one, other = conflict_marks(*shown, x, y)
                raise ScheduleError(
                    f"cannot prove that no dependence through `{x.buffer.name}` goes from a later iteration of "
                    f"`{first[level].name}` to an earlier one of `{second[level].name}`",
                    (first[level], "first nest"),
                    one,
                    (second[level], "second nest"),
                    other,
                    witness=partial(_witness, around, merged, nests, bodies, x, y),
                    hint="merge loops further outside, or leave the nests one after the other",
                )


def _merge_place(around: list[For], siblings: Sequence[Stmt], places: Sequence[int]) -> int:
    """The number among `siblings` of the nest to move to: the first of `places`, else the last; refuses illegal ones."""
    between = [n for n in range(places[0] + 1, places[-1]) if n not in places]
    against: list[tuple[Stmt, Stmt, str]] = []
    for place in (places[0], places[-1]):
        crossed = ((m, n) for m in places for n in between if min(m, place) < n < max(m, place))
        conflicts = (
            (siblings[m], siblings[n], buffer)
            for m, n in crossed
            if (buffer := _shared_buffer(around, siblings[m], siblings[n])) is not None
        )
        conflict = next(conflicts, None)
        if conflict is None:
            return place
        against.append(conflict)
    moved_nest, in_between, buffer = against[0]
    raise ScheduleError(
        f"what stands between the nests depends on them through `{buffer}`, and cannot come before or after both",
        (in_between, "in between"),
        (moved_nest, "would move past it"),
        hint="move it before or behind the nests first (compute_at, reverse_compute_at)",
    )


def _shared_buffer(around: list[For], a: Stmt, b: Stmt) -> str | None:
    """A buffer through which two consecutive statements may depend on each other; None if they are independent."""
    found = conflicts(local_buffers(a) | local_buffers(b), units(a), units(b))
    pairs = [pair for _, _, pairs in found for pair in pairs]
    if not pairs:
        return None
    instances = Instances(around, [], [*loops_below(a), *loops_below(b)], [x.indices for pair in pairs for x in pair])
    for x, y in pairs:
        if not instances.distinct(x.indices, y.indices, {}):
            return x.buffer.name
    return None


def _witness(
    around: list[For], merged: list[For], nests: Pair[list[For]], bodies: Pair[Stmt], x: Access, y: Access
) -> str | None:
    """Two iterations that touch one element, the earlier of them in the second nest; None if not found."""
    latest: dict[tuple, tuple] = {}
    ours, theirs = (_touches(around, merged, loops_below(body), a) for body, a in zip(bodies, (x, y), strict=True))
    for point, element in ours:
        latest[element] = max(point, latest.get(element, point))
    for point, element in theirs:
        other = latest.get(element, point)
        if other > point:
            one, another = (
                ", ".join(f"{loop.name} = {v}" for loop, v in zip(nest, values, strict=True))
                for nest, values in zip(nests, (other, point), strict=True)
            )
            return f"{one} {x.verb} {x.at(element)}, {another} {y.verb} it: merged, the second would come first"
    return None


def _touches(around: list[For], nest: list[For], below: list[For], access: Access) -> Iterator[tuple[tuple, tuple]]:
    """Iterations of a nest with the elements that an access touches in them, in the first iteration of the loops around."""
    first = {x.name: 1 for x in around}
    found = touched_elements(within(access, [*nest, *below], around), first | dict.fromkeys(x.name for x in nest))
    if found is not None and found[0].certain:
        points, elements = found
        columns = ([points.values[x.name] for x in nest], elements)
        yield from zip(*(map(tuple, as_rows(c, len(points)).tolist()) for c in columns), strict=True)
