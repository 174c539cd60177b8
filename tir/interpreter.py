"""The meaning of the IR: a function turned into plain Python, and run.

`run(func, *arrays)` executes; `source(func)` shows the Python; `compile(func)` keeps it for repeated use. With `fast=True` the
same program is compiled by numba. Every other execution path is compared with this one, so it is accurate rather than quick:

- Integer arithmetic on loaded values wraps at its dtype; index arithmetic (variables and constants only) is exact.
- Each floating operation rounds to its dtype, ties to even; float16 and bfloat16 are computed in float32 first. Intrinsics are
  computed in float64 and rounded once. Division by zero and overflow give infinities and NaN.
- A lazy Select evaluates only the chosen side; all else is evaluated, also the second operand of an `and` or `or` where it loads.

Traps, which make a wrong program fail rather than pass by luck:

- Parallel, vectorised and thread loops run in a shuffled order that is never the ascending one; only threads that reduce
  together (see `bind`) take turns in order.
- Allocated buffers start as NaN, or as a bit pattern that no sane program computes.
- A negative or too large index raises `OutOfBounds` with the values of all variables around it, and so does the binding of a
  block iteration variable outside its domain.
- A reduction block that updates an element before it has initialised it raises (plain Python only; numba leaves it to the NaN).
"""

from __future__ import annotations

import builtins
import keyword
import linecache
import math
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from types import FrameType
from typing import Any, assert_never

import numpy as np

from . import dtypes
from .ir import (
    TRUE,
    Allocate,
    Axis,
    Binary,
    Block,
    Buffer,
    Call,
    Cast,
    Const,
    Evaluate,
    Expr,
    For,
    If,
    Kind,
    Let,
    Load,
    PrimFunc,
    Select,
    Seq,
    Stmt,
    Store,
    Unary,
    Var,
    need_func,
)
from .script.printer import PRECEDENCE
from .traverse import blocks, stores, walk

__all__ = ["DivisionByZero", "InterpreterError", "OutOfBounds", "Uninitialised", "compile", "run", "source"]


class InterpreterError(Exception):
    """A program without a meaning: a trap fired while it ran, or it could not be turned into Python at all."""


class OutOfBounds(InterpreterError, IndexError):
    """An index outside its buffer, or a block iteration variable bound outside its domain."""


class DivisionByZero(InterpreterError, ZeroDivisionError):
    """An integer `//` or `%` by zero."""


class Uninitialised(InterpreterError):
    """A reduction block updated an element before its init ran for that element."""


def run(func: PrimFunc, *args: Any, fast: bool = False, seed: int = 0, traps: bool = True) -> None:
    """Run `func` on numpy arrays, modified in place, and Python ints for its scalar parameters, in the order of `func.params`.

    Arrays have the parameters' shapes and dtypes; bfloat16 ones are uint16 bit patterns, or ml_dtypes.bfloat16. `seed` fixes the
    order of shuffled loops; `traps=False` runs them in order and checks nothing but division by zero. Raises TypeError or
    ValueError for arguments that do not fit, InterpreterError where the program has no meaning.
    """
    compile(func, fast=fast, seed=seed, traps=traps)(*args)


def compile(func: PrimFunc, *, fast: bool = False, seed: int = 0, traps: bool = True) -> Interpreted:
    """`func` as a callable over numpy arrays, as `run` takes them; `fast` compiles it with numba (about a second)."""
    return Interpreted(need_func(func, "run"), fast=fast, seed=seed, traps=traps)


def source(func: PrimFunc, *, fast: bool = False, traps: bool = True) -> str:
    """The plain Python that `run` executes."""
    return _Generator(need_func(func, "source"), fast=fast, traps=traps).text


class Interpreted:
    """A function ready to run; `source` is its Python text."""

    def __init__(self, func: PrimFunc, *, fast: bool = False, seed: int = 0, traps: bool = True):
        self.func, self.fast, self.seed, self.traps = func, fast, seed, traps
        self._program = _Generator(func, fast=fast, traps=traps)
        self.source = self._program.text
        self._filename = f"<tir interpreter: {func.name} {id(self):x}>"
        linecache.cache[self._filename] = (len(self.source), None, self.source.splitlines(keepends=True), self._filename)
        weakref.finalize(self, linecache.cache.pop, self._filename, None)
        namespace = dict(_fast_names() if fast else _plain_names())
        exec(builtins.compile(self.source, self._filename, "exec"), namespace)
        if fast:
            for name in self._program.functions:  # callees come first
                namespace[name] = _njit(namespace[name])
        self._entry: Callable = namespace[self._program.functions[-1]]

    def __call__(self, *args: Any) -> None:
        values = _arguments(self.func, args)
        rng = np.array([self.seed], np.uint64) if self.fast else np.random.default_rng(self.seed)
        try:
            with np.errstate(all="ignore"):
                self._entry(*values, rng)
        except _Trap as trap:
            raise self._explain(trap) from None

    def _explain(self, trap: _Trap) -> InterpreterError:
        site = self._program.sites[trap.site]
        frames = [f for f in _frames(trap) if f.f_code.co_filename == self._filename]
        values: dict[str, int] = {}
        for frame in frames:
            local = frame.f_locals
            values |= {name: local[python] for name, python in site.visible if isinstance(local.get(python), int)}
        where = f", where {', '.join(f'{n}={v}' for n, v in values.items())}" if values else ""
        hint = "; run with fast=False to see the variables" if self.fast and site.visible else ""
        return site.error(f"{self.func.name}: {site.message.format(value=trap.value)}{where}{hint}")

    def __repr__(self) -> str:
        return f"Interpreted({self.func.name}, fast={self.fast}, seed={self.seed}, traps={self.traps})"


def _frames(error: BaseException) -> Iterator[FrameType]:
    tb = error.__traceback__
    while tb is not None:
        yield tb.tb_frame
        tb = tb.tb_next


# --- arguments ---------------------------------------------------------------------------------------------------------


def _arguments(func: PrimFunc, args: tuple) -> list:
    """The arguments as the generated code takes them, checked against the parameters."""
    signature = ", ".join(p.name for p in func.params)
    if len(args) != len(func.params):
        raise TypeError(f"{func.name}({signature}) takes {len(func.params)} argument(s), got {len(args)}")
    sizes: dict[str, int] = {}
    for p, a in zip(func.params, args, strict=True):
        if isinstance(p, Var):
            if isinstance(a, bool) or not isinstance(a, (int, np.integer)):
                raise TypeError(f"{func.name}: the size `{p.name}` must be an int, got {a!r}")
            sizes[p.name] = int(a)
    stored = {s.buffer.name for s in stores(func.body)}
    values = []
    for p, a in zip(func.params, args, strict=True):
        values.append(sizes[p.name] if isinstance(p, Var) else _array(func.name, p, a, sizes, p.name in stored))
    arrays = [(p, v) for p, v in zip(func.params, values, strict=True) if isinstance(p, Buffer)]
    for n, (p, a) in enumerate(arrays):
        for q, b in arrays[:n]:
            if (p.name in stored or q.name in stored) and _overlap(a, b):
                raise ValueError(f"{func.name}: `{q.name}` and `{p.name}` share memory, and one of them is written")
    return values


def _overlap(a: Any, b: Any) -> bool:
    if not np.may_share_memory(a, b):
        return False
    try:
        return np.shares_memory(a, b, max_work=100_000)  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return True


def _array(func: str, p: Buffer, a: Any, sizes: dict[str, int], stored: bool) -> np.ndarray:
    if not isinstance(a, np.ndarray):
        raise TypeError(f"{func}: `{p.name}` must be a numpy array of dtype {p.dtype}, got {type(a).__name__}")
    storage = dtypes.storage(p.dtype)
    if a.dtype.name == "bfloat16" == p.dtype:
        a = a.view(np.uint16)
    if a.dtype != storage:
        note = " (bfloat16 arrays are uint16 bit patterns)" if p.dtype == "bfloat16" else ""
        raise TypeError(f"{func}: `{p.name}` must have dtype {p.dtype}, got {a.dtype}{note}")
    shape = tuple(_size(d, sizes, p) for d in p.shape)
    if a.shape != shape:
        raise ValueError(f"{func}: `{p.name}` must have shape {shape}, got {a.shape}")
    if stored and not a.flags.writeable:
        raise ValueError(f"{func}: `{p.name}` is written, but its array is read-only")
    return a.view(np.uint16) if p.dtype == "float16" else a


def _size(e: Expr, sizes: dict[str, int], p: Buffer) -> int:
    match e:
        case Const(value):
            return int(value)
        case Var(name) if name in sizes:
            return sizes[name]
        case Binary("+" | "-" | "*" | "//" | "%" | "min" | "max" as op, a, b):
            return _SIZE_OPS[op](_size(a, sizes, p), _size(b, sizes, p))
        case Cast(_, value):
            return _size(value, sizes, p)
        case _:
            raise ValueError(
                f"the dimension `{e}` of `{p.name}` is not given by the scalar parameters ({', '.join(sizes) or 'none'})"
            )


_SIZE_OPS: dict[str, Callable[[int, int], int]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "//": lambda a, b: a // b,
    "%": lambda a, b: a % b,
    "min": min,
    "max": max,
}


# --- the functions that generated code calls ---------------------------------------------------------------------------
# Those in _SHARED are compiled by numba as they stand; the others exist in a plain and a numba form.


class _Trap(Exception):
    """Raised by generated code: the number of the site in the program, and the offending value."""

    def __init__(self, site: int, value: int):
        super().__init__(site, value)
        self.site, self.value = site, value


def at(index, extent, site):
    if index < 0 or index >= extent:
        raise _Trap(site, index)
    return index


def floordiv(a, b, site):
    if b == 0:
        raise _Trap(site, a)
    return a // b


def floormod(a, b, site):
    if b == 0:
        raise _Trap(site, a)
    return a % b


def select(condition, true_value, false_value):
    return true_value if condition else false_value


def both(a, b):
    return a and b


def either(a, b):
    return a or b


def round_to(x, bits, smallest, largest):
    """`x` to the nearest multiple of 2**smallest with `bits` significant bits, ties to even; infinite beyond `largest`."""
    if x == 0.0 or not math.isfinite(x):
        return x
    _, exponent = math.frexp(x)
    quantum = max(exponent - bits, smallest)
    scaled = math.ldexp(x, -quantum)
    rounded = math.copysign(math.ldexp(float(round(scaled)), quantum), x)
    if abs(rounded) > largest:
        return math.copysign(math.inf, x)
    return rounded


_PLAIN_BITS = (
    # dtype, significant bits, exponent of the smallest subnormal, largest finite value
    ("float16", 11, -24, 65504.0),
    ("bfloat16", 8, -133, float.fromhex("0x1.fep127")),
)


def _plain_names() -> dict[str, Any]:
    """The names that generated code may use, when Python runs it."""

    def unary64(fn):
        return lambda x: fn(np.float64(x))

    def truncate(x):
        return int(x) if math.isfinite(x) else 0

    def sigmoid(x):
        x = np.float64(x)
        return 1.0 / (1.0 + np.exp(-x)) if x >= 0 else np.exp(x) / (1.0 + np.exp(x))

    def shuffled(n, rng):
        return _shuffle(n, rng).tolist()

    def wrapper(dtype):
        low, high = dtypes.limits(dtype)
        span = high - low + 1
        return lambda x: x if type(x) is int and low <= x <= high else (int(x) - low) % span + low

    def float16_value(bits):
        return np.float32(bits.view(np.float16))

    def float16_bits(x):
        return np.float16(x).view(np.uint16)

    def bfloat16_value(bits):
        return (np.uint32(bits) << np.uint32(16)).view(np.float32)

    def bfloat16_bits(x):
        return np.uint16(np.float32(x).view(np.uint32) >> np.uint32(16)) if x == x else np.uint16(0x7FC0)

    names: dict[str, Any] = {
        "at": at, "within": at, "floordiv": floordiv, "floormod": floormod, "select": select, "both": both, "either": either,
        "float32": np.float32, "float64": np.float64, "truncate": truncate, "shuffled": shuffled,
        "float16_value": float16_value, "float16_bits": float16_bits, "bfloat16_value": bfloat16_value,
        "bfloat16_bits": bfloat16_bits, "float16": lambda x: np.float32(np.float16(x)),
        "bfloat16": lambda x: np.float32(round_to(float(x), *_PLAIN_BITS[1][1:])),
        "exp": unary64(np.exp), "log": unary64(np.log), "sqrt": unary64(np.sqrt), "tanh": unary64(np.tanh), "erf": math.erf,
        "rsqrt": lambda x: 1.0 / np.sqrt(np.float64(x)), "sigmoid": sigmoid, "floor": np.floor, "ceil": np.ceil,
        "power": lambda x, y: np.float64(x) ** np.float64(y), "inf": math.inf, "nan": math.nan, "Trap": _Trap,
    }  # fmt: skip
    names |= {d: wrapper(d) for d in dtypes.TABLE if dtypes.is_int(d)}
    names |= {f"allocate_{d}": _allocator(d) for d in dtypes.TABLE}
    return names


def _allocator(dtype: str) -> Callable:
    fill, storage = _garbage(dtype), dtypes.storage(dtype)
    if dtype == "float16":
        storage = np.dtype("uint16")
    return lambda shape: np.full(shape, fill, storage)


def _garbage(dtype: str) -> int | float | bool:
    """What an element of an uninitialised buffer holds."""
    if dtype == "float16":
        return 0x7E00
    if dtype == "bfloat16":
        return 0x7FC0
    if dtypes.is_float(dtype):
        return math.nan
    return dtype == "bool" or int("7b" * dtypes.nbytes(dtype), 16)


def _shuffle(n, rng):
    """The integers below `n` in an order that is not ascending, where there is another."""
    order = rng.permutation(n)
    for i in range(n):
        if order[i] != i:
            return order
    return order[::-1].copy()


def _shuffle_by_state(n, state):
    """The same for numba, whose generators take long to compile: `state` is an array of one uint64, advanced by SplitMix64."""
    order = np.arange(n)
    for i in range(n - 1, 0, -1):
        state[0] += np.uint64(0x9E3779B97F4A7C15)
        z = state[0]
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        j = np.int64((z ^ (z >> np.uint64(31))) % np.uint64(i + 1))
        order[i], order[j] = order[j], order[i]
    for i in range(n):
        if order[i] != i:
            return order
    return order[::-1].copy()


def _njit(fn: Callable, **options: Any) -> Callable:
    import numba

    return numba.njit(fn, error_model="numpy", **options)


@cache
def _fast_names() -> dict[str, Any]:
    """The names that generated code may use, when numba has compiled it: the same meaning on machine numbers."""
    import numba

    jit = _njit
    round_any = jit(round_to)

    def wrapper(dtype):
        narrow = np.dtype(dtype).type
        if dtype == "uint64":
            return jit(lambda x: np.uint64(x))
        return jit(lambda x: np.int64(narrow(x)))

    def rounder(bits, smallest, largest):
        return jit(lambda x: np.float32(round_any(np.float64(x), bits, smallest, largest)))

    def bfloat16_value(bits):
        return np.uint32(np.uint32(bits) << np.uint32(16)).view(np.float32)

    def bfloat16_bits(x):
        return np.uint16(np.float32(x).view(np.uint32) >> np.uint32(16)) if x == x else np.uint16(0x7FC0)

    def float16_value(bits):
        exponent, mantissa = (int(bits) >> 10) & 31, int(bits) & 1023
        if exponent == 31:
            value = np.inf if mantissa == 0 else np.nan
        elif exponent == 0:
            value = math.ldexp(float(mantissa), -24)
        else:
            value = math.ldexp(float(mantissa + 1024), exponent - 25)
        return np.float32(-value if int(bits) & 0x8000 else value)

    def float16_bits(x):
        sign = 0x8000 if math.copysign(1.0, x) < 0.0 else 0
        size = abs(float(x))
        if size != size:
            return np.uint16(0x7E00)
        if size == np.inf:
            return np.uint16(sign | 0x7C00)
        if size < 2.0**-14:
            return np.uint16(sign | int(size * 2.0**24))
        mantissa, exponent = math.frexp(size)
        return np.uint16(sign | ((exponent + 14) << 10) + int(mantissa * 2048.0) - 1024)

    def sigmoid(x):
        if x >= 0:
            return 1.0 / (1.0 + np.exp(-np.float64(x)))
        return np.exp(np.float64(x)) / (1.0 + np.exp(np.float64(x)))

    def truncate(x):
        return np.int64(x) if math.isfinite(x) else np.int64(0)

    def allocator(dtype):
        fill, storage = _garbage(dtype), "uint16" if dtype == "float16" else dtypes.storage(dtype).name
        narrow = np.dtype(storage).type if storage != "bool" else np.bool_
        return jit(lambda shape: np.full(shape, narrow(fill), narrow))

    names: dict[str, Any] = {
        "at": jit(at), "within": jit(at), "floordiv": jit(floordiv), "floormod": jit(floormod), "select": jit(select),
        "both": jit(both),
        "either": jit(either), "float32": np.float32, "float64": np.float64, "truncate": jit(truncate),
        "shuffled": jit(_shuffle_by_state), "float16_value": jit(float16_value), "float16_bits": jit(float16_bits),
        "bfloat16_value": jit(bfloat16_value), "bfloat16_bits": jit(bfloat16_bits),
        "exp": jit(lambda x: np.exp(np.float64(x))), "log": jit(lambda x: np.log(np.float64(x))),
        "sqrt": jit(lambda x: np.sqrt(np.float64(x))), "tanh": jit(lambda x: np.tanh(np.float64(x))),
        "erf": jit(lambda x: math.erf(x)),
        "rsqrt": jit(lambda x: 1.0 / np.sqrt(np.float64(x))), "sigmoid": jit(sigmoid), "floor": jit(lambda x: np.floor(x)),
        "ceil": jit(lambda x: np.ceil(x)), "power": jit(lambda x, y: np.float64(x) ** np.float64(y)),
        "inf": math.inf, "nan": math.nan, "Trap": _Trap, "int": numba.njit(lambda x: np.int64(x)),
    }  # fmt: skip
    names |= {d: wrapper(d) for d in dtypes.TABLE if dtypes.is_int(d)}
    names |= {name: rounder(*numbers) for name, *numbers in _PLAIN_BITS}
    names |= {f"allocate_{d}": allocator(d) for d in dtypes.TABLE}
    return names


# --- generating Python -------------------------------------------------------------------------------------------------

_MAX_NESTING = 15  # CPython allows 20 nested loops; deeper ones go into a function of their own
_INDEX_DTYPES = ("int32", "int64")


@dataclass(frozen=True, slots=True)
class _Site:
    """A place where the program may be wrong: the error to raise, and the variables (name, Python name) visible there."""

    error: type[InterpreterError]
    message: str
    visible: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class _Binding:
    """What a name of the IR means here: its Python name, and its exclusive bound if it counts from 0."""

    python: str
    extent: int | None = None


@dataclass(slots=True)
class _Body:
    """The lines of one generated function, and how deep in loops the next one is."""

    lines: list[str] = field(default_factory=list)
    depth: int = 1
    loops: int = 0


class _Generator:
    """Turns a function of the IR into Python text."""

    def __init__(self, func: PrimFunc, *, fast: bool, traps: bool):
        self.func, self.fast, self.traps = func, fast, traps
        self.sites: list[_Site] = []
        self.functions: list[str] = []
        self._texts: list[str] = []
        self._taken = set(_plain_names()) | set(dir(builtins)) | set(keyword.kwlist) | {"rng", "started"}
        self._kinds: dict[str, str] = {}  # of the Python names bound so far: "int", "buffer", or the dtype of a let
        self._scope: dict[str, _Binding] = {}
        self._buffers: dict[str, tuple[str, Buffer]] = {}
        self._body = _Body()
        self._statement: Stmt | None = None
        # For each reduction block, the spatial points whose init has run: a set in the generated program.
        self._tracked = traps and not fast and any(b.init is not None and b.is_reduction for b in blocks(func))
        entry = self._unused(func.name if func.name.isidentifier() else "main")
        parameters = []
        for p in func.params:
            if isinstance(p, Buffer):
                parameters.append(self._declare(p))
            else:
                python = self._name(p.name, "int")
                self._scope[p.name] = _Binding(python)
                parameters.append(python)
        if self._tracked:
            self._line("started = set()")
        for b in func.allocs:
            self._allocate(b)
        self._stmt(func.body)
        self._finish(entry, parameters)
        self.text = "\n\n\n".join(self._texts)

    # names

    def _unused(self, wanted: str) -> str:
        name, n = wanted, 0
        while name in self._taken:
            n += 1
            name = f"{wanted}_{n}"
        self._taken.add(name)
        return name

    def _name(self, wanted: str, kind: str) -> str:
        """A Python name for a variable: `wanted` itself, unless that is taken, visible here, or was of another kind before."""
        visible = {b.python for b in self._scope.values()} | {p for p, _ in self._buffers.values()}
        if self._kinds.get(wanted) == kind and wanted not in visible:
            return wanted
        name = self._unused(wanted)
        self._kinds[name] = kind
        return name

    def _declare(self, b: Buffer) -> str:
        python = self._name(b.name, f"buffer {b.dtype} {len(b.shape)}")
        self._buffers[b.name] = (python, b)
        return python

    @contextmanager
    def _scoped(self) -> Iterator[None]:
        scope, buffers = self._scope.copy(), self._buffers.copy()
        yield
        self._scope, self._buffers = scope, buffers

    def _visible(self) -> tuple[tuple[str, str], ...]:
        return tuple((name, b.python) for name, b in self._scope.items())

    def _site(self, error: type[InterpreterError], message: str) -> int:
        text = ""
        if self._statement is not None:
            from .script.printer import stmt_text

            text = stmt_text(self._statement).strip().splitlines()[0]
        where = f", in `{text}`" if text else ""
        self.sites.append(_Site(error, _braces(message) + _braces(where, literal=True), self._visible()))
        return len(self.sites) - 1

    # lines

    def _line(self, text: str) -> None:
        self._body.lines.append("    " * self._body.depth + text)

    def _finish(self, name: str, parameters: list[str]) -> None:
        self._texts.append(
            "\n".join([f"def {name}({', '.join([*parameters, 'rng'])}):", *(self._body.lines or ["    pass"])]) + "\n"
        )
        self.functions.append(name)

    def _allocate(self, b: Buffer) -> None:
        shape = ", ".join(self._expr(d) for d in b.shape)
        python = self._declare(b)
        self._line(f"{python} = allocate_{b.dtype}(({shape}{',' if len(b.shape) == 1 else ''}))")

    # statements

    def _stmt(self, s: Stmt) -> None:
        match s:
            case Seq(stmts):
                for x in stmts:
                    self._stmt(x)
            case For():
                if self._body.loops >= _MAX_NESTING:
                    self._outlined(s)
                else:
                    self._for(s)
            case Block():
                with self._scoped():
                    self._block(s)
            case Store(buffer, indices, value):
                self._statement = s
                place, _ = self._element(buffer, indices)
                text = self._typed(value)
                self._line(f"{place} = {_stored(text, buffer.dtype)}")
            case If(condition, then, orelse):
                self._statement = s
                self._line(f"if {self._expr(condition)}:")
                self._indented(then)
                if orelse is not None:
                    self._line("else:")
                    self._indented(orelse)
            case Let(var, value, body):
                self._statement = s
                text = self._expr(value)
                with self._scoped():
                    python = self._name(var.name, "int" if dtypes.is_int(var.dtype) else var.dtype)
                    self._line(f"{python} = {text}")
                    self._scope[var.name] = _Binding(python)
                    self._stmt(body)
            case Allocate(buffer, body):
                self._statement = s
                with self._scoped():
                    self._allocate(buffer)
                    self._stmt(body)
            case Evaluate(value):
                self._statement = s
                self._line(self._expr(value))
            case _:
                assert_never(s)  # type: ignore[arg-type]

    def _indented(self, s: Stmt) -> None:
        with self._scoped():
            self._body.depth += 1
            self._stmt(s)
            self._body.depth -= 1

    def _for(self, loop: For) -> None:
        self._statement = None
        extent = self._expr(loop.extent)
        shuffles = self.traps and loop.kind in (Kind.PARALLEL, Kind.VECTORIZED, Kind.THREAD) and not _accumulates(loop)
        with self._scoped():
            python = self._name(loop.name, "int")
            self._scope[loop.name] = _Binding(python, loop.extent.value if isinstance(loop.extent, Const) else None)
            note = "" if loop.kind is Kind.SERIAL else f"  # {loop.kind.value}"
            self._line(f"for {python} in {f'shuffled({extent}, rng)' if shuffles else f'range({extent})'}:{note}")
            self._body.loops += 1
            self._indented(loop.body)
            self._body.loops -= 1

    def _outlined(self, loop: For) -> None:
        """The loop in a function of its own, called here."""
        outer, self._body = self._body, _Body()
        name = self._unused(f"{self.func.name}_{loop.name}")
        used = {n.name for n in walk(loop) if isinstance(n, (Var, Buffer))}
        parameters = [b.python for n, b in self._scope.items() if n in used] + [
            p for n, (p, _) in self._buffers.items() if n in used
        ]
        parameters += ["started"] if self._tracked else []
        self._for(loop)
        self._finish(name, parameters)
        self._body = outer
        self._line(f"{name}({', '.join([*parameters, 'rng'])})")

    def _block(self, b: Block) -> None:
        self._line(f"# block {b.name}")
        depth = self._body.depth
        self._statement = None
        if b.predicate != TRUE:
            self._line(f"if {self._expr(b.predicate)}:")
            self._body.depth += 1
        bound = []
        for it in b.iters:  # every binding is over the loop variables, none sees another iteration variable
            extent, binding = self._expr(it.extent), self._expr(it.binding)
            if self.traps and not self._inside(it.binding, it.extent):
                domain = f"its domain, 0 .. {_last(it.extent)}"
                message = f"`{it.var.name}` of block `{b.name}` is bound to {{value}}, outside {domain}"
                binding = f"within({binding}, {extent}, {self._site(OutOfBounds, message)})"
            bound.append((it, binding))
        for it, binding in bound:
            python = self._name(it.var.name, "int")
            self._scope[it.var.name] = _Binding(python, it.extent.value if isinstance(it.extent, Const) else None)
            self._line(f"{python} = {binding}")
        for buffer in b.allocs:
            self._allocate(buffer)
        if b.init is not None:
            self._init(b)
        self._stmt(b.body)
        self._body.depth = depth

    def _init(self, b: Block) -> None:
        first = [f"{self._scope[it.var.name].python} == 0" for it in b.iters if it.axis is Axis.REDUCE]
        if not first:
            self._stmt(b.init)  # type: ignore[arg-type]
            return
        self._line(f"if {' and '.join(first)}:")
        spatial = [self._scope[it.var.name].python for it in b.iters if it.axis is not Axis.REDUCE]
        point = f"({', '.join([repr(b.name), *spatial])})" if spatial else repr(b.name)
        if self._tracked:
            self._line(f"    started.add({point})")
        self._indented(b.init)  # type: ignore[arg-type]
        if self._tracked:
            message = f"block `{b.name}` updates its output before its init has run for this spatial point"
            self._statement = None
            self._line(f"elif {point} not in started:")
            self._line(f"    raise Trap({self._site(Uninitialised, message)}, 0)")

    # expressions

    def _element(self, buffer: Buffer, indices: tuple[Expr, ...]) -> tuple[str, Buffer]:
        if buffer.name not in self._buffers:
            raise InterpreterError(
                f"{self.func.name}: the buffer `{buffer.name}` is used, but is neither a parameter nor allocated around its use"
            )
        python, declared = self._buffers[buffer.name]
        if len(indices) != len(declared.shape):
            raise InterpreterError(
                f"{self.func.name}: `{buffer.name}` has {len(declared.shape)} dimension(s), but is indexed with {len(indices)}: "
                f"`{Load(buffer, indices)}`"
            )
        texts = []
        for dim, (index, extent) in enumerate(zip(indices, declared.shape, strict=True)):
            text = self._expr(index)
            if self.traps and not self._inside(index, extent):
                message = f"index {{value}} of dimension {dim} of `{buffer.name}` is outside 0 .. {_last(extent)}"
                text = f"at({text}, {self._expr(extent)}, {self._site(OutOfBounds, message)})"
            texts.append(text)
        return f"{python}[{', '.join(texts) or '()'}]", declared

    def _inside(self, index: Expr, extent: Expr) -> bool:
        """Whether the index needs no check: a variable that counts from 0 to within `extent`, or a constant inside."""
        if not isinstance(extent, Const):
            return False
        match index:
            case Const(value):
                return 0 <= value < extent.value
            case Var(name) if name in self._scope:
                bound = self._scope[name].extent
                return bound is not None and bound <= extent.value
            case _:
                return False

    def _typed(self, value: Expr) -> str:
        """A value to be stored: exact index arithmetic is brought into the range of its dtype."""
        text = self._expr(value)
        return f"{value.dtype}({text})" if dtypes.is_int(value.dtype) and not isinstance(value, Const) and _exact(value) else text

    def _expr(self, e: Expr, outer: int = 0) -> str:
        match e:
            case Const():
                return _constant(e)
            case Var(name):
                if name not in self._scope:
                    raise InterpreterError(f"{self.func.name}: the variable `{name}` is used where nothing binds it")
                return self._scope[name].python
            case Load(buffer, indices):
                text, declared = self._element(buffer, indices)
                return _loaded(text, declared.dtype)
            case Cast(dtype, value):
                return self._cast(dtype, value)
            case Select(c, t, f, lazy):
                if lazy:
                    text = f"{self._expr(t, 1)} if {self._expr(c, 1)} else {self._expr(f, 1)}"
                    return f"({text})"
                return f"select({self._expr(c)}, {self._expr(t)}, {self._expr(f)})"
            case Call(op, args):
                return self._call(op, args, e.dtype)
            case Unary("not", a):
                text = f"not {self._expr(a, PRECEDENCE['not'])}"
                return f"({text})" if outer > PRECEDENCE["not"] else text
            case Unary("neg", a):
                text = f"-{self._expr(a, PRECEDENCE['neg'])}"
                if dtypes.is_int(e.dtype) and not _exact(e):
                    return f"{e.dtype}({text})"
                return f"({text})" if outer > PRECEDENCE["neg"] else text
            case Binary(op, a, b):
                return self._binary(e, op, a, b, outer)
            case _:
                raise InterpreterError(f"{self.func.name}: `{e}` ({type(e).__name__}) has no meaning in a function")

    def _binary(self, e: Binary, op: str, a: Expr, b: Expr, outer: int) -> str:
        if op in ("min", "max"):
            return f"{op}({self._expr(a)}, {self._expr(b)})"
        if op in ("and", "or") and any(isinstance(n, Load) for n in walk(b)):
            return f"{'both' if op == 'and' else 'either'}({self._expr(a)}, {self._expr(b)})"
        p = PRECEDENCE[op]
        dtype = a.dtype
        if dtypes.is_float(dtype) and op in ("//", "%"):
            quotient = _rounded(f"floor({_rounded(f'{self._expr(a, 6)} / {self._expr(b, 7)}', dtype)})", dtype, always=True)
            if op == "//":
                return quotient
            product = _rounded(f"{quotient} * {self._expr(b, 7)}", dtype)
            text = f"{self._expr(a, 5)} - {product}"
            return _rounded(text, dtype) if dtype in ("float16", "bfloat16") else f"({text})"
        checked = op in ("//", "%") and not (isinstance(b, Const) and b.value != 0)
        if checked:
            site = self._site(DivisionByZero, f"`{e}` divides {{value}} by zero")
            text = f"{'floordiv' if op == '//' else 'floormod'}({self._expr(a)}, {self._expr(b)}, {site})"
            p = 9
        else:
            text = f"{self._expr(a, p + 1 if p == 4 else p)} {op} {self._expr(b, p + 1)}"
        if p > 4:
            if dtypes.is_int(dtype) and not _exact(e):
                return f"{dtype}({text})"
            if dtype in ("float16", "bfloat16"):
                return f"{dtype}({text})"
        return f"({text})" if p < outer else text

    def _cast(self, dtype: str, value: Expr) -> str:
        if dtype == "bool":
            return f"({self._expr(value, 5)} != 0)"
        text, origin = self._expr(value), value.dtype
        if dtypes.is_float(dtype):
            if origin in ("float16", "bfloat16") and dtype == "float32":
                return text
            return f"{dtype}({text})"
        if dtypes.is_float(origin):
            return f"{dtype}(truncate({text}))"
        if origin == "bool":
            return f"int({text})" if dtype != "uint64" else f"uint64({text})"
        return f"{dtype}({text})"

    def _call(self, op: str, args: tuple[Expr, ...], dtype: str) -> str:
        texts = [self._expr(a) for a in args]
        if op == "abs":
            text = f"abs({texts[0]})"
            return f"{dtype}({text})" if dtypes.is_int(dtype) else text
        return f"{dtype}({'power' if op == 'pow' else op}({', '.join(texts)}))"


def _accumulates(loop: For) -> bool:
    """Whether this is a loop over threads that reduce together: its first iteration initialises for all."""
    return loop.kind is Kind.THREAD and any(
        it.axis is Axis.REDUCE and any(n == loop.var for n in walk(it.binding)) for b in blocks(loop) if b.init for it in b.iters
    )


def _exact(e: Expr) -> bool:
    """Whether this is index arithmetic: int32 or int64 made of variables and constants only, which never wraps."""
    match e:
        case Const() | Var():
            return e.dtype in _INDEX_DTYPES
        case Binary("+" | "-" | "*" | "//" | "%" | "min" | "max", a, b):
            return _exact(a) and _exact(b)
        case Unary("neg", a):
            return _exact(a)
        case Cast(dtype, value):
            return dtype in _INDEX_DTYPES and _exact(value)
        case Select(_, t, f):
            return _exact(t) and _exact(f)
        case _:
            return False


def _rounded(text: str, dtype: str, always: bool = False) -> str:
    return f"{dtype}({text})" if always or dtype in ("float16", "bfloat16") else f"({text})"


def _braces(text: str, literal: bool = False) -> str:
    """The text for `str.format`: only the field {value} is kept, and not even that where everything is literal."""
    text = text.replace("{", "{{").replace("}", "}}")
    return text if literal else text.replace("{{value}}", "{value}")


def _last(extent: Expr) -> str:
    return str(extent.value - 1) if isinstance(extent, Const) else f"{extent} - 1"


def _loaded(text: str, dtype: str) -> str:
    if dtype in ("float16", "bfloat16"):
        return f"{dtype}_value({text})"
    if dtype == "bool":
        return f"bool({text})"
    return f"{'uint64' if dtype == 'uint64' else 'int'}({text})" if dtypes.is_int(dtype) else text


def _stored(text: str, dtype: str) -> str:
    return f"{dtype}_bits({text})" if dtype in ("float16", "bfloat16") else text


def _constant(c: Const) -> str:
    if c.dtype == "bool":
        return str(bool(c.value))
    if dtypes.is_float(c.dtype):
        return f"{c.dtype}({c.value!r})"
    text = str(c.value)
    if c.dtype == "uint64":
        return f"uint64({text})"
    return f"({text})" if c.value < 0 else text
