"""The worker process, which builds, runs and checks candidates: `python -m search.measure.worker`, started by the measurer.

It answers one request after another over its standard input and output (see `search.measure.wire`). The parent watches the clock
and kills it if it hangs. It has a session of its own, so that Ctrl-C in the terminal does not reach it. It ends with its parent:
by itself, or, if it hangs, by the parent's guard.

Requests, by `op`, and their answers:

start    script (of the function), target, builder, workload, path, directory, memory -> event ready; provenance
prepare  seed, distribution: write the inputs, and the expected results if the workload is a known one -> ok, expected
build    id, trace, known, again -> an outcome; digest, seconds
objects  trace -> an outcome; the object files of the program, in base64, by their keys in a cache, and seconds
run      id, best, check, ... : compare its results with the reference unless it is cut off, and time it -> an outcome; samples,
         cut, max_error
baseline id: time the program as written; make a missing reference; check it -> an outcome; samples, good, loose
reference trace, target: make a reference; exact results are those of this schedule for a processor -> ok, good, loose
compare  ids, numpy, rounds, seconds: check, then time in turns -> ok; samples and verdicts by id (and numpy's samples)
peak     threads, dtype -> ok; flops (a second)
calibrate: script, trace: time this function, scheduled so -> ok; samples
drop     ids: forget these kernels -> nothing

An answer has `lost` if this process should run nothing more, as after a kernel that raised: the parent starts another.

The event `running` goes before each action of limited duration: the clock of the parent starts there. The event `checking` stops
it.
"""

from __future__ import annotations

import base64
import errno
import hashlib
import importlib
import os
import queue
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from codegen.build import build
from codegen.cache import Collected, users_cache
from codegen.target import Target
from schedule.error import ScheduleError
from tir.ir import PrimFunc, need_func
from tir.script import parse

from . import builder, timing, wire
from .provenance import Provenance
from .reference import Arrays, NamedWorkload, make_reference, random_inputs

MAX_SECOND_TIMINGS = 3  # of a short call, before its candidate is cut off as slow
PAUSE_SECONDS = 0.005  # before each of them
SPIN_SECONDS = 0.2  # after which idle threads of numpy's library sleep: OpenBLAS spins for 2**28 cycles
NUMPY_RACE_SHARE = 1 / 3  # of the time of a race
MAX_LONG_CALLS = 2  # in a turn of a race
MAX_MESSAGE_CHARACTERS = 4000  # of the message of an outcome
CALIBRATION_SECONDS = 0.005  # to time the calibration kernel for
MAX_OPEN_FILES = 256  # more than at the start; with more, the process is replaced
BUILDER_REQUESTS = ("build", "objects", "reference", "calibrate")  # requests whose exceptions are those of the builder


class Worker:
    """The state of one worker process: the function, its data, and its kernels by id."""

    def __init__(self, channel: BinaryIO):
        self._channel = channel
        self._func: PrimFunc  # these four are set by the request `start`, the first one
        self._workload: NamedWorkload | None
        self._target: str
        self._directory: Path
        self._kernels: dict[int, Any] = {}
        self._known: set[str] = set()
        self._arrays: Arrays | None = None
        self._calibration: tuple[Any, list[np.ndarray]] | None = None  # a kernel and its arguments
        self._lost = False  # this process should run nothing more
        self._descriptors = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0

    def send(self, **header: Any) -> None:
        self._channel.write(wire.encode(header))
        self._channel.flush()

    def serve(self, requests: queue.SimpleQueue[wire.Message]) -> None:
        while True:
            message = requests.get()
            op = message.pop("op")
            answer = self._answer(partial(getattr(self, f"_{op}"), **message), builds=op in BUILDER_REQUESTS)
            if answer is not None:
                self.send(**answer, **({"lost": True} if self._lost or self._has_open_files() else {}))

    def _answer(self, request: Callable[[], wire.Message | None], builds: bool = False) -> wire.Message | None:
        """The answer to a request. An exception becomes an outcome, of the builder if it `builds`."""
        try:
            return request()
        except MemoryError as error:
            return {"outcome": "memory", "message": _describe(error) or "out of memory"}
        except Exception as error:  # the outermost frame: an exception of the candidate, or of this code
            said, frames = _describe(error), traceback.extract_tb(error.__traceback__)
            if builds:
                return {"outcome": "illegal" if isinstance(error, ScheduleError) else "build_error", "message": said}
            if any(frame.filename == timing.__file__ for frame in frames):  # a call of a kernel
                self._lost = True  # the state of the device and of this process may be damaged
                return {"outcome": "crash", "message": said}
            where = [f for f in frames if Path(f.filename).parent == Path(__file__).parent][-1]
            return {"outcome": "fault", "message": f"{said} ({Path(where.filename).name}:{where.lineno}, in {where.name})"}

    def _has_open_files(self) -> bool:
        """True if candidates left so many files open that others may fail to open more, where the system shows it."""
        try:
            return len(os.listdir("/proc/self/fd")) > self._descriptors + MAX_OPEN_FILES
        except OSError as error:  # looking takes a descriptor itself
            return error.errno in (errno.EMFILE, errno.ENFILE)

    # --- requests ------------------------------------------------------------------------------------------------------

    def _start(
        self,
        script: str,
        target: str,
        builder: str,
        workload: dict[str, Any] | None,
        path: list[str],
        directory: str,
        memory: int | None,
    ) -> wire.Message:
        sys.path.extend(p for p in path if p not in sys.path)
        self._func = need_func(parse(script), "a worker")
        self._workload = None if workload is None else NamedWorkload.from_json(workload)
        self._target = target
        self._builder = importlib.import_module(builder)
        self._directory = Path(directory)
        if warm := getattr(self._builder, "warm_up", None):
            warm(target)
        provenance = asdict(Provenance.here(target))
        if memory is not None:
            _limit_memory(memory)
        return {"event": "ready", "provenance": provenance}

    def _prepare(self, seed: int, distribution: int) -> wire.Message:
        self._arrays = None
        return {"outcome": "ok", "expected": make_reference(self._func, self._workload, seed, distribution, self._directory)}

    def _build(self, id: int, trace: Any, known: list[str], again: bool) -> wire.Message:
        self.send(event="running")
        start = time.perf_counter()
        self._known.update(known)
        func = self._builder.schedule(self._func, trace)
        digest = hashlib.sha256(func.script().encode()).hexdigest()[:24]
        if digest not in self._known or again:
            self._kernels[id] = self._builder.compile(func, self._target)
            self._known.add(digest)
        return {"outcome": "ok", "digest": digest, "built": id in self._kernels, "build_seconds": time.perf_counter() - start}

    def _objects(self, trace: Any) -> wire.Message:
        self.send(event="running")
        start = time.perf_counter()
        known = users_cache()
        cache = Collected(self._directory / "objects" if known is None else known.path)
        build(self._builder.schedule(self._func, trace), Target(self._target), cache=cache)
        objects = {key: base64.b64encode(code).decode() for key, code in cache.objects.items()}
        return {"outcome": "ok", "objects": objects, "build_seconds": time.perf_counter() - start}

    def _drop(self, ids: list[int]) -> None:
        for i in ids:
            self._kernels.pop(i, None)

    def _run(
        self, id: int, best: float | None, check: bool, cutoff: float, min_seconds: float, min_runs: int, max_runs: int
    ) -> wire.Message:
        kernel, data = self._kernels[id], self._data()
        arrays = data.working
        if check:
            data.reset()
        self.send(event="running")
        first = timing.clock(kernel, arrays)
        short = first < timing.SHORT_CALL_SECONDS
        if short:  # that was the warm-up; a short call is easily disturbed, and hidden by the checks of its arguments
            first = min(timing.samples_of(kernel, arrays, first, 0.0, 3, 3))
            min_runs = max(min_runs, 5)
            for _ in range(MAX_SECOND_TIMINGS):  # another process may have made it slow
                if best is None or first <= cutoff * best:
                    break
                time.sleep(PAUSE_SECONDS)
                first = min(first, *timing.samples_of(kernel, arrays, first, 0.0, 3, 3))
        if best is not None and first > cutoff * best:
            return {"outcome": "ok", "samples": [first], "cut": True}
        error = None
        if check:
            verdict = self._checked(id) if short or isinstance(kernel, timing.OnDevice) else self._verdict()
            if verdict["outcome"] != "ok":
                return verdict
            error = verdict["max_error"]
        if best is not None and first > 1.3 * best:  # it will not win, so a rough figure will do
            min_runs, min_seconds = (2, 0.0) if first >= timing.SHORT_CALL_SECONDS else (3, 0.2 * min_seconds)
        self.send(event="running", repeats=min_runs)
        times = partial(timing.samples_against, best) if short and best is not None else timing.samples_of
        samples = times(kernel, arrays, first, min_seconds, min_runs, max_runs)
        return {"outcome": "ok", "samples": samples, "max_error": error}

    def _checked(self, id: int) -> wire.Message:
        """The verdict on one call of a kernel."""
        self.send(event="running")
        data = self._data()
        data.reset()
        timing.call(self._kernels[id], data.working)
        return self._verdict()

    def _verdict(self) -> wire.Message:
        """The verdict on the arrays after the one call since their reset."""
        self.send(event="checking")
        return self._data().verdict()

    def _baseline(self, id: int) -> wire.Message:
        data, kernel = self._data(), self._kernels[id]
        data.reset()
        self.send(event="running")
        first = timing.clock(kernel, data.working)
        if isinstance(kernel, timing.OnDevice):  # `clock` leaves the results on the device
            timing.call(kernel, data.working)
        accepted = {} if data.has_reference else self._accepted()
        answer = {**data.verdict(), **accepted}
        if first < 0.5 and answer["outcome"] == "ok":
            self.send(event="running", repeats=3)
            return {**answer, "samples": timing.samples_of(kernel, data.working, first, 0.1, 3, 20)}
        return {**answer, "samples": [first]}

    def _reference(self, trace: Any, target: str) -> wire.Message:
        data = self._data()
        data.reset()
        if data.exact:
            kernel = builder.compile(builder.schedule(self._func, trace), target)
            self.send(event="running")
            kernel(*data.working)
        return {"outcome": "ok", **self._accepted()}

    def _accepted(self) -> wire.Message:
        """The answer of `accept` about the expected results."""
        self.send(event="checking")
        return self._data().accept()

    def _compare(self, ids: list[int], numpy: bool, rounds: int, seconds: float) -> wire.Message:
        data = self._data()
        verdicts = {str(i): self._answer(partial(self._checked, i)) or {} for i in ids}
        samples: dict[str, list[float]] = {str(i): [] for i in ids}
        sound = [str(i) for i in ids if verdicts[str(i)]["outcome"] == "ok"]
        share = 0.0 if not numpy or self._workload is None else NUMPY_RACE_SHARE if sound else 1.0
        kernels = {i: partial(timing.kernel_sample, self._kernels[int(i)], data.working) for i in sound}
        self._sample_in_turns(kernels, samples, rounds, (1 - share) * seconds)
        if share:  # last, because its threads and its use of the caches would slow down the next kernel
            samples["numpy"] = []
            self._sample_in_turns(
                {"numpy": partial(timing.call_sample, self._numpy_call(data), timing.WARM_UP_SECONDS)},
                samples,
                rounds,
                share * seconds,
            )
            if int(os.environ.get("OMP_NUM_THREADS", "1")) > 1:
                time.sleep(SPIN_SECONDS)
        return {"outcome": "ok", "samples": samples, "verdicts": verdicts}

    def _sample_in_turns(
        self,
        contenders: Mapping[str, Callable[[list[float]], float]],
        samples: dict[str, list[float]],
        rounds: int,
        seconds: float,
    ) -> None:
        """Add a sample of each contender to its `samples` in each round, until `seconds` are over."""
        start = time.perf_counter()
        for n in range(rounds if contenders else 0):
            # Once a round: the parent takes a core when it wakes, and the kernel's threads then share the others.
            self.send(event="running", repeats=MAX_LONG_CALLS * len(contenders))
            # In another order each round, because a kernel that cools the caches slows the next one.
            for name in np.random.default_rng(n).permutation(list(contenders)).tolist():
                samples[name].append(contenders[name](samples[name]))
            if time.perf_counter() - start > (seconds if n >= 2 else 2 * seconds + 1):
                return

    def _numpy_call(self, data: Arrays) -> Any:
        """The workload in numpy, on the same data, as a function without arguments, already called once."""
        assert self._workload is not None
        instance = self._workload.instance()
        count = len(instance.inputs(np.random.default_rng(0)))
        inputs, results = tuple(data.working[:count]), tuple(data.working[count:])
        self.send(event="running")
        instance.numpy(inputs, results)
        return lambda: instance.numpy(inputs, results)

    def _peak(self, threads: int, dtype: str) -> wire.Message:
        from codegen.peak import peak_flops

        self.send(event="running")
        if hasattr(self._builder, "peak"):
            return {"outcome": "ok", "flops": self._builder.peak(dtype)}
        return {"outcome": "ok", "flops": peak_flops(self._target, threads=threads, dtype=dtype)}

    def _calibrate(self, script: str, trace: Any) -> wire.Message:
        if self._calibration is None:
            func = need_func(parse(script), "a calibration kernel")
            kernel = self._builder.compile(builder.schedule(func, trace), self._target)
            self._calibration = kernel, random_inputs(func, np.random.default_rng(0))
        kernel, arrays = self._calibration
        self.send(event="running")
        first = timing.clock(kernel, arrays)
        return {"outcome": "ok", "samples": timing.samples_of(kernel, arrays, first, CALIBRATION_SECONDS, 3, 50)}

    # --- data ----------------------------------------------------------------------------------------------------------

    def _data(self) -> Arrays:
        if self._arrays is None:
            self._arrays = Arrays(self._func, self._directory)
        return self._arrays


def _describe(error: BaseException) -> str:
    try:
        text = str(error).strip()
    except Exception:  # the class may be a candidate's
        text = ""
    return f"{type(error).__name__}: {text}"[:MAX_MESSAGE_CHARACTERS] if text else type(error).__name__


def _limit_memory(memory: int) -> None:
    """Limit the growth of the address space to `memory` bytes, where the system can."""
    try:
        import resource

        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + memory
        hard = resource.getrlimit(resource.RLIMIT_AS)[1]
        resource.setrlimit(resource.RLIMIT_AS, (limit if hard < 0 else min(limit, hard), hard))
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    except (ImportError, OSError, ValueError):  # no such limit here
        return


def main() -> None:
    """Serve requests until the parent closes the pipe or dies."""
    if hasattr(signal, "SIGINT"):
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    stdin = os.fdopen(os.dup(0), "rb")
    channel = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # output of a candidate goes to standard error
    devnull = os.open(os.devnull, os.O_RDONLY)
    os.dup2(devnull, 0)
    worker = Worker(channel)
    requests: queue.SimpleQueue[wire.Message] = queue.SimpleQueue()

    def receive() -> None:
        while (received := wire.read(stdin)) is not None:
            requests.put(received)
        if os.getpgrp() == os.getpid():  # with all processes that candidates have started
            os.killpg(0, signal.SIGKILL)
        os._exit(0)

    threading.Thread(target=receive, daemon=True).start()
    try:
        worker.serve(requests)
    except BaseException as error:  # a candidate asked the interpreter to exit; an orderly exit takes a while
        os.write(2, f"{_describe(error)}\n".encode(errors="replace"))
        os._exit(1)


if __name__ == "__main__":
    main()
