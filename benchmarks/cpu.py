"""Programs on this processor beside numpy and, where installed, torch and onnxruntime: medians of calls in turns, on one and on
all cores.

Every contender's result is compared with a float64 reference within its bound before it is timed: if ours is wrong, the row has
failed and is not timed; a peer that is wrong is left out. Ours is called with its arguments checked once (`Kernel.bind`).
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

import tir
from codegen.peak import copier
from tir.ir import buffer_nbytes

from . import onnx_peer, pages, peers, programs
from .options import Options
from .runner import Effort, Roof, Timing, circumstances, race, ratios, warm

if TYPE_CHECKING:
    from rich.table import Table

    from tir.ir import PrimFunc
    from tir.workloads import Check, Instance

THREADED = True


class Row(NamedTuple):
    """A program at a shape, and how fast it should be: `goal` times as fast as the peer `against`, or, where that is "copy", as
    a copy that moves as many bytes: half of one that is large enough to pass the caches by."""

    program: str
    shape: tuple[int, ...]
    against: str
    goal: float


TABLE: dict[str, Row] = {
    "gemm-1024": Row("gmm", (1024, 1024, 1024), "numpy", 1.0),
    "gemm-2048": Row("gmm", (2048, 2048, 2048), "numpy", 1.0),
    "gemm-512": Row("gmm", (512, 512, 512), "numpy", 1.0),
    "gemm-512x32x512": Row("gmm", (512, 32, 512), "numpy", 1.0),
    "gemm-1000": Row("gmm", (1000, 1000, 1000), "numpy", 0.95),
    "gemm-97x1021x509": Row("gmm", (97, 1021, 509), "numpy", 0.95),
    "gemm-3072x768x768": Row("gmm", (3072, 768, 768), "numpy", 0.95),
    "gemm-127": Row("gmm", (127, 127, 127), "numpy", 0.95),
    "gemm-128": Row("gmm", (128, 128, 128), "numpy", 0.9),
    "gemv": Row("gemv", (4096, 4096), "copy", 0.9),
    "add-relu": Row("add_relu", (1 << 24,), "copy", 0.9),
    "mlp": Row("mlp", (1024, 2048, 1024, 3072), "numpy", 1.05),
    "conv-56x64": Row("conv2d", (1, 56, 56, 64, 64, 3, 3, 1, 1), "torch", 1.0),
    "conv-28x128": Row("conv2d", (1, 28, 28, 128, 128, 3, 3, 1, 1), "torch", 1.0),
    "conv-14x256": Row("conv2d", (1, 14, 14, 256, 256, 3, 3, 1, 1), "torch", 1.0),
    "conv-7x512": Row("conv2d", (1, 7, 7, 512, 512, 3, 3, 1, 1), "torch", 1.0),
    "conv-1x1": Row("conv2d", (1, 56, 56, 64, 256, 1, 1, 1, 0), "torch", 1.0),
    "conv-7x7": Row("conv2d", (1, 224, 224, 3, 64, 7, 7, 2, 3), "torch", 1.0),
    "depthwise-112x32": Row("depthwise", (1, 112, 112, 32, 3, 3, 1, 1), "torch", 2.0),
    "depthwise-14x512": Row("depthwise", (1, 14, 14, 512, 3, 3, 1, 1), "torch", 2.0),
    "softmax": Row("softmax", (4096, 1024), "torch", 1.0),
    "layernorm": Row("layernorm", (4096, 1024), "torch", 1.0),
    "attention": Row("attention", (12, 128, 64), "torch", 1.0),
}

ROWS = tuple(TABLE)

DEFAULT = tuple(row for row in ROWS if row not in ("gemm-2048", "gemm-3072x768x768", "gemm-127", "conv-28x128"))


def measure(row: str, options: Options) -> Iterator[dict[str, Any]]:
    """One result: what each contender took, its error, the ratios, and the ceilings of the moment."""
    entry = TABLE[row]
    instance = programs.instance(entry.program, entry.shape)
    result: dict[str, Any] = {
        "threads": options.threads,
        "program": entry.program,
        "shape": list(entry.shape),
        "dtype": instance.dtype,
        "flop": instance.flop,
        "bytes": buffer_nbytes(*instance.func.buffers),
        "against": entry.against,
        "goal": entry.goal,
    }
    inputs, outputs = programs.arrays(instance, options.seed)
    rivals = peers.rivals(instance, inputs, outputs, options.threads)
    if onnx_peer.installed() and (call := onnx_peer.onnx_call(instance, inputs, options.threads)) is not None:
        rivals["onnxruntime"] = call

    target = tir.Target("llvm", num_cores=options.threads)
    start = time.perf_counter()
    func = scheduled(row, instance, target, options)
    middle = time.perf_counter()
    kernel = tir.build(func, target)
    result |= {"schedule": options.schedule, "schedule_s": middle - start, "build_s": time.perf_counter() - middle}
    contenders = {"tir": kernel.bind(*inputs, *outputs), **rivals}
    found, checks = judged(contenders, outputs, instance.checker(inputs))
    result |= circumstances() | found
    if not checks["tir"].ok:
        yield {**result, "error": f"wrong result: {checks['tir']}"}
        return
    right = {name: call for name, call in contenders.items() if checks[name].ok}

    if entry.against == "copy":  # in turns too, as the bandwidth changes from moment to moment
        right["copy"] = copier(result["bytes"], target)  # reads as much as the row moves, and writes as much again

    before = Roof.measure(options.threads, instance.dtype)
    timings = race(right, Effort(seconds=options.seconds, warm=warm(options.threads)))
    if "copy" in timings:
        timings["copy"] = timings["copy"].scaled(0.5)
    result |= summary(timings, before.best(Roof.measure(options.threads, instance.dtype)), result)
    if options.schedule == "default":
        pages.keep(options.save, "cpu", row, result, write)
    yield result


def judged(
    contenders: Mapping[str, Callable[[], Any]], outputs: Sequence[np.ndarray], check: Callable[[Any], Check]
) -> tuple[dict[str, Any], dict[str, Check]]:
    """The tolerance, the errors of the contenders and a note on those that are wrong; and their checks."""
    checks = {name: checked(call, outputs, check) for name, call in contenders.items()}
    errors = {name: c.max_error if np.isfinite(c.max_error) else None for name, c in checks.items()}
    result: dict[str, Any] = {"tolerance": next(iter(checks.values())).tolerance, "errors": errors}
    if wrong := [name for name, c in checks.items() if not c.ok]:
        result["note"] = f"the result of {', '.join(wrong)} is wrong: left out"
    return result, checks


def checked(call: Callable[[], Any], outputs: Sequence[np.ndarray], check: Callable[[Any], Check]) -> Check:
    """Run once into outputs full of NaN, or whatever the call returns instead, and compare."""
    for array in outputs:
        array.fill(np.nan)
    returned = call()
    return check(tuple(outputs) if returned is None else (np.asarray(returned),))


def summary(timings: dict[str, Timing], roof: Roof, result: dict[str, Any]) -> dict[str, Any]:
    """What the timings say: speeds, ratios to each peer (above 1: ours is faster), shares of the ceilings, and what the row is
    judged by: `ratio`, to be compared with the goal."""
    contenders = {
        name: {**t.as_json(), "gflops": result["flop"] / t.median / 1e9, "gbps": result["bytes"] / t.median / 1e9}
        for name, t in timings.items()
    }
    ours = timings["tir"]
    compared = {}
    for name, timing in timings.items():
        if name != "tir":
            ratio, between = ratios(ours, timing)
            compared[name] = {"ratio": ratio, "quartiles": list(between)}
    shares = {"fma": result["flop"] / ours.median / roof.fma, "copy": result["bytes"] / ours.median / roof.copy}
    against = result["against"]
    judged = compared.get(against, {}).get("ratio")
    return {"contenders": contenders, "ratios": compared, "roof": asdict(roof), "shares": shares, "ratio": judged}


# --- the program that is measured --------------------------------------------------------------------------------------


def scheduled(row: str, instance: Instance, target: tir.Target, options: Options) -> PrimFunc:
    """The program under the schedule asked for. FileNotFoundError if it should have been found in `options.best`."""
    match options.schedule:
        case "unscheduled":
            return instance.func
        case "default":
            return tir.default_schedule(instance.func, target).func
        case "tuned":
            trace = _tune(row, instance, target, options) if options.best is None else _load(row, instance, options)
            return _replayed(instance.func, trace)
        case other:
            raise ValueError(f"a schedule is default, tuned or unscheduled, not {other!r}")


def _replayed(func: PrimFunc, trace: Any) -> PrimFunc:
    from schedule import Trace, replay

    return func if trace is None else replay(func, Trace.from_json(trace)).func


def _tune(row: str, instance: Instance, target: tir.Target, options: Options) -> Any:
    """The trace that a search finds; kept in the folder `options.save` if there is one, as `python -m tir.tune --out` does."""
    from cli.tune.saved import Saver
    from search.measure.provenance import versions
    from tir.tune import LineProgress

    task = programs.task_of(instance, target)
    callbacks: list[Callable[[Any], None]] = [LineProgress(sys.stderr)]
    if options.save is not None:
        folder = Path(options.save)
        folder.mkdir(parents=True, exist_ok=True)
        header = {**_identity(instance, options), "target": "llvm", "seed": options.seed, "versions": versions()}
        callbacks.append(Saver(folder / f"{row}-{options.threads}.json", header))
    how: dict[str, Any] = {"seed": options.seed, "workload": task.workload, "callbacks": callbacks}
    return tir.autotune(task.func, target, options.trials, **how).trace


def _identity(instance: Instance, options: Options) -> dict[str, Any]:
    """By which a schedule in a file is recognised."""
    about = {"workload": instance.name, "shape": list(instance.shape), "dtype": instance.dtype}
    return {**about, "threads": options.threads}


def _load(row: str, instance: Instance, options: Options) -> Any:
    """The fastest trace for this program and number of threads in the files of a folder that `--out` or `--save` wrote."""
    identity = _identity(instance, options)
    best: tuple[float, Any] | None = None
    for path in sorted(Path(str(options.best)).glob("*.json")):
        content = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(content, dict) or "trace" not in content or {k: content.get(k) for k in identity} != identity:
            continue
        seconds = content.get("seconds", {}).get("best") or float("inf")
        if best is None or seconds < best[0]:
            best = (seconds, content["trace"])
    if best is None:
        shape, s = ",".join(map(str, instance.shape)), "s" if options.threads > 1 else ""
        raise FileNotFoundError(
            f"{options.best} holds no schedule of {instance.name} {shape} on {options.threads} thread{s}; make one with "
            f"python -m benchmarks cpu --rows {row} --threads {options.threads} --schedule tuned --save {options.best}"
        )
    return best[1]


# --- the table ---------------------------------------------------------------------------------------------------------


def table(results: Sequence[dict[str, Any]]) -> Table:
    """A line a result: times, speed, share of the nearer ceiling, ratios, and whether the goal is met."""
    kinds = ", ".join(dict.fromkeys(r["schedule"] for r in results if "schedule" in r))
    others = list(dict.fromkeys(name for r in results for name in r.get("ratios", ())))
    lines = []
    for r in results:
        if "contenders" not in r:
            lines.append((r["row"], str(r.get("threads", "")), "[red]failed[/red]"))
            continue
        ours, memory = r["contenders"]["tir"], r["shares"]["copy"] >= r["shares"]["fma"]
        low, high = ours["quartiles_s"]
        speed = f"{ours['gbps']:.1f} GB/s" if memory else f"{ours['gflops']:.1f} GFLOP/s"
        share = f"{r['shares']['copy']:.0%} copy" if memory else f"{r['shares']['fma']:.0%} fma"
        compared = [f"{r['ratios'][name]['ratio']:.2f}" if name in r["ratios"] else "-" for name in others]
        quartiles = f"{_milliseconds(low)}-{_milliseconds(high)}"
        time_of = f"{_milliseconds(ours['median_s'])} ms"
        lines.append((r["row"], str(r["threads"]), time_of, quartiles, speed, share, *compared, _goal(r)))
    columns = ("row", "threads", "time", "quartiles", "speed", "of roof", *(f"x {name}" for name in others), "goal")
    return pages.console(f"cpu (schedule: {kinds or '-'})", columns, lines, caption=CAPTION)


INTRODUCTION = """\
# The default schedule

Made by `python -m benchmarks cpu --rows all --threads 1,2 --save DIR`. Nothing is searched: `tir.default_schedule` recognises the
program by its structure, and formulas pick the tile sizes. It and its peers are called in turns in one process, float32, with the
same number of threads; `ms` and the ratios are medians. `of roof` is the share of the measured peak of multiply-adds (fma) or of
copying (copy), whichever is more; `x NAME` how many times faster than it, and `x best` than the fastest of them.
"""


def section(results: Sequence[dict[str, Any]]) -> list[str]:
    """What the page says of results on one number of threads."""
    others = [name for name in dict.fromkeys(name for r in results for name in r["ratios"]) if name != "copy"]
    columns = ("row", "shape", "ms", "of roof", *(f"x {name}" for name in others), "x best")
    return [pages.table(columns, [_cells(r, others) for r in results])]


write = pages.writer("cpu", INTRODUCTION, section, ROWS)


def _cells(r: dict[str, Any], others: Sequence[str]) -> list[str]:
    ratios = {name: r["ratios"][name]["ratio"] for name in others if name in r["ratios"]}
    share = "copy" if r["shares"]["copy"] >= r["shares"]["fma"] else "fma"
    compared = [f"{ratios[name]:.2f}" if name in ratios else "-" for name in others]
    best = f"{min(ratios.values()):.2f}" if ratios else "-"
    milliseconds = _milliseconds(r["contenders"]["tir"]["median_s"])
    return [r["row"], ",".join(map(str, r["shape"])), milliseconds, f"{r['shares'][share]:.0%} {share}", *compared, best]


CAPTION = "x NAME: how many times faster than it, copy moving as many bytes as the parameters have; of roof: of the best moment"


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:.3g}" if seconds < 1 else f"{seconds * 1e3:.0f}"


def _goal(r: dict[str, Any]) -> str:
    text = f"{r['goal']:.0%} copy" if r["against"] == "copy" else f"{r['goal']:.2f} x {r['against']}"
    if r["ratio"] is None:
        return text
    return f"[green]{text}[/green] +" if r["ratio"] >= r["goal"] else f"[red]{text}[/red] -"
