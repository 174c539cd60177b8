"""Random networks: `python -m tests.graph.fuzz --graphs 500 --seed 0`.

A case is its seed. What a reference makes of it, node by node (or ONNX's evaluator, of the
whole), the imported graph must make by the interpreter, each pass must keep, and
what is compiled for one and for two threads must make. Of a case that fails, the smallest part found that fails so is printed.
"""

from __future__ import annotations

import argparse
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import get_context

import numpy as np

import tir
from graph.ir import Graph
from graph.onnx import load_onnx
from graph.onnx.importer import FOLDING_ERRORS
from graph.passes import optimize
from graph.passes.check import check_passes, widened
from graph.reference import evaluate
from search.measure.rounding import to_float
from tir import dtypes

from .models import exact
from .random_graphs import Case, Dropped, needed, plain
from .random_nodes import drawn

SEEDS_A_JOB = 10


@dataclass(frozen=True)
class Failure:
    """What went wrong in the case of a seed: the stage, and the smallest network found that shows it."""

    seed: int
    stage: str
    case: Case
    message: str

    def __str__(self) -> str:
        return f"seed {self.seed}: {self.stage}\n{self.case}\n{self.message}\n"


def numbers(array: np.ndarray, dtype: str) -> np.ndarray:
    """An output as what it stands for: of bfloat16, raw or not, float64."""
    return to_float(array, dtype) if dtype == "bfloat16" and array.itemsize == 2 else array


def difference(wanted: Sequence[np.ndarray], found: Sequence[np.ndarray], bounds: Sequence[np.ndarray | float]) -> str:
    """How results differ by more than the bounds of their elements; empty where they do not. NaN and infinities are where they are
    wanted."""
    for n, (a, b, bound) in enumerate(zip(wanted, found, bounds, strict=True)):
        if a.shape != b.shape or a.dtype.kind != b.dtype.kind:
            return f"output {n}: wanted {a.dtype}{list(a.shape)}, found {b.dtype}{list(b.shape)}"
        if a.dtype.kind == "b":
            wrong = a != b
        else:
            wide = "float64" if a.dtype.kind == "f" else "int64"
            with np.errstate(invalid="ignore"):
                near = np.abs(a.astype(wide) - b) <= bound
            wrong = ~(near | (a == b) | ((a != a) & (b != b)))
        if wrong.any():
            at = tuple(map(int, np.argwhere(wrong)[0]))
            most = np.broadcast_to(bound, a.shape)[at]
            return f"output {n}: {int(wrong.sum())} of {a.size} wrong, at {at} wanted {a[at]}, found {b[at]}, bound {most:.3g}"
    return ""


def stages(case: Case, compiled: bool) -> Iterator[tuple[str, Callable[[], str]]]:
    """What is checked, in order: a name, and what says how it fails."""
    graphs: list[Graph] = []
    inputs, known = case.inputs, [case.known[n] for n in case.outputs]
    slack = [k.slack for k in known]
    doubt = [k.doubt + case.special * k.slack for k in known]  # of special values it is computed in the types
    wanted: list[np.ndarray] = []

    def stored() -> dict[str, np.ndarray]:
        return {n: a.view("u2") if a.dtype.name == "bfloat16" else a for n, a in inputs.items()}

    def outputs(arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        return [numbers(np.asarray(a), v.dtype) for a, v in zip(arrays, graphs[0].outputs, strict=True)]

    def imported() -> str:
        graphs.append(load_onnx(case.proto()))
        types = [(v.name, v.dtype, case.values[v.name].dtype.name) for v in graphs[0].outputs]
        if wrong := [t for t in types if t[1] != t[2]]:
            return f"element types (output, found, wanted): {wrong}"
        if case.special:  # an overflow belongs to its type
            wanted.extend(outputs(evaluate(graphs[0], stored())))
        else:
            wanted.extend(outputs(evaluate(*widened(graphs[0], stored()))))
        message = difference([k.numbers for k in known], wanted, doubt)
        return message if message and whole() else ""

    def whole() -> str:
        """How it differs from what ONNX's evaluator makes of the whole, which may be another way to read the standard."""
        try:
            return difference(list(map(np.asarray, exact(*case.single()))), wanted, doubt)
        except FOLDING_ERRORS:
            return "ONNX's evaluator cannot say"

    def passes() -> str:
        # In float64. It takes no integer for another, no element that any rounding replaces, such as a quotient of two that cancel,
        # and no number for what is infinite in its type.
        unlike = [k.slack.any() if k.numbers.dtype.kind in "iu" else k.ill_conditioned for k in known]
        if not any(unlike) and not any(np.isinf(plain(k.numbers)).any() for k in known):
            check_passes(graphs[0], stored())
        return difference(wanted, outputs(evaluate(optimize(graphs[0]), stored())), slack)

    def run(threads: int) -> str:
        model = tir.compile(graphs[0], f"llvm -num-cores {threads}", cache=None, winograd=not case.special)  # it adds neighbours
        first = difference(wanted, outputs(model(stored())), slack)
        return first or difference(wanted, outputs(model(stored())), slack)

    yield "import", imported
    yield "passes", passes
    if compiled:
        yield "one thread", lambda: run(1)
        yield "two threads", lambda: run(2)


def fault(case: Case, compiled: bool = True) -> tuple[str, str] | None:
    """The first stage that fails, and how; None if none does."""
    for stage, check in stages(case, compiled):
        try:
            with np.errstate(all="ignore"):
                message = check()
        except Exception as error:
            return stage, f"{type(error).__name__}: {error}\n" + "".join(traceback.format_tb(error.__traceback__)[-3:])
        if message:
            return stage, message
    return None


def smaller(case: Case) -> Iterator[Case]:
    """Parts of a network: of fewer outputs, and with values in place of what makes them."""
    made = [name for node in case.nodes for name in node.output if name]
    parts: list[tuple[Sequence[str], tuple[str, ...]]] = []
    if len(case.outputs) > 1:
        parts += [([o], ()) for o in case.outputs]
        parts += [([p for p in case.outputs if p != o], ()) for o in case.outputs]
    parts += [([name], ()) for name in made if name not in case.outputs]
    inner = (*reversed(made), *(n for n, a in case.constants.items() if dtypes.is_float(a.dtype.name)))
    parts += [(case.outputs, (name,)) for name in inner if name not in case.outputs]
    for outputs, cut in parts:
        with suppress(Dropped):
            yield needed(case, outputs, cut)


def size(case: Case) -> tuple[int, int, int]:
    return len(case.nodes), len(case.outputs), len(case.constants)


def smallest(case: Case, stage: str, compiled: bool, refused: bool) -> Case:
    """A part of a network that fails at the same stage, refused or not, of which no smaller part was found that does."""
    for part in smaller(case):
        if part.nodes and size(part) < size(case):
            found = fault(part, compiled)
            if found is not None and found[0] == stage and found[1].startswith("GraphError") == refused:
                return smallest(part, stage, compiled, refused)
    return case


def checked(seed: int, compiled: bool = True) -> Failure | None:
    """The failure of the case of a seed, if it fails."""
    case = drawn(np.random.default_rng(seed))
    found = fault(case, compiled)
    if found is None:
        return None
    case = smallest(case, found[0], compiled, found[1].startswith("GraphError"))
    return Failure(seed, found[0], case, (fault(case, compiled) or found)[1])


def several(seeds: Iterable[int], compile_one_in: int) -> list[Failure]:
    found = [checked(n, bool(compile_one_in) and n % compile_one_in == 0) for n in seeds]
    return [f for f in found if f is not None]


def main() -> int:
    """The command; 1 where a case failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.graph.fuzz", description="Random networks.")
    parser.add_argument("--graphs", type=int, default=500, help="number of cases")
    parser.add_argument("--seed", type=int, default=0, help="seed of the first case; the others follow")
    parser.add_argument("--compile", type=int, default=1, help="one case in so many is also compiled; 0: none")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    options = parser.parse_args()
    last = options.seed + options.graphs
    chunks = [range(n, min(n + SEEDS_A_JOB, last)) for n in range(options.seed, last, SEEDS_A_JOB)]
    stages, died = Counter[str](), False
    with ProcessPoolExecutor(options.jobs, mp_context=get_context("spawn")) as pool:
        for seeds, job in [(c, pool.submit(several, c, options.compile)) for c in chunks]:
            try:
                failures = job.result()
            except BrokenProcessPool:
                print(
                    f"a process ended by itself at seeds {seeds[0]} to {seeds[-1]} or beside them; those after them did not run"
                )
                died = True
                break
            for failure in failures:
                stages[failure.stage] += 1
                print(failure, flush=True)
    print(f"graphs: {options.graphs}; failures: {dict(stages)}")
    return 1 if stages or died else 0


if __name__ == "__main__":
    sys.exit(main())
