"""The options of the command line, and their checks: a bad value or combination raises `Usage`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

from search.names import MODELS, POLICIES, SPACES
from tir.nearest import near_file, nearest_name

from ..networks import PRECISION, PRECISION_HELP, QUANTISE, QUANTISE_HELP
from ..options import Parser, Usage, count, input_shape, positive_float, positive_int, refusing, running, seed, threads
from ..process import elapsed

COMMANDS = ("list", "best", "export", "import", "prune")  # on a records file

# The options of each mode; --json and --quiet go with everything.
OPTIONS: dict[str, tuple[str, ...]] = {
    "a workload": (
        "shape", "trials", "seconds", "threads", "seed", "timeout", "target", "out", "show", "records", "policy", "model",
        "mutations", "space", "rules", "report", "inputs", "cluster", "builders", "quick",
    ),
    "a network": (
        "shape", "trials", "seconds", "threads", "seed", "timeout", "target", "records", "policy", "model", "report",
        "export", "cluster", "builders", "quantise", "precision",
    ),
    "--sizes": (
        "sizes", "shape", "trials", "seconds", "threads", "seed", "timeout", "target", "records", "policy", "model", "space",
        "cluster", "builders",
    ),
    "--apply": ("apply", "shape", "threads", "seed", "timeout", "target", "show", "inputs"),
    "--sketches": ("sketches", "shape", "threads", "target", "space", "rules"),
    "--list": ("list",),
    "list": ("records",),
    "best": ("records", "shape", "threads", "target", "show", "out"),
    "export": ("records",),
    "import": ("records",),
    "prune": ("records", "keep"),
}  # fmt: skip


SWITCH = {"action": "store_true"}

# Each option: the name of its value in the help, None for a switch or a choice; other arguments of `add_argument`; its help.
ARGUMENTS: dict[str, tuple[str | None, dict[str, Any], str]] = {
    "shape": ("SIZES", {"action": "append"},
        "sizes separated by commas, as in 1024,1024,1024 (default: the workload's); "
        "of a network NAME=1,3,224,224, for each input whose shape is open"),
    "sizes": ("NAME=SIZES", {"action": "append"},
        "of a function whose sizes are open, FILE.py:NAME: values to be fast at, as in n=1,128; once for each of its sizes"),
    "trials": ("N", {"type": positive_int}, "how many candidates to measure (default 64; no limit with --seconds)"),
    "seconds": ("S", {"type": positive_float}, "how long to search (default, of a network: 600)"),
    "quick": (None, SWITCH, "some seconds of --policy plan, recorded where tir.compile(..., plan=\"measure\") finds it"),
    "threads": ("N", {"type": threads}, "threads that a kernel, and numpy, uses (default: the target's)"),
    "seed": ("N", {"type": seed, "default": 0}, "of the data and of all random choices (default 0)"),
    "timeout": ("S", {"type": positive_float, "default": 10.0}, "seconds a call of a candidate may take (default 10)"),
    "target": ("TARGET", {}, 'such as "llvm" (the default: this machine), "llvm -mcpu znver4", "cuda"'),
    "records": ("FILE", {}, "record every candidate in FILE as it ends, and go on from what is recorded there"),
    "out": ("FILE", {}, "write the best schedule found so far to FILE, each time there is a better one"),
    "apply": ("FILE", {}, "instead of searching, build, check and time the schedule that --out wrote"),
    "report": ("FILE", {}, "write a page on how the search went, as one HTML file; of a network FILE.png: the picture"),
    "export": ("FILE", {}, "of a network: write it, as tuned, as a library (.so) or object file (.o)"),
    "quantise": (QUANTISE, {}, f"of a network: {QUANTISE_HELP}"),
    "precision": (PRECISION, {}, f"of a network: {PRECISION_HELP}"),
    "inputs": ("FILE.npz", {},
        "arrays by the names of parameters, as numpy.savez writes them, to run candidates on instead of random ones"),
    "cluster": ("ADDRESS", {},
        "measure on the workers of the Dask scheduler at tcp://host:8786, or of a cluster here, local:4, to try that"),
    "builders": (None, SWITCH,
        "with --cluster: workers with --build compile, and those that measure, with --trust-builders, run their code"),
    "sketches": (None, SWITCH, "print the sketches, the rules that made them, and end"),
    "policy": ("POLICY", {},
        f"what proposes candidates: {', '.join(POLICIES)} (default evolution), "
        "or MODULE:NAME, one of your own or what makes one of a task"),
    "model": ("MODEL", {},
        f"what judges them before they are measured: {', '.join(MODELS)} (default pretrained), "
        "or MODULE:NAME, an object of your own"),
    "mutations": ("MODULE:NAME", {}, "mutations of your own for the evolution instead: a dict of them by name"),
    "space": ("SPACE", {}, f"{', '.join(SPACES)} (default: mostly full), or MODULE:NAME, an open schedule of your own"),
    "rules": ("MODULE:NAME", {}, "sketch rules of your own instead: a rule, or a tuple of them"),
    "keep": ("N", {"type": count}, "with prune: how many of the best of each task stay (default 10)"),
    "show": (None, SWITCH, "print the whole script of the best program instead of its loop nest"),
    "list": (None, SWITCH, "list the workloads and end"),
    "json": (None, SWITCH, "end with one JSON object on standard output; all else goes to standard error"),
    "quiet": (None, SWITCH, "no progress while it runs"),
}  # fmt: skip


def parser() -> argparse.ArgumentParser:
    """The parser of the command line; a bad value of an option is a `Usage`."""
    p = Parser(
        prog="python -m tir.tune",
        usage="python -m tir.tune (WORKLOAD | FILE.py:NAME | MODEL.onnx) [options]\n"
        "       python -m tir.tune --records FILE (list | best [WORKLOAD] | export [FILE] | import FILE ... | prune) [options]",
        description="Find a fast schedule of a tensor computation for this machine, check it and compare it with numpy.",
        epilog="example: python -m tir.tune gmm --shape 1024,1024,1024 --trials 64 --threads 2 --records tune.db",
        allow_abbrev=False,
    )
    p.add_argument(
        "words",
        nargs="*",
        metavar="WORKLOAD",
        help="what to tune: a name that --list shows; FILE.py:NAME, a function of your own; MODEL.onnx, a network. Or a command "
        "for --records",
    )
    for name, (metavar, more, text) in ARGUMENTS.items():
        p.add_argument(f"--{name}", help=text, **(more if metavar is None else {"metavar": metavar, **more}))
    return p


def check(args: argparse.Namespace) -> str:
    """The mode, a key of OPTIONS, that the arguments select; Usage if they exclude each other."""
    command = args.words[0] if args.words and args.words[0] in COMMANDS else None
    asked = [mode for mode in ("--apply", "--sketches", "--list", "--sizes") if getattr(args, mode[2:])]
    asked += [command] if command else []
    if len(asked) > 1:
        raise Usage(f"{' and '.join(asked)} don't go together; one thing at a time")
    network = len(args.words) == 1 and args.words[0].endswith((".onnx", ".pt2"))
    mode = asked[0] if asked else "a network" if network else "a workload"
    defaults = parser().parse_args([])
    given = [name for name, value in vars(args).items() if value != getattr(defaults, name) and name != "words"]
    wrong = [f"--{name}" for name in given if name not in (*OPTIONS[mode], "json", "quiet")]
    if wrong:
        takes = ", ".join(f"--{option}" for option in (*OPTIONS[mode], "json", "quiet") if f"--{option}" != mode)
        raise Usage(f"{', '.join(wrong)} does not go with {mode}, which takes {takes}")
    if args.shape is not None and mode == "a network":
        with refusing("--shape", argparse.ArgumentTypeError):
            args.shape = list(map(input_shape, args.shape))
    elif args.shape is not None:
        if len(args.shape) > 1:
            raise Usage(f"--shape: expected the sizes of a workload once, got {' and '.join(args.shape)}")
        (args.shape,) = args.shape
    if command is not None:
        _check_command(command, args)
    elif mode == "a network":
        return mode
    elif len(args.words) > 1 or (args.words and args.list):
        raise Usage(f"expected {'no' if args.list else 'one'} workload, got {' '.join(args.words)}{_suggestion(args)}")
    elif not args.words and mode in ("a workload", "--sketches", "--sizes"):
        import workloads

        raise Usage(f"name a workload{' to tune' if mode == 'a workload' else ''}: {', '.join(workloads.names())}")
    elif args.words and (meant := _suggestion(args)):
        import workloads

        if args.words[0] not in workloads.names():
            raise Usage(f"no workload and no command is named {args.words[0]!r}{meant}")
    if args.quick:
        _quick(args)
    return mode


def _quick(args: argparse.Namespace) -> None:
    """Set the policy, the seconds and the records that --quick stands for."""
    from search.planning import SECONDS, TRIALS, users_plans

    if given := [f"--{name}" for name in ("policy", "trials", "seconds") if getattr(args, name) is not None]:
        raise Usage(f"--quick has a policy and a budget of its own; leave out {', '.join(given)}, or --quick")
    args.policy, args.trials, args.seconds = "plan", TRIALS, SECONDS
    args.records = str(users_plans()) if args.records is None else args.records


def _suggestion(args: argparse.Namespace) -> str:
    """A hint at a command whose name is close to the first word; empty without --records."""
    near = nearest_name(args.words[0], COMMANDS) if args.records else None
    return f"; did you mean {near}?" if near else ""


def _check_command(command: str, args: argparse.Namespace) -> None:
    if args.records is None:
        raise Usage(f"{command} needs --records FILE")
    count = len(args.words) - 1
    match command:
        case "list" | "prune" if count:
            raise Usage(f"{command} takes no further words, got {' '.join(args.words[1:])}")
        case "best" if count > 1:
            raise Usage(f"best takes one workload, got {' '.join(args.words[1:])}")
        case "best" if not count and (wrong := [f"--{n}" for n in ("shape", "show", "out") if getattr(args, n)]):
            raise Usage(f"best without a workload lists all; {', '.join(wrong)} needs one: best WORKLOAD")
        case "export" if count > 1:
            raise Usage(f"export takes one file, got {' '.join(args.words[1:])}")
        case "import" if not count:
            raise Usage("import takes the files that export wrote, or - for standard input")


NAMED = ("policy", "model", "space")  # parts of a search that have names


def parts(args: argparse.Namespace, *kinds: str) -> dict[str, Any]:
    """The given parts of a search, such as its policy or model, by kind."""
    return {kind: _part(kind, text) for kind in kinds if (text := getattr(args, kind)) is not None}


def _part(kind: str, text: str) -> Any:
    """A known name, or the checked object of `MODULE:NAME`; Usage for any other text."""
    from search.space.rules.rule import load, load_rules
    from search.tuning.options import check_names

    if kind in NAMED and ":" not in text and not text.endswith(".py"):
        with refusing(f"--{kind}"):
            check_names(**{kind: text})
        return text
    with refusing(f"--{kind}"), running(text):
        found = load_rules(text) if kind == "rules" else load(text, kind, f"my_{kind}:{kind.upper()}")
        if kind in NAMED:
            check_names(**{kind: found})
        if kind == "mutations" and not (
            isinstance(found, Mapping) and found and all(hasattr(m, "operate") for m in found.values())
        ):
            raise ValueError(f"{text!r} is no dict of mutations (search.population.mutate.Mutation) by name: {found!r}")
        return found


@contextmanager
def searching(
    args: argparse.Namespace, options: dict[str, Any], show: Callable[..., Any], **default: float
) -> Iterator[dict[str, Any]]:
    """The options that all searches share: budget, open records, seed, callbacks and limits; `options` override them. The seconds
    of the budget are those of the process.

    `default` is the budget if none is given. Except with --quiet, `show` makes the callback, which is closed at the end."""
    from search.measure import Limits
    from search.records import Records, RecordsError

    budget = {"trials": args.trials, "seconds": args.seconds}
    budget |= default if budget["trials"] is budget["seconds"] is None else {}
    if budget["seconds"] is not None:
        budget["seconds"] = max(budget["seconds"] - elapsed(), 0.1 * budget["seconds"])
    with refusing("--records", RecordsError), ExitStack() as stack:
        if args.records is not None and not args.quiet and not Path(args.records).exists():
            print(f"records: {args.records} is a new file{near_file(args.records)}", file=sys.stderr)
        records = None if args.records is None else stack.enter_context(Records(args.records))
        callbacks = [] if args.quiet else [stack.enter_context(closing(show(*budget.values())))]
        limits = {} if "measurer" in options else {"limits": Limits(run=args.timeout)}
        yield {**budget, "records": records, "seed": args.seed, "callbacks": callbacks, **limits, **options}
