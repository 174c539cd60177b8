"""`tir.dump`: the program after each stage of code generation; and what `tir.build` takes."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import codegen
import tir
from codegen.cuda import GPUError
from codegen.passes import CPU_PASSES, GPU_PASSES
from schedule import Schedule
from tir import te
from tir.interpreter import run
from tir.ir import Buffer, Const, For, If, Load, PrimFunc, Store, Var, seq
from tir.script import parse
from tir.traverse import blocks
from tir.verify import VerifyError

from .harness import same
from .matmul import matmul, operands, tiled

ONE = "llvm -num-cores 1"
FUNC = tiled(7, 13, 109, 3, 32)


@pytest.mark.parametrize(
    ("target", "passes", "texts"), [("llvm", CPU_PASSES, ["llvm_ir", "asm"]), ("cuda", GPU_PASSES, ["cuda"])]
)
def test_names_of_stages(target, passes, texts):
    names = codegen.stage_names(target)
    assert names == [*codegen.pass_names(target), *texts]
    assert [re.sub(r"_\d+$", "", n) for n in codegen.pass_names(target)] == [p.__name__ for p in passes]
    assert len(set(names)) == len(names)
    assert codegen.stage_names() == codegen.stage_names("llvm")


@pytest.mark.parametrize("name", codegen.pass_names())
def test_each_pass_keeps_the_meaning(name):
    """What a pass made can still be run."""
    after = codegen.lower(FUNC, codegen.Target(ONE), after=name)
    assert tir.dump(FUNC, ONE, after=name) == after.script()
    assert not blocks(after)
    a, b, c = operands(7, 13, 109)
    run(after, a, b, c)
    assert (c == a @ b).all()


def test_all_passes():
    text = tir.dump(FUNC, ONE)
    assert re.findall(r"^# --- after (\w+) ---$", text, re.MULTILINE) == codegen.pass_names()
    assert text.endswith(tir.dump(FUNC, ONE, after=codegen.pass_names()[-1]))


def test_llvm_ir_and_assembly():
    kernel = codegen.build(FUNC, ONE)
    assert tir.dump(FUNC, ONE, after="llvm_ir") == kernel.llvm_ir()
    assert tir.dump(FUNC, ONE, after="asm") == kernel.asm()
    assert "define i32 @tir_main(" in kernel.llvm_ir() and "tir_main:" in kernel.asm()


def test_unknown_stages_are_refused():
    with pytest.raises(ValueError) as raised:
        tir.dump(FUNC, ONE, after="llvm")
    assert str(raised.value) == f"dump: stage 'llvm' does not exist for llvm; the stages are {', '.join(codegen.stage_names())}"


def test_what_can_be_dumped():
    with pytest.raises(TypeError) as raised:
        tir.dump("matmul")  # type: ignore[arg-type]
    assert str(raised.value) == "dump takes a PrimFunc, got str"
    s = Schedule(matmul(3, 4, 5))
    assert tir.dump(s) == tir.dump(s.func)
    with pytest.raises(ValueError) as refused:
        tir.dump(FUNC, "cuda", after="asm")
    assert (
        str(refused.value)
        == f"dump: stage 'asm' does not exist for cuda; the stages are {', '.join(codegen.stage_names('cuda'))}"
    )
    assert tir.dump(FUNC, "cuda").startswith('extern "C" __global__ void')


# --- what is built ------------------------------------------------------------------------------------------------------------


def reading(index: Callable[[Any, Any], Any], extent: int = 13) -> PrimFunc:
    A, at = te.placeholder((8,), "float32", name="A"), te.placeholder((13,), "int32", name="at")
    element = lambda i, j: A[index(i, j)] + te.if_then_else(at[0] > 0, 1.0, 0.0)  # noqa: E731
    return te.create_prim_func([A, at, te.compute((extent, 1000), element, name="B")])


@pytest.mark.parametrize("target", [ONE, "cuda"])
def test_an_access_outside_is_refused(target):
    func = reading(lambda i, j: i * 100000)
    with pytest.raises(VerifyError) as raised:
        codegen.build(func, target)
    assert str(raised.value).splitlines()[:2] == [
        "main: 1 error(s), 0 unproved",
        "error: index `v_i * 100000` of dimension 0 of `A` is 100000, outside 0 .. 7, where i=1",
    ]
    assert codegen.build(func, ONE, checked=False).func is func


def test_each_iteration_is_tried_where_no_proof_is_found():
    """Those in the middle too, where they are too many to try at once; where they are too many in all, nothing is built."""

    def zero(i, j):  # a square is 0 or 1 modulo 4
        square = (i + j) * (i + j) % 4
        return square * (square - 1)

    with pytest.raises(VerifyError, match=r"is 8, outside 0 \.\. 7, where i=444, j=391"):
        codegen.build(reading(lambda i, j: te.select(te.all(i.equal(444), j.equal(391)), 8, 0), 1000), ONE)
    codegen.build(reading(zero, 1000), ONE)
    with pytest.raises(VerifyError, match="unproved: cannot prove that index"):
        codegen.build(reading(zero, 10**6), ONE)


def test_what_a_call_decides_is_left_to_the_caller():
    A, at = te.placeholder((8,), "float32", name="A"), te.placeholder((13,), "int32", name="at")
    func = te.create_prim_func([A, at, te.compute((13,), lambda i: A[at[i]], name="B")])
    a, index, b = np.arange(8, dtype=np.float32), np.arange(13, dtype=np.int32) % 8, np.zeros(13, np.float32)
    codegen.build(func, ONE)(a, index, b)
    assert (b == a[index]).all()


def test_a_long_chain_of_stages():
    """Whose temporaries overlap, each with the next, so that their allocations stand inside one another."""
    stages = [te.placeholder((7,), name="A")]
    for n in range(300):
        stages.append(te.compute((7,), (lambda x: lambda i: x[i] + 1.0)(stages[-1]), name=f"B{n}"))
    a, b = np.zeros(7, np.float32), np.empty(7, np.float32)
    codegen.build(te.create_prim_func([stages[0], stages[-1]]), ONE)(a, b)
    assert (b == 300).all()


def test_a_condition_alone_uses_a_temporary():
    """Nothing that it guards does."""
    A, B, T = (Buffer(n, (Const(7),)) for n in "ABT")
    v = Var("i")
    guarded = If(Load(T, (v,)) > 0.0, seq(Store(B, (v,), Load(A, (v,))), Store(A, (v,), Load(B, (v,)) + 1.0)))
    func = PrimFunc("main", (A, B), For(v, Const(7), seq(Store(T, (v,), Load(A, (v,)) - 3.0), guarded)), (T,))
    same(func, [np.arange(7, dtype=np.float32), np.zeros(7, np.float32)])


# --- GPUs --------------------------------------------------------------------------------------------------------------------


def blocked(m: int, k: int, n: int) -> PrimFunc:
    """The product in tiles of 8 x 16 elements, a thread two of them by virtual threads, loaded in steps of 4 by shared memory."""
    s = Schedule(matmul(m, k, n))
    copies = [s.cache_read("C", operand, "shared") for operand in ("A", "B")]
    i, j, r = s.get_loops("C")
    bi, vi, ti = s.split(i, [None, 2, 4])
    bj, tj = s.split(j, [None, 16])
    ro, ri = s.split(r, [None, 4])
    s.reorder(bi, bj, ro, vi, ti, tj, ri)
    for copy in copies:
        s.compute_at(copy, ro)
        s.bind(s.get_loops(copy)[-1], "threadIdx.x")
    s.decompose_reduction("C", ro)
    for loop, axis in ((bi, "blockIdx.y"), (bj, "blockIdx.x"), (vi, "vthread.x"), (ti, "threadIdx.y"), (tj, "threadIdx.x")):
        s.bind(loop, axis)
    s.annotate(ro, "pipeline_stages", 2)
    return s.func


GPU_FUNC = blocked(13, 7, 29)
GPU_NAMES = codegen.pass_names("cuda")
SEQUENTIAL = GPU_NAMES[: GPU_NAMES.index("inject_software_pipeline")]  # behind which threads run together


@pytest.mark.parametrize("name", GPU_NAMES)
def test_each_gpu_pass_gives_a_script(name):
    target = codegen.Target("cuda")
    after = codegen.lower(GPU_FUNC, target, after=name)
    assert tir.dump(GPU_FUNC, target, after=name) == after.script()
    assert name == GPU_NAMES[0] or not blocks(after)
    for call, maker in (("T.copy_async_wait(", "inject_software_pipeline"), ("T.sync_threads()", "thread_storage_sync")):
        assert (call in after.script()) == (GPU_NAMES.index(name) >= GPU_NAMES.index(maker))
    assert ("vthread" in after.script()) == (GPU_NAMES.index(name) < GPU_NAMES.index("inject_virtual_thread"))


@pytest.mark.parametrize("name", SEQUENTIAL)
def test_gpu_passes_keep_the_meaning_until_threads_run_together(name):
    after = codegen.lower(GPU_FUNC, codegen.Target("cuda"), after=name)
    a, b, c = operands(13, 7, 29)
    run(after, a, b, c)
    assert (c == a @ b).all()
    again = parse(after.script())  # loops of one axis share a variable, which a script names apart
    assert parse(again.script()).script() == again.script()
    a, b, c = operands(13, 7, 29, seed=1)
    run(again, a, b, c)
    assert (c == a @ b).all()


def test_kernels_have_one_form():
    script = tir.dump(GPU_FUNC, "cuda", after="unify_thread_binding")
    assert re.findall(r"^    for (\w+) in T.thread_binding\((\d+)", script, re.MULTILINE) == [("bx", "2")]
    assert set(re.findall(r"for (\w+) in T.thread_binding\(\d+, thread=\"threadIdx", script)) == {"tx", "ty"}
    last = tir.dump(GPU_FUNC, "cuda", after="unroll")
    assert re.findall(r"^ *for (\w+) in T.thread_binding\((\d+)", last, re.MULTILINE) == [
        ("bx", "2"),
        ("by", "2"),
        ("tx", "16"),
        ("ty", "4"),
    ]


def test_annotations_of_thread_loops_do_not_reach_the_kernel():
    """Not even the one by which passes know the loops around a kernel whose threads run together."""
    texts = []
    for name in ("together", "other"):
        s = Schedule(matmul(7, 3, 5))
        i, j, _ = s.get_loops("C")
        s.bind(i, "blockIdx.x")
        s.bind(j, "threadIdx.x")
        s.annotate(j, name, True)
        texts.append(tir.dump(s.func, "cuda"))
        assert name not in tir.dump(s.func, "cuda", after="unify_thread_binding")
    assert texts[0] == texts[1]


def test_unknown_gpu_passes_are_refused():
    with pytest.raises(ValueError) as unknown:
        codegen.lower(GPU_FUNC, codegen.Target("cuda"), after="split_vectors")
    assert str(unknown.value) == f"pass 'split_vectors' does not exist; the passes are {', '.join(GPU_NAMES)}"


@pytest.mark.parametrize(("scope", "message"), [
    ("wmma.matrix_a", "`A_wmma_matrix_a`: memory scope `wmma.matrix_a` is not supported on a GPU; use shared or local"),
    (
        "shared",
        "`A_shared` in shared memory is used by two kernels, main_kernel0 and main_kernel1; keep it in global memory, or move "
        "its producer into the loops of its consumer (compute_at)",
    ),
])  # fmt: skip
def test_memory_that_a_kernel_cannot_have_is_refused(scope, message):
    s = Schedule(matmul(7, 3, 5))
    copy = s.cache_read("C", "A", scope)
    for block in (copy, "C"):
        s.bind(s.get_loops(block)[0], "threadIdx.x")
    with pytest.raises(GPUError) as refused:
        codegen.lower(s.func, codegen.Target("cuda"), after="unify_thread_binding")
    assert str(refused.value) == message
