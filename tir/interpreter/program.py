"""A function ready to run, and the error messages of its traps."""

from __future__ import annotations

import builtins
import linecache
import weakref
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import numpy as np

from ..arith.width import TooWide, check_width
from ..empty import without_empty
from ..ir import PrimFunc, need_func
from ..traverse import make_room_for
from .arguments import check_arguments
from .errors import InterpreterError, Trap
from .generate import Generator
from .numba_functions import fast_names, njit
from .python_functions import plain_names


def run(func: PrimFunc, *args: Any, fast: bool = False, seed: int = 0, traps: bool = True) -> None:
    """Run `func` on numpy arrays, modified in place, and Python ints for its scalar parameters, in the order of `func.params`.

    Arrays have the parameters' shapes and dtypes; bfloat16 ones are uint16 bit patterns, or ml_dtypes.bfloat16. `seed` fixes the
    order of shuffled loops; `traps=False` runs them in order and checks nothing but division by zero. Raises TypeError or
    ValueError for arguments that do not fit, InterpreterError where the program has no meaning.
    """
    compile(func, fast=fast, seed=seed, traps=traps)(*args)


def compile(func: PrimFunc, *, fast: bool = False, seed: int = 0, traps: bool = True) -> Interpreted:
    """`func` as a callable over numpy arrays, as `run` takes them; `fast` compiles it with numba (about a second)."""
    return Interpreted(make_room_for(need_func(func, "run")), fast=fast, seed=seed, traps=traps)


def source(func: PrimFunc, *, fast: bool = False, traps: bool = True) -> str:
    """The plain Python that `run` executes."""
    return Generator(without_empty(need_func(func, "source")), fast=fast, traps=traps).text


class Interpreted:
    """A function ready to run; `source` is its Python text."""

    def __init__(self, func: PrimFunc, *, fast: bool = False, seed: int = 0, traps: bool = True):
        if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or seed < 0:
            raise ValueError(f"{func.name}: the seed must be an integer of at least 0, got {seed!r}")
        self.func, self.fast, self.seed, self.traps = func, fast, seed, traps
        if fast:
            try:
                check_width(func.body, {})
            except TooWide as error:
                raise InterpreterError(f"{func.name}: {error}; run it with fast=False") from None
        self._program = Generator(without_empty(func), fast=fast, traps=traps)
        self.source = self._program.text
        self._filename = f"<tir interpreter: {func.name} {id(self):x}>"
        linecache.cache[self._filename] = (len(self.source), None, self.source.splitlines(keepends=True), self._filename)
        weakref.finalize(self, linecache.cache.pop, self._filename, None)
        namespace = dict(fast_names() if fast else plain_names())
        try:
            exec(builtins.compile(self.source, self._filename, "exec"), namespace)
        except (SyntaxError, MemoryError) as error:  # Python reads at most 200 parentheses inside one another
            hint = "compute parts of it in stages of their own"
            raise InterpreterError(f"{func.name}: an expression is nested too deeply for Python ({error}); {hint}") from None
        if fast:
            for name in self._program.functions:  # callees come first
                namespace[name] = njit(namespace[name])
        self._entry: Callable = namespace[self._program.functions[-1]]

    def __call__(self, *args: Any) -> None:
        values = check_arguments(self.func, args)
        rng = np.array([self.seed], np.uint64) if self.fast else np.random.default_rng(self.seed)
        try:
            with np.errstate(all="ignore"):
                self._entry(*values, rng)
        except Trap as trap:
            raise self._explain(trap) from None

    def _explain(self, trap: Trap) -> InterpreterError:
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
