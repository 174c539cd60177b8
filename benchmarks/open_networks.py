"""Networks of open sizes beside onnxruntime and OpenVINO: rows `network-...` of the benchmark `symbolic`.

Each library compiles a network once, with open sizes, in a process of its own. At each size they are called in turns; ours was
compiled with some of the sizes named. There it is timed beside ours of static sizes, too. Outputs are compared with those of a
rival first; what is wrong is not timed. With `--save DIR` a size that is there at this commit is not measured again.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from . import pages
from .network_contender import error
from .networks import TOLERANCE, Contender, exported
from .options import Options
from .runner import Effort, circumstances, commit, race, ratios, warm

PREFIX = "network-"
RIVALS = ("onnxruntime", "openvino")
STATIC = "static"  # ours, compiled for the very sizes

Sizes = dict[str, int]

BATCHES = (1, 4, 16)
NAMED: dict[str, dict[str, tuple[int, ...]]] = {
    "bert_small": {"batch": (1, 16), "sequence": (1, 128, 512)},
    "resnet18": {"batch": BATCHES},
    "resnet50": {"batch": BATCHES},
}
AXES: dict[str, tuple[dict[int, str], ...]] = {  # names of the open axes of each input
    "bert_small": ({0: "batch", 1: "sequence"},) * 2,
    "resnet18": ({0: "batch"},),
    "resnet50": ({0: "batch"},),
}
_TEXTS = ((1, 1), (1, 128), (1, 512), (16, 1), (16, 128), (16, 512), (1, 7), (1, 77), (1, 300), (3, 50), (7, 200), (13, 13))
SIZES: dict[str, list[Sizes]] = {
    "bert_small": [{"batch": batch, "sequence": sequence} for batch, sequence in _TEXTS],
    "resnet18": [{"batch": batch} for batch in (*BATCHES, 2, 3, 7, 13)],
    "resnet50": [{"batch": batch} for batch in (*BATCHES, 2, 3, 7, 13)],
}
ROWS = tuple(f"{PREFIX}{network}" for network in NAMED)


def measure(row: str, options: Options, write: pages.Write) -> Iterator[dict[str, Any]]:
    """A result for each size: the times of ours and of each rival, their ratios, and the loss against ours of static sizes."""
    network = row.removeprefix(PREFIX)
    known, left = pages.known(options.save, "symbolic"), []
    for sizes in SIZES[network]:
        found = known.get(f"{row}, {_words(sizes)}/{options.threads}")
        if found is not None and found["commit"] == commit() and not commit().endswith("+"):
            yield found
        else:
            left.append(sizes)
    if not left:
        return
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        file = exported(network, "open", Path(options.models) if options.models else scratch)
        words = (str(file), str(options.threads), json.dumps(NAMED[network]), json.dumps(AXES[network]))
        names = ("tir", STATIC, *(name for name in RIVALS if find_spec(name)))
        contenders = {name: stack.enter_context(Contender("benchmarks.open_contender", name, *words)) for name in names}
        for sizes in left:
            named = all(number in NAMED[network][name] for name, number in sizes.items())
            result = {"threads": options.threads, "network": network, "size": _words(sizes), "named": named, **circumstances()}
            try:
                result |= _measured(contenders, sizes, named, scratch, options)
            except (RuntimeError, OSError) as failure:  # of a process that failed, or has ended before
                yield {**result, "error": str(failure)}
                return
            if "error" not in result:
                pages.keep(options.save, "symbolic", f"{row}, {result['size']}", result, write)
            yield result


def _measured(
    contenders: Mapping[str, Contender], sizes: Sizes, named: bool, scratch: Path, options: Options
) -> dict[str, Any]:  # fmt: skip
    """The measurements at these sizes; an error where our outputs are not those of the rivals."""
    found: dict[str, Any] = {}
    outputs: dict[str, list[np.ndarray]] = {}
    taking_part = {name: contender for name, contender in contenders.items() if named or name != STATIC}
    for name, contender in taking_part.items():
        if "error" in contender.about:
            raise RuntimeError(f"{name}: {contender.about['error']}")
        path = scratch / f"{name}.npz"
        contender.ask(f"at {json.dumps([sizes, str(path)])}")
        with np.load(path) as arrays:
            outputs[name] = [arrays[key] for key in arrays.files]
        found[name] = {"load_s": contender.about["load_s"]}
    for name in taking_part:
        if name != "tir":
            off = error(outputs["tir"], outputs[name])
            found[name]["off"] = off
            if off is None or off > TOLERANCE:
                return {"error": f"wrong result: {'of another shape' if off is None else f'off by {off:.3g}'} from {name}"}
    timings = race(taking_part, Effort(seconds=options.seconds, warm=warm(options.threads)))
    found["ms"] = 1e3 * timings["tir"].median
    for name, timing in timings.items():
        found[name] |= timing.as_json()
        if name != "tir":
            ratio, between = ratios(timings["tir"], timing)
            found[name] |= {"ratio": ratio, "quartiles": list(between)}
    rivals = [found[name]["ratio"] for name in RIVALS if name in found]
    if rivals:
        found["best"] = min(rivals)
    if named:
        found["loss"] = 1 / found[STATIC]["ratio"] - 1
    return found


def _words(sizes: Sizes) -> str:
    return ", ".join(f"{name} = {number}" for name, number in sizes.items())


# --- what is shown -----------------------------------------------------------------------------------------------------

COLUMNS = ("row", "named", "ms", "quartiles", "× best", *(f"× {name}" for name in RIVALS), "quartiles of ratios", "loss", "off")


def cells(r: Mapping[str, Any]) -> list[str]:
    """The line of a result."""
    ours, rivals = r["tir"], [r[name] for name in RIVALS if name in r]
    return [
        r["row"],
        "yes" if r["named"] else "no",
        f"{r['ms']:.3g}",
        "..".join(f"{1e3 * s:.3g}" for s in ours["quartiles_s"]),
        f"{r['best']:.2f}" if "best" in r else "",
        *(f"{r[name]['ratio']:.2f}" if name in r else "" for name in RIVALS),
        ", ".join("..".join(f"{x:.2f}" for x in rival["quartiles"]) for rival in rivals),
        f"{r['loss']:.1%}" if "loss" in r else "",
        f"{max(rival['off'] for rival in rivals):.1e}" if rivals else "",
    ]


def means(results: Sequence[Mapping[str, Any]]) -> list[str]:
    """The lines of geometric means, and of the least, of the ratios to the best, of named sizes and of others."""
    lines = []
    for kind, named in (("named", True), ("other", False)):
        best = [r["best"] for r in results if r["named"] is named and "best" in r]
        if best:
            lines.append(f"{kind} sizes: {pages.geometric_mean(best):.2f} times the best, at least {min(best):.2f}")
    return lines
