"""A language model beside llama.cpp: a prompt of 512 tokens, and steps of one token behind it.

A row is a model of random weights of some size, and the type of its matrices, as in `100m-q4_0`. Its GGUF file is made where it
is not in `--models DIR`. Each library reads the file in a process of its own, and they are called in turns on the same number of
threads. Scores are compared first; what is wrong is not timed. llama.cpp rounds rows to 8 bits, in blocks, before it multiplies
them by numbers in blocks. With `--save DIR` results are kept in `DIR/generate.json` and shown in `DIR/generate.md`.

It needs the packages gguf, tokenizers and llama-cpp-python; without the last one, ours is timed alone.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from . import pages
from .generate_contender import PROMPT, STEPS
from .networks import Contender
from .options import Options
from .runner import ROOT, Effort, Roof, circumstances, race, ratios, warm

KINDS = {"f16": "F16", "q8_0": "Q8_0", "q4_0": "Q4_0", "q4_k": "Q4_K"}
ROWS = tuple(f"{size}-{kind}" for size in ("tiny", "100m", "1b") for kind in KINDS)
DEFAULT = tuple(row for row in ROWS if row.startswith("100m"))
THREADED = True
SECONDS = 8.0  # of each part

PEERS = {"llama.cpp": "llama_cpp"}  # and the package of each
PARTS = {"prefill": PROMPT, "decode": 1}  # tokens of a call
# Most root mean square of the difference of scores, of that of the scores: rows of 8 bits in each of some dozen layers, and
# weights of float16, whose products llama.cpp rounds to it.
TOLERANCE = 0.1


class Part:
    """One part of a contender, prefill or decode, as a contender that times itself."""

    def __init__(self, contender: Contender, name: str):
        self.contender, self.name = contender, name

    def __call__(self) -> None:
        self.seconds(1)

    def seconds(self, calls: int) -> float:
        """Seconds of a call, the mean of so many in a row."""
        return self.contender.ask(f"{self.name} {calls}")["seconds"]


def measure(row: str, options: Options) -> Iterator[dict[str, Any]]:
    """One result: tokens a second of each library by part, its memory, and the bytes that a step reads beside a copy's."""
    size, _, kind = row.partition("-")
    result: dict[str, Any] = {"threads": options.threads, **circumstances()}
    with ExitStack() as stack:
        folder = Path(options.models or stack.enter_context(tempfile.TemporaryDirectory()))
        file = folder / f"{row}.gguf"
        if not file.exists():
            command = [sys.executable, "-m", "benchmarks.random_gguf", str(file), size, KINDS[kind]]
            subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
        names = ("tir", *(name for name, package in PEERS.items() if find_spec(package)))
        process = "benchmarks.generate_contender"
        kept = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "model"
        words = (str(file), str(options.threads), str(kept))
        with Contender(process, "tir", *words) as first:  # which compiles
            first_s = first.about.get("load_s")
        contenders = {name: stack.enter_context(Contender(process, name, *words)) for name in names}
        result |= {name: dict(contender.about) for name, contender in contenders.items()}
        result["tir"]["first_s"] = first_s
        scores = {name: np.array(result[name].pop("scores", ())) for name in names}
        for name in names:
            if why := wrong(result[name], scores[name], scores["tir"]):
                yield {**result, "error": f"{name}: {why}"}
                return
        result["file_mb"] = file.stat().st_size / 1e6
        for part, tokens in PARTS.items():
            calls = {name: Part(contender, part) for name, contender in contenders.items()}
            roof = Roof.measure(options.threads)
            timings = race(calls, Effort(seconds=options.seconds, sample=0.05, warm=warm(options.threads)))
            result["copy_gb_s"] = roof.best(Roof.measure(options.threads)).copy / 1e9
            for name, timing in timings.items():
                low, high = timing.quartiles
                found = {"per_s": tokens / timing.median, "quartiles": [tokens / high, tokens / low]}
                if name != "tir":
                    ratio, between = ratios(timings["tir"], timing)
                    found |= {"ratio": ratio, "between": list(between)}
                result[name][part] = found
    ours = result["tir"]
    ours["read_mb"] = result["file_mb"] + ours["cache_mb"]
    result["share"] = ours["read_mb"] * ours["decode"]["per_s"] / 1e3 / result["copy_gb_s"]
    pages.keep(options.save, "generate", row, result, write)
    yield result


def wrong(about: dict[str, Any], scores: np.ndarray, ours: np.ndarray) -> str:
    """Why what a library says of itself is no reason to time it; empty where it is."""
    if "error" in about:
        return about["error"]
    off = float(np.sqrt(np.mean((scores - ours) ** 2) / np.mean(ours**2))) if scores.shape == ours.shape else np.inf
    about["off"] = off if np.isfinite(off) else None
    return "" if off <= TOLERANCE else f"wrong scores: off by {off:.3g} of their root mean square"


# --- what is shown -----------------------------------------------------------------------------------------------------

COLUMNS = (
    "row", "threads", "library", "prefill", "quartiles", "decode", "quartiles", "× prefill", "× decode", "off", "MB", "of copy",
    "load, s", "first load, s",
)  # fmt: skip


def lines(results: Sequence[dict[str, Any]]) -> pages.Lines:
    """A line a library of each result."""
    made = []
    for r in results:
        if "share" not in r:
            made.append(pages.failed(r))
            continue
        for name in ("tir", *PEERS):
            if name not in r:
                continue
            own = r[name]
            made.append([r["row"], str(r["threads"]), name])
            for part in PARTS:
                made[-1] += [f"{own[part]['per_s']:.0f}", "..".join(f"{x:.0f}" for x in own[part]["quartiles"])]
            made[-1] += [f"{own[part]['ratio']:.2f}" if "ratio" in own[part] else "" for part in PARTS]
            made[-1] += [f"{own['off']:.1e}", f"{own['memory_mb']:.0f}", f"{r['share']:.0%}" if name == "tir" else ""]
            made[-1] += [f"{own['load_s']:.2g}", f"{own['first_s']:.2g}" if "first_s" in own else ""]
    return list(COLUMNS), made


INTRODUCTION = f"""# A language model

Made by `python -m benchmarks generate --threads 1,2 --models DIR --save DIR`. Random weights in GGUF files: `100m` has twelve
layers of width 768 and a vocabulary of 32,000, `1b` sixteen of 2,048. `prefill` are tokens a second of a prompt of {PROMPT}
tokens, `decode` those of {STEPS} steps of one token behind it, medians of calls in turns, each library in a process of its own;
`×` how many times faster ours is. `off` is the root mean square of the difference from our scores, of that of the scores:
llama.cpp rounds rows to 8 bits. `MB` is the memory beside the library. `of copy` is the bytes of the file and of our cache
(float32; llama.cpp's is of float16) times our tokens a second, beside the bytes that a copy reads and writes on so many threads
in the same run. `load` is the time until a model can be called; ours compiles it once, at the first load, and keeps it in a file.
"""

table, write = pages.both("generate", "tokens/s; × NAME: how many times faster ours is", INTRODUCTION, ROWS, lines)
