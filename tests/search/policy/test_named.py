"""Searches and models by name."""

from __future__ import annotations

import re

import numpy as np
import pytest

from cli.tune import arguments
from costmodel import RandomModel
from search.names import POLICIES as NAMES
from search.policy.evolution import Evolution
from search.policy.named import MODELS, POLICIES, make_policy
from search.policy.protocol import Policy
from search.policy.random_search import RandomSearch
from search.space import SPACES
from search.space.rules import DEFAULT, rule
from search.task import Task
from tests.programs import matmul

TASK = Task.of(matmul(7, 13, 40), "llvm -num-cores 1 -mcpu znver4")


@pytest.mark.parametrize(
    ("name", "model"), [*((n, "none") for n in POLICIES), *(("evolution", m) for m in MODELS if m != "none")]
)
def test_every_name_proposes(name, model):
    found = make_policy(TASK, name, model)
    batch = found.propose(4, np.random.default_rng(0))
    assert len(batch) == (3 if name == "plan" else 4)  # of one role: the packings of both operands
    assert {c.sketch for c in batch} <= {s.name for s in getattr(found, "sketches", ())} | {name}
    assert isinstance(found, {"evolution": Evolution, "random": RandomSearch}.get(name, Policy))


def test_spaces_and_rules():
    full, limited = make_policy(TASK), make_policy(TASK, space="limited")
    assert {s.columns for s in full.sketches} != {s.columns for s in limited.sketches}

    @rule("leave alone", when=lambda state, block: True)
    def leave(state, block):
        pass

    assert len(make_policy(TASK, rules=(leave, *DEFAULT)).sketches) > len(full.sketches)


def test_a_model_of_ones_own():
    model = RandomModel(np.random.default_rng(0))
    assert make_policy(TASK, "random", model).model is model


@pytest.mark.parametrize(("options", "message"), [
    ({"policy": "evolutoin"}, f"no policy is named 'evolutoin'; did you mean evolution? there are: {', '.join(NAMES)}"),
    ({"model": "forest"}, "no model is named 'forest'; there are: pretrained, gbdt, pack-sum, tile, random, none"),
    ({"space": "limits"}, "no space is named 'limits'; did you mean limited? there are: full, ansor, limited"),
])  # fmt: skip
def test_unknown_names_are_refused(options, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        make_policy(TASK, **options)


def test_what_the_command_line_offers_is_there():
    assert (tuple(POLICIES), tuple(MODELS), tuple(SPACES)) == (arguments.POLICIES, arguments.MODELS, arguments.SPACES)
