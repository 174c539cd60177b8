"""`python -m tir.explore PROGRAM --out page.html`: a page that steps through a schedule of a program. The schedule is that of a
file (`--apply`), the best recorded one (`--records`), or else the default one. With `--serve` it is edited in the page.

Exit status 0 on success, 2 for bad usage; after Ctrl-C 130, SIGTERM 143.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from .options import Parser, Usage, parse_target, positive_float, refusing, threads, writable
from .process import guarded
from .tune.program import Program, parse_program
from .tune.saved import read

if TYPE_CHECKING:
    from codegen import Target
    from explorer.served import Desk
    from schedule import Schedule


def parser() -> argparse.ArgumentParser:
    p = Parser(prog="python -m tir.explore", description="A page that steps through a schedule.", allow_abbrev=False)
    p.add_argument(
        "program", metavar="PROGRAM", help="a workload, or FILE.py:NAME; python -m tir.tune --list shows the workloads"
    )
    where = p.add_mutually_exclusive_group(required=True)
    where.add_argument("--out", metavar="FILE.html", help="where to write the page")
    where.add_argument("--serve", action="store_true", help="serve the page on this machine alone, with a schedule to edit")
    p.add_argument("--port", type=port, default=0, metavar="N", help="of --serve (default: one that is free)")
    p.add_argument("--shape", metavar="7,13,109", help="the sizes of a workload")
    p.add_argument("--apply", metavar="FILE", help="the schedule that python -m tir.tune --out wrote")
    p.add_argument("--records", metavar="FILE", help="the best schedule recorded there")
    p.add_argument("--threads", type=threads, metavar="N", help="the threads that a kernel uses (default: one for each core)")
    p.add_argument("--target", default="llvm", help='what to compile for (default: "llvm")')
    p.add_argument("--limit", type=positive_float, default=2.0, metavar="SECONDS", help="of one call of a stage (default: 2)")
    p.add_argument("--no-measure", action="store_true", help="build and time nothing")
    return p


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status."""
    p = parser()
    return guarded(p.prog, lambda: _explore(p.parse_args(argv)))


def _explore(args: argparse.Namespace) -> int:
    from explorer import explore

    path = None if args.serve else writable("--out", args.out)
    program = parse_program(args.program, args.shape)
    target = parse_target(args.target, args.threads)
    schedule = _schedule(program, target, args)
    if path is None:
        from explorer.served import Desk

        return serve(
            Desk(program.title, program.func, str(schedule.trace), target, measure=not args.no_measure, limit=args.limit),
            args.port,
        )
    explore(schedule, path, target, measure=not args.no_measure, limit=args.limit, title=program.title)
    print(f"{len(schedule.trace)} steps: {path}")
    return 0


def port(text: str) -> int:
    """The number of a port; 0 for one that is free."""
    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"a port is a number from 0 to 65535, got {text}")
    return int(text)


def serve(desk: Desk, port: int) -> int:
    """Serve a page until Ctrl-C, after printing its address."""
    from explorer.served import Server

    try:
        server = Server(desk, port)
    except OSError as error:
        raise Usage(f"--port {port}: {error.strerror}; leave it out for one that is free") from None
    with server:
        print(f"open {server.url}\nCtrl-C ends it", flush=True)
        server.serve_forever()
    return 0


def _schedule(program: Program, target: Target, args: argparse.Namespace) -> Schedule:
    from schedule import ScheduleError, replay_json
    from search import NoRecord, RecordsError, best_schedule, default_schedule

    if args.apply is not None and args.records is not None:
        raise Usage("--apply and --records: each names a schedule; give one of them")
    if args.records is not None:
        with refusing("--records", (NoRecord, RecordsError)):
            found = best_schedule(program.func, target, records=args.records)
    elif args.apply is not None:
        with refusing(f"--apply: the schedule in {args.apply} is not one of {program.title}", ScheduleError):
            found = replay_json(program.func, read(args.apply)["trace"])
    else:
        found = default_schedule(program.func, target)
    return found
