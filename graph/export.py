"""Networks as files for C: a shared library or an object file, a header, and a file of weights."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from codegen.export import KEYWORDS, Parameter, calls_openmp, declarations, file_and_name, framed, parameters, write
from codegen.llvm.compile import optimize
from codegen.llvm.cores import without_moving
from codegen.llvm.program import entry
from codegen.llvm.scratch import RELEASE
from codegen.runtime.alignment import ALIGNMENT

from .memory import WEIGHTS, aligned, buffer

if TYPE_CHECKING:
    from .model import Model

PAGE_BYTES = 4096  # bytes: the file of weights is whole pages, so that it can be mapped


def export(model: Model, path: str | Path, name: str | None = None, *, compiler: str | None = None) -> Path:
    """Write a network as the shared library (.so) or object file (.o) `path`, with `<name>.h` and `<name>.weights` beside it (see
    `codegen.export.export`).

    Returns the header's path. Raises ExportError.
    """
    path, name = file_and_name(path, name)
    kernels = {k.main.symbol: k for k in model.kernels}
    text = entry(name, model.bases, model.steps, model.keeping)
    module, machine = optimize(text, model.target, [without_moving(k.llvm_ir()) for k in kernels.values()])
    if model.keeping:
        module.get_function(f"{name}{RELEASE}").name = f"{name}_release"
    code = machine.emit_object(module)
    header = header_text(model, name, path, calls_openmp(code))
    return write(path, name, code, header, compiler, weights=_contents(model))


def _contents(model: Model) -> Iterator[bytes | memoryview]:
    """The bytes of the file of weights, with zeros between constants and up to the end of the last page."""
    end = 0
    for value, found in model.plan.addresses.items():
        if found.base == WEIGHTS:
            yield bytes(found.offset - end)
            end = found.offset + value.nbytes
            yield model.weights[found.offset : end].data
    yield bytes(_pages(end) - end)


def header_text(model: Model, name: str, path: Path, parallel: bool) -> str:
    """The C header of an exported network."""
    prefix = name.upper()
    weights, arena, alignment = (f"{prefix}_{what}" for what in ("WEIGHTS_BYTES", "ARENA_BYTES", "ALIGNMENT"))
    sizes = {weights: _pages(model.plan.weights_nbytes), arena: max(aligned(model.plan.nbytes), ALIGNMENT), alignment: ALIGNMENT}
    about = [
        f"weights are the {weights} bytes of the file {name}.weights, read-only, as",
        f'mmap(NULL, {weights}, PROT_READ, MAP_PRIVATE, open("{name}.weights", O_RDONLY), 0) gives them;',
        f"arena is memory for this call alone, as aligned_alloc({alignment}, {arena}) gives it.",
        f"Both begin at a multiple of {alignment}.",
    ]
    taken = {*KEYWORDS, "weights", "arena"}
    inputs, outputs = map(buffer, model.graph.inputs), [buffer(v) for v in model.graph.outputs]
    given = [
        Parameter("const void *weights", f"weights[{weights}]", "read"),
        Parameter("void *arena", f"arena[{arena}]", "written"),
        *parameters(list(inputs), frozenset(), taken),
        *parameters(outputs, {b.name for b in outputs}, taken),
    ]
    includes = {p.include for p in given if p.include}
    lines = [*(f"#define {k} {size}" for k, size in sizes.items()), "", *declarations(name, given, bool(model.keeping))]
    return framed(name, f"the network `{model.graph.name}`", model.target, path, parallel, about, includes, lines)


def _pages(nbytes: int) -> int:
    return -(-max(nbytes, 1) // PAGE_BYTES) * PAGE_BYTES
