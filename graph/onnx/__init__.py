"""ONNX files to graphs.

`importer` makes calls of nodes, `refusals` the reasons why nodes cannot be imported. `functions` has the operators that ONNX
defines by others; `inputs` and `weights` read the values of a file. `backend` offers the compiler to ONNX's own tools. A file may
leave sizes of inputs open; a graph is read for known ones, so arithmetic on shapes, and any node of constants alone, is folded.
One error names all nodes that are not supported.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ..ir import Graph, GraphError
from ..sizes import OpenGraph
from .importer import Importer
from .inputs import stated
from .weights import weights

if TYPE_CHECKING:
    import onnx

Shapes = Mapping[str, Sequence[int] | int | str]


def load_onnx(source: str | Path | onnx.ModelProto, shapes: Shapes | None = None) -> Graph | OpenGraph:
    """The graph of an ONNX file or of an `onnx.ModelProto`; a graph of open sizes where the shapes of inputs are not all known.

    `shapes` gives shapes that the file leaves open, by the names of inputs, and sizes by theirs, as numbers or as sums of
    others, such as "past + new". External constants are mapped from their files. Raises GraphError for a file that is not ONNX,
    weights that are cut off, and shapes that are unknown or contradict the file. One GraphError lists all nodes that are not
    supported. Raises FileNotFoundError without the file, ImportError without onnx.
    """
    if not isinstance(shapes, (Mapping, type(None))):
        raise TypeError(f"load_onnx: shapes is a dict of shapes by the names of inputs, got {shapes!r}")
    model, folder = _model(source)
    name = str(source) if isinstance(source, (str, Path)) else model.graph.name or "the model"
    inputs = stated(model.graph, name, shapes or {})
    if all(isinstance(d, int) for v in inputs for d in v.shape):
        return Importer(model, name, folder).imported(shapes or {})
    Importer(model, name, folder).check()
    weights(model.graph, name, folder)  # raises where they are cut off
    outputs = tuple(o.name for o in model.graph.output)
    read = partial(_at_shapes, model, name, folder)
    return OpenGraph(model.graph.name or "network", inputs, outputs, read)


def _at_shapes(model: onnx.ModelProto, name: str, folder: Path, shapes: Shapes) -> Graph:
    return Importer(model, name, folder).imported(shapes)


def _model(source: str | Path | onnx.ModelProto) -> tuple[onnx.ModelProto, Path]:
    """The model, external weights not yet loaded, and the folder of their files."""
    try:
        import onnx
        import onnx.inliner
        from google.protobuf.message import DecodeError
    except ImportError:
        raise ImportError("reading ONNX files needs the package onnx: pip install onnx") from None
    if isinstance(source, onnx.ModelProto):
        model, folder = source, Path()
    elif not isinstance(source, (str, Path)):
        raise TypeError(f"load_onnx takes the path of a file or an onnx.ModelProto, got {source!r}")
    else:
        folder = Path(source).parent
        try:
            model = onnx.load_model_from_string(Path(source).read_bytes())
        except DecodeError:
            raise GraphError(f"{source} is no ONNX file, or is cut off") from None
    texts = (text for n in model.graph.node for text in (n.name, n.op_type, n.domain, *n.input, *n.output))
    if any(isinstance(text, bytes) for text in texts):  # protobuf gives bytes where text is not UTF-8
        raise GraphError(f"{source} is no ONNX file, or is damaged: a name in it is no text")
    if not model.opset_import or not model.HasField("graph"):
        raise GraphError(f"{source if isinstance(source, (str, Path)) else 'the model'} is no ONNX file: it holds no graph")
    return (onnx.inliner.inline_local_functions(model) if model.functions else model), folder
