"""The annotations that ask for a software pipeline."""

from __future__ import annotations

import numpy as np
import pytest

import tir
from codegen.cuda import emit, lower_cuda
from codegen.passes.software_pipeline import stage_count
from schedule.open_schedule import OpenSchedule
from schedule.templates import gpu
from schedule.templates.gpu import products
from tests.codegen.cuda.emulation import EmulationError, emulate_texts
from tests.codegen.cuda.kernels import TARGET, check, check_all, no_compiler
from tir import workloads
from tir.ir import Const, Evaluate, For, Kind, Var
from tir.script import parse


def loop(**annotations) -> For:
    return For(Var("k"), Const(4), Evaluate(Const(0)), Kind.SERIAL, tuple(annotations.items()))


def test_the_number_of_stages():
    assert stage_count(loop()) == 1 and stage_count(loop(double_buffer=True)) == 2
    assert [stage_count(loop(pipeline_stages=n)) for n in (1, 3, 16)] == [1, 3, 16]


@pytest.mark.parametrize("value", [0, -1, 17, 2.0, True, "2"])
def test_other_values_are_refused(value):
    with pytest.raises(ValueError) as caught:
        stage_count(loop(pipeline_stages=value))
    assert str(caught.value) == f"loop `k`: the annotation pipeline_stages must be an integer from 1 to 16, got {value!r}"


@no_compiler
def test_tiles_are_loaded_one_step_ahead() -> None:
    """Three tiles take turns, with one barrier a step; from sm_80 on by asynchronous copies, which are waited for before it."""
    instance = workloads.make("gmm", (60, 60, 68))
    s = OpenSchedule(instance.func, TARGET, at_seed=True)
    products.build(s, "C", products.TILES[2])
    func = s.func
    texts = {arch: emit(lower_cuda(func, tir.Target("cuda", arch=arch))).kernels for arch in ("sm_75", "sm_80")}
    assert all(text.count("__syncthreads();") == 1 for text in texts.values())
    assert "copy_async" not in texts["sm_75"] and texts["sm_80"].count("copy_async<16>(") == 4
    inputs = instance.inputs(np.random.default_rng(0))
    program = lower_cuda(func, TARGET)
    for emulated in emulate_texts(program, *texts.values()):
        outputs = instance.outputs()
        emulated(*inputs, *outputs)
        assert instance.check(outputs, inputs).ok
    never, late = (texts["sm_80"].replace("copy_async_wait<1>();", wrong) for wrong in ("", "copy_async_wait<2>();"))
    for emulated, message in zip(emulate_texts(program, never, late), ("ends with copies", "ends with copies|race"), strict=True):
        with pytest.raises(EmulationError, match=message):
            emulated(*inputs, *instance.outputs())


TWO_STEPS = """
@T.prim_func
def main(A: T.Buffer((2, 7, 12), "float32"), C: T.Buffer((2, 12), "float32")):
    for b in T.thread_binding(2, thread="blockIdx.x"):
        for step in T.serial(2, annotations={"pipeline_stages": 3}):
            tile = T.decl_buffer((4, 12), scope="shared")
            for t in T.thread_binding(48, thread="threadIdx.x"):
                if step * 4 + t // 12 < 7:
                    tile[t // 12, t % 12] = A[b, step * 4 + t // 12, t % 12]
            for i in T.thread_binding(12, thread="threadIdx.x"):
                for k in range(4):
                    if step * 4 + k < 7:
                        C[b, i] = C[b, i] + tile[k, i]
"""


@no_compiler
def test_copies_that_are_all_made_ahead_are_waited_for_by_all() -> None:
    """Two steps and three tiles: nothing is left to load in the loop, where each thread waits for the copies that it made."""
    func = parse(TWO_STEPS)
    text = check(func, func)
    assert text.index("copy_async_wait<1>();") < text.index("__syncthreads();")


@no_compiler
def test_images_are_copied_without_waiting() -> None:
    """Padding is zeros of the copy; pixels are copied one by one where rows do not line up, channels two by two where they do."""
    pairs, texts = [], []
    for name, shape, copies_of in (("conv2d", (1, 9, 11, 8, 16, 3, 3, 1, 1), 4), ("conv2d_nhwc", (1, 9, 11, 16, 32, 3, 1, 1), 8)):
        func = workloads.make(name, shape).func
        pairs.append((gpu.schedule(func).func, func))
        texts.append((emit(lower_cuda(pairs[-1][0], TARGET)).kernels, copies_of))
    for text, bytes_each in texts:
        inner = text[text.index("__syncthreads") :]
        copy = next(x for x in inner.splitlines() if f"copy_async<{bytes_each}>(pad_" in x)
        assert " && " in copy and "pad_global_shared[" not in inner[: inner.index("copy_async_commit")], text
    check_all(pairs)


@pytest.mark.parametrize(("old", "new"), [
    ('"pipeline_stages": 3', '"pipeline_stages": 1'),
    ("T.serial(2", "T.serial(1"),
    ("= A[b, step * 4 + t // 12, t % 12]", "= C[b, t % 12]"),  # the loop writes it
    ("scope=\"shared\")", "scope=\"shared\")\n            D[0] = T.float32(0)"),  # the load comes second
    ("+ tile[k, i]", "+ T.float32(1)\n            for t in T.thread_binding(48, thread=\"threadIdx.x\"):\n                tile[3, 0] = C[b, 0]"),
])  # fmt: skip
def test_loops_that_load_nothing_ahead(old, new):
    text = TWO_STEPS.replace("C: T", 'D: T.Buffer((1,), "float32"), C: T')
    assert old in text and "copy_async" in emit(lower_cuda(parse(text), TARGET)).text
    assert "copy_async" not in emit(lower_cuda(parse(text.replace(old, new)), TARGET)).text
