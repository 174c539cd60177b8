"""Open schedules: schedules under construction whose numbers may stay open.

    def register_tile(s: OpenSchedule) -> None:
        i, j, k = s.get_loops("C")
        (rows,) = s.sizes("C", "v_i", seed=(4,))  # the length of an inner level of that axis
        i_0, i_1 = s.split(i, [None, rows])
        s.annotate(k, "pragma_auto_unroll_max_step", s.choose("unroll", (0, 16, 64)))
        s.branch("threads", {"one": lambda s: None, "all": lambda s: s.parallel(i_0)})

An open number is an integer that remembers its column (`tir.arith.symbolic.SymbolicInt`). It takes part in arithmetic, and any
primitive accepts it. It has a stand-in value: 1 for a tile size, the first option for a choice. The steps must be legal for all
numbers, not only for stand-ins. With `at_seed` every number is its seed, each branch takes the way of its seed, and the result is
a plain schedule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import takewhile
from typing import Any, NamedTuple, Unpack

import numpy as np

from tir import dtypes
from tir.arith.simplify import simplify
from tir.arith.symbolic import SymbolicChoice, SymbolicInt, columns_of, formula
from tir.constants import CONSTANTS, SHARED
from tir.empty import has_empty
from tir.ir import NOT_SPATIAL, Axis, Block, Const, For, Iter, PrimFunc, Var, annotation
from tir.traverse import axis_loops, blocks, loops, stores, walk_stmts

from .error import ScheduleError
from .loop_positions import with_loop_positions
from .open_trace import Branch, Choice, ChoiceKey, Hole, OpenTrace, ProductLimit, Role, Tile
from .primitive import REGISTRY, Primitive, find_block, find_loop, named_below
from .random_variables import leaves, map_leaves
from .schedule import Schedule
from .trace import Step

Continuation = Callable[["OpenSchedule"], object]  # one continuation of a branch

SHARED_BY_COPIES = ("_placed", "_taken")  # caches, valid for all copies


class Declined(ScheduleError):
    """A template's own refusal of a block, without a refused step."""


class NoSeed(Declined):
    """The error for a number without a seed in a schedule at its seeds."""


class Stage(StrEnum):
    """The treatment of a block that has no tiles of its own."""

    FUSED = "computed in a tile of another block"
    FACTORED = "reduced in parts"
    COMBINED = "combines partial results"
    UNROLLED = "walks constant tensors, which are unrolled"
    BOUND = "bound to the threads of a GPU"
    VIEW = "a copy that stands for an array in another form until all loops are made"
    DONE = "scheduled by a rule that leaves it to no other"


@dataclass(frozen=True, slots=True)
class Tiled:
    """A block whose loops were cut into levels, and its annotations that are still open.

    `levels` has the loops of each level, outermost first. The loops of the last `tile` levels are the register tile: unrolled,
    the last one a vector. `depths` are the options for the number of outer loops that threads share. At the seed it is `shared`
    (0: one thread; None: the first legal option). `uneven` marks iterations of unequal time. Below the loop `pragma` reductions
    may be unrolled, at the seed into `statements`. Producers of the block may be computed at the loops `places`. `operands` has
    the ways of packing.
    """

    levels: tuple[tuple[str, ...], ...]
    tile: int = 1
    depths: tuple[int, ...] = ()
    shared: int | None = None
    uneven: bool = False
    pragma: str | None = None
    statements: int = 0
    places: tuple[str, ...] = ()
    operands: Operands | None = None

    @staticmethod
    def of(s: OpenSchedule, block: str, levels: Sequence[Sequence[str]], tile: int, depths: Sequence[int], panels: bool) -> Tiled:
        """The default tiling of a block with these levels.

        Its innermost reduction may be unrolled, and its producers computed in the levels down to its first reduction.
        """
        reducing = axis_loops(s.block(block), *NOT_SPATIAL)
        reduced = [n for n, level in enumerate(levels) if reducing & set(level)]
        outer = [
            [*takewhile(lambda loop: loop not in reducing, level)] for level in levels[: reduced[0] + 1 if reduced else None]
        ]
        pragma = levels[reduced[-1]][0] if reduced else None
        places = tuple(level[-1] for level in outer if level)
        operands = Operands(gathered=not panels, panels=panels)
        return Tiled(tuple(map(tuple, levels)), tile, tuple(depths), pragma=pragma, places=places, operands=operands)


@dataclass(frozen=True, slots=True)
class Operands:
    """The ways in which a tiled block may read packed copies of its operands.

    `gathered` allows an operand whose vectors are strided to be read in place, too. `panels` allows packing in the outermost
    level, if each iteration of its loops reads another panel. With `by_blocks` an operand without the vectorised axis is packed
    block by block, in the last loop of the first two levels. With `in_front` all threads pack it before the nest. `seed` has the
    way of each operand at the seed.
    """

    gathered: bool = False
    panels: bool = True
    by_blocks: bool = False
    in_front: bool = False
    seed: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class View:
    """A view: `block` copies the array `of` to `buffer`, or, if `written`, `buffer` to the array."""

    block: str
    buffer: str
    of: str
    written: bool


@dataclass(frozen=True, slots=True)
class _Open:
    """Steps that the open trace replaces: `length` of them from number `start` on become `entry`."""

    start: int
    length: int
    entry: Step | Branch


class Alternatives(NamedTuple):
    """The values that a choice did not take, and the role of the choice."""

    role: Role
    options: tuple[Any, ...]


class OpenSchedule(Schedule):
    """A schedule of a function for a target, with open numbers; `finish` makes its `OpenTrace`.

    In a derivation block by block, `pending` are the unvisited blocks, last first. `rules` are the rules applied so far, and
    `scheduled` is the treatment of each block. A copy is independent.

    With `at_seed` no number is open: each choice takes the value of its seed, or that of `decisions` by its name. Then
    `alternatives` are the other values of the choices that were made.
    """

    def __init__(
        self,
        func: PrimFunc,
        target: Any,
        pending: Sequence[str] = (),
        at_seed: bool = False,
        decisions: Mapping[str, Any] | None = None,
    ):
        super().__init__(func)
        self.target = target
        self.at_seed = at_seed
        self.decisions = decisions
        self.alternatives: dict[str, Alternatives] = {}
        self.pending = list(pending)
        self.rules: list[str] = []
        self.scheduled: dict[str, Tiled | Stage] = {}  # treatment of a block, which closes it to other rules
        self.copies: dict[str, str] = {}  # by block: the block that copies from its accumulation buffer
        self.partial: set[str] = set()  # blocks that compute partial results
        self.tiles: list[Tile] = []
        self.choices: list[Choice] = []
        self.lengths: dict[tuple[str, str], list[int]] = {}  # the open lengths of an axis of a block, from `sizes`
        self.limits: list[ProductLimit] = []
        self.made: dict[str, Block] = {}
        self.views: list[View] = []
        self.columns = 0
        self._open: list[_Open] = []
        self._seeds: dict[int, int] = {}  # by column
        self._shared: dict[str, Choice] = {}  # choices of other ways of the branch under construction, by name
        self._before: tuple[PrimFunc, ...] = ()  # the function before each step
        self._placed: dict[int, tuple[Step, Step]] = {}  # by identity: a step, and it with loop positions
        self._taken: dict[tuple, tuple[PrimFunc, dict[str, Any], PrimFunc, Any]] = {}  # results of steps, see `_applied`
        if has_empty(func):
            self.drop_empty()
            left = {b.name for b in blocks(self.func)}
            self.pending = [name for name in pending if name in left]

    def copy(self) -> OpenSchedule:
        result = object.__new__(type(self))
        for name, value in vars(self).items():
            own = isinstance(value, (list, dict, set)) and name not in SHARED_BY_COPIES
            setattr(result, name, value.copy() if own else value)
        return result

    def undo(self, steps: int = 1, to: int | None = None) -> None:
        raise TypeError("an open schedule is not undone; `attempt` takes steps on a copy, and keeps them where all are legal")

    def take(self, other: OpenSchedule) -> None:
        """Take over the state of a copy of this schedule."""
        vars(self).update(vars(other))

    def attempt(self, build: Callable[..., object], *args: object) -> bool:
        """Call a function with a copy of this schedule, and take over the copy; False, without a change, if a step is refused."""
        new = self.copy()
        try:
            build(new, *args)
        except ScheduleError:
            return False
        self.take(new)
        return True

    def fired(self, rule: str, block: str) -> OpenSchedule:
        """A copy for a rule to change, with the rule and its block recorded in `rules`."""
        result = self.copy()
        result.rules.append(f"{block}: {rule}")
        return result

    # --- queries ---------------------------------------------------------------------------------------------------------

    def block(self, name: str) -> Block:
        return find_block(self.func, name)

    def loop(self, name: str) -> For:
        return find_loop(self.func, name)

    @property
    def constants(self) -> frozenset[str]:
        """Constant parameters and their views: values that depend on them alone are computed once."""
        return self._with_views(annotation(self.func.attrs, CONSTANTS, ()))

    @property
    def shared(self) -> frozenset[str]:
        """Constants that functions of other sizes read, too: their packed order must follow from them alone."""
        return self.constants if annotation(self.func.attrs, SHARED, False) else frozenset()

    @property
    def given(self) -> frozenset[str]:
        """Parameters and their views, which no stage computes."""
        return self._with_views(p.name for p in self.func.buffers)

    def _with_views(self, names: Iterable[str]) -> frozenset[str]:
        named = frozenset(names)
        return named | {v.buffer for v in self.views if v.of in named}

    def is_output(self, name: str) -> bool:
        return name in self.get_output_blocks()

    def axes(self, name: str) -> list[tuple[Iter, str]]:
        """The block's iteration variables that are bound to a single loop, each with that loop."""
        return [(it, it.binding.name) for it in self.block(name).iters if isinstance(it.binding, Var)]

    def driver(self, it: Iter) -> str | None:
        """The loop that alone drives an iteration variable, loops of one iteration ignored; None if there are several.

        Not for blocks below loops with open lengths: their stand-ins have one iteration, too.
        """
        units = {x.name: (0, 0) for x in loops(self.func.body) if x.extent.is_one}
        binding = simplify(it.binding, units)
        return binding.name if isinstance(binding, Var) else None

    def tiled(self, name: str) -> Tiled | None:
        """The tiling of a block; None if it is not tiled."""
        found = self.scheduled.get(name)
        return found if isinstance(found, Tiled) else None

    def vector_axes(self, block: str) -> set[str]:
        """The vectorised axes of a block."""
        return {t.axis for t in self.tiles if t.block == block and t.vector}

    def tiling(self, name: str) -> Tiled:
        found = self.tiled(name)
        assert found is not None
        return found

    def unscheduled(self) -> list[str]:
        """The blocks not yet scheduled, in program order."""
        return [name for name in named_below(self.func)[Block] if name not in self.scheduled]

    def is_unscheduled(self, name: str) -> bool:
        """True where a block of this name exists and is not yet scheduled."""
        return name not in self.scheduled and name in named_below(self.func)[Block]

    def untouched(self, name: str) -> bool:
        """True for a block that is not yet scheduled and whose loops are its axes."""
        return name not in self.scheduled and self.own_loops(name)

    def own_loops(self, name: str) -> bool:
        """True where the loops of a block are its axes, in order."""
        axes = self.axes(name)
        return len(axes) == len(self.block(name).iters) and self.get_loops(name) == [loop for _, loop in axes]

    def open_loops(self) -> set[str]:
        """The loops made by splits with open lengths."""
        found = [run.entry.results for run in self._open if isinstance(run.entry, Step) and run.entry.name == "split"]
        return {name for results in found for name in results}

    # --- open numbers ----------------------------------------------------------------------------------------------------

    def sizes(
        self,
        block: str,
        axis: str,
        count: int = 1,
        *,
        seed: Sequence[int] | None = None,
        like: tuple[str, str] | None = None,
        **described: Any,
    ) -> list[int]:
        """Open lengths of `count` inner levels of an axis of a block, outermost first, for `split`.

        `seed` has a number for each level. `like`, the block and axis of an earlier call, reuses its numbers. `described` are
        other fields of `Tile`, by default derived from the axis.
        """
        own = self.block(block)
        it = next((it for it in own.iters if it.var.name == axis), None)
        if it is not None:
            described = {"extent": extent(it), "reduce": not is_spatial(it), "bits": element_bits(own)} | described
            first = self.made.get(block) or next((b for b in blocks((*self._before, self.func)[0]) if b.name == block), own)
            if all(known.var.name != axis for known in first.iters):  # an axis that a step made
                self.made[block] = own
        lengths: list[int]
        if like is not None:
            columns, lengths = next(t.columns for t in self.tiles if (t.block, t.axis) == like), self.lengths[like]
        elif self.at_seed:
            if seed is None:
                raise NoSeed(f"the tile sizes of axis `{axis}` of `{block}` have no seed")
            columns, lengths = (), list(seed)
        else:
            columns = tuple(range(self.columns, self.columns + count))
            self.columns += count
            self._seeds |= zip(columns, seed or (), strict=seed is not None)
            lengths = [SymbolicInt.column(1, c) for c in columns]
        self.tiles.append(Tile(block=block, axis=axis, columns=columns, **described))
        self.lengths[block, axis] = lengths
        return list(lengths)

    def rename_tiled(self, block: str, new: str) -> None:
        """Assign the open lengths of a block that became several to one of these."""
        self.tiles = [replace(t, block=new) if t.block == block else t for t in self.tiles]
        self.lengths = {(new if b == block else b, axis): n for (b, axis), n in self.lengths.items()}

    def choose(self, name: str, options: Sequence[Any], *, seed: Any = None, **about: Unpack[ChoiceKey]) -> Any:
        """An open choice among a few values of any type, for an argument of a primitive; the default `seed` is the first value.

        `about` are the fields `block`, `role` and `buffer` of the `Choice`.
        """
        values = tuple(options)
        if self.at_seed:
            return self.decided(name, values, seed, about.get("role", Role.OTHER))
        numbers = all(type(v) is int for v in values)
        column = self._column(Choice(name, 0, values if numbers else tuple(range(len(values))), **about))
        if seed is not None:
            self._seeds[column] = seed if numbers else values.index(seed)
        return SymbolicInt.column(values[0], column) if numbers else SymbolicChoice.of(SymbolicInt.column(0, column), values)

    def decided(self, name: str, options: Sequence[Any], seed: Any = None, role: Role = Role.OTHER) -> Any:
        """The option taken at the seed: that of `decisions`, else `seed`, else the first one."""
        taken = next(iter(options), None) if seed is None else seed
        if self.decisions is not None:
            chosen = self.decisions.get(name)
            taken = chosen if chosen in options else taken
            self.alternatives[name] = Alternatives(role, tuple(o for o in options if o != taken))
        return taken

    def at_most(self, most: int, *numbers: int) -> None:
        """Bound the product of some open choices by `most` in every row; the first ones are reduced."""
        if not self.at_seed:
            self.limits.append(ProductLimit(tuple(c for n in numbers for c in columns_of(formula(n))), most))

    def _column(self, choice: Choice) -> int:
        """The column of a choice: a new one, or that of the equal choice in another way of the branch under construction."""
        self._need_new(choice.name)
        known = self._shared.get(choice.name)
        if known is not None and known.options == choice.options:
            column = known.column
        else:
            column = self.columns
            self.columns += 1
        self.choices.append(replace(choice, column=column))
        return column

    def _need_new(self, name: str) -> None:
        if any(c.name == name for c in self.choices):
            raise ValueError(f"there is a choice named {name!r} already")

    def branch(
        self,
        name: str,
        ways: Mapping[str, Continuation],
        *,
        weights: tuple[float, ...] = (),
        seed: str | None = None,
        **about: Unpack[ChoiceKey],
    ) -> int:
        """Let a column pick one of several ways, functions by label that take steps on a given schedule; returns their number.

        Ways that raise ScheduleError, or take the same steps as an earlier one, are dropped; a single way needs no column. The
        steps that follow are planned on the first way, and must be legal after all of them. Choices of one name in several ways
        share a column. `weights` are sampling probabilities, used if no way was dropped. `seed` is the label of the way at the
        seed, by default the first; if it is illegal, the next legal one is taken.
        """
        self._need_new(name)
        if self.at_seed:
            return self._way_at_seed(ways, self.decided(name, list(ways), seed, about.get("role", Role.OTHER)))
        here = len(self._steps), len(self._open)
        made: list[tuple[str, OpenSchedule, tuple[Step | Branch, ...]]] = []
        shared = dict(self._shared)
        columns, seeds = self.columns, dict(self._seeds)
        for label, way in ways.items():
            new = self.copy()
            new.columns, new._shared = columns, shared
            try:
                way(new)
            except ScheduleError:
                continue
            entries = new._entries(*here)
            if all(entries != others for _, _, others in made):
                made.append((label, new, entries))
                shared = shared | {c.name: c for c in new.choices[len(self.choices) :]}
                columns = new.columns
                seeds = new._seeds | seeds if label != seed else seeds | new._seeds
        if len(made) == 1:
            ((_, only, _),) = made
            only._shared = self._shared
            self.take(only)
        elif made:
            labels = tuple(label for label, _, _ in made)
            own = self._shared.get(name, Choice(name, columns, (), **about))
            own = replace(own, options=tuple(range(max(len(made), len(own.options)))))
            if len(own.options) == len(weights):
                own = replace(own, weights=weights)
            entry = Branch(own.column, tuple(entries for _, _, entries in made), labels)
            first = made[0][1]
            run = _Open(here[0], len(first._steps) - here[0], entry)
            tiles = {t: None for _, new, _ in made for t in new.tiles[len(self.tiles) :]}
            choices = {c.column: c for _, new, _ in made for c in new.choices[len(self.choices) :]}
            first.tiles, first.choices = [*self.tiles, *tiles], [*self.choices, own, *choices.values()]
            first.made = {name: block for _, new, _ in reversed(made) for name, block in new.made.items()}
            first._open, first._shared, first.columns = [*self._open, run], self._shared, max(columns, own.column + 1)
            first._seeds = {own.column: labels.index(seed) if seed in labels else 0} | seeds
            self.take(first)
        return len(made)

    def _way_at_seed(self, ways: Mapping[str, Continuation], seed: str | None) -> int:
        for label in sorted(ways, key=lambda label: label != seed):
            new = self.copy()
            try:
                ways[label](new)
            except NoSeed:
                raise
            except ScheduleError:
                continue
            self.take(new)
            return 1
        return 0

    # --- sampling: open numbers instead of draws, with the decision as seed -------------------------------------------------

    def sample_perfect_tile(  # type: ignore[override]
        self, loop: str, n: int, max_innermost_factor: int = 16, decision: list[int] | None = None
    ) -> list[Any]:
        """Open factors for `split` that divide a loop's extent; the outermost is None."""
        return self._sampled(loop, n, max_innermost_factor, decision, perfect=True)

    def sample_tile(self, loop: str, n: int, max_innermost_factor: int = 16, decision: list[int] | None = None) -> list[Any]:  # type: ignore[override]
        """Open factors for `split` that need not divide the extent of a loop."""
        return self._sampled(loop, n, max_innermost_factor, decision, perfect=False)

    def sample_partitioned_tile(  # type: ignore[override]
        self, loop: str, n: int, partition_pos: int = 0, innerpart_factor: int = 1, decision: list[int] | None = None
    ) -> list[Any]:
        """Open factors for `split` that divide a loop's extent, the last a multiple of `innerpart_factor`."""
        refusing = REGISTRY["sample_partitioned_tile"]
        refusing(self._func, loop, n, partition_pos, innerpart_factor, decision, np.random.default_rng(0))
        factor = innerpart_factor if partition_pos and n > 1 else 1  # from number 0 on, the product is the extent
        if decision is not None and decision[-1] % factor:
            raise ScheduleError(f"sample_partitioned_tile: the last of {decision} is no multiple of {factor}")
        seed = None if decision is None else [*decision[:-1], decision[-1] // factor]
        tiles = self._sampled(loop, n, -1, seed, perfect=True, times=factor)
        return tiles if factor == 1 else [*tiles[:-1], tiles[-1] * factor]

    def _random(self, decision: Any) -> np.random.Generator | None:
        """None: a sampling step without a method here needs its decision."""
        return None

    def _sampled(self, loop: str, n: int, limit: int, decision: Sequence[int] | None, perfect: bool, times: int = 1) -> list[Any]:
        below = [b for b in walk_stmts(self.loop(loop)) if isinstance(b, Block)]
        driven = [(b, it) for b in below for it in b.iters if it.binding == Var(loop)]
        length = self.loop(loop).extent
        if not driven or not isinstance(length, Const) or loop in self.open_loops():
            raise ScheduleError(
                f"the loop `{loop}` drives no axis of a block alone", hint="sample the tiles of a loop before it is split"
            )
        block, it = driven[0]
        inner = decision[1:] if decision is not None else None
        most = None if limit == -1 or n == 1 else limit
        tiled: dict[str, Any] = {
            "extent": extent(it) // times,
            "unit": times,
            "perfect": perfect,
            "limit": most,
            "registers": False,
        }
        sizes = self.sizes(block.name, it.var.name, n - 1, seed=inner, **tiled)
        return [None, *sizes]

    def sample_categorical(self, candidates: list[Any], probs: list[float], decision: int | None = None) -> Any:  # type: ignore[override]
        """An open choice among some values, for an argument of a primitive; steps that depend on it need `branch`."""
        name = f"choice {sum(c.name.startswith('choice ') for c in self.choices)}"
        found = self.choose(name, candidates, seed=None if decision is None else candidates[decision])
        if not self.at_seed:
            self.choices[-1] = replace(self.choices[-1], weights=tuple(probs))
        return found

    # --- steps -----------------------------------------------------------------------------------------------------------

    def _apply(self, name: str, *args: Any, **kwargs: Any) -> Any:
        before = self._func
        result = super()._apply(name, *map_leaves(args, _stand_in), **map_leaves(kwargs, _stand_in))
        self._before = (*self._before, before)
        if _is_open(args) or _is_open(kwargs):
            self._note_open(name, args, kwargs)
        return result

    def _applied(self, known: Primitive, bound: dict[str, Any]) -> tuple[PrimFunc, Any]:
        """The function after a step, and the step's result, cached: ways of a branch often repeat steps on the same function."""
        if known.randomness in bound:
            return super()._applied(known, bound)
        key = id(self._func), known.name, repr(bound)
        if key not in self._taken:
            self._taken[key] = self._func, bound, *super()._applied(known, bound)
        *_, func, result = self._taken[key]
        return func, list(result) if isinstance(result, list) else result

    def _note_open(self, name: str, args: tuple, kwargs: dict[str, Any]) -> None:
        """Record the open arguments of the last step."""
        bound = REGISTRY[name].signature.bind(*args, **kwargs).arguments
        holes = {k: map_leaves(v, _hole) for k, v in bound.items() if _is_open(v)}
        self._open.append(_Open(len(self._steps) - 1, 1, self._steps[-1].with_args(**holes)))

    def _entries(self, start: int = 0, opened: int = 0, named: bool = False) -> tuple[Step | Branch, ...]:
        """The entries of the open trace from step `start` on; `opened` is the first entry of `_open` there.

        Loops are given by position, but with `named` by name up to the first branch.
        """
        entries: list[Step | Branch] = []

        def add(step: Step | Branch, n: int) -> None:
            nonlocal named
            named = named and not isinstance(step, Branch)
            entries.append(step if named or isinstance(step, Branch) else self._with_positions(step, n))

        for run in self._open[opened:]:
            for n in range(start, run.start):
                add(self._steps[n], n)
            add(run.entry, run.start)
            start = run.start + run.length
        for n in range(start, len(self._steps)):
            add(self._steps[n], n)
        return tuple(entries)

    def _with_positions(self, step: Step, n: int) -> Step:
        """Step number `n`, with its loops by position."""
        if id(step) not in self._placed:
            self._placed[id(step)] = step, with_loop_positions(step, self._before[n])
        return self._placed[id(step)][1]

    def plain(self, func: PrimFunc) -> Schedule:
        """This schedule, made with `at_seed`, as a plain schedule of `func`."""
        result = Schedule(func)
        result._func, result._steps = self._func, self._steps
        return result

    def finish(self, name: str, func: PrimFunc) -> OpenTrace:
        """The open trace of this schedule of `func`."""
        entries = self._entries(named=not any(t.padded for t in self.tiles))
        seeded = all(c in self._seeds for t in self.tiles for c in t.columns)
        row = [self._seeds.get(c, 1) for c in range(self.columns)]
        for choice in self.choices:
            row[choice.column] = self._seeds.get(choice.column, choice.options[0])
        found = OpenTrace(
            name, func, tuple(self.rules), entries, tuple(self.tiles), tuple(self.choices), self.columns, tuple(self.limits),
            tuple(self.made.values()),
        )  # fmt: skip
        return replace(found, seed=tuple(found.canonical(np.array([row], np.int64))[0].tolist())) if seeded else found


def _is_open(value: Any) -> bool:
    return any(isinstance(v, SymbolicInt) for v in leaves(value))


def _stand_in(value: Any) -> Any:
    """The stand-in of an open value; other values unchanged."""
    if isinstance(value, SymbolicChoice):
        return value.values[int(value)]
    return int(value) if isinstance(value, SymbolicInt) else value


def _hole(value: Any) -> Any:
    """The hole of an open value; other values unchanged."""
    if isinstance(value, SymbolicInt):
        return Hole(value.formula, value.values if isinstance(value, SymbolicChoice) else ())
    return value


def extent(it: Iter) -> int:
    """The constant extent of an axis; ValueError where it is symbolic."""
    if not isinstance(it.extent, Const):
        raise ValueError(f"axis {it.var.name} has the symbolic extent {it.extent}; tuning needs constant shapes")
    return int(it.extent.value)


def computed_bits(dtype: str) -> int:
    """The width in bits in which a dtype is computed: 32 for half precision."""
    return max(32, dtypes.bits(dtype)) if dtypes.is_float(dtype) else dtypes.bits(dtype)


def element_bits(block: Block) -> int:
    """The width in bits of a block's widest computed element, which gives the number of vector lanes."""
    return max(computed_bits(s.buffer.dtype) for s in stores(block.body))


def lane_bits(block: Block) -> int:
    """The width in bits of a lane in a block of few operations: 32 at least, as rows of bytes may not fill wider vectors."""
    return max(32, element_bits(block))


def is_spatial(it: Iter) -> bool:
    return it.axis is Axis.SPATIAL
