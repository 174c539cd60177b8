"""The worth of each number that steers default schedules: the row's speed with half and with twice of it.

A row is a program, for this processor or, as in `gemm-512@x86-64-v3`, for a level that it has. Each number in `ROOMS` is changed
alone: constants of modules, literals of functions, fields of the core, and bytes of the caches. Where that changes the schedule,
the program is built so, compared with the default's result, and timed in turns with the default.
"""

from __future__ import annotations

import ast
import inspect
import pkgutil
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from functools import partial
from importlib import import_module
from math import isfinite
from types import CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple

import numpy as np

import tir
from schedule import machine

from . import breadth, cpu, pages, programs, quality
from .levels import LEVELS, targets
from .options import Options
from .runner import Effort, circumstances, race, ratios, warm

THREADED = True

ROOMS = (
    "schedule.machine",
    "schedule.product_blocks",
    "schedule.register_tiles",
    "schedule.templates",
)  # modules and packages whose numbers are changed
# Of GPUs, which no row runs on, and of texts.
PASSED_BY = ("schedule.templates.gpu", "schedule.machine.GPU", "schedule.machine.Memory")
PLAIN = (0, 1, -1, 2, -2, 8)  # literals that count, point, or make bytes of bits
ORDER = 3  # numbers in a literal that is an order of dimensions
FACTORS = (0.5, 2.0)
SECONDS = 0.6  # to time a changed schedule and the default


PROGRAMS = tuple(dict.fromkeys((*cpu.ROWS, *breadth.ROWS, *quality.DRAWN)))
ROWS = (*PROGRAMS, *(f"{row}@{level}" for level in LEVELS for row in PROGRAMS))
DEFAULT = PROGRAMS


class Number(NamedTuple):
    """A number by its place, with `changed`: a context in which it is another."""

    place: str
    value: float
    changed: Callable[[float], Any]


# --- the numbers -------------------------------------------------------------------------------------------------------


def numbers() -> Iterator[Number]:
    """The numbers of all rooms."""
    for module in modules():
        yield from _constants(module)
        for owner, function in functions(module):
            if not owner.startswith(PASSED_BY):
                yield from _literals(owner, function)


def modules() -> list[ModuleType]:
    """The modules of all rooms."""
    found = []
    for room in map(import_module, ROOMS):
        inside = pkgutil.walk_packages(room.__path__, f"{room.__name__}.") if hasattr(room, "__path__") else ()
        found += [room, *(import_module(m.name) for m in inside if not m.name.startswith(PASSED_BY))]
    return found


def functions(module: ModuleType) -> Iterator[tuple[str, FunctionType]]:
    """The functions that a module defines, methods and properties included, by their names in it."""
    pending = [(module.__name__, vars(module))]
    while pending:
        owner, names = pending.pop()
        for name, value in list(names.items()):
            inner = getattr(value, "fget", None) or getattr(value, "__wrapped__", None) or getattr(value, "__func__", value)
            if getattr(inner, "__module__", None) != module.__name__:
                continue
            if isinstance(inner, type) and f".{inner.__name__}" not in owner:
                pending.append((f"{owner}.{name}", vars(inner)))
            elif isinstance(inner, FunctionType):
                yield f"{owner}.{name}", inner


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and isfinite(value) and value != 0


def _parts(value: Any) -> Iterator[tuple[Any, Any]]:
    """The numbers in a constant, each with the function that puts another in its place."""
    if _is_number(value):
        yield value, lambda new: new
    elif isinstance(value, tuple):
        for n, part in enumerate(value):
            for number, put in _parts(part):
                yield number, lambda new, n=n, put=put: (*value[:n], put(new), *value[n + 1 :])
    elif isinstance(value, dict):
        for key, part in value.items():
            if _is_number(part):
                yield part, lambda new, key=key: {**value, key: new}


def _constants(module: ModuleType) -> Iterator[Number]:
    """The numbers that a module gives a name in capitals."""
    for name in assigned(module):
        value = vars(module)[name]
        for n, (number, put) in enumerate(_parts(value)):
            place = f"{module.__name__}.{name}" + (f"[{n}]" if isinstance(value, (tuple, dict)) else "")
            yield Number(place, number, partial(_with_constant, name, value, put))


def assigned(module: ModuleType) -> list[str]:
    """The names in capitals that a module assigns, rather than imports."""
    tree = ast.parse(inspect.getsource(module))
    targets = [t for s in tree.body for t in getattr(s, "targets", [getattr(s, "target", None)]) if t is not None]
    names = [x.id for t in targets for x in ast.walk(t) if isinstance(x, ast.Name)]
    return [name for name in names if name.isupper()]


@contextmanager
def _with_constant(name: str, old: Any, put: Callable[[float], Any], value: float) -> Iterator[None]:
    """Another value of a constant, in every module that has it."""
    holders = [m for key, m in list(sys.modules.items()) if key.startswith("schedule") and vars(m).get(name) is old]
    try:
        for holder in holders:
            setattr(holder, name, put(value))
        yield
    finally:
        for holder in holders:
            setattr(holder, name, old)


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _codes(inner)


def _literals(owner: str, function: FunctionType) -> Iterator[Number]:
    """The numbers that a function writes out; one that it writes twice is one."""
    for code in _codes(function.__code__):
        for const in dict.fromkeys(c for c in code.co_consts if not isinstance(c, CodeType)):
            for n, (number, put) in enumerate(_parts(const)):
                if number in PLAIN or (isinstance(const, tuple) and len(const) >= ORDER):
                    continue
                place = f"{owner}: {number:g}" + (f" in {const}" if isinstance(const, tuple) else "") + f" [{n}]" * (n > 0)
                yield Number(place, number, partial(_with_literal, function, code, const, put))
    for n, default in enumerate(function.__defaults__ or ()):
        if _is_number(default) and default not in PLAIN:
            yield Number(f"{owner}: default {default:g}", default, partial(_with_default, function, n))


def _replaced(code: CodeType, at: CodeType, old: Any, new: Any) -> CodeType:
    def same(c: object) -> bool:
        return type(c) is type(old) and c == old

    if code is at:
        return code.replace(co_consts=tuple(new if same(c) else c for c in code.co_consts))
    return code.replace(co_consts=tuple(_replaced(c, at, old, new) if isinstance(c, CodeType) else c for c in code.co_consts))


@contextmanager
def _with_literal(function: FunctionType, at: CodeType, old: Any, put: Callable[[float], Any], value: float) -> Iterator[None]:
    before = function.__code__
    try:
        function.__code__ = _replaced(before, at, old, put(value))
        yield
    finally:
        function.__code__ = before


@contextmanager
def _with_default(function: FunctionType, n: int, value: float) -> Iterator[None]:
    before = function.__defaults__ or ()
    try:
        function.__defaults__ = (*before[:n], value, *before[n + 1 :])
        yield
    finally:
        function.__defaults__ = before


def of_core(target: tir.Target) -> Iterator[Number]:
    """The fields of the description of the target's core."""
    core = target.machine.core

    @contextmanager
    def changed(field: str, value: float) -> Iterator[None]:
        before = machine.core_of
        try:
            machine.core_of = lambda mcpu, vector_bits: replace(core, **{field: value})
            yield
        finally:
            machine.core_of = before

    for field in fields(core):
        yield Number(f"core: {field.name}", getattr(core, field.name), partial(changed, field.name))


def of_target(target: tir.Target) -> Iterator[tuple[str, float, dict[str, Any]]]:
    """The options of other targets, by what is changed: bytes of a cache, or cycles of its lines."""
    memory = target.machine_as(machine.CPU).memory
    for factor in FACTORS:
        for cache in ("l1", "l2", "l3"):
            yield f"target: {cache}", factor, {cache: int(getattr(target, cache) * factor)}
        for kind in ("line", "row"):
            for n, level in enumerate(("L2", "L3", "memory")):
                cycles = list(getattr(memory, kind))
                cycles[n] *= factor
                yield f"memory: {kind} of {level}", factor, {"memory": str(replace(memory, **{kind: tuple(cycles)}))}
        yield "memory: streams", factor, {"memory": str(replace(memory, streams=int(memory.streams * factor)))}


def times(number: Number, factor: float) -> float | None:
    """The number times a factor, whole where it is; None where that is the same, or nothing."""
    found = type(number.value)(round(number.value * factor)) if isinstance(number.value, int) else number.value * factor
    return None if found in (0, number.value) else found


def forget() -> None:
    """Empty the caches of functions of the scheduler, which hold what earlier numbers said."""
    for name, module in list(sys.modules.items()):
        if name.startswith("schedule"):
            for value in vars(module).values():
                getattr(value, "cache_clear", lambda: None)()


# --- rows --------------------------------------------------------------------------------------------------------------


def changes(func: tir.PrimFunc, target: tir.Target) -> Iterator[tuple[str, float, tir.PrimFunc | str, tir.Target]]:
    """The schedules with each number changed, by place and factor; or the error that there is instead."""
    for number in (*numbers(), *of_core(target)):
        for factor in FACTORS:
            if (value := times(number, factor)) is None:
                continue
            try:
                with number.changed(value):
                    forget()
                    found: tir.PrimFunc | str = tir.default_schedule(func, target).func
            except Exception as error:  # the outermost frame of a changed program: any number may be one it relies on
                found = f"{type(error).__name__}: {error}"
            yield number.place, factor, found, target
    forget()
    for place, factor, options in of_target(target):
        other = tir.Target(target, **options)
        yield place, factor, tir.default_schedule(func, other).func, other


def _program(row: str, options: Options) -> tuple[tir.PrimFunc, tuple[np.ndarray, ...], tuple[np.ndarray, ...]]:
    """A program with its inputs and outputs."""
    if row in breadth.ROWS:
        return breadth.problem(row, options.seed)
    instance = quality.instance_of(row)
    return instance.func, *programs.arrays(instance, options.seed)


def measure(row: str, options: Options) -> Iterator[dict[str, Any]]:
    """One result: the changes of the schedule, each with the ratio of its time to the default's."""
    name, _, level = row.partition("@")
    target = targets(options.threads)[level or "native"]
    func, inputs, outputs = _program(name, options)
    default = tir.default_schedule(func, target).func
    found: dict[str, list[tuple[str, float]]] = defaultdict(list)
    built: dict[str, tuple[tir.PrimFunc, tir.Target]] = {}
    failed, total = [], 0
    for place, factor, changed, other in changes(func, target):
        total += 1
        if isinstance(changed, str):
            failed.append({"place": place, "factor": factor, "error": changed})
        elif (script := changed.script()) != default.script():
            found[script].append((place, factor))
            built[script] = changed, other
    result: dict[str, Any] = {"threads": options.threads, "tried": total, "failed": failed, **circumstances()}
    usual = tir.build(default, target).bind(*inputs, *outputs)
    usual()
    right = [a.copy() for a in outputs]
    result["changes"] = []
    for script, places in found.items():
        call = tir.build(built[script][0], built[script][1]).bind(*inputs, *outputs)
        call()
        if not all(close(a, b) for a, b in zip(outputs, right, strict=True)):
            result["changes"].append({"places": places, "error": "another result"})
            continue
        timings = race({"default": usual, "changed": call}, Effort(seconds=SECONDS, warm=warm(options.threads)))
        ratio, between = ratios(timings["default"], timings["changed"])
        result["changes"].append({"places": places, "ratio": ratio, "quartiles": list(between)})
    result["median_s"] = timings["default"].median if found and "ratio" in result["changes"][-1] else None
    pages.keep(options.save, "perturb", row, result, write)
    yield result


def close(a: np.ndarray, b: np.ndarray) -> bool:
    """True where two results differ by rounding alone: sums of up to 100,000 terms in another order."""
    x, y = (breadth.values(v, "bfloat16" if v.dtype == np.uint16 else str(v.dtype)).astype(float) for v in (a, b))
    return bool(np.max(np.abs(x - y), initial=0.0) <= 2.0**-7 * np.max(np.abs(y), initial=1e-30))


# --- the page ----------------------------------------------------------------------------------------------------------

INTRODUCTION = """\
# The worth of each number that steers default schedules

Made by `python -m benchmarks perturb --threads 1 --save DIR`. Each number is halved and doubled, and the programs whose schedule
changes are timed in turns with the default. `x 0.5` and `x 2` are geometric means over all rows of the time to the default's;
`worst` is the row that loses most, `best` the one that gains most. A number earns its place where a mean is at least 1.01, or the
worst row 1.05. Numbers that change no schedule are left out.
"""

COLUMNS = ["number", "rows changed", "x 0.5", "x 2", "worst", "best"]


def lines(results: Sequence[dict[str, Any]]) -> pages.Lines:
    """A line a number that changed a schedule, those with the greatest worth first."""
    of: dict[str, dict[float, dict[str, float]]] = defaultdict(lambda: {f: {} for f in FACTORS})
    for r in results:
        for change in r.get("changes", ()):
            for place, factor in change["places"]:
                if "ratio" in change:
                    of[place][factor][r["row"]] = change["ratio"]
    found = []
    for place, by_factor in of.items():
        means = [pages.geometric_mean([*rows.values(), *[1.0] * (len(results) - len(rows))]) for rows in by_factor.values()]
        every = [(ratio, row) for rows in by_factor.values() for row, ratio in rows.items()]
        rows = len({row for _, row in every})
        (most, slow), (least, fast) = max(every), min(every)
        found.append((max(means), [place, str(rows), *(f"{m:.3f}" for m in means), f"{most:.2f} {slow}", f"{least:.2f} {fast}"]))
    return COLUMNS, [cells for _, cells in sorted(found, key=lambda f: -f[0])]


table, write = pages.both("perturb", "time, to the default's", INTRODUCTION, ROWS, lines)
