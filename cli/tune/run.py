"""`python -m tir.tune WORKLOAD`: a tuning run, from the arguments to the printed table."""

from __future__ import annotations

import argparse
import sys
import time
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from ..options import Usage, measurable, parse_target, refusing, writable
from .arguments import parts, searching
from .program import parse_program, read_inputs
from .progress import LineProgress, LiveProgress, displayed
from .saved import Saver, reported, saved_to
from .table import as_json, describe, table

if TYPE_CHECKING:
    from codegen import Target
    from search.tuning.result import Result
    from tir.ir import PrimFunc

    from .program import Program


def tune(args: argparse.Namespace, options: dict[str, Any]) -> int:
    """Search, show the progress, and print the result; returns the exit status."""
    program = parse_program(args.words[0], args.shape)
    target = parse_target(args.target or "llvm", args.threads)
    if "builder" not in options and "measurer" not in options:
        measurable(target)
    if inputs := read_inputs(args.inputs, program.func):
        options = {**options, "inputs": inputs}
    header = describe(program, args.target or "llvm", target.num_cores)
    saver = None
    if args.out is not None:
        from search.measure.provenance import versions

        saver = Saver(writable("--out", args.out), {**header, "seed": args.seed, "versions": versions()})
    if args.report is not None:
        writable("--report", args.report)

    from search.measure import WorkerError
    from search.task import Task
    from search.tuning.autotune import NothingFound

    started = time.monotonic()

    def nothing(outcomes: dict[str, int] | None = None) -> int:
        if args.json:
            task = Task.of(program.func, target, workload=program.workload)
            print(as_json(header, task.flop, outcomes or {}, time.monotonic() - started))
        return 1

    try:
        result = _search(args, options, program, target, saver)
    except WorkerError as error:
        print(f"error: {error}", file=sys.stderr)
        return nothing()
    except NothingFound as error:
        hint = "\n  a longer --timeout lets slow candidates end" if "run_timeout" in error.reasons else ""
        print(f"error: {error}{hint}", file=sys.stderr)
        return nothing(error.outcomes)
    except KeyboardInterrupt:  # before the first result
        nothing()
        raise
    _print(result, args, options, header, saver)
    return 130 if result.interrupted else 0


def _search(args: argparse.Namespace, options: dict[str, Any], program: Program, target: Target, saver: Saver | None) -> Result:
    """The search, with its progress on standard error."""
    from schedule import ScheduleError
    from search.policy.named import make_policy
    from search.tuning.autotune import autotune
    from tir.verify import VerifyError

    named = parts(args, "policy", "model", "space", "rules")
    if given := parts(args, "mutations"):
        if named.pop("policy", "evolution") != "evolution":
            raise Usage(f"{', '.join(f'--{name}' for name in given)}: for --policy evolution alone")
        named = {"policy": partial(make_policy, **given, **named)}
    show = displayed(LiveProgress, LineProgress, args, options, target)
    with (
        refusing(f"{program.name} is not well formed", VerifyError),
        refusing(f"--space {args.space}", ScheduleError),  # of a user's space; errors of candidates become outcomes
        searching(args, options, lambda trials, seconds: show(), trials=64) as own,
    ):
        own["callbacks"][:0] = [] if saver is None else [saver]
        return autotune(program.func, target, workload=program.workload, **{**own, **named})


def _print(
    result: Result, args: argparse.Namespace, options: dict[str, Any], header: dict[str, Any], saver: Saver | None
) -> None:
    """Print the table and the program, and write the requested files."""
    report = sys.stderr if args.json else sys.stdout
    print(table(header, result), file=report)
    for problem in (result.problem, "" if saver is None else saver.problem):
        if problem:
            print(f"warning: {problem}", file=sys.stderr)
    if saver is not None and not saver.problem:
        print(saved_to(args.out, header["workload"]), file=report)
    show(result.task.func, result.trace, args, options)
    if args.json:
        times = {"unscheduled": result.baseline, "best": result.seconds, "numpy": result.numpy}
        errors = result.max_error, result.tolerance
        print(as_json(header, result.task.flop, result.outcomes, result.elapsed, times, errors, result.scored))
    if args.report is not None:
        from search.report import write

        reported(args.report, lambda: write(args.report, result), report)


def show(func: PrimFunc, trace: Any, args: argparse.Namespace, options: dict[str, Any]) -> None:
    """Print the program of a trace, as the builder in use makes it."""
    made = import_module(options.get("builder", "search.measure.builder")).schedule(func, trace)
    print(f"\n{made.script() if args.show else made.outline()}", file=sys.stderr if args.json else sys.stdout)
