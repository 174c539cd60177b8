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

import tir
from schedule import Schedule, ScheduleError
from tests.arrays import integers, specials
from tir import dtypes, te
from tir.ir import (
    Axis,
    Binary,
    Block,
    Buffer,
    Const,
    Expr,
    For,
    If,
    Iter,
    Kind,
    Load,
    PrimFunc,
    Stmt,
    Store,
    Unary,
    Var,
    cast,
    seq,
)
from tir.traverse import blocks, fresh, loops, names, rewrite_statements, substitute, walk

from .harness import same

FLOATS = ("float32", "float32", "float32", "float64", "float16", "bfloat16")
INTEGERS = ("int32", "int32", "int64", "int8", "int16", "uint8", "uint16", "uint32", "uint64")
EXTENTS = (1, 2, 3, 4, 5, 7, 8, 13, 16, 17, 31, 33, 48)
WORK = 4000  # innermost iterations of a stage, at most: the interpreter is slow
CORES = ("llvm -num-cores 1", "llvm -num-cores 2")


def draw(rng: np.random.Generator, options):
    return options[int(rng.integers(len(options)))]


def int_of(size: int | Expr) -> int:
    return int(size.value) if isinstance(size, Const) else int(size)  # type: ignore[call-overload]


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
    """One to four stages: elementwise, windows with padding, reductions, gathers; in loops of 32 or of 64 bits, or in some of both."""
    share = rng.random()
    width, mixed = "int64" if share < 0.3 else "int32", share > 0.8

    def sized(*extents: int) -> tuple:
        return tuple(te.const(n, "int64") if width == "int64" else n for n in extents)

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
        inputs.append(te.placeholder(sized(*(kept if rng.random() < 0.5 else shape)), other, name="ABC"[n]))
    tensors += inputs
    index = te.placeholder(sized(draw(rng, EXTENTS)), draw(rng, ("int32", "int64", "uint8", "int8")), name="I")
    uses_index = False
    outputs = []
    for stage in range(int(rng.integers(1, 5))):
        stage_type = dtype if rng.random() < 0.8 else draw(rng, (*FLOATS, *INTEGERS, "bool"))
        width = draw(rng, ("int32", "int64")) if mixed else width
        reduces = rng.random() < 0.5
        axes = []
        if reduces:
            room = max(1, WORK // max(1, int(np.prod(shape, dtype=int))))
            for r in range(int(rng.integers(1, 3))):
                extent = min(draw(rng, EXTENTS), room)
                room = max(1, room // extent)
                first = int(rng.integers(0, 3)) if rng.random() < 0.1 else 0
                axes.append(te.reduce_axis(sized(first, first + extent), name=f"r{stage}{r}"))
        style = [int(rng.integers(1 << 30)) for _ in range(16)]

        def readers(place, axes=axes, style=style, width=width):
            """Functions that read some tensor near `place`, always inside or guarded."""

            def used_index() -> None:
                nonlocal uses_index
                uses_index = True

            chosen = np.random.default_rng(style[0])
            result = []
            for _ in range(3):
                tensor = draw(chosen, tensors)
                seed = int(chosen.integers(1 << 30))

                def read(tensor=tensor, seed=seed):
                    r = np.random.default_rng(seed)
                    indices, guards = [], []
                    uniform = r.random() < 0.15  # a term that depends on no axis
                    along = () if style[6] % 4 == 0 else axes  # all terms of a sum may be the same
                    for size in map(int_of, tensor.shape):
                        candidates = [*([] if uniform else [*place, *along]), te.const(int(r.integers(size)), width)]
                        weights = [1.0 if c is not candidates[-1] else 0.2 for c in candidates]
                        i = candidates[int(r.choice(len(candidates), p=np.array(weights) / sum(weights)))]
                        i = i.value if isinstance(i, te.ReduceAxis) else i
                        what = r.integers(16)
                        if what == 0 and along and not uniform:
                            i = i + along[0] - 1
                        elif what == 1:
                            i = i * 2 + int(r.integers(2))
                        elif what == 2:
                            i = size - 1 - i
                        elif what == 3:
                            i = i // 2
                        elif what == 4:
                            i = te.select(te.equal(i % 3, 1), i, te.const(size - 1, width))
                        elif what == 5:
                            i = te.if_then_else(i > 2, i - 2, i * 2)
                        elif what == 6:
                            i = cast(cast(i, draw(r, ("int8", "uint8", "int16", "int32", "int64"))), width)
                        elif what == 7:
                            at = cast(index[i % int_of(index.shape[0])], width)
                            i = draw(r, (lambda: te.minimum(at, i), lambda: te.select(at > i, at, i), lambda: at))()  # noqa: B023
                            used_index()
                        how = r.random()
                        if how < 0.4 or what in (6, 7):
                            i = i % size
                        elif how < 0.6:
                            i = te.minimum(te.maximum(i, te.const(0, width)), te.const(size - 1, width))
                        else:
                            guards += [i >= 0, i < size]
                        indices.append(i)
                    value = tensor(*indices)
                    beside = te.const(int(r.integers(3)) % (2 if tensor.dtype == "bool" else 3), tensor.dtype)
                    return te.if_then_else(te.all(*guards), value, beside) if guards else value

                result.append(read)
            if style[1] % 7 == 0:
                tensor = tensors[style[2] % len(tensors)]
                if tensor.shape:
                    used_index()

                    def gather(tensor=tensor):
                        where = index[(place[0] if place else te.const(0, width)) % int_of(index.shape[0])]
                        rows, *rest = map(int_of, tensor.shape)
                        first = (cast(where, width) % rows, *(te.const(d - 1, width) for d in rest))
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

        made = te.compute(sized(*shape), lambda *place: formula(place), name=f"S{stage}")
        made = made if isinstance(made, tuple) else (made,)
        tensors.append(made[-1])
        outputs.append(made)
        if dtypes.is_float(made[-1].dtype) and reduces:  # back to small numbers
            tensor = made[-1]
            name = f"T{stage}"
            six = te.const(6, tensor.dtype)
            bounded = te.compute(sized(*shape), lambda *i: te.maximum(te.minimum(tensor(*i), six), -six), name=name)  # noqa: B023
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


def own_temporaries(func: PrimFunc, rng: np.random.Generator) -> PrimFunc:
    """The function with some values on their way through temporaries of their blocks, which are filled in a loop, by a block
    inside or not, under a condition or not, and read from the other end."""
    taken = names(func)

    def change(s: Stmt) -> Stmt:
        if not isinstance(s, Block) or not isinstance(s.body, Store) or s.init is not None or rng.random() < 0.5:
            return s
        store, n = s.body, int(rng.integers(1, 6))
        own = Buffer(fresh(taken, "own"), (Const(n),), store.buffer.dtype)
        a, v = Var(fresh(taken, "a")), Var(fresh(taken, "v_a"))
        fill: Stmt = Store(own, (v,), store.value)
        if rng.random() < 0.4:
            large = Binary(">", store.value, te.const(0, store.value.dtype))
            fill = seq(If(large, fill), If(Unary("not", large), fill))
        if rng.random() < 0.5:
            fill = Block(fresh(taken, "fill"), (Iter(v, Const(n), Axis.SPATIAL, a),), fill)
        else:
            fill = substitute(fill, {v: a})
        last = Store(store.buffer, store.indices, Load(own, (Const(n - 1 - int(rng.integers(n))),)))
        return s.with_(body=seq(For(a, Const(n), fill), last), allocs=(own,), reads=None, writes=None)

    return func.with_(body=rewrite_statements(func.body, change))


def schedule(func: PrimFunc, rng: np.random.Generator, steps: int = 14) -> Schedule:
    """Primitives drawn at random; those that are refused are left out."""
    s = Schedule(func)
    for _ in range(int(rng.integers(0, steps))):
        try:
            _step(s, rng)
        except (ScheduleError, KeyError):  # refused, or a primitive that does not exist
            continue
    if rng.random() < 0.4:  # lanes inside, copies or threads outside
        around = s.get_loops(draw(rng, blocks(s.func.body)).name)
        for loop, mark in zip(around[:-3:-1], (s.vectorize, draw(rng, (s.unroll, s.parallel))), strict=False):
            try:
                mark(loop)
            except ScheduleError:
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
                lambda: s.annotate(loop, "combine_lanes", True),
                lambda: s.annotate(around[-1], "combine_lanes", True),
                lambda: s.blockize(loop),
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
    """The program and the schedule of a seed: random steps, or those of the default schedule."""
    rng = np.random.default_rng(seed)
    func = program(rng)
    if rng.random() < 0.3:
        return tir.default_schedule(func, draw(rng, CORES))
    s = schedule(own_temporaries(func, rng), rng)
    annotate(s, rng)
    return s


def arguments(func: PrimFunc, seed: int) -> list:
    """Small integers; sometimes with the ends of integer types, and with floats that are no number or infinite, among them."""
    return (specials if seed % 4 == 0 else integers)(func, seed)


def run(seed: int, cpu: str = "") -> Schedule:
    """Compare one case on one and on two threads; AssertionError where they differ."""
    s = case(seed)
    same(s.func, arguments(s.func, seed), targets=[f"{t} -mcpu {cpu}" if cpu else t for t in CORES], fences=True)
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
