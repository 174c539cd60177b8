"""Options that the command lines share. A bad value raises `Usage`, which names the expected ones."""

from __future__ import annotations

import argparse
import math
import os
import re
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TypeVar

from search.names import SEED_LIMIT

if TYPE_CHECKING:
    from codegen import Target

MAX_THREADS_PER_PROCESSOR = 16  # a larger number is a typing error

T = TypeVar("T")


class Usage(Exception):
    """An invalid command line, for exit status 2. The message names the expected arguments."""


@contextmanager
def refusing(what: str, kinds: type[Exception] | tuple[type[Exception], ...] = ValueError) -> Iterator[None]:
    """Turn errors of these kinds into a Usage about `what`."""
    try:
        yield
    except kinds as error:
        raise Usage(f"{what}: {error}") from None


@contextmanager
def accessing(what: str) -> Iterator[None]:
    """Turn errors of the file system into a Usage about `what`, such as `cannot read FILE`, with the reason."""
    try:
        yield
    except OSError as error:
        raise Usage(f"{what}: {error.strerror}") from None


@contextmanager
def running(word: str) -> Iterator[None]:
    """Turn errors in a user's file, `FILE.py[:NAME]`, into a Usage with the file's own part of the traceback."""
    path = Path(word.partition(":")[0]).resolve()
    try:
        yield
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        own = next((n for n, f in enumerate(frames) if Path(f.filename).resolve() == path), None)
        if isinstance(error, Usage) or own is None:  # not the file's doing
            raise
        lines = [*traceback.format_list(frames[own:]), *traceback.format_exception_only(error)]
        raise Usage(f"{word} fails:\n{''.join(lines).rstrip()}") from None


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        hint = "; where it begins with -, write --option=value" if message.endswith("expected one argument") else ""
        raise Usage(message + hint)  # one line, without the usage of all options before it


def value(kind: Callable[[str], T], good: Callable[[T], bool], expected: str) -> Callable[[str], T]:
    """A parser for the value of an option, which accepts `good` values; its error for others names the `expected` ones."""

    def read(text: str) -> T:
        with suppress(ValueError):
            if good(value := kind(text)):
                return value
        raise argparse.ArgumentTypeError(f"expected {expected}, got {text!r}")

    return read


def _digits(text: str) -> int:
    if not re.fullmatch(r"\d+", text):
        raise ValueError(text)
    return int(text)


positive_int = value(_digits, lambda n: n >= 1, "a positive integer")
count = value(_digits, lambda n: n >= 0, "an integer of at least 0")
seed = value(count, lambda n: n < SEED_LIMIT, "an integer below 2**63")
positive_float = value(float, lambda s: 0 < s < math.inf, "a positive number of seconds")


def threads(text: str) -> int:
    """A number of threads, at most MAX_THREADS_PER_PROCESSOR for each processor."""
    maximum = MAX_THREADS_PER_PROCESSOR * (os.cpu_count() or 1)
    if (found := positive_int(text)) > maximum:
        raise argparse.ArgumentTypeError(
            f"expected at most {maximum} threads, {MAX_THREADS_PER_PROCESSOR} a processor, got {text!r}"
        )
    return found


def input_shape(
    text: str, what: str = "an input and its shape", number: Callable[[str], int] = count
) -> tuple[str, tuple[int, ...]]:
    """The shape of an input of a network, `NAME=1,3,224,224`, or other numbers with a name."""
    name, equals, numbers = text.rpartition("=")
    with suppress(ValueError, argparse.ArgumentTypeError):
        if equals and name:
            return name, tuple(map(number, numbers.split(",") if numbers else ()))
    raise argparse.ArgumentTypeError(f"expected NAME=1,3,224,224, {what}, got {text!r}")


def sizes(shape: Sequence[int]) -> str:
    return ",".join(map(str, shape))


def parse_target(text: str, threads: int | None) -> Target:
    from codegen import Target, backend

    with refusing("--target"):
        found = Target(text) if threads is None else Target(text, num_cores=threads)
    return Target(found, **{option: value for option, value in backend(found).here().items() if option not in text})


def measurable(target: Target) -> None:
    """Raise Usage if kernels for the target cannot be measured here; it names the calls that work without."""
    from codegen.backend import backend

    found = backend(target)
    if missing := found.missing(target):
        code = "the program after each pass, and the kernel of tir.build writes itself as a file by its `export`"
        if found.device is not None:
            code = "its CUDA C, and tir.build compiles it if NVRTC is installed"
        raise Usage(
            f"--target: kernels for {target} cannot be measured: {missing}. What works without: --sketches shows what would be "
            f"searched; in Python, s = tir.default_schedule(func, {str(target)!r}) is the library's schedule, "
            f"tir.dump(s.func, {str(target)!r}) {code}"
        )


def writable(option: str, path: str) -> Path:
    """The path, if a file can be written there; a device or a pipe may be in a folder that takes no files."""
    with refusing(f"{option}: cannot write to {path}", (OSError, RuntimeError)):
        found = Path(path).resolve()
    if found.is_dir():
        raise Usage(f"{option}: {path} is a directory; expected the name of a file")
    if found.exists() and not found.is_file():
        if not os.access(found, os.W_OK):
            raise Usage(f"{option}: cannot write to {found}")
    elif not found.parent.is_dir() or not os.access(found.parent, os.W_OK):
        raise Usage(f"{option}: cannot write to the folder {found.parent}")
    return Path(path)
