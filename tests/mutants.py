"""Mutants: `make mutants` changes one thing at a time in what decides about programs, and a test has to fail each time.

A mutant turns one comparison round, drops one refusal, or takes the element beside in one index. The tests that run its line are
found once, by a run under coverage; of these, the ones named after the module come first. What no test notices is printed as a
change of the source, and the status is 1 if fewer than LEAST of the mutants were noticed. `--seed` draws others.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from difflib import unified_diff
from pathlib import Path
from queue import SimpleQueue

ROOT = Path(__file__).parents[1]
BUILD = ROOT / "build" / "mutants"
LEAST = 0.95  # of the mutants
SECONDS = 120  # a mutant's tests; one that makes them take longer is noticed
TESTS_A_MUTANT = 40  # functions of tests
MUTATED = ("schedule/legality", "codegen/passes", "schedule/templates")
TESTS = (
    "tests/schedule/legality",
    "tests/schedule/primitives",
    "tests/schedule/templates",
    "tests/codegen/passes",
    "tests/codegen/cuda",
)
OTHERS = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip


@dataclass(frozen=True)
class Mutant:
    """A file of the repository, one kind of change, its line (from 1), and the file's text with the change."""

    file: str
    kind: str
    line: int
    text: str

    def diff(self, before: str) -> str:
        lines = unified_diff(before.splitlines(), self.text.splitlines(), self.file, self.file, n=1, lineterm="")
        return "\n".join(lines)


def mutants(file: str, source: str) -> Iterator[Mutant]:
    """All of a file, in the order of its syntax; texts that are put together, as messages are, stay."""
    tree = ast.parse(source)
    texts = {part for text in ast.walk(tree) if isinstance(text, ast.JoinedStr) for part in ast.walk(text)}
    for node in ast.walk(tree):
        if node not in texts and (changed := _changed(node)):
            kind, new = changed
            yield Mutant(file, kind, node.lineno, _replaced(source, node, new))  # type: ignore[attr-defined]


def _changed(node: ast.AST) -> tuple[str, str] | None:
    """A kind of change, and what then stands in place of a node; None where it is left alone."""
    match node:
        case ast.Compare(left, [op], [right]) if type(op) in OTHERS:
            return "comparison", f"({ast.unparse(ast.Compare(left, [OTHERS[type(op)]()], [right]))})"
        case ast.Raise() | ast.Expr(ast.Call(ast.Name())) if type(node) is ast.Raise or _refuses(node.value.func.id):
            return "refusal", "pass"
        case ast.Subscript(value, ast.Constant(int(n))):
            return "index", f"{ast.unparse(value)}[{n + 1}]"
        case ast.Subscript(value, ast.UnaryOp(ast.USub(), ast.Constant(int(n)))):
            return "index", f"{ast.unparse(value)}[{-n - 1}]"
        case _:
            return None


def _refuses(function: str) -> bool:
    return function.lstrip("_").startswith(("need", "refuse"))


def _replaced(source: str, node, new: str) -> str:
    """The source with other text in place of a node, whose columns count bytes."""
    lines = source.encode().splitlines(keepends=True)
    before = b"".join(lines[: node.lineno - 1]) + lines[node.lineno - 1][: node.col_offset]
    after = lines[node.end_lineno - 1][node.end_col_offset :] + b"".join(lines[node.end_lineno :])
    return (before + new.encode() + after).decode()


def tests_by_line(root: Path, mutated: Sequence[str], tests: Sequence[str], data: Path) -> dict[tuple[str, int], set[str]]:
    """The functions of tests that run each line of each file: a run of all under coverage."""
    from coverage import CoverageData

    data.parent.mkdir(parents=True, exist_ok=True)
    settings = data.with_suffix(".ini")
    folders = "".join(f"\n    {folder}" for folder in mutated)
    settings.write_text(f"[run]\ndata_file = {data}\ndynamic_context = test_function\nsource = {folders}\n")
    options = ("-q", "-p", "no:cacheprovider", "-p", "no:xdist")
    command = [sys.executable, "-m", "coverage", "run", f"--rcfile={settings}", "-m", "pytest", *options, *tests]
    done = subprocess.run(command, cwd=root, env=_environment(root), capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"the tests fail without a change:\n{done.stdout}{done.stderr}")
    found, measured = {}, CoverageData(str(data))
    measured.read()
    for file in measured.measured_files():
        for line, contexts in measured.contexts_by_lineno(file).items():
            found[os.path.relpath(file, root), line] = {_test(c) for c in contexts if c}
    return found


def _test(context: str) -> str:
    """`tests/schedule/test_x.py::test_y` of coverage's `tests.schedule.test_x.test_y`."""
    module, _, function = context.rpartition(".")
    return f"{module.replace('.', '/')}.py::{function}"


def _environment(root: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": "1"}


def is_noticed(mutant: Mutant, tests: Sequence[str], copy: Path) -> bool:
    """True where a test fails, or takes too long, in a copy of the repository with the change, which is undone."""
    place = copy / mutant.file
    before = place.read_text()
    place.write_text(mutant.text)
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *tests]
    try:
        return subprocess.run(command, cwd=copy, env=_environment(copy), capture_output=True, timeout=SECONDS).returncode != 0
    except subprocess.TimeoutExpired:
        return True
    finally:
        place.write_text(before)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--count", type=int, default=300, help="of the mutants, drawn from all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--only", default="", help="files whose path contains this")
    options = parser.parse_args(arguments)
    files = [f for folder in MUTATED for f in sorted((ROOT / folder).rglob("*.py")) if options.only in str(f.relative_to(ROOT))]
    every = [m for f in files for m in mutants(str(f.relative_to(ROOT)), f.read_text())]
    drawn = random.Random(options.seed).sample(every, min(options.count, len(every)))
    covering = tests_by_line(ROOT, MUTATED, TESTS, BUILD / "coverage")
    copies: SimpleQueue[Path] = SimpleQueue()
    for n in range(options.jobs):
        copies.put(_copy(BUILD / f"copy{n}"))

    def tried(mutant: Mutant) -> str:
        name = f"test_{Path(mutant.file).stem}.py"
        tests = sorted(covering.get((mutant.file, mutant.line), ()), key=lambda t: (f"/{name}::" not in t, t))
        copy = copies.get()
        try:
            status = "not run" if not tests else "noticed" if is_noticed(mutant, tests[:TESTS_A_MUTANT], copy) else "survived"
        finally:
            copies.put(copy)
        if status != "noticed":
            change = mutant.diff((ROOT / mutant.file).read_text())
            print(f"{status}: {mutant.kind}, {mutant.file}:{mutant.line}\n{change}", flush=True)
        return status

    with ThreadPoolExecutor(options.jobs) as pool:
        tally = Counter(pool.map(tried, drawn))
    share = tally["noticed"] / max(len(drawn), 1)
    counts = ", ".join(f"{tally[status]} {status}" for status in ("noticed", "survived", "not run"))
    print(f"{len(drawn)} of {len(every)} mutants, seed {options.seed}: {counts}, {share:.1%} noticed")
    return share < LEAST


def _copy(to: Path) -> Path:
    """The repository as it is, in a folder of its own."""
    shutil.rmtree(to, ignore_errors=True)
    return shutil.copytree(ROOT, to, ignore=shutil.ignore_patterns("build", ".*", "__pycache__"))


if __name__ == "__main__":
    sys.exit(main())
