"""Kernels tried in a process of their own, so that an error that poisons the CUDA context, or a hang, costs only that process."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from tir.ir import PrimFunc


@dataclass(frozen=True)
class Attempt:
    """How it went: `kind` is "ok", "schedule_error", "compile_error", "device_error", "timeout" or "crash"; `seconds` the median
    of a call, `outputs` all arrays after one call, and `message` what went wrong; `sticky` says that the error of the device has
    made its context useless, which ended with the process."""

    kind: str
    seconds: float = float("inf")
    message: str = ""
    outputs: tuple[np.ndarray | int, ...] = field(default=(), compare=False)
    sticky: bool = False


def attempt(func: PrimFunc, target: str, arrays: Sequence[np.ndarray | int], timeout: float = 60.0) -> Attempt:
    """Build, run and time a scheduled function on copies of `arrays` in a new process, killed after `timeout` seconds."""
    return apart(_child, (func, target, tuple(arrays)), timeout)


def apart(child: Callable[..., None], arguments: tuple[Any, ...], timeout: float) -> Attempt:
    """What `child(pipe, *arguments)` sends from a new process, killed after `timeout` seconds, or how it ended instead."""
    spawn = multiprocessing.get_context("spawn")
    ours, theirs = spawn.Pipe()
    process = spawn.Process(target=child, args=(theirs, *arguments), daemon=True)
    process.start()
    theirs.close()
    try:
        if not ours.poll(timeout):
            return Attempt("timeout", message=f"no result within {timeout} s")
        return ours.recv()
    except EOFError:
        process.join(5)
        return Attempt("crash", message=f"the process ended with code {process.exitcode}")
    finally:
        process.kill()
        process.join()
        ours.close()


def _child(pipe: Connection, func: PrimFunc, target: str, arrays: tuple[np.ndarray | int, ...]) -> None:
    from codegen.build import build
    from codegen.cuda.driver import DeviceArray, DeviceError, synchronize
    from codegen.llvm.emit import CodegenError
    from codegen.passes.gpu_kernels import GPUError

    try:
        kernel = build(func, target)
        given = [DeviceArray.of(a) if isinstance(a, np.ndarray) else a for a in arrays]
        kernel(*given)
        synchronize()
        outputs = tuple(a.numpy() if isinstance(a, DeviceArray) else a for a in given)
        pipe.send(Attempt("ok", kernel.time(*given).median, "", outputs))
    except GPUError as error:
        pipe.send(Attempt("schedule_error", message=str(error)))
    except (CodegenError, ImportError) as error:
        pipe.send(Attempt("compile_error", message=str(error)))
    except DeviceError as error:
        pipe.send(Attempt("device_error", message=str(error), sticky=error.sticky))
