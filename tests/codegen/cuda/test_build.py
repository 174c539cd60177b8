"""The front door of the GPU backend: build, dump, reports, arguments and outcomes, with and without NVRTC and a GPU."""

from __future__ import annotations

import pickle
import sys

import numpy as np
import pytest

import tir
from codegen.cuda import driver, lower_cuda
from codegen.cuda.launch import launches
from tests.codegen.cuda.isolated import attempt
from tests.codegen.cuda.kernels import no_nvrtc
from tir import te, workloads
from tir.ir import PrimFunc

no_gpu = pytest.mark.skipif(driver.devices() == 0, reason="there is no GPU")


def product() -> PrimFunc:
    return tir.default_schedule(workloads.make("gmm", (37, 29, 41)).func, "cuda").func


@no_nvrtc
def test_a_kernel_tells_what_it_takes() -> None:
    kernel = tir.build(product(), "cuda -arch sm_80")
    report = kernel.report()
    assert kernel.code[:4] == b"\x7fELF" and "__global__" in kernel.source
    assert kernel.source == tir.dump(product(), "cuda -arch sm_80")
    assert repr(kernel) == "<CudaKernel gmm(A[37, 29], B[29, 41], C[37, 41]) for cuda -arch sm_80>"
    assert report.threads == (128,) and report.spills == 0 and report.kernels[0].registers > 8
    assert report.kernels[0].shared == 3 * 2 * 16 * 16 * 4
    assert report.ways == (1,)
    assert "gmm_kernel0" in str(report)


@no_nvrtc
def test_fast_math_is_a_choice_of_the_target() -> None:
    func = tir.default_schedule(workloads.make("softmax", (3, 64)).func, "cuda").func
    exact, fast = (tir.build(func, tir.Target("cuda", fast_math=f)) for f in (False, True))
    assert exact.source == fast.source and exact.code != fast.code


@no_nvrtc
def test_more_shared_memory_than_the_usual() -> None:
    """Above 48 KiB it is dynamic, and the launch asks for it."""
    A = te.placeholder((4, 20000), "float32", name="A")
    B = te.compute((4, 20000), lambda i, j: A[i, j] + te.const(1, "float32"), name="B")
    C = te.compute((4, 20000), lambda i, j: B[i, 19999 - j], name="C")
    s = tir.Schedule(te.create_prim_func([A, C]))
    i, j = s.get_loops("C")
    s.compute_at("B", i)
    s.set_scope("B", 0, "shared")
    _, tx = s.split(j, [None, 128])
    s.bind(tx, "threadIdx.x")
    _, tx = s.split(s.get_loops("B")[-1], [None, 128])
    s.bind(tx, "threadIdx.x")
    s.bind(i, "blockIdx.x")
    kernel = tir.build(s.func, "cuda")
    assert kernel.report().dynamic == (80000,) and "extern __shared__" in kernel.source


@no_nvrtc
def test_a_report_tells_of_conflicts_in_shared_memory() -> None:
    """A tile of 32 by 32, written by rows and read by columns."""
    A = te.placeholder((64, 64), "float32", name="A")
    B = te.compute((64, 64), lambda i, j: A[j, i], name="B")
    for padded, ways in ((False, 32), (True, 1)):
        s = tir.Schedule(te.create_prim_func([A, B]))
        copy = s.cache_read("B", 0, "shared")
        i, j = s.get_loops("B")
        io, ii, jo, ji = *s.split(i, [None, 32]), *s.split(j, [None, 32])
        s.reorder(io, jo, ii, ji)
        s.compute_at(copy, jo)
        for name in (copy, "B"):
            s.bind(s.get_loops(name)[-1], "threadIdx.x")
        s.bind(io, "blockIdx.y")
        s.bind(jo, "blockIdx.x")
        if padded:
            s.storage_align(copy, 0, -2, 32, 1)
        assert tir.build(s.func, "cuda").report().ways == (ways,)


def test_without_nvrtc_the_error_says_what_to_install(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    monkeypatch.setitem(sys.modules, "cuda.bindings.nvrtc", None)
    with pytest.raises(ImportError, match=r"compiling CUDA C needs NVRTC .*: install the extra `cuda`"):
        tir.build(product(), "cuda")
    assert "__global__" in tir.dump(product(), "cuda")


def test_the_host_launches_kernels_in_order() -> None:
    func = tir.default_schedule(workloads.make("mlp", (7, 13, 109, 5)).func, "cuda").func
    program = lower_cuda(func, tir.Target("cuda"))
    steps = list(launches(program, {}))
    assert [number for number, _, _ in steps] == [0, 1]
    assert all(x * y * z > 0 for _, (x, y, z), _ in steps)


class OnDevice:
    """Something that says it is on the device."""

    def __init__(self, shape, dtype="<f4", address=4096, strides=None):
        self.__cuda_array_interface__ = {
            "shape": shape,
            "typestr": dtype,
            "data": (address, False),
            "version": 3,
            "strides": strides,
        }


def test_arrays_describe_themselves() -> None:
    assert driver.array_description(OnDevice((3, 4)))[:4] == (4096, (3, 4), "float32", True)
    assert driver.array_description(OnDevice((3, 4), "<i2", strides=(8, 2)))[2:4] == ("int16", True)
    assert driver.array_description(OnDevice((3, 4), strides=(4, 12)))[3] is False
    for stream in (None, 0):
        with pytest.raises(TypeError, match="must be on the device, got ndarray in the host's memory"):
            driver.array_description(np.zeros((3, 4), "float32"), stream)
    with pytest.raises(TypeError, match="must be on the device, with DLPack or __cuda_array_interface__, got list"):
        driver.array_description([1, 2])


def test_errors_of_the_driver_survive_a_pipe() -> None:
    error = driver.DeviceError("CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered", "cuStreamSynchronize")
    assert error.sticky and not driver.DeviceError("CUDA_ERROR_OUT_OF_MEMORY", "out of memory", "cuMemAlloc").sticky
    again = pickle.loads(pickle.dumps(error))
    assert (again.name, again.sticky, str(again)) == (error.name, True, str(error))


@no_nvrtc
def test_attempts_end_in_typed_outcomes() -> None:
    too_many = tir.Schedule(workloads.make("softmax", (2048, 8)).func)
    too_many.bind(too_many.get_loops("Y")[0], "threadIdx.x")
    arrays = [np.zeros((2048, 8), "float32"), np.zeros((2048, 8), "float32")]
    tried = attempt(too_many.func, "cuda", arrays)
    assert tried.kind == "schedule_error" and "more than 1024" in tried.message
    if driver.devices() == 0:
        tried = attempt(product(), "cuda", [np.zeros((37, 29), "f4"), np.zeros((29, 41), "f4"), np.zeros((37, 41), "f4")])
        assert tried.kind == "device_error" and "CUDA_ERROR_NO_DEVICE" in tried.message


@no_gpu
def test_a_kernel_runs_on_the_device() -> None:
    instance = workloads.make("gmm", (37, 29, 41))
    inputs = instance.inputs(np.random.default_rng(0))
    outputs = instance.outputs()
    tried = attempt(product(), f"cuda -arch {driver.architecture()}", [*inputs, *outputs])
    assert tried.kind == "ok" and instance.check(tried.outputs[-1:], inputs).ok
