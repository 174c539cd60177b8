"""Features of symbolic sketches against those of the programs that their rows are, for random candidates of every sketch.

    python -m tests.search.agreement --rows 4 [--seed 0] [--workload gmm] [--space full]

Two features agree if they differ by at most 2^-13 (1 + |feature|), which is what rounding in another order makes of float32.

A line for each workload, shape and space says how many candidates agree, how many do not and in what, and how many variants have
no symbolic program (their rows are judged one by one, which is right but slow).
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from codegen.target import Target
from costmodel import NAMES, features, program
from schedule import ScheduleError, replay
from search.population.programs import sketch_programs
from search.population.sample import sample
from search.population.symbolic import symbolic
from search.space import SPACES, generate
from search.space.sketch import Sketch
from tests.search.population.candidates import SHAPES
from tir import workloads

TARGET = Target("llvm", num_cores=2, mcpu="x86-64-v4", l1=32768, l2=1 << 20, l3=1 << 25)
MACHINE = TARGET.machine
NONE = np.empty((1, 0), dtype=np.int64)


def disagreements(sketch: Sketch, rows: np.ndarray) -> Iterator[tuple[list[int], list[tuple[str, str]]]]:
    """For each row that can be scheduled, the features in which its symbolic program differs from it, each with its block.

    Both are float32 in a different order; the logarithm of a result of some dozen operations is off by that many times 2^-24
    times log2(e), and differences of larger numbers (as in the curve of intensity) by a few times as much.
    """
    for members, shared in sketch_programs(sketch).programs(rows):
        found = features(shared, rows[members], MACHINE)
        for n, row in enumerate(rows[members].tolist()):
            try:
                plain = program(replay(sketch.func, sketch.trace(row)).func)
            except ScheduleError:
                continue
            expected = features(plain, NONE, MACHINE)[:, 0]
            if found[:, n].shape != expected.shape:
                yield row, [("all", f"{len(found)} statements for {len(expected)}")]
                continue
            wrong = np.abs(found[:, n] - expected) > 2**-13 * (1 + np.abs(expected))
            yield row, [(shared.statements[s].block, NAMES[f]) for s, f in np.argwhere(wrong)]


def refused(sketch: Sketch, rows: np.ndarray) -> int:
    """How many of the variants among rows have no symbolic program."""
    count = 0
    for variant in np.unique(sketch.variants(rows), axis=0).tolist():
        try:
            symbolic(sketch, variant)
        except ScheduleError:
            count += 1
    return count


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare candidates and print where they differ; the exit status is 1 if any does."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=4, help="candidates a sketch")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workload", choices=tuple(SHAPES), help="only this one")
    parser.add_argument("--space", choices=tuple(SPACES), help="only this one")
    args = parser.parse_args(arguments)
    rng = np.random.default_rng(args.seed)
    bad = 0
    for name in [args.workload] if args.workload else SHAPES:
        for shape in (None, *SHAPES[name]):
            for space in [args.space] if args.space else SPACES:
                sketches = generate(workloads.make(name, shape).func, TARGET, space=space)
                compared = without = 0
                differing: list[tuple[str, list[int], list[tuple[str, str]]]] = []
                for sketch in sketches:
                    rows = sample(sketch, TARGET, args.rows if sketch.columns else 1, rng)
                    without += refused(sketch, rows)
                    for row, found in disagreements(sketch, rows):
                        compared += 1
                        if found:
                            differing.append((sketch.name, row, found))
                bad += len(differing)
                print(
                    f"{name} {shape or ''} {space}: {compared - len(differing)} of {compared} rows of {len(sketches)} sketches "
                    f"agree; {without} variants without a symbolic program",
                    flush=True,
                )
                if differing:
                    sketch_name, row, found = differing[0]
                    print(f"   {sketch_name} {row}:", *sorted(set(found))[:6])
                    print("   in all:", dict(Counter(feature for *_, found in differing for _, feature in set(found))))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
