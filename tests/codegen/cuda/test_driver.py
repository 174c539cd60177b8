"""The host's side of the GPU on cuda-python itself, beside a driver that has no GPU (`fake_driver.cpp`).

The tests are in one child process, whose loader finds that driver.
"""

from __future__ import annotations

import ctypes
import gc
import pickle
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest

import tir
from codegen.cuda import driver, lower_cuda
from codegen.runtime.dlpack import DLTensor
from schedule.templates import gpu
from tests.arrays import integers
from tests.codegen.cuda.fake import inside, outside, run_inside
from tests.codegen.cuda.isolated import attempt
from tests.programs import matmul
from tir import te
from tir.ir import PrimFunc
from tir.script import parse

TARGET = tir.Target("cuda", arch="sm_90")


def split_sum() -> PrimFunc:
    """Two kernels, with a temporary between them."""
    return matmul(9, 1030, 7).with_(name="split")


def sized() -> PrimFunc:
    """Of any size, which the kernel is told."""
    n = te.var("n")
    A = te.placeholder((n,), "float32", name="A")
    return te.create_prim_func([n, A, te.compute((n,), lambda i: A[i] + te.const(1, "float32"), name="B")], name="sized")


def much_shared_memory() -> PrimFunc:
    """A kernel whose block has 52000 bytes."""
    A = te.placeholder((2, 13000), "float32", name="A")
    B = te.compute((2, 13000), lambda i, j: A[i, j] * te.const(2, "float32"), name="B")
    s = tir.Schedule(te.create_prim_func([A, te.compute((2, 13000), lambda i, j: B[i, 12999 - j], name="C")], name="reversed"))
    i, j = s.get_loops("C")
    s.compute_at("B", i)
    s.set_scope("B", 0, "shared")
    for loop in (j, s.get_loops("B")[-1]):
        s.bind(s.split(loop, [None, 128])[1], "threadIdx.x")
    s.bind(i, "blockIdx.x")
    return s.func


def every_other() -> PrimFunc:
    """A kernel that writes every other element of its output, the others of which are zeros."""
    return parse("""
@T.prim_func
def half(A: T.Buffer((13,), "float32"), B: T.Buffer((13,), "float32")):
    for i in T.thread_binding(7, thread="threadIdx.x"):
        B[i * 2] = A[i * 2]
""")


def scheduled() -> dict[str, PrimFunc]:
    made = {f.name: gpu.schedule(f, TARGET.arch).func for f in (split_sum(), sized())}
    return {**made, "reversed": much_shared_memory(), "half": every_other()}


@outside
def test_the_host_beside_a_driver_without_a_gpu(tmp_path) -> None:
    run_inside(__file__, tmp_path, 21, *(lower_cuda(f, TARGET) for f in scheduled().values()))


@pytest.fixture(scope="module")
def kernels():
    return {name: tir.build(func, TARGET) for name, func in scheduled().items()}


@inside
def test_the_device_is_described() -> None:
    assert driver.devices() == 1 and driver.architecture() == "sm_90" and driver.attribute("L2_CACHE_SIZE") == 1 << 16
    assert driver.device_name() == "Emulation"
    target = tir.Target("cuda", **driver.here())
    assert str(target) == "cuda -arch sm_90 -sms 33 -clock 1980 -l2 65536 -memory 4916" == str(tir.Target(str(target)))
    assert (target.machine.sms, target.machine.l2, target.machine.memory) == (33, 1 << 16, 2483)


@inside
def test_kernels_with_temporaries_between_them(kernels) -> None:
    a, b, c = (a.astype("float32") for a in integers(split_sum(), 0))
    given = [driver.DeviceArray.of(x) for x in (a, b, c)]
    held = ctypes.CDLL("libcuda.so.1").fake_memory
    for stream in (0, 2):  # the legacy stream, and that of the thread
        given[2] = driver.DeviceArray.of(c)
        before = held()
        kernels["split"](*given, stream=stream)
        driver.synchronize(stream)
        assert np.array_equal(given[2].numpy(), a @ b) and held() == before


@contextmanager
def new_stream(blocking: bool = False) -> Iterator[int]:
    """A stream, as a handle; one that does not block runs beside the legacy stream."""
    with driver.current_context():
        stream = driver.call("cuStreamCreate", 0 if blocking else 1)
    yield int(stream)
    with driver.current_context():
        driver.call("cuStreamSynchronize", stream)
        driver.call("cuStreamDestroy", stream)


@inside
def test_threads_that_share_a_stream_have_temporaries_of_their_own(kernels) -> None:
    """The kernels of two calls follow one another in any order on one stream."""
    rng = np.random.default_rng(0)
    a, b, c = integers(split_sum(), 0)
    factors = [rng.integers(-9, 9, a.shape).astype("float32") for _ in range(4)]
    with new_stream() as stream:
        given = [[driver.DeviceArray.of(x) for x in (f, b, c)] for f in factors]

        def work(mine: list[driver.DeviceArray]) -> None:
            for _ in range(4):
                kernels["split"](*mine, stream=stream)

        threads = [threading.Thread(target=work, args=(mine,)) for mine in given]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for f, mine in zip(factors, given, strict=True):
            assert np.array_equal(mine[2].numpy(stream), f @ b)


@inside
def test_each_threads_own_stream_has_temporaries_of_its_own(kernels) -> None:
    """One handle, 2, is a stream for each host thread."""
    a, b, c = integers(split_sum(), 0)
    results: dict[int, np.ndarray] = {}

    def work(n: int) -> None:
        given = [driver.DeviceArray.of(x) for x in (n * a, b, c)]
        for _ in range(4):
            kernels["split"](*given, stream=2)
        results[n] = given[2].numpy(2)

    threads = [threading.Thread(target=work, args=(n,)) for n in (1, 2, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(np.array_equal(results[n], n * (a @ b)) for n in (1, 2, 3))


@inside
def test_copies_are_ordered_with_streams_that_do_not_block(kernels) -> None:
    with new_stream() as stream:
        kept = []  # dropped arrays are waited for
        for _ in range(3):
            kept += [driver.DeviceArray.of(np.ones(13, "float32")), driver.DeviceArray((13,), "float32")]
            kernels["sized"](13, *kept[-2:], stream=stream)
            assert np.array_equal(kept[-1].numpy(), np.full(13, 2))


@inside
def test_zeros_of_outputs_are_in_the_order_of_the_stream(kernels) -> None:
    a = np.arange(1, 14, dtype="float32")
    with new_stream() as stream:
        out = kernels["half"](driver.DeviceArray.of(a), stream=stream)
        assert np.array_equal(out.numpy(stream), np.where(np.arange(13) % 2, 0, a))


@inside
def test_the_callers_device_stays_current(kernels) -> None:
    def current() -> int:
        return int(driver.call("cuCtxGetCurrent"))

    seen = []

    def work() -> None:
        array = driver.DeviceArray.of(np.ones(13, "float32"))
        out = kernels["sized"](13, array)
        driver.attribute("L2_CACHE_SIZE")
        driver.synchronize()
        seen.extend([current(), out.numpy()[0]])

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [0, 2]


@inside
@pytest.mark.parametrize("mode", [0, 1])
def test_a_first_call_may_be_captured(mode) -> None:
    """It loads its module and has its temporaries in the graph, whose launches read what the inputs hold then."""
    kernel = tir.build(scheduled()["split"], TARGET)
    a, b, c = integers(split_sum(), 0)
    given = [driver.DeviceArray.of(x) for x in (a, b, c)]
    with new_stream() as stream, driver.current_context():
        driver.call("cuStreamBeginCapture", stream, type_of("CUstreamCaptureMode", mode))
        kernel(*given, stream=stream)
        graph = driver.call("cuStreamEndCapture", stream)
        assert not np.array_equal(given[2].numpy(), a @ b)
        made = driver.call("cuGraphInstantiate", graph, 0)
        for _ in range(2):
            driver.call("cuGraphLaunch", made, stream)
            assert np.array_equal(given[2].numpy(stream), a @ b)
        driver.call("cuGraphExecDestroy", made)
        driver.call("cuGraphDestroy", graph)


@inside
def test_what_waits_breaks_a_capture() -> None:
    """The fake driver's check, without which the test above shows nothing."""
    with new_stream() as stream, driver.current_context():
        driver.call("cuStreamBeginCapture", stream, type_of("CUstreamCaptureMode", 0))
        with pytest.raises(driver.DeviceError, match="cuMemAlloc: CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"):
            driver.call("cuMemAlloc", 16)
        with pytest.raises(driver.DeviceError, match="CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"):
            driver.call("cuStreamEndCapture", stream)


def type_of(name: str, value: int):
    return getattr(driver._bindings(), name)(value)


@inside
def test_modules_are_unloaded_with_their_kernels(kernels) -> None:
    def counts() -> tuple[int, int]:
        library = ctypes.CDLL("libcuda.so.1")
        loaded, gone = ctypes.c_int(), ctypes.c_int()
        library.fake_modules(ctypes.byref(loaded), ctypes.byref(gone))
        return loaded.value, gone.value

    kernel = tir.build(scheduled()["half"], TARGET)
    before = counts()
    out = kernel(driver.DeviceArray.of(np.ones(13, "float32")))
    assert counts() == (before[0] + 1, before[1])
    del kernel
    gc.collect()
    assert counts() == (before[0], before[1] + 1) and out.numpy()[0] == 1


@inside
def test_other_threads_and_arrays_that_are_dropped(kernels) -> None:
    """A context is current in one thread; a call does not wait, and its arguments may be dropped at once."""
    results: list[np.ndarray] = []

    def work() -> None:
        out = driver.DeviceArray((109,), "float32")
        kernels["sized"](109, driver.DeviceArray.of(np.arange(109, dtype="float32")), out)
        results.append(out.numpy())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert np.array_equal(results[0], np.arange(1, 110))


@inside
def test_a_thread_keeps_its_context() -> None:
    """It may work with another device while arrays of the first are waited for, copied and dropped."""
    array = driver.DeviceArray.of(np.arange(7))
    seen = []

    def work() -> None:
        nonlocal array
        driver.synchronize()
        array.numpy()
        del array
        seen.append(int(driver.call("cuCtxGetCurrent")))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [0]


class Homeless:
    """What has DLPack, but no data that it could say where it is."""

    def __init__(self, error: type[Exception]):
        self.error = error

    def __dlpack_device__(self) -> tuple[int, int]:
        raise self.error("no data")


@pytest.mark.parametrize("error", [ValueError, RuntimeError, BufferError])
def test_arrays_without_data_are_refused(error) -> None:
    with pytest.raises(TypeError, match=r"^must be on the device, got Homeless, whose __dlpack_device__ says: no data$"):
        driver.array_description(Homeless(error))


class Exported:
    """An array on the device with DLPack alone, as torch has for some types."""

    def __init__(self, array: driver.DeviceArray):
        self.array = array

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 0

    def __dlpack__(self):
        """The capsule of an array of numpy whose data is elsewhere."""
        a = self.array
        capsule = np.empty(a.shape, a.dtype).__dlpack__()
        get = ctypes.pythonapi.PyCapsule_GetPointer
        get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
        tensor = DLTensor.from_address(get(capsule, b"dltensor"))
        tensor.data, tensor.device_type = a.pointer, 2
        return capsule


@inside
def test_arguments_by_dlpack(kernels) -> None:
    out = driver.DeviceArray((13,), "float32")
    kernels["sized"](13, Exported(driver.DeviceArray.of(np.ones(13, "float32"))), Exported(out))
    assert np.array_equal(out.numpy(), np.full(13, 2))


@inside
def test_much_shared_memory_is_asked_for(kernels) -> None:
    (a, _) = integers(much_shared_memory(), 0)
    out = driver.DeviceArray(a.shape, a.dtype)
    kernels["reversed"](driver.DeviceArray.of(a), out)
    assert np.array_equal(out.numpy(), 2 * a[:, ::-1])


@inside
def test_times_are_those_of_events(kernels) -> None:
    arrays = [driver.DeviceArray.of(np.ones(7, "float32")) for _ in range(2)]
    for flush in (True, False):
        timing = kernels["sized"].time(7, *arrays, seconds=0.0, runs=3, flush=flush)
        assert len(timing.samples) == 3 and min(timing.samples) > 0


@inside
def test_a_process_of_its_own() -> None:
    arrays = integers(split_sum(), 0)
    tried = attempt(scheduled()["split"], str(TARGET), arrays, timeout=600)  # the suite may be busy
    assert tried.kind == "ok" and np.array_equal(tried.outputs[2], arrays[0] @ arrays[1]), tried


@inside
def test_what_loses_the_context_is_sticky(kernels) -> None:
    """The last of the child: nothing works behind it."""
    short = driver.DeviceArray((13,), "float32")
    short.shape = (7000,)  # a lie
    out = driver.DeviceArray((7000,), "float32")
    kernels["sized"](7000, short, out)
    with pytest.raises(driver.DeviceError, match="CUDA_ERROR_ILLEGAL_ADDRESS") as caught:
        driver.synchronize()
    assert caught.value.sticky and pickle.loads(pickle.dumps(caught.value)).sticky
    with pytest.raises(driver.DeviceError, match="CUDA_ERROR_ILLEGAL_ADDRESS"):
        driver.DeviceArray((1,), "float32")
