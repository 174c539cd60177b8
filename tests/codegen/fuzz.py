"""Random programs under random schedules, through the interpreter and LLVM: `python -m tests.codegen.fuzz --seeds 0:500`.

A case is its seed. `run` draws the program and the schedule and compares; the command runs cases in child processes, so that a crash
of the compiler is a failure like any other, and prints the program of each case that fails.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable

import numpy as np

from schedule import Schedule, ScheduleError
from tests.arrays import integers
from tir import dtypes, te
from tir.ir import Expr, For, Kind, Load, PrimFunc, Store, cast
from tir.traverse import blocks, loops, walk

from .harness import same

FLOATS = ("float32", "float32", "float32", "float64", "float16", "bfloat16")
INTEGERS = ("int32", "int32", "int64", "int8", "int16", "uint8", "uint16", "uint32", "uint64")
EXTENTS = (1, 2, 3, 4, 5, 7, 8, 13, 16, 17, 31, 33, 48)
WORK = 4000  # innermost iterations of a stage, at most: the interpreter is slow
CORES = ("llvm -num-cores 1", "llvm -num-cores 2")


def draw(rng: np.random.Generator, options):
    return options[int(rng.integers(len(options)))]


class Formula:
    """Random scalar formulas over given readers; values stay small integers, so that floats are exact."""

    def __init__(self, rng: np.random.Generator, readers: list[Callable[[], Expr]], dtype: str):
        self.rng, self.readers, self.dtype = rng, readers, dtype

    def leaf(self) -> Expr:
        if self.rng.random() < 0.15:
            return te.const(int(self.rng.integers(0, 4)), self.dtype)
        return self.convert(draw(self.rng, self.readers)())

    def convert(self, e: Expr) -> Expr:
        if e.dtype == self.dtype:
            return e
        if self.dtype == "bool":
            return cast(e, "bool")
        if dtypes.is_int(self.dtype) and dtypes.is_float(e.dtype):  # what is out of range has no integer value
            low = 0 if dtypes.TABLE[self.dtype].kind == "uint" else -99
            e = te.minimum(te.maximum(e, te.const(low, e.dtype)), te.const(99, e.dtype))
        return cast(e, self.dtype)

    def condition(self, depth: int) -> Expr:
        kind = self.rng.integers(6)
        if kind == 0 and depth > 0:
            return te.all(self.condition(depth - 1), self.condition(depth - 1))
        if kind == 1 and depth > 0:
            return te.any(self.condition(depth - 1), te.logical_not(self.condition(depth - 1)))
        a, b = self.value(max(depth - 1, 0)), self.value(0)
        if self.dtype == "bool":
            return a if kind < 4 else te.logical_not(a)
        return draw(
            self.rng, (lambda: a < b, lambda: a <= b, lambda: a > b, lambda: te.equal(a, b), lambda: te.not_equal(a, b))
        )()

    def value(self, depth: int) -> Expr:
        if depth <= 0:
            return self.leaf()
        if self.dtype == "bool":
            return self.condition(depth)
        kind = int(self.rng.integers(12))
        a, b = self.value(depth - 1), self.value(depth - 1)
        integral = dtypes.is_int(self.dtype)
        match kind:
            case 0 | 1 | 2:
                return a + b
            case 3:
                return a - b
            case 4 | 5:
                return a * b
            case 6:
                return te.maximum(a, b)
            case 7:
                return te.minimum(a, b)
            case 8:
                return te.select(self.condition(depth - 1), a, b)
            case 9:
                return te.if_then_else(self.condition(depth - 1), a, b)
            case 10 if integral:
                return a // te.maximum(b, te.const(1, self.dtype))
            case 11 if integral:
                return a % te.const(int(self.rng.integers(1, 8)), self.dtype)
            case _:
                return te.abs(a) if not (self.dtype.startswith("u")) else a

    def tame(self, e: Expr) -> Expr:
        """The value kept small, so that what is computed from it stays exact."""
        if dtypes.is_float(self.dtype):
            return te.maximum(te.minimum(e, te.const(6, self.dtype)), te.const(-6, self.dtype))
        return e


def program(rng: np.random.Generator) -> PrimFunc:
    """One to four stages: elementwise, windows with padding, reductions, gathers."""
    dtype = draw(rng, (draw(rng, FLOATS), draw(rng, FLOATS), draw(rng, INTEGERS), "bool" if rng.random() < 0.3 else "float32"))
    tensors = []
    rank = int(rng.integers(0, 4)) if rng.random() < 0.95 else 0
    extents = [draw(rng, EXTENTS) for _ in range(rank)]
    while np.prod(extents, dtype=int) > WORK:
        extents[int(np.argmax(extents))] = 3
    shape = tuple(extents)
    inputs = []
    for n in range(int(rng.integers(1, 4))):
        kept = tuple(d for d in shape if rng.random() < 0.8)
        other = dtype if rng.random() < 0.8 else draw(rng, (*FLOATS, *INTEGERS, "bool"))
        inputs.append(te.placeholder(kept if rng.random() < 0.5 else shape, other, name="ABC"[n]))
    tensors += inputs
    index = te.placeholder((draw(rng, EXTENTS),), draw(rng, ("int32", "int64", "uint8", "int8")), name="I")
    uses_index = False
    outputs = []
    for stage in range(int(rng.integers(1, 5))):
        stage_type = dtype if rng.random() < 0.8 else draw(rng, (*FLOATS, *INTEGERS, "bool"))
        reduces = rng.random() < 0.5
        axes = []
        if reduces:
            room = max(1, WORK // max(1, int(np.prod(shape, dtype=int))))
            for r in range(int(rng.integers(1, 3))):
                extent = min(draw(rng, EXTENTS), room)
                room = max(1, room // extent)
                first = int(rng.integers(0, 3)) if rng.random() < 0.1 else 0
                axes.append(te.reduce_axis((first, first + extent), name=f"r{stage}{r}"))
        style = [int(rng.integers(1 << 30)) for _ in range(16)]

        def readers(place, axes=axes, style=style):
            """Functions that read some tensor near `place`, always inside or guarded."""
            nonlocal uses_index
            chosen = np.random.default_rng(style[0])
            result = []
            for _ in range(3):
                tensor = draw(chosen, tensors)
                seed = int(chosen.integers(1 << 30))

                def read(tensor=tensor, seed=seed):
                    r = np.random.default_rng(seed)
                    indices, guards = [], []
                    for size in tensor.shape:
                        candidates = [*place, *axes, te.const(int(r.integers(size)))]
                        weights = [1.0 if c is not candidates[-1] else 0.2 for c in candidates]
                        i = candidates[int(r.choice(len(candidates), p=np.array(weights) / sum(weights)))]
                        i = i.value if isinstance(i, te.ReduceAxis) else i
                        what = r.integers(10)
                        if what == 0 and axes:
                            i = i + axes[0] - 1
                        elif what == 1:
                            i = i * 2 + int(r.integers(2))
                        elif what == 2:
                            i = size - 1 - i
                        elif what == 3:
                            i = i // 2
                        exact = r.random() < 0.5
                        if exact:
                            i = i % size
                        else:
                            guards += [i >= 0, i < size]
                        indices.append(i)
                    value = tensor(*indices)
                    zero = te.const(0, tensor.dtype)
                    return te.if_then_else(te.all(*guards), value, zero) if guards else value

                result.append(read)
            if style[1] % 7 == 0:
                tensor = tensors[style[2] % len(tensors)]
                if tensor.shape:
                    uses_index = True

                    def gather(tensor=tensor):
                        where = index[(place[0] if place else te.const(0)) % index.shape[0]]
                        first = (cast(where, "int32") % tensor.shape[0], *(te.const(d - 1) for d in tensor.shape[1:]))
                        return tensor(*first)

                    result.append(gather)
            return result

        def formula(place, axes=axes, style=style, stage_type=stage_type):
            local = np.random.default_rng(style[3])
            found = [f() for f in readers(place)]
            of = Formula(local, [lambda n=n: found[n % len(found)] for n in range(len(found))], stage_type)
            value = of.value(int(local.integers(1, 4)))
            if not axes:
                return of.tame(value)
            where = None
            if local.random() < 0.2:
                where = te.not_equal((axes[0].value + (place[0] if place else 0)) % 3, 1)
            reducer = style[4] % 6
            if reducer == 0 and stage_type != "bool" and style[5] % 2:
                position = cast(axes[0].value, "int32")

                def better(x, y):
                    wins = te.any(x[1] > y[1], te.all(te.equal(x[1], y[1]), x[0] < y[0]))
                    return te.select(wins, x[0], y[0]), te.select(wins, x[1], y[1])

                lowest = lambda a, b: (te.const(2**30, a), te.const(dtypes.limits(b)[0], b))  # noqa: E731
                return te.comm_reducer(better, lowest, name="argmax")((position, value), axis=axes, where=where)
            if stage_type == "bool":
                name = ("max", "min")[reducer % 2]
            else:
                name = ("sum", "sum", "sum", "max", "min", "sum")[reducer]
            return getattr(te, name)(of.tame(value), axis=axes, where=where)

        made = te.compute(shape, lambda *place: formula(place), name=f"S{stage}")
        made = made if isinstance(made, tuple) else (made,)
        tensors.append(made[-1])
        outputs.append(made)
        if dtypes.is_float(made[-1].dtype) and reduces:  # back to small numbers
            tensor = made[-1]
            name = f"T{stage}"
            six = te.const(6, tensor.dtype)
            bounded = te.compute(shape, lambda *i: te.maximum(te.minimum(tensor(*i), six), -six), name=name)  # noqa: B023
            tensors.append(bounded)
            outputs.append((bounded,))
    last = list(outputs[-1])
    if rng.random() < 0.3 and len(outputs) > 1:
        last = [*outputs[int(rng.integers(len(outputs) - 1))], *last]
    arguments = [*inputs, *([index] if uses_index else []), *last]
    return te.create_prim_func(_used(arguments, last))


def _used(arguments, outputs):
    """The arguments, unread inputs included: a kernel may be given what it does not need."""
    seen: list = []
    for a in arguments:
        if not any(a is s for s in seen):
            seen.append(a)
    return seen


def schedule(func: PrimFunc, rng: np.random.Generator, steps: int = 14) -> Schedule:
    """Primitives drawn at random; those that are refused are left out."""
    s = Schedule(func)
    for _ in range(int(rng.integers(0, steps))):
        try:
            _step(s, rng)
        except (ScheduleError, KeyError):  # refused, or a primitive that does not exist
            continue
    return s


def _step(s: Schedule, rng: np.random.Generator) -> None:
    block = draw(rng, blocks(s.func.body)).name
    around = s.get_loops(block)
    every = [x.name for x in loops(s.func.body)]
    kind = int(rng.integers(20))
    if kind == 15 and around:
        s.compute_at(block, draw(rng, every))
    elif kind == 16 and around:
        s.reverse_compute_at(block, draw(rng, every))
    elif kind == 17:
        draw(rng, (s.compute_inline, s.reverse_compute_inline))(block)
    elif kind == 18:
        draw(rng, (s.cache_read, s.cache_write))(block, 0, "local")
    elif not around:
        s.add_unit_loop(block)
    elif kind < 5:
        loop = draw(rng, around)
        factors: list[int | None] = [int(draw(rng, (2, 3, 4, 5, 8, 16, 48)))]
        s.split(loop, [None, *factors] if rng.random() < 0.8 else [*factors, None])
    elif kind == 5 and len(around) > 1:
        at = int(rng.integers(len(around) - 1))
        s.fuse(*around[at : at + 2])
    elif kind < 9:
        order = list(around)
        rng.shuffle(order)
        s.reorder(*order[: int(rng.integers(2, len(order) + 1))] if len(order) > 1 else order)
    elif kind < 12:
        s.vectorize(draw(rng, around) if rng.random() < 0.5 else around[-1])
    elif kind == 12:
        s.parallel(around[0] if rng.random() < 0.7 else draw(rng, around))
    elif kind == 13:
        s.unroll(draw(rng, around))
    elif kind == 14:
        loop = draw(rng, around)
        draw(
            rng,
            (
                lambda: s.annotate(loop, "pragma_auto_unroll_max_step", 16),
                lambda: s.decompose_reduction(block, loop),
                lambda: s.rfactor(loop),
            ),
        )()
    else:
        s.vectorize(around[-1])


def annotate(s: Schedule, rng: np.random.Generator) -> None:
    """What a schedule may say about memory and chunks, on loops drawn at random."""
    for loop in loops(s.func.body):
        if not isinstance(loop, For) or rng.random() < 0.5:
            continue
        written = sorted({x.buffer.name for x in walk(loop) if isinstance(x, Store)})
        used = sorted({x.buffer.name for x in walk(loop.body) if isinstance(x, Load | Store)})
        match int(rng.integers(4)):
            case 0 if written:
                s.annotate(loop.name, "non_temporal", draw(rng, written))
            case 1 if used:
                s.annotate(loop.name, "prefetch", [draw(rng, used), int(rng.integers(1, 40))])
            case 2:
                s.annotate(loop.name, "schedule", draw(rng, ("static", "dynamic")))
            case 3:
                s.annotate(loop.name, "chunk", int(rng.integers(1, 6)))


def ordered(func: PrimFunc) -> bool:
    """Whether some loop is neither parallel nor vectorised nor unrolled: what a case must not lose."""
    return any(x.kind is Kind.SERIAL for x in loops(func.body) if isinstance(x, For))


def case(seed: int) -> Schedule:
    """The program and the schedule of a seed."""
    rng = np.random.default_rng(seed)
    func = program(rng)
    s = schedule(func, rng)
    annotate(s, rng)
    return s


def run(seed: int, cpu: str = "") -> Schedule:
    """Compare one case on one and on two threads; AssertionError where they differ."""
    s = case(seed)
    same(s.func, integers(s.func, seed), targets=[f"{t} -mcpu {cpu}" if cpu else t for t in CORES], fences=True)
    return s


def main() -> int:
    parser = argparse.ArgumentParser(description="Compare random scheduled programs, interpreted and compiled.")
    parser.add_argument("--seeds", default="0:100", help="first:last, the last not included")
    parser.add_argument("--mcpu", default="")
    parser.add_argument("--show", action="store_true", help="print the scheduled program and the lowered one, in this process")
    options = parser.parse_args()
    first, last = map(int, options.seeds.split(":"))
    if options.show:
        import codegen

        s = case(first)
        print(s.trace, s.func.script(), codegen.lower(s.func, codegen.Target("llvm")).script(), sep="\n", flush=True)
        run(first, options.mcpu)
        return 0
    seed, failed = first, []
    while seed < last:
        code = f"from tests.codegen import fuzz\nfor n in range({seed}, {last}):\n    print(n, flush=True)\n    fuzz.run(n, {options.mcpu!r})"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        reached = int(done.stdout.split()[-1])
        if done.returncode == 0:
            break
        failed.append(reached)
        errors = [x for x in done.stderr.splitlines() if x and x[0].isalpha() and not x.startswith("Traceback")]
        print(f"seed {reached}: exit {done.returncode}: {(errors or [''])[0][:300]}", flush=True)
        seed = reached + 1
    print(f"{last - first} cases, {len(failed)} failed: {failed}")
    return len(failed) > 0


if __name__ == "__main__":
    sys.exit(main())
