"""Products of this backend for a scheduled function: a kernel, its LLVM IR, its assembly."""

from __future__ import annotations

from tir.ir import PrimFunc

from ..build import lower
from ..cache import ObjectCache, object_key
from ..constants import split_constants
from ..passes.lend_temporaries import lend_temporaries
from ..runtime.kernel import Kernel, SplitKernel
from ..target import Target
from .compile import assembly, object_code
from .emit import emit


def build(func: PrimFunc, target: Target, cache: ObjectCache | None, lent: bool = False) -> Kernel:
    """Compile a function. Its computations from constants alone become a second function (`split_constants`).

    With `lent`, the large temporaries of the main function become parameters of the lowered one (`lend_temporaries`). Such a
    kernel is called by a program, not with arrays.
    """
    preparation, main = split_constants(func)
    if preparation is None:
        return _compiled(func, target, cache, lent)
    return SplitKernel(func, _compiled(preparation, target, cache), _compiled(main, target, cache, lent))


def _compiled(func: PrimFunc, target: Target, cache: ObjectCache | None, lent: bool = False) -> Kernel:
    """Compile a function without splitting it, unless the cache has its object."""
    lowered = _lowered(func, target, lent)
    text = emit(lowered, target)
    return Kernel(func, lowered, target, text, cached_code(text, target, cache))


def cached_code(text: str, target: Target, cache: ObjectCache | None) -> bytes:
    """The object file of a module, compiled unless the cache has it."""
    if cache is None:
        return object_code(text, target)
    key = object_key(text, target)
    code = cache.get(key)
    if code is None:
        code = object_code(text, target)
        cache.put(key, code)
    return code


def _lowered(func: PrimFunc, target: Target, lent: bool) -> PrimFunc:
    lowered = lower(func, target)
    return lend_temporaries(lowered, target) if lent else lowered


def llvm_ir(func: PrimFunc, target: Target, lent: bool = False) -> str:
    """The LLVM IR of a function that is compiled without splitting it."""
    return emit(_lowered(func, target, lent), target)


def asm(func: PrimFunc, target: Target) -> str:
    return assembly(llvm_ir(func, target), target)
