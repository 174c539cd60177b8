"""`tir.jit`: a function of tensors that is called with arrays, and compiled for each new combination of shapes and dtypes."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np

from codegen import ObjectCache, Target, backend
from codegen.cache import users_cache
from tir.ir import PrimFunc
from tir.te import Tensor, create_prim_func, placeholder
from tir.te.tensors import Placeholder

from .compilation import compile_function
from .records import Records, opened

if TYPE_CHECKING:
    from codegen import Kernel
    from codegen.cuda import CudaKernel

MAX_KERNELS = 256  # of a function in memory, more shapes than a program takes in turn; the oldest one goes, but stays on disk

Specialization = tuple[Any, ...]  # of each argument the shape and dtype, or the value


class Jit:
    """A function in the vocabulary of `te`, compiled for the shapes and dtypes of the arrays in its calls.

    Array arguments become tensors of their shapes; others are passed unchanged, and a kernel is compiled for each of their
    values. `kernels` are the last MAX_KERNELS. A call returns an array, or a tuple of them, as the function does.
    """

    def __init__(
        self,
        function: Callable[..., Tensor | tuple[Tensor, ...]],
        target: str | Target | None = None,
        records: str | Path | Records | None = None,
        cache: ObjectCache | Literal["user"] | None = "user",
    ):
        functools.update_wrapper(self, function)
        self.function, self.target, self.records = function, Target("llvm" if target is None else target), records
        self.kernels: dict[Specialization, Kernel | CudaKernel] = {}
        self._array_type = backend(self.target).array_type
        self._cache: Any = cache
        self._compiling = RLock()
        self._signature = inspect.signature(function)

    def __call__(self, *args: Any, **named: Any) -> Any:
        out = named.pop("out", None) if "out" not in self._signature.parameters else None
        arguments, key = self._arguments(args, named)
        kernel = self.kernels.get(key)
        if kernel is None:
            kernel = self._compiled(arguments, key)
        arrays = [a for a, found in zip(arguments.values(), key, strict=True) if isinstance(found, _Array)]
        return kernel(*arrays) if out is None else kernel(*arrays, out=out)

    def __repr__(self) -> str:
        return f"<tir.jit {self.function.__name__}{self._signature} for {self.target}, {len(self.kernels)} kernel(s)>"

    def kernel(self, *args: Any, **named: Any) -> Kernel | CudaKernel:
        """The kernel that a call with these arguments runs."""
        arguments, key = self._arguments(args, named)
        return self.kernels.get(key) or self._compiled(arguments, key)

    def func(self, *args: Any, **named: Any) -> PrimFunc:
        """The function of the IR for these arguments, not yet scheduled."""
        return self._func(*self._arguments(args, named))

    def _arguments(self, args: tuple, named: dict[str, Any]) -> tuple[dict[str, Any], Specialization]:
        """The arguments by name, and the key of a kernel for them."""
        if not named and len(args) == len(self._signature.parameters):
            given = dict(zip(self._signature.parameters, args, strict=True))
        else:
            try:
                bound = self._signature.bind(*args, **named)
            except TypeError as error:
                raise TypeError(f"{self.function.__name__}{self._signature}: {error}") from None
            bound.apply_defaults()
            given = dict(bound.arguments)
        try:
            return given, tuple(self._described(name, value) for name, value in given.items())
        except TypeError as error:
            raise TypeError(f"{self.function.__name__}: {error}") from None

    def _described(self, name: str, value: Any) -> Any:
        """The shape and dtype of an array argument, else its value as a key. TypeError, with the expected kind, for any other."""
        try:
            if (found := self._array_type(value)) is not None:
                return _Array(found)
        except TypeError as error:
            raise TypeError(f"{name} {error}") from None
        key = _key(value)
        try:
            hash(key)
        except (TypeError, ValueError):
            kind = type(value).__name__
            raise TypeError(f"{name} must be an array, or a value that a kernel can be made for, got {kind}") from None
        return key

    def _func(self, arguments: dict[str, Any], key: Specialization) -> PrimFunc:
        name = self.function.__name__
        tensors = {
            n: placeholder(d[0], d[1], n) if isinstance(d, _Array) else arguments[n] for n, d in zip(arguments, key, strict=True)
        }
        made = self.function(**tensors)
        outputs = list(made) if isinstance(made, tuple | list) else [made]
        if not outputs or any(not isinstance(t, Tensor) or isinstance(t.op, Placeholder) for t in outputs):
            found = ", ".join(type(t).__name__ for t in outputs)
            raise TypeError(f"{name} must return a tensor that it computes, or a tuple of them, got {found or 'nothing'}")
        inputs = [t for t, d in zip(tensors.values(), key, strict=True) if isinstance(d, _Array)]
        return create_prim_func([*inputs, *outputs], name=name)

    def _compiled(self, arguments: dict[str, Any], key: Specialization) -> Kernel | CudaKernel:
        objects = users_cache() if self._cache == "user" else self._cache
        with self._compiling:
            if (known := self.kernels.get(key)) is not None:  # another thread was faster
                return known
            with opened(self.records) as records:
                kernel = compile_function(self._func(arguments, key), self.target, records, objects)
            if len(self.kernels) >= MAX_KERNELS:
                del self.kernels[next(iter(self.kernels))]
            self.kernels[key] = kernel
            return kernel


class _Array(tuple[tuple[int, ...], str]):
    """The shape and dtype of an array."""

    __slots__ = ()


def _key(value: Any) -> Any:
    """A key of a value, equal only for values that compute the same: 1, True and 1.0 differ, and so do 0.0 and -0.0."""
    if isinstance(value, (float, complex, np.generic)):
        return type(value), repr(value)
    return (tuple, *map(_key, value)) if type(value) is tuple else (type(value), value)


@overload
def jit(function: Callable[..., Any], /) -> Jit: ...
@overload
def jit(
    *,
    target: str | Target | None = None,
    records: str | Path | Records | None = None,
    cache: ObjectCache | Literal["user"] | None = "user",
) -> Callable[[Callable[..., Any]], Jit]: ...


def jit(function=None, /, *, target=None, records=None, cache="user"):
    """Decorator: a function of tensors, called with arrays (see `Jit`).

        @tir.jit
        def product(A, B):
            k = te.reduce_axis((0, A.shape[1]), name="k")
            return te.compute((A.shape[0], B.shape[1]), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k))

        c = product(a, b)

    Each combination of shapes and dtypes is compiled once, as by `tir.compile`, with its options `target`, `records` and `cache`.
    Arrays are those that kernels of the target take, and results are of the same library.
    """
    if function is None:
        return functools.partial(Jit, target=target, records=records, cache=cache)
    if not callable(function):
        raise TypeError(f"jit takes a function of tensors, got {function!r}")
    return Jit(function)
