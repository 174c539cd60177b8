"""Lowering by the passes of a backend, and building kernels."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, overload

from schedule.schedule import Schedule
from tir.arith.width import TooWide, check_width
from tir.empty import without_empty
from tir.ir import PrimFunc, need_func, with_deep_recursion
from tir.traverse import foreign_calls, make_room_for
from tir.verify.bounds import refuse_out_of_bounds

from .backend import backend
from .cache import ObjectCache
from .target import Target

if TYPE_CHECKING:
    from .cuda import CudaKernel
    from .runtime.kernel import Kernel


@overload
def build(
    func: Mapping[str, PrimFunc], target: str | Target = "llvm", *, cache: ObjectCache | None = None, checked: bool = True
) -> Any: ...


@overload
def build(
    func: PrimFunc | Schedule, target: str | Target = "llvm", *, cache: ObjectCache | None = None, checked: bool = True
) -> Kernel | CudaKernel: ...


def build(
    func: PrimFunc | Schedule | Mapping[str, PrimFunc],
    target: str | Target = "llvm",
    *,
    cache: ObjectCache | None = None,
    checked: bool = True,
) -> Any:
    """Compile exactly the given program, a function or the current one of a schedule, for `target`.

    A module of one function gives its kernel, a module of several a dict of kernels by name.

    Raises TypeError for any other program, ValueError for an invalid target or annotation, and VerifyError for an access outside
    of its buffer. Raises CodegenError (for cuda GPUError, or CompileError from NVRTC) where the backend cannot compile it.

    Accesses are proved, or tested in every iteration, to be in bounds. Where they depend on a call's sizes or array elements, as
    `A[index[i]]`, the caller keeps them in bounds. `checked=False` omits the check: a call may then read or write anything, or
    end the process.

    For cuda the result is a `codegen.cuda.CudaKernel`, which needs NVRTC, but no GPU until it is called.

    With `cache`, LLVM runs only if no earlier build had the same LLVM IR, target and LLVM.
    """
    target = Target(target)
    if isinstance(func, Mapping) and len(func) > 1:
        return {name: build(f, target, cache=cache, checked=checked) for name, f in func.items()}
    func = _program(func, "build")
    if not isinstance(cache, (ObjectCache, type(None))):
        raise TypeError(f"build: the cache is an ObjectCache or None, got {cache!r}")
    if checked:
        refuse_out_of_bounds(func)
    return with_deep_recursion(lambda: backend(target).build(func, target, cache))


def pass_names(target: str | Target = "llvm") -> list[str]:
    """The names of the passes of a target; the second run of one is called `name_2`."""
    return backend(Target(target)).pass_names()


def stage_names(target: str | Target = "llvm") -> list[str]:
    """The stages that `dump(after=...)` takes: the lowering passes in order, then `llvm_ir` and `asm`, or `cuda`, the CUDA C."""
    return [*pass_names(target), *backend(Target(target)).texts]


def lower(
    func: PrimFunc, target: str | Target, after: str | None = None, observe: Callable[[str, PrimFunc], None] | None = None
) -> PrimFunc:
    """The function after all passes, or after the one called `after`; `observe(name, func)` sees each result. Loops without
    iterations are removed first.

    Raises ValueError for a name that is not in `pass_names(target)`, a foreign call, or indices of more than 64 bits. Raises
    GPUError for a schedule that a GPU does not support.
    """
    target = Target(target)
    found = backend(target)
    known = found.pass_names()
    if after is not None and after not in known:
        raise ValueError(f"pass {after!r} does not exist; the passes are {', '.join(known)}")
    for s in foreign_calls(func.body):
        raise ValueError(f"{func.name}: `T.{s.call.op}` is a foreign call, which cannot be compiled")
    func = without_empty(func)
    for name, run in zip(known, found.passes, strict=True):
        func = run(func, target)
        if observe is not None:
            observe(name, func)
        if name == after:
            return func
    try:
        check_width(func.body, {})
    except TooWide as error:
        raise ValueError(f"{func.name}: {error}") from None
    return func


def dump(func: PrimFunc | Schedule, target: str | Target = "llvm", after: str | None = None) -> str:
    """The text of a function after one stage; by default the script after each lowering pass, and for cuda the CUDA C.

    `after` is the name of a pass, or `llvm_ir` (as it is emitted, before LLVM's own passes), `asm` or `cuda`. Raises ValueError
    for a name that is not in `stage_names(target)`.
    """
    target = Target(target)
    func = _program(func, "dump")
    found = backend(target)
    if not isinstance(after, (str, type(None))):
        raise TypeError(f"dump: a stage is given by name, got {after!r}")
    after = after or found.shown
    if after is None:
        parts: list[str] = []
        lower(func, target, observe=lambda name, f: parts.append(f"# --- after {name} ---\n{f.script()}"))
        return "\n".join(parts)
    if after in found.texts:
        return found.texts[after](func, target)
    if after not in (known := stage_names(target)):
        raise ValueError(f"dump: stage {after!r} does not exist for {found.kind}; the stages are {', '.join(known)}")
    return lower(func, target, after=after).script()


def _program(value: PrimFunc | Schedule | Mapping[str, PrimFunc], caller: str) -> PrimFunc:
    return make_room_for(value.func if isinstance(value, Schedule) else need_func(value, caller))
