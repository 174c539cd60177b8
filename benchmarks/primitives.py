"""Milliseconds of CPU time that one call of each primitive takes on programs of about 50 statements.

The call is repeated on one function, checks and recording included. `chain` is fifty elementwise stages; `mixed` seven groups of
a product and six stages; `fused` the same in one loop over tiles of rows. `refused` is a call that ends in an error whose message
is not read, `refused and read` one whose message is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import schedule.intrinsics.cpu  # noqa: F401 (registers what `tensorize` uses)
from codegen.runtime.timing import without_collector
from schedule import Schedule, ScheduleError
from tir import te
from tir.ir import Expr, PrimFunc, seq
from tir.traverse import blocks

from .options import Options
from .runner import circumstances, spread

ROWS = ("chain", "mixed", "fused")

DEFAULT = ROWS

LEAST = 5  # calls

STAGES, GROUPS = 50, 7
SCALED = 5  # the group whose product has a factor
# What takes a nest of its own, or a temporary that is used once.
WHOLE_NESTS = (
    "tile",
    "fuse",
    "reorder",
    "lift_alloc",
    "transform_block_layout",
    "pad_einsum",
    "fuse_reduction_epilogue",
    "write_in_place",
    "stage_padding",
)

M, N = 37, 48  # rows and columns of every matrix

Case = Callable[[Schedule], list[Any]]  # takes the steps that must come first; returns the arguments of the call


def chain() -> PrimFunc:
    """Fifty elementwise stages, S0 to S49."""
    A = te.placeholder((M, N), name="A")
    last = A
    for n in range(STAGES):
        last = _elementwise(f"S{n}", lambda x: x + 1.0, last)
    return te.create_prim_func([A, last])


def mixed() -> PrimFunc:
    """Seven groups of seven stages: D = X · W, in one of them 2 X · W, E = 1 D + Y, S = max(E, 0), P = S padded, C = a
    window of P, R = the maxima of its rows, X = C - R."""
    A, Y, W = te.placeholder((M, N), name="A"), te.placeholder((M, N), name="Y"), te.placeholder((N, N), name="W")
    last = A
    for n in range(GROUPS):
        last = _group(n, last, Y, W)
    return te.create_prim_func([A, Y, W, last])


def with_more() -> PrimFunc:
    """`mixed`, a product of int8, Q = U · V, and means of the rows of A, weighted by their softmax: H."""
    func = mixed()
    U, V = te.placeholder((M, N), "int8", name="U"), te.placeholder((N, N), "int8", name="V")
    k = te.reduce_axis((0, N), name="k")

    def term(i: Expr, j: Expr) -> Expr:
        return U[i, k].astype("int32") * V[k, j].astype("int32")

    product = te.create_prim_func([U, V, te.compute((M, N), lambda i, j: te.sum(term(i, j), axis=k), name="Q")])
    means = _weighted_means()
    params = (*func.params, *product.params, *means.params)
    return func.with_(params=params, body=seq(func.body, product.body, *means.body.stmts))


def _weighted_means() -> PrimFunc:
    A = te.placeholder((M, N), name="G")
    g, r, h = (te.reduce_axis((0, N), name=name) for name in "grh")
    top = te.compute((M,), lambda a: te.max(A[a, g], axis=g), name="top")
    power = te.compute((M, N), lambda b, n: te.exp(A[b, n] - top[b]), name="power")
    total = te.compute((M,), lambda c: te.sum(power[c, r], axis=r), name="total")
    return te.create_prim_func([A, te.compute((M,), lambda d: te.sum(power[d, h] / total[d] * A[d, h], axis=h), name="H")])


def fused() -> PrimFunc:
    """The stages of `mixed` in one loop over tiles of four rows, which do not divide them."""
    s = Schedule(mixed())
    *others, last = s.get_child_blocks("root")
    tiles, _ = s.split(s.get_loops(last)[0], [None, 4])
    for block in reversed(others):
        s.compute_at(block, tiles)
    return s.func


def _elementwise(name: str, formula: Callable[..., Expr], *inputs: te.Tensor) -> te.Tensor:
    return te.compute((M, N), lambda i, j: formula(*(x[i, j] for x in inputs)), name=name)


def _group(n: int, X: te.Tensor, Y: te.Tensor, W: te.Tensor) -> te.Tensor:
    k, r = te.reduce_axis((0, N), name=f"k{n}"), te.reduce_axis((0, N), name=f"r{n}")
    D = te.compute(
        (M, N), lambda i, j: te.sum(X[i, k] * W[k, j] * 2.0 if n == SCALED else X[i, k] * W[k, j], axis=k), name=f"D{n}"
    )
    E = _elementwise(f"E{n}", lambda d, y: d * 1.0 + y, D, Y)
    S = _elementwise(f"S{n}", lambda e: te.maximum(e, 0.0), E)
    P = te.compute((M, N + 2), lambda i, j: te.if_then_else(te.all(j >= 1, j < N + 1), S[i, j - 1], 0.0), name=f"P{n}")
    C = te.compute((M, N), lambda i, j: P[i, j] + P[i, j + 1] + P[i, j + 2], name=f"C{n}")
    R = te.compute((M,), lambda i: te.max(C[i, r], axis=r), name=f"R{n}")
    return te.compute((M, N), lambda i, j: C[i, j] - R[i], name=f"X{n}")


# --- calls in the middle of a program ------------------------------------------------------------------------------------


def elementwise(block: str, producer: str, consumer: str, depth: int = 0) -> dict[str, Case]:
    """Calls on an elementwise block between two others; these share the outermost `depth` loops."""

    def i(s: Schedule) -> str:
        return s.get_loops(block)[0]

    def j(s: Schedule) -> str:
        return s.get_loops(block)[-1]

    def own(s: Schedule, of: str) -> str:
        return s.get_loops(of)[depth]

    def guarded(s: Schedule) -> list[str]:
        return s.split(i(s), [None, 4])

    def annotated(s: Schedule) -> list[Any]:
        s.annotate(block, "key", 1)
        return [block, "key"]

    def hoisting(s: Schedule) -> list[Any]:
        guarded(s)
        return [s.get_loops(block)[-1]]

    def trimming(s: Schedule) -> list[Any]:
        return [s.split(i(s), [13, 4])[0]]

    def nested(s: Schedule) -> list[Any]:
        s.blockize(j(s))
        s.blockize(s.get_loops(f"{block}_o")[0])
        s.cache_read(block, 0, "local")
        return [f"{producer}_local"]

    return {
        "split": lambda s: [i(s), [None, 16]],
        "tile": lambda s: [i(s), j(s), 4, 16],
        "fuse": lambda s: [i(s), j(s)],
        "reorder": lambda s: [j(s), i(s)],
        "loop_partition": lambda s: [i(s), [5, None]],
        "merge": lambda s: [own(s, producer), own(s, block)],
        "add_unit_loop": lambda s: [block],
        "unroll": lambda s: [j(s)],
        "serial": lambda s: [j(s)],
        "vectorize": lambda s: [j(s)],
        "parallel": lambda s: [i(s)],
        "bind": lambda s: [i(s), "blockIdx.x"],
        "annotate": lambda s: [block, "key", 1],
        "unannotate": annotated,
        "compute_at": lambda s: [block, own(s, consumer)],
        "reverse_compute_at": lambda s: [block, own(s, producer)],
        "compute_inline": lambda s: [block],
        "reverse_compute_inline": lambda s: [block],
        "cache_read": lambda s: [block, 0, "local"],
        "cache_write": lambda s: [block, 0, "local"],
        "reindex": lambda s: [block, ["read", 0]],
        "reindex_cache_read": lambda s: [block, 0, "local", "lambda i, j: (j, i)"],
        "reindex_cache_write": lambda s: [block, 0, "local", "lambda i, j: (j, i)"],
        "pack": lambda s: [block, 0],
        "read_at": lambda s: [i(s), block, 0, "local"],
        "write_at": lambda s: [i(s), block, 0, "local"],
        "set_axis_separator": lambda s: [block, ["write", 0], [1]],
        "unsafe_set_dtype": lambda s: [block, 0, "float64"],
        "annotate_buffer_access": lambda s: [block, 0, "read", "lambda i, j: (i, j)"],
        "set_scope": lambda s: [block, 0, "local"],
        "storage_align": lambda s: [block, 0, 0, 16, 4],
        "transform_layout": lambda s: [block, ["write", 0], "lambda i, j: (j // 16, i, j % 16)"],
        "transform_block_layout": lambda s: [block, "lambda i, j: (j, i)"],
        "reorder_block_iter_var": lambda s: [block, [1, 0]],
        "write_in_place": lambda s: [s.cache_write(block, 0, "global")],
        "stage_mem": lambda s: [j(s), producer, "window"],
        "lift_alloc": nested,
        "add_guard": lambda s: [block, f"{i(s)} < 5"],
        "hoist_predicate": hoisting,
        "trim": trimming,
        "peel": lambda s: [i(s) if depth else guarded(s)[0]],
        "blockize": lambda s: [j(s)],
        "sample_perfect_tile": lambda s: [j(s), 4],
        "sample_partitioned_tile": lambda s: [j(s), 4, 2, 8],
        "sample_tile": lambda s: [i(s), 4],
        "sample_categorical": lambda s: [[0, 16, 64], [0.2, 0.4, 0.4]],
        "sample_compute_location": lambda s: [block],
    }


def reducing(n: int) -> dict[str, Case]:
    """Calls on the matrix product of group `n` and what follows it."""
    product, bias, padding = f"D{n}", f"E{n}", f"P{n}"

    def padded(s: Schedule) -> list[Any]:
        s.cache_read(product, 0, "global", [product])
        s.cache_read(product, 1, "global", [product])
        s.cache_write(product, 0, "global")
        return [product, [4, 5, 5]]

    def rolling(s: Schedule) -> list[Any]:
        window = f"C{n}"
        s.compute_at(padding, s.get_loops(window)[-1])
        return [padding, 0]

    def updating(s: Schedule) -> list[Any]:
        j, k = s.get_loops(product)[-2:]
        outer, inner = s.split(j, [None, 16])
        s.reorder(outer, k, inner)
        s.decompose_reduction(product, k)
        return [inner, "fma_16_f32"]

    def updated_in_a_copy(s: Schedule) -> list[Any]:
        s.decompose_reduction(product, s.get_loops(product)[-1])
        return [f"{product}_update", product, "local"]

    return {
        "cache_inplace": updated_in_a_copy,
        "rfactor": lambda s: [s.split(s.get_loops(product)[-1], [None, 4])[1]],
        "decompose_reduction": lambda s: [product, s.get_loops(product)[-2]],
        "rolling_buffer": rolling,
        "cache_index": lambda s: [padding, "global"],
        "decompose_padding": lambda s: [padding, s.get_loops(padding)[-1]],
        "pad_einsum": padded,
        "fuse_reduction_epilogue": lambda s: [product, bias],
        "factor_out": lambda s: [f"D{SCALED}"],
        "stage_padding": lambda s: [padding, f"S{n}"],
        "simplify_formula": lambda s: [bias],
        "tensorize": updating,
    }


def program(row: str) -> tuple[PrimFunc, dict[str, Case], list[str]]:
    """The program of a row, the calls on it, and the arguments of a `compute_at` that is refused."""
    match row:
        case "chain":
            return chain(), elementwise("S25", "S24", "S26"), ["S25", "i"]
        case "mixed":
            cases = (
                elementwise("S3", "E3", "P3")
                | reducing(3)
                | {
                    "make_unsigned": lambda s: ["Q", "U"],
                    "rolling_update": lambda s: [s.get_loops(b)[-1] for b in ("top", "power", "total", "H")],
                }
            )
            return with_more(), cases, ["S3", "i"]
        case "fused":
            cases = elementwise("S3", "E3", "P3", depth=1) | reducing(3)
            return fused(), {k: v for k, v in cases.items() if k not in WHOLE_NESTS}, ["S3", "i_48_1"]
    raise ValueError(f"no row is named {row!r}; there are: {', '.join(ROWS)}")


# --- measuring -----------------------------------------------------------------------------------------------------------


def measure(row: str, options: Options) -> Iterator[dict[str, Any]]:
    """A result for each primitive that can be called on this program, and two for a refusal."""
    func, cases, refused = program(row)
    about = circumstances()
    statements = len(blocks(func))
    seconds = options.seconds / (len(cases) + 2)
    for name, case in sorted(cases.items()):
        s = Schedule(func, options.seed)
        args = case(s)
        calls = samples(lambda s=s, name=name, args=args: getattr(s.copy(), name)(*args), seconds)  # type: ignore[misc]
        yield {"primitive": name, "statements": statements, **_summary(calls), **about}

    def refusal(read: bool) -> None:
        try:
            Schedule(func).compute_at(*refused)
        except ScheduleError as error:
            if read:
                str(error)
            return
        raise AssertionError("the call was accepted")

    for what, read in (("refused", False), ("refused and read", True)):
        calls = samples(lambda read=read: refusal(read), seconds)  # type: ignore[misc]
        yield {"primitive": what, "statements": statements, **_summary(calls), **about}


def samples(call: Callable[[], object], seconds: float) -> list[float]:
    """Milliseconds of CPU time of each of some calls, after one that is not counted."""
    call()
    found: list[float] = []
    with without_collector():
        begin = time.perf_counter()
        while len(found) < LEAST or time.perf_counter() - begin < seconds:
            start = time.process_time()
            call()
            found.append(1e3 * (time.process_time() - start))
    return found


def _summary(found: list[float]) -> dict[str, Any]:
    low, median, high = spread(found)
    return {"cpu_ms": median, "quartiles_ms": [low, high], "calls": len(found)}
