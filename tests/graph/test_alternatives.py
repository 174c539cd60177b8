"""Other forms of groups: which there are, what they compute, and which of them a tuned network keeps."""

from __future__ import annotations

import numpy as np
import pytest

import tir
from graph import Builder, tuning
from graph.alternatives import PARTED, alternatives
from graph.compilation import final, formed, passes_for
from graph.passes import optimize, winograd
from graph.passes.winograd import DIRECT
from graph.reference import evaluate, random_inputs
from search.keys import key

from .test_tuning import tuned

TARGET = tir.Target("llvm -num-cores 1 -mcpu x86-64-v3")


def attention():
    """Scores, softmax and a product, and a convolution that is filtered minimally."""
    rng, builder = np.random.default_rng(0), Builder("attention")
    x, image = builder.input("x", (3, 37, 13), "float32"), builder.input("image", (1, 64, 29, 23), "float32")
    scores = builder("Softmax", builder("MatMul", x, builder("Transpose", x, perm=(0, 2, 1))))
    weight = builder.constant(rng.uniform(-1, 1, (32, 64, 3, 3)).astype("float32"))
    return builder.graph(builder("MatMul", scores, x), builder("Relu", builder("Conv", image, weight, pads=(1, 1, 1, 1))))


@pytest.fixture(autouse=True)
def any_ratio(monkeypatch):
    """Direct convolutions are alternatives however many cycles they take."""
    monkeypatch.setattr(winograd, "MAX_FORM_RATIO", 99.0)


def groups(graph, forms=None):
    return [g.func.name for g in formed(graph, tir.Target("llvm -num-cores 1"), None, forms or {}).groups]


def test_a_group_of_products_has_parts_and_a_convolution_the_other_algorithm():
    found = {a.form: a for a in alternatives(optimize(attention(), passes_for(TARGET)), TARGET)}
    assert sorted(found) == [DIRECT, PARTED]
    assert {"matmul", "softmax", "matmul_1"} <= found[PARTED].values and "relu" in found[DIRECT].values


def test_other_forms_compute_the_same():
    graph = attention()
    target = tir.Target("llvm -num-cores 1")
    forms = {a.key: a.form for a in alternatives(optimize(graph, passes_for(target)), target)}
    model = formed(graph, target, None, forms)
    assert len(model.groups) == len(groups(graph)) + 2 and not any("winograd" in g.func.name for g in model.groups)
    inputs = random_inputs(graph)
    for array, exact in zip(model(inputs), evaluate(graph, inputs), strict=True):
        np.testing.assert_allclose(array, exact, rtol=1e3 * np.finfo("float32").eps, atol=1e3 * np.finfo("float32").eps)
    assert final(graph, target, forms={"another": PARTED}).calls == final(graph, target).calls


def test_what_is_pointwise_stays_with_its_product():
    builder = Builder("layer")
    x, w, b = (builder.input(n, shape, "float32") for n, shape in (("x", (7, 13)), ("w", (13, 5)), ("b", (5,))))
    graph = builder.graph(builder("Relu", builder("Add", builder("MatMul", x, w), b)))
    assert not list(alternatives(optimize(graph, passes_for(TARGET)), TARGET))


@pytest.fixture
def seconds(monkeypatch):
    """What each kernel of a network takes in another form, and by default."""
    times = {True: 0.5, False: 2.0}

    def by_key(model, inputs, runs):
        parted = any(g.func.name.startswith("softmax") for g in model.groups)
        return {key(g.func): times[parted] for g in model.groups}

    monkeypatch.setattr(tuning, "_by_key", by_key)
    for name in ("SECONDS", "MIN_FORM_SECONDS", "MIN_FORM_SHARE"):
        monkeypatch.setattr(tuning, name, 0.0)
    return times


def test_the_form_that_is_faster_in_the_network_stays(seconds, tmp_path):
    """Both are tasks; records say which is kept, for any network with the function, until the other one is faster."""
    graph, file = attention(), tmp_path / "tune.db"
    found = tuned(graph, records=file)
    (rival,) = [r for r in found.progress.rivals if r.alternative.form == PARTED]
    assert {found.progress.of(k).trials for k in (*rival.own, *rival.other)} == {2}
    assert any(label.endswith(PARTED) for label in found.forms) and len(found.model.groups) > len(groups(graph))
    again = tir.compile(graph, "llvm -num-cores 1", records=file)
    assert [g.func.name for g in again.groups] == [g.func.name for g in found.model.groups]
    inputs = random_inputs(graph)
    for array, exact in zip(again(inputs), evaluate(graph, inputs), strict=True):
        np.testing.assert_allclose(array, exact, rtol=1e3 * np.finfo("float32").eps, atol=1e3 * np.finfo("float32").eps)
    seconds[True] = 3.0
    assert not tuned(graph, records=file).forms
    assert [g.func.name for g in tir.compile(graph, "llvm -num-cores 1", records=file).groups] == groups(graph)


def test_a_form_that_takes_longer_still_counts(seconds):
    """The objective is the shorter of two forms, about; a gain of the other one is worth less, but not nothing."""
    found = tuned(attention(), trials=8)
    objective, progress = tuning._objective(found.progress), found.progress
    keys = [t.key for t in (*progress.tasks, *progress.others)]
    (rival,) = [r for r in progress.rivals if r.alternative.form == PARTED]

    def at(own, other):
        each = {k: own / rival.own.total() for k in rival.own} | {k: other / rival.other.total() for k in rival.other}
        return objective([each.get(k, 0.0) for k in keys])

    assert at(1.0, 9.0) == pytest.approx(1.0, rel=1e-3) and at(9.0, 1.0) == pytest.approx(1.0, rel=1e-3)
    assert 0 < at(1.0, 1.2) - at(1.0, 1.1) < at(1.1, 1.2) - at(1.0, 1.2)
