"""`python -m tir.run MODEL.onnx`: compiles a network, runs it, and prints the ranges of its outputs and the time of a call.

Inputs are the arrays of a file of `numpy.savez` (`--inputs`), by name, or random. `--check` compares, in float64, the outputs
after each pass with those before all passes, and each kernel with its function on the results of the kernels before it. Then
it compares the outputs with those of the interpreter. With `--target cuda` it prints the resources of each kernel, also where
there is no GPU to run it. Exit status 0 on success, 1 where the check fails, 2 for bad usage, a file
that cannot be imported, or inputs that do not fit; after Ctrl-C 130, SIGTERM 143.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np

from codegen.runtime.timing import duration, sampled, seconds_of
from tir import dtypes
from tir.display import count_text

from .networks import (
    PRECISION,
    PRECISION_HELP,
    QUANTISE,
    QUANTISE_HELP,
    check_exportable,
    compiled,
    export,
    for_processors,
    in_precision,
    load,
    quantised,
    read_arrays,
    write_arrays,
)  # fmt: skip
from .options import Parser, Usage, input_shape, parse_target, refusing, threads, writable
from .process import guarded

if TYPE_CHECKING:
    from codegen import Target
    from graph import Graph, Model
    from graph.device import DeviceModel

MAX_ERROR = 2.0**-11  # largest error, of an output's root mean square: half of the 24 bits of float32 remain
# With narrow numbers, of the errors' root mean square: each kernel is checked within its own bounds. Of halves in unit roundoffs:
# the 53 convolutions of ResNet-50 and what is between them come to five, in float16 and in bfloat16.
MAX_ERROR_OF_INTEGERS, MAX_UNITS = 0.1, 32


def parser() -> argparse.ArgumentParser:
    p = Parser(prog="python -m tir.run", description="Compile a network from an ONNX file, and run it.", allow_abbrev=False)
    p.add_argument("model", metavar="MODEL.onnx")
    p.add_argument(
        "--shape",
        action="append",
        default=[],
        type=input_shape,
        metavar="NAME=1,3,224,224",
        help="of an input; or an open size by its name, as n=4",
    )
    p.add_argument("--inputs", metavar="FILE.npz", help="the inputs, arrays by name (default: random ones)")
    p.add_argument("--outputs", metavar="FILE.npz", help="where to write the outputs, by name")
    p.add_argument("--export", metavar="FILE", help="write it as a library (.so) or object file (.o), with header and weights")
    p.add_argument("--quantise", metavar=QUANTISE, help=QUANTISE_HELP)
    p.add_argument("--precision", metavar=PRECISION, help=PRECISION_HELP)
    p.add_argument("--threads", type=threads, metavar="N", help="the threads that a kernel uses (default: one for each core)")
    p.add_argument("--target", default="llvm", help='what to compile for (default: "llvm")')
    p.add_argument("--records", metavar="FILE", help="take the schedules recorded there")
    p.add_argument("--check", action="store_true", help="compare every pass, kernel and output with the interpreter in float64")
    p.add_argument(
        "--profile",
        nargs="?",
        const="kernels",
        choices=("kernels", "nodes"),
        help="print the time of each kernel, or of each node",
    )
    p.add_argument("--trace", metavar="FILE.json", help="write the time of each node as events for a trace viewer")
    p.add_argument("--show", action="store_true", help="print the graph")
    return p


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status."""
    p = parser()
    return guarded(p.prog, lambda: _run(p.parse_args(argv)))


def _run(args: argparse.Namespace) -> int:
    from codegen import backend
    from graph import GraphError
    from graph.reference import random_inputs
    from search.measure.provenance import device
    from tir.arrays import to_float

    target = parse_target(args.target, args.threads)
    on_device, missing = backend(target).device is not None, backend(target).missing(target)
    for_processors(args, ("export", "check", "quantise"), target)
    if on_device and (args.trace or args.profile == "nodes"):
        raise Usage(f"--trace and --profile nodes are for processors, target llvm, got {target.kind}")
    if missing and not on_device and (not args.export or args.outputs or args.check or args.profile or args.trace):
        raise Usage(
            f"--target: {target} cannot run here: {missing}. What works is --export without --outputs, --check, --profile and "
            "--trace, to write the network for a machine that has them"
        )
    if args.outputs:
        writable("--outputs", args.outputs)
    if args.trace:
        writable("--trace", args.trace)
    if args.export:
        check_exportable(args.export)
    given = read_arrays(args.inputs) if args.inputs else {}
    graph = load(args.model, args.shape, given)
    if args.quantise:
        graph = quantised(graph, args.quantise, target, sys.stdout)
    whole = graph
    if args.precision:
        graph = in_precision(graph, args.precision, target)
    if args.show:
        graph.show()
    inputs = given if args.inputs else random_inputs(graph)
    begin = time.perf_counter()
    model = compiled(graph, target, args.records)
    kernels = len(set(model.kernels))
    calls = f"{count_text(len(model.groups), 'call')} of {count_text(kernels, 'kernel')}"
    print(f"{graph.name}: {calls}, compiled in {duration(time.perf_counter() - begin, 3)}")
    if on_device:
        print(cast("DeviceModel", model).report())
    if missing and on_device:
        print(f"warning: the network is compiled, and not run: {missing}", file=sys.stderr)
        return 0
    if missing:
        export(model, args.export, sys.stdout)
        return 0
    with refusing("--inputs", GraphError):
        outputs = model(inputs)
    for value, array in zip(graph.outputs, outputs, strict=True):
        print(f"  {value}, {_summary(to_float(array, value.dtype))}")
    if args.outputs:
        write_arrays(args.outputs, {v.name: a for v, a in zip(graph.outputs, outputs, strict=True)})
    if args.export:
        export(model, args.export, sys.stdout)
    if args.check and not _check(whole, graph, model, inputs, outputs):
        return 1
    run = model.bind(inputs)
    where = device(target) if on_device else f"{target.num_cores} thread(s)"
    print(f"one call on {where}: {sampled(lambda: seconds_of(run), 1, 0.5, 5, 1000)}")
    if args.profile or args.trace:
        _profile(args, model, target, inputs)
    return 0


def _profile(args: argparse.Namespace, model: Model, target: Target, inputs: Mapping[str, np.ndarray]) -> None:
    """Print or write the times of kernels or nodes."""
    from codegen.peak import copy_bandwidth, peak_flops

    profile = model.profile(inputs)
    if args.profile == "kernels":
        print(profile)
    if args.profile == "nodes" or args.trace:
        machine = peak_flops(target), copy_bandwidth(target)
        if args.profile == "nodes":
            print(profile.by_node(*machine))
        if args.trace:
            Path(args.trace).write_text(json.dumps(profile.trace(*machine)))
            print(f"times of nodes: {args.trace}, for chrome://tracing or ui.perfetto.dev")


def _check(whole: Graph, graph: Graph, model: Model, inputs: Mapping[str, np.ndarray], outputs: Sequence[np.ndarray]) -> bool:
    """Print the change by each pass, the errors of kernels as parts of their bounds, and the errors of outputs against the
    interpreter in float64. True if all are within their limits. The compiled `graph` computes `whole` in its precision."""
    from graph import GraphError
    from graph.check import KernelCheck, check_kernels
    from graph.compilation import final, last_passes, passes_for
    from graph.passes.check import PassCheck, check_passes, difference, widened
    from graph.reference import evaluate, remembering, run_call
    from tir.arrays import to_float

    def show(found: PassCheck) -> None:
        print(f"  {found.name:22} {found.calls:5} calls, changes outputs by {found.change:.2g}", flush=True)

    print("checking by the interpreter, in float64", file=sys.stderr, flush=True)
    run, kernels = remembering(run_call), list[KernelCheck]()
    try:
        check_passes(graph, inputs, (*passes_for(model.target), *last_passes(model.target)), show, run)
        again = check_kernels(final(graph, model.target), model, inputs, kernels.append)
    except GraphError as error:
        print(f"error: {error}", file=sys.stderr)
        return False
    bounded = [k for k in kernels if not k.unchecked]
    worst = max((k.error for k in bounded), default=0.0)
    print(f"  {len(bounded)} of {count_text(len(kernels), 'call')} of kernels checked: errors up to {worst:.2g} of their bounds")
    for name, reason in dict.fromkeys((k.name, k.unchecked) for k in kernels if k.unchecked):
        print(f"warning: {name} is not checked: {reason}", file=sys.stderr)
    exact = evaluate(*widened(whole, inputs), run)
    narrow = {v.dtype for c in graph.calls for v in (*c.values, *c.outputs) if dtypes.bits(v.dtype) < 32 and v.dtype != "bool"}
    limits = [MAX_UNITS * dtypes.unit(d) if dtypes.is_half(d) else MAX_ERROR_OF_INTEGERS for d in narrow]
    most, measure = (max(limits), root_mean_square) if narrow else (MAX_ERROR, np.max)
    well = True
    for value, array, same, wanted in zip(graph.outputs, outputs, again, exact, strict=True):
        if array.tobytes() != same.tobytes():
            print(f"error: `{value.name}` is another where kernels run one by one", file=sys.stderr)
            well = False
        if narrow or wanted.dtype.kind == "f":
            array, wanted = to_float(array, value.dtype), wanted.astype("float64")
        off = difference(array, wanted, root_mean_square, measure)
        print(f"  `{value.name}` is off by {off:.2g} of its root mean square")
        if not off <= most:
            print(f"error: `{value.name}` is off by {off:.3g} of its root mean square, over {most:.3g}", file=sys.stderr)
            well = False
    return well


def root_mean_square(array: np.ndarray) -> float:
    return float(np.sqrt(np.mean(np.square(array))))


def _summary(array: np.ndarray) -> str:
    """The range of the elements."""
    if not array.size:
        return "no elements"
    if not np.isfinite(array).all():
        return f"{np.count_nonzero(~np.isfinite(array))} of {array.size} elements are not finite"
    return f"from {array.min():.6g} to {array.max():.6g}"
