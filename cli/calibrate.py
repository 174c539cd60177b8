"""The command line that calibrates: `python -m tir.calibrate` shows this machine, and measures the cycles of its cache lines.

Processor, caches, peak and bandwidth are printed first. The measured cycles are printed beside those that are described for this
kind of processor, and kept for later targets.

Exit status 0 on success, 1 where the machine is too busy, or the record cannot be written, 2 for bad usage.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from codegen.calibration import Calibration, CalibrationError, calibrate, keep_calibration
from codegen.peak import copy_bandwidth, peak_flops
from codegen.processor import host_name
from schedule.machine import CACHE_LINE_BYTES, Memory, memory_of
from tir.display import aligned_columns, count_text

from .options import Parser
from .process import guarded

if TYPE_CHECKING:
    from codegen import Target

LEVELS = ("L2", "L3", "memory")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status."""
    about = "Show this machine, and measure the cycles of its cache lines."
    p = Parser(prog="python -m tir.calibrate", description=about, allow_abbrev=False)
    p.add_argument("--dry-run", action="store_true", help="print, and keep nothing")
    return guarded(p.prog, lambda: _run(p.parse_args(argv).dry_run))


def _run(dry: bool) -> int:
    from codegen import Target, machine_record

    target = Target("llvm")
    print(machine(target), flush=True)
    try:
        found = calibrate(keep=False)
    except CalibrationError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(table(found, memory_of(target.mcpu), target.mcpu))
    memory = found.memory
    held = f"L3 holds {memory.l3 >> 20} MiB of {target.l3 >> 20}; reading is fastest from {memory.streams} rows at once"
    microseconds = [f"{cycles * found.cycle_ns / 1e3:.3g}" for cycles in (memory.fork, memory.wake)]
    forks = f"a parallel loop takes {microseconds[0]} us for each doubling of its threads, {microseconds[1]} if they sleep"
    print(f"\n{held}\n{forks}\nTarget option: -memory {memory}")
    if not dry:
        try:
            keep_calibration(found)
        except (OSError, RuntimeError) as error:
            print(f"error: the calibration cannot be kept: {error}; give targets the option above instead", file=sys.stderr)
            return 1
        print(f"kept in {machine_record.path()}: later targets of {count_text(target.num_cores, 'core')} here use it")
    return 0


def machine(target: Target) -> str:
    """The processor with its vectors and caches, its measured peak on one thread and on all, and the bandwidth of copies."""
    threads = dict.fromkeys((1, target.num_cores))
    peaks = [f"{peak_flops(target, threads=n) / 1e9:.3g} GFLOP/s on {count_text(n, 'thread')}" for n in threads]
    caches = [f"{name} {size >> 10:,} KiB" for name, size in (("L1", target.l1), ("L2", target.l2), ("L3", target.l3))]
    rows = [
        ["processor", f"{host_name()} ({target.mcpu}), {count_text(target.num_cores, 'core')}"],
        ["vectors", f"{target.vector_bits} bits, {target.registers} registers"],
        ["caches", ", ".join(caches)],
        ["peak", f"{', '.join(peaks)}, in float32"],
        ["memory", f"{copy_bandwidth(target) / 1e9:.3g} GB/s, read and written in copies"],
    ]
    return "\n".join(f"{name:10} {value}" for name, value in rows) + "\n"


def table(found: Calibration, described: Memory, mcpu: str) -> str:
    """The measured cycles of a line, and GB a second, level by level, beside those of the processor's description."""
    lines = [["level", "read", "lines in order", "", f"as {mcpu}", "lines in rows", "", f"as {mcpu}"]]
    for n, level in enumerate(LEVELS):
        lines.append([level, f"{found.nbytes[n] / 2**20:.3g} MiB"])
        for measured, usual in ((found.memory.line[n], described.line[n]), (found.memory.row[n], described.row[n])):
            rate = CACHE_LINE_BYTES / measured / found.cycle_ns
            lines[-1] += [f"{measured:g} cycles", f"{rate:.3g} GB/s", f"{usual:g}"]
    return aligned_columns(lines)
