"""Tensor intrinsics: the description of an instruction, and its implementation."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, lru_cache

import numpy as np

from tir.arrays import from_float
from tir.interpreter import run
from tir.ir import Buffer, PrimFunc, const_shape
from tir.traverse import foreign_calls

_REGISTERED: dict[str, TensorIntrin] = {}  # by users


@dataclass(frozen=True)
class TensorIntrin:
    """An intrinsic for `Schedule.tensorize`: description and implementation, functions of the same buffers.

    `desc` is the nest to be matched, loop for loop and operation for operation. `impl` is its replacement: vectorised loops that
    the backend makes one instruction, or any other program with the same results.
    """

    name: str
    desc: PrimFunc
    impl: PrimFunc

    @staticmethod
    def register(name: str, desc: PrimFunc, impl: PrimFunc, override: bool = False) -> TensorIntrin:
        """Register an intrinsic under a name.

        ValueError if the name is taken (unless `override`), or a function has a foreign call. The parameters of both must be
        buffers of the same constant shapes and dtypes.
        """
        if name in registered() and not override:
            raise ValueError(f"a tensor intrinsic called {name!r} is registered already; override=True replaces it")
        for what, func in (("desc", desc), ("impl", impl)):
            if not isinstance(func, PrimFunc):
                raise TypeError(f"`{what}` must be a function of the script dialect (@T.prim_func), got {type(func).__name__}")
            if calls := foreign_calls(func.body):
                reason = f"`{what}` has the foreign call `T.{calls[0].call.op}`, and what it does cannot be compared"
                raise ValueError(f"{reason}; loops and the intrinsics of T can be")
            for p in func.params:
                if not isinstance(p, Buffer):
                    raise ValueError(f"a parameter of an intrinsic must be a buffer, `{p.name}` of `{what}` is a size")
        ours, theirs = ([(const_shape(p), p.dtype) for p in f.buffers] for f in (desc, impl))
        if ours != theirs:
            raise ValueError(
                f"`desc` and `impl` must take the same buffers, got {_parameter_list(desc)} and {_parameter_list(impl)}"
            )
        result = _REGISTERED[name] = TensorIntrin(name, desc, impl)
        return result

    @staticmethod
    def get(name: str, allow_missing: bool = False) -> TensorIntrin | None:
        """The intrinsic of a name; for an unknown name ValueError, or None with `allow_missing`."""
        known = registered()
        if not isinstance(name, str) or (name not in known and not allow_missing):
            raise ValueError(f"no tensor intrinsic is called {name!r}; registered are {', '.join(sorted(known))}")
        return known.get(name)

    def difference(self) -> str | None:
        """The first difference between the results of `desc` and `impl` on small random integers, in words; None if equal."""
        return _difference(self)


def registered() -> dict[str, TensorIntrin]:
    """All intrinsics by name: of this package, and of users."""
    return _provided() | _REGISTERED


@cache
def _provided() -> dict[str, TensorIntrin]:
    """The intrinsics of this package, parsed on first use."""
    from . import cpu, cuda

    return {name: TensorIntrin(name, *both) for name, both in (cpu.INTRINSICS | cuda.INTRINSICS).items()}


@lru_cache(256)
def _difference(intrinsic: TensorIntrin) -> str | None:
    for seed in range(3):
        rng = np.random.default_rng(seed)
        old = [_random_values(p, rng) for p in intrinsic.desc.buffers]
        new = [a.copy() for a in old]
        run(intrinsic.desc, *old, seed=seed)
        run(intrinsic.impl, *new, seed=seed)
        for p, x, y in zip(intrinsic.desc.buffers, old, new, strict=True):
            wrong = np.argwhere(x != y)
            if len(wrong):
                at = ", ".join(map(str, wrong[0])) or "()"
                return (
                    f"`{p.name}[{at}]` is {x[tuple(wrong[0])]} by its description and {y[tuple(wrong[0])]} by its implementation"
                )
    return None


def _random_values(p: Buffer, rng: np.random.Generator) -> np.ndarray:
    low = 0 if p.dtype.startswith("uint") or p.dtype == "bool" else -3
    values = np.asarray(rng.integers(low, 2 if p.dtype == "bool" else 4, const_shape(p)))
    return from_float(values, p.dtype)


def _parameter_list(func: PrimFunc) -> str:
    return ", ".join(f"{p.name}: {p.dtype}{list(const_shape(p))}" for p in func.buffers)
