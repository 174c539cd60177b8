"""The command line that calibrates: `python -m tir.calibrate` measures the cycles of cache lines on this machine.

They are printed beside those of the processor's description, and kept for later targets.

Exit status 0 on success, 1 where the machine is too busy, or the record cannot be written, 2 for bad usage.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from codegen.calibration import Calibration, CalibrationError, calibrate, keep_calibration
from schedule.machine import CACHE_LINE_BYTES, Memory, memory_of
from tir.display import aligned_columns

from .options import Parser
from .process import guarded

LEVELS = ("L2", "L3", "memory")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status."""
    p = Parser(prog="python -m tir.calibrate", description="Measure the cycles of a cache line.", allow_abbrev=False)
    p.add_argument("--dry-run", action="store_true", help="print, and keep nothing")
    return guarded(p.prog, lambda: _run(p.parse_args(argv).dry_run))


def _run(dry: bool) -> int:
    from codegen import Target, machine_record

    try:
        found = calibrate(keep=False)
    except CalibrationError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    target = Target("llvm")
    print(table(found, memory_of(target.mcpu), target.mcpu))
    held = f"L3 holds {found.memory.l3 >> 20} MiB of {target.l3 >> 20}; most is read of {found.memory.streams} rows at once"
    print(f"\n{held}\nTarget option: -memory {found.memory}")
    if not dry:
        try:
            keep_calibration(found)
        except (OSError, RuntimeError) as error:
            print(f"error: it cannot be kept: {error}; give targets the option instead", file=sys.stderr)
            return 1
        print(f"kept in {machine_record.path()}: every target of this machine and so many cores has it from now on")
    return 0


def table(found: Calibration, described: Memory, mcpu: str) -> str:
    """The measured cycles of a line, and GB a second, level by level, beside those of the processor's description."""
    lines = [["level", "read", "lines in order", "", f"as {mcpu}", "lines in rows", "", f"as {mcpu}"]]
    for n, level in enumerate(LEVELS):
        lines.append([level, f"{found.nbytes[n] / 2**20:.3g} MiB"])
        for measured, usual in ((found.memory.line[n], described.line[n]), (found.memory.row[n], described.row[n])):
            rate = CACHE_LINE_BYTES / measured / found.cycle_ns
            lines[-1] += [f"{measured:g} cycles", f"{rate:.3g} GB/s", f"{usual:g}"]
    return aligned_columns(lines)
