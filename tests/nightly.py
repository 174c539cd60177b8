"""All random and long tests, one after the other: `make nightly`; a sample of each, as CI runs: `python -m tests.nightly --sample`.

Each net (a fuzzer, ONNX's node tests, runs that are killed) is run in chunks, each with the seed that follows, until its share of the
time is used up; of a sample there is one small chunk of each. The first seed follows the date's week, so that a failure can be run again
for a week, and the next week draws others. What fails is printed with its command.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date

CHUNK_SEEDS = 10_000  # seeds between two chunks, more than any chunk uses


@dataclass(frozen=True, slots=True)
class Net:
    """A command with `{seed}`, `{last}` and `{count}`; cases of a chunk, in a night and in a sample; its share of a night."""

    name: str
    command: str
    count: int
    sample: int
    share: float

    def words(self, seed: int, count: int) -> list[str]:
        return self.command.format(seed=seed, last=seed + count, count=count).split()


NETS = (
    Net("schedules", "tests.schedule.fuzz --jobs 2 --programs {count} --seed {seed}", 500, 24, 0.25),
    Net("code generation", "tests.codegen.fuzz --seeds {seed}:{last}", 200, 12, 0.2),
    Net("networks", "tests.graph.fuzz --jobs 2 --graphs {count} --seed {seed}", 200, 8, 0.2),
    Net("CUDA kernels", "tests.codegen.cuda.random_schedules --count {count} --seed {seed}", 50, 4, 0.08),
    Net("ONNX's node tests", "tests.graph.conformance --jobs 2 --count {count} --seed {seed}", 0, 60, 0.0),
    Net("killed runs", "tests.search.faults --kills {count} --seed {seed}", 10, 1, 0.07),
    Net("mutants", "tests.mutants --jobs 2 --count {count} --seed {seed}", 60, 0, 0.1),
    Net("a farm", "tests.search.farm --kills {count} --seed {seed}", 10, 0, 0.1),
)


@dataclass(frozen=True, slots=True)
class Tally:
    """Chunks of a net that passed, the commands of those that failed, and the seconds they took."""

    passed: int
    failed: tuple[str, ...]
    seconds: float


def run(net: Net, first: int, seconds: float, sample: bool) -> Tally:
    """Run a net's chunks until `seconds` are used up, one of them at least; what a failed one printed is printed."""
    start, passed, failed, seed = time.monotonic(), 0, [], first
    count = net.sample if sample else net.count
    while True:
        command = [sys.executable, "-m", *net.words(seed, count)]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode == 0:
            passed += 1
        else:
            failed.append(f"python -m {' '.join(command[2:])}")
            print(f"FAILED {failed[-1]}\n{done.stdout}", flush=True)
        seed += CHUNK_SEEDS
        if sample or time.monotonic() - start >= seconds:
            return Tally(passed, tuple(failed), time.monotonic() - start)


def week_seed(day: date) -> int:
    """The first seed of a date's week: weeks, and the chunks of one, use others."""
    year, week, _ = day.isocalendar()
    return (year % 100 * 53 + week) * CHUNK_SEEDS * 100


def main(arguments: Sequence[str] | None = None, nets: Sequence[Net] = NETS) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.nightly", description=__doc__)
    parser.add_argument("--minutes", type=float, default=80.0, help="of all nets together; the last chunks may take some more")
    parser.add_argument("--seed", type=int, default=week_seed(date.today()), help="of the first chunks (the date's week)")
    parser.add_argument("--sample", action="store_true", help="one small chunk of each net")
    options = parser.parse_args(arguments)
    passed = failed = 0
    for net in nets:
        if options.sample and not net.sample:
            continue
        tally = run(net, options.seed, net.share * options.minutes * 60, options.sample)
        passed, failed = passed + tally.passed, failed + len(tally.failed)
        print(f"{net.name:18} {tally.passed} passed, {len(tally.failed)} failed, {tally.seconds:.0f} s", flush=True)
    print(f"seed {options.seed}\n{passed} passed, {failed} failed")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
