"""The two assertions for primitives: `check` for what is accepted, `refuse` for what is not."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from difflib import unified_diff
from textwrap import dedent

import numpy as np
import pytest

from schedule import Schedule, ScheduleError, Trace, replay
from tir import dtypes
from tir.interpreter import run
from tir.ir import Buffer, Kind, PrimFunc, Var
from tir.script import parse
from tir.traverse import loops, substitute

SEEDS = (0, 1, 2)


def arguments(func: PrimFunc, seed: int, sizes: dict[str, int] | None = None) -> list[np.ndarray | int]:
    """An argument for each parameter: small integers in its dtype, so that no order of summation rounds; `sizes` for symbols."""
    rng = np.random.default_rng(seed)
    sizes = sizes or {}
    result: list[np.ndarray | int] = []
    for p in func.params:
        match p:
            case Var(name):
                result.append(sizes[name])
            case Buffer():
                shape = [_value(substitute(d, {n: _const(v) for n, v in sizes.items()})) for d in p.shape]
                low = 0 if p.dtype.startswith("uint") or p.dtype == "bool" else -3
                values = np.asarray(rng.integers(low, 2 if p.dtype == "bool" else 4, shape))
                if p.dtype == "bfloat16":
                    result.append((values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16))
                else:
                    result.append(values.astype(dtypes.storage(p.dtype)))
    return result


def _const(value: int):
    from tir.ir import Const

    return Const(value)


def _value(expr) -> int:
    from tir.simplify import simplify

    return simplify(expr).value


def same_numbers(before: PrimFunc, after: PrimFunc, sizes: dict[str, int] | None = None, seeds=SEEDS, llvm: bool = True) -> None:
    """Assert that both functions leave bitwise equal arrays, in the interpreter with its traps, and once through LLVM (unless it
    has GPU threads)."""
    for seed in seeds:
        old, new = arguments(before, seed, sizes), arguments(before, seed, sizes)
        run(before, *old, seed=seed)
        run(after, *new, seed=seed)
        _equal(before, old, new, f"interpreter, seed {seed}")
    threads = any(loop.kind is Kind.THREAD for loop in loops(after))
    if llvm and not threads and importlib.util.find_spec("codegen.build") is not None:
        import tir

        new = arguments(before, seeds[-1], sizes)
        tir.build(after, target="llvm")(*new)
        _equal(before, old, new, "LLVM")


def _equal(func: PrimFunc, old: list, new: list, where: str) -> None:
    for p, x, y in zip(func.params, old, new, strict=True):
        if isinstance(x, np.ndarray) and x.tobytes() != y.tobytes():
            wrong = np.argwhere(x != y)
            at = (
                f"first at {tuple(map(int, wrong[0]))}: {x[tuple(wrong[0])]} before, {y[tuple(wrong[0])]} after"
                if len(wrong)
                else ""
            )
            pytest.fail(f"{where}: {p.name} differs in {len(wrong)} of {x.size} elements, {at}")


def well_formed(func: PrimFunc) -> None:
    """Assert that `verify` finds no error."""
    if importlib.util.find_spec("tir.verify") is not None:
        from tir.verify import verify

        report = verify(func)
        assert report.ok, str(report)


def round_trip(func: PrimFunc) -> None:
    """Assert that the printed function parses back to the same function."""
    script = func.script()
    again = parse(script)
    assert again.script() == script
    assert again == func, "the parsed function prints the same, but is another"


def check(schedule: Schedule, before: PrimFunc, expected_script: str, sizes: dict[str, int] | None = None) -> None:
    """Assert that a schedule of `before` prints as expected, replays, is well formed, and computes the same numbers.

    `expected_script` is the printed function, without the import line.
    """
    well_formed(schedule.func)
    same_numbers(before, schedule.func, sizes)  # before the script: it names the first element that went wrong
    found, expected = without_header(schedule.script), dedent(expected_script).strip()
    changes = "\n".join(unified_diff(expected.splitlines(), found.splitlines(), "expected", "found", lineterm=""))
    assert found == expected, f"{changes}\n\nthe script was\n{found}"
    round_trip(schedule.func)
    for trace in (schedule.trace, Trace.from_json(schedule.trace.to_json())):
        again = replay(before, trace)
        assert again.script == schedule.script
        assert again.trace == schedule.trace
    s = Schedule(before)
    exec(str(schedule.trace), {"s": s})
    assert s.script == schedule.script, "the printed trace does something else"


def refuse(schedule: Schedule, call: Callable[[Schedule], object], expected_message: str) -> None:
    """Assert that `call(schedule)` is refused with exactly this message, and that function and trace stay as they were."""
    func, trace = schedule.func, schedule.trace
    with pytest.raises(ScheduleError) as caught:
        call(schedule)
    message = str(caught.value)
    assert message == dedent(expected_message).strip("\n"), f"the message was\n{message}"
    assert schedule.func is func
    assert schedule.trace == trace


def without_header(script: str) -> str:
    return script[script.index("@T.prim_func") :].strip()
