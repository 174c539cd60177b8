"""The two assertions for primitives: `becomes` for what is accepted, `refuses` for what is not.

Both say which iteration goes wrong where a primitive computes something else, or accepts what it should refuse.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from difflib import unified_diff
from functools import lru_cache
from textwrap import dedent, indent

import numpy as np
import pytest

import tir
from schedule import Schedule, ScheduleError, Trace, replay
from tests.arrays import copies, integers, widened
from tests.elision import completed
from tests.programs import chain, matmul
from tir.interpreter import InterpreterError, run
from tir.ir import Block, Buffer, Const, For, Kind, PrimFunc, Stmt, Store, seq
from tir.script import parse
from tir.traverse import loops, map_children

SEEDS = (0, 1, 2)
NOWHERE = -1  # what the recorded iterations of an element are that no store has reached


class Checked(Schedule):
    """A schedule that keeps the function it began with, `before`, and asserts what primitives make of it; a text is a script."""

    def __init__(self, func: PrimFunc | str, seed: int | np.random.Generator | None = None):
        self.before = parse(dedent(func)) if isinstance(func, str) else func
        super().__init__(self.before, seed)

    def becomes(self, expected_body: str, sizes: dict[str, int] | None = None) -> None:
        """Assert that the schedule prints as expected, replays, is well formed, and computes the numbers of the function before.

        `expected_body` is the printed body of the function, in which `...` stands for lines of the script before the last step
        (`completed`); the header must be that of the function before.
        """
        __tracebackhide__ = True
        before = self.before
        well_formed(self.func)
        same_numbers(before, self.func, sizes)  # before the script: it names the first element that went wrong
        header, found = _header_and_body(self.func)
        assert header == _header_and_body(before)[0], f"the header became\n{header}"
        expected = dedent(expected_body).strip()
        if "..." in expected:
            expected = completed(expected, _header_and_body(replay(before, self.trace.steps[:-1]).func)[1])
        changes = "\n".join(unified_diff(expected.splitlines(), found.splitlines(), "expected", "found", lineterm=""))
        assert found == expected, f"{changes}\n\nthe script was\n{found}"
        round_trip(self.func)
        for trace in (self.trace, Trace.from_json(self.trace.to_json())):
            again = replay(before, trace)
            assert again.script == self.script
            assert again.trace == self.trace
        s = Schedule(before)
        exec(str(self.trace), {"s": s})
        assert s.script == self.script, "the printed trace does something else"

    def refuses(self, expected_message: str) -> None:
        """Assert that the step with which the message begins is refused with exactly this message."""
        __tracebackhide__ = True
        with self.refusal(expected_message):
            eval(f"s.{call_in(dedent(expected_message).strip())}", {"s": self})

    @contextmanager
    def refusal(self, expected_message: str) -> Iterator[None]:
        """Assert that the step in the `with` is refused with exactly this message, and that function and trace stay as they were."""
        __tracebackhide__ = True
        func, trace, expected = self.func, self.trace, dedent(expected_message).strip("\n")
        try:
            yield
        except ScheduleError as error:
            assert str(error) == expected, f"the message was\n{error}"
        else:
            pytest.fail(f"accepted, but expected\n{expected}\n{damage(func, self.func)}", pytrace=False)
        assert self.func is func
        assert self.trace == trace


def call_in(message: str) -> str:
    """The call, as Python, that a message begins with."""
    for end in re.finditer(r"\): ", message):
        call = message[: end.start() + 1].strip()
        with suppress(SyntaxError):
            ast.parse(call, mode="eval")
            return call
    raise ValueError(f"this message begins with no call: {message}")


def well_formed(func: PrimFunc) -> None:
    """Assert that `verify` finds no error."""
    __tracebackhide__ = True
    report = tir.verify(func)
    assert report.ok, f"{report}\n{without_header(func.script())}"


def same_numbers(
    before: PrimFunc,
    after: PrimFunc,
    sizes: dict[str, int] | None = None,
    seeds=SEEDS,
    llvm: bool = True,
    signed_zeros: bool = True,
    drawn: Callable[..., list] = integers,
) -> None:
    """Assert that both functions leave bitwise equal arrays, in the interpreter with its traps, and once through LLVM (unless it
    has GPU threads); without `signed_zeros`, -0 is 0. A NaN is one of any sign and payload. `drawn` makes the arguments."""
    __tracebackhide__ = True
    for seed in seeds:
        given = drawn(before, seed, sizes)
        old, new = _results(before, seed, tuple((sizes or {}).items()), drawn), copies(given)
        run(after, *new, seed=seed)
        if difference := _difference(after, given, old, new, seed, signed_zeros):
            pytest.fail(f"interpreter, seed {seed}: {difference}\n{without_header(after.script())}")
    if llvm and not any(loop.kind is Kind.THREAD for loop in loops(after)):
        new = drawn(before, seeds[-1], sizes)
        tir.build(after, target="llvm")(*new)
        if difference := _difference(after, given, old, new, seeds[-1], signed_zeros):
            pytest.fail(f"LLVM, though not the interpreter: {difference}\n{without_header(after.script())}")


@lru_cache(maxsize=64)
def _results(func: PrimFunc, seed: int, sizes: tuple[tuple[str, int], ...], drawn: Callable[..., list]) -> list:
    """What the interpreter leaves of the arguments of a seed: the same function is compared with many schedules of it."""
    arrays = drawn(func, seed, dict(sizes))
    run(func, *arrays, seed=seed)
    return arrays


def round_trip(func: PrimFunc) -> None:
    """Assert that the printed function parses back to the same function."""
    script = func.script()
    again = parse(script)
    assert again.script() == script
    assert again == func, "the parsed function prints the same, but is another"


def _header_and_body(func: PrimFunc) -> tuple[str, str]:
    """A printed function up to the line of its root block, and what is below that."""
    header, root, body = func.script().partition('with T.block("root"):\n')
    assert root
    return header, dedent(body).strip()


def without_header(script: str) -> str:
    return script[script.index("@T.prim_func") :].strip()


# --- which iteration goes wrong ----------------------------------------------------------------------------------------


def damage(before: PrimFunc, after: PrimFunc) -> str:
    """What a call that should have been refused does to a program: the first iteration that goes wrong, and the script."""
    what = str(report) if not (report := tir.verify(after)).ok else _first_difference(before, after)
    return f"What it made:\n{indent(what, '  ')}\n{without_header(after.script())}"


def _first_difference(before: PrimFunc, after: PrimFunc) -> str:
    if any(not isinstance(p, Buffer) for p in before.params):
        return "a program with symbolic sizes, which is not run here"
    for seed in SEEDS:
        given = integers(before, seed)
        old, new = copies(given), copies(given)
        run(before, *old, seed=seed)
        try:
            run(after, *new, seed=seed)
        except InterpreterError as error:
            return str(error)
        if difference := _difference(after, given, old, new, seed):
            return difference
    return "a program that verifies, and computes the same numbers on this data"


def _difference(after: PrimFunc, given: list, old: list, new: list, seed: int, signed_zeros: bool = True) -> str | None:
    """The first element that differs after both programs ran, and the iteration of `after` that wrote it last."""
    for p, x, y in zip(after.params, old, new, strict=True):
        if isinstance(p, Buffer) and (wrong := np.argwhere(_differs(x, y, p.dtype, signed_zeros))).shape[0]:
            at = tuple(map(int, wrong[0]))
            writer = last_writer(after, p, at, given, seed)
            return (
                f"{p.name} differs in {len(wrong)} of {x.size} elements, first at {at}: {x[at]} before, {y[at]} after; "
                f"{f'last written by {writer}' if writer else 'no iteration writes it'}"
            )
    return None


def _differs(x: np.ndarray, y: np.ndarray, dtype: str, signed_zeros: bool) -> np.ndarray:
    a, b = widened(x, dtype), widened(y, dtype)
    both_zero, both_nan = (a == 0) & (b == 0), (a != a) & (b != b)
    return (x.view(f"uint{8 * x.itemsize}") != y.view(f"uint{8 * y.itemsize}")) & ~both_nan & (signed_zeros | ~both_zero)


def last_writer(func: PrimFunc, buffer: Buffer, at: tuple[int, ...], given: list, seed: int = 0) -> str | None:
    """The block and the values of the loops that last store to an element of a parameter, as text; None where none does."""
    names: list[str] = []  # of the places that store to the buffer, and of the loops around each
    around: list[list[str]] = []
    shape = (*given[func.params.index(buffer)].shape, 1 + sum(1 for _ in loops(func)))
    record = Buffer("written", tuple(map(Const, shape)), "int64")

    def visit(s: Stmt, block: str, over: list[For]) -> Stmt:
        match s:
            case For():
                over = [*over, s]
            case Block():
                block = s.name
            case Store() if s.buffer == buffer:
                values = [Const(len(names)), *(loop.var for loop in over)]
                names.append(f"block `{block}`" if block else f"`{s.buffer.name}[...] = ...`")
                around.append([loop.name for loop in over])
                return seq(s, *(Store(record, (*s.indices, Const(n)), v) for n, v in enumerate(values)))
        return map_children(s, lambda c: visit(c, block, over) if isinstance(c, Stmt) else c)  # type: ignore[return-value]

    recording = func.with_(body=visit(func.body, "", []), params=(*func.params, record))
    written = np.full(shape, NOWHERE)
    run(recording, *copies(given), written, seed=seed)
    place, *values = written[at]
    if place == NOWHERE:
        return None
    where = ", ".join(f"{name}={value}" for name, value in zip(around[place], values, strict=False))
    return f"{names[place]}{f' where {where}' if where else ''}"


def tiled_matmul(*order: str) -> Checked:
    """`matmul` with its loops `i` and `j` split by 4 and 5, which don't divide, in an order of all loops."""
    s = Checked(matmul())
    s.split("i", [None, 4])
    s.split("j", [None, 5])
    s.reorder(*order)
    return s


def rows_of_their_own() -> PrimFunc:
    """B = 2 (A + 1), a block for each row, which allocates `row`."""
    return parse("""
@T.prim_func
def main(A: T.Buffer((3, 5), "float32"), B: T.Buffer((3, 5), "float32")):
    for i in range(3):
        with T.block("rows"):
            v_i = T.axis.spatial(3, i)
            row = T.alloc_buffer((5,))
            for j in range(5):
                with T.block("row"):
                    v_j = T.axis.spatial(5, j)
                    row[v_j] = A[v_i, v_j] + T.float32(1.0)
            for j in range(5):
                with T.block("B"):
                    v_j = T.axis.spatial(5, j)
                    B[v_i, v_j] = row[v_j] * T.float32(2.0)
""")


def chain_in_a_block() -> Checked:
    """`chain` with both of its blocks in one, `outer_B_C_`, for each element."""
    s = Checked(chain())
    s.reverse_compute_at("C", "j")
    s.blockize(["B", "C"])
    return s
