"""annotate, unannotate: values attached to loops and blocks."""

from __future__ import annotations

from typing import Any

from tir.ir import Block, PrimFunc, annotated
from tir.nearest import did_you_mean

from ...annotation_values import refusal
from ...error import ScheduleError, listing
from ...primitive import LoopOrBlockName, named_at, path, primitive, replace_path


@primitive
def annotate(func: PrimFunc, block_or_loop: LoopOrBlockName, ann_key: str, ann_val: Any) -> tuple[PrimFunc, None]:
    """Attach a value (JSON data) to a block or loop under a key, in place of an earlier value.

    Keys that begin with "meta_schedule.", hints for a search, can be attached to "root", the function, too.

    Rewrite   for i in range(N): S   =>   for i in T.serial(N, annotations={"key": value}): S
    Legal     if the key is not empty, and the value valid for a key that code generation reads. The meaning of a program does
              not depend on annotations.
    Example   vector: s.annotate("i", "pragma_auto_unroll_max_step", 16)
    """
    if _is_hint(func, block_or_loop, ann_key):
        return func.with_(attrs=annotated(func.attrs, ann_key, ann_val)), None
    if block_or_loop == "root" and not path(func, Block, block_or_loop):
        raise ScheduleError('of the whole function, "root", only keys that begin with "meta_schedule." are annotated')
    target, above = named_at(func, block_or_loop)
    if not ann_key:
        raise ScheduleError("the key must not be empty", (target, "to annotate"))
    if reason := refusal(ann_key, ann_val):
        raise ScheduleError(reason, (target, "to annotate"))
    return replace_path(func, above, target.with_(annotations=annotated(target.annotations, ann_key, ann_val))), None


@primitive
def unannotate(func: PrimFunc, block_or_loop: LoopOrBlockName, ann_key: str) -> tuple[PrimFunc, None]:
    """Remove the annotation of a block or loop under a key.

    Rewrite   for i in T.serial(N, annotations={"key": value}): S   =>   for i in range(N): S
    Legal     if the block or loop has an annotation of this key.
    Example   vector: s.annotate("i", "note", 1); s.unannotate("i", "note")
    """
    if _is_hint(func, block_or_loop, ann_key) and any(k == ann_key for k, _ in func.attrs):
        return func.with_(attrs=tuple((k, v) for k, v in func.attrs if k != ann_key)), None
    target, above = named_at(func, block_or_loop)
    kept = tuple((k, v) for k, v in target.annotations if k != ann_key)
    if len(kept) == len(target.annotations):
        keys = listing(k for k, _ in target.annotations)
        raise ScheduleError(
            f"`{block_or_loop}` has no annotation {ann_key!r}; it has {keys}",
            (target, "not annotated with it"),
            hint=did_you_mean(ann_key, dict(target.annotations)),
        )
    return replace_path(func, above, target.with_(annotations=kept)), None


def _is_hint(func: PrimFunc, name: str, key: str) -> bool:
    """True for a search hint on the whole function, "root"."""
    return name == "root" and key.startswith("meta_schedule.") and not path(func, Block, name)
