"""The options of the command line, and their checks: a bad value or combination raises `Usage`, which says what was expected."""

from __future__ import annotations

import argparse
import math
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TypeVar

from search.names import MODELS, SEARCHES, SEED_LIMIT, SPACES
from tir.nearest import nearest, no_such

if TYPE_CHECKING:
    from codegen import Target
    from search.space.rules import Rule

COMMANDS = ("list", "best", "export", "import", "prune")  # on a records file
MAX_THREADS_PER_PROCESSOR = 16  # a larger number is a typing error

T = TypeVar("T")

# The options of each mode; --json and --quiet go with everything.
OPTIONS: dict[str, tuple[str, ...]] = {
    "a workload": (
        "shape", "trials", "seconds", "threads", "seed", "timeout", "target", "out", "show", "records", "search", "model",
        "space", "rules", "report",
    ),
    "--apply": ("apply", "shape", "threads", "seed", "timeout", "target", "show"),
    "--sketches": ("sketches", "shape", "threads", "target", "space", "rules"),
    "--list": ("list",),
    "list": ("records",),
    "best": ("records", "shape", "threads", "target", "show", "out"),
    "export": ("records",),
    "import": ("records",),
    "prune": ("records", "keep"),
}  # fmt: skip


class Usage(Exception):
    """The command line is not valid; the message says what was expected. Exit status 2."""


@contextmanager
def refusing(what: str, kinds: type[Exception] | tuple[type[Exception], ...] = ValueError) -> Iterator[None]:
    """An error of these kinds becomes a Usage about `what`."""
    try:
        yield
    except kinds as error:
        raise Usage(f"{what}: {error}") from None


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        hint = "; where it begins with -, write --option=value" if message.endswith("expected one argument") else ""
        raise Usage(message + hint)  # one line, without the usage of all options before it


def _value(kind: Callable[[str], T], good: Callable[[T], bool], expected: str) -> Callable[[str], T]:
    """A parser for the value of an option, which accepts `good` values; the error for others says what was `expected`."""

    def read(text: str) -> T:
        with suppress(ValueError):
            if good(value := kind(text)):
                return value
        raise argparse.ArgumentTypeError(f"{expected} was expected, got {text!r}")

    return read


def _digits(text: str) -> int:
    if not re.fullmatch(r"\d+", text):
        raise ValueError(text)
    return int(text)


_positive_int = _value(_digits, lambda n: n >= 1, "a positive integer")
_count = _value(_digits, lambda n: n >= 0, "an integer of at least 0")
_seed = _value(_count, lambda n: n < SEED_LIMIT, "an integer below 2**63")
_positive_float = _value(float, lambda s: 0 < s < math.inf, "a positive number of seconds")


def _threads(text: str) -> int:
    maximum = MAX_THREADS_PER_PROCESSOR * (os.cpu_count() or 1)
    if (threads := _positive_int(text)) > maximum:
        raise argparse.ArgumentTypeError(
            f"at most {maximum} threads, {MAX_THREADS_PER_PROCESSOR} a processor, were expected, got {text!r}"
        )
    return threads


def parser() -> argparse.ArgumentParser:
    """The parser of the command line; a bad value of an option is a `Usage`."""
    p = _Parser(
        prog="python -m tir.tune",
        usage="python -m tir.tune WORKLOAD [options]\n"
        "       python -m tir.tune --records FILE (list | best [WORKLOAD] | export [FILE] | import FILE ... | prune) [options]",
        description="Find a fast schedule of a tensor computation for this machine, check it and compare it with numpy.",
        epilog="example: python -m tir.tune gmm --shape 1024,1024,1024 --trials 64 --threads 2 --records tune.db",
        allow_abbrev=False,
    )
    p.add_argument(
        "words",
        nargs="*",
        metavar="WORKLOAD",
        help="what to tune: a name that --list shows, or FILE.py:NAME, a function of your own. Or a command for --records",
    )
    p.add_argument("--shape", metavar="SIZES", help="sizes separated by commas, as in 1024,1024,1024 (default: the workload's)")
    p.add_argument(
        "--trials", type=_positive_int, metavar="N", help="how many candidates to measure (default 64; no limit with --seconds)"
    )
    p.add_argument("--seconds", type=_positive_float, metavar="S", help="how long to search")
    p.add_argument("--threads", type=_threads, metavar="N", help="threads that a kernel, and numpy, uses (default: the target's)")
    p.add_argument("--seed", type=_seed, default=0, metavar="N", help="of the data and of all random choices (default 0)")
    p.add_argument(
        "--timeout", type=_positive_float, default=10.0, metavar="S", help="seconds a call of a candidate may take (default 10)"
    )
    p.add_argument(
        "--target", default=None, metavar="TARGET", help='such as "llvm" (the default: this machine), "llvm -mcpu znver4", "cuda"'
    )
    p.add_argument(
        "--records", metavar="FILE", help="record every candidate in FILE as it ends, and go on from what is recorded there"
    )
    p.add_argument("--out", metavar="FILE", help="write the best schedule found so far to FILE, each time there is a better one")
    p.add_argument("--apply", metavar="FILE", help="instead of searching, build, check and time the schedule that --out wrote")
    p.add_argument("--report", metavar="FILE", help="write a page on how the search went, as one HTML file")
    p.add_argument("--sketches", action="store_true", help="print the sketches, the rules that made them, and end")
    p.add_argument("--search", choices=SEARCHES, help="how candidates are found (default evolution)")
    p.add_argument("--model", choices=MODELS, help="what judges them before they are measured (default gbdt)")
    p.add_argument(
        "--space", metavar="SPACE", help=f"{', '.join(SPACES)} (default full), or MODULE:NAME, an open schedule of your own"
    )
    p.add_argument("--rules", metavar="MODULE:NAME", help="sketch rules of your own instead: a rule, or a tuple of them")
    p.add_argument("--keep", type=_count, metavar="N", help="with prune: how many of the best of each task stay (default 10)")
    p.add_argument("--show", action="store_true", help="print the whole script of the best program instead of its loop nest")
    p.add_argument("--list", action="store_true", help="list the workloads and end")
    p.add_argument(
        "--json", action="store_true", help="end with one JSON object on standard output; all else goes to standard error"
    )
    p.add_argument("--quiet", action="store_true", help="no progress while it runs")
    return p


def check(args: argparse.Namespace) -> str:
    """The mode, a key of OPTIONS, that the arguments select; Usage if they exclude each other."""
    command = args.words[0] if args.words and args.words[0] in COMMANDS else None
    asked = [mode for mode in ("--apply", "--sketches", "--list") if getattr(args, mode[2:])]
    asked += [command] if command else []
    if len(asked) > 1:
        raise Usage(f"{' and '.join(asked)} don't go together; one thing at a time")
    mode = asked[0] if asked else "a workload"
    defaults = parser().parse_args([])
    given = [name for name, value in vars(args).items() if value != getattr(defaults, name) and name != "words"]
    wrong = [f"--{name}" for name in given if name not in (*OPTIONS[mode], "json", "quiet")]
    if wrong:
        takes = ", ".join(f"--{option}" for option in (*OPTIONS[mode], "json", "quiet") if f"--{option}" != mode)
        raise Usage(f"{', '.join(wrong)} does not go with {mode}, which takes {takes}")
    if command is not None:
        _check_command(command, args)
    elif len(args.words) > 1 or (args.words and args.list):
        raise Usage(f"{'no' if args.list else 'one'} workload was expected, got {' '.join(args.words)}{_meant(args)}")
    elif not args.words and mode in ("a workload", "--sketches"):
        import workloads

        raise Usage(f"name a workload{' to tune' if mode == 'a workload' else ''}: {', '.join(workloads.names())}")
    elif args.words and (meant := _meant(args)):
        import workloads

        if args.words[0] not in workloads.names():
            raise Usage(f"no workload and no command is named {args.words[0]!r}{meant}")
    return mode


def _meant(args: argparse.Namespace) -> str:
    """Which command the first word may have been meant for."""
    near = nearest(args.words[0], COMMANDS) if args.records else None
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


# --- values ------------------------------------------------------------------------------------------------------------


def sizes(shape: Sequence[int]) -> str:
    return ",".join(map(str, shape))


def parse_target(text: str, threads: int | None) -> Target:
    from codegen import Target, backend

    with refusing("--target"):
        found = Target(text) if threads is None else Target(text, num_cores=threads)
    return Target(found, **{option: value for option, value in backend(found).here().items() if option not in text})


def measurable(target: Target) -> None:
    """Usage if kernels for the target cannot be measured here, with what can be done all the same."""
    from codegen.backend import backend

    if missing := backend(target).missing():
        raise Usage(
            f"--target: kernels for {target} cannot be measured: {missing}. What works without: --sketches shows what would be "
            f"searched; in Python, s = tir.default_schedule(func, {str(target)!r}) is the library's schedule, "
            f"tir.dump(s.func, {str(target)!r}) its CUDA C, and tir.build compiles it if NVRTC is installed"
        )


def parse_rules(text: str | None) -> tuple[Rule, ...] | None:
    from search.space.rules import load_rules

    with refusing("--rules"):
        return None if text is None else load_rules(text)


def parse_space(text: str) -> str | Callable[..., object]:
    from search.space.rules import load_space

    if text in SPACES:
        return text
    if ":" not in text and not text.endswith(".py"):
        raise Usage(f"--space: {no_such('space', text, SPACES)}")
    with refusing("--space"):
        return load_space(text)


def writable(option: str, path: str) -> Path:
    """The path, if a file can be written there; a device or a pipe may be in a folder that takes no files."""
    with refusing(f"{option}: cannot write to {path}", (OSError, RuntimeError)):
        found = Path(path).resolve()
    if found.is_dir():
        raise Usage(f"{option}: {path} is a directory; the name of a file was expected")
    if found.exists() and not found.is_file():
        if not os.access(found, os.W_OK):
            raise Usage(f"{option}: cannot write to {found}")
    elif not found.parent.is_dir() or not os.access(found.parent, os.W_OK):
        raise Usage(f"{option}: cannot write to the folder {found.parent}")
    return Path(path)
