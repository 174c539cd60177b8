"""Random calls of every primitive, with arguments drawn from the loops, blocks and buffers of a function."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import schedule  # noqa: F401 (registers the primitives)
from schedule import Schedule, ScheduleError, TensorIntrin
from schedule.primitive import REGISTRY
from schedule.random_variables import as_variable
from schedule.trace import Step
from tests.schedule.random_programs import draw
from tir.ir import TRUE, Axis, Binary, Block, Buffer, Const, For, Iter, Load, PrimFunc, Select, Seq, Store, Var
from tir.traverse import blocks, loads, loops, path_to, stores, variables, walk

# How often a primitive is drawn, where not once.
WEIGHTS = {
    "split": 4, "reorder": 4, "compute_at": 4, "reverse_compute_at": 4, "fuse": 3, "rfactor": 3, "cache_read": 2,
    "cache_write": 2, "decompose_reduction": 2, "merge": 2, "fuse_reduction_epilogue": 2, "vectorize": 2, "parallel": 2, "blockize": 2, "tensorize": 2, "pad_einsum": 2, "stage_mem": 2, "lift_alloc": 2,
    "annotate": 0.5, "unannotate": 0.5, "bind": 0.5, "sample_categorical": 0.3, "sample_perfect_tile": 0.3, "sample_tile": 0.3,
}  # fmt: skip
SCOPES = ("global", "local", "shared", "register")
MAPS = {
    0: ("lambda: (0,)",),
    1: ("lambda i: (i,)", "lambda i: (i // 2, i % 2)", "lambda i: (i // 4, i % 4)", "lambda i: (0, i)", "lambda i: (i * 2,)"),
    2: (
        "lambda i, j: (i, j)",
        "lambda i, j: (j, i)",
        "lambda i, j: (i // 2, j, i % 2)",
        "lambda i, j: (j // 4, i, j % 4)",
        "lambda i, j: (i * 7 + j,)",
        "lambda i, j: (i + j,)",
    ),
    3: (
        "lambda i, j, k: (i, k, j)",
        "lambda i, j, k: (k, j, i)",
        "lambda i, j, k: (i, j // 2, k, j % 2)",
        "lambda i, j, k: (i, j)",
        "lambda i, j, k: (k, i * 5 + j)",
    ),
    4: ("lambda i, j, k, l: (l, i, j, k)", "lambda i, j, k, l: (i, j, k * 3 + l)"),
}
INTRINSICS = [f"fuzz_{kind}_{n}" for n in (2, 3, 4) for kind in ("fma", "copy")]


def register_intrinsics() -> None:
    """Register `INTRINSICS`, small enough for small programs: an update of n elements of a row, as its own implementation."""
    for n in (2, 3, 4):
        A, B, C = Buffer("A", (Const(1),)), Buffer("B", (Const(n),)), Buffer("C", (Const(n),))
        i, v = Var("i"), Var("v")
        block = Block("update", (Iter(v, Const(n), Axis.SPATIAL, i),), Store(C, (v,), C[v] + A[0] * B[v]))
        func = PrimFunc("main", (A, B, C), For(i, Const(n), block))
        TensorIntrin.register(f"fuzz_fma_{n}", func, func, override=True)
        X, Y = Buffer("X", (Const(n),)), Buffer("Y", (Const(n),))
        copy = PrimFunc(
            "main", (X, Y), For(i, Const(n), Block("copy", (Iter(v, Const(n), Axis.SPATIAL, i),), Store(Y, (v,), X[v])))
        )
        TensorIntrin.register(f"fuzz_copy_{n}", copy, copy, override=True)


class Draw:
    """Draws from a function; now and then a name that does not fit."""

    def __init__(self, func: PrimFunc, rng: np.random.Generator):
        self.func, self.rng = func, rng
        self.loops = [loop.name for loop in loops(func)]
        self.blocks = [b.name for b in blocks(func)]

    def one(self, *options: Any) -> Any:
        return draw(self.rng, options)

    def int(self, low: int, high: int) -> int:
        return int(self.rng.integers(low, high))

    def loop(self) -> str:
        return self._name(self.loops, self.blocks)

    def block(self) -> str:
        return self._name(self.blocks, self.loops)

    def _name(self, fitting: list[str], others: list[str]) -> str:
        if not fitting or self.rng.random() < 0.02:
            return self.one(*others, "nowhere")
        return self.one(*fitting)

    def named(self) -> str:
        return self.loop() if self.rng.random() < 0.5 else self.block()

    def around(self, s: Schedule) -> list[str]:
        """The loops of a block, or all."""
        return s.get_loops(self.one(*self.blocks)) if self.blocks and self.rng.random() < 0.85 else self.loops

    def accessed(self, block: str) -> tuple[list[str], list[str]]:
        """The names of the buffers that a block reads and writes."""
        found = next((b for b in blocks(self.func) if b.name == block), None)
        if found is None:
            return [], []
        reads = dict.fromkeys(x.buffer.name for x in loads(found.body))
        return list(reads), list(dict.fromkeys(x.buffer.name for x in stores(found.body)))

    def buffer(self, block: str, written: bool | None = None) -> int | str:
        reads, writes = self.accessed(block)
        names = writes if written else reads if written is False else [*reads, *writes]
        return self.one(*names) if names and self.rng.random() < 0.5 else 0 if self.rng.random() < 0.8 else self.int(0, 3)

    def buffer_pair(self, block: str) -> Any:
        return self.buffer(block) if self.rng.random() < 0.3 else [self.one("read", "write"), 0 if self.rng.random() < 0.7 else 1]

    def rank(self, block: str, which: Any) -> int:
        found = next((b for b in blocks(self.func) if b.name == block), None)
        if found is None:
            return 1
        names = self.accessed(block)
        if isinstance(which, list):
            of = names[which[0] == "write"]
            which = of[which[1]] if which[1] < len(of) else None
        shapes = {x.buffer.name: len(x.buffer.shape) for x in (*loads(found), *stores(found))}
        return shapes.get(which, 2)

    def axes(self, block: str) -> int:
        return next((len(b.iters) for b in blocks(self.func) if b.name == block), 1)

    def index_map(self, rank: int) -> str:
        if self.rng.random() < 0.1:
            rank = self.int(0, 5)
        return self.one(*MAPS.get(rank, MAPS[1]))

    def factors(self) -> list[int | None]:
        return self.one(
            [None, 2], [None, 3], [2, None], [None, 4, 2], [None, 1], [None, 16], [2, 2], [3, 5], [2, None, 3], [None]
        )


def arguments(s: Schedule, name: str, rng: np.random.Generator) -> tuple[list[Any], dict[str, Any]]:
    """Random arguments of a primitive: positional ones, and those by name."""
    d = Draw(s.func, rng)
    block, loop = d.block(), d.loop()
    kept = {"preserve_unit_iters": False} if d.rng.random() < 0.15 else {}
    match name:
        case "split" | "loop_partition":
            factors = d.factors() if name == "split" else d.one([2], [None, 2], [1, None], [1, 2], [1, 2, None], [3, None])
            if name == "split" and d.rng.random() < 0.25:
                kept |= {"tail": d.one("perfect", "cut", "cut", "overlap")}
            if name == "split" and d.rng.random() < 0.1:
                kept |= {"names": [d.one("outer", "i", "x0"), *(f"inner{n}" for n in range(len(factors) - 1))]}
            return [loop, factors], kept
        case "assume":
            of = [v.name for v in s.func.sizes] or d.loops or ["n"]
            size = d.one(*of)
            return [
                d.one(f"{size} % {d.int(2, 5)} == 0", f"{size} >= {d.int(0, 5)}", f"{size} % 12 == 0 and {size} <= 48", size)
            ], {}
        case "fuse":
            of = d.around(s) or [loop]
            at = d.int(0, max(1, len(of) - 1))
            return of[at : at + d.int(2, 4)], kept
        case "reorder":
            of = d.around(s) or [loop]
            return [str(x) for x in d.rng.permutation(of)[: d.int(2, 5)]], {}
        case "tile":
            of = d.around(s) or [loop]
            at = d.int(0, max(1, len(of) - 1))
            return [of[at], of[min(at + 1, len(of) - 1)], d.one(1, 2, 3, 4), d.one(1, 2, 3, 4)], {}
        case "rfactor":
            reducing = [loop for b in blocks(s.func) if b.init is not None for loop in _reducing(s, b)]
            chosen = d.one(*reducing) if reducing and d.rng.random() < 0.8 else loop
            return [chosen], {"factor_axis": d.one(0, 1, -1)} if d.rng.random() < 0.4 else {}
        case "trim" | "peel" | "hoist_predicate":
            driving = [x for b in blocks(s.func) for x in _driving(s, b, name == "hoist_predicate")]
            return [d.one(*driving) if driving and d.rng.random() < 0.8 else loop], {}
        case "bind":
            return [loop, d.one("blockIdx.x", "threadIdx.x", "threadIdx.y", "vthread.x")], {}
        case "merge" | "rolling_update":
            return list(dict.fromkeys([loop, d.loop(), *([d.loop()] if d.rng.random() < 0.1 else [])])), {}
        case "annotate":
            if d.rng.random() < 0.5:
                return [d.named(), "pragma_auto_unroll_max_step", d.one(0, 4, 16)], {}
            return [d.named(), "key", d.one(1, "value", [1, 2], {"a": 1})], {}
        case "unannotate":
            annotated = [(x.name, k) for x in (*loops(s.func), *blocks(s.func)) for k, _ in x.annotations]
            return list(d.one(*annotated)) if annotated and d.rng.random() < 0.9 else [d.named(), "key"], {}
        case "fuse_reduction_epilogue":
            pairs = [(b.name, c) for b in blocks(s.func) if b.init is not None for c in s.get_consumers(b.name)]
            return list(d.one(*pairs)) if pairs and d.rng.random() < 0.9 else [block, d.block()], {}
        case "add_guard":
            over = d.one(*(s.get_loops(block) or [loop])) if block in d.blocks else loop
            where = d.one(block, block, *(d.loops or [block]))
            return [where, f"{over} {d.one('<', '>=', '==', '>')} {d.int(0, 4)}"], {}
        case "compute_at" | "reverse_compute_at":
            related = _related(s, block, name == "compute_at")
            if related and d.rng.random() < 0.85:
                loop = d.one(*related)
            extra = {"preserve_unit_loops": True} if d.rng.random() < 0.3 else {}
            extra |= {"index": d.one(-2, 0, 1)} if d.rng.random() < 0.2 else {}
            return [block, loop], extra
        case "cache_read" | "cache_write":
            extra = {"consumer_blocks": [d.block()]} if d.rng.random() < 0.2 else {}
            return [block, d.buffer(block, name == "cache_write"), d.one(*SCOPES)], extra
        case "read_at" | "write_at":
            where = d.one(*(s.get_loops(block) or [loop])) if block in d.blocks else loop
            return [where, block, d.buffer(block, name == "write_at"), d.one(*SCOPES)], {}
        case "cache_inplace":
            return [block, d.buffer(block, False), d.one(*SCOPES)], {}
        case "cache_index":
            return [block, d.one(*SCOPES)], {"cse_thresh": 2} if d.rng.random() < 0.3 else {}
        case "unsafe_set_dtype":
            return [block, d.buffer(block, True), d.one("float64", "float64", "float16", "int64", "int8")], {}
        case "set_axis_separator":
            return [block, d.buffer_pair(block), d.one([1], [1], [1, 2], [0], [2])], {}
        case "annotate_buffer_access":
            written, count = d.rng.random() < 0.5, d.axes(block)
            names = [f"i{n}" for n in range(count)]
            given = [d.one(f"({x}, {x} + 1)", f"({x}, {x} + 3)", "(0, 13)", x) for x in names]
            text = f"lambda {', '.join(names)}: ({''.join(f'{x}, ' for x in given)})"
            return [block, d.buffer(block, written), "write" if written else "read", text], {}
        case "reindex":
            return [block, d.buffer_pair(block)], {}
        case "reindex_cache_read" | "reindex_cache_write":
            buffer = d.buffer(block, name == "reindex_cache_write")
            return [block, buffer, d.one(*SCOPES), d.index_map(d.axes(block))], {}
        case "pack":
            return [block, d.buffer(block, False)], {}
        case "set_scope":
            return [block, d.buffer(block, True), d.one(*SCOPES)], {}
        case "transform_layout":
            buffer = d.buffer_pair(block)
            padding = {"pad_value": d.one(0, 0, 7, "lambda i, j: i + j")} if d.rng.random() < 0.6 else {}
            return [block, buffer, d.index_map(d.rank(block, buffer))], padding
        case "reorder_block_iter_var":
            order = [int(x) for x in d.rng.permutation(d.axes(block))]
            return [block, order if d.rng.random() < 0.9 else order[:-1]], {}
        case "decompose_reduction":
            reducing = [b.name for b in blocks(s.func) if b.init is not None]
            block = d.one(*reducing) if reducing and d.rng.random() < 0.8 else block
            return [block, d.one(*(d.around(s) or [loop]), loop)], {}
        case "blockize":
            if d.blocks and d.rng.random() < 0.2:
                return [[d.block() for _ in range(d.int(1, 4))]], kept
            return [loop if d.rng.random() < 0.9 else block], kept
        case "tensorize":
            where = d.one(*(s.get_loops(block)[-1:] or [loop])) if block in d.blocks and d.rng.random() < 0.8 else d.named()
            fitting = [x for x in loops(s.func) if x.name == where and x.extent in (Const(2), Const(3), Const(4))]
            names = [n for n in INTRINSICS if n.endswith(f"_{fitting[0].extent.value}")] if fitting else INTRINSICS
            return [where, d.one(*names)], kept
        case "stage_mem":
            where = d.named()
            found = [x for x in (*loops(s.func), *blocks(s.func)) if x.name == where]
            used = {x.buffer.name for y in found for x in (*loads(y), *stores(y))}
            around = [x.name for x in path_to(s.func, where)[:-1] if type(x) is For] if found else []
            keep = {"keep": around[-1] if d.rng.random() < 0.9 else d.loop()} if around and d.rng.random() < 0.5 else {}
            return [where, d.one(*sorted(used)) if used else "A", d.one("staged", "window"), d.one(*SCOPES)], keep
        case "lift_alloc":
            inner = [b.name for x in blocks(s.func) for b in x.allocs]
            return [d.one(*inner) if inner else d.buffer(block, True) or "A"], {}
        case "sample_partitioned_tile":
            return [loop, d.int(1, 4), d.int(0, 3), d.one(1, 1, 2, 7)], {}
        case "sample_perfect_tile" | "sample_tile":
            return [loop, d.int(1, 4)], {"max_innermost_factor": d.one(-1, 2, 8)} if d.rng.random() < 0.5 else {}
        case "sample_categorical":
            return [[1, 2, "x"], [0.5, 0.25, 0.25]], {}
        case "pad_einsum":
            reducing = [b.name for b in blocks(s.func) if b.init is not None]
            block = d.one(*reducing) if reducing and d.rng.random() < 0.9 else block
            return [block, [int(d.one(1, 1, 2, 4)) for _ in range(d.axes(block))]], {}
        case "decompose_padding":
            choosing = [b.name for b in blocks(s.func) if type(b.body) is Store and type(b.body.value) is Select]
            block = d.one(*choosing) if choosing and d.rng.random() < 0.9 else block
            return [block, d.one(*(s.get_loops(block) if block in d.blocks else []), loop)], {}
        case "storage_align":
            return [block, d.buffer(block, True), d.int(-2, 3), d.one(2, 4, 16), d.int(0, 3)], {}
        case _:
            return _by_declaration(d, name, block), {}


def _reducing(s: Schedule, block: Block) -> list[str]:
    """The loops that drive the reduce axes of a block."""
    driving = {v for it in block.iters if it.axis is Axis.REDUCE for v in variables(it.binding)}
    return [loop for loop in s.get_loops(block.name) if loop in driving]


def _driving(s: Schedule, block: Block, outside: bool) -> list[str]:
    """The loops in the conditions of a block, or those that are not."""
    used = variables(block.predicate)
    return [loop for loop in s.get_loops(block.name) if (loop in used) != outside] if used else []


def _related(s: Schedule, block: str, consumers: bool) -> list[str]:
    """The loops around the consumers, or the producers, of a block."""
    try:
        found = s.get_consumers(block) if consumers else s.get_producers(block)
    except ScheduleError:
        return []
    return [loop for b in found for loop in s.get_loops(b)]


def _by_declaration(d: Draw, name: str, block: str) -> list[Any]:
    """Arguments for the parameters without default of any primitive, by their names and declared types."""
    result: list[Any] = []
    for p in REGISTRY[name].parameters:
        if p.kind is p.KEYWORD_ONLY or p.default is not p.empty:
            break
        declared = str(p.annotation)
        if p.kind is p.VAR_POSITIONAL:
            result += [d.loop(), d.loop()]
        elif "map" in p.name:
            result.append(d.index_map(d.axes(block)))
        elif "scope" in p.name:
            result.append(d.one(*SCOPES))
        elif "buffer" in p.name:
            result.append(d.buffer(block))
        elif "block" in p.name and "list" not in declared:
            result.append(block if "loop" not in p.name else d.named())
        elif "loop" in p.name:
            result.append([d.loop(), d.loop()] if "list" in declared else d.loop())
        elif "list" in declared:
            result.append([d.int(0, 4) for _ in range(d.int(1, 4))] if "int" in declared else [d.block()])
        elif declared.startswith("int"):
            result.append(d.int(-1, 5))
        elif declared.startswith("bool"):
            result.append(d.rng.random() < 0.5)
        else:
            result.append(d.named())
    return result


# --- steps that make others possible --------------------------------------------------------------------------------------


class Unprepared(Exception):
    """The function has nothing that a recipe needs."""


Recipe = Iterator[tuple[str, list[Any], dict[str, Any]]]  # each step is drawn after the one before was taken, or refused


def _block(s: Schedule, d: Draw, fits: Callable[[Block], bool]) -> Block:
    fitting = [b for b in blocks(s.func) if fits(b)]
    if not fitting:
        raise Unprepared
    return d.one(*fitting)


def _loop(s: Schedule, d: Draw, fits: Callable[[For], bool] = lambda loop: True) -> For:
    fitting = [x for x in loops(s.func) if fits(x)]
    if not fitting:
        raise Unprepared
    return d.one(*fitting)


def _tail(s: Schedule, d: Draw) -> Recipe:
    """A split that does not divide."""
    loop = _loop(s, d, lambda x: type(x.extent) is Const and x.extent.value > 2)
    n = int(loop.extent.value)  # type: ignore[attr-defined]
    factor = d.one(*(f for f in range(2, n + 3) if n % f))
    yield "split", [loop.name, d.one([None, factor], [-(-n // factor) + 1, factor])], {}


def _peeling(s: Schedule, d: Draw) -> Recipe:
    yield from _tail(s, d)
    yield "peel", [_loop(s, d, lambda x: x.name.endswith("_0")).name], {}


def _trimming(s: Schedule, d: Draw) -> Recipe:
    yield from _tail(s, d)
    yield "trim", [_loop(s, d, lambda x: x.name.endswith("_0")).name], {}


def _hoisting(s: Schedule, d: Draw) -> Recipe:
    yield from _tail(s, d)
    block = _block(s, d, lambda b: bool(variables(b.predicate)))
    outside = _driving(s, block, True)
    yield "hoist_predicate", [d.one(*outside) if outside else d.loop()], {}


def _unannotating(s: Schedule, d: Draw) -> Recipe:
    where = d.named()
    yield "annotate", [where, "key", 1], {}
    yield "unannotate", [where, "key"], {}


def _padding_einsum(s: Schedule, d: Draw) -> Recipe:
    block = _block(s, d, lambda b: b.init is not None)
    for _ in dict.fromkeys(x.buffer.name for x in loads(block.body) if x.buffer.name not in d.accessed(block.name)[1]):
        number = next((n for n in range(4) if not _is_temporary(s, block.name, n)), 0)
        yield "cache_read", [block.name, number, "global", [block.name]], {}
    yield "cache_write", [block.name, 0, "global"], {}
    yield "pad_einsum", [block.name, [int(d.one(1, 2, 3, 4)) for _ in block.iters]], {}


def _is_temporary(s: Schedule, block: str, number: int) -> bool:
    """Whether a block reads a temporary as its buffer number `number`, or reads no such buffer."""
    found = next(b for b in blocks(s.func) if b.name == block)
    names = dict.fromkeys(x.buffer.name for x in loads(found.body))
    read = [n for n in names if n not in {x.buffer.name for x in stores(found.body)}]
    return number >= len(read) or read[number] not in {p.name for p in s.func.params}


def _tensorizing(s: Schedule, d: Draw) -> Recipe:
    block = _block(s, d, lambda b: b.init is not None and len(b.iters) > 2 and _adds_products(b))
    around = s.get_loops(block.name)
    reducing = _reducing(s, block)
    spatial = [x for x in around if x not in reducing]
    if len(reducing) != 1 or not spatial:
        raise Unprepared
    extent = next(x.extent for x in loops(s.func) if x.name == spatial[-1])
    n = d.one(*([n for n in (2, 3, 4) if type(extent) is Const and extent.value % n == 0] or [2, 3, 4]))
    yield "split", [spatial[-1], [None, n]], {}
    inner = [x for x in s.get_loops(block.name) if x not in around][-1:]
    yield "reorder", [reducing[0], *inner], {}
    yield "decompose_reduction", [block.name, reducing[0]], {}
    yield "tensorize", [inner[0] if inner else d.loop(), f"fuzz_fma_{n}"], {}


def _adds_products(block: Block) -> bool:
    match block.body:
        case Store(value=Binary("+", Load(), Binary("*", Load(dtype="float32"), Load()))):
            return True
        case _:
            return False


def _lifting(s: Schedule, d: Draw) -> Recipe:
    block = _block(s, d, lambda b: type(b.body) is Store)
    around = s.get_loops(block.name)
    if not around:
        raise Unprepared
    yield "blockize", [d.one(*around)], {}
    yield d.one("cache_read", "cache_write"), [block.name, 0, "local"], {}
    outer = [b for b in blocks(s.func) if b.name == f"{block.name}_o"]
    if outer and (loops_around := s.get_loops(outer[0].name)):
        yield "blockize", [d.one(*loops_around)], {}
    inner = [b.name for x in blocks(s.func) for b in x.allocs]
    yield "lift_alloc", [d.one(*inner) if inner else "A"], {}


def _keeping(s: Schedule, d: Draw) -> Recipe:
    block = _block(s, d, lambda b: True)
    around = s.get_loops(block.name)
    if not around:
        raise Unprepared
    if d.rng.random() < 0.3:
        yield "split", [d.one(*around), [None, d.one(2, 3, 4)]], {}
        around = s.get_loops(block.name)
    at = d.int(0, len(around))
    target = [*around, block.name][at + 1]
    reads = d.accessed(block.name)[0]
    yield "stage_mem", [target, d.one(*reads) if reads else "A", "window", d.one(*SCOPES)], {"keep": around[at]}


def _rolling(s: Schedule, d: Draw) -> Recipe:
    temporary = {b.name for b in s.func.allocs}
    own = [b.name for b in blocks(s.func) if b.init is None and {x.buffer.name for x in stores(b.body)} <= temporary]
    producers = [b for b in own if s.get_consumers(b)]
    if not producers:
        raise Unprepared
    block = d.one(*producers)
    loops_around = s.get_loops(s.get_consumers(block)[0])
    if not loops_around:
        raise Unprepared
    loop = d.one(loops_around[0], *loops_around)
    if d.rng.random() < 0.2:
        yield "split", [loop, [None, 2]], {}
        loop = d.one(*s.get_loops(s.get_consumers(block)[0]))
    yield "compute_at", [block, loop], {}
    above = [b for b in s.get_producers(block) if loop in s.get_loops(block)]
    if above and d.rng.random() < 0.6:
        yield "compute_at", [above[0], loop], {}
    yield "rolling_buffer", [block, 0], {}
    if above and loop in s.get_loops(above[0]):
        yield "rolling_buffer", [above[0], 0], {}


def _splitting_as_drawn(s: Schedule, d: Draw) -> Recipe:
    loop = d.loop()
    yield "sample_tile", [loop, d.int(2, 4)], {}
    last = s.trace[-1] if len(s.trace) else None
    drawn = (
        [as_variable(v, n) for v, n in zip(last.results, last.names, strict=True)] if last is not None and last.names else [2, 2]
    )
    yield "split", [loop, drawn], {}


def _assuming(s: Schedule, d: Draw) -> Recipe:
    """Tiles of an extent that is known to be a multiple."""
    size = d.one(*([v.name for v in s.func.sizes] or [None]))
    if size is None:
        raise Unprepared
    factor = d.one(2, 3, 4)
    yield "split", [_loop(s, d, lambda x: x.extent == Var(size)).name, [None, factor]], {"tail": d.one("perfect", "guard")}
    yield "assume", [f"{size} % {factor * d.one(1, 2)} == 0"], {}
    yield "split", [_loop(s, d, lambda x: x.extent == Var(size)).name, [None, factor]], {"tail": "perfect"}


def _factoring(s: Schedule, d: Draw) -> Recipe:
    block = _block(s, d, lambda b: b.init is not None and any(type(x) is Binary and x.op == "*" for x in walk(b.body)))
    yield "factor_out", [block.name], {}


def _seeding(s: Schedule, d: Draw) -> Recipe:
    """A reduction, and a block that adds to its result."""
    pairs = [(b.name, c) for b in blocks(s.func) if b.init is not None for c in s.get_consumers(b.name) if _adds(s, c)]
    if not pairs:
        raise Unprepared
    yield "fuse_reduction_epilogue", [*d.one(*pairs)], {}


def _adds(s: Schedule, block: str) -> bool:
    body = next(b.body for b in blocks(s.func) if b.name == block)
    return type(body) is Store and type(body.value) is Binary and body.value.op in "+-"


def _in_bytes(s: Schedule, d: Draw) -> Recipe:
    block = _block(s, d, lambda b: b.init is not None and any(x.buffer.dtype == "int8" for x in loads(b.body)))
    of = [x.buffer.name for x in loads(block.body) if x.buffer.dtype == "int8"]
    yield "make_unsigned", [block.name, d.one(*of)], {}


def _aligning(s: Schedule, d: Draw) -> Recipe:
    """Rows of a temporary, further apart."""
    temporary = {b.name for b in s.func.allocs if len(b.shape) > 1}
    block = _block(s, d, lambda b: any(x.buffer.name in temporary for x in stores(b.body)))
    buffer = next(x.buffer for x in stores(block.body) if x.buffer.name in temporary)
    factor = d.one(2, 3, 16)
    yield "storage_align", [block.name, buffer.name, d.int(0, len(buffer.shape) - 1), factor, d.int(0, factor)], {}


def _separating(s: Schedule, d: Draw) -> Recipe:
    block = _block(s, d, lambda b: any(len(x.buffer.shape) > 1 for x in stores(b)))
    yield "set_axis_separator", [block.name, ["write", 0], [1]], {}


def _padding_stage(s: Schedule, d: Draw) -> Recipe:
    block = _block(s, d, lambda b: b.predicate == TRUE and any(type(x) is Select for x in walk(b.body)))
    reads = [x.buffer.name for c in walk(block.body) if type(c) is Select for x in loads(c)]
    yield "stage_padding", [block.name, d.one(*reads) if reads else 0], {}


def _undoing_copy(s: Schedule, d: Draw) -> Recipe:
    """A copy in another layout, and the result made in its place after all."""
    block = _block(s, d, lambda b: type(b.body) is Store)
    before = {b.name for b in blocks(s.func)}
    if d.rng.random() < 0.5:
        yield "reindex", [block.name, ["write", 0]], {}
    else:
        yield "cache_write", [block.name, 0, "global"], {}
    made = [b.name for b in blocks(s.func) if b.name not in before]
    yield "write_in_place", [d.one(*(made or [block.name]))], {}


def _inlining_back(s: Schedule, d: Draw) -> Recipe:
    """A block without a sum, put into the only block that it reads from."""
    block = _block(s, d, lambda b: b.init is None and len(s.get_producers(b.name)) == 1)
    yield "reverse_compute_inline", [block.name], {}


def _several_in_one(s: Schedule, d: Draw) -> Recipe:
    """The blocks of one nest as one."""
    nest = _loop(s, d, lambda x: type(x.body) is Seq and len([*blocks(x)]) > 1)
    yield "blockize", [[b.name for b in blocks(nest)]], {}


RECIPES: dict[str, Callable[[Schedule, Draw], Recipe]] = {
    "peel": _peeling,
    "trim": _trimming,
    "hoist_predicate": _hoisting,
    "unannotate": _unannotating,
    "pad_einsum": _padding_einsum,
    "tensorize": _tensorizing,
    "lift_alloc": _lifting,
    "stage_mem": _keeping,
    "sample_tile": _splitting_as_drawn,
    "rolling_buffer": _rolling,
    "assume": _assuming,
    "factor_out": _factoring,
    "fuse_reduction_epilogue": _seeding,
    "make_unsigned": _in_bytes,
    "storage_align": _aligning,
    "set_axis_separator": _separating,
    "stage_padding": _padding_stage,
    "write_in_place": _undoing_copy,
    "blockize": _several_in_one,
    "reverse_compute_inline": _inlining_back,
}


RARE = (
    "assume",
    "blockize",
    "factor_out",
    "fuse_reduction_epilogue",
    "make_unsigned",
    "rolling_buffer",
    "stage_padding",
    "tensorize",
)  # what few functions have something for


class Crash(Exception):
    """A primitive raised something else than a ScheduleError, or changed the schedule while refusing."""

    def __init__(self, kind: str, step: Step, message: str):
        super().__init__(kind, step, message)
        self.kind, self.step, self.message = kind, step, message


def attempt(s: Schedule, rng: np.random.Generator, counts: Counter[tuple[str, bool]] | None = None) -> bool:
    """A random step, perhaps after those that make it possible; whether it was accepted. `counts` counts (name, accepted).

    Raises Crash for what is neither accepted nor refused as it should be; the message of each refusal is rendered, with its witness.
    """
    if rng.random() < 0.2:  # a recipe that the function has something for
        for name in rng.permutation(RARE):
            if (accepted := _cook(s, name, rng, counts)) is not None:
                return accepted
    names = sorted(REGISTRY)
    weights = np.array([WEIGHTS.get(n, 1) for n in names])
    name = names[int(rng.choice(len(names), p=weights / weights.sum()))]
    if name in RECIPES and rng.random() < 0.6:
        return bool(_cook(s, name, rng, counts))
    return _take(s, name, *arguments(s, name, rng), counts)


def _cook(s: Schedule, name: str, rng: np.random.Generator, counts: Counter[tuple[str, bool]] | None) -> bool | None:
    """Take the steps of a recipe; whether the last was accepted, None where the function has nothing for them."""
    try:
        return [_take(s, *step, counts) for step in RECIPES[name](s, Draw(s.func, rng))][-1]
    except Unprepared:
        return None


def _take(s: Schedule, name: str, args: list[Any], kwargs: dict[str, Any], counts: Counter[tuple[str, bool]] | None) -> bool:
    func, trace = s.func, s.trace

    def step() -> Step:
        try:
            return Step.of(name, REGISTRY[name].bind(tuple(args), kwargs), None)
        except (ScheduleError, TypeError):
            return Step(name, (), (repr(args), repr(kwargs)))

    try:
        getattr(s, name)(*args, **kwargs)
        accepted = True
    except ScheduleError as error:
        accepted = False
        if s.func is not func or s.trace != trace:
            raise Crash("changed", step(), "the step was refused, and changed the schedule") from None
        try:
            if not str(error).startswith(f"{name}("):
                raise Crash("message", step(), f"the refusal does not begin with the call: {error}")
        except Crash:
            raise
        except Exception as inner:
            raise Crash("crash", step(), f"while rendering a refusal: {type(inner).__name__}: {inner}") from inner
    except Exception as error:
        raise Crash("crash", step(), f"{type(error).__name__}: {error}") from error
    if counts is not None:
        for form in (name, *_forms(name, args, kwargs)):
            counts[form, accepted] += 1
    return accepted


def _forms(name: str, args: list[Any], kwargs: dict[str, Any]) -> list[str]:
    """What a call is counted as besides its name: the forms of a primitive that have rules of their own."""
    match name:
        case "split":
            return [
                *([f"split tail={kwargs['tail']}"] if "tail" in kwargs else []),
                *(["split names="] if "names" in kwargs else []),
            ]
        case "blockize":
            return ["blockize of several"] if isinstance(args[0], list) else []
    return []
