"""Measures the errors of `codegen.llvm.math` in units in the last place.

`python -m tests.codegen.accuracy` prints the table of docs/math.md. float32 is held against numpy's float64 functions, float64
against numpy's long double ones, where that has 64 bits of mantissa (x86).
"""

from __future__ import annotations

import argparse
import itertools
import math as scalar
from collections.abc import Callable

import numpy as np

from codegen.llvm import math
from codegen.llvm.compile import Library, object_code
from codegen.llvm.values import typed
from codegen.target import Target
from tir.intrinsics import INTRINSICS

HOST = Target("llvm")
AVX512 = {"avx512f", "avx512vl"} <= HOST.features  # whether this machine has what `avx512=True` asks for

BOUNDS = {
    (op, dtype): bound
    for op, i in INTRINSICS.items()
    if op in math.FUNCTIONS
    for dtype, bound in zip(math.FORMATS, i.ulps, strict=True)
}

SPECIALS = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 1e-30, 1e-3, 1e3, 1e30, scalar.inf)

# Where the functions are neither flat nor infinite; half of the points are taken from there.
RANGES: dict[tuple[str, str], tuple[float, float]] = {
    ("exp", "float32"): (-106.0, 90.0),
    ("exp", "float64"): (-750.0, 712.0),
    ("log", "float32"): (0.0, 4.0),
    ("log", "float64"): (0.0, 4.0),
    ("tanh", "float32"): (-10.0, 10.0),
    ("tanh", "float64"): (-20.0, 20.0),
    ("erf", "float32"): (-4.5, 4.5),
    ("erf", "float64"): (-6.5, 6.5),
    ("sigmoid", "float32"): (-106.0, 20.0),
    ("sigmoid", "float64"): (-750.0, 40.0),
}


class Elementwise:
    """A compiled loop over `op`, `lanes` elements at a time; call it with one array (two for pow and fmod) of `dtype`, get a new array of
    the same shape."""

    def __init__(self, op: str, dtype: str, lanes: int, avx512: bool = False, target: Target = HOST, fused: bool = True):
        self.dtype, self.lanes = dtype, lanes
        code = object_code(module_text(op, dtype, lanes, avx512, fused), target)
        self.run = Library([code], ["run"], target).function("run", INTRINSICS[op].arity + 2)

    def __call__(self, *arrays: np.ndarray) -> np.ndarray:
        size = arrays[0].size
        padded = -(-size // self.lanes) * self.lanes
        flat = [np.resize(np.ascontiguousarray(a, self.dtype).ravel(), padded) for a in arrays]
        out = np.empty(padded, self.dtype)
        self.run(padded, *(a.ctypes.data for a in (*flat, out)))
        return out[:size].reshape(arrays[0].shape)


def module_text(op: str, dtype: str, lanes: int, avx512: bool = False, fused: bool = True) -> str:
    """An LLVM module whose function `run(n, x, out)`, or `run(n, x, y, out)`, maps `op` over n elements, `lanes` at a time."""
    element = math.FORMATS[dtype].scalar
    kind = typed(element, lanes)
    names = ("x", "y")[: INTRINSICS[op].arity]
    align = 4 if element == "float" else 8
    loads = [
        f"  %p{n} = getelementptr {element}, ptr %{n}, i64 %i\n  %v{n} = load {kind}, ptr %p{n}, align {align}" for n in names
    ]
    text, declarations = math.definition(op, dtype, lanes, avx512, fused)
    lines = [
        *sorted(declarations),
        text,
        f"define i32 @run(i64 %n, {', '.join(f'ptr noalias %{n}' for n in (*names, 'out'))}) {{",
        "entry:",
        "  br label %loop",
        "loop:",
        "  %i = phi i64 [ 0, %entry ], [ %next, %loop ]",
        *loads,
        f"  %r = call {kind} @{math.function_name(op, dtype, lanes)}({', '.join(f'{kind} %v{n}' for n in names)})",
        f"  %pout = getelementptr {element}, ptr %out, i64 %i",
        f"  store {kind} %r, ptr %pout, align {align}",
        f"  %next = add i64 %i, {lanes}",
        "  %more = icmp ult i64 %next, %n",
        "  br i1 %more, label %loop, label %exit",
        "exit:",
        "  ret i32 0",
        "}",
    ]
    return "\n".join(lines) + "\n"


def long_double() -> bool:
    """Whether numpy's long double is precise enough to judge float64."""
    return np.finfo(np.longdouble).nmant >= 63


def specials(op: str, dtype: str) -> tuple[np.ndarray, ...]:
    """Zeros, infinities, NaN, the ends of the format and some small numbers, of both signs; for pow and fmod, every pair of them."""
    info = np.finfo(dtype)
    small = float(info.smallest_subnormal)
    ends = (float(info.max), float(info.tiny), small, 3 * small, float(1 + info.eps), float(1 - info.epsneg))
    values = [sign * v for v in (*SPECIALS, *ends) for sign in (1, -1)] + [scalar.nan]
    columns = zip(*itertools.product(values, repeat=INTRINSICS[op].arity), strict=True)
    return tuple(np.array(column, dtype) for column in columns)


def inputs(op: str, dtype: str, count: int, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    """About `count` arguments of `op`: the special ones, all bit patterns, and those whose result is neither 0 nor infinite."""
    float_type = np.dtype(dtype)
    unsigned = np.dtype(f"uint{8 * float_type.itemsize}")

    def patterns(n: int) -> np.ndarray:
        return rng.integers(0, np.iinfo(unsigned).max, n, dtype=unsigned, endpoint=True).view(float_type)

    quarter = count // 4
    if INTRINSICS[op].arity == 1:
        low, high = RANGES.get((op, dtype), (-100.0, 100.0))
        uniform = np.concatenate([rng.uniform(low, high, 2 * quarter), rng.uniform(-1.5, 1.5, quarter)])
        drawn = [np.concatenate([patterns(quarter), uniform.astype(dtype)])]
    else:
        near_one = np.concatenate([rng.uniform(0.5, 2.0, quarter), 1 + rng.uniform(-1e-4, 1e-4, quarter)]).astype(dtype)
        base = np.concatenate([near_one, np.abs(patterns(quarter)), patterns(quarter)])
        limit = 2 - float(np.log2(float(np.finfo(dtype).smallest_subnormal)))
        with np.errstate(all="ignore"):
            exponent = rng.uniform(-limit, limit, 3 * quarter) / np.log2(base[: 3 * quarter].astype(np.float64))
        whole = rng.integers(-9, 9, quarter)
        drawn = [base, np.concatenate([exponent, np.where(rng.random(quarter) < 0.5, whole, patterns(quarter))])]
    with np.errstate(all="ignore"):
        drawn = [d.astype(dtype) for d in drawn]
    return tuple(np.concatenate([s, d]) for s, d in zip(specials(op, dtype), drawn, strict=True))


def erf(x: np.ndarray) -> np.ndarray:
    """erf in long double by a series with terms of one sign; in float64, Python's."""
    if x.dtype == np.float64:
        return np.fromiter(map(scalar.erf, x.tolist()), np.float64, x.size)
    a = np.minimum(np.abs(x), 7)  # erf rounds to 1 from there on; NaN stays
    term, total = a, a
    for n in range(1, 200):
        term = term * (2 * a * a / (2 * n + 1))
        total = total + term
    return np.copysign(2 / np.sqrt(np.longdouble("3.14159265358979323846264338327950288")) * np.exp(-a * a) * total, x)


def sigmoid(x: np.ndarray) -> np.ndarray:
    e = np.exp(-np.abs(x))
    return np.where(x < 0, e, 1) / (1 + e)


REFERENCES: dict[str, Callable[..., np.ndarray]] = {
    "exp": np.exp,
    "log": np.log,
    "tanh": np.tanh,
    "erf": erf,
    "sigmoid": sigmoid,
    "pow": np.power,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "abs": np.abs,
    "floor": np.floor,
    "ceil": np.ceil,
    "nearbyint": np.rint,
    "round": lambda x: np.trunc(x) + np.where(np.abs(x - np.trunc(x)) >= 0.5, np.copysign(1, x), np.copysign(0, x)),
    "atan2": np.arctan2,
    **{name: getattr(np, name) for name in ("exp2", "trunc", "log2", "log10", "log1p", "expm1", "hypot", "copysign", "fmod")},
    **{name: getattr(np, name) for name in ("sin", "cos", "tan", "sinh", "cosh")},
    **{f"a{name}": getattr(np, f"arc{name}") for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh")},
}


def reference(op: str, *arguments: np.ndarray) -> np.ndarray:
    """`op` of float32 arrays in float64, of float64 arrays in long double."""
    wide = np.float64 if arguments[0].dtype == np.float32 else np.longdouble
    with np.errstate(all="ignore"):
        return REFERENCES[op](*(a.astype(wide) for a in arguments))


def ulp_errors(result: np.ndarray, exact: np.ndarray) -> np.ndarray:
    """|result - exact| in spacings of the result's dtype at `exact`; inf where a NaN, an infinity or a sign is wrong.

    An overflow counts as the power of two after the largest number, so that it may come one rounding too early.
    """
    info = np.finfo(result.dtype)
    over = exact.dtype.type(2) ** info.maxexp
    with np.errstate(all="ignore"):
        inside = np.minimum(np.abs(exact), np.nextafter(info.max, 0)).astype(result.dtype)  # the spacing of the last one is inf
        spacing = np.spacing(inside).astype(exact.dtype)
        errors = np.abs(np.clip(result.astype(exact.dtype), -over, over) - np.clip(exact, -over, over)) / spacing
    wrong = (np.isinf(exact) & ~np.isinf(result)) | (np.signbit(exact) != np.signbit(result)) | np.isnan(result)
    return np.where(np.isnan(exact), np.where(np.isnan(result), 0.0, np.inf), np.where(wrong, np.inf, errors))


def worst(op: str, dtype: str, count: int, lanes: int, rng: np.random.Generator, avx512: bool = False) -> tuple[float, tuple]:
    """The largest error over about `count` points, and where it is."""
    arguments = inputs(op, dtype, count, rng)
    errors = ulp_errors(Elementwise(op, dtype, lanes, avx512)(*arguments), reference(op, *arguments))
    at = int(np.argmax(errors))
    return float(errors[at]), tuple(a[at] for a in arguments)


def main() -> None:
    parser = argparse.ArgumentParser(description="Print the largest errors of codegen.llvm.math, in ulp.")
    parser.add_argument("--points", type=int, default=1 << 20, help="a round")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    rng = np.random.default_rng(options.seed)
    print("| function | float32: bound | measured | at | float64: bound | measured | at |\n|---|---|---|---|---|---|---|")
    for op in math.FUNCTIONS:
        row = [f"`{op}`"]
        for dtype in math.FORMATS:
            error, at = max(
                (worst(op, dtype, options.points, 16, rng) for _ in range(options.rounds)), key=lambda found: found[0]
            )
            row += [f"{BOUNDS[op, dtype]:g}", f"{error:.3f}", ", ".join(f"{float(a):.9g}" for a in at) if error else ""]
        print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
