"""The CUDA driver, through cuda-python: modules, launches, device memory, and errors that say whether the context is lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from typing import TYPE_CHECKING, Any
from weakref import finalize

import numpy as np

from ..runtime.dlpack import capsule, exported, is_row_major
from .compile import INSTALL, available

if TYPE_CHECKING:
    from ..target import Target

# Errors after which every call in this process fails: only a new process helps.
STICKY = frozenset(
    f"CUDA_ERROR_{name}"
    for name in (
        "ILLEGAL_ADDRESS", "LAUNCH_TIMEOUT", "HARDWARE_STACK_ERROR", "ILLEGAL_INSTRUCTION", "MISALIGNED_ADDRESS",
        "INVALID_ADDRESS_SPACE", "INVALID_PC", "LAUNCH_FAILED", "ASSERT", "ECC_UNCORRECTABLE",
    )
)  # fmt: skip


LEGACY_STREAM = 1  # the handle of the stream that waits for all blocking streams; 0 may stand for that of the thread


class DeviceError(RuntimeError):
    """A failed call of the driver: the name of the error, and whether it is `sticky`, so that all later calls fail, too."""

    def __init__(self, name: str, text: str, call: str):
        super().__init__(f"{call}: {name} ({text})")
        self.name, self.sticky = name, name in STICKY

    def __reduce__(self):
        return _rebuilt, (self.name, str(self))


def _rebuilt(name: str, message: str) -> DeviceError:
    error = DeviceError(name, "", "")
    error.args = (message,)
    return error


def _bindings():
    try:
        from cuda.bindings import driver
    except ImportError as error:
        raise ImportError(f"running CUDA kernels needs cuda-python ({error}): {INSTALL}") from error
    return driver


def call(name: str, *args: Any) -> Any:
    """Call a function of the driver; returns its results without the status. Raises DeviceError."""
    driver = _bindings()
    try:
        status, *values = getattr(driver, name)(*args)
    except RuntimeError as error:  # there is no libcuda
        raise DeviceError("CUDA_ERROR_NO_DEVICE", str(error), name) from error
    if status != driver.CUresult.CUDA_SUCCESS:
        text = driver.cuGetErrorString(status)[1]
        raise DeviceError(status.name, text.decode() if text else "", name)
    return values[0] if len(values) == 1 else tuple(values)


@cache
def _primary(device: int) -> Any:
    call("cuInit", 0)
    return call("cuDevicePrimaryCtxRetain", call("cuDeviceGet", device))


@contextmanager
def current_context() -> Iterator[None]:
    """Make the primary context of the first device, which torch uses as well, current in this thread, and at the end the
    previous one."""
    call("cuCtxPushCurrent", _primary(0))
    try:
        yield
    finally:
        call("cuCtxPopCurrent")


@contextmanager
def _uncaptured() -> Iterator[None]:
    """Make the context current, and let this thread allocate and load while streams are captured into graphs."""
    mode = _bindings().CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
    with current_context():
        before = call("cuThreadExchangeStreamCaptureMode", mode)
        try:
            yield
        finally:
            call("cuThreadExchangeStreamCaptureMode", before)


def attribute(name: str, device: int = 0) -> int:
    """A device attribute, such as "MULTIPROCESSOR_COUNT" or "L2_CACHE_SIZE"."""
    call("cuInit", 0)
    kinds = _bindings().CUdevice_attribute
    return int(call("cuDeviceGetAttribute", getattr(kinds, f"CU_DEVICE_ATTRIBUTE_{name}"), call("cuDeviceGet", device)))


def architecture() -> str:
    """The device's own architecture, as "sm_90"."""
    return f"sm_{attribute('COMPUTE_CAPABILITY_MAJOR')}{attribute('COMPUTE_CAPABILITY_MINOR')}"


@cache
def device_name() -> str:
    """The name of the GPU here; empty without one."""
    if not devices():
        return ""
    name = call("cuDeviceGetName", 128, call("cuDeviceGet", 0))
    return str(name.split(b"\0")[0].decode(errors="replace").strip())


def devices() -> int:
    """The number of GPUs; 0 where there is no driver, or cuda-python is missing."""
    try:
        call("cuInit", 0)
        return int(call("cuDeviceGetCount"))
    except (DeviceError, ImportError):
        return 0


def here() -> dict[str, Any]:
    """Options of a target that describe the device here; empty without a GPU."""
    if not devices():
        return {}
    both_edges = 2 * attribute("MEMORY_CLOCK_RATE") * attribute("GLOBAL_MEMORY_BUS_WIDTH") // 8  # bytes in a millisecond
    found = {"sms": attribute("MULTIPROCESSOR_COUNT"), "clock": attribute("CLOCK_RATE") // 1000, "l2": attribute("L2_CACHE_SIZE")}
    return {"arch": architecture(), **found, "memory": both_edges // 10**6}


def missing(target: Target) -> str:
    """The reason why no kernel for a target can run here; empty if one can."""
    if reason := available():
        return reason
    try:
        call("cuInit", 0)
        return "" if call("cuDeviceGetCount") else "the CUDA driver knows no GPU"
    except (DeviceError, ImportError) as error:
        return f"there is no GPU here ({error})"


def _release_with(owner: object, name: str, handle: Any, waits: bool = False) -> None:
    """Call a function of the driver on `handle` once nobody holds `owner`, in whichever thread that is; with `waits`, after all
    work. The end of the process releases the rest."""
    finalize(owner, _release, name, handle, waits).atexit = False


def _release(name: str, handle: Any, waits: bool) -> None:
    with suppress(DeviceError, ImportError), _uncaptured():  # the context may be lost
        if waits:
            call("cuCtxSynchronize")
        call(name, handle)


class Module:
    """Machine code loaded into the context, until nobody holds it and its kernels have ended."""

    def __init__(self, code: bytes):
        with _uncaptured():
            self._module = call("cuModuleLoadData", code)
        self._functions: dict[str, Any] = {}
        _release_with(self, "cuModuleUnload", self._module, waits=True)

    def function(self, name: str, shared: int) -> Any:
        """A kernel that may use `shared` bytes of dynamic shared memory."""
        if name not in self._functions:
            with _uncaptured():
                f = call("cuModuleGetFunction", self._module, name.encode())
                if shared:
                    kind = _bindings().CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
                    call("cuFuncSetAttribute", f, kind, shared)
            self._functions[name] = f
        return self._functions[name]


def launch(
    function: Any, grid: Sequence[int], block: Sequence[int], shared: int, stream: int, values: tuple, types: tuple
) -> None:
    """Start a kernel; a later call raises errors of the kernel itself."""
    call("cuLaunchKernel", function, *grid, *block, shared, stream, (values, types), 0)


def synchronize(stream: int = 0) -> None:
    """Wait for a stream; raises DeviceError for a failure in it."""
    with current_context():
        call("cuStreamSynchronize", stream)


@cache
def _pool() -> Any:
    """A pool of memory of the first device that keeps what is freed for later allocations."""
    driver = _bindings()
    properties = driver.CUmemPoolProps()
    properties.allocType = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    properties.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    properties.location.id = 0
    pool = call("cuMemPoolCreate", properties)
    kept = driver.CUmemPool_attribute.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD
    call("cuMemPoolSetAttribute", pool, kept, driver.cuuint64_t(2**64 - 1))
    return pool


@contextmanager
def temporary_memory(sizes: Sequence[int], stream: int) -> Iterator[list[int]]:
    """Addresses of memory for the work that is launched on a stream inside of the `with` statement, so many bytes each.

    It is allocated and freed in the order of the stream. So calls of other threads on the same stream have memory of their own,
    and a captured graph has it at each launch.
    """
    found: list[int] = []
    try:
        for nbytes in sizes:
            found.append(int(call("cuMemAllocFromPoolAsync", max(1, nbytes), _pool(), stream)))
        yield found
    finally:
        for address in found:
            call("cuMemFreeAsync", address, stream)


class Event:
    """An event of CUDA: a place in the order of a stream."""

    def __init__(self) -> None:
        self._event = call("cuEventCreate", 0)
        _release_with(self, "cuEventDestroy", self._event)

    def record(self, stream: int) -> None:
        call("cuEventRecord", self._event, stream)

    def block(self, stream: int) -> None:
        """Have the later work of a stream wait for it."""
        call("cuStreamWaitEvent", stream, self._event, 0)

    def seconds_since(self, other: Event) -> float:
        return float(call("cuEventElapsedTime", other._event, self._event)) * 1e-3


def _follow(stream: int, other: int) -> None:
    """Have the later work of a stream wait for the work of another so far."""
    written = Event()
    written.record(other)
    written.block(stream)


class Captured:
    """The CUDA graph of some launches, functions of a stream."""

    def __init__(self, launches: Sequence[Callable[[int], None]]):
        modes = _bindings().CUstreamCaptureMode
        with current_context():
            stream = call("cuStreamCreate", 1)  # one that does not block
            try:
                call("cuStreamBeginCapture", stream, modes.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)
                for launch in launches:
                    launch(int(stream))
                graph = call("cuStreamEndCapture", stream)
                self._graph = call("cuGraphInstantiate", graph, 0)
                call("cuGraphDestroy", graph)
                _release_with(self, "cuGraphExecDestroy", self._graph, waits=True)
            finally:
                call("cuStreamDestroy", stream)

    def launch(self, stream: int) -> None:
        call("cuGraphLaunch", self._graph, stream)


def is_capturing(stream: int) -> bool:
    """True for a stream whose work is being captured into a graph."""
    return int(call("cuStreamIsCapturing", stream)) != 0


class DeviceArray:
    """Memory on the device with a shape and dtype, for use without torch or cupy; `numpy()` copies it back."""

    def __init__(self, shape: tuple[int, ...], dtype: Any, element: str | None = None):
        """Memory that is not initialised. `element` is the dtype of the IR, where numpy has another for it."""
        self.shape, self.dtype = tuple(shape), np.dtype(dtype)
        self.element, self.stream = element or self.dtype.name, 0  # the stream that writes it
        self.nbytes = int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize
        with _uncaptured():
            self.pointer = int(call("cuMemAlloc", max(1, self.nbytes)))
        _release_with(self, "cuMemFree", self.pointer)

    @classmethod
    def of(cls, array: np.ndarray) -> DeviceArray:
        """A copy of an array, complete for work on any stream."""
        result = cls(array.shape, array.dtype)
        if array.nbytes:
            with current_context():
                call("cuMemcpyHtoD", result.pointer, np.ascontiguousarray(array).ctypes.data, array.nbytes)
                call("cuStreamSynchronize", LEGACY_STREAM)  # of pageable memory the copy may return before it ends
        return result

    def numpy(self, stream: int | None = None) -> np.ndarray:
        """A copy on the host, after all work of a stream, or of all streams."""
        result = np.empty(self.shape, self.dtype)
        if self.nbytes:
            with current_context():
                if stream is None:
                    call("cuCtxSynchronize")
                    call("cuMemcpyDtoH", result.ctypes.data, self.pointer, self.nbytes)
                else:
                    call("cuMemcpyDtoHAsync", result.ctypes.data, self.pointer, self.nbytes, stream)
                    call("cuStreamSynchronize", stream)
        return result

    @property
    def __cuda_array_interface__(self) -> dict:
        made = {"shape": self.shape, "typestr": self.dtype.str, "data": (self.pointer, False), "version": 3, "strides": None}
        return made | {"stream": self.stream or LEGACY_STREAM}

    def __dlpack_device__(self) -> tuple[int, int]:
        return ON_DEVICE[0], 0

    def __dlpack__(self, *, stream: int | None = None, **_: Any) -> object:
        """A capsule of DLPack; the consumer's stream, the legacy one by default, waits for the stream that writes the array."""
        if stream != -1 and (stream or LEGACY_STREAM) != (self.stream or LEGACY_STREAM):
            with current_context():
                _follow(stream or LEGACY_STREAM, self.stream)
        return capsule(self, self.pointer, self.shape, self.element, ON_DEVICE[0])


# --- arguments ---------------------------------------------------------------------------------------------------------


ON_DEVICE = (2, 13)  # kDLCUDA, kDLCUDAManaged


def on_device(a: Any) -> bool:
    """True for an array in the memory of a GPU, by `__dlpack_device__` or `__cuda_array_interface__`."""
    if hasattr(a, "__dlpack_device__") and not isinstance(a, np.ndarray):
        return int(a.__dlpack_device__()[0]) in ON_DEVICE
    return hasattr(a, "__cuda_array_interface__")


def array_description(a: Any, stream: int | None = None) -> tuple[int, tuple[int, ...], str, bool, Any]:
    """The address, shape and dtype of an array on the device, True if it is C-contiguous, and the object that keeps it alive.
    Work on `stream` then follows the work that made it, where its library tells.

    Takes objects with `__cuda_array_interface__` or `__dlpack__`. Raises TypeError for others, and for another device than the
    first.
    """
    try:
        where, number = a.__dlpack_device__() if hasattr(a, "__dlpack_device__") else (ON_DEVICE[0], 0)
    except (ValueError, RuntimeError, BufferError) as error:  # torch raises for tensors without data, on the device `meta`
        raise TypeError(f"must be on the device, got {type(a).__name__}, whose __dlpack_device__ says: {error}") from error
    if int(where) in ON_DEVICE and number:
        raise TypeError(f"must be on device 0, where kernels run, got {type(a).__name__} on device {number}")
    if hasattr(a, "is_neg") and a.is_neg():
        raise TypeError(
            f"must hold its elements as they are, got a {type(a).__name__} that is negated as it is read; resolve_neg()"
        )
    try:
        interface = getattr(a, "__cuda_array_interface__", None)
    except (RuntimeError, TypeError, AttributeError):  # torch raises for tensors that need gradients, and for some types
        interface = None
    if interface is not None and "V" not in interface["typestr"]:  # raw bytes, torch's type for bfloat16
        dtype = np.dtype(interface["typestr"])
        shape, strides = tuple(interface["shape"]), interface.get("strides")
        whole = strides is None or is_row_major(shape, strides, dtype.itemsize)
        if stream is not None and (made := interface.get("stream")) and made != (stream or LEGACY_STREAM):
            _follow(stream, made)
        return int(interface["data"][0] or 0), shape, dtype.name, whole, a
    if not hasattr(a, "__dlpack__"):
        raise TypeError(f"must be on the device, with DLPack or __cuda_array_interface__, got {type(a).__name__}")
    t, owner = exported(a, stream if int(where) in ON_DEVICE else None)  # others refuse a stream
    if t.device_type not in ON_DEVICE:
        raise TypeError(
            f"must be on the device, got {type(a).__name__} in the host's memory; use driver.DeviceArray.of or torch's .cuda()"
        )
    return t.address, t.lengths, t.dtype, t.contiguous, owner


def array_type(a: Any) -> tuple[tuple[int, ...], str] | None:
    """The shape and dtype of an array on the device; None for any other object. Raises TypeError as `array_description` does."""
    if isinstance(a, (np.generic, type)) or not (hasattr(a, "__cuda_array_interface__") or hasattr(a, "__dlpack__")):
        return None
    _, shape, dtype, _, _ = array_description(a)
    return shape, dtype
