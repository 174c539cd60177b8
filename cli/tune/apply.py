"""`--apply`: build, check and time a schedule from a file, beside numpy."""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from typing import Any

from ..options import Usage, parse_target, sizes
from .program import is_file, parse_program, read_inputs
from .run import show
from .saved import read
from .table import as_json, describe, error_line, heading, timings


def apply(args: argparse.Namespace, options: dict[str, Any]) -> int:
    """Build, check and time a saved schedule; returns the exit status, 0 if it is valid here. Only the command line names a
    function in a file to be scheduled, never the schedule's file."""
    saved = read(args.apply)
    of, word = saved["workload"], args.words[0] if args.words else saved["workload"]
    if is_file(of) and not args.words:  # it is executed, so data may not name it
        raise Usage(
            f"--apply: {args.apply} holds a schedule of a function in a file; name it, if you trust the file, as in "
            f"python -m tir.tune {of} --apply {args.apply}"
        )
    if word != of and not (is_file(word) and is_file(of)):  # a file may have moved
        raise Usage(f"--apply: {args.apply} holds a schedule of {of}, not of {word}")
    program = parse_program(word, tuple(saved["shape"]), saved.get("dtype", "float32"))
    if args.shape is not None and parse_program(program.name, args.shape).shape != program.shape:
        raise Usage(f"--apply: {args.apply} holds a schedule for the shape {sizes(program.shape)}, not {args.shape}")
    text = args.target or saved["target"]
    target = parse_target(text, args.threads or saved["threads"])

    from search.measure import Candidate, Limits, LocalMeasurer, WorkerError, count
    from search.task import Task

    started = time.monotonic()
    task = Task.of(program.func, target, workload=program.workload)
    header = describe(program, text, target.num_cores)
    unscheduled = saved.get("seconds", {}).get("unscheduled")
    inputs = read_inputs(args.inputs, program.func)
    local = {"workers": 1, **{k: v for k, v in options.items() if k in ("builder", "workers")}}
    try:
        with LocalMeasurer(task, limits=Limits(run=args.timeout), seed=args.seed, inputs=inputs, **local) as measurer:
            if task.workload is None:  # the program as written is the reference
                measurer.prepare()
            else:
                measurer.prepare_data()
            comparison = measurer.compare([Candidate("applied", (), saved["trace"])], numpy=task.workload is not None)
            peak = measurer.peak("float64" if "float64" in program.dtype else "float32")
    except WorkerError as error:
        print(f"error: {error}", file=sys.stderr)
        if args.json:
            print(as_json(header, task.flop, count([]), time.monotonic() - started))
        return 1
    (best,) = comparison.candidates
    elapsed = time.monotonic() - started
    ok = best.outcome == "ok"
    numpy = statistics.median(comparison.numpy) if comparison.numpy else None
    times = {"unscheduled": unscheduled, "best": best.seconds if ok else None, "numpy": numpy}
    if ok:
        report = sys.stderr if args.json else sys.stdout
        rows = [("unscheduled", unscheduled), ("applied", best.seconds), ("numpy", numpy)]
        print(heading(header) + "\n\n" + timings(rows, task.flop, peak), file=report)
        print(error_line(best.max_error, comparison.tolerance, task), file=report)
        show(task.func, saved["trace"], args, options)
    else:
        print(f"error: the schedule in {args.apply} is not valid here: {best.outcome}: {best.message}", file=sys.stderr)
    if args.json:
        print(as_json(header, task.flop, count([best]), elapsed, times, (best.max_error, comparison.tolerance)))
    return 0 if ok else 1
