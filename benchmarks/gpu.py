"""Kernels on a GPU beside torch: correctness of each, then one table.

    python -m benchmarks.gpu                              # by the schedule library; within five minutes
    python -m benchmarks.gpu --tuned 256 --resume         # after a search of 256 trials each; go on where it was left off
    python -m benchmarks.gpu --table                      # what is in the file of results
    python -m benchmarks.gpu --static --only float32      # registers, spills, waves and conflicts, without a GPU

All but --static needs a GPU, cuda-python with NVRTC, and torch. Rows of float32 run with TF32 off in torch; those called tf32
use it in both. Times are medians by CUDA events with the second-level cache overwritten before each sample, ours and torch's in
turns in one process. `of torch` is torch's time over ours: more than 1 is faster. `of copy` is the share of the bandwidth of a
copy on the device, where the row is bound by memory.

Rows are measured by a child process, one after another; one that fails, hangs or poisons its context loses itself alone, and
another child goes on. The CUDA C of a row, and what it raised, are files of `--sources`. Each result is appended to `--out` as a
line of JSON when it is there. A search takes at most `--row-seconds`, everything together `--seconds`; with `--resume`, rows that
are in the file are not measured again, and searches go on from `--records`.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from .gpu_row import Cuda, Row, measure
from .runner import ROOT

LONGEST = 90.0  # seconds of one row, besides its search
LEAST = 15.0  # seconds that are worth a row
MATRIX = 4096 * 1024 * 4

LIBRARY = (
    Row("gmm", (1024, 1024, 1024), goal=0.9), Row("gmm", (4096, 4096, 4096), goal=0.9), Row("gmm", (1000, 1000, 1000), goal=0.9),
    Row("float16", (4096, 4096, 4096), goal=0.6), Row("softmax", (4096, 1024), 2 * MATRIX, goal=1.0, goal_copy=0.8),
    Row("layernorm", (4096, 1024), 2 * MATRIX, goal=1.0, goal_copy=0.8),
    Row("gmm", (128, 64, 128, 12)), Row("gmm", (109, 1013, 1007)), Row("float32", (256, 256, 32768)),
    Row("float16", (1024, 1024, 1024)), Row("float16", (1000, 1000, 1000)), Row("float16", (256, 256, 32768)),
    Row("bfloat16", (4096, 4096, 4096)), Row("tf32", (4096, 4096, 4096)), Row("softmax", (4095, 1009), 2 * 4095 * 1009 * 4),
    Row("conv2d", (1, 56, 56, 64, 64, 3, 3, 1, 1)), Row("conv2d", (16, 56, 56, 64, 64, 1, 1, 1, 0)),
    Row("conv2d", (16, 28, 28, 128, 256, 3, 3, 2, 1)), Row("depthwise", (1, 112, 112, 32, 3, 3, 1, 1)),
    Row("conv_bn_relu", (1, 56, 56, 64, 64, 3, 2, 1)), Row("attention_weights", (1, 128, 12, 64)),
    Row("mlp", (1024, 2048, 1024, 3072)),
    Row("float16 nt", (4096, 4096, 4096)), Row("bfloat16 nt", (4096, 4096, 4096)), Row("float32 nt", (4096, 4096, 4096)),
    Row("float16 nt", (64, 64, 8192)), Row("float16 nt", (16, 4096, 4096)), Row("int8 nt", (4096, 4096, 4096)),
    Row("float64", (2048, 2048, 2048)), Row("convolution float16", (16, 64, 56, 56, 64, 3, 1, 1)),
    Row("convolution float16", (16, 256, 28, 28, 512, 1, 2, 0)), Row("attention float16", (1024, 1024, 64, 12)),
    Row("attention float32", (1024, 1024, 64, 12)), Row("transpose", (8192,), 2 * 8192 * 8192 * 4, goal_copy=0.8),
    Row("argmax", (4096, 1024), MATRIX),
)  # fmt: skip

# Ansor's figures 9 and 10: ConvLayer and TBS, batch 1 (OSDI 2020, section 7.2).
TUNED = (
    *(Row("gmm", (size, size, size), goal=0.95) for size in (1024, 1000, 4096)),
    *(Row("attention_weights", (1, *shape), goal=1.0) for shape in ((128, 12, 64), (128, 16, 64), (64, 12, 128), (128, 12, 128))),
    *(
        Row("conv_bn_relu", (1, *shape), goal=1.0)
        for shape in (
            (224, 224, 3, 64, 7, 2, 3), (56, 56, 64, 128, 3, 2, 1), (56, 56, 64, 64, 3, 2, 1), (28, 28, 128, 256, 1, 2, 0),
            (7, 7, 512, 512, 3, 1, 1),
        )
    ),
    Row("float16", (4096, 4096, 4096), goal=0.6),
)  # fmt: skip

Start = Callable[[Sequence[Row]], "subprocess.Popen[str]"]


def collect(rows: Sequence[Row], start: Start, longest: float, end: float) -> Iterator[tuple[Row, dict[str, Any]]]:
    """Results of the rows, one after another: a child made by `start` prints a line of JSON for each.

    Where that takes longer than `longest` seconds, or the child ends, the row has an `error`, and another child goes on behind
    it. At `end` (of `time.monotonic`) all that is left has one.
    """
    waiting = list(rows)
    while waiting:
        if end - time.monotonic() < LEAST:
            yield from ((row, {"ok": False, "error": "no time was left"}) for row in waiting)
            return
        child = _Child(start(waiting), longest, end)
        try:
            while waiting:
                result = child.result()
                yield waiting.pop(0), result
                if "error" in result:
                    break
        finally:
            child.kill()


class _Child:
    """A process that prints results; each may take `longest` seconds, and none comes after `end`."""

    def __init__(self, process: subprocess.Popen[str], longest: float, end: float):
        self._process, self._longest, self._end = process, longest, end
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._said: list[str] = []
        self._pumps = [
            threading.Thread(target=_pump, args=(process.stdout, self._lines.put, self._lines.put), daemon=True),
            threading.Thread(target=_pump, args=(process.stderr, self._said.append), daemon=True),
        ]
        for pump in self._pumps:
            pump.start()

    def result(self) -> dict[str, Any]:
        """The next result, or the error that the process ended with."""
        limit = min(time.monotonic() + self._longest, self._end)
        while True:
            try:
                line = self._lines.get(timeout=max(0.0, limit - time.monotonic()))
            except queue.Empty:
                text = f"no result within {self._longest:.0f} s" if limit < self._end else "the time was over"
                return {"ok": False, "error": text}
            if line is None:
                self._pumps[1].join(2.0)
                last = next((text.strip() for text in reversed(self._said) if text.strip()), "no message")
                return {"ok": False, "error": f"ended with code {self._process.wait()}: {last[:200]}"}
            try:
                result = json.loads(line)
            except ValueError:  # whatever a library prints
                continue
            if isinstance(result, dict):
                return result

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        for pump in self._pumps:
            pump.join(1.0)


def _pump(stream: Any, put: Callable[[str], object], end: Callable[[None], object] | None = None) -> None:
    for line in stream:
        put(line)
    if end is not None:
        end(None)


def serve(numbers: Sequence[int], rows: Sequence[Row], options: argparse.Namespace) -> int:
    """Measure rows in this process, a line of JSON each; after an error the context may be lost, so that is the last."""
    device = Cuda({"workers": options.workers})
    for n in numbers:
        seconds = min(options.row_seconds, options.end - time.time() - LEAST)
        try:
            if rows[n].trials and seconds < LEAST:
                raise TimeoutError("no time was left")
            result = measure(rows[n], device, options.records, seconds, options.sources / f"{rows[n].slug}.cu")
        except Exception as error:  # the outermost frame of a child: whatever a row raises is its result
            lines = str(error).strip().splitlines() or [""]
            options.sources.mkdir(parents=True, exist_ok=True)
            where = options.sources / f"{rows[n].slug}.txt"
            where.write_text(traceback.format_exc())
            print(json.dumps({"ok": False, "error": f"{type(error).__name__}: {lines[0][:200]}; {where}"}), flush=True)
            return 1
        print(json.dumps(result), flush=True)
    return 0


def table(results: Sequence[tuple[Row, dict[str, Any]]]) -> str:
    """The results, a line each."""
    head = f"{'workload':17} {'shape':28} {'trials':>6} {'ok':>3} {'us':>10} {'torch us':>10} {'of torch':>8} {'goal':>5}"
    lines = [f"{head} {'TFLOP/s':>8} {'of copy':>8} {'regs':>4} {'spills':>6}"]
    for row, r in results:
        shape, ok = ",".join(map(str, row.shape)), "yes" if r["ok"] else "NO"
        start = f"{row.name:17} {shape:28} {row.trials or '':>6} {ok:>3}"
        if "error" in r:
            lines.append(f"{start} {r['error']}")
            continue
        missed = (row.goal or 0) > r["of_torch"], (row.goal_copy or 0) > (r["of_copy"] or 0)
        goal = f"{row.goal:.2f}{'!' if missed[0] else ''}" if row.goal else ""
        share = f"{r['of_copy']:.2f}{'!' if missed[1] else ''}" if r["of_copy"] else ""
        times = f"{r['seconds'] * 1e6:10.1f} {r['torch'] * 1e6:10.1f} {r['of_torch']:8.2f} {goal:>5} {r['tflops']:8.2f}"
        lines.append(f"{start} {times} {share:>8} {r['registers']:4} {r['spills']:6}")
    return "\n".join([*lines, "A ! marks what falls short of its goal."])


def earlier(path: Path) -> list[dict[str, Any]]:
    """The results in a file, but for what was cut off; none if there is no such file."""
    found = []
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found


def latest(rows: Sequence[Row], lines: Sequence[dict[str, Any]]) -> list[tuple[Row, dict[str, Any]]]:
    """The last result without an error of each row that has one."""
    found = {json.dumps([r["workload"], r["shape"], r["trials"]]): r for r in lines if "error" not in r}
    keys = [(row, json.dumps(list(row.key.values()))) for row in rows]
    return [(row, found[key]) for row, key in keys if key in found]


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--tuned", type=int, default=0, metavar="TRIALS", help="the rows that are searched for, with so many trials"
    )
    parser.add_argument("--only", help="rows of this name only; of --static, with this in their names")
    parser.add_argument("--seconds", type=float, default=300.0, help="for everything; 540 for --tuned")
    parser.add_argument("--row-seconds", type=float, default=120.0, help="for one search")
    workers = max(1, min(12, (os.cpu_count() or 1) * 3 // 4))
    parser.add_argument("--workers", type=int, default=workers, help="processes that build candidates of a search at once")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "gpu.jsonl", help="where results are appended")
    sources = ROOT / "build" / "gpu"
    parser.add_argument("--sources", type=Path, default=sources, help="the folder of each row's CUDA C and of what it raised")
    parser.add_argument("--records", type=Path, default=ROOT / "build" / "gpu.db", help="the records of searches")
    parser.add_argument("--resume", action="store_true", help="keep the rows that are in the file of results")
    parser.add_argument("--table", action="store_true", help="print the table of the file of results, and end")
    parser.add_argument("--static", action="store_true", help="print what the machine code tells, without a GPU, and end")
    parser.add_argument("--arch", default="sm_90", help="the architecture of --static")
    parser.add_argument("--serve", help=argparse.SUPPRESS)  # rows by number, in this process
    parser.add_argument("--end", type=float, default=float("inf"), help=argparse.SUPPRESS)  # of time.time()
    options = parser.parse_args(argv)
    if options.tuned and options.seconds == parser.get_default("seconds"):
        options.seconds = 540.0
    return options


def main(argv: Sequence[str] | None = None, start: Start | None = None) -> int:
    """Measure and print; tests pass `start`. Status 1 where a row has no right result, 2 without a GPU."""
    options = parse(argv)
    if options.static:
        from .gpu_static import print_signs

        return print_signs(options.arch, options.only)
    trials = options.tuned
    rows = [replace(row, trials=trials) for row in TUNED] if trials else list(LIBRARY)
    if options.table:
        known = earlier(options.out)
        counts = sorted({r["trials"] for r in known} - {0})
        print(table(latest([*LIBRARY, *(replace(row, trials=n) for n in counts for row in TUNED)], known)))
        return 0
    if start is None:
        from codegen.cuda.driver import devices

        if not devices():
            print("there is no GPU here: nothing to measure (make test runs the kernels on the CPU)", file=sys.stderr)
            return 2
    if options.serve is not None:
        return serve([int(n) for n in options.serve.split(",")], rows, options)
    for path in (options.out, options.records):
        path.parent.mkdir(parents=True, exist_ok=True)
    wanted = [row for row in rows if options.only in (None, row.name)]
    done = latest(wanted, earlier(options.out)) if options.resume else []
    todo = [row for row in wanted if row not in [known for known, _ in done]]
    print(f"{_circumstances()}; {len(todo)} row(s) to measure, {len(done)} known", flush=True)
    end, results = time.monotonic() + options.seconds, dict(done)
    epoch = time.time() + options.seconds

    def child(waiting: Sequence[Row]) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "benchmarks.gpu", "--serve", ",".join(str(rows.index(row)) for row in waiting)]
        command += ["--tuned", str(trials), "--row-seconds", str(options.row_seconds), "--records", str(options.records)]
        command += ["--sources", str(options.sources)]
        command += ["--workers", str(options.workers), "--end", str(epoch)]
        return subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    longest = LONGEST + (options.row_seconds if trials else 0.0)
    for row, result in collect(todo, start or child, longest, end):
        results[row] = result
        line = json.dumps({**row.key, **result})
        print(line, flush=True)
        with options.out.open("a") as file:
            file.write(f"\n{line}")  # the last line may have been cut off
    print(f"\n{table([(row, results[row]) for row in wanted])}")
    return 0 if all(r["ok"] for r in results.values()) else 1


def _circumstances() -> str:
    """The device, and what computes beside us."""
    from importlib import metadata

    from codegen.cuda.driver import device_name

    try:
        torch = metadata.version("torch")
    except metadata.PackageNotFoundError:
        torch = "(missing: every row will say so)"
    return f"{device_name() or 'no GPU'}, torch {torch}; TF32 is off but in rows called tf32"


if __name__ == "__main__":
    sys.exit(main())
