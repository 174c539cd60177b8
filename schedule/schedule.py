"""The schedule of a function: primitives applied one after another, recorded in a trace."""

from __future__ import annotations

import inspect
import itertools
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Concatenate

import numpy as np

from tir.analysis.regions import with_regions
from tir.display import code
from tir.ir import Block, Buffer, For, PrimFunc, need_func
from tir.nearest import did_you_mean, no_such
from tir.script.diff import diff
from tir.script.module import Module
from tir.traverse import fresh, loaded_names, stored_names, substatements

from .error import ScheduleError
from .primitive import REGISTRY, ArgumentKind, P, Primitive, R, block_at, blocks_below, find_block, loops_of, named_at
from .primitives.blocks.blockize import blockize
from .primitives.blocks.reorder_block_iter_var import reorder_block_iter_var
from .primitives.blocks.simplify_formula import simplify_formula
from .primitives.blocks.tensorize import tensorize
from .primitives.blocks.transform_block_layout import transform_block_layout
from .primitives.buffers.annotate_buffer_access import annotate_buffer_access
from .primitives.buffers.cache_index import cache_index
from .primitives.buffers.cache_inplace import cache_inplace
from .primitives.buffers.cache_read import cache_read
from .primitives.buffers.cache_write import cache_write
from .primitives.buffers.lift_alloc import lift_alloc
from .primitives.buffers.pack import pack
from .primitives.buffers.read_at import read_at, write_at
from .primitives.buffers.reindex import reindex, reindex_cache_read, reindex_cache_write
from .primitives.buffers.rolling_buffer import rolling_buffer
from .primitives.buffers.set_axis_separator import set_axis_separator
from .primitives.buffers.set_scope import set_scope
from .primitives.buffers.stage_mem import stage_mem
from .primitives.buffers.stage_padding import stage_padding
from .primitives.buffers.storage_align import storage_align
from .primitives.buffers.transform_layout import transform_layout
from .primitives.buffers.unsafe_set_dtype import unsafe_set_dtype
from .primitives.buffers.write_in_place import write_in_place
from .primitives.guards.add_guard import add_guard
from .primitives.guards.assume import assume
from .primitives.guards.hoist_predicate import hoist_predicate
from .primitives.guards.peel import peel
from .primitives.guards.trim import trim
from .primitives.loops.add_unit_loop import add_unit_loop
from .primitives.loops.annotate import annotate, unannotate
from .primitives.loops.bind import bind
from .primitives.loops.drop_empty import drop_empty
from .primitives.loops.fuse import fuse
from .primitives.loops.loop_partition import loop_partition
from .primitives.loops.merge import merge
from .primitives.loops.parallel import parallel
from .primitives.loops.reorder import reorder
from .primitives.loops.serial import serial
from .primitives.loops.split import split
from .primitives.loops.tile import tile
from .primitives.loops.unroll import unroll
from .primitives.loops.vectorize import vectorize
from .primitives.placement.compute_at import compute_at
from .primitives.placement.compute_inline import compute_inline
from .primitives.placement.reverse_compute_at import reverse_compute_at
from .primitives.placement.reverse_compute_inline import reverse_compute_inline
from .primitives.reductions.decompose_padding import decompose_padding
from .primitives.reductions.decompose_reduction import decompose_reduction
from .primitives.reductions.factor_out import factor_out
from .primitives.reductions.fuse_reduction_epilogue import fuse_reduction_epilogue
from .primitives.reductions.make_unsigned import make_unsigned
from .primitives.reductions.pad_einsum import pad_einsum
from .primitives.reductions.rfactor import rfactor
from .primitives.reductions.rolling_update import rolling_update
from .primitives.sampling.sample import (
    sample_categorical,
    sample_compute_location,
    sample_partitioned_tile,
    sample_perfect_tile,
    sample_tile,
)
from .random_variables import (
    Known,
    as_variable,
    can_be_named,
    leaves,
    map_leaves,
    of_function,
    references,
    with_references,
    with_values,
)
from .rewriting.edits import statements_of
from .rewriting.index_map import INDEX_MAP, IndexMap, function_text, parse_index_map
from .rewriting.layouts import buffer_argument
from .trace import Step, Trace


def method(taken: Primitive[P, R]) -> Callable[Concatenate[Schedule, P], R]:
    """The method of `Schedule` that takes a primitive as a step, with its arguments and result but for the function."""

    def step(self: Schedule, *args: P.args, **kwargs: P.kwargs) -> R:
        bound = taken.bound(args, kwargs)
        bound.apply_defaults()
        given = bound.arguments
        self._work_where(given)
        given |= {k: v.name for k, v in given.items() if isinstance(v, Buffer) and ArgumentKind.BUFFER in taken.kinds[k]}
        for name in taken.functions:
            if _takes_index_map(taken, name) or callable(given[name]):
                given[name] = self._function(taken, name, given)
        if (source := taken.randomness) is not None and given[source] is None:
            given[source] = self._random(given[taken.decision] if taken.decision else None)
        return self._known_here(self._apply(taken.name, *bound.args, **bound.kwargs))

    step.__name__, step.__qualname__, step.__doc__ = taken.name, f"Schedule.{taken.name}", taken.__doc__
    this = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    _, made = typing.get_args(taken.types["return"])
    shown = [p for p in taken.parameters if p.name != taken.randomness]  # a schedule has one of its own
    if taken.decision is not None:
        made, _ = typing.get_args(made)
    step.__signature__ = inspect.Signature([this, *shown], return_annotation=made)  # type: ignore[attr-defined]
    return step


def sampling_method(taken: Primitive[P, tuple[R, Any]]) -> Callable[Concatenate[Schedule, P], R]:
    """The method that takes a primitive with a decision as a step; it returns the chosen value alone."""
    return typing.cast(Any, method(taken))


_State = tuple[PrimFunc, PrimFunc, tuple[Step, ...]]  # a function of a module originally and now, and the steps between

# Primitives by the names that they have in texts, in Halide, Exo or OpenMP.
OTHER_NAMES = {
    "swap": "reorder", "interchange": "reorder", "permute": "reorder", "strip_mine": "split", "divide_loop": "split",
    "reorder_loops": "reorder", "simd": "vectorize", "unroll_loop": "unroll", "collapse": "fuse", "inline": "compute_inline",
}  # fmt: skip


class Schedule:
    """A function being rewritten step by step. Loops and blocks are given by name, and new ones are returned by name.

    `func` is the current function and `trace` the steps so far; a call that raises ScheduleError leaves both unchanged. The
    `sample_*` steps draw from `seed`, an integer or a generator. Without it they differ from run to run, but their decisions are
    in the trace.

    It is made of a PrimFunc or of a module, of which it rewrites `main`, or the only function. In a module of several functions
    each has its own trace. `work_on`, `get_block(name, func_name)` and the names that these return select the function.
    """

    def __init__(self, func: PrimFunc | Mapping[str, PrimFunc], seed: int | np.random.Generator | None = None):
        module = func if isinstance(func, Mapping) and func else {"main": need_func(func, "Schedule")}
        self._states: dict[str, _State] = {name: (need_func(f, "Schedule"),) * 2 + ((),) for name, f in module.items()}
        self._place = "main" if "main" in module else next(iter(module)) if len(module) == 1 else None
        self._initial, self._func, self._steps = self._states[self._place or next(iter(module))]
        if not isinstance(seed, (int, np.integer, np.random.Generator, type(None))):
            raise TypeError(f"Schedule: the seed must be an integer or a np.random.Generator, got {seed!r}")
        if isinstance(seed, (int, np.integer)) and seed < 0:
            raise ValueError(f"Schedule: the seed must be at least 0, got {seed}")
        self._seed = seed
        self._rng: np.random.Generator | None = None

    @property
    def func(self) -> PrimFunc:
        """The current function."""
        self._work_where({})
        return self._func

    @property
    def original(self) -> PrimFunc:
        """The function before the first step."""
        return self._initial

    @property
    def mod(self) -> Module:
        """The current functions of the module that this schedule was made of; a single function is its `main`."""
        here = {} if self._place is None else {self._place: self._func}
        return Module({name: func for name, (_, func, _) in self._states.items()} | here)

    @property
    def state(self) -> Schedule:
        """The schedule itself: programs written for TVM read `state.mod`."""
        return self

    def work_on(self, name: str) -> None:
        """Select the function of the module that further steps rewrite, and that `func` and `trace` belong to."""
        if name not in self._states:
            raise ValueError(f"work_on: the module has no function {name!r}; it has {', '.join(self._states)}")
        if self._place is not None:
            self._states[self._place] = self._initial, self._func, self._steps
        self._initial, self._func, self._steps = self._states[name]
        self._place = name

    def _work_where(self, given: dict[str, Any]) -> None:
        """Select the function that the names among the arguments belong to; ValueError if they leave it open."""
        if len(self._states) == 1:
            return
        functions = sorted({v.function for v in leaves(given) if isinstance(v, Known) and v.function})
        if len(functions) > 1:
            raise ValueError(f"names of several functions: {', '.join(functions)}")
        if functions and functions[0] != self._place:
            self.work_on(functions[0])
        if self._place is None:
            known = ", ".join(self._states)
            raise ValueError(f"the module of this schedule has several functions, {known}: choose one by work_on(name)")

    def _known_here(self, result: Any) -> Any:
        """The result of a step or query; in a module of several functions, its names remember their function."""
        if len(self._states) == 1 or self._place is None:
            return result
        place = self._place
        return map_leaves(result, lambda v: of_function(v, place) if isinstance(v, str) else v)

    @property
    def trace(self) -> Trace:
        """The steps taken so far."""
        return Trace(self._steps)

    @property
    def script(self) -> str:
        """The current function, in the script dialect."""
        return self._func.script()

    def show(self) -> None:
        """Print the current function."""
        self._func.show()

    def explore(self, path: str | Path, target: Any = "llvm", *, measure: bool = True) -> None:
        """Write a page that steps through this schedule: script changes, loop nests, an animation.

        With `measure` it includes the time of each step on the target.
        """
        import tir

        tir.explore(self, path, target, measure=measure)

    def copy(self) -> Schedule:
        """An independent schedule that continues from here, with a random generator of its own."""
        random = None if self._seed is None else self._random(None)
        result = Schedule(self._initial, None if random is None else random.spawn(1)[0])
        result._func, result._steps, result._place, result._states = self._func, self._steps, self._place, dict(self._states)
        return result

    def checkpoint(self) -> int:
        """The number of steps taken so far, an argument for `undo(to=...)` and `diff`."""
        return len(self._steps)

    def undo(self, steps: int = 1, to: int | None = None) -> None:
        """Undo the last steps, or all since a `checkpoint`, random draws included; ValueError if there are fewer."""
        if to is None:
            to = len(self._steps) - steps if isinstance(steps, int) else steps
        before = self._at_step(to, "undo")
        self._func, self._steps = before._func, before._steps

    def diff(self, since: int = 0) -> str:
        """The changes to the script since a `checkpoint`, or since the start without one, as a unified diff."""
        return diff(self._at_step(since, "diff")._func, self._func)

    def _at_step(self, steps: int, caller: str) -> Schedule:
        """The schedule after its first `steps` steps."""
        if isinstance(steps, bool) or not isinstance(steps, int):
            raise TypeError(f"{caller}: a number of steps is an integer, got {steps!r}")
        if not 0 <= steps <= len(self._steps):
            raise ValueError(f"{caller}: the schedule has {len(self._steps)} step(s), and none numbered {steps}")
        return replay(self._initial, self._steps[:steps])

    def __repr__(self) -> str:
        return f"Schedule({self._func.name}, {len(self._steps)} step(s))"

    def __str__(self) -> str:
        return self.script

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return code(self.script)

    def __getattr__(self, name: str) -> Any:
        """A registered primitive without a method of this class, such as a user's, as a method."""
        if name in REGISTRY:
            return types.MethodType(method(REGISTRY[name]), self)
        known = [n for n in (*dir(type(self)), *REGISTRY) if not n.startswith("_")]
        hint = None if name.startswith("_") else did_you_mean(OTHER_NAMES.get(name, name), known)
        raise AttributeError(
            f"a {type(self).__name__} has no attribute {name!r}{f'; {hint}' if hint else ''}", name=name, obj=self
        )

    def _apply(self, name: str, *args: Any, **kwargs: Any) -> Any:
        return self._step(name, args, kwargs, None)

    def _step(self, name: str, args: Sequence[Any], kwargs: dict[str, Any], names: tuple[str, ...] | None) -> Any:
        """Take a step; its drawn values get the given names, or (None) new ones."""
        known = REGISTRY[name]
        try:
            bound = known.bind(tuple(args), kwargs)
        except ScheduleError as error:
            raise error.located(known.raw_text(tuple(args), kwargs), self._func) from None
        func, result = self._applied(known, bound)
        drawn = {n: value for s in self._steps for n, value in zip(s.names, s.results, strict=False)}
        recorded = {k: with_references(v, drawn) for k, v in bound.items() if k != known.randomness}
        if known.decision is None:
            self._func, self._steps = func, (*self._steps, Step.of(name, recorded, result))
            return result
        result, recorded[known.decision] = result
        step = Step.of(name, recorded, result)
        # A list that is declared as a single value has named elements only if it has several.
        several = isinstance(result, list) and (known.draws_a_list or len(result) > 1)
        values = result if several else [result]
        if names is None:
            taken = set(drawn)
            names = tuple(fresh(taken, f"v{len(taken)}") for _ in values) if all(map(can_be_named, values)) else ()
        if names and len(names) != len(values):
            reason = f"{len(values)} value(s) are drawn, but the trace has names for {len(names)}"
            raise ScheduleError(reason).located(known.text(recorded), self._func)
        self._func, self._steps = func, (*self._steps, replace(step, names=names))
        if not names:
            return result
        values = [as_variable(value, n) if can_be_named(value) else value for value, n in zip(values, names, strict=True)]
        return values if several else values[0]

    def _applied(self, known: Primitive, bound: dict[str, Any]) -> tuple[PrimFunc, Any]:
        """The function after a step, and the step's result."""
        return known.apply(self._func, bound)

    def follow(self, trace: Trace | Iterable[Step]) -> None:
        """Take the steps of a trace, up to the first refused one; raises the errors of `replay`."""
        steps = tuple(trace) if isinstance(trace, Iterable) else (trace,)
        for step in steps:
            if not isinstance(step, Step):
                raise TypeError(f"replay takes a Trace, or steps of one, got {step!r}; Trace.from_json reads one from JSON")
        taken = bool(self._steps)  # then drawn values may get other names
        drawn: dict[str, Any] = {}
        for n, step in enumerate(steps):
            try:
                if step.name not in REGISTRY:
                    raise ScheduleError(f"`{step.name}` is no primitive", hint=did_you_mean(step.name, REGISTRY)).located(
                        str(step)[2:], self.func
                    )
                known = REGISTRY[step.name]
                try:
                    unknown = sorted(references(step.args) - drawn.keys())
                    if unknown:
                        raise ScheduleError(f"`{unknown[0]}` was drawn by no step before")
                    known.need_parameters(step.bound)
                except ScheduleError as error:
                    raise error.located(known.text(step.bound), self.func) from None
                args, kwargs = known.spread(with_values(step.bound, drawn))
                found = self._step(step.name, args, kwargs, None if taken else step.names)
                drawn |= zip(step.names, found if isinstance(found, list) else [found], strict=True) if step.names else {}
            except ScheduleError as error:
                error.call = f"step {n + 1} of {len(steps)}, {error.call}"
                raise

    def _random(self, decision: Any) -> np.random.Generator | None:
        """The random generator of a choice; None where its decision is given."""
        if decision is not None:
            return None
        if self._rng is None:
            self._rng = np.random.default_rng(self._seed)
        return self._rng

    def _look(self, call: str, fn: Callable[[], Any], name: str = "") -> Any:
        """The result of `fn`, a query of the function that `name` belongs to."""
        self._work_where({"name": name})
        try:
            return self._known_here(fn())
        except ScheduleError as error:
            raise error.located(call, self._func) from None

    def _function(self, taken: Primitive, parameter: str, given: Mapping[str, Any]) -> str:
        """The text of an argument that is a function of indices; the argument's kind gives their number."""

        def argument(kind: ArgumentKind) -> Any:
            return given[taken.parameter(kind) or ""]

        def rank() -> int:
            block = find_block(self._func, argument(ArgumentKind.BLOCK))
            if ArgumentKind.OF_AXES in taken.kinds[parameter]:
                return len(block.iters)
            before = buffer_argument(block, argument(ArgumentKind.BUFFER)).shape
            if ArgumentKind.OF_INDICES in taken.kinds[parameter]:
                return len(before)
            return len(parse_index_map(argument(ArgumentKind.OF_INDICES), self._func, before).outputs)

        what = INDEX_MAP if _takes_index_map(taken, parameter) else f"`{parameter}`"
        return self._look(_call_up_to(taken.name, parameter, given), lambda: function_text(given[parameter], rank, what))

    # --- queries ---------------------------------------------------------------------------------------------------------

    def enter_postproc(self) -> None:
        """Do nothing: in traces printed by TVM this call marks the start of postprocessing."""

    def get_block(self, name: str, func_name: str | None = None) -> str:
        """The block called `name`; "root" is the function. Refuses an unknown name.

        `func_name` selects the function of a module; a schedule made of a single function calls it "main".
        """
        if func_name is not None and func_name != self._place and func_name in self._states:
            self.work_on(func_name)

        def find() -> str:
            if func_name not in (None, self._place, self._func.name):
                raise ScheduleError(no_such("function", func_name, self._states))
            return name if name == "root" else find_block(self._func, name).name

        return self._look(f"get_block({name!r})", find)

    get_sblock = get_block  # its name in newer versions of TVM

    def get(self, name: str) -> Block | For | PrimFunc:
        """The current block (with its regions) or loop of a name, or the function for "root": `s.get(loop).extent`."""

        def find() -> Block | For | PrimFunc:
            found = self._func if name == "root" else named_at(self._func, name)[0]
            return with_regions(found) if type(found) is Block else found

        return self._look(f"get({name!r})", find, name)

    def get_loops(self, block: str) -> list[str]:
        """The loops around a block, outermost first, up to the block that encloses it."""
        return self._look(f"get_loops({block!r})", lambda: [loop.name for loop in loops_of(self._func, block)], block)

    def get_child_blocks(self, block_or_loop: str) -> list[str]:
        """The outermost blocks below a loop or inside a block ("root": the function)."""

        def find() -> list[str]:
            if block_or_loop == "root":
                return [b.name for b in blocks_below(self._func.body)]
            return [b.name for b in blocks_below(named_at(self._func, block_or_loop)[0].body)]

        return self._look(f"get_child_blocks({block_or_loop!r})", find, block_or_loop)

    def get_producers(self, block: str) -> list[str]:
        """The earlier blocks of the same scope that write a buffer which this block reads, in program order."""
        return self._look(f"get_producers({block!r})", lambda: self._related(block, producers=True), block)

    def get_consumers(self, block: str) -> list[str]:
        """The later blocks of the same scope that read a buffer which this block writes, in program order."""
        return self._look(f"get_consumers({block!r})", lambda: self._related(block, producers=False), block)

    def get_output_blocks(self, scope_block: str = "root") -> list[str]:
        """The blocks directly in a block ("root": the function) that write a parameter of the function, in program order."""

        def find() -> list[str]:
            parameters = {p.name for p in self._func.buffers}
            scope = self._func.body if scope_block == "root" else find_block(self._func, scope_block).body
            return [b.name for b in blocks_below(scope) if stored_names(b) & parameters]

        return self._look(f"get_output_blocks({scope_block!r})", find, scope_block)

    def _related(self, block: str, producers: bool) -> list[str]:
        target, above = block_at(self._func, block)
        scope = next((s for s in reversed(above[:-1]) if type(s) is Block), self._func)
        uses, used = (stored_names, loaded_names(target)) if producers else (loaded_names, stored_names(target))
        around = {id(s) for s in above}
        siblings = (s for body in substatements(scope) for s in statements_of(body))
        near = [b for s in siblings if id(s) in around or uses(s) & used for b in blocks_below(s)]
        place = next(n for n, b in enumerate(near) if b is target)
        return [b.name for b in (near[:place] if producers else near[place + 1 :]) if uses(b) & used]

    # --- loops -----------------------------------------------------------------------------------------------------------

    split = method(split)
    tile = method(tile)
    fuse = method(fuse)
    reorder = method(reorder)
    parallel = method(parallel)
    vectorize = method(vectorize)
    unroll = method(unroll)
    serial = method(serial)
    add_unit_loop = method(add_unit_loop)
    drop_empty = method(drop_empty)
    bind = method(bind)
    loop_partition = method(loop_partition)
    merge = method(merge)
    annotate = method(annotate)
    unannotate = method(unannotate)

    # --- placement -------------------------------------------------------------------------------------------------------

    compute_at = method(compute_at)
    reverse_compute_at = method(reverse_compute_at)
    compute_inline = method(compute_inline)
    reverse_compute_inline = method(reverse_compute_inline)

    # --- buffers ---------------------------------------------------------------------------------------------------------

    cache_read = method(cache_read)
    cache_write = method(cache_write)
    cache_index = method(cache_index)
    cache_inplace = method(cache_inplace)
    read_at = method(read_at)
    write_at = method(write_at)
    set_scope = method(set_scope)
    set_axis_separator = method(set_axis_separator)
    unsafe_set_dtype = method(unsafe_set_dtype)
    annotate_buffer_access = method(annotate_buffer_access)

    reindex = method(reindex)
    reindex_cache_read = method(reindex_cache_read)
    reindex_cache_write = method(reindex_cache_write)
    pack = method(pack)

    transform_layout = method(transform_layout)
    stage_mem = method(stage_mem)
    rolling_buffer = method(rolling_buffer)
    stage_padding = method(stage_padding)
    lift_alloc = method(lift_alloc)
    storage_align = method(storage_align)
    write_in_place = method(write_in_place)

    # --- reductions ------------------------------------------------------------------------------------------------------

    decompose_reduction = method(decompose_reduction)
    decompose_padding = method(decompose_padding)
    pad_einsum = method(pad_einsum)
    fuse_reduction_epilogue = method(fuse_reduction_epilogue)
    rfactor = method(rfactor)
    factor_out = method(factor_out)
    rolling_update = method(rolling_update)
    make_unsigned = method(make_unsigned)

    # --- guards ----------------------------------------------------------------------------------------------------------

    add_guard = method(add_guard)
    assume = method(assume)
    hoist_predicate = method(hoist_predicate)
    trim = method(trim)
    peel = method(peel)

    # --- blocks ----------------------------------------------------------------------------------------------------------

    blockize = method(blockize)
    tensorize = method(tensorize)

    transform_block_layout = method(transform_block_layout)
    reorder_block_iter_var = method(reorder_block_iter_var)
    simplify_formula = method(simplify_formula)

    # --- sampling --------------------------------------------------------------------------------------------------------

    sample_perfect_tile = sampling_method(sample_perfect_tile)
    sample_partitioned_tile = sampling_method(sample_partitioned_tile)
    sample_tile = sampling_method(sample_tile)
    sample_categorical = sampling_method(sample_categorical)
    sample_compute_location = sampling_method(sample_compute_location)


def replay_json(func: PrimFunc, data: str | dict[str, Any] | None) -> Schedule:
    """`replay` of a trace as JSON; None is an empty trace. ValueError for invalid JSON."""
    return Schedule(func) if data is None else replay(func, Trace.from_json(data))


def replay(func: PrimFunc, trace: Trace | Iterable[Step]) -> Schedule:
    """A schedule of `func` with the steps of `trace` taken. TypeError for a wrong type; ScheduleError names a refused step."""
    result = Schedule(func)
    result.follow(trace)
    return result


def _takes_index_map(taken: Primitive, parameter: str) -> bool:
    return IndexMap in typing.get_args(taken.types[parameter])


def _call_up_to(name: str, parameter: str, given: Mapping[str, Any]) -> str:
    """A call as source text, with an ellipsis for an argument and those after it."""
    before = itertools.takewhile(lambda n: n != parameter, given)
    return f"{name}({', '.join(repr(given[n]) for n in before)}, ...)"
