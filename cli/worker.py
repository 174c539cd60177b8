"""`python -m tir.worker ADDRESS`: offers this machine's processor or GPU to the Dask scheduler at ADDRESS, for `--cluster`.

It is a Dask worker with the resources that tuning asks for, started again whenever it ends, and ready again when the scheduler is
back. Exit status 2 for bad usage, 130 after Ctrl-C and 143 after SIGTERM.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
from argparse import ArgumentTypeError
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .options import Parser, Usage, measurable, parse_target, positive_int
from .process import guarded

if TYPE_CHECKING:
    import argparse

RETRY_SECONDS = 2.0  # before a scheduler that cannot be reached is tried again
MISSING = "needs Dask, which is not installed: pip install 'tir-compiler[distributed]'"


def parser() -> Parser:
    p = Parser(prog="python -m tir.worker", description=(__doc__ or "").split("\n\n")[0], allow_abbrev=False)
    p.add_argument("address", metavar="ADDRESS", help="of the scheduler, such as tcp://host:8786, or tls://")
    p.add_argument("--target", default="llvm", metavar="TARGET", help='what it measures for: "llvm" (the default) or "cuda"')
    p.add_argument(
        "--build", type=positive_int, metavar="N", help="compile, N candidates at once, for runs with --builders; measure nothing"
    )
    p.add_argument(
        "--trust-builders", action="store_true", help="run the object code that workers with --build make: any of it is run as is"
    )
    p.add_argument("--cores", type=cores, metavar="LIST", help="the cores that kernels are pinned to, as in 2-5,8")
    p.add_argument("--device", metavar="NAME", help="the name of the lock on the device, where a machine has several")
    p.add_argument("--name", metavar="NAME", help="what the worker is called in tables")
    p.add_argument(
        "--drift", type=float, metavar="X", help="the calibration kernel's largest slowdown before a measurement is void (1.1)"
    )
    p.add_argument("--directory", metavar="DIR", help="for the worker's temporary files")
    return p


def cores(text: str) -> list[int]:
    """The numbers in a list of numbers and ranges."""
    found: list[int] = []
    for part in text.split(","):
        if not (m := re.fullmatch(r"(\d+)(?:-(\d+))?", part)):
            raise ArgumentTypeError(f"expected numbers of cores such as 2-5,8, got {text!r}")
        found += range(int(m[1]), int(m[2] or m[1]) + 1)
    return found


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status."""
    p = parser()
    return guarded(p.prog, lambda: _run(p.parse_args(argv)))


def _run(args: argparse.Namespace) -> int:
    if args.cores is not None:
        if not hasattr(os, "sched_setaffinity"):
            raise Usage("--cores: this system does not pin processes to cores")
        try:
            os.sched_setaffinity(0, args.cores)  # of the processes that it starts, too
        except OSError as error:
            raise Usage(f"--cores: {error.strerror}: {','.join(map(str, args.cores))}") from None
    if not re.fullmatch(r"(\w+://)?[^/]+:\d+", args.address):
        raise Usage(f"the address of a scheduler is like tcp://host:8786, got {args.address!r}")
    target = parse_target(args.target, None)
    if args.build is None:
        measurable(target)
    try:
        from search.measure.distributed.farm import BUILD_RESOURCE
        from search.measure.distributed.measurer import resource
    except ImportError:
        raise Usage(MISSING) from None
    options = {"device": args.device, "drift": args.drift, "trust": args.trust_builders or None}
    config = {f"tir.{name}": value for name, value in options.items() if value is not None}
    offered, slots = (resource(target), 1) if args.build is None else (BUILD_RESOURCE, args.build)
    own = {"nthreads": slots, "resources": {offered: slots}, "config": config, "local_directory": args.directory}
    print(f"offering {offered} to {args.address}", file=sys.stderr, flush=True)
    asyncio.run(_serve(args.address, args.name, own))
    return 0


async def _serve(address: str, name: str | None, options: dict[str, Any]) -> None:
    """Run a worker, and another one whenever it ends."""
    from distributed import Nanny

    while True:
        try:
            async with Nanny(address, name=name, death_timeout=60, **options) as nanny:
                await nanny.finished()
        except (OSError, TimeoutError, RuntimeError) as error:  # there is no scheduler
            print(f"no scheduler at {address}: {error}", file=sys.stderr, flush=True)
        await asyncio.sleep(RETRY_SECONDS)
