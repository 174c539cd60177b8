"""The command line that runs a network: `python -m tir.run MODEL.onnx` compiles it, and prints what comes out and how long a call
takes.

Inputs are the arrays of a file that `numpy.savez` wrote (`--inputs`), by name, or random. Exit status 0 on success, 2 for bad
usage, a file that cannot be imported, or inputs that do not fit.
"""

from __future__ import annotations

import argparse
import sys
import time
import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from codegen.kernel import duration, sampled


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(prog="python -m tir.run", description="Compile a network from an ONNX file, and run it.")
    p.add_argument("model", metavar="MODEL.onnx")
    p.add_argument("--shape", action="append", default=[], type=_shape, metavar="NAME=1,3,224,224", help="the shape of an input")
    p.add_argument("--inputs", metavar="FILE.npz", help="the inputs, arrays by name (default: random ones)")
    p.add_argument("--outputs", metavar="FILE.npz", help="where to write the outputs, by name")
    p.add_argument("--threads", type=int, help="the threads that a kernel uses (default: one for each core)")
    p.add_argument("--target", default="llvm", help='what to compile for (default: "llvm")')
    p.add_argument("--records", metavar="FILE.db", help="take the schedules recorded there")
    p.add_argument("--profile", action="store_true", help="print the time of each kernel")
    p.add_argument("--show", action="store_true", help="print the graph")
    return p


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status."""
    p = parser()
    args = p.parse_args(argv)
    try:
        return _run(args)
    except (ImportError, OSError, ValueError, zipfile.BadZipFile) as error:
        print(f"{p.prog}: error: {error}", file=sys.stderr)
        return 2


def _run(args: argparse.Namespace) -> int:
    from codegen import Target
    from graph import compile, load_onnx
    from graph.reference import random_inputs

    if args.threads is not None and args.threads < 1:
        raise ValueError(f"--threads: at least 1 was expected, got {args.threads}")
    if args.records and not Path(args.records).is_file():
        raise FileNotFoundError(f"there is no file {args.records}")
    target = Target(args.target) if args.threads is None else Target(args.target, num_cores=args.threads)
    given = _arrays(args.inputs) if args.inputs else {}
    graph = load_onnx(args.model, {name: a.shape for name, a in given.items()} | dict(args.shape))
    if args.show:
        graph.show()
    inputs = given or random_inputs(graph)
    begin = time.perf_counter()
    model = compile(graph, target, records=args.records)
    kernels = len(set(model.kernels))
    print(f"{graph.name}: {len(model.groups)} calls of {kernels} kernels, compiled in {duration(time.perf_counter() - begin, 3)}")
    outputs = model(inputs)
    for value, array in zip(graph.outputs, outputs, strict=True):
        print(f"  {value}, {_summary(array)}")
    if args.outputs:
        named = {v.name: a for v, a in zip(graph.outputs, outputs, strict=True)}
        np.savez(args.outputs, **named)  # type: ignore[arg-type]
    run = model.bind(inputs)
    print(f"one call on {target.num_cores} thread(s): {sampled(lambda: _seconds(run), 1, 0.5, 5, 1000)}")
    if args.profile:
        print(model.profile(inputs))
    return 0


def _seconds(run) -> float:
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin


def _summary(array: np.ndarray) -> str:
    """The range of the elements."""
    if not np.isfinite(array).all():
        return f"{np.count_nonzero(~np.isfinite(array))} of {array.size} elements are not finite"
    return f"from {array.min():.6g} to {array.max():.6g}"


def _arrays(path: str) -> dict[str, np.ndarray]:
    if not Path(path).is_file():
        raise FileNotFoundError(f"there is no file {path}")
    with np.load(path) as found:
        if not isinstance(found, np.lib.npyio.NpzFile):
            raise ValueError(f"{path} holds one array; numpy.savez writes several, by name")
        return {name: found[name] for name in found.files}


def _shape(text: str) -> tuple[str, tuple[int, ...]]:
    name, _, sizes = text.rpartition("=")
    try:
        return name, tuple(int(s) for s in sizes.split(",") if s)
    except ValueError:
        raise argparse.ArgumentTypeError(f"NAME=1,3,224,224 was expected, got {text!r}") from None


if __name__ == "__main__":
    sys.exit(main())
