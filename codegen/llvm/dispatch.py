"""A kernel for all sizes with variants for some, chosen in machine code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tir.constants import CONSTANTS
from tir.ir import Buffer, PrimFunc

from ..build import lower
from ..cache import ObjectCache
from ..runtime.kernel import Kernel
from ..target import Target
from .build import cached_code
from .compile import linked
from .emit import emit, symbol
from .scratch import RELEASE

Variant = tuple[Mapping[str, int], PrimFunc]  # sizes, and the program for them, without these parameters


def build_variants(func: PrimFunc, variants: Sequence[Variant], target: Target, cache: ObjectCache | None) -> Kernel:
    """The kernel of `func` that runs the variant of a call's sizes. Nothing is prepared from constants."""
    names = ["_".join([func.name, *(f"{k}{v}" for k, v in values.items())]) for values, _ in variants]
    general, *parts = (
        lower(f.with_(name=name, attrs=tuple(a for a in f.attrs if a[0] != CONSTANTS)), target)
        for name, f in zip((f"{func.name}_any", *names), (func, *(f for _, f in variants)), strict=True)
    )
    texts = [emit(f, target, numbers=False) for f in (general, *parts)]
    keeping = [symbol(f) for f, text in zip((general, *parts), texts, strict=True) if f"{RELEASE}()" in text]
    text = linked([_entry(func, general, [(v, f) for (v, _), f in zip(variants, parts, strict=True)], keeping), *texts])
    return Kernel(func, general, target, text, cached_code(text, target, cache))


def _entry(func: PrimFunc, general: PrimFunc, variants: Sequence[Variant], keeping: Sequence[str]) -> str:
    """The module of the function that calls a variant or the general one. `keeping` are the symbols that keep memory."""
    types = {p.name: "ptr" if isinstance(p, Buffer) else "i64" for p in func.params}

    def given(f: PrimFunc) -> str:
        return ", ".join(f"{types[p.name]} %p{n}" for n, p in enumerate(func.params) if p.name in {q.name for q in f.params})

    places = {p.name: f"%p{n}" for n, p in enumerate(func.params)}
    lines = [f"define i32 @{symbol(func)}({given(func)}) nounwind {{"]
    for n, (values, f) in enumerate(variants):
        found = "true"
        for k, (name, value) in enumerate(values.items()):
            lines += [f"  %is{n}.{k} = icmp eq i64 {places[name]}, {value}", f"  %all{n}.{k} = and i1 {found}, %is{n}.{k}"]
            found = f"%all{n}.{k}"
        lines += [f"  br i1 {found}, label %run{n}, label %next{n}", f"run{n}:"]
        lines += [f"  %status{n} = call i32 @{symbol(f)}({given(f)})", f"  ret i32 %status{n}", f"next{n}:"]
    lines += [f"  %status = call i32 @{symbol(general)}({given(general)})", "  ret i32 %status", "}"]
    if keeping:
        lines += [f"define void @{symbol(func)}{RELEASE}() nounwind {{"]
        lines += [*(f"  call void @{name}{RELEASE}()" for name in keeping), "  ret void", "}"]
    declared = {f: ", ".join(types[p.name] for p in f.params) for f in (general, *(f for _, f in variants))}
    heads = [f"declare i32 @{symbol(f)}({taken})" for f, taken in declared.items()]
    return "\n".join([*heads, *(f"declare void @{name}{RELEASE}()" for name in keeping), *lines]) + "\n"
