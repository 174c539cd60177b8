"""The real builder, but for traces `{"fault": kind, "of": trace}`: those make kernels that misbehave besides doing what `trace`
says."""

from __future__ import annotations

import ctypes
import os
import time
from pathlib import Path

import numpy as np

from search.measure import builder

libc = ctypes.PyDLL(None)  # calls keep the interpreter's lock, as a kernel that never returns may


def schedule(func, trace):
    if not (isinstance(trace, dict) and "fault" in trace):
        return builder.schedule(func, trace)
    text = f"{trace['fault']} {trace.get('directory', '')}"
    func = builder.schedule(func, trace.get("of"))
    return func.with_(name="main_" + "".join(c if c.isalnum() else "_" for c in text), attrs=(("fault", text),))


def compile(func, target):
    fault, _, directory = dict(func.attrs).get("fault", "").partition(" ")
    real = builder.compile(func.with_(name="main", attrs=()), target)
    if not fault:
        return real
    if fault == "compiler_hangs":
        libc.pause()

    def kernel(*arrays):
        match fault:
            case "segfault":
                ctypes.string_at(8)
            case "sleeps":
                time.sleep(0.05)
            case "loop":
                libc.pause()
            case "fork_and_loop":
                os.fork()
                libc.pause()
            case "allocate":
                hog = []
                while True:
                    hog.append(np.empty(1 << 26, np.uint8))
        real(*arrays)
        if fault == "wrong":
            arrays[-1].reshape(-1)[-1] *= 1.5
        if fault == "dies_in_the_race" and (Path(directory) / "race").exists():
            ctypes.string_at(8)

    return kernel


def warm_up(target):
    builder.warm_up(target)
