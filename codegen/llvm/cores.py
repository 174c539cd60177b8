"""Cores for the threads of a parallel loop: a thread on the core of its caller moves away.

The system may wake a thread on its caller's core though others are idle. Linux does so on virtual machines, where it takes an
idle core for one that the host has taken away. The two then alternate, and each waits out the other's spinning, for some
milliseconds. So each thread compares cores as it begins, which takes some nanoseconds. One on the caller's core removes it from
its affinity, by which the system moves it at once, and then restores the affinity: the threads of the OpenMP runtime belong to
the whole process. A thread stays if its cores are too few for all, or the environment binds it to one (OMP_PROC_BIND).

Exported kernels move no threads; nor do those built for a target with `move_threads=0`.
"""

from __future__ import annotations

import sys

AVAILABLE = sys.platform == "linux"  # where the affinity of threads can be set in this way
WORDS = 16  # words of 64 bits in a set of cores, as in the C library
NAME = "tir.part"

DECLARATIONS = (
    "declare i32 @sched_getcpu()",
    "declare i64 @pthread_self()",
    "declare i32 @sched_getaffinity(i32, i64, ptr)",
    "declare i32 @sched_setaffinity(i32, i64, ptr)",
    f"declare <{WORDS} x i64> @llvm.ctpop.v{WORDS}i64(<{WORDS} x i64>)",
    f"declare i64 @llvm.vector.reduce.add.v{WORDS}i64(<{WORDS} x i64>)",
)


def definition() -> str:
    """`@tir.part(i64 core, i64 caller, i64 threads)` moves the calling thread off that core, unless it is the loop's caller."""
    cores = f"<{WORDS} x i64>"
    return f"""
define internal void @{NAME}(i64 %core, i64 %caller, i64 %threads) cold noinline nounwind {{
entry:
  %set = alloca {cores}, align 8
  %others = alloca {cores}, align 8
  %self = call i64 @pthread_self()
  %other = icmp ne i64 %self, %caller
  %known = icmp ult i64 %core, {64 * WORDS}
  %go = and i1 %other, %known
  br i1 %go, label %ask, label %done
ask:
  %failed = call i32 @sched_getaffinity(i32 0, i64 {8 * WORDS}, ptr %set)
  %answered = icmp eq i32 %failed, 0
  br i1 %answered, label %count, label %done
count:
  %allowed = load {cores}, ptr %set, align 8
  %counts = call {cores} @llvm.ctpop.v{WORDS}i64({cores} %allowed)
  %number = call i64 @llvm.vector.reduce.add.v{WORDS}i64({cores} %counts)
  %enough = icmp uge i64 %number, %threads
  br i1 %enough, label %move, label %done
move:
  store {cores} %allowed, ptr %others, align 8
  %word = lshr i64 %core, 6
  %place = getelementptr i64, ptr %others, i64 %word
  %bit = and i64 %core, 63
  %taken = shl i64 1, %bit
  %kept = xor i64 %taken, -1
  %old = load i64, ptr %place
  %new = and i64 %old, %kept
  store i64 %new, ptr %place
  %moved = call i32 @sched_setaffinity(i32 0, i64 {8 * WORDS}, ptr %others)
  %restored = call i32 @sched_setaffinity(i32 0, i64 {8 * WORDS}, ptr %set)
  br label %done
done:
  ret void
}}
""".strip()


def without_moving(text: str) -> str:
    """The LLVM IR of a module whose threads stay where the system puts them."""
    nothing = f"define internal void @{NAME}(i64 %core, i64 %caller, i64 %threads) alwaysinline nounwind {{\n  ret void\n}}"
    return text.replace(definition(), nothing)
