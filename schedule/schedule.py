"""The schedule of a function: primitives applied one after another, recorded in a trace."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tir.ir import Block, PrimFunc, Stmt, need_func
from tir.script.module import Module
from tir.traverse import fresh, loads, stores

from .drawn import can_be_named, named, referring
from .error import ScheduleError
from .index_map import index_map_text
from .primitive import REGISTRY, blocks_below, find_block, loops_of, path_to_block, path_to_named
from .trace import Step, Trace
from .transform_layout import which


class Schedule:
    """A function being rewritten step by step. Loops and blocks are given by name, and new ones are returned by name.

    It is made of a PrimFunc, or of a module that holds one. `func` is the function as it is now and `trace` the steps so far; a
    call that raises ScheduleError leaves both as they were. `seed`, an integer or a generator, is what the `sample_*` steps draw
    from; without it they differ from run to run, but their decisions are in the trace.
    """

    def __init__(self, func: PrimFunc | Mapping[str, PrimFunc], seed: int | np.random.Generator | None = None):
        self._func = need_func(func, "Schedule")
        if not isinstance(seed, (int, np.integer, np.random.Generator, type(None))):
            raise TypeError(f"Schedule: the seed must be an integer or a np.random.Generator, got {seed!r}")
        self._steps: tuple[Step, ...] = ()
        self._seed = seed
        self._rng: np.random.Generator | None = None

    @property
    def func(self) -> PrimFunc:
        """The function as it is now."""
        return self._func

    @property
    def mod(self) -> Module:
        """A module with the function as it is now."""
        return Module("Module", {self._func.name: self._func})

    @property
    def trace(self) -> Trace:
        """The steps taken so far."""
        return Trace(self._steps)

    @property
    def script(self) -> str:
        """The function as it is now, in the script dialect."""
        return self._func.script()

    def show(self) -> None:
        """Print the function as it is now."""
        self._func.show()

    def copy(self) -> Schedule:
        """A schedule that continues from here on its own, and draws random numbers of its own."""
        random = None if self._seed is None else self._random(None)
        result = Schedule(self._func, None if random is None else random.spawn(1)[0])
        result._steps = self._steps
        return result

    def __repr__(self) -> str:
        return f"Schedule({self._func.name}, {len(self._steps)} step(s))"

    def _apply(self, name: str, *args: Any, **kwargs: Any) -> Any:
        return self._step(name, args, kwargs, None)

    def _step(self, name: str, args: Sequence[Any], kwargs: dict[str, Any], names: tuple[str, ...] | None) -> Any:
        """Take a step; what it draws gets the given names, or (None) new ones."""
        known = REGISTRY[name]
        try:
            bound = known.bind(tuple(args), kwargs)
        except ScheduleError as error:
            raise error.located(known.raw_text(tuple(args), kwargs), self._func) from None
        func, result = known.apply(self._func, bound)
        recorded = {k: referring(v) for k, v in bound.items() if k != "rng"}
        if "decision" not in known.checks:
            self._func, self._steps = func, (*self._steps, Step.of(name, recorded, result))
            return result
        result, recorded["decision"] = result
        step = Step.of(name, recorded, result)
        drawn = result if isinstance(result, list) else [result]
        if names is None:
            taken = {n for s in self._steps for n in s.names}
            names = tuple(fresh(taken, f"v{len(taken)}") for _ in drawn) if all(map(can_be_named, drawn)) else ()
        if names and len(names) != len(drawn):
            reason = f"{len(drawn)} value(s) are drawn, but the trace has names for {len(names)}"
            raise ScheduleError(reason).located(known.text(recorded), self._func)
        self._func, self._steps = func, (*self._steps, replace(step, names=names))
        if not names:
            return result
        drawn = [named(value, n) if can_be_named(value) else value for value, n in zip(drawn, names, strict=True)]
        return drawn if isinstance(result, list) else drawn[0]

    def _random(self, decision: Any) -> np.random.Generator | None:
        """What a choice draws from: nothing where its decision is given."""
        if decision is not None:
            return None
        if self._rng is None:
            self._rng = np.random.default_rng(self._seed)
        return self._rng

    def _look(self, call: str, fn):
        try:
            return fn()
        except ScheduleError as error:
            raise error.located(call, self._func) from None

    def _index_map(self, name: str, args: tuple, index_map: Callable[..., Any] | str, rank: Callable[[Block], int]) -> str:
        """The text of an index map; `rank` says how many indices it gets if it is a function of any number of them."""
        call = f"{name}({', '.join(map(repr, args))}, ...)"
        return self._look(call, lambda: index_map_text(index_map, lambda: rank(find_block(self._func, args[0]))))

    # --- looking ---------------------------------------------------------------------------------------------------------

    def get_block(self, name: str, func_name: str | None = None) -> str:
        """The block called `name`, if there is one; `func_name`, where it is given, must be the name of the function."""

        def find() -> str:
            if func_name not in (None, self._func.name):
                raise ScheduleError(f"the function is `{self._func.name}`, not `{func_name}`")
            return find_block(self._func, name).name

        return self._look(f"get_block({name!r})", find)

    def get_loops(self, block: str) -> list[str]:
        """The loops around a block, outermost first (within the block that encloses it, if one does)."""
        return self._look(f"get_loops({block!r})", lambda: [loop.name for loop in loops_of(self._func, block)])

    def get_child_blocks(self, block_or_loop: str) -> list[str]:
        """The blocks below a loop or inside a block ("root" for the whole function), not those nested deeper in them."""

        def find() -> list[str]:
            if block_or_loop == "root":
                return [b.name for b in blocks_below(self._func.body)]
            target = path_to_named(self._func, block_or_loop)[-1]
            return [b.name for b in blocks_below(target.body)]  # type: ignore[attr-defined]

        return self._look(f"get_child_blocks({block_or_loop!r})", find)

    def get_producers(self, block: str) -> list[str]:
        """The blocks that write a buffer which this block reads, in program order; itself not."""
        return self._look(f"get_producers({block!r})", lambda: self._related(block, producers=True))

    def get_consumers(self, block: str) -> list[str]:
        """The blocks that read a buffer which this block writes, in program order; itself not."""
        return self._look(f"get_consumers({block!r})", lambda: self._related(block, producers=False))

    def get_output_blocks(self) -> list[str]:
        """The blocks that write a parameter of the function, in program order."""
        parameters = {p.name for p in self._func.buffers}
        return [b.name for b in blocks_below(self._func.body) if _written(b) & parameters]

    def _related(self, block: str, producers: bool) -> list[str]:
        above = path_to_block(self._func, block)
        target: Block = above[-1]  # type: ignore[assignment]
        scopes = [s for s in above[:-1] if type(s) is Block]
        siblings = blocks_below(self._func.body)
        if scopes:
            siblings = [b for part in (scopes[-1].init, scopes[-1].body) if part is not None for b in blocks_below(part)]
        place = next(n for n, b in enumerate(siblings) if b is target)
        if producers:
            read = _read(target)
            return [b.name for b in siblings[:place] if _written(b) & read]
        written = _written(target)
        return [b.name for b in siblings[place + 1 :] if _read(b) & written]

    # --- loops -----------------------------------------------------------------------------------------------------------

    def split(self, loop: str, factors: list[int | None], preserve_unit_iters: bool = True) -> list[str]:
        """Divide a loop into a nest of `len(factors)` loops; returns their names, outermost first."""
        return self._apply("split", loop, factors, preserve_unit_iters)

    def tile(self, x: str, y: str, x_factor: int, y_factor: int) -> list[str]:
        """Split two nested loops and order them outer x, outer y, inner x, inner y; returns these four."""
        return self._apply("tile", x, y, x_factor, y_factor)

    def fuse(self, *loops: str, preserve_unit_iters: bool = True) -> str:
        """Make one loop of perfectly nested ones; returns its name."""
        return self._apply("fuse", *loops, preserve_unit_iters=preserve_unit_iters)

    def reorder(self, *ordered_loops: str) -> None:
        """Put loops of one nest into the given order, among the places they have."""
        self._apply("reorder", *ordered_loops)

    def parallel(self, loop: str) -> None:
        """Run the iterations of a loop on several threads."""
        self._apply("parallel", loop)

    def vectorize(self, loop: str) -> None:
        """Run the iterations of a loop as lanes of vector instructions."""
        self._apply("vectorize", loop)

    def unroll(self, loop: str) -> None:
        """Write out the iterations of a loop one after another."""
        self._apply("unroll", loop)

    def add_unit_loop(self, block_or_loop: str) -> str:
        """Put a loop of extent 1 around a block or loop; returns its name."""
        return self._apply("add_unit_loop", block_or_loop)

    def bind(self, loop: str, thread_axis: str) -> None:
        """Run the iterations of a loop as blocks or threads of a GPU ("blockIdx.x", "threadIdx.x", "vthread.x", ...)."""
        self._apply("bind", loop, thread_axis)

    def loop_partition(self, loop: str, factors: list[int | None], preserve_unit_iters: bool = True) -> list[str]:
        """Divide a loop into consecutive ones of the given numbers of iterations; returns their names."""
        return self._apply("loop_partition", loop, factors, preserve_unit_iters)

    def merge(self, *loops: str) -> str:
        """Make one loop of sibling loops; returns its name."""
        return self._apply("merge", *loops)

    def annotate(self, block_or_loop: str, ann_key: str, ann_val: Any) -> None:
        """Attach a value (JSON data) to a block or loop under a key."""
        self._apply("annotate", block_or_loop, ann_key, ann_val)

    def unannotate(self, block_or_loop: str, ann_key: str) -> None:
        """Remove what is attached to a block or loop under a key."""
        self._apply("unannotate", block_or_loop, ann_key)

    # --- placement -------------------------------------------------------------------------------------------------------

    def compute_at(self, block: str, loop: str, preserve_unit_loops: bool = False, index: int = -1) -> None:
        """Move a producer under a loop of its consumers, computing there what they need."""
        self._apply("compute_at", block, loop, preserve_unit_loops, index)

    def reverse_compute_at(self, block: str, loop: str, preserve_unit_loops: bool = False, index: int = -1) -> None:
        """Move a consumer under a loop of its producers, computing there what they have made."""
        self._apply("reverse_compute_at", block, loop, preserve_unit_loops, index)

    def compute_inline(self, block: str) -> None:
        """Put the formula of a block into the blocks that read its output, and remove the block."""
        self._apply("compute_inline", block)

    def reverse_compute_inline(self, block: str) -> None:
        """Put the formula of a block into its only producer, and remove the block."""
        self._apply("reverse_compute_inline", block)

    # --- buffers ---------------------------------------------------------------------------------------------------------

    def cache_read(
        self, block: str, read_buffer_index: int | str, storage_scope: str, consumer_blocks: list[str] | None = None
    ) -> str:
        """Read a buffer through a copy of it; returns the name of the copying block."""
        return self._apply("cache_read", block, read_buffer_index, storage_scope, consumer_blocks)

    def cache_write(
        self, block: str, write_buffer_index: int | str, storage_scope: str, consumer_blocks: list[str] | None = None
    ) -> str:
        """Write a buffer through a copy of it; returns the name of the copying block."""
        return self._apply("cache_write", block, write_buffer_index, storage_scope, consumer_blocks)

    def set_scope(self, block: str, buffer_index: int | str, storage_scope: str) -> str:
        """Put a temporary that a block writes into another memory; returns its new name."""
        return self._apply("set_scope", block, buffer_index, storage_scope)

    def reindex(self, block: str, buffer: tuple[str, int] | str) -> str:
        """Access a buffer through a copy indexed by the axes of the block; returns the name of the copying block."""
        return self._apply("reindex", block, buffer)

    def reindex_cache_read(
        self, block: str, read_buffer_index: int | str, storage_scope: str, index_map: Callable[..., Any] | str
    ) -> str:
        """Read a buffer through a copy indexed by `index_map` of the axes of the block; returns the name of the copying block."""
        args = (block, read_buffer_index, storage_scope)
        text = self._index_map("reindex_cache_read", args, index_map, lambda b: len(b.iters))
        return self._apply("reindex_cache_read", *args, text)

    def reindex_cache_write(
        self, block: str, write_buffer_index: int | str, storage_scope: str, index_map: Callable[..., Any] | str
    ) -> str:
        """Write a buffer through a copy indexed by `index_map` of the axes of a block; returns the name of the copying block."""
        args = (block, write_buffer_index, storage_scope)
        text = self._index_map("reindex_cache_write", args, index_map, lambda b: len(b.iters))
        return self._apply("reindex_cache_write", *args, text)

    def pack(
        self, block: str, read_buffer_index: int | str, storage_scope: str = "global", preserve_unit_loops: bool = False
    ) -> str:
        """Read a buffer through a copy in the order in which the loops of a block walk it; returns the copying block."""
        return self._apply("pack", block, read_buffer_index, storage_scope, preserve_unit_loops)

    def transform_layout(
        self,
        block: str,
        buffer: tuple[str, int] | str,
        index_map: Callable[..., Any] | str,
        pad_value: int | float | None = None,
    ) -> None:
        """Store the element [i, j, ...] of a temporary at [index_map(i, j, ...)]; `pad_value` is what stands in new places."""
        text = self._index_map("transform_layout", (block, buffer), index_map, lambda b: len(which(b, buffer).shape))
        self._apply("transform_layout", block, buffer, text, pad_value)

    def stage_mem(
        self, block_or_loop: str, buffer: str, name: str, storage_scope: str = "global", keep: str | None = None
    ) -> list[str]:
        """Let a loop or block work on a copy of what it accesses of a buffer; returns the names of the copying blocks."""
        return self._apply("stage_mem", block_or_loop, buffer, name, storage_scope, keep)

    def lift_alloc(self, buffer: str, n_lifts: int = 1) -> None:
        """Allocate a temporary further out, in the next block around the one that allocates it."""
        self._apply("lift_alloc", buffer, n_lifts)

    def storage_align(self, block: str, buffer_index: int | str, axis: int, factor: int, offset: int) -> None:
        """Have a temporary laid out so that its stride along an axis is `k * factor + offset` for some k."""
        self._apply("storage_align", block, buffer_index, axis, factor, offset)

    # --- reductions ------------------------------------------------------------------------------------------------------

    def decompose_reduction(self, block: str, loop: str) -> str:
        """Move the init of a reduction into a block of its own before a loop; returns the name of that block."""
        return self._apply("decompose_reduction", block, loop)

    def decompose_padding(self, block: str, loop: str) -> str:
        """Divide a block that pads into one that fills, before a loop, and one that copies; returns the name of the former."""
        return self._apply("decompose_padding", block, loop)

    def pad_einsum(self, block: str, padding: list[int]) -> None:
        """Round the extents of a sum of products up to multiples, its temporaries with them."""
        self._apply("pad_einsum", block, padding)

    def fuse_reduction_epilogue(self, reduction_block: str, epilogue_block: str) -> None:
        """Put a block that adds something to the result of a reduction into the init of the reduction."""
        self._apply("fuse_reduction_epilogue", reduction_block, epilogue_block)

    def rfactor(self, loop: str, factor_axis: int = 0) -> str:
        """Factor a reduction over a loop into partial results and their reduction; returns the block of the partial results."""
        return self._apply("rfactor", loop, factor_axis)

    # --- guards ----------------------------------------------------------------------------------------------------------

    def add_guard(self, block_or_loop: str, condition: str) -> list[str]:
        """Write a block or loop twice, for where a condition holds and where it does not; returns the names of the two."""
        return self._apply("add_guard", block_or_loop, condition)

    def hoist_predicate(self, loop: str) -> None:
        """Move the conditions that do not change in a loop from the blocks below it to an `if` around it."""
        self._apply("hoist_predicate", loop)

    def trim(self, loop: str) -> None:
        """Cut off the iterations at the end of a loop in which no block below it runs."""
        self._apply("trim", loop)

    def peel(self, loop: str) -> list[str]:
        """Divide a loop into a part in which the conditions below it always hold, and what is before and after it."""
        return self._apply("peel", loop)

    # --- blocks ----------------------------------------------------------------------------------------------------------

    def blockize(self, target: str, preserve_unit_iters: bool = True) -> str:
        """Make the nest at a loop the body of a new block; returns the name of the block."""
        return self._apply("blockize", target, preserve_unit_iters)

    def tensorize(self, block_or_loop: str, tensor_intrin: str, preserve_unit_iters: bool = True) -> None:
        """Replace what a block, or the nest at a loop, computes by a registered intrinsic."""
        self._apply("tensorize", block_or_loop, tensor_intrin, preserve_unit_iters)

    def transform_block_layout(self, block: str, index_map: Callable[..., Any] | str) -> None:
        """Run a block over [index_map(i, j, ...)] in place of its iteration variables [i, j, ...]."""
        text = self._index_map("transform_block_layout", (block,), index_map, lambda b: len(b.iters))
        self._apply("transform_block_layout", block, text)

    def reorder_block_iter_var(self, block: str, new_order: list[int]) -> None:
        """Put the iteration variables of a block into another order."""
        self._apply("reorder_block_iter_var", block, new_order)

    # --- sampling --------------------------------------------------------------------------------------------------------

    def sample_perfect_tile(
        self, loop: str, n: int, max_innermost_factor: int = 16, decision: list[int] | None = None
    ) -> list[int]:
        """Choose `n` factors for `split` whose product is the extent of a loop."""
        return self._apply("sample_perfect_tile", loop, n, max_innermost_factor, decision, self._random(decision))

    def sample_tile(self, loop: str, n: int, max_innermost_factor: int = 16, decision: list[int] | None = None) -> list[int]:
        """Choose `n` factors for `split` that need not divide the extent of a loop."""
        return self._apply("sample_tile", loop, n, max_innermost_factor, decision, self._random(decision))

    def sample_categorical(self, candidates: list[Any], probs: list[float], decision: int | None = None) -> Any:
        """Choose one of some values with the given probabilities."""
        return self._apply("sample_categorical", candidates, probs, decision, self._random(decision))

    def sample_compute_location(self, block: str, decision: int | None = None) -> str:
        """Choose where a block could be computed: a loop, "root" or "inline"."""
        return self._apply("sample_compute_location", block, decision, self._random(decision))


def _written(stmt: Stmt) -> set[str]:
    return {s.buffer.name for s in stores(stmt)}


def _read(stmt: Stmt) -> set[str]:
    return {n.buffer.name for n in loads(stmt)}


__all__ = ["Schedule"]
