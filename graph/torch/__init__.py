"""Programs of torch to graphs, and the compiler as a backend of `torch.compile`.

`aten` has torch's operators, as composites of those of `graph.ops`; it needs no torch. `importer` reads the nodes of a traced
graph, `exported` a program that `torch.export` gives. `backend` makes functions of the graphs of `torch.compile`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    from ..ir import Graph
    from ..sizes import OpenGraph


def from_torch(
    program: torch.export.ExportedProgram, shapes: Mapping[str, Sequence[int] | int] | None = None
) -> Graph | OpenGraph:
    """The graph of a program that `torch.export.export(model, args)` gives; a graph of open sizes where it leaves shapes open.

    Inputs are those of the program, by name, then the buffers that it changes; outputs are its tensors in order, then the new
    elements of these buffers, and of inputs that it changes. Parameters share their memory with the model. `shapes` gives shapes
    that the program leaves open, by the names of inputs, and sizes by theirs. Raises TypeError for anything but a program, and
    ImportError without torch. One GraphError names all operators that are not supported.
    """
    _need_torch("from_torch")
    from .exported import imported

    return imported(program, shapes)


def torch_backend(
    module: torch.fx.GraphModule,
    examples: Sequence[Any],
    *,
    options: Mapping[str, Any] | None = None,
    mode: str | None = None,
) -> Callable[..., Any]:
    """The compiled function of a traced graph, for `torch.compile(model, backend=tir.torch_backend)`, or `backend="tir"`.

    `options` are those of `tir.compile`: `records` of a tuning, `plan`, `target` (by default this processor with torch's number
    of threads), `cache`, `winograd`. Operators that are not supported, and what needs gradients, run in eager mode; a warning
    says why. Raises ValueError for other options, and ImportError without torch.
    """
    _need_torch("torch_backend")
    from .backend import compiled

    return compiled(module, examples, options, mode)


def _need_torch(what: str) -> None:
    try:
        import torch  # noqa: F401
    except ImportError:
        raise ImportError(f"{what} needs the package torch: pip install torch") from None
