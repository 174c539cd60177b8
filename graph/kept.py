"""Compiled models in the cache of the user: a second start with the same model maps a file, and compiles nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from codegen import ObjectCache, Target
from codegen.cache import compiler_sources, data_key, default_path
from tir.notices import degraded

MAX_KEPT_MODELS = 4  # most files, each with all weights of a model; the oldest are removed


def kept_file(model: Path, target: str | None, *options: Any, sources: Path | None = None) -> Path | None:
    """The file of a compiled model, whose name is a hash of all that it depends on: the files of the model, the target,
    `options`, the compiler, and the folder of `sources` that make the graph. Files of older models are removed. None, with a
    warning, where the cache cannot be used."""
    try:
        folder = ObjectCache(default_path().parent / "generate").path
    except OSError as error:
        degraded(f"the compiled model is not kept, and each start compiles it anew: {error}")
        return None
    files = sorted(model.iterdir()) if model.is_dir() else [model]
    state = [(str(f.resolve()), (about := f.stat()).st_size, about.st_mtime_ns) for f in files]
    folders = [Path(__file__).parent, *([] if sources is None else [sources])]
    code = compiler_sources(*(str(f) for found in folders for f in sorted(found.rglob("*.py"))))
    found = folder / data_key([code, str(Target("llvm" if target is None else target)), state, *options])
    others = sorted((f for f in folder.iterdir() if f != found), key=lambda f: -f.stat().st_mtime_ns)
    for old in others[MAX_KEPT_MODELS - 1 :]:
        old.unlink(missing_ok=True)
    return found
