"""Mutants: `make mutants` changes one thing at a time in what decides about programs, and a test has to fail each time.

A mutant turns one comparison round, drops one refusal (an error, or None or False where a condition holds), or takes the element
beside in one index. All stand in one copy of the
repository, each behind a switch. There the tests are collected once, and run once with all switches off, which tells the tests that
reach each mutant; this is kept for test files and sources that stay as they are. Then a process is forked for each mutant that was
drawn, turns it on, and runs tests that reach it: the ones named after the module first. What no test notices is printed as a change
of the source, and the status is 1 if fewer than LEAST of the mutants were noticed. `--seed` draws others.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import shutil
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from difflib import unified_diff
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).parents[1]
BUILD = ROOT / "build" / "mutants"
LEAST = 0.95  # of the mutants
SECONDS = 20  # of the tests of a mutant
MUTATED = ("schedule/legality", "codegen/passes", "schedule/templates")
TESTS = (
    "tests/schedule/legality",
    "tests/schedule/primitives",
    "tests/schedule/templates",
    "tests/codegen/passes",
    "tests/codegen/cuda",
    "tests/codegen/test_build.py",
    "tests/codegen/test_meaning.py",
    "tests/search/space",
    "tests/search/gpu/test_seeds.py",
    "tests/graph/test_attention.py",
    "tests/graph/test_weights.py",
    "tests/graph/test_winograd.py",
    "tests/tir/script/test_foreign.py",
)
OTHERS = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
BEYOND = {ast.Lt: ast.GtE, ast.LtE: ast.Gt, ast.Gt: ast.LtE, ast.GtE: ast.Lt}  # a limit of work, which may be one more or less
NO_EFFECT = {
    ("schedule/legality/axis_windows.py", 'word = "skips" if (term.coefficient >= reach) else "repeats"'): "the two differ there",
    (
        "schedule/legality/iter_map.py",
        "plain = all((c >= 0) and len(m) == 1 and type(m[0]) is Var for m, c in terms.items())  # counts from 0",
    ): "no coefficient of a polynomial is 0",
    (
        "schedule/legality/axis_windows.py",
        "limits.append((simplify(substitute(x.loops, zeros), ranges), scale if (first <= inner) else extent, x.bound))",
    ): "the first outer term has the extent of the window as its coefficient",
    (
        "schedule/legality/iter_map.py",
        "elif len(m) == 1 and type(m[0]) is Var and m[0].name in self.sizes and (c >= 0):",
    ): "no coefficient of a polynomial is 0",
    ("schedule/legality/requirements.py", "if (other.order >= leaf.order):"): "each leaf has an order of its own",
    (
        "schedule/legality/requirements.py",
        "late = (other.order >= leaf.order) and name not in other.writes",
    ): "each leaf has an order of its own",
    (
        "schedule/legality/requirements.py",
        "if inside and ((other.order >= writer.order) or not _final(scope, other, loops, seen | {name})):",
    ): "no block writes its inputs",
    (
        "codegen/passes/guards.py",
        'case (Binary("//", a, Const(int(n))),) if factor == 1 and (n >= 0):',
    ): "nothing is divided by 0",
    (
        "codegen/passes/compact_gpu_buffers.py",
        'return len(m) == 1 and isinstance(m[0], Binary) and m[0].op == "//" and isinstance(m[0].b, Const) and (m[0].b.value >= 0)',
    ): "nothing is divided by 0",
    (
        "codegen/passes/compact_buffers.py",
        "narrower = isinstance(r.extent, Const) and (not isinstance(dim, Const) or (r.extent.value <= dim.value))",
    ): "a region as long as its dimension starts at 0",
    (
        "codegen/passes/cross_thread_reduction.py",
        'if loop.thread != "threadIdx.x" or n != block["threadIdx.x"] or n == 1 or not fills or ((total >= WARP) and total % WARP):',
    ): "a warp is divided by a warp",
    (
        "codegen/passes/promote_registers.py",
        "elif len(m) > 1 or not isinstance(m[0], Var) or (c <= 0):",
    ): "no coefficient of a polynomial is 0",
    (
        "codegen/passes/slide_windows.py",
        "return stride if (0 <= stride < _extent(kernel)) and _extent(step) > 1 else None",
    ): "neighbours do not read one row",
    ("codegen/passes/slide_windows.py", "update = loops[-2].body"): "the loops have the loads and stores of what they repeat",
    (
        "codegen/passes/thread_storage_sync.py",
        'case Binary("%", a, Const(c)) if (c >= 0):',
    ): "nothing is divided by 0",
    (
        "codegen/passes/promote_temporaries.py",
        "if not all(m in lasts and (c > 0) for p in (*rows, column) for m, c in p.items()):",
    ): "no coefficient of a polynomial is 0",
    (
        "codegen/passes/thread_storage_sync.py",
        "while (n <= len(path)) and path[:n] not in self.inner:",
    ): "a path is no longer than itself",
    (
        "codegen/passes/thread_storage_sync.py",
        "while (n <= min(len(a.path), len(path))) and a.path[n] == path[n]:",
    ): "an access of the same iteration waits for none in its own statement",
}  # the first changed line of mutants that mean the same, in a file, and the reason


@dataclass(frozen=True)
class Mutant:
    """A number among all, a file of the repository, the kind of change and its line (from 1), and the change of the text."""

    number: int
    file: str
    kind: str
    line: int
    diff: str

    @property
    def has_effect(self) -> bool:
        changed = next(line[1:].strip() for line in self.diff.splitlines()[3:] if line.startswith("+"))
        return (self.file, changed) not in NO_EFFECT


def mutants(file: str, source: str, first: int = 0) -> Iterator[Mutant]:
    """All of a file, in the order of its syntax, numbered from `first`."""
    for n, (node, kind, new) in enumerate(_changes(ast.parse(source)), first):
        text = _replaced(source, node, f"({ast.unparse(new)})" if kind == "comparison" else ast.unparse(new))
        diff = unified_diff(source.splitlines(), text.splitlines(), file, file, n=1, lineterm="")
        yield Mutant(n, file, kind, node.lineno, "\n".join(diff))


def switched(source: str, first: int) -> str:
    """A file in which all of its mutants stand, numbered from `first`: each takes effect while `mutant_switch` says so."""
    tree = ast.parse(source)
    changes = defaultdict(list)
    for number, (node, _, new) in enumerate(_changes(tree), first):
        changes[node].append((ast.parse(f"is_on({number})", mode="eval").body, new))

    class Switch(ast.NodeTransformer):
        def visit(self, node):
            result = self.generic_visit(node)
            for on, new in changes.get(node, ()):
                result = ast.IfExp(on, new, result) if isinstance(node, ast.expr) else ast.If(on, [new], [result])
            return result

    tree = Switch().visit(tree)
    start = sum(isinstance(s, ast.Expr) or (isinstance(s, ast.ImportFrom) and s.module == "__future__") for s in tree.body[:2])
    tree.body.insert(start, ast.parse("from tests.mutant_switch import is_on").body[0])
    return ast.unparse(ast.fix_missing_locations(tree))


def _changes(tree: ast.Module) -> Iterator[tuple[ast.expr | ast.stmt, str, ast.AST]]:
    """The nodes of a file that mutants change, the kinds of change, and what then stands in their place. Texts that are put together,
    as messages are, stay."""
    texts = {part for text in ast.walk(tree) if isinstance(text, ast.JoinedStr) for part in ast.walk(text)}
    for node in ast.walk(tree):
        if node in texts:
            continue
        match node:
            case ast.Compare(left, signs, right):
                for n, sign in enumerate(signs):
                    limits = [x for x in ast.walk(node) if isinstance(x, ast.Name) and x.id.startswith(("MAX_", "MIN_"))]
                    other = OTHERS | BEYOND if limits else OTHERS
                    yield node, "comparison", ast.Compare(left, [*signs[:n], other[type(sign)](), *signs[n + 1 :]], right)
            case ast.Raise():
                yield node, "refusal", ast.Pass()
            case ast.If(_, [ast.Return(None | ast.Constant(None | False)) as answer], []):
                yield answer, "refusal", ast.Pass()
            case ast.Expr(ast.Call(ast.Name(function))) if function.lstrip("_").startswith(("need", "refuse")):
                yield node, "refusal", ast.Pass()
            case ast.Subscript(_, ast.Constant(int(n)) as index):
                yield index, "index", ast.Constant(n + 1)
            case ast.Subscript(_, ast.UnaryOp(ast.USub(), ast.Constant(int(n))) as index):
                yield index, "index", ast.Constant(-n - 1)


def _replaced(source: str, node, new: str) -> str:
    """The source with other text in place of a node, whose columns count bytes."""
    lines = source.encode().splitlines(keepends=True)
    before = b"".join(lines[: node.lineno - 1]) + lines[node.lineno - 1][: node.col_offset]
    after = lines[node.end_lineno - 1][node.end_col_offset :] + b"".join(lines[node.end_lineno :])
    return (before + new.encode() + after).decode()


def drawn(every: Sequence[Mutant], count: int, seed: int) -> list[Mutant]:
    """As many mutants as `count`, each from its part of all, so that no large module is left out."""
    rng, count = random.Random(seed), min(count, len(every))
    ends = [n * len(every) // count for n in range(count + 1)] if count else []
    return [rng.choice(every[start:end]) for start, end in pairwise(ends)]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--count", type=int, default=300, help="of the mutants, drawn from all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--only", default="", help="files whose path contains this")
    parser.add_argument("--tests", nargs="+", default=TESTS, help="files and folders")
    options = parser.parse_args(arguments)
    copy = _copy(BUILD / "copy")
    every: list[Mutant] = []
    for path in (p for folder in MUTATED for p in sorted((ROOT / folder).rglob("*.py"))):
        file, source = str(path.relative_to(ROOT)), path.read_text()
        (copy / file).write_text(switched(source, len(every)))
        every += mutants(file, source, len(every))
    sample = drawn([m for m in every if options.only in m.file and m.has_effect], options.count, options.seed)
    tally = _tried(sample, options.tests, options.jobs, copy)
    share = tally["noticed"] / max(len(sample), 1)
    counts = ", ".join(f"{tally[result]} {result}" for result in ("noticed", "survived", "not reached"))
    print(f"{len(sample)} of {len(every)} mutants, seed {options.seed}: {counts}, {share:.1%} noticed")
    return share < LEAST


def _copy(to: Path) -> Path:
    """The repository as it is, in a folder of its own."""
    shutil.rmtree(to, ignore_errors=True)
    return shutil.copytree(ROOT, to, ignore=shutil.ignore_patterns("build", ".*", "__pycache__"))


def _tried(sample: Sequence[Mutant], tests: Sequence[str], jobs: int, copy: Path) -> Counter[str]:
    """The number of mutants by result, from a run of `mutant_trials` in the copy."""
    plan, results = BUILD / "plan.json", BUILD / "results.json"
    drawn = [asdict(m) for m in sample]
    plan.write_text(json.dumps({"tests": tests, "mutants": drawn, "seconds": SECONDS, "jobs": jobs, "results": str(results)}))
    environment = {**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "tests.mutant_trials", str(plan)]
    if subprocess.run(command, cwd=copy, env=environment).returncode:
        raise RuntimeError("the tests fail without a change")
    return Counter(json.loads(results.read_text()))


if __name__ == "__main__":
    sys.exit(main())
