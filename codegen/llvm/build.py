"""What the backend offers of a scheduled function: a kernel, its LLVM IR, its assembly."""

from __future__ import annotations

from tir.ir import PrimFunc

from ..build import lower
from ..cache import ObjectCache, object_key
from ..constants import split_constants
from ..kernel import Kernel, SplitKernel
from ..target import Target
from .compile import assembly, object_code
from .emit import emit


def build(func: PrimFunc, target: Target, cache: ObjectCache | None) -> Kernel:
    """Compile a function, what it computes from constants alone as a function of its own."""
    preparation, main = split_constants(func)
    if preparation is None:
        return _compiled(func, target, cache)
    return SplitKernel(func, _compiled(preparation, target, cache), _compiled(main, target, cache))


def _compiled(func: PrimFunc, target: Target, cache: ObjectCache | None) -> Kernel:
    """Compile a function as it is, unless the cache has its object."""
    lowered = lower(func, target)
    text = emit(lowered, target)
    key = "" if cache is None else object_key(text, target)
    code = None if cache is None else cache.get(key)
    if code is None:
        code = object_code(text, target)
        if cache is not None:
            cache.put(key, code)
    return Kernel(func, lowered, target, text, code)


def llvm_ir(func: PrimFunc, target: Target) -> str:
    return emit(lower(func, target), target)


def asm(func: PrimFunc, target: Target) -> str:
    return assembly(llvm_ir(func, target), target)
