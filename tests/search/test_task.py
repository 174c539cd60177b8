"""Tasks: their key, their operations, and that they are data."""

from __future__ import annotations

import json

import pytest

from search.keys import key
from search.measure.reference import NamedWorkload
from search.task import Task, flop, target_text
from tests import programs
from tir import te, workloads

SHAPE = (7, 13, 109)


def test_flop_counts_arithmetic_on_data_and_nothing_else():
    assert flop(workloads.make("gmm", SHAPE).func) == 2 * 7 * 13 * 109
    A = te.placeholder((7, 13), name="A")
    padded = te.compute((9, 13), lambda i, j: te.if_then_else(te.all(i >= 1, i < 8), A[i - 1, j], te.const(0.0)), name="P")
    assert flop(te.create_prim_func([A, padded])) == 0
    scaled = te.compute((7, 13), lambda i, j: te.exp(-A[i, j] * 2.0 + 1.0).astype("float64"), name="S")
    assert flop(te.create_prim_func([A, scaled])) == 7 * 13 * 4
    I = te.placeholder((5,), "int8", name="I")
    doubled = te.compute((5,), lambda i: I[i] * I[4 - i], name="J")
    assert flop(te.create_prim_func([I, doubled])) == 5


def test_key_ignores_the_name_of_the_function_only():
    func = workloads.make("gmm", SHAPE).func
    assert key(func) == key(func.with_(name="other"))
    assert key(func) != key(workloads.make("gmm", (7, 13, 110)).func)
    assert key(func) != key(workloads.make("gmm", SHAPE, "float64").func)


def test_target_text_keeps_every_option():
    from codegen.target import Target

    for target in (
        Target("llvm"),
        Target("llvm", num_cores=1, vector_bits=256, l2=512 * 1024),
        Target("llvm", mattr="+avx2,+fma"),
    ):
        assert Target(target_text(target)) == target


@pytest.mark.parametrize("workload", [None, NamedWorkload("gmm", SHAPE)])
def test_a_task_is_data(workload):
    task = Task.of(workloads.make("gmm", SHAPE).func, "llvm -num-cores 1 -vector-bits 256", name="mine", workload=workload)
    assert Task.from_json(json.loads(json.dumps(task.as_json()))) == task


@pytest.mark.parametrize("make", [programs.argmax, programs.dilated_conv, programs.squared_distances, programs.batched_matmul])
def test_any_function_is_the_same_after_its_journey(make):
    task = Task.of(make(), "llvm")
    assert Task.from_json(json.loads(json.dumps(task.as_json()))) == task
