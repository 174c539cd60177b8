"""Compilation of LLVM IR text to machine code, and its loading into this process."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from typing import Any

from ..llvm_binding import llvm
from ..processor import UnsupportedProcessor, described_machine, missing_features
from ..runtime.openmp import runtime_symbols
from .scratch import RELEASE

# LLVM's options for a module. Its vectorisers and unroller are off, because the schedule has decided vector lengths, unrolling
# and registers. LLVM turns stack slots into SSA values and cleans up.
MACHINE = {"opt": 3, "reloc": "pic", "codemodel": "default"}
TUNING = {
    "speed_level": 2,
    "loop_unrolling": False,
    "loop_vectorization": False,
    "slp_vectorization": False,
    "loop_interleaving": False,
}
PASSES = ("always_inliner", "sroa", "simplify_cfg")


@cache
def _initialize() -> None:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    with suppress(RuntimeError):  # where LLVM has no code generator for x86, and does not know its options
        llvm.Target.from_triple("x86_64")
        # The pass that splits copies whose loads wait for stores ends the process at a masked load, whose size it takes as known.
        llvm.set_option("tir", "-x86-disable-avoid-SFB")


def machine(target, level: int | None = None) -> llvm.TargetMachine:
    """LLVM's target machine; `level`, 0 to 3, is the effort of code generation, by default that of `MACHINE`."""
    _initialize()
    options = MACHINE if level is None else {**MACHINE, "opt": level}
    return described_machine(target.mtriple, cpu=target.mcpu, features=target.mattr, **options)


def optimize(text: str, target, others: Sequence[str] = ()) -> tuple[llvm.ModuleRef, llvm.TargetMachine]:
    """Parse and verify a module, and run `PASSES` on it. The modules `others` are linked into it, their functions as internal."""
    tm = machine(target)
    module = _linked(text, others)
    module.verify()
    options = llvm.create_pipeline_tuning_options()
    for name, value in TUNING.items():
        setattr(options, name, value)
    builder = llvm.create_pass_builder(tm, options)
    passes = llvm.create_new_module_pass_manager()
    for name in PASSES:
        getattr(passes, f"add_{name}_pass")()
    passes.run(module, builder)
    return module, tm


def _linked(text: str, others: Sequence[str]) -> llvm.ModuleRef:
    module = llvm.parse_assembly(text)
    own = {f.name for f in module.functions if not f.is_declaration}
    for other in others:
        module.link_in(llvm.parse_assembly(other))
    for function in module.functions:
        if not function.is_declaration and function.name not in own:
            function.linkage = "internal"
    return module


def linked(texts: Sequence[str]) -> str:
    """The first of these modules with the others linked into it, their functions as internal."""
    return str(_linked(texts[0], texts[1:]))


def object_code(text: str, target) -> bytes:
    """The relocatable object file of a module."""
    module, tm = optimize(text, target)
    return tm.emit_object(module)


def assembly(text: str, target, comments: bool = False) -> str:
    """The assembly of a module, as LLVM prints it; `comments` mark loops, the blocks of the IR and spills."""
    module, tm = optimize(text, target)
    tm.set_asm_verbosity(comments)
    return tm.emit_assembly(module)


class Library:
    """Object files loaded into this process together, with the functions `names`. The code is freed with this object.

    `runtime` has addresses of functions that the code calls, in addition to the process and OpenMP. Raises UnsupportedProcessor
    if this processor lacks instructions of the target."""

    def __init__(self, objects: Sequence[bytes], names: Sequence[str], target, runtime: Mapping[str, int] = {}):
        if missing := missing_features(target.mcpu, target.mattr, target.mtriple):
            raise UnsupportedProcessor(
                f'code for `{target}` cannot run here: {missing}. Build it for this processor, target "llvm", to run it here; '
                "for a machine that has them, `export` writes it as a file"
            )
        # JITLink puts the sections of an object into one piece of memory, and calls distant functions through a table. The
        # older loader maps each section on its own, and ends the process if two are 2 GiB apart.
        self._jit = llvm.create_lljit_compiler(machine(target), use_jit_link=True, suppress_errors=False)
        code = b"".join(objects)
        keeping = [f"{name}{RELEASE}" for name in names if f"{name}{RELEASE}\0".encode() in code]
        builder = llvm.JITLibraryBuilder().add_current_process()
        for one in objects:
            builder.add_object_img(one)
        for name in (*names, *keeping):
            builder.export_symbol(name)
        for name, address in {**runtime_symbols(code), **runtime}.items():
            builder.import_symbol(name, address)
        self._tracker = builder.link(self._jit, f"tir_{id(self)}")
        release = [ctypes.CFUNCTYPE(None)(self._tracker[name]) for name in keeping]
        # Not `__del__`: in a cycle that is collected the tracker may be finalized first, and the code is gone.
        weakref.finalize(self, _release, release, self._tracker).atexit = False

    def address(self, name: str) -> int:
        """The address of the code of one of the functions, as long as the library exists."""
        return self._tracker[name]

    def function(self, name: str, arguments: int) -> Callable[..., int]:
        """One of the functions as a ctypes function of `arguments` words, which returns its status and keeps the code."""
        entry: Any = ctypes.CFUNCTYPE(ctypes.c_int, *([ctypes.c_void_p] * arguments))(self._tracker[name])
        entry.library = self
        return entry


def _release(functions: Sequence[Callable[[], None]], tracker: object) -> None:
    """Free the memory that the code of a library keeps; the tracker keeps the code until then."""
    for function in functions:
        function()
