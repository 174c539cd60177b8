"""A process that runs a network in one library: `python -m benchmarks.network_contender LIBRARY FILE THREADS TYPE`.

It reads FILE, an export of `benchmarks.torch_networks`, and inputs and outputs beside it. In the TYPE int8, ours quantises it,
and the others read the file that `benchmarks.static_quantiser` made of it; in bfloat16 each converts it. It answers on standard
output with one JSON object a line: first what loading took, the memory that it took beside the library itself, and how far the
outputs are from those in float64; then, for each number of calls that it reads, the seconds of one, on average; and for `profile`
the seconds of each kernel, where the library is ours.
"""

from __future__ import annotations

import json
import os
import pickle
import resource
import sys
import time
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

Arrays = list[np.ndarray]
Call = Callable[[], Arrays]


def tir_call(file: Path, inputs: Arrays, threads: int, kind: str) -> tuple[Call, dict[str, Any], Any]:
    """Ours, compiled twice: as never before, and as found in a cache."""
    import tempfile

    import tir
    from codegen import ObjectCache

    graph = tir.load_onnx(file)
    target = tir.Target("llvm", num_cores=threads)
    if kind == "int8":
        graph = quantised(graph, file, inputs)
    precision: Any = kind if kind == "bfloat16" else None
    with tempfile.TemporaryDirectory() as folder:
        cache = ObjectCache(Path(folder))
        cold, model = timed(lambda: tir.compile(graph, target, cache=cache, precision=precision))
        del model
        warm, model = timed(lambda: tir.compile(graph, target, cache=cache, precision=precision))
    return model.bind(*inputs), {"compile_s": cold, "again_s": warm}, lambda: model.profile(*inputs)


def quantised(graph: Any, file: Path, inputs: Arrays) -> Any:
    """The network that `tir.quantise` makes, kept beside its file for other numbers of threads, at one commit."""
    import tir

    from .runner import commit
    from .static_quantiser import samples

    kept = file.with_name(f"{file.name.split('.')[0]}.{commit()}.pickle")
    if commit().endswith("+") or not kept.exists():
        made = tir.quantise(graph, samples([v.name for v in graph.inputs], inputs))
        kept.write_bytes(pickle.dumps(made))
    return pickle.loads(kept.read_bytes())


def onnxruntime_call(file: Path, inputs: Arrays, threads: int, kind: str) -> tuple[Call, dict[str, Any], Any]:
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 3
    seconds, session = timed(lambda: ort.InferenceSession(typed(file, kind), options, providers=["CPUExecutionProvider"]))
    given = {i.name: a for i, a in zip(session.get_inputs(), inputs, strict=True)}
    return lambda: session.run(None, given), {"compile_s": seconds}, None


def openvino_call(file: Path, inputs: Arrays, threads: int, kind: str) -> tuple[Call, dict[str, Any], Any]:
    """Its floats are held to float32, or bfloat16: otherwise it chooses."""
    import openvino as ov

    hints = {
        "INFERENCE_PRECISION_HINT": "bf16" if kind == "bfloat16" else "f32",
        "INFERENCE_NUM_THREADS": threads,
        "PERFORMANCE_HINT": "LATENCY",
    }
    core = ov.Core()
    seconds, model = timed(lambda: core.compile_model(core.read_model(typed(file, kind)), "CPU", hints))
    request = model.create_infer_request()

    def call() -> Arrays:
        found = request.infer(inputs, share_inputs=True, share_outputs=True)
        return [found[output] for output in model.outputs]

    return call, {"compile_s": seconds}, None


def torch_call(file: Path, inputs: Arrays, threads: int, kind: str) -> tuple[Call, dict[str, Any], Any]:
    """The module that was exported, as it is, or converted to bfloat16."""
    import torch

    from .torch_networks import build

    torch.set_num_threads(threads)
    torch.set_grad_enabled(False)
    seconds, (module, _) = timed(lambda: build(file.name.split(".")[0]))
    given = [torch.from_numpy(a) for a in inputs]
    if kind == "bfloat16":
        module, given = module.to(torch.bfloat16), [x.to(torch.bfloat16) if x.is_floating_point() else x for x in given]

    def call() -> Arrays:
        found = module(*given)
        found = found if isinstance(found, tuple) else (found,)
        return [(x.float() if x.dtype == torch.bfloat16 else x).numpy() for x in found]

    return call, {"build_s": seconds}, None


def typed(file: Path, kind: str) -> Path:
    """The file of an export in a type: in float32 the export itself."""
    return file if kind != "int8" else file.with_name(f"{file.name.split('.')[0]}.{kind}.onnx")


LIBRARIES = {"tir": tir_call, "onnxruntime": onnxruntime_call, "openvino": openvino_call, "torch": torch_call}
LOADED = {  # modules that are loaded before memory is looked at
    "tir": ("graph.compilation", "graph.onnx", "onnx", "search.policy.default_schedule"),
    "onnxruntime": ("onnxruntime",),
    "openvino": ("openvino",),
    "torch": ("benchmarks.torch_networks",),
}


def timed(make: Callable[[], Any]) -> tuple[float, Any]:
    """The seconds that making something takes, and the thing."""
    begin = time.perf_counter()
    made = make()
    return time.perf_counter() - begin, made


def arrays_beside(file: Path) -> tuple[Arrays, Arrays]:
    """The inputs, and the outputs in float64, of the network that a file is an export of."""
    with np.load(file.with_name(f"{file.name.split('.')[0]}.npz")) as found:
        count = sum(name.startswith("input_") for name in found.files)
        return [found[f"input_{n}"] for n in range(count)], [found[f"output_{n}"] for n in range(len(found.files) - count)]


def root_mean_square(array: np.ndarray) -> Any:
    return np.sqrt(np.mean(np.square(array)))


def error(outputs: Sequence[np.ndarray], exact: Sequence[np.ndarray], of: Callable[[np.ndarray], Any] = np.max) -> float | None:
    """The largest difference of an element, or their root mean square, as a part of its output's root mean square; None where
    that is no number."""
    if [a.shape for a in outputs] != [a.shape for a in exact]:
        return None
    found = [of(np.abs(a - b)) / max(root_mean_square(b), 1e-30) for a, b in zip(outputs, exact, strict=True)]
    return float(max(found)) if np.isfinite(found).all() else None


def resident() -> float:
    """Bytes of memory that this process has in use; 0 where the system does not tell."""
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.exists() else []
    return next((1024.0 * int(line.split()[1]) for line in lines if line.startswith("VmRSS:")), 0.0)


def channel() -> Callable[..., None]:
    """A function that answers on standard output; whatever a library prints then goes to standard error."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return lambda **message: print(json.dumps(message), file=answers, flush=True)


def processor_time() -> float:
    """Seconds that processors spent on this process and on those that it waited for."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def answer(
    send: Callable[..., None],
    call: Callable[[], object],
    profile: Callable[[], Any] | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> None:
    """Answer the requests on standard input: the seconds of so many calls, and a profile."""
    for line in sys.stdin:
        if line.strip() == "profile":
            rows = profile().kernels if profile is not None else ()
            send(kernels=[(row.name, row.calls, row.seconds) for row in rows])
            continue
        calls = int(line)
        begin = clock()
        for _ in range(calls):
            call()
        send(seconds=(clock() - begin) / calls)


def main(library: str, file: str, threads: str, kind: str = "float32") -> None:
    send = channel()
    inputs, exact = arrays_beside(Path(file))
    try:
        for module in LOADED[library]:
            import_module(module)
        before = resident()
        call, about, profile = LIBRARIES[library](Path(file), inputs, int(threads), kind)
        off = error(call(), exact, np.max if kind == "float32" else root_mean_square)
        send(**about, off=off, memory_mb=(resident() - before) / 1e6)
    except Exception as failure:  # the outermost frame: whatever a library cannot do is a result
        send(error=f"{type(failure).__name__}: {failure}".strip())
        return
    answer(send, call, profile)


if __name__ == "__main__":
    main(*sys.argv[1:])
