"""`python -m tir.tune WORKLOAD`: a tuning run, from the words of the command line to the table at its end."""

from __future__ import annotations

import argparse
import os
import sys
import time
from contextlib import ExitStack
from importlib import import_module
from typing import TYPE_CHECKING, Any

from .arguments import Usage, measurable, parse_rules, parse_target, writable
from .program import parse_program
from .progress import LineProgress, LiveProgress
from .saved import Saver, versions
from .table import as_json, describe, table

if TYPE_CHECKING:
    from search.events import Callback
    from search.result import Result

    from ..ir import PrimFunc


def tune(args: argparse.Namespace, options: dict[str, Any]) -> int:
    """Search, show how it goes, and print what was found; the exit status."""
    program = parse_program(args.words[0], args.shape)
    target = parse_target(args.target or "llvm", args.threads)
    if "builder" not in options and "measurer" not in options:
        measurable(target)
    out = None if args.out is None else writable("--out", args.out)
    if args.report is not None:
        writable("--report", args.report)
        _check_report()

    from search.measure import Limits, WorkerError
    from search.records import Records, RecordsError
    from search.task import flop
    from search.tuner import NothingFound, autotune

    from ..verify import VerifyError

    trials = args.trials if args.trials is not None or args.seconds is not None else 64
    header = describe(program, args.target or "llvm", target.num_cores)
    report = sys.stderr if args.json else sys.stdout
    callbacks: list[Callback] = []
    saver = None
    if out is not None:
        saver = Saver(out, {**header, "seed": args.seed, "versions": versions()})
        callbacks.append(saver)
    named = {k: v for k in ("search", "model", "space") if (v := getattr(args, k)) is not None}
    if args.rules is not None:
        named["rules"] = parse_rules(args.rules)
    started = time.monotonic()

    def nothing(outcomes: dict[str, int]) -> str:
        count = flop(program.func) if program.workload is None else program.workload.instance().flop
        return as_json(header, outcomes, count, None, None, None, None, None, time.monotonic() - started)

    with ExitStack() as stack:
        records = None
        if args.records is not None:
            try:
                records = stack.enter_context(Records(args.records))
            except RecordsError as error:
                raise Usage(f"--records: {error}") from None
        if not args.quiet:
            progress = LiveProgress() if sys.stderr.isatty() and os.environ.get("TERM") != "dumb" else LineProgress(sys.stderr)
            stack.callback(progress.close)
            callbacks.append(progress)
        try:
            result = autotune(
                program.func,
                target,
                trials,
                args.seconds,
                records=records,
                seed=args.seed,
                callbacks=callbacks,
                limits=Limits(run=args.timeout),
                workload=program.workload,
                **{**options, **named},
            )
        except RecordsError as error:
            raise Usage(f"--records: {error}") from None
        except VerifyError as error:
            raise Usage(f"{program.name} is not well formed: {error}") from None
        except (NothingFound, WorkerError) as error:
            stack.close()
            print(f"error: {error}", file=sys.stderr)
            outcomes = error.outcomes if isinstance(error, NothingFound) else {}
            if "run_timeout" in getattr(error, "reasons", {}):
                print("  a longer --timeout lets slow candidates end", file=sys.stderr)
            if args.json:
                print(nothing(outcomes))
            return 1
        except KeyboardInterrupt:  # before there was anything to end with
            if args.json:
                print(nothing({}))
            raise

    print(table(header, result), file=report)
    if result.problem:
        print(f"warning: {result.problem}", file=sys.stderr)
    if saver is not None and saver.problem:
        print(f"warning: {saver.problem}", file=sys.stderr)
    elif saver is not None:
        print(f"saved to {out}; build it again with: python -m tir.tune --apply {out}", file=report)
    func = scheduled(result.task.func, result.trace, options)
    print(f"\n{func.script() if args.show else func.outline()}", file=report)
    if args.json:
        seconds = (result.baseline, result.seconds, result.numpy)
        errors = result.max_error, result.tolerance
        print(as_json(header, result.outcomes, result.task.flop, *seconds, *errors, result.elapsed, result.scored))
    if args.report is not None:
        _report(args.report, result, report)
    return 130 if result.interrupted else 0


def scheduled(func: PrimFunc, trace: Any, options: dict[str, Any]) -> PrimFunc:
    """The program that a trace makes, as the builder in use makes it."""
    return import_module(options.get("builder", "search.measure.builder")).schedule(func, trace)


def _check_report() -> None:
    """Usage if what draws the report is missing: better before the search than after it."""
    from search.report import available

    if not available():
        raise Usage("--report draws with matplotlib, which is not installed: pip install 'tir-compiler[report]'")


def _report(path: str, result: Result, stream: Any) -> None:
    from search.report import write

    try:
        write(path, result)
        print(f"how the search went: {path}", file=stream)
    except OSError as error:
        print(f"warning: could not write {path}: {error.strerror}", file=sys.stderr)
