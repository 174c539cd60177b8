"""`python -m tir.tune FILE.py:NAME --sizes n=1,128`: tuning of a function with open sizes, at each of the given sizes."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING, Any

from codegen.runtime.timing import duration
from tir.display import aligned_columns

from ..options import Usage, input_shape, measurable, parse_target, positive_int, refusing
from .arguments import parts, searching
from .program import is_file, open_function
from .progress import Display

if TYPE_CHECKING:
    from search.task import Task
    from search.tuning.sizes import SizesResult


def tune(args: argparse.Namespace, options: dict[str, Any]) -> int:
    """Search, show each new best, and print the best time at each size; returns the exit status."""
    if not is_file(args.words[0]):
        raise Usage(
            f"--sizes goes with FILE.py:NAME, a function whose sizes are open; those of {args.words[0]} are given by --shape"
        )
    with refusing("--sizes", argparse.ArgumentTypeError):
        named = dict(input_shape(text, "a size and its values", positive_int) for text in args.sizes)
    func, target = open_function(args.words[0], args.shape), parse_target(args.target or "llvm", args.threads)
    if "measurer" not in options:
        measurable(target)

    from search.keys import key
    from search.sizes import combinations
    from search.tuning.sizes import tune_sizes
    from tir.specialize import specialize

    with refusing("--sizes"):
        labels = {key(specialize(func, row)): _label(row) for row in combinations(func, named)}
    chosen = parts(args, "policy", "model", "space")
    with searching(args, options, lambda trials, seconds: _Bests(labels), trials=64) as own:
        found = tune_sizes(func, target, named, **own, **chosen)
    return _print(found, args)


def _label(row: Any) -> str:
    return ", ".join(f"{name} = {value}" for name, value in row.items())


class _Bests(Display):
    """A callback that prints a line for each new best."""

    def __init__(self, labels: dict[str, str]):
        super().__init__(sys.stderr)
        self._labels = labels

    def __call__(self, task: Task, event: Any) -> None:
        from search.tuning.events import NewBest

        if isinstance(event, NewBest):
            self.line(f"{self._labels[task.key]}: {duration(event.measurement.seconds, 3)}")


def _print(found: SizesResult, args: argparse.Namespace) -> int:
    """Print the table, and with --json the object; returns the exit status."""
    rows = [("", "trials", "as written", "best")]
    for row, r in zip(found.sizes, found.results, strict=True):
        baseline = "-" if r is None or r.baseline is None else duration(r.baseline, 3)
        rows.append((_label(row), str(r.trials if r else 0), baseline, duration(r.seconds, 3) if r else "nothing valid"))
    print(aligned_columns(rows), file=sys.stderr if args.json else sys.stdout)
    for problem in dict.fromkeys(p for p in found.tasks.problems if p):
        print(f"warning: {problem}", file=sys.stderr)
    if args.json:
        each = [{"size": dict(row), "best": r and r.seconds} for row, r in zip(found.sizes, found.results, strict=True)]
        head = {"workload": args.words[0], "target": str(found.target), "trials": found.tasks.trials}
        print(json.dumps({**head, "sizes": each, "elapsed": found.tasks.elapsed}))
    if found.tasks.interrupted:
        return 130
    return 0 if all(found.results) else 1
