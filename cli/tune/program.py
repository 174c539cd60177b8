"""The program to tune: one of the workloads, or a function from a file of the user."""

from __future__ import annotations

import inspect
import math
import re
import runpy
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tir.ir import PrimFunc, const_shape

from ..networks import read_arrays
from ..options import Usage, refusing, running, sizes

if TYPE_CHECKING:
    from search.measure.reference import NamedWorkload


@dataclass(frozen=True, slots=True)
class Program:
    """A function, with its `name` on the command line. For a function from a file, `workload` is None, `shape` are the arguments
    of the Python function that makes it, if any, and `dtype` lists the dtypes of its buffers."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    func: PrimFunc
    workload: NamedWorkload | None

    @property
    def title(self) -> str:
        return f"{self.name} {sizes(self.shape)}".rstrip()


def is_file(word: str) -> bool:
    """True where a word of the command line is `FILE.py` or `FILE.py:NAME`."""
    return Path(word.partition(":")[0]).suffix == ".py"


def parse_program(word: str, shape: tuple[int, ...] | str | None, dtype: str = "float32") -> Program:
    """The workload of a name and a shape, or the function in a file. Raises Usage if it does not exist or fit into memory."""
    if not is_file(word):
        return _workload(word, shape, dtype)
    given = _sizes_given(shape)
    func = _from_file(word, given)
    with refusing(word):  # a symbolic size
        if not _fits(func):
            raise Usage(f"{word} does not fit into the memory of this machine")
    return Program(word, given, ", ".join(dict.fromkeys(b.dtype for b in func.buffers)), func, None)


def open_function(word: str, shape: str | None) -> PrimFunc:
    """The function in a file, whose sizes may be open."""
    return _from_file(word, _sizes_given(shape))


def _sizes_given(shape: tuple[int, ...] | str | None) -> tuple[int, ...]:
    return _shape(shape, "as many as the function takes") if isinstance(shape, str) else tuple(shape or ())


def read_inputs(path: str | None, func: PrimFunc) -> dict[str, np.ndarray]:
    """The arrays of `--inputs`. Raises Usage if they are not inputs of the function."""
    if path is None:
        return {}
    from search.measure.reference import given_inputs

    inputs = read_arrays(path)
    try:
        given_inputs(func, inputs)
    except ValueError as error:
        raise Usage(f"--{error}") from None
    return inputs


def _workload(name: str, shape: tuple[int, ...] | str | None, dtype: str) -> Program:
    import workloads
    from search.measure.reference import NamedWorkload

    try:
        known = workloads.get(name)
        lengths = known.sizes(_shape(shape, known.usage) if isinstance(shape, str) else shape)
        if not _fits(known.build(dtype, *lengths)):
            raise Usage(f"{name} at {sizes(lengths)} does not fit into the memory of this machine")
        workload = NamedWorkload(name, lengths, dtype)
        return Program(name, lengths, dtype, workload.instance().func, workload)
    except (TypeError, ValueError) as error:  # TypeError for a size that no integer holds
        raise Usage(str(error)) from None


def _shape(text: str, usage: str) -> tuple[int, ...]:
    parts = [part.strip() for part in text.split(",")]
    if not all(re.fullmatch(r"\d+", part) for part in parts):
        raise Usage(f"--shape takes integers separated by commas, {usage}; got {text!r}")
    return tuple(map(int, parts))


def _fits(func: PrimFunc) -> bool:
    """True where the arrays of a function and their float64 reference fit into the memory of this machine."""
    from search.measure.memory import memory
    from tir import dtypes

    needed = sum(math.prod(const_shape(b)) * (dtypes.nbytes(b.dtype) + 8) for b in (*func.buffers, *func.allocs))
    return needed <= (memory() or needed)


def _from_file(word: str, given: tuple[int, ...]) -> PrimFunc:
    """The function `FILE.py:NAME`, the only one in `FILE.py`, or the result of a Python function of the sizes. Runs the file."""
    from tir.script.module import Module

    path, _, name = word.partition(":")
    with refusing(f"cannot read a function from {path}", (OSError, ImportError, SyntaxError)), running(path):
        values = runpy.run_path(path)
    maker = values.get(name)
    if inspect.isfunction(maker):
        return _function_made_by(word, maker, given)
    if given:
        raise Usage(
            f"--shape goes with a workload, or a Python function that takes sizes; that in {word} has those it is written with"
        )
    found: dict[str, PrimFunc] = {}
    for key, value in values.items():
        if isinstance(value, PrimFunc):
            found[key] = value
        elif isinstance(value, Module):
            found |= {f"{key}.{part}": func for part, func in value.items()}
    if name in found or (not name and len(found) == 1):
        return found[name] if name else next(iter(found.values()))
    there = f"{path} has {', '.join(found) or 'none that te.create_prim_func or @T.prim_func made'}"
    if name:
        raise Usage(f"there is no function {name!r}: {there}")
    raise Usage(f"expected one function, but {there}; {path}:NAME takes one of several")


def _function_made_by(word: str, maker: Callable[..., object], given: tuple[int, ...]) -> PrimFunc:
    """The function of the IR that a Python function of sizes makes, itself or as a list of tensors."""
    from tir.te import Tensor, create_prim_func

    parameters = inspect.signature(maker)
    try:
        parameters.bind(*given)
    except TypeError as error:
        raise Usage(f"{word} takes --shape {','.join(parameters.parameters)}: {error}") from None
    with refusing(word, (TypeError, ValueError)), running(word):
        made = maker(*given)
        if isinstance(made, list | tuple) and any(isinstance(t, Tensor) for t in made):
            return create_prim_func(list(made))
    if not isinstance(made, PrimFunc):
        raise Usage(f"{word} makes no function: it returns a {type(made).__name__}, not a PrimFunc or a list of tensors")
    return made
