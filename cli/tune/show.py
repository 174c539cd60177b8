"""`--list` and `--sketches`: the workloads, and the sketches of one, shown without measuring."""

from __future__ import annotations

import argparse
import json

from ..options import Usage, parse_target, sizes
from .arguments import parts
from .program import parse_program


def list_workloads(args: argparse.Namespace) -> int:
    """Print the workloads with their sizes."""
    import workloads

    if args.json:
        known = map(workloads.get, workloads.names())
        print(json.dumps([{"workload": w.name, "summary": w.summary, "sizes": w.usage, "default": w.default} for w in known]))
        return 0
    width = max(map(len, workloads.names()))
    for name in workloads.names():
        w = workloads.get(name)
        print(f"{name:<{width}} {w.summary}\n{'':<{width}} --shape {w.usage}  (default {sizes(w.default)})")
    return 0


def show_sketches(args: argparse.Namespace) -> int:
    """Print each sketch as a script with holes, and the rules that made it."""
    program = parse_program(args.words[0], args.shape)
    target = parse_target(args.target or "llvm", args.threads)

    from schedule import ScheduleError
    from search.space.generation import generate
    from search.space.show import sketch_text

    try:
        sketches = generate(program.func, target, **parts(args, "rules", "space"))
    except (ValueError, ScheduleError) as error:
        raise Usage(str(error)) from None
    if args.json:
        described = [{"name": s.name, "rules": s.rules, "columns": s.columns, "script": sketch_text(s)} for s in sketches]
        print(json.dumps(described))
        return 0
    print("\n".join(sketch_text(s) for s in sketches))
    print(f"{len(sketches)} sketch{'es' if len(sketches) != 1 else ''} of {program.title}")
    return 0
