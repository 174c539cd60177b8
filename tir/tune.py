"""The command line of the tuner: `python -m tir.tune WORKLOAD` finds a fast schedule, checks it, and compares it with numpy.

Exit status 0 on success, 1 where nothing valid was found (with the reasons), 2 for bad usage, 130 after Ctrl-C.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from codegen import Target
    from search.events import Callback, Event
    from search.measure import Limits
    from search.oracle import Workload
    from search.tuner import Result

    from .ir import PrimFunc

FORMAT = 1  # of the file that --out writes


class Usage(Exception):
    """What was asked for cannot be done; the message says what was expected."""


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(
        prog="python -m tir.tune",
        description="Find a fast schedule of a tensor computation for this machine, check it and compare it with numpy.",
        epilog="example: python -m tir.tune gmm --shape 1024,1024,1024 --trials 64 --threads 2 --out best.json",
        allow_abbrev=False,
    )
    p.add_argument("workload", nargs="?", metavar="WORKLOAD", help="what to tune; --list shows the choices")
    p.add_argument("--shape", metavar="SIZES", help="sizes separated by commas, as in 1024,1024,1024 (default: the workload's)")
    p.add_argument(
        "--trials", type=_positive_int, metavar="N", help="how many candidates to measure (default 64; no limit with --seconds)"
    )
    p.add_argument("--seconds", type=_positive_float, metavar="S", help="how long to search")
    p.add_argument(
        "--threads", type=_positive_int, metavar="N", help="threads that a kernel, and numpy, uses (default: the target's)"
    )
    p.add_argument("--seed", type=_seed, default=0, metavar="N", help="of the data and of all random choices (default 0)")
    p.add_argument(
        "--timeout", type=_positive_float, default=10.0, metavar="S", help="seconds a call of a candidate may take (default 10)"
    )
    p.add_argument(
        "--target", default=None, metavar="TARGET", help='such as "llvm" (the default: this machine) or "llvm -mcpu znver4"'
    )
    p.add_argument("--out", metavar="FILE", help="write the best schedule found so far to FILE, each time there is a better one")
    p.add_argument("--apply", metavar="FILE", help="instead of searching, build, check and time the schedule that --out wrote")
    p.add_argument("--show", action="store_true", help="print the scheduled program")
    p.add_argument("--list", action="store_true", help="list the workloads and end")
    p.add_argument(
        "--json", action="store_true", help="end with one JSON object on standard output; all else goes to standard error"
    )
    p.add_argument("--quiet", action="store_true", help="no progress while it runs")
    return p


def _positive_int(text: str) -> int:
    if not re.fullmatch(r"\d+", text) or int(text) < 1:
        raise argparse.ArgumentTypeError(f"a positive integer was expected, got {text!r}")
    return int(text)


def _seed(text: str) -> int:
    if not re.fullmatch(r"\d+", text):
        raise argparse.ArgumentTypeError(f"an integer of at least 0 was expected, got {text!r}")
    return int(text)


def _positive_float(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"a positive number of seconds was expected, got {text!r}")
    return value


def main(argv: Sequence[str] | None = None, **options: Any) -> int:
    """Run the command line and return its exit status. `options` go to `autotune` (`search`, `builder`, `workers`)."""
    p = parser()
    args = p.parse_args(argv)
    try:
        if args.list:
            _list()
            return 0
        if args.apply is not None:
            return _apply(args, options)
        if args.workload is None:
            from . import workloads

            raise Usage(f"name a workload to tune: {', '.join(workloads.names())}")
        return _tune(args, options)
    except Usage as error:
        print(f"{p.prog}: error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\ninterrupted before anything was found", file=sys.stderr)
        return 130
    except BrokenPipeError:  # whoever read the output has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


# --- what was asked for ------------------------------------------------------------------------------------------------


def _list() -> None:
    from . import workloads

    for name in workloads.names():
        w = workloads.get(name)
        print(f"{name:<10} {w.summary}\n{'':<10} --shape {w.usage}  (default {_sizes(w.default)})")


def _sizes(shape: Sequence[int]) -> str:
    return ",".join(map(str, shape))


def _shape(text: str, usage: str) -> tuple[int, ...]:
    parts = [part.strip() for part in text.split(",")]
    if not all(re.fullmatch(r"\d+", part) for part in parts):
        raise Usage(f"--shape takes integers separated by commas, {usage}; got {text!r}")
    return tuple(map(int, parts))


def _workload(name: str, shape: tuple[int, ...] | str | None, dtype: str = "float32") -> Workload:
    """The workload asked for; Usage, with what was expected, if there is none such."""
    from search.oracle import Workload

    from . import workloads

    try:
        known = workloads.get(name)
        sizes = known.sizes(_shape(shape, known.usage) if isinstance(shape, str) else shape)
        _check_size(name, sizes, dtype)
    except ValueError as error:
        raise Usage(str(error)) from None
    except MemoryError:
        raise Usage(f"{name} at {_sizes(sizes)} does not fit into the memory of this machine") from None
    return Workload(name, sizes, dtype)


def _check_size(name: str, sizes: Sequence[int], dtype: str) -> None:
    """MemoryError if the arrays of a workload, with their reference in float64, cannot fit."""
    from . import dtypes, workloads
    from .ir import const_shape

    func = workloads.get(name).build(dtype, *sizes)
    elements = sum(math.prod(const_shape(b)) for b in (*func.buffers, *func.allocs))
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 1 << 36
    if elements * (dtypes.nbytes(dtype) + 8) > pages:
        raise MemoryError


def _target(text: str, threads: int | None) -> Target:
    from codegen.target import Target

    try:
        target = Target(text) if threads is None else Target(text, num_cores=threads)
    except ValueError as error:
        raise Usage(f"--target: {error}") from None
    if target.kind != "llvm":
        raise Usage(f"--target: kernels for {target.kind} cannot be measured yet; targets begin with llvm")
    return target


def _limits(timeout: float) -> Limits:
    from search.measure import Limits

    return Limits(run=timeout)


def _writable(path: str) -> Path:
    """The path, if a file can be written there."""
    target = Path(path)
    if target.is_dir():
        raise Usage(f"--out: {path} is a directory; the name of a file was expected")
    if not target.absolute().parent.is_dir() or not os.access(target.absolute().parent, os.W_OK):
        raise Usage(f"--out: cannot write to the folder {target.absolute().parent}")
    return target


# --- tuning ------------------------------------------------------------------------------------------------------------


def _tune(args: argparse.Namespace, options: dict[str, Any]) -> int:
    workload = _workload(args.workload, args.shape)
    target = _target(args.target or "llvm", args.threads)
    out = None if args.out is None else _writable(args.out)

    from search.measure import WorkerError
    from search.tuner import NothingFound, autotune

    trials = args.trials if args.trials is not None or args.seconds is not None else 64
    header = _header(workload, args.target or "llvm", target.num_cores)
    report = sys.stderr if args.json else sys.stdout
    callbacks: list[Callback] = []
    saver = None
    if out is not None:
        saver = _Saver(out, {**header, "seed": args.seed, "versions": versions()})
        callbacks.append(saver)
    progress = None
    if not args.quiet:
        progress = LiveProgress() if sys.stderr.isatty() else LineProgress(sys.stderr)
        callbacks.append(progress)
    started = time.monotonic()
    try:
        result = autotune(
            workload.instance().func,
            target,
            trials,
            args.seconds,
            seed=args.seed,
            callbacks=callbacks,
            limits=_limits(args.timeout),
            workload=workload,
            **options,
        )
    except (NothingFound, WorkerError) as error:
        if progress is not None:
            progress.close()
        print(f"error: {error}", file=sys.stderr)
        outcomes = error.outcomes if isinstance(error, NothingFound) else {}
        if "run_timeout" in getattr(error, "reasons", {}):
            print("  a longer --timeout lets slow candidates end", file=sys.stderr)
        if args.json:
            flop = workload.instance().flop
            print(_json(header, outcomes, flop, None, None, None, None, None, time.monotonic() - started))
        return 1
    finally:
        if progress is not None:
            progress.close()

    print(_table(header, result), file=report)
    if result.problem:
        print(f"warning: the run ended early: {result.problem}", file=sys.stderr)
    if saver is not None and saver.problem:
        print(f"warning: {saver.problem}", file=sys.stderr)
    elif saver is not None:
        print(f"saved to {out}; build it again with: python -m tir.tune --apply {out}", file=report)
    if args.show:
        print(_scheduled(result.task.func, result.trace, options).script(), file=report)
    if args.json:
        seconds = (result.baseline, result.seconds, result.numpy)
        print(_json(header, result.outcomes, result.task.flop, *seconds, result.max_error, result.tolerance, result.elapsed))
    return 130 if result.interrupted else 0


def _apply(args: argparse.Namespace, options: dict[str, Any]) -> int:
    """Build, check and time a schedule from a file, beside numpy."""
    saved = _read(args.apply)
    if args.workload is not None and args.workload != saved["workload"]:
        raise Usage(f"--apply: {args.apply} holds a schedule of {saved['workload']}, not of {args.workload}")
    workload = _workload(saved["workload"], tuple(saved["shape"]), saved.get("dtype", "float32"))
    if args.shape is not None and _workload(workload.name, args.shape).shape != workload.shape:
        raise Usage(f"--apply: {args.apply} holds a schedule for the shape {_sizes(workload.shape)}, not {args.shape}")
    text = args.target or saved["target"]
    target = _target(text, args.threads or saved["threads"])

    from search.measure import Candidate, LocalMeasurer, WorkerError, count
    from search.task import Task

    started = time.monotonic()
    task = Task.of(workload.instance().func, target, workload=workload)
    header = _header(workload, text, target.num_cores)
    unscheduled = saved.get("seconds", {}).get("unscheduled")
    options = {k: v for k, v in options.items() if k in ("builder", "workers")}
    try:
        with LocalMeasurer(task, limits=_limits(args.timeout), seed=args.seed, **{"workers": 1, **options}) as measurer:
            measurer.prepare_data()
            comparison = measurer.compare([Candidate("applied", (), saved["trace"])], numpy=True)
            peak = measurer.peak(workload.dtype)
    except WorkerError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    (best,) = comparison.candidates
    outcomes = count([best])
    elapsed = time.monotonic() - started
    numpy = statistics.median(comparison.numpy) if comparison.numpy else None
    ok = best.outcome == "ok"
    report = sys.stderr if args.json else sys.stdout
    if ok:
        rows = [("unscheduled", unscheduled), ("applied", best.seconds), ("numpy", numpy)]
        print(_heading(header) + "\n\n" + _rows(rows, task.flop, peak), file=report)
        print(_error(best.max_error, comparison.tolerance), file=report)
    else:
        print(f"error: the schedule in {args.apply} is not valid here: {best.outcome}: {best.message}", file=sys.stderr)
    if ok and args.show:
        print(_scheduled(task.func, saved["trace"], options).script(), file=report)
    if args.json:
        seconds = (unscheduled, best.seconds if ok else None, numpy)
        print(_json(header, outcomes, task.flop, *seconds, best.max_error, comparison.tolerance, elapsed))
    return 0 if ok else 1


def _scheduled(func: PrimFunc, trace: Any, options: dict[str, Any]) -> PrimFunc:
    return import_module(options.get("builder", "search.measure.builder")).schedule(func, trace)


# --- files -------------------------------------------------------------------------------------------------------------


def versions() -> dict[str, str]:
    """The versions of everything that a timing depends on."""
    from importlib.metadata import PackageNotFoundError, version

    import numpy

    from . import __version__

    found = {"tir": __version__, "python": platform.python_version(), "numpy": numpy.__version__}
    try:
        found["llvmlite"] = version("llvmlite")
    except PackageNotFoundError:
        pass
    return found


def write_atomically(path: Path, text: str) -> None:
    """Replace the contents of `path` in one step: whoever reads it, or whatever ends this process, finds the old or the new
    whole."""
    handle, temporary = tempfile.mkstemp(dir=path.absolute().parent, prefix=path.name + ".", suffix=".part")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _umask() -> int:
    current = os.umask(0o022)
    os.umask(current)
    return current


class _Saver:
    """A callback that keeps the best schedule so far in a file."""

    def __init__(self, path: Path, header: dict[str, Any]):
        self._path, self._content = path, {"format": FORMAT, **header}
        self.problem = ""  # why the file is not up to date
        self._seconds: dict[str, float | None] = {"unscheduled": None, "best": None, "numpy": None}

    def __call__(self, event: Event) -> None:
        from search.events import Finished, NewBest, Prepared

        match event:
            case Prepared(baseline, numpy):
                self._seconds.update(unscheduled=_finite(baseline.seconds), numpy=numpy)
            case NewBest(measurement):
                self._save(measurement.candidate.trace, best=measurement.seconds)
            case Finished(result):
                self._content.update(flop=result.task.flop, key=result.task.key)
                self._content.update(max_error=result.max_error, tolerance=result.tolerance)
                self._save(result.trace, best=result.seconds, numpy=result.numpy)

    def _save(self, trace: Any, **seconds: float | None) -> None:
        self._seconds.update(seconds)
        content = {**self._content, "seconds": self._seconds, "trace": trace}
        try:
            write_atomically(self._path, json.dumps(content, indent=1, allow_nan=False) + "\n")
            self.problem = ""
        except OSError as error:  # a full disk is no reason to lose the search
            self.problem = f"could not write {self._path}: {error.strerror}"


def _finite(seconds: float) -> float | None:
    return seconds if math.isfinite(seconds) else None


_FIELDS = {"workload": str, "shape": list, "target": str, "threads": int}


def _read(path: str) -> dict[str, Any]:
    """What `--out` wrote; Usage if the file is something else."""
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise Usage(f"--apply: cannot read {path}: {error.strerror}") from None
    except ValueError as error:  # of JSON or of UTF-8
        raise Usage(f"--apply: {path} is not JSON: {error}") from None
    if not isinstance(content, dict) or "trace" not in content:
        raise Usage(f"--apply: {path} was not written by --out: it holds no trace")
    for name, kind in _FIELDS.items():
        if not isinstance(content.get(name), kind) or isinstance(content.get(name), bool):
            raise Usage(f"--apply: in {path}, {name!r} should be of type {kind.__name__}, got {content.get(name)!r}")
    if content.get("format") != FORMAT:
        raise Usage(f"--apply: {path} has format {content.get('format')!r}; {FORMAT} is understood")
    seconds = content.get("seconds", {})
    if not isinstance(seconds, dict) or not all(v is None or isinstance(v, (int, float)) for v in seconds.values()):
        raise Usage(f"--apply: in {path}, 'seconds' should hold numbers, got {seconds!r}")
    if content["threads"] < 1:
        raise Usage(f"--apply: in {path}, 'threads' should be at least 1, got {content['threads']}")
    return content


# --- what is shown at the end ------------------------------------------------------------------------------------------


def _header(workload: Workload, target: str, threads: int) -> dict[str, Any]:
    return {
        "workload": workload.name,
        "shape": list(workload.shape),
        "dtype": workload.dtype,
        "target": target,
        "threads": threads,
    }


def _json(
    header: dict[str, Any],
    outcomes: dict[str, int],
    flop: int,
    unscheduled: float | None,
    best: float | None,
    numpy: float | None,
    max_error: float | None,
    tolerance: float | None,
    elapsed: float,
) -> str:
    content = {
        **{k: header[k] for k in ("workload", "shape", "target", "threads")},
        "trials": sum(outcomes.values()),
        "outcomes": outcomes,
        "seconds": {"unscheduled": unscheduled, "best": best, "numpy": numpy},
        "flop": flop,
        "max_error": max_error,
        "tolerance": tolerance,
        "elapsed": round(elapsed, 3),
    }
    return json.dumps(content, allow_nan=False)


def _heading(header: dict[str, Any]) -> str:
    threads = f"{header['threads']} thread{'s' if header['threads'] > 1 else ''}"
    return f"{header['workload']} {_sizes(header['shape'])}  {header['dtype']}  {header['target']}  {threads}"


def _rows(rows: Sequence[tuple[str, float | None]], flop: int, peak: float | None) -> str:
    """The table: one row a program, compared with the unscheduled one and with numpy. The rows are so named."""
    times = dict(rows)
    unscheduled, numpy = times.get("unscheduled"), times.get("numpy")
    lines = [f"{'':<12} {'time':>12} {'GFLOP/s':>10} {'of peak':>8} {'speed-up':>9} {'x numpy':>8}"]
    for name, seconds in rows:
        if seconds is None:
            continue
        share = f"{flop / seconds / peak:.1%}" if peak else "-"
        speedup = f"{unscheduled / seconds:.2f}" if unscheduled else "-"
        ratio = f"{numpy / seconds:.2f}" if numpy else "-"
        lines.append(f"{name:<12} {duration(seconds):>12} {flop / seconds / 1e9:>10.2f} {share:>8} {speedup:>9} {ratio:>8}")
    return "\n".join(lines)


def _error(max_error: float | None, tolerance: float | None) -> str:
    if max_error is None or tolerance is None:
        return "not compared with the float64 reference"
    return f"largest error against float64: {max_error:.2g} of its scale; tolerance {tolerance:.2g}"


def _table(header: dict[str, Any], result: Result) -> str:
    best = [("best found", result.seconds)] if result.trace is not None else []
    rows = [("unscheduled", result.baseline), *best, ("numpy", result.numpy)]
    lines = [_heading(header), "", _rows(rows, result.task.flop, result.peak), _error(result.max_error, result.tolerance)]
    if result.baseline_stopped is not None:
        times = result.baseline_stopped / result.seconds
        lines.append(
            f"the unscheduled program was stopped after {duration(result.baseline_stopped)}: "
            f"the best found is at least {times:.0f} times as fast"
        )
    ended = "interrupted after " if result.interrupted else ""
    lines.append(f"{ended}{result.trials} trials in {result.elapsed:.1f} s: {tally(result.outcomes)}")
    if result.interrupted:
        lines.append("numpy was timed at the start, not in turns with the best")
    if result.trace is None and not result.interrupted:
        lines.append("no candidate was faster than the program as written")
    return "\n".join(lines)


def tally(outcomes: dict[str, int]) -> str:
    """Counts by outcome, those that occurred: `61 ok, 2 run_timeout`."""
    return ", ".join(f"{n} {kind}" for kind, n in outcomes.items() if n) or "none"


def duration(seconds: float) -> str:
    """A time in the unit that suits it."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.4g} {unit}"
    return f"{seconds * 1e9:.4g} ns"


# --- what is shown while it runs ---------------------------------------------------------------------------------------


class LineProgress:
    """A callback that prints one line a round: for logs and pipes."""

    def __init__(self, stream: IO[str]):
        self._stream = stream
        self.trials = 0
        self.total: int | None = None
        self.best: float | None = None
        self.outcomes: dict[str, int] = {}
        self.seconds: float | None = None
        self.flop = 0
        self.peak: float | None = None
        self.started = self.search_started = time.monotonic()
        self.phase = "starting"

    def __call__(self, event: Event) -> None:
        from search.events import Finished, Measured, Prepared, RoundEnded, ShootOut, Started

        match event:
            case Started(task, trials, seconds):
                self.flop, self.total, self.seconds = task.flop, trials, seconds
                self.phase = "timing the program as written, and numpy"
            case Prepared(baseline, numpy, peak, sketches):
                self.peak, self.phase, self.search_started = peak, "searching", time.monotonic()
                self.prepared(baseline, numpy, sketches)
            case Measured(_, trials, outcomes, best):
                self.trials, self.outcomes, self.best = trials, outcomes, best
                self.refresh()
            case RoundEnded():
                self.round_ended()
            case ShootOut(contenders):
                self.phase = "final race"
                self.race(len(contenders))
            case Finished():
                self.phase = "done"

    def prepared(self, baseline: Any, numpy: float | None, sketches: int | None) -> None:
        parts = [f"unscheduled {duration(baseline.seconds) if baseline.outcome == 'ok' else baseline.outcome}"]
        parts += [] if numpy is None else [f"numpy {duration(numpy)}"]
        parts += [] if self.peak is None else [f"peak {self.peak / 1e9:.0f} GFLOP/s"]
        parts += [] if sketches is None else [f"{sketches} sketch{'es' if sketches != 1 else ''}"]
        self.line("  ".join(parts))
        if baseline.outcome not in ("ok", "run_timeout"):
            self.line(f"warning: the program as written is not valid: {baseline.outcome}: {baseline.message}")

    def refresh(self) -> None:
        """A candidate has ended."""

    def round_ended(self) -> None:
        self.line(self.status())

    def race(self, contenders: int) -> None:
        self.line(f"timing the {contenders} fastest in turns" if contenders > 1 else "timing the best beside numpy")

    def line(self, text: str) -> None:
        print(text, file=self._stream, flush=True)

    def close(self) -> None:
        """Nothing more will be shown."""

    def status(self) -> str:
        """Candidates measured, failures by kind, the best and its share of peak, time left."""
        of = f"/{self.total}" if self.total else ""
        failures = tally({k: n for k, n in self.outcomes.items() if k != "ok"})
        parts = [f"{self.trials}{of}", f"failed: {failures}"]
        if self.best is not None:
            share = f" ({self.flop / self.best / self.peak:.0%} of peak)" if self.peak else ""
            parts.append(f"best {self.flop / self.best / 1e9:.1f} GFLOP/s{share}")
        if (left := self.time_left()) is not None:
            parts.append(f"{left:.0f} s left")
        return "  ".join(parts)

    def time_left(self) -> float | None:
        """Seconds until the budget is used up, as far as can be told."""
        now = time.monotonic()
        estimates = []
        if self.seconds is not None:
            estimates.append(self.seconds - (now - self.started))
        if self.total and self.trials:
            estimates.append((now - self.search_started) / self.trials * (self.total - self.trials))
        return max(0.0, min(estimates)) if estimates else None


class LiveProgress(LineProgress):
    """A callback that keeps one line up to date in a terminal."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.live import Live

        console = Console(stderr=True)
        super().__init__(console.file)
        self._console = console
        self._live = Live(console=console, get_renderable=self._render, refresh_per_second=8, transient=True)
        self._live.start()
        self._open = True

    def _render(self) -> Any:
        from rich.text import Text

        text = self.status() if self.phase == "searching" else self.phase
        return Text(f"{self.spinner()} {text}", no_wrap=True, overflow="ellipsis")

    def spinner(self) -> str:
        return "|/-\\"[int(time.monotonic() * 8) % 4]

    def round_ended(self) -> None:
        """The line is up to date already."""

    def race(self, contenders: int) -> None:
        self.phase = f"timing the {contenders} fastest in turns" if contenders > 1 else "timing the best beside numpy"

    def line(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False)

    def close(self) -> None:
        if self._open:
            self._open = False
            self._live.stop()


if __name__ == "__main__":
    sys.exit(main())
