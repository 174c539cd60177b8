"""Make a data set for cost models: `python -m benchmarks.dataset --out FILE` measures candidates of workloads at many shapes.

Each workload is measured at its default shape and at `--shapes` random ones. In these, sizes of at least MIN_VARIED shrink by a
random factor, to no less than a sixteenth; in about half, such sizes are odd. Each of `--policies` proposes an equal part of the
`--trials` candidates of a shape. `--records FILE` keeps the candidates, so that a second call measures only missing ones. The
data set has the features of each program's statements and its time, in seconds: `costmodel.dataset.Dataset`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from cli.options import Parser, count, parse_target, positive_int, refusing, seed, threads, writable
from cli.process import guarded, run_main

if TYPE_CHECKING:
    from codegen import Target
    from costmodel.dataset import Dataset
    from search.records import Records
    from search.task import Task
    from workloads import Workload

MIN_VARIED = 16  # smaller sizes are those of kernels, strides and the like
MAX_SHRINKING = 4.0  # log2 of the largest factor by which a size shrinks
MAX_DRAWS = 100  # draws of a random shape of a workload; only new and valid shapes count


def parser() -> argparse.ArgumentParser:
    p = Parser(prog="python -m benchmarks.dataset", description=(__doc__ or "").split("\n\n")[0], allow_abbrev=False)
    p.add_argument("--out", required=True, metavar="FILE", help="the data set, a .npz file")
    p.add_argument("--model", metavar="FILE", help="fit the trees of costmodel.pretrained to it, and write them")
    p.add_argument("--records", metavar="FILE", help="keep what is measured in FILE, and go on from there (default: FILE.db)")
    p.add_argument("--workloads", metavar="NAMES", help="separated by commas (default: all that python -m tir.tune --list shows)")
    p.add_argument("--shapes", type=count, default=2, metavar="N", help="shapes of a workload beside its own (default 2)")
    p.add_argument("--trials", type=positive_int, default=64, metavar="N", help="candidates of a shape (default 64)")
    p.add_argument(
        "--policies", default="random,evolution", metavar="NAMES", help="what proposes them (default random,evolution)"
    )
    p.add_argument("--threads", type=threads, metavar="N", help="threads that a kernel uses (default: the target's)")
    p.add_argument("--seed", type=seed, default=0, metavar="N", help="of shapes and candidates (default 0)")
    return p


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, write the file, and return the exit status."""
    p = parser()
    return guarded(p.prog, lambda: _run(p.parse_args(argv)))


def _run(args: argparse.Namespace) -> int:
    import workloads
    from search.records import Records
    from search.tuning.options import check_names

    names = args.workloads.split(",") if args.workloads else workloads.names()
    with refusing("--workloads"):
        chosen = [workloads.get(name) for name in names]
    for policy in args.policies.split(","):
        with refusing("--policies"):
            check_names(policy=policy)
            if policy == "plan":
                raise ValueError("the policy plan makes schedules without sketches, which a data set has no rows of")
    out, target = writable("--out", args.out), parse_target("llvm", args.threads)
    with Records(args.records or f"{args.out}.db") as records:
        for workload in chosen:
            for shape in shapes(workload, args.shapes, np.random.default_rng(args.seed)):
                task = _measured(workload, shape, target, records, args)
                known = len(records.of(task.key, task.target))
                print(f"{workload.name} {','.join(map(str, shape))}: {known} candidates", file=sys.stderr)
        data = dataset(records, target)
    data.save(out)
    if args.model is not None:
        from costmodel.pretrained import save, train

        save(train(data, target.machine), writable("--model", args.model))
    print(f"{len(data)} programs of {len(data.tasks)} tasks: {args.out}")
    return 0


def shapes(workload: Workload, others: int, rng: np.random.Generator) -> Iterator[tuple[int, ...]]:
    """The default shape of a workload, and at most `others` random shapes."""
    found = {workload.default}
    yield workload.default
    for _ in range(MAX_DRAWS):
        if len(found) > others:
            return
        factors = 2.0 ** -(MAX_SHRINKING * rng.random(len(workload.default)))
        odd = rng.random() < 0.5
        drawn = tuple(
            size if size < MIN_VARIED else max(1, round(size * f)) | int(odd)
            for size, f in zip(workload.default, factors.tolist(), strict=True)
        )
        try:
            shape = workload.sizes(drawn)
        except ValueError:
            continue
        if shape not in found:
            found.add(shape)
            yield shape


def _measured(workload: Workload, shape: tuple[int, ...], target: Target, records: Records, args: argparse.Namespace) -> Task:
    """The task of a shape, once its missing candidates are measured."""
    from search.measure import Limits
    from search.measure.reference import NamedWorkload
    from search.task import Task
    from search.tuning.autotune import autotune
    from search.tuning.result import NothingFound

    named = NamedWorkload(workload.name, shape)
    task = Task.of(named.instance().func, target, workload=named)
    policies, limits = args.policies.split(","), Limits(baseline=2.0, min_seconds=0.05, race=0.05)
    for n, policy in enumerate(policies):
        missing = (n + 1) * args.trials // len(policies) - len(records.of(task.key, task.target))
        if missing > 0:
            try:
                found = autotune(
                    task.func, target, missing, records=records, seed=args.seed, first=(), workload=named,
                    policy=policy, model="none" if policy == "random" else None, limits=limits,
                )  # fmt: skip
                if found.interrupted:
                    raise KeyboardInterrupt
            except NothingFound as error:
                print(f"{workload.name}: {error}", file=sys.stderr)
    return task


def dataset(records: Records, target: Target) -> Dataset:
    """The data set of the records of a target: rows of sketches that still exist."""
    from costmodel import GBDTModel
    from search.policy.warm_start import by_sketch
    from search.population.programs import sketch_programs
    from search.space import generate
    from search.task import target_text

    model = GBDTModel(target.machine)
    for summary in records.summaries():
        measured = [r.measurement for r in records.of(summary.workload, target_text(target))]
        func = records.func(summary.workload)
        for sketch, rows, seconds in by_sketch(measured, generate(func, target)):
            model.update(sketch_programs(sketch), rows, seconds)
    return model.data


if __name__ == "__main__":
    run_main("benchmarks.dataset")
