"""Gradient descent over relaxed sizes: smooth formulas, their gradients, and descents that end at faster rows."""

from __future__ import annotations

import numpy as np
import pytest

from costmodel.recording import OPERATIONS, Recorder, ceil, maximum, minimum, where
from search.experiments.felix import Felix
from search.experiments.relaxed import RULES, Relaxed
from search.measure import Candidate, Measurement
from search.policy.named import make_policy
from search.task import Task
from tests.programs import matmul
from tests.search.policy.oracle import TARGET, measured, task

FORMULAS = {
    "sums": lambda a, b, c: a * b - c + 3.0 / a,
    "minimum": lambda a, b, c: minimum(a, b) * c,
    "maximum": lambda a, b, c: maximum(a + c, b) / c,
    "comparison": lambda a, b, c: where(a < b, a * c, b),
    "nested": lambda a, b, c: where(minimum(a, 7.0) <= maximum(b, c), a / b, c * c),
    "floor": lambda a, b, c: a.recorder.operate("//", a, b) + a.recorder.operate("%", c, b),
}


def relaxed(formula) -> tuple[Relaxed, object]:
    recorder = Recorder()
    made = recorder.compiled({0: formula(*(recorder.column(n) for n in range(3)))})
    return Relaxed(made, 1), made


@pytest.mark.parametrize("name", FORMULAS)
def test_the_gradient_is_that_of_the_smooth_formula(name):
    program, _ = relaxed(FORMULAS[name])
    x = 1.0 + 9.0 * np.random.default_rng(0).random((3, 40))
    found, tape = program.run(x)
    gradient = program.gradient(tape, np.ones_like(found), 3)
    for column in range(3):
        step = np.zeros_like(x)
        step[column] = 1e-5
        quotient = (program.run(x + step)[0] - program.run(x - step)[0])[0] / 2e-5
        above = found[0] > 1e-3  # results below 0 are cut off
        assert np.abs(gradient[column] - quotient)[above].max() <= 1e-4 * (1 + np.abs(quotient[above]).max())


def test_where_operands_are_far_apart_smooth_formulas_are_the_exact_ones():
    for name, formula in FORMULAS.items():
        if name == "floor":
            continue
        program, exact = relaxed(formula)
        rows = np.array([[1, 900, 40], [40, 1, 800], [3, 500, 1]], dtype=np.int64)
        out = np.empty((1, 3))
        exact.run(rows, out)
        assert np.allclose(program.run(rows.T.astype(float))[0], np.maximum(out, 0.0), rtol=0.02), name


def test_a_ceiling_is_exact_and_its_gradient_that_of_its_operand():
    program, _ = relaxed(lambda a, b, c: ceil(a / b) * c)
    found, tape = program.run(np.array([[7.0], [2.0], [3.0]]))
    assert found.tolist() == [[12.0]]
    assert program.gradient(tape, np.ones((1, 1)), 3)[:, 0].tolist() == pytest.approx([1.5, -5.25, 4.0])


def test_every_operation_that_a_recording_has_is_relaxed():
    assert {*RULES} == {*OPERATIONS} - {"column", "store", "const"}


def test_a_descent_ends_at_rows_of_lower_predicted_time():
    """From random rows of each sketch, by the estimate alone and, after measurements, with the network."""
    policy, rng = make_policy(task(), "felix", start=()), np.random.default_rng(0)
    assert isinstance(policy, Felix)
    for batch in range(2):
        gained = []
        for k, sketch in enumerate(policy.sketches):
            rows = policy.sampled(k, 200, rng)
            rows = rows[(sketch.variants(rows) == sketch.variants(rows)[0]).all(axis=1)]
            before = np.array(list(policy._times(k, rows).values()))
            after = np.array(list(policy._times(k, policy._descended(sketch, rows)).values()))
            slow = np.quantile(before, 0.9)
            gained.append((np.median(before) - np.median(after), slow - np.quantile(after, 0.9), slow - before.min()))
        typical, most, spread = np.transpose(gained)
        assert typical.min() > 0 and most.min() > 0 and most.sum() > spread.sum() / 2, (batch, gained)
        while len(policy.measured) < 16:
            policy.update(measured(policy, policy.propose(8, rng)))
        policy._fit(0)
    assert policy._network is not None


def test_the_network_corrects_what_the_estimate_gets_wrong():
    """Where times are the cube of the estimate's, predictions after 40 rows are in their order."""
    policy, rng = make_policy(Task.of(matmul(64, 96, 128), TARGET), "felix", start=()), np.random.default_rng(0)
    rows = policy.sampled(0, 60, rng)
    truth = {p: 3.0 * time for p, time in policy._times(0, rows).items()}
    known = dict(list(truth.items())[:40])
    sketch = policy.sketches[0]
    policy.update(
        [Measurement(Candidate(sketch.name, row, {}), "ok", (float(np.exp(t)) * 1e-9,)) for (_, row), t in known.items()]
    )
    policy._fit(0)
    found = policy._times(0, rows)
    errors = [abs(found[p] - truth[p]) for p in truth]
    assert np.mean(errors) < 0.2 * np.std(list(truth.values()))
