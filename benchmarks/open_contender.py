"""A process that runs a network of open sizes in one library:

    python -m benchmarks.open_contender LIBRARY FILE THREADS NAMED AXES

FILE is the open export of `benchmarks.torch_networks`. NAMED, the named sizes, and AXES, the names of open axes of each input,
are JSON. Each answer is a JSON object a line: first what loading took. For a request `at [SIZES, PATH]` inputs are drawn for
these sizes, and the outputs written to PATH; for a number of calls, the answer is the seconds of one. `static` is ours, compiled
anew for the sizes of each `at`.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from .network_contender import Arrays, Call, arrays_beside, channel, timed

Sizes = dict[str, int]
At = Callable[[Sizes, Arrays], Call]  # a call for inputs of these sizes


def tir_open(file: Path, threads: int, named: Mapping[str, tuple[int, ...]]) -> At:
    import tir

    model = tir.compile(tir.load_onnx(file), tir.Target("llvm", num_cores=threads), sizes=named)
    return lambda sizes, inputs: model.bind(*inputs)


def tir_static(file: Path, threads: int, named: Mapping[str, tuple[int, ...]]) -> At:
    import tir

    target = tir.Target("llvm", num_cores=threads)
    return lambda sizes, inputs: tir.compile(tir.load_onnx(file, shapes=sizes), target).bind(*inputs)


def onnxruntime_open(file: Path, threads: int, named: Mapping[str, tuple[int, ...]]) -> At:
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 3
    session = ort.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    names = [i.name for i in session.get_inputs()]

    def at(sizes: Sizes, inputs: Arrays) -> Call:
        given = dict(zip(names, inputs, strict=True))
        return lambda: session.run(None, given)

    return at


def openvino_open(file: Path, threads: int, named: Mapping[str, tuple[int, ...]]) -> At:
    import openvino as ov

    hints = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY"}
    core = ov.Core()
    model = core.compile_model(core.read_model(file), "CPU", hints)
    request = model.create_infer_request()

    def at(sizes: Sizes, inputs: Arrays) -> Call:
        def call() -> Arrays:
            found = request.infer(inputs, share_inputs=True, share_outputs=True)
            return [found[output] for output in model.outputs]

        return call

    return at


LIBRARIES = {"tir": tir_open, "static": tir_static, "onnxruntime": onnxruntime_open, "openvino": openvino_open}


def drawn(examples: Arrays, axes: list[dict[str, str]], sizes: Sizes) -> Arrays:
    """Inputs for some sizes: random floats and tokens; masks repeat that of the example."""
    rng = np.random.default_rng(0)
    found = []
    for array, names in zip(examples, axes, strict=True):
        shape = tuple(sizes[names[str(n)]] if str(n) in names else extent for n, extent in enumerate(array.shape))
        if array.dtype.kind == "f":
            found.append(rng.standard_normal(shape, array.dtype))
        elif array.max() > 1:
            found.append(rng.integers(0, array.max(), shape, array.dtype, endpoint=True))
        else:
            found.append(np.resize(array, shape))
    return found


def main(library: str, file: str, threads: str, named: str, axes: str) -> None:
    send = channel()
    examples, _ = arrays_beside(Path(file))
    call: Call | None = None
    try:
        load_s, at = timed(lambda: LIBRARIES[library](Path(file), int(threads), json.loads(named)))
        send(load_s=load_s)
        for line in sys.stdin:
            if line.startswith("at "):
                _, words = line.split(" ", 1)
                sizes, path = json.loads(words)
                call = at(sizes, drawn(examples, json.loads(axes), sizes))
                first_s, outputs = timed(call)
                np.savez(path, *outputs)
                send(first_s=first_s)
                continue
            assert call is not None
            begin = time.perf_counter()
            for _ in range(int(line)):
                call()
            send(seconds=(time.perf_counter() - begin) / int(line))
    except Exception as failure:  # the outermost frame: whatever a library cannot do is a result
        send(error=f"{type(failure).__name__}: {failure}".strip())


if __name__ == "__main__":
    main(*sys.argv[1:])
