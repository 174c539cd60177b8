"""A builder for tests of measurement: a trace is what the kernel shall do, `{"sleep": s}` or `{"fault": kind}`, on a matrix
product."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import sys
import time

import numpy as np

from schedule import ScheduleError

kept: list[int] = []  # open files


def schedule(func, trace):
    wish = {"sleep": 0.1} if trace is None else trace
    match wish.get("fault"):
        case "illegal":
            raise ScheduleError("split: the factor is 0")
        case "schedule_hang":
            time.sleep(1000)
    return func.with_(name="main_" + json.dumps(wish, sort_keys=True), attrs=(("wish", json.dumps(wish)),))


def compile(func, target):
    wish = json.loads(dict(func.attrs)["wish"])
    match wish.get("fault"):
        case "build_error":
            raise ValueError("no such instruction")
        case "build_hang":
            time.sleep(1000)
        case "build_abort":
            os.abort()
        case "build_memory":
            np.ones(1 << 45, np.uint8)

    def kernel(a, b, c):
        time.sleep(wish.get("sleep", 0.0))
        match wish.get("fault"):
            case "segfault":
                os.kill(os.getpid(), signal.SIGSEGV)
            case "exit":
                os._exit(3)
            case "hang":
                time.sleep(1000)
            case "child":
                if os.fork() == 0:
                    time.sleep(1000)
                time.sleep(1000)
            case "memory":
                hog = []
                while True:
                    hog.append(np.empty(1 << 28, np.uint8))
            case "touch":  # by itself, and in a child, less than the address space may grow by; together more
                hog = np.ones(320 << 20, np.uint8)
                os.fork()
                hog = [hog, np.ones(320 << 20, np.uint8)]
                time.sleep(1000)
            case "leaves_child":  # which holds the pipe of the answers
                if os.fork() == 0:
                    time.sleep(1000)
            case "child_and_crash":
                if os.fork() == 0:
                    time.sleep(1000)
                os.kill(os.getpid(), signal.SIGSEGV)
            case "raise":
                raise RuntimeError("the kernel refused its arguments")
            case "no_text":
                raise type("Silent", (Exception,), {"__str__": lambda self: 1 / 0})
            case "long_text":
                raise RuntimeError("no " * 100_000)
            case "end":
                sys.exit(3)
            case "files":  # as many as there can be, and for good
                resource.setrlimit(resource.RLIMIT_NOFILE, (256, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
                kept.extend(os.dup(0) for _ in range(256))
            case "garbage":
                for number in filter(lambda n: os.path.exists(f"/proc/self/fd/{n}"), range(3, 64)):
                    with contextlib.suppress(OSError):
                        os.write(number, bytes(7) + b"\4junk")
            case "input":
                a[0, 0] += 1
            case "outside":
                np.lib.stride_tricks.as_strided(c, (c.size + 1,), (c.itemsize,))[-1] = 1.0
            case "print":
                os.write(1, b"this is not a message\n" * 1000)
        if wish.get("fault") != "nothing":
            np.matmul(a, b, out=c)
        if wish.get("fault") == "wrong":
            c[-1, -1] += 1.0

    return kernel
