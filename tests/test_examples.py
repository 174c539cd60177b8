"""The examples: each rung of the ladder is one program in two forms, and computes what numpy does."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

import tir
from examples import softmax
from examples.ladder import RUNGS, Rung, Shape, measure, rung
from examples.ladder import __main__ as ladder_command
from examples.ladder.compare import difference
from search.measure.process import THREAD_VARIABLES
from tir import workloads
from tir.script import parse

LEAST = Shape(7, 13, 11, 5)  # sizes of the rungs that take any
INTERPRETED = 2_000_000  # multiply-adds that the interpreter gets through in seconds


def reduced(r: Rung) -> Shape:
    """Odd sizes where the rung takes any, else three tiles, or one large one; the packed rung needs two and more of the sums."""
    sizes = [least if step == 1 else step if step >= 192 else 3 * step for step, least in zip(r.multiples, LEAST, strict=True)]
    if r.name == "packed":
        sizes[1:3] = 2 * r.multiples.K, 3 * r.multiples.L
    return Shape(*sizes)


@pytest.mark.parametrize("r", RUNGS, ids=lambda r: r.name)
def test_the_two_forms_are_one_program(r):
    for shape in (reduced(r), (1024, 2048, 1024, 3072)):
        assert difference(r.scheduled(shape).func, r.program(shape)) == ""


@pytest.mark.parametrize("r", RUNGS, ids=lambda r: r.name)
def test_the_script_is_well_formed(r):
    func = r.program(reduced(r))
    assert not list(tir.verify(func))
    assert parse(func.script()) == func


@pytest.mark.parametrize("r", RUNGS, ids=lambda r: r.name)
def test_it_computes_what_numpy_does(r):
    shape = reduced(r)
    instance = workloads.make("mlp", shape)
    inputs = instance.inputs(np.random.default_rng(3))
    expected = instance.checker(inputs)
    for func in (r.program(shape), r.scheduled(shape).func):
        outputs = instance.outputs()
        tir.build(func, "llvm -num-cores 1")(*inputs, *outputs)
        assert expected(outputs).ok
    if shape.M * shape.L * (shape.K + shape.N) <= INTERPRETED:
        outputs = instance.outputs()
        tir.run(r.program(shape), *inputs, *outputs)
        assert expected(outputs).ok


def test_the_trace_of_a_rung_replays():
    shape = reduced(rung("searched"))
    s = rung("searched").scheduled(shape)
    trace = type(s.trace).from_json(s.trace.to_json())
    assert tir.replay(rung("naive").program(shape), trace).func == s.func


def test_differences_are_found():
    shape = Shape(16, 24, 40, 56)
    forms = {r.name: r.program(shape) for r in RUNGS if r.name not in ("searched", "packed")}
    for a in forms:
        for b in forms:
            assert (difference(forms[a], forms[b]) == "") == (a == b), (a, b)
    text = forms["tile_all"].script()
    for old, new in (("l_0 * 8 + l_1", "l_1 * 5 + l_0"), ("T.exp(C[i, j])", "T.exp(D[i, j])"), ("A[i, r]", "A[r, i]")):
        assert old in text
        assert difference(parse(text.replace(old, new, 1)), forms["tile_all"])


def test_sizes_that_tiles_do_not_divide_are_refused():
    with pytest.raises(ValueError) as raised:
        rung("tile_all").program((16, 24, 21, 56))
    assert str(raised.value) == "tile_all: L must be a multiple of 8, got 21 in 16,24,21,56"
    with pytest.raises(ValueError) as raised:
        rung("packed").program((256, 512, 256, 64))
    assert str(raised.value) == "packed: L must be a multiple of 256 from 512 up, got 256 in 256,512,256,64"
    with pytest.raises(ValueError) as raised:
        rung("best")
    assert str(raised.value).startswith("no rung is named 'best'; there are: naive, reorder, ")


def test_a_wrong_rung_is_reported():
    wrong = Rung("wrong", rung("reorder").script, rung("naive").schedule, Shape(1, 1, 1, 1))
    instance = workloads.make("mlp", LEAST)
    with pytest.raises(measure.Wrong, match="wrong: the schedule does not make the script: "):
        measure.measure(wrong, LEAST, instance, instance.inputs(np.random.default_rng(0)))


def test_the_command(capsys):
    assert measure.main(["--shape", "16,24,40,56"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.startswith("left out")] == [
        "left out: searched: M must be a multiple of 256, got 16 in 16,24,40,56",
        "left out: packed: M must be a multiple of 256, got 16 in 16,24,40,56",
    ]
    rows = [line.split()[0] for line in lines if "x" in line.split()[-1] or "%" in line]
    assert rows == [*(r.name for r in RUNGS[:-2]), "numpy"]
    assert measure.main(["--shape", "16,24,40,56", "--rungs", "tile_k", "--show"]) == 0
    shown = capsys.readouterr().out
    assert "s.decompose_reduction('C', 'k_0')" in shown and "@T.prim_func" in shown
    with pytest.raises(SystemExit) as ended:
        measure.main(["--rungs", "packed", "--shape", "1,2,3,4"])
    assert ended.value.code == 2
    assert "packed: M must be a multiple of 256, got 1 in 1,2,3,4" in capsys.readouterr().err


def test_the_command_starts_with_one_thread(monkeypatch):
    started = []

    def run(command, env):
        started.append((command[1:], {name: env[name] for name in THREAD_VARIABLES}))
        return subprocess.run([*command, "--help"], env=env, stdout=subprocess.DEVNULL)

    monkeypatch.setattr(ladder_command, "subprocess", SimpleNamespace(run=run))
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "2")
    monkeypatch.setattr(sys, "argv", ["examples.ladder", "--rungs", "reorder"])
    assert ladder_command.main() == 0
    ones = dict.fromkeys(THREAD_VARIABLES, "1")
    assert started == [(["-m", "examples.ladder.measure", "--rungs", "reorder"], ones)]


@pytest.mark.parametrize("shape", [(7, 13), (1, 109), (3, 16), (5, 1)])
def test_softmax(shape):
    instance = workloads.make("softmax", shape)
    inputs = instance.inputs(np.random.default_rng(3))
    func = softmax.scheduled(softmax.softmax(*shape)).func
    assert tir.verify(func).ok
    for run in (tir.build(func), lambda *arrays: tir.run(func, *arrays)):
        outputs = instance.outputs()
        run(*inputs, *outputs)
        assert instance.check(outputs, inputs).ok


def test_the_softmax_command(capsys):
    softmax.main(7, 13)
    shown = capsys.readouterr().out
    assert "T.vectorized(16)" in shown and "unscheduled" in shown and "numpy" in shown
