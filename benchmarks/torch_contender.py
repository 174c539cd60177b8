"""A process that runs a model of torch in one way: `python -m benchmarks.torch_contender WAY MODEL THREADS`.

Ways are `tir` and `inductor`, which torch.compile calls, `frozen`, inductor with its parameters as constants, and `eager`. It
answers on standard output with one JSON object a line: first what compiling took, how far the outputs are from those in float64,
and the reasons for which parts run in eager mode; then the seconds of a call for each number of calls that it reads. `eager`
tells too how far float64 with one rounding an operation is off, and the terms of the longest sum.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

WAYS = ("tir", "eager", "inductor", "frozen")


def compiled(way: str, module: Any, folder: str) -> Callable[..., Any]:
    """A module as a way runs it; what is compiled is kept in a new folder."""
    import torch

    import tir
    from codegen import ObjectCache

    match way:
        case "eager":
            return module
        case "tir":
            return torch.compile(module, backend=tir.torch_backend, options={"cache": ObjectCache(Path(folder))})
        case "inductor" | "frozen":
            import torch._inductor.config as config

            config.freezing = way == "frozen"
            return torch.compile(module)
    raise ValueError(f"no way is called {way!r}; there are {', '.join(WAYS)}")


def main(way: str, model: str, threads: str) -> None:
    from .network_contender import answer, channel, error, processor_time

    send = channel()
    clock = processor_time if threads == "1" else time.perf_counter
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = threads
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder
        try:
            import torch

            from .torch_models import Rounded, build, longest_sum

            torch.set_num_threads(int(threads))
            torch.set_grad_enabled(False)
            module, inputs = build(model)
            function = compiled(way, module, folder)
            leaves = torch.utils._pytree.tree_leaves
            with warnings.catch_warnings(record=True) as noted:
                warnings.simplefilter("always")
                begin = clock()
                outputs = leaves(function(*inputs))
                seconds = clock() - begin
            double, given = deepcopy(module).double(), [x.double() if x.is_floating_point() else x for x in inputs]
            exact = [x.numpy() for x in leaves(double(*given))]
            off = error([x.numpy() for x in outputs], exact)
            about: dict[str, Any] = {}
            if way == "eager":
                with Rounded():
                    about["rounded"] = error([x.numpy() for x in leaves(double(*given))], exact)
                about["longest"] = longest_sum(module)
            reasons = [str(w.message) for w in noted if "eager mode" in str(w.message)]
            graphs = torch._dynamo.utils.counters["stats"]["unique_graphs"]
            send(compile_s=seconds, off=off, eager=reasons, graphs=graphs, **about)
        except Exception as failure:  # the outermost frame: whatever a way cannot do is a result
            send(error=f"{type(failure).__name__}: {failure}".strip())
            return
        answer(send, lambda: function(*inputs), clock=clock)


if __name__ == "__main__":
    main(*sys.argv[1:])
