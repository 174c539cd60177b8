"""Building kernels: lower, emit, compile."""

from __future__ import annotations

from tir.ir import PrimFunc

from .kernel import Kernel
from .passes import lower, pass_names
from .target import Target


def build(func: PrimFunc, target: str | Target = "llvm") -> Kernel:
    """Compile exactly the program given, for `target`. Raises CodegenError for what the backend cannot compile."""
    target = Target(target)
    if not isinstance(func, PrimFunc):
        what = " (a Schedule's program is its .func)" if hasattr(func, "func") else ""
        raise TypeError(f"build takes a PrimFunc, got {type(func).__name__}{what}")
    if target.kind != "llvm":
        raise ValueError(f"build: target kind {target.kind!r} has no backend yet; use 'llvm'")
    from .llvm.compile import object_code
    from .llvm.emit import emit

    lowered = lower(func, target)
    text = emit(lowered, target)
    return Kernel(func, lowered, target, text, object_code(text, target))


def dump(func: PrimFunc, target: str | Target = "llvm", after: str | None = None) -> str:
    """The script after each lowering pass, or only after the one called `after`."""
    target = Target(target)
    if after is not None:
        return lower(func, target, after=after).script()
    parts: list[str] = []
    lower(func, target, observe=lambda name, f: parts.append(f"# --- after {name} ---\n{f.script()}"))
    return "\n".join(parts)


__all__ = ["build", "dump", "pass_names"]
