"""Whole networks beside onnxruntime, OpenVINO and torch: correctness, time, memory, and what compiling takes.

A row is a network of `benchmarks.torch_networks` and one of its exports, as in `resnet50-folded`. Or it has a type in which
the folded one is computed, as in `resnet50-int8`. Files are made where they are not in `--models DIR`. Each library runs in a
process of its own, and they are called in turns, batch 1, on the same number of threads. `--types float32,int8` selects rows.
In int8, ours is what `tir.quantise` makes, of the samples that onnxruntime's static quantiser has, whose file OpenVINO reads,
too. In bfloat16, which onnxruntime lacks on CPUs, ours and OpenVINO's are told to compute in it. OpenVINO does so where the
processor has instructions for it; elsewhere our error is judged by that of torch's module in bfloat16, which is not timed.
The outputs are compared with torch's in float64 first; what is wrong is not timed. With `--save DIR` results are kept in
`DIR/networks.json` and shown in `DIR/networks.md`; a row that is there at this commit is not measured again.

It needs the extra `networks`.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from codegen.runtime.timing import duration

from . import pages
from .network_contender import typed
from .options import Options
from .runner import ROOT, Effort, circumstances, commit, race, ratios, warm

NETWORKS = (
    "resnet18", "resnet50", "mobilenet_v2", "mobilenet_v3_large", "efficientnet_b0", "shufflenet_v2", "squeezenet1_1",
    "inception_v3", "densenet121", "r3d_18", "unet", "dcgan", "vit_b_16", "bert", "gpt2_prefill", "gpt2_decode", "lstm",
)  # fmt: skip
EXPORTS = ("folded", "unfolded", "torchscript")
MALFORMED = ("r3d_18-unfolded",)  # torch writes biases of two dimensions, which onnxruntime refuses, too
TYPES = {"float32": "folded", "bfloat16": "bfloat16", "int8": "int8"}  # the export of each, in names of rows
NARROW = ("bfloat16", "int8")
ROWS = tuple(row for network in NETWORKS for export in (*EXPORTS, *NARROW) if (row := f"{network}-{export}") not in MALFORMED)
DEFAULT = tuple(f"{network}-folded" for network in NETWORKS)
THREADED = True

PEERS = ("onnxruntime", "openvino", "torch")
RIVALS = PEERS[:2]  # of which the faster one is what we are compared with
TOLERANCE = 5e-4  # the largest difference of an element, as a part of its output's root mean square
WORSE = 1.25  # most of our error in a narrow type, of the root mean square, as a multiple of the largest of others in that type
PATIENCE = 30.0  # seconds in which a process ends by itself
SHOWN = 8  # kernels of ours in a result, those that take longest


class Contender:
    """A library that runs a network, in a process of its own: of a module with its arguments."""

    def __init__(self, module: str, *arguments: str):
        command = [sys.executable, "-m", module, *arguments]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)
        self.about = self._answer()

    def __enter__(self) -> Contender:
        return self

    def __exit__(self, *error: object) -> None:
        """It ends when it has nothing more to read; or is ended, where it does not."""
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def __call__(self) -> None:
        self.seconds(1)

    def seconds(self, calls: int) -> float:
        """Seconds of a call, the mean of so many in a row."""
        return self.ask(str(calls))["seconds"]

    def kernels(self) -> list[tuple[str, int, float]]:
        """Of each kernel its name, its calls, and their seconds in all; nothing of other libraries."""
        return self.ask("profile")["kernels"]

    def ask(self, request: str) -> dict[str, Any]:
        """The answer to a request. RuntimeError with what failed."""
        assert self._process.stdin is not None
        print(request, file=self._process.stdin, flush=True)
        found = self._answer()
        if "error" in found:
            raise RuntimeError(found["error"])
        return found

    def _answer(self) -> dict[str, Any]:
        """What the process says next; that it died, if it did."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        return json.loads(line) if line else {"error": f"the process died (exit status {self._process.wait()})"}


def measure(row: str, options: Options) -> Iterator[dict[str, Any]]:
    """One result: of each library its time, error, memory and compile time, and the ratio to the faster of RIVALS."""
    known = pages.known(options.save, "networks").get(f"{row}/{options.threads}")
    if known is not None and known["commit"] == commit() and not commit().endswith("+"):
        yield known
        return
    network, _, export = row.rpartition("-")
    result: dict[str, Any] = {"threads": options.threads, "network": network, "export": export, **circumstances()}
    with ExitStack() as stack:
        folder = Path(options.models or stack.enter_context(tempfile.TemporaryDirectory()))
        kind = export if export in NARROW else "float32"
        file = exported(network, export, folder)
        peers = {"float32": PEERS, "bfloat16": tuple(p for p in RIVALS if p != "onnxruntime")}.get(kind, RIVALS)
        process, what = "benchmarks.network_contender", (str(file), str(options.threads), kind)
        libraries = {name: stack.enter_context(Contender(process, name, *what)) for name in ("tir", *peers)}
        result |= {name: contender.about for name, contender in libraries.items()}
        offs = [result[name].get("off") or 0.0 for name in peers]
        if kind == "bfloat16" and max(offs) <= TOLERANCE:
            with Contender(process, "torch", *what) as judge:
                offs.append(judge.about.get("off") or 0.0)
        if why := wrong(result["tir"], most_off(kind, offs)):
            yield {**result, "error": why}
            return
        allowed = TOLERANCE if kind == "float32" else float("inf")
        right = {name: contender for name, contender in libraries.items() if name == "tir" or not wrong(contender.about, allowed)}
        timings = race(right, Effort(seconds=options.seconds, warm=warm(options.threads)))
        kernels = sorted(libraries["tir"].kernels(), key=lambda k: -k[2])
    for name, timing in timings.items():
        result[name] = {**result[name], **timing.as_json()}
        if name != "tir":
            ratio, between = ratios(timings["tir"], timing)
            result[name] |= {"ratio": ratio, "quartiles": list(between)}
    result["kernels"] = [list(k) for k in kernels[:SHOWN]]
    pages.keep(options.save, "networks", row, result, write)
    yield result


def most_off(kind: str, others: Sequence[float]) -> float:
    """The largest error of ours in a type, of the root mean square, beside those of others: in a narrow type, of such as are not
    right in float32, as these computed in that. In int8 there may be none."""
    if kind == "float32":
        return TOLERANCE
    return WORSE * max((off for off in others if off > TOLERANCE), default=float("inf") if kind == "int8" else 0.0)


def wrong(about: dict[str, Any], most: float = TOLERANCE) -> str:
    """Why what a library says of itself is no reason to time it; empty where it is."""
    if "error" in about:
        return about["error"]
    if about["off"] is None:
        return "wrong result: not finite, or of another shape"
    return "" if about["off"] <= most else f"wrong result: off by {about['off']:.3g} of its root mean square"


def exported(network: str, export: str, folder: Path) -> Path:
    """The file of an export, which is made in a process of its own if it is not there. RuntimeError if it cannot be."""
    name = f"{network}.{'folded' if export in NARROW else export}"
    file = folder / f"{name}.onnx"
    if not file.exists() or not (folder / f"{network}.npz").exists():
        _make(file, "exported", "benchmarks.torch_networks", str(folder), name)
    if not (narrow := typed(file, export if export in NARROW else "float32")).exists():
        _make(narrow, "quantised", "benchmarks.static_quantiser", str(file), str(narrow))
    return file


def _make(file: Path, done: str, module: str, *words: str) -> None:
    made = subprocess.run([sys.executable, "-m", module, *words], cwd=ROOT, capture_output=True, text=True)
    if not file.exists():
        raise RuntimeError(f"the network could not be {done}: {made.stderr.strip().splitlines()[-1:]}")


def of_types(rows: Sequence[str], types: str) -> tuple[str, ...]:
    """The rows of some types, separated by commas, of all that were chosen. ValueError for an unknown type."""
    exports = []
    for name in types.split(","):
        if name not in TYPES:
            raise ValueError(f"--types takes {', '.join(TYPES)}, separated by commas, got {name!r}")
        exports.append(TYPES[name])
    chosen = {row.rpartition("-")[0] for row in rows}
    return tuple(
        row for network in NETWORKS for export in exports if network in chosen and (row := f"{network}-{export}") in ROWS
    )


# --- what is shown -----------------------------------------------------------------------------------------------------

COLUMNS = ("row", "ms", "quartiles", "× best", *(f"× {name}" for name in PEERS), "off", "compile", "again", "MB", "MB of best")


def best(r: dict[str, Any]) -> tuple[str, float] | None:
    """The faster of RIVALS, and how many times faster than it ours is."""
    found = [(name, r[name]["ratio"]) for name in RIVALS if "ratio" in r.get(name, {})]
    return min(found, key=lambda pair: pair[1], default=None)


def cells(r: dict[str, Any]) -> tuple[str, ...]:
    """A result that has timings, in COLUMNS."""
    ours, rival = r["tir"], best(r)
    low, high = (f"{1e3 * s:.3g}" for s in ours["quartiles_s"])
    return (
        r["row"], f"{1e3 * ours['median_s']:.3g}", f"{low}..{high}", "-" if rival is None else f"{rival[1]:.2f} ({rival[0]})",
        *(f"{r[name]['ratio']:.2f}" if "ratio" in r.get(name, {}) else "-" for name in PEERS),
        f"{ours['off']:.1e}", duration(ours["compile_s"], 3), duration(ours["again_s"], 3), f"{ours['memory_mb']:.0f}",
        "-" if rival is None else f"{r[rival[0]]['memory_mb']:.0f}",
    )  # fmt: skip


def means(results: Sequence[dict[str, Any]]) -> tuple[str, ...]:
    """The geometric means of the ratios, in COLUMNS."""
    rivals = [found[1] for r in results if (found := best(r)) is not None]
    each = [[r[name]["ratio"] for r in results if "ratio" in r.get(name, {})] for name in PEERS]
    found = [f"{pages.geometric_mean(own):.2f}" if own else "-" for own in (rivals, *each)]
    return ("geometric mean", "", "", *found, *[""] * (len(COLUMNS) - 3 - len(found)))


def table(results: Sequence[dict[str, Any]]) -> Any:
    """A line a result, and the means of each number of threads."""
    from rich.table import Table

    def shown(line: Sequence[str]) -> list[str]:
        return [cell for cell, name in zip(line, COLUMNS, strict=False) if name not in ("quartiles", "MB", "MB of best")]

    t = Table(
        title="networks, batch 1, float32 but for rows of other types",
        title_justify="left",
        caption=CAPTION,
        caption_justify="left",
    )
    for n, name in enumerate(("threads", *shown(COLUMNS))):
        t.add_column(name, justify="left" if n == 1 else "right", no_wrap=True)
    for threads, narrow in sorted({(r["threads"], _narrow(r)) for r in results}):
        own = [r for r in results if (r["threads"], _narrow(r)) == (threads, narrow)]
        for r in own:
            t.add_row(str(threads), *(shown(cells(r)) if "kernels" in r else (r["row"], "[red]failed[/red]")))
        t.add_row(str(threads), *shown(means([r for r in own if "kernels" in r])))
    return t


def _narrow(r: dict[str, Any]) -> str:
    """The narrow type of a result; empty for float32."""
    export = r["row"].rpartition("-")[2]
    return export if export in NARROW else ""


CAPTION = (
    "× NAME: how many times faster than it; × best: than the faster of onnxruntime and OpenVINO; off: of the root mean square"
)

INTRODUCTION = f"""# Whole networks

Made by `python -m benchmarks networks --threads 1,2 --save DIR`. Nothing is searched. Random weights, batch 1, float32
(OpenVINO is held to it) but for the rows of int8: ours by `tir.quantise`, onnxruntime's by its static quantiser, whose file
OpenVINO reads; and of bfloat16, by `precision="bfloat16"` and `INFERENCE_PRECISION_HINT=bf16`. Each library runs in a process
of its own, and they are called in turns, on the same number of threads: `ms` and the ratios are medians. `× NAME` says how
many times faster than it ours is, `× best` than the faster of onnxruntime and OpenVINO. `off` is the largest difference from
torch in float64, as a part of an output's root mean square, at most {TOLERANCE:g}; of narrow types it is the root mean square
of the differences, at most {WORSE:g} times the rivals', or torch's in bfloat16 where these compute in float32. `compile` is
what compiling takes the first time, `again` from the cache; `MB` the memory that a loaded network takes beside the library.
"""


def section(results: Sequence[dict[str, Any]]) -> Iterator[str]:
    """What the page says of results on one number of threads: all rows, and of each the kernels that take longest."""
    for narrow in sorted(set(map(_narrow, results))):
        own = [r for r in results if _narrow(r) == narrow]
        yield pages.table(COLUMNS, [*map(cells, own), means(own)])
    for r in results:
        rows = [(name, calls, duration(s, 3), f"{s / r['tir']['median_s']:.1%}") for name, calls, s in r["kernels"]]
        yield f"### {r['row']}\n\n{pages.table(('kernel', 'calls', 'time', 'share'), rows)}"


write = pages.writer("networks", INTRODUCTION, section, ROWS)
