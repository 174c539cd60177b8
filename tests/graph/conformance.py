"""ONNX's own node tests on the compiler: `python -m tests.graph.conformance`.

Each test is a model with inputs and outputs. It is right when the outputs of the compiled model fit, as ONNX's own runner
compares them; refused when importing names what is not there; anything else is wrong. A table by operators is printed, and the
process fails if one test is wrong.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from multiprocessing import get_context
from typing import Any
from unittest.mock import patch

import ml_dtypes
import numpy as np
from onnx import TensorProto, numpy_helper
from onnx.backend.test.case.node import collect_testcases
from onnx.backend.test.case.test_case import TestCase
from onnx.backend.test.runner import Runner
from onnx.reference.ops import op_pool_common

from graph.ir import GraphError
from tests.graph.onnx_backend import TirBackend

EXPANDED = re.compile(r"_expanded(_ver\d+|_function)?$")


@dataclass(frozen=True)
class Outcome:
    """What became of a test: right, refused or wrong, and why."""

    name: str
    operator: str
    result: str
    reason: str = ""


@cache
def cases() -> dict[str, TestCase]:
    """All node tests by name; making them takes seconds. Results of pools, which took four fifths of them, are zeros until
    `data_sets` asks for them."""
    with warnings.catch_warnings(), np.errstate(all="ignore"), patch.object(op_pool_common, "pool", _pooled_later):
        warnings.simplefilter("ignore")
        return {case.name: case for case in collect_testcases(None)}


_pool = op_pool_common.pool
_pooled: dict[
    int, tuple[np.ndarray, Callable[[], np.ndarray]]
] = {}  # by identity: a result that is still zeros, and what fills it


def _pooled_later(
    padded: np.ndarray, x_shape: Sequence[int], kernel: Any, strides: Any, out_shape: Any, *others: Any, **named: Any
):
    result = np.zeros((*x_shape[:2], *out_shape), padded.dtype)
    _pooled[id(result)] = result, partial(_pool, padded, x_shape, kernel, strides, out_shape, *others, **named)
    return result


def data_sets(case: TestCase) -> list[tuple[Sequence[Any], Sequence[Any]]]:
    """The inputs of a test and the outputs that are right for them."""
    for _, outputs in case.data_sets:
        for result, values in (_pooled.pop(id(y)) for y in outputs if id(y) in _pooled):
            result[...] = values()
    return case.data_sets


def array(given: Any) -> Any:
    """The array that a test gives, as such or as a tensor of ONNX; else what it gives."""
    return numpy_helper.to_array(given) if isinstance(given, TensorProto) else given


def tolerance(case: TestCase, outputs: Sequence[Any]) -> float:
    """The relative error allowed: that of the test, and two units in the last place of float16 where it computes in that, as the
    runner allows two of bfloat16."""
    halves = any(getattr(a, "dtype", None) == np.float16 for a in outputs)
    return max(case.rtol, 2 * float(np.finfo(np.float16).eps)) if halves else case.rtol


def absolute_tolerance(case: TestCase, operator: str, outputs: Sequence[Any]) -> float:
    """The absolute error allowed: that of the test. Fourier transforms may be off by a unit in the last place of their largest
    element. ONNX's own results are, where terms cancel and the exact result is 0."""
    if operator not in ("DFT", "STFT"):
        return case.atol
    return max(case.atol, *(float(ml_dtypes.finfo(a.dtype).eps) * float(np.abs(a).max()) for a in outputs))


def operator_of(case: TestCase, known: dict[str, TestCase]) -> str:
    """The operator that a test is about; the body of a function is about that function."""
    whole = known.get(EXPANDED.sub("", case.name), case)
    return next((n.op_type for n in whole.model.graph.node if n.op_type != "Constant"), "Constant")


def check(name: str, target: str = "llvm -num-cores 1") -> Outcome:
    """Run one test."""
    case = cases()[name]
    operator = operator_of(case, cases())
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            prepared = TirBackend.prepare(case.model, target=target)
            for inputs, given in data_sets(case):
                outputs = [*map(array, given)]
                allowed = tolerance(case, outputs), absolute_tolerance(case, operator, outputs)
                Runner.assert_similar_outputs(outputs, prepared.run([*map(array, inputs)]), *allowed)
        except GraphError as error:
            return Outcome(name, operator, "refused", str(error).splitlines()[-1].strip())
        except Exception as error:  # whatever it is, the test is wrong
            return Outcome(name, operator, "wrong", f"{type(error).__name__}: {str(error).strip()[:300]}")
    return Outcome(name, operator, "right")


def check_all(names: Sequence[str], jobs: int) -> Iterable[Outcome]:
    """Run tests in processes of their own; one that ends its process is wrong."""
    cases()  # once, before the processes part
    done: set[str] = set()
    while left := [n for n in names if n not in done]:
        with ProcessPoolExecutor(jobs, get_context("fork")) as pool:
            found = {n: pool.submit(check, n) for n in left}
            for n, future in found.items():
                error = future.exception()
                if error is None:
                    done.add(n)
                    yield future.result()
                else:
                    break
        if error is not None:
            with ProcessPoolExecutor(1, get_context("fork")) as pool:
                alone = pool.submit(check, n)
                done.add(n)
                yield alone.result() if alone.exception() is None else Outcome(n, "", "wrong", "the process ended")


def table(outcomes: Sequence[Outcome]) -> str:
    """Right, refused and wrong tests by operator, those of most tests first."""
    rows: dict[str, Counter] = defaultdict(Counter)
    for o in outcomes:
        rows[o.operator][o.result] += 1
    rows = dict(sorted(rows.items(), key=lambda row: (-row[1].total(), row[0])))
    rows["all"] = sum(rows.values(), Counter())
    columns = ("right", "refused", "wrong")
    head = f"{'operator':28}" + "".join(f"{c:>9}" for c in columns)
    return "\n".join([head, *(f"{op:28}" + "".join(f"{row[c]:9}" for c in columns) for op, row in rows.items())])


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.graph.conformance", description=__doc__)
    parser.add_argument("tests", nargs="*", help="parts of the names of tests; all without")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="processes (2)")
    parser.add_argument("--count", type=int, default=0, metavar="N", help="so many of them, drawn with --seed; 0: all")
    parser.add_argument("--seed", type=int, default=0, metavar="N")
    parser.add_argument("--reasons", action="store_true", help="say of each test that is refused why")
    options = parser.parse_args()
    names = [n for n in cases() if not options.tests or any(part in n for part in options.tests)]
    if options.count:
        names = random.Random(options.seed).sample(names, min(options.count, len(names)))
    outcomes = []
    for outcome in check_all(names, options.jobs):
        outcomes.append(outcome)
        if outcome.result == "wrong" or (options.reasons and outcome.result == "refused"):
            print(f"{outcome.result}: {outcome.name}: {outcome.reason}", flush=True)
    print(table(outcomes))
    return any(o.result == "wrong" for o in outcomes)


if __name__ == "__main__":
    sys.exit(main())
