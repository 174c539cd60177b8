"""Fusion of a producer row by row, inside the loops that it shares with its consumers."""

from __future__ import annotations

from schedule.open_schedule import OpenSchedule, Stage, Tiled
from schedule.templates import Template
from schedule.templates.block_analysis import epilogue, size
from tir.ir import Axis, Var, buffer_nbytes
from tir.traverse import iterations, loads, loops_to, stored_names, stores

from .chains import by_rows, host
from .rule import Verdict

MIN_ROWS_A_THREAD = 4  # least rows a thread for which all threads are busy for about the same time


class FuseRows(Template):
    """Compute a stage without data reuse in the outer loops shared by all its consumers. So a row (of a softmax, a norm) stays in
    the cache between stages. Ansor samples such compute locations; here each gives a sketch.

    Later rules are not tried with enough rows for all threads if a row of the stage fits half of the second-level cache. A stage
    that a packed product reads may be computed for each block of rows of that product. The rule does not apply to fewer rows than
    threads that the work is worth.
    """

    name = "fuse rows"

    def applies(self, state: OpenSchedule, block: str) -> Verdict:
        if any(it.axis is Axis.OPAQUE for it in state.block(block).iters):
            return Verdict.SKIP  # steps in an order of their own, as of a scan, stay in their loops
        loop = self._row_loop(state, block)
        if loop is None:
            return Verdict.SKIP if self._block_loop(state, block) is None else Verdict.APPLY
        rows, size, work = self._rows(state, block, loop)
        machine = state.target.machine
        threads = machine.threads(work * machine.core.latency)  # as if each iteration waited for the one before
        if rows < threads:
            return Verdict.SKIP
        many = threads == 1 or rows >= MIN_ROWS_A_THREAD * threads
        return Verdict.ONLY if many and 2 * size <= state.target.l2 else Verdict.APPLY

    def change(self, new: OpenSchedule, block: str) -> None:
        loop = self._row_loop(new, block) or self._block_loop(new, block)
        assert loop is not None
        new.compute_at(block, loop, preserve_unit_loops=True)
        new.scheduled[block] = Stage.ROW
        if new.block(block).is_reduction:
            new.pending.append(block)  # it may still be reduced in lanes

    def _block_loop(self, state: OpenSchedule, block: str) -> str | None:
        """The loop over blocks of rows of the packed product that is the only consumer, perhaps through other stages; else
        None."""
        consumers = state.get_consumers(block)
        hosts = {host(state, b) for b in consumers}
        if block in state.scheduled or state.is_output(block) or len(hosts) != 1 or None in hosts:
            return None
        producers = state.get_producers(block)
        if any(epilogue(state, p) == block for p in producers):
            return None  # it is an epilogue of its producer
        if not any(state.block(b).is_reduction for b in (block, *producers)):
            return None
        (after,) = hosts
        assert after is not None
        outermost, parts, *_ = state.tiling(after).levels
        return outermost[-1] if not parts and by_rows(state, block, consumers, len(outermost)) else None

    def _rows(self, state: OpenSchedule, block: str, loop: str) -> tuple[int, int, int]:
        """The number of rows, the bytes that the block writes for each, and the iterations of the block and its consumers."""
        store, consumers = stores(state.block(block))[0], state.get_consumers(block)
        path = loops_to(state.func.body, consumers[0])
        outer = path[: [x.name for x in path].index(loop) + 1]
        rows = iterations(outer)
        nbytes = buffer_nbytes(store.buffer) // max(1, rows)
        return rows, nbytes, sum(size(state.block(b).iters) for b in (block, *consumers))

    def _row_loop(self, state: OpenSchedule, block: str) -> str | None:
        """The innermost loop around all consumers whose iterations read different rows of this block."""
        if block in state.scheduled or state.is_output(block):
            return None
        consumers = state.get_consumers(block)
        made = [state.scheduled.get(c) for c in consumers]
        if not made or any(isinstance(m, Tiled) or m in (Stage.FUSED, Stage.DONE) for m in made):
            return None
        paths = [loops_to(state.func.body, c) for c in consumers]
        common = []
        for level in zip(*paths, strict=False):
            if all(loop is level[0] for loop in level):
                common.append(level[0])
        written = stored_names(state.block(block))
        innermost = None
        for position, loop in enumerate(common):
            # In each consumer, the variable of this loop must be the index of dimension `position` of the reads; dimensions of
            # one element are left out.
            if loop.extent.is_one and innermost is None:
                continue
            for c in consumers:
                consumer = state.block(c)
                axes = {it.var.name for it in consumer.spatial if state.driver(it) == loop.name}
                for load in loads(consumer.body):
                    if load.buffer.name in written:
                        index = load.indices[position] if position < len(load.indices) else None
                        if not isinstance(index, Var) or index.name not in axes:
                            return innermost
            innermost = loop.name
        return innermost
