"""Loops over memory, compiled by numba once for a user's processor: the cache of objects keeps their code.

A process that finds the code there loads it without numba, whose import and preparation take two seconds.
"""

from __future__ import annotations

import ctypes
import inspect
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import numpy as np

from codegen import Target
from codegen.cache import object_key, users_cache
from codegen.llvm.compile import Library, object_code
from codegen.processor import host_processor

ENTRY = "entry"  # the name of the function in its object


def compiled(function: Callable[..., None], *parameters: str) -> Callable[..., None]:
    """A compiled function of arrays and integers; its code runs without the GIL.

    A parameter is `int64`, or the dtype of the elements of an array and `*`. An array is a pointer in `function`, which indexes
    it with one number. `function` returns nothing, raises nothing, and calls only functions that numba knows. Python's integers
    that it names are constants.
    """
    target = Target("llvm", mcpu=host_processor()[0])  # whatever the default is
    constants = {name: function.__globals__[name] for name in function.__code__.co_names if name in function.__globals__}
    numbers = {name: value for name, value in constants.items() if isinstance(value, int)}
    sources = [inspect.getsource(f) for f in (_module, function)]
    key = object_key(repr((version("numba"), sources, parameters, numbers)), target)
    cache = users_cache()
    code = None if cache is None else cache.get(key)
    if code is None:
        code = object_code(_module(function, parameters), target)
        if cache is not None:
            cache.put(key, code)
    library = Library([code], [ENTRY], target)
    types = [ctypes.c_void_p if p.endswith("*") else ctypes.c_int64 for p in parameters]
    entry = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, *types)(library.address(ENTRY))
    unused = ctypes.create_string_buffer(16)  # for what numba's functions return, and for their exception
    dtypes = [np.dtype(p[:-1]) if p.endswith("*") else None for p in parameters]

    def call(*arguments: Any, library: Library = library) -> None:  # which keeps the code
        for dtype, argument in zip(dtypes, arguments, strict=True):
            assert dtype is None or argument.dtype == dtype
        entry(unused, unused, *(a if dtype is None else a.ctypes.data for dtype, a in zip(dtypes, arguments, strict=True)))

    return call


def _module(function: Callable[..., None], parameters: tuple[str, ...]) -> str:
    """The LLVM IR of a function, named `ENTRY`."""
    import numba
    from numba import types

    njit: Any = numba.njit
    kinds = [types.CPointer(getattr(types, p[:-1])) if p.endswith("*") else getattr(types, p) for p in parameters]
    options = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True, "_nrt": False}  # for machine numbers and pointers
    (made,) = njit(types.void(*kinds), error_model="numpy", **options)(function).overloads.values()
    return made.library.get_llvm_str().replace(f"@{made.fndesc.llvm_func_name}(", f"@{ENTRY}(")
