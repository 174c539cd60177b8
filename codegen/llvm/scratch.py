"""The memory of temporaries: limits of the stack, and heap blocks that a kernel reuses in its next call.

The system clears each page of new memory at its first access, which takes longer than a kernel's work on it. So a function with
large temporaries takes a block that an earlier call has returned, else a new one. Each call and each thread of a parallel loop
has its own block.
"""

from __future__ import annotations

from ..runtime.alignment import HUGE_PAGE_BYTES

MAX_STACK_BUFFER_BYTES = 32 * 1024  # bytes; larger temporaries come from the heap
MAX_STACK_BYTES = 256 * 1024  # bytes of temporaries on the stack of one function; threads may have little
MIN_KEPT_BYTES = 1 << 20  # bytes: smaller blocks come from malloc at each call, which keeps them itself
MAX_BYTES = 1 << 62  # bytes; no allocation of so many succeeds, so they stand for any larger number, which might wrap around
MADV_HUGEPAGE = 14  # Linux's advice to use large pages (asm-generic/mman-common.h)
RELEASE = ".release"  # suffix to the name of a function that keeps blocks, for the one that frees them


def definitions(linux: bool) -> str:
    """`ptr @tir.take(slots, n, bytes, alignment)`, null without memory, and `@tir.give(slots, n, block)`."""
    advice = f"""
  %large = icmp uge i64 %alignment, {HUGE_PAGE_BYTES}
  br i1 %large, label %advise, label %done
advise:
  %ignored = call i32 @madvise(ptr %new, i64 %size, i32 {MADV_HUGEPAGE})
  br label %done"""
    return f"""
define internal ptr @tir.take(ptr %slots, i64 %count, i64 %size, i64 %alignment) noinline nounwind {{
entry:
  br label %try
try:
  %i = phi i64 [ 0, %entry ], [ %next, %further ]
  %slot = getelementptr ptr, ptr %slots, i64 %i
  %kept = atomicrmw xchg ptr %slot, ptr null acquire
  %found = icmp ne ptr %kept, null
  br i1 %found, label %reuse, label %further
further:
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %count
  br i1 %more, label %try, label %allocate
reuse:
  ret ptr %kept
allocate:
  %new = call ptr @aligned_alloc(i64 %alignment, i64 %size)
  %failed = icmp eq ptr %new, null
  br i1 %failed, label %done, label %got
got:{advice if linux else chr(10) + "  br label %done"}
done:
  ret ptr %new
}}

define internal void @tir.give(ptr %slots, i64 %count, ptr %block) noinline nounwind {{
entry:
  br label %try
try:
  %i = phi i64 [ 0, %entry ], [ %next, %further ]
  %slot = getelementptr ptr, ptr %slots, i64 %i
  %pair = cmpxchg ptr %slot, ptr null, ptr %block release monotonic
  %free = extractvalue {{ ptr, i1 }} %pair, 1
  br i1 %free, label %done, label %further
further:
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %count
  br i1 %more, label %try, label %surplus
surplus:
  call void @free(ptr %block)
  br label %done
done:
  ret void
}}
""".strip()


def release(name: str, slots: list[tuple[str, int]]) -> str:
    """The function that frees the blocks in all slots of the function `name`."""
    lines: list[str] = []
    for group, count in slots:
        for n in range(count):
            value = f"%block.{len(lines)}"
            lines += [
                f"{value} = atomicrmw xchg ptr getelementptr (ptr, ptr {group}, i64 {n}), ptr null acquire",
                f"call void @free(ptr {value})",
            ]
    return "\n  ".join([f"define void @{name}{RELEASE}() nounwind {{", *lines, "ret void"]) + "\n}"
