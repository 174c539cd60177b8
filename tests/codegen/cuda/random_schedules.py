"""Random programs under random GPU schedules, against the interpreter: `python -m tests.codegen.cuda.random_schedules --count 200`.

A case is its seed. Threads run in random order, twice; races, places outside of memory and barriers that not all threads reach
are traps of the emulation.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator

import numpy as np

from codegen.cuda import GPUError, Program, lower_cuda
from codegen.target import Target
from schedule import Schedule, ScheduleError
from schedule.primitive import blocks_below, find_block, loops_of
from tests.arrays import copies, integers
from tests.codegen.cuda.emulation import emulate
from tests.codegen.fuzz import own_temporaries, program
from tir.interpreter import run
from tir.ir import Axis, Const, PrimFunc
from tir.traverse import variables

TARGET = Target("cuda")
THREADS = (1, 2, 3, 4, 5, 7, 8, 16, 32, 33, 64)


def scheduled(rng: np.random.Generator, func: PrimFunc) -> Schedule:
    """Random steps that bind the blocks of a function in random ways; refused steps are left out."""
    s = Schedule(func)

    def attempt(*steps) -> bool:
        nonlocal s
        copy = s.copy()
        try:
            for step in steps:
                step(copy)
        except ScheduleError:
            return False
        s = copy
        return True

    names = [b.name for b in blocks_below(func.body)]
    for name in names:
        kind = int(rng.integers(4))
        if kind == 0:
            attempt(lambda t, name=name: t.compute_inline(name))
        elif kind == 1 and (consumers := s.get_consumers(name)):
            loops = s.get_loops(consumers[0])
            at = loops[int(rng.integers(len(loops)))] if loops else ""
            if loops and attempt(lambda t, name=name, at=at: t.compute_at(name, at)):
                attempt(lambda t, name=name: t.set_scope(name, 0, "shared" if rng.random() < 0.6 else "local"))
    for name in [b.name for b in blocks_below(s.func.body)]:
        if any(b.name == name for b in blocks_below(s.func.body)):
            for _ in range(3):
                if attempt(lambda t, name=name: _bind(rng, t, name)):
                    break
    return s


def _bind(rng: np.random.Generator, s: Schedule, name: str) -> None:
    """One of the ways to run a block on blocks and threads."""
    bound = {x.thread for x in loops_of(s.func, name)} - {""}
    block = find_block(s.func, name)
    free = [x.name for x in loops_of(s.func, name) if not x.thread]
    summing = set().union(*(variables(it.binding) for it in block.iters if it.axis is Axis.REDUCE), set())
    spatial = [x for x in free if x not in summing]
    sums = [x for x in free if x in summing]
    inside = bool(bound)
    axes = [a for a in ("threadIdx.x", "threadIdx.y", "vthread.x", "threadIdx.z") if a not in bound]
    threads = int(rng.choice(THREADS))
    way = int(rng.integers(5))
    if inside and not any(b.startswith("threadIdx") for b in bound) and free:  # a stage of a kernel whose blocks are bound
        loops = free[-int(rng.integers(1, len(free) + 1)) :]
        loop = s.fuse(*loops) if len(loops) > 1 else loops[0]
        _, inner = s.split(loop, [None, threads])
        s.bind(inner, "threadIdx.x")
        return
    if inside or not free:
        return
    if way == 0 and sums and block.init is not None:  # threads reduce together
        if spatial:
            s.reorder(*spatial, *sums)
            s.bind(spatial[0], "blockIdx.x")
        total = s.fuse(*sums) if len(sums) > 1 else sums[0]
        outer, inner = s.split(total, [None, threads])
        s.reorder(inner, outer)
        s.bind(inner, str(rng.choice(["threadIdx.x", "threadIdx.x", "threadIdx.y"])))
    elif way == 1 and len(spatial) >= 2 and sums:  # tiles of shared memory
        i, j = spatial[-2:]
        scope = str(rng.choice(["shared", "local"]))
        copy = s.cache_read(name, 0, scope)
        bi, ti = s.split(i, [None, int(rng.integers(1, 5))])
        bj, tj = s.split(j, [None, int(rng.integers(1, 9))])
        ko, ki = s.split(sums[0], [None, int(rng.integers(1, 9))])
        s.reorder(*spatial[:-2], bi, bj, ko, ti, tj, ki, *sums[1:])
        s.compute_at(copy, ko if scope == "shared" else tj)
        s.bind(bi, "blockIdx.y")
        s.bind(bj, "blockIdx.x")
        if rng.random() < 0.7:
            s.decompose_reduction(name, ko)
        s.bind(ti, str(rng.choice(["threadIdx.y", "vthread.x"])))
        s.bind(tj, "threadIdx.x")
        for b in blocks_below(s.func.body):
            if b.name != name and any(x.name == bj for x in loops_of(s.func, b.name)):
                free = [x.name for x in loops_of(s.func, b.name) if not x.thread]
                if free and rng.random() < 0.8 and "threadIdx.x" not in {x.thread for x in loops_of(s.func, b.name)}:
                    _, inner = s.split(free[-1], [None, int(rng.integers(1, 9))])
                    s.bind(inner, "threadIdx.x")
    elif way <= 3 and spatial:  # a thread an element, or several
        if sums:
            s.reorder(*spatial, *sums)
        loop = s.fuse(*spatial) if len(spatial) > 1 and rng.random() < 0.7 else spatial[0]
        lanes = int(rng.choice([1, 1, 2, 4]))
        outer, inner, lane = s.split(loop, [None, threads, lanes])
        if lanes > 1 and rng.random() < 0.6 and not sums:
            s.vectorize(lane)
        elif lanes > 1 and rng.random() < 0.5:
            s.reorder(outer, lane, inner)
            s.bind(lane, axes[-2] if "vthread.x" in axes else "vthread.x")
        s.bind(outer, "blockIdx.x")
        s.bind(inner, str(rng.choice(["threadIdx.x", "threadIdx.y"])))
    elif spatial:
        s.bind(spatial[0], "blockIdx.x" if rng.random() < 0.5 else "threadIdx.x")


def cases(seeds: range) -> Iterator[tuple[int, PrimFunc, PrimFunc, Program | str]]:
    """(seed, function, scheduled function, its kernels or why there are none) for each seed."""
    for seed in seeds:
        rng = np.random.default_rng(seed)
        func = own_temporaries(program(rng), rng)
        if any(not isinstance(p.extent, Const) for b in blocks_below(func.body) for p in b.iters):
            continue
        s = scheduled(rng, func)
        try:
            yield seed, func, s.func, lower_cuda(s.func, TARGET)
        except GPUError as error:
            yield seed, func, s.func, str(error)


def compare(batch: list[tuple[int, PrimFunc, PrimFunc, Program]]) -> list[str]:
    """What is wrong with the cases, one text each."""
    wrong = []
    for (seed, func, after, _), emulated in zip(batch, emulate(*(p for *_, p in batch)), strict=True):
        args = integers(func, seed)
        expected = copies(args)
        run(func, *expected)
        for order in (0, 1):
            got = copies(args)
            try:
                emulated(*got, seed=order)
            except AssertionError as error:
                wrong.append(f"seed {seed}: {error}\n{after.script()}")
                break
            if not all(_same(a, b) for a, b in zip(got, expected, strict=True)):
                wrong.append(f"seed {seed}: other results\n{after.script()}\n{emulated.source.text}")
                break
    return wrong


def _same(a, b) -> bool:
    return a is b or np.array_equal(np.asarray(a), np.asarray(b), equal_nan=np.asarray(a).dtype.kind == "f")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    batch, refused, bound = [], 0, 0
    for case in cases(range(options.seed, options.seed + options.count)):
        if isinstance(case[3], str):
            refused += 1
            print(f"seed {case[0]}: {case[3]}")
        else:
            batch.append(case)
            bound += any(x > 1 for k in case[3].kernels for x in k.block)
    wrong = []
    for first in range(0, len(batch), 16):
        wrong += compare(batch[first : first + 16])  # type: ignore[arg-type]
    print("\n\n".join(wrong[:5]))
    print(f"{len(batch)} programs, {bound} with threads; {refused} schedules have no meaning on a GPU; {len(wrong)} wrong")
    return len(wrong) > 0


if __name__ == "__main__":
    sys.exit(main())
