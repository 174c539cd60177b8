"""Worker processes seen from the parent: start, messages, watch, kill and restart."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO

import tir
from codegen.runtime.openmp import spin

from . import wire
from .guard import Guard
from .memory import Watch
from .provenance import Provenance

ROOT = Path(tir.__file__).resolve().parents[1]
START_SECONDS = 120.0  # seconds until a worker must be ready
STDERR_TAIL_BYTES = 2000  # of standard error in a message

# The numbers of threads of libraries, which read them from the environment when they are loaded.
THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")

# Hints about processors for older versions of OpenBLAS. They slow a current version, which may then choose kernels for shorter
# vectors, by up to half.
OPENBLAS_VARIABLES = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")

GUARD = Guard()  # of the workers and the folders of all measurers of this process


def library_environment(threads: int) -> dict[str, str]:
    """The environment of a worker process, whose libraries use so many threads, which soon sleep, and their own kernels."""
    kept = {name: value for name, value in os.environ.items() if name not in OPENBLAS_VARIABLES}
    return {**kept, **spin(kept), **dict.fromkeys(THREAD_VARIABLES, str(threads))}


class WorkerError(RuntimeError):
    """A failure of workers, not of a candidate."""


class WorkerProcess:
    """One child process. `kernels` are the ids of its kernels, which die with it. `excess` is the growth of its memory, with its
    children, in bytes, once over the limit. `provenance` is that of its timings, reported when ready.

    `task` is the first message to it (see `search.measure.worker`). With its children it may come to hold `resident` bytes (None:
    no limit). It inherits the file descriptors `inherited`.
    """

    def __init__(self, task: wire.Message, threads: int, resident: int | None, inherited: tuple[int, ...] = ()):
        self._task, self._threads, self._resident, self._inherited = task, threads, resident, inherited
        self.kernels: set[int] = set()
        self.known: set[str] = set()
        self._process: subprocess.Popen[bytes] | None = None
        self._watch: Watch | None = None
        self.excess: int | None = None
        self.closed = False
        self.provenance: Provenance | None = None
        self.start()

    # --- life ----------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the process and send its task; `wait_ready` waits for its answer. Raises WorkerError."""
        path = os.pathsep.join(p for p in (str(ROOT), os.environ.get("PYTHONPATH", "")) if p)
        environment = {**library_environment(self._threads), "PYTHONPATH": path}
        try:
            self._errors: IO[bytes] = tempfile.TemporaryFile(dir=self._task["directory"])  # noqa: SIM115 (closed with the worker)
            self._process = subprocess.Popen(
                [sys.executable, "-m", "search.measure.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                env=environment,
                start_new_session=True,
                pass_fds=self._inherited,
            )
        except OSError as error:  # the temporary folder is gone or full, or there are too many processes or files
            raise WorkerError(f"a worker process could not be started: {error}") from None
        GUARD.hold(self._process.pid)
        os.set_blocking(self.stdout, False)
        self._decoder = wire.Decoder()
        self.inbox: list[wire.Message] = []
        self.kernels.clear()
        self.known.clear()
        self.ready = self.ended = False
        self._watch = self.excess = None
        self._garbled = False
        self._start_deadline = time.monotonic() + START_SECONDS
        self._write({"op": "start", "path": [p for p in sys.path if p], **self._task})

    def wait_ready(self) -> None:
        """Block until the worker has started; WorkerError, with its standard error, if it ends or hangs before."""
        while not self.ready:
            message = self.receive(self._start_deadline)
            if message is not None and message.get("event") == "ready":
                self.ready, self.provenance = True, Provenance(**message["provenance"])
                if self._resident is not None and self._process is not None:
                    self._watch = Watch(self._process.pid, self._resident)
                return
            if message is None:
                said = f"ended before it was ready ({self.death()})" if self.ended else "did not start in time"
            else:
                said = f"could not start: {message.get('message', message)}"
            self.kill()
            raise WorkerError(f"a worker process {said}\n{self.stderr_tail()}".rstrip())

    @property
    def stdout(self) -> int:
        assert self._process is not None and self._process.stdout is not None
        return self._process.stdout.fileno()

    @property
    def running(self) -> bool:
        """True if the process exists; it may have been killed from outside between two requests."""
        return self._process is not None and self._process.poll() is None

    def death(self) -> str:
        """The cause of the process's end: the name of its signal, its exit status, or a remark on its pipe."""
        assert self._process is not None
        if self._garbled:
            return "something else wrote to the pipe of its answers"
        try:
            code = self._process.wait(timeout=5.0)  # a core of a large process takes a while to tear down
        except subprocess.TimeoutExpired:
            return "closed its pipe"
        if code < 0:
            try:
                return signal.Signals(-code).name
            except ValueError:
                return f"signal {-code}"
        return f"exit status {code}"

    def stderr_tail(self) -> str:
        """The end of the process's standard error."""
        try:
            end = self._errors.seek(0, os.SEEK_END)
            self._errors.seek(max(0, end - STDERR_TAIL_BYTES))
            return self._errors.read().decode(errors="replace").strip()
        except (OSError, ValueError):
            return ""

    def kill(self) -> None:
        """Kill the process, and all of its process group."""
        process = self._process
        if process is None:
            return
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            process.kill()
        process.wait()
        GUARD.release(process.pid)
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with suppress(OSError):  # unsent bytes of a broken pipe
                    pipe.close()
        self.ready = False

    def restart(self) -> None:
        """Start the process anew; WorkerError after `close`, which another thread may have called meanwhile."""
        if self.closed:
            raise WorkerError("the worker processes were closed")
        self.kill()
        self._errors.close()
        self.start()
        if self.closed:
            self.close()

    def close(self) -> None:
        """End the process for good."""
        self.closed = True
        self.kill()
        self._errors.close()

    def look(self) -> float:
        """Check the memory of the process (`excess`); returns the time of the next check, on the monotonic clock."""
        if self._watch is None:
            return float("inf")
        self.excess = self.excess or self._watch.excess()
        return self._watch.next

    # --- messages ------------------------------------------------------------------------------------------------------

    def send(self, **request: object) -> None:
        """Send a request, first waiting until the worker is ready."""
        self.wait_ready()
        self._write(request)

    def _write(self, message: wire.Message) -> None:
        assert self._process is not None and self._process.stdin is not None
        with suppress(BrokenPipeError):  # it has died; the next receive says so
            self._process.stdin.write(wire.encode(message))
            self._process.stdin.flush()

    def pump(self) -> bool:
        """Read messages into `inbox`; False if the worker has ended, even if a child holds its end of the pipe."""
        alive = self.running
        while True:
            try:
                data = os.read(self.stdout, 1 << 16)
                self.inbox += self._decoder.feed(data)
            except BlockingIOError:
                self.ended |= not alive
                return alive
            except OSError:
                return False
            except ValueError:  # not a message, or the pipe was closed by another thread
                self._garbled = True
                data = b""
            if not data:
                self.ended = True
                return False

    def receive(self, deadline: float) -> wire.Message | None:
        """The next message; None if the worker `ended`, has an `excess`, or the monotonic `deadline` has passed."""
        while not waited({self: deadline}):
            pass
        return self.inbox.pop(0) if self.inbox else None


def waited(deadlines: Mapping[WorkerProcess, float], until: float = float("inf")) -> list[WorkerProcess]:
    """Wait for workers until `until`, and for each until its deadline, on the monotonic clock. Returns those with messages in the
    inbox, and those that have died (`ended`), hold too much memory (`excess`) or are out of time; perhaps none."""
    with selectors.DefaultSelector() as selector:
        for worker in deadlines:
            selector.register(worker.stdout, selectors.EVENT_READ, worker)
        wake = [0.0 if w.ended or w.inbox else min(deadline, w.look()) for w, deadline in deadlines.items()]
        arrived = {key.data for key, _ in selector.select(max(0.0, min(*wake, until) - time.monotonic()))}
    dead = {w for w in deadlines if w.ended or ((w in arrived or not w.running) and not w.pump())}
    now = time.monotonic()
    return [w for w, end in deadlines.items() if w.inbox or w in dead or w.excess is not None or end <= now]
