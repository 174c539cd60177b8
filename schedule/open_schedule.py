"""Open schedules: schedules whose numbers may stay open.

    def register_tile(s: OpenSchedule) -> None:
        i, j, k = s.get_loops("C")
        (rows,) = s.sizes("C", "v_i", seed=(4,))  # the length of an inner level of that axis
        i_0, i_1 = s.split(i, [None, rows])
        s.annotate(k, "pragma_auto_unroll_max_step", s.choose("unroll", (0, 16, 64)))
        s.branch("threads", {"one": lambda s: None, "all": lambda s: s.parallel(i_0)})

An open number is an integer that remembers its column (`tir.arith.symbolic.SymbolicInt`): it can be computed with, and given to
any primitive. Until a row says otherwise it has a stand-in, 1 for a tile size and the first option of a choice. Nothing may be
concluded from stand-ins: the steps have to be legal with all numbers. With `at_seed` every number is its seed instead, of a
branch only the run that the seed picks is taken, and what comes out is a plain schedule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import takewhile
from typing import Any, Unpack

import numpy as np

from tir import dtypes
from tir.arith.simplify import simplify
from tir.arith.symbolic import SymbolicChoice, SymbolicInt, columns_of, formula
from tir.constants import CONSTANTS
from tir.empty import has_empty
from tir.ir import NOT_SPATIAL, Axis, Block, Const, For, Iter, PrimFunc, Var, annotation
from tir.traverse import blocks, driving, loops, stores, walk_stmts

from .error import ScheduleError
from .loop_positions import with_loop_positions
from .open_trace import About, Branch, Choice, Hole, OpenTrace, ProductLimit, Tile
from .primitive import REGISTRY, Primitive, find_block, find_loop, named_below
from .random_variables import leaves, map_leaves
from .schedule import Schedule
from .trace import Step

Way = Callable[["OpenSchedule"], object]  # a way to go on

SHARED_BY_COPIES = ("_placed", "_taken")  # what holds of one copy holds of the others


class Declined(ScheduleError):
    """A template's own answer that it is not for a block: no step was refused."""


class NoSeed(Declined):
    """A number has no seed, where a schedule is made at its seeds."""


class Stage(StrEnum):
    """The treatment of a block that has no tiles of its own."""

    FUSED = "computed in a tile of another block"
    ROW = "computed row by row in the loops of its consumers"
    LANES = "reduced in the lanes of vectors"
    FACTORED = "reduced in parts"
    COMBINED = "combines partial results"
    UNROLLED = "walks constant tensors, which are unrolled"
    BOUND = "bound to the threads of a GPU"
    VIEW = "a copy that stands for an array in another form until all loops are made"
    DONE = "scheduled by a rule that leaves it to no other"


@dataclass(frozen=True, slots=True)
class Tiled:
    """A block whose loops were cut into levels, and what of it is left to annotation.

    `levels` has the loops of each level, outermost first; the loops of the last `tile` of them are the register tile: unrolled,
    the last one a vector. Threads may share as many outer loops as one of `depths` says; at the seed it is `shared`, 0 for one
    thread, or where that is None the first that is legal; `uneven` says that their iterations take unequal time. `pragma` is the
    loop below which reductions may be unrolled, at the seed into `statements`. Producers of the block may be computed at the
    loops `places`. `operands` says how packed copies are made.
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
        """A block with these levels, whose innermost reduction may be unrolled, and in whose outer levels, down to its first
        reduction, what feeds it may be computed; operands may be packed in front, and with `panels` in the outermost level."""
        reducing = driving(s.block(block), *NOT_SPATIAL)
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

    `gathered`: one whose vectors lie across memory may also be read as it is. Where the outermost level has loops each iteration
    of which reads another panel of an operand, `panels` lets it be packed there. With `by_blocks` an operand without the
    vectorised axis is packed block by block: in the last loop of the first two levels, or with `in_front` before the nest, by all
    threads. `seed` has the way of each operand at the seed.
    """

    gathered: bool = False
    panels: bool = True
    by_blocks: bool = False
    in_front: bool = False
    seed: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class View:
    """A `block` that copies the array `of` to `buffer`, or, where that is `written`, back, while schedules are made."""

    block: str
    buffer: str
    of: str
    written: bool


@dataclass(frozen=True, slots=True)
class _Open:
    """Steps that the open trace has otherwise: `length` of them from number `start` on become `entry`."""

    start: int
    length: int
    entry: Step | Branch


class OpenSchedule(Schedule):
    """A schedule of a function for a target, with open numbers; `finish` makes its `OpenTrace`.

    For derivations that go block by block, `pending` are the blocks not yet visited, last first, `rules` the rules applied so
    far, and `scheduled` what became of each block. A copy is independent.
    """

    def __init__(self, func: PrimFunc, target: Any, pending: Sequence[str] = (), at_seed: bool = False):
        super().__init__(func)
        self.target = target
        self.at_seed = at_seed
        self.pending = list(pending)
        self.rules: list[str] = []
        self.scheduled: dict[str, Tiled | Stage] = {}  # what was made of a block; no other rule shall take it
        self.copies: dict[str, str] = {}  # of a block, the copy out of the buffer in which it accumulates
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
        self._shared: dict[str, Choice] = {}  # made in other runs of the branch that is being made, by name
        self._before: tuple[PrimFunc, ...] = ()  # the function before each step
        self._placed: dict[int, tuple[Step, Step]] = {}  # steps by identity, and these by place; copies share it
        self._taken: dict[tuple, tuple[PrimFunc, dict[str, Any], PrimFunc, Any]] = {}  # steps, see `_applied`; copies share it
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
        """Call a function with a copy of this schedule, and become that if all its steps are legal; says whether they are."""
        new = self.copy()
        try:
            build(new, *args)
        except ScheduleError:
            return False
        self.take(new)
        return True

    def fired(self, rule: str, block: str) -> OpenSchedule:
        """A copy for a rule to change, on which it is recorded that the rule was applied to the block."""
        result = self.copy()
        result.rules.append(f"{block}: {rule}")
        return result

    # --- looking ---------------------------------------------------------------------------------------------------------

    def block(self, name: str) -> Block:
        return find_block(self.func, name)

    def loop(self, name: str) -> For:
        return find_loop(self.func, name)

    @property
    def constants(self) -> frozenset[str]:
        """Parameters that are the same at every call, and their views: what depends on them alone is computed once."""
        return self._with_views(annotation(self.func.attrs, CONSTANTS, ()))

    @property
    def given(self) -> frozenset[str]:
        """Parameters and their views: no stage makes them."""
        return self._with_views(p.name for p in self.func.buffers)

    def _with_views(self, names: Iterable[str]) -> frozenset[str]:
        named = frozenset(names)
        return named | {v.buffer for v in self.views if v.of in named}

    def is_output(self, name: str) -> bool:
        return name in self.get_output_blocks()

    def axes(self, name: str) -> list[tuple[Iter, str]]:
        """The block's iteration variables, each with the loop that drives it; those driven by more than a loop are left out."""
        return [(it, it.binding.name) for it in self.block(name).iters if isinstance(it.binding, Var)]

    def driver(self, it: Iter) -> str | None:
        """The loop that alone drives an iteration variable; loops of one iteration beside it don't count.

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
        """The axes of a block whose tiles are run in vectors."""
        return {t.axis for t in self.tiles if t.block == block and t.vector}

    def tiling(self, name: str) -> Tiled:
        """The tiling of a block that is tiled."""
        found = self.tiled(name)
        assert found is not None
        return found

    def left(self) -> list[str]:
        """The blocks not yet scheduled, in program order."""
        return [name for name in named_below(self.func)[Block] if name not in self.scheduled]

    def is_left(self, name: str) -> bool:
        """True where there is a block of this name that is not yet scheduled."""
        return name not in self.scheduled and name in named_below(self.func)[Block]

    def untouched(self, name: str) -> bool:
        """True where nothing has taken a block, and it has its loops to itself, as it was written."""
        return name not in self.scheduled and self.own_loops(name)

    def own_loops(self, name: str) -> bool:
        """True where the loops of a block are its axes, as it was written."""
        axes = self.axes(name)
        return len(axes) == len(self.block(name).iters) and self.get_loops(name) == [loop for _, loop in axes]

    def open_loops(self) -> set[str]:
        """The loops that a split with open lengths made."""
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
        """Open lengths of `count` inner levels of an axis of a block, outermost first, for `split`: the outermost level follows.

        `seed` has a number for each; with `like`, the block and axis of an earlier call, they are the numbers of that.
        `described` are the other fields of `Tile`, by default those of the axis as it is.
        """
        it = next((it for it in self.block(block).iters if it.var.name == axis), None)
        if it is not None:
            described = {"extent": extent(it), "reduce": not is_spatial(it), "bits": element_bits(self.block(block))} | described
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
        """Have the open lengths of a block, which became several, be those of one of them."""
        self.tiles = [replace(t, block=new) if t.block == block else t for t in self.tiles]
        self.lengths = {(new if b == block else b, axis): n for (b, axis), n in self.lengths.items()}

    def choose(self, name: str, options: Sequence[Any], *, seed: Any = None, **about: Unpack[About]) -> Any:
        """One of a few values of any kind, for an argument of a primitive; `seed`, by default the first, is one of them. `about`
        are the fields `block`, `role` and `buffer` of the `Choice`."""
        values = tuple(options)
        if self.at_seed:
            return values[0] if seed is None else seed
        numbers = all(type(v) is int for v in values)
        column = self._column(Choice(name, 0, values if numbers else tuple(range(len(values))), **about))
        if seed is not None:
            self._seeds[column] = seed if numbers else values.index(seed)
        return SymbolicInt.column(values[0], column) if numbers else SymbolicChoice.of(SymbolicInt.column(0, column), values)

    def at_most(self, most: int, *numbers: int) -> None:
        """Have the product of some open choices be at most so much in every row; the first ones give way."""
        if not self.at_seed:
            self.limits.append(ProductLimit(tuple(c for n in numbers for c in columns_of(formula(n))), most))

    def _column(self, choice: Choice) -> int:
        """The column of a choice: a new one, or that of the choice of this name in another run of the branch being made."""
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
        ways: Mapping[str, Way],
        *,
        weights: tuple[float, ...] = (),
        seed: str | None = None,
        **about: Unpack[About],
    ) -> int:
        """Let a column pick one of several ways to go on: functions, by their labels, that change the schedule they are given.

        Ways that raise ScheduleError are left out, as are those that take the same steps as an earlier one; where one is left
        there is no column. The steps that follow are planned on the first way, and have to be legal after all of them. Choices of
        one name in several ways share a column. Where all ways are there, `weights` say how often each is drawn; `seed` is the
        label of the way that is taken at the seed, the first by default, or the next legal one. Returns how many there are.
        """
        self._need_new(name)
        if self.at_seed:
            return self._way_at_seed(ways, seed)
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
            first._open, first._shared, first.columns = [*self._open, run], self._shared, max(columns, own.column + 1)
            first._seeds = {own.column: labels.index(seed) if seed in labels else 0} | seeds
            self.take(first)
        return len(made)

    def _way_at_seed(self, ways: Mapping[str, Way], seed: str | None) -> int:
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

    # --- sampling: nothing is drawn, the decision is the seed ---------------------------------------------------------------

    def sample_perfect_tile(  # type: ignore[override]
        self, loop: str, n: int, max_innermost_factor: int = 16, decision: list[int] | None = None
    ) -> list[Any]:
        """Open factors for `split` that divide a loop's extent; the outermost, None, follows from the others."""
        return self._sampled(loop, n, max_innermost_factor, decision, perfect=True)

    def sample_tile(self, loop: str, n: int, max_innermost_factor: int = 16, decision: list[int] | None = None) -> list[Any]:  # type: ignore[override]
        """Open factors for `split` that need not divide the extent of a loop."""
        return self._sampled(loop, n, max_innermost_factor, decision, perfect=False)

    def sample_partitioned_tile(  # type: ignore[override]
        self, loop: str, n: int, partition_pos: int = 0, innerpart_factor: int = 1, decision: list[int] | None = None
    ) -> list[Any]:
        """Open factors for `split` that divide a loop's extent; of the inner part, it is the last that is a multiple of
        `innerpart_factor`."""
        refusing = REGISTRY["sample_partitioned_tile"]
        refusing(self._func, loop, n, partition_pos, innerpart_factor, decision, np.random.default_rng(0))
        factor = innerpart_factor if partition_pos and n > 1 else 1  # from number 0 on, the product is the extent
        if decision is not None and decision[-1] % factor:
            raise ScheduleError(f"sample_partitioned_tile: the last of {decision} is no multiple of {factor}")
        seed = None if decision is None else [*decision[:-1], decision[-1] // factor]
        tiles = self._sampled(loop, n, -1, seed, perfect=True, times=factor)
        return tiles if factor == 1 else [*tiles[:-1], tiles[-1] * factor]

    def _random(self, decision: Any) -> np.random.Generator | None:
        """Nothing: a step that draws, and has no method here, needs its decision."""
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
        """One of some values, for an argument of a primitive: what steps are taken must not depend on it (see `branch`)."""
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
        """The ways of branches, and trials before them, take the same steps of the same function: these are computed once."""
        if known.randomness in bound:
            return super()._applied(known, bound)
        key = id(self._func), known.name, repr(bound)
        if key not in self._taken:
            self._taken[key] = self._func, bound, *super()._applied(known, bound)
        *_, func, result = self._taken[key]
        return func, list(result) if isinstance(result, list) else result

    def _note_open(self, name: str, args: tuple, kwargs: dict[str, Any]) -> None:
        """Note which arguments of the last step are open."""
        bound = REGISTRY[name].signature.bind(*args, **kwargs).arguments
        holes = {k: map_leaves(v, _hole) for k, v in bound.items() if _is_open(v)}
        self._open.append(_Open(len(self._steps) - 1, 1, self._steps[-1].with_args(**holes)))

    def _entries(self, start: int = 0, opened: int = 0, named: bool = False) -> tuple[Step | Branch, ...]:
        """The trace as the open trace has it, from step `start` on, of which `_open` knows from its entry `opened` on.

        Loops are given by place, up to the first branch by name if `named` is set.
        """
        entries: list[Step | Branch] = []

        def add(step: Step | Branch, n: int) -> None:
            nonlocal named
            named = named and not isinstance(step, Branch)
            entries.append(step if named or isinstance(step, Branch) else self._by_place(step, n))

        for run in self._open[opened:]:
            for n in range(start, run.start):
                add(self._steps[n], n)
            add(run.entry, run.start)
            start = run.start + run.length
        for n in range(start, len(self._steps)):
            add(self._steps[n], n)
        return tuple(entries)

    def _by_place(self, step: Step, n: int) -> Step:
        """A step, taken as number `n`, with its loops by place instead of by name."""
        if id(step) not in self._placed:
            self._placed[id(step)] = step, with_loop_positions(step, self._before[n])
        return self._placed[id(step)][1]

    def plain(self, func: PrimFunc) -> Schedule:
        """The schedule of `func` that this one is at its seeds."""
        result = Schedule(func)
        result._func, result._steps = self._func, self._steps
        return result

    def finish(self, name: str, func: PrimFunc) -> OpenTrace:
        """The open trace of `func` that this schedule has become."""
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
    """A plain value for an open one."""
    if isinstance(value, SymbolicChoice):
        return value.values[int(value)]
    return int(value) if isinstance(value, SymbolicInt) else value


def _hole(value: Any) -> Any:
    """A hole for an open value."""
    if isinstance(value, SymbolicInt):
        return Hole(value.formula, value.values if isinstance(value, SymbolicChoice) else ())
    return value


def extent(it: Iter) -> int:
    """The constant extent of an axis; ValueError where it is symbolic."""
    if not isinstance(it.extent, Const):
        raise ValueError(f"axis {it.var.name} has the symbolic extent {it.extent}; tuning needs constant shapes")
    return int(it.extent.value)


def computed_bits(dtype: str) -> int:
    """The width in which elements of a type are computed: of half precision 32 bits."""
    return max(32, dtypes.bits(dtype)) if dtypes.is_float(dtype) else dtypes.bits(dtype)


def element_bits(block: Block) -> int:
    """The width of the elements that a block computes, in which vector lanes are counted."""
    return max(computed_bits(s.buffer.dtype) for s in stores(block.body))


def is_spatial(it: Iter) -> bool:
    return it.axis is Axis.SPATIAL
