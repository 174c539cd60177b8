"""Monte-Carlo tree search with a proposer: recorded answers of a language model, useless ones, and settings that are refused."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

from search.experiments.knobs import knobs
from search.experiments.reasoning import BRANCHES, Prompt, asking, proposals
from search.measure import Measurement
from search.policy.named import make_policy
from search.population.sample import legalize
from search.task import Task
from tests.programs import matmul
from tests.search.policy.oracle import TARGET

TASK = Task.of(matmul(7, 13, 109), TARGET)

# A recorded answer, with words around its proposals as a language model gives them.
RECORDED = """The vectorised axis should fill whole registers, and rows reuse them.
```json
{"C.v_j": %s}
```
or, with fewer rows, {"C.v_i": [1, 1]}. Do not unroll. {not JSON}"""


def proposed(proposer, trials=8, seed=0, **parts):
    policy, rng = make_policy(TASK, "reasoning", proposer=proposer, simulations=6, **parts), np.random.default_rng(seed)
    batch = policy.propose(trials, rng)
    policy.update([Measurement(c, "ok", (1.0 + n,)) for n, c in enumerate(batch)])
    return policy, [c.row for c in batch + policy.propose(trials, rng)]


def test_answers_are_read_and_the_rest_of_the_text_is_not():
    assert proposals(RECORDED % "[1, 16]") == [{"C.v_j": [1, 16]}, {"C.v_i": [1, 1]}]
    assert proposals("no idea") == [] and proposals('{"a": 1} [1, 2] {"b": [2]') == [{"a": 1}]


def test_proposals_become_schedules_of_the_tree():
    """A proposer of one setting: each node has it once, where it is new."""
    asked: list[Prompt] = []
    sketch = make_policy(TASK, "reasoning").sketches[0]
    knob = next(k for k in knobs(sketch) if k.name == "C.v_i")
    size = [2] * len(knob.columns)

    def proposer(prompt):
        asked.append(prompt)
        return [{knob.name: size}] if prompt.sketch.name == sketch.name else []

    policy, _ = proposed(proposer)
    first = next(p for p in asked if p.sketch.name == sketch.name)
    root = next(r for r in policy._roots if r.point[0] == 0)
    row = list(root.point[1])
    for column in knob.columns:
        row[column] = 2
    wanted = tuple(legalize(sketch, TARGET, sketch.matrix([row]))[0].tolist())
    assert wanted in [child.point[1] for child in root.children]
    assert first.nodes[0][1][knob.name] == [root.point[1][c] for c in knob.columns] and len(first.nodes) == 1
    later = next(p for p in asked if len(p.nodes) > 1)
    assert later.nodes[1] == (root.score, policy._settings(root.point)) or later.sketch.name != sketch.name


def test_a_language_model_gets_a_text_and_its_recorded_answer_is_replayed():
    texts: list[str] = []

    def complete(text):
        texts.append(text)
        return RECORDED % json.dumps([1, 16])

    policy, rows = proposed(asking(complete))
    again = proposed(asking(complete))[1]
    assert rows == again and len(set(rows)) == len(rows) == 16
    assert len(texts) == 2 * 2 * policy.simulations  # one call for each expanded node
    for part in (TASK.func.script(), f"at most {BRANCHES} JSON objects", "higher is faster"):
        assert part in texts[0]
    assert "Fastest measured, 1e+06 us: " in "".join(texts) and "Fastest measured" not in texts[0]


@pytest.mark.parametrize("settings", [
    {}, {"no knob": [1]}, {"C.v_i": [0, 1]}, {"C.v_i": [1, -3]}, {"C.v_i": ["8", 1]}, {"C.v_i": [True, 1]}, {"C.v_i": [1, 2, 3]},
    {"C.v_i": 8}, {"C unroll": [123457]}, [1, 2], "C.v_i", None,
], ids=str)  # fmt: skip
def test_proposals_that_are_no_settings_are_replaced_by_mutations(settings):
    policy, rows = proposed(lambda prompt: [settings])
    assert len(set(rows)) == len(rows) == 16
    assert all(policy._changed(0, root.point[1], settings) in (None, list(root.point[1])) for root in policy._roots[:1])


def test_a_node_with_faster_descendants_is_visited_more():
    policy, _ = proposed(None, start=())
    for _ in range(5):
        policy.propose(4, np.random.default_rng(1))
    best = max(policy._roots, key=lambda node: node.best)
    assert best.visits == max(node.visits for node in policy._roots)
    assert all(child.best <= node.best for node in policy._roots for child in node.children)


@pytest.mark.parametrize(("parts", "message"), [
    ({"proposer": "gpt"}, "proposer takes a function of a Prompt, got 'gpt'"),
    ({"simulations": 0}, "simulations must be at least 1, got 0"),
])  # fmt: skip
def test_bad_settings_are_refused(parts, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        make_policy(TASK, "reasoning", **parts)
