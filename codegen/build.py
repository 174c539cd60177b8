"""Building kernels: lower, emit, compile."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tir.ir import PrimFunc, need_func

from .cache import ObjectCache, object_key
from .kernel import Kernel
from .passes import lower, pass_names
from .target import Target

if TYPE_CHECKING:
    from .cuda import CudaKernel

TEXTS = ("llvm_ir", "asm")  # what `dump` can show behind the passes


def build(func: PrimFunc, target: str | Target = "llvm", *, cache: ObjectCache | None = None) -> Kernel | CudaKernel:
    """Compile exactly the program given, for `target`.

    Raises TypeError for what is no PrimFunc, ValueError for a target or an annotation that is not understood, and CodegenError
    (for cuda GPUError, or CompileError from NVRTC) for what the backend cannot compile.

    For cuda the result is a `codegen.cuda.CudaKernel`, which needs NVRTC, but no GPU until it is called.

    With `cache`, LLVM runs only where no build before had the same LLVM IR, target and LLVM.
    """
    func, target = _checked(func, target, "build")
    if target.kind == "cuda":
        from . import cuda

        return cuda.build(func, target)
    from .llvm.compile import object_code
    from .llvm.emit import emit

    lowered = lower(func, target)
    text = emit(lowered, target)
    code = None
    if cache is not None:
        key = object_key(text, target)
        code = cache.get(key)
    if code is None:
        code = object_code(text, target)
        if cache is not None:
            cache.put(key, code)
    return Kernel(func, lowered, target, text, code)


def stage_names() -> list[str]:
    """What `dump(after=...)` takes: the lowering passes in order, then `llvm_ir` and `asm`."""
    return [*pass_names(), *TEXTS]


def dump(func: PrimFunc, target: str | Target = "llvm", after: str | None = None) -> str:
    """The script after each lowering pass, or only what there is after one stage.

    `after` is the name of a pass, or `llvm_ir` (as it is emitted, before LLVM's own passes) or `asm`. Raises ValueError for a
    name that is not in `stage_names()`. For cuda there is one stage, `cuda`: the CUDA C.
    """
    func, target = _checked(func, target, "dump")
    if target.kind == "cuda":
        from . import cuda

        return cuda.dump(func, target, after)
    if after is None:
        parts: list[str] = []
        lower(func, target, observe=lambda name, f: parts.append(f"# --- after {name} ---\n{f.script()}"))
        return "\n".join(parts)
    if after not in stage_names():
        raise ValueError(f"dump: there is no stage {after!r}; the stages are {', '.join(stage_names())}")
    if after not in TEXTS:
        return lower(func, target, after=after).script()
    from .llvm.compile import assembly
    from .llvm.emit import emit

    text = emit(lower(func, target), target)
    return text if after == "llvm_ir" else assembly(text, target)


def _checked(func: PrimFunc, target: str | Target, caller: str) -> tuple[PrimFunc, Target]:
    target = Target(target)
    return need_func(func, caller), target


__all__ = ["build", "dump", "pass_names", "stage_names"]
