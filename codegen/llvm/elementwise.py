"""Runs one function of `codegen.llvm.math` over numpy arrays: what its tests and its benchmark measure."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass

import llvmlite.binding as llvm
import numpy as np

from . import math


@dataclass(frozen=True, slots=True)
class Elementwise:
    """A compiled loop over `op`; call it with one array (two for pow) of `dtype`, get a new array of the same shape."""

    op: str
    dtype: str
    lanes: int
    engine: llvm.ExecutionEngine
    address: int

    def __call__(self, *arrays: np.ndarray) -> np.ndarray:
        size = arrays[0].size
        padded = -(-size // self.lanes) * self.lanes
        flat = [np.resize(np.ascontiguousarray(a, self.dtype).ravel(), padded) for a in arrays]
        out = np.empty(padded, self.dtype)
        self.bind(*flat, out)()
        return out[:size].reshape(arrays[0].shape)

    def bind(self, *arrays: np.ndarray) -> Callable[[], None]:
        """The call on these arrays, inputs first, result last: contiguous, of the dtype, of a size > 0 that the lanes divide."""
        function = ctypes.CFUNCTYPE(None, ctypes.c_int64, *[ctypes.c_void_p] * len(arrays))(self.address)
        size, addresses = arrays[0].size, [a.ctypes.data for a in arrays]

        def call(alive: object = (self, arrays)) -> None:  # the code and the arrays live as long as the call does
            function(size, *addresses)

        return call


def module_text(op: str, dtype: str, lanes: int, avx512: bool = False) -> str:
    """An LLVM module whose function `run(n, x, out)`, or `run(n, x, y, out)`, maps `op` over n elements, `lanes` at a time."""
    kind = math.Type(math.FORMATS[dtype].scalar, lanes)
    names = ("x", "y")[: math.ARITY[op]]
    align = 4 if kind.scalar == "float" else 8
    loads = [
        f"  %p{n} = getelementptr {kind.scalar}, ptr %{n}, i64 %i\n  %v{n} = load {kind}, ptr %p{n}, align {align}" for n in names
    ]
    lines = [
        *sorted(math.declarations(op, dtype, lanes, avx512)),
        math.definition(op, dtype, lanes, avx512),
        f"define void @run(i64 %n, {', '.join(f'ptr noalias %{n}' for n in (*names, 'out'))}) {{",
        "entry:",
        "  br label %loop",
        "loop:",
        "  %i = phi i64 [ 0, %entry ], [ %next, %loop ]",
        *loads,
        f"  %r = call {kind} @{math.function_name(op, dtype, lanes)}({', '.join(f'{kind} %v{n}' for n in names)})",
        f"  %pout = getelementptr {kind.scalar}, ptr %out, i64 %i",
        f"  store {kind} %r, ptr %pout, align {align}",
        f"  %next = add i64 %i, {lanes}",
        "  %more = icmp ult i64 %next, %n",
        "  br i1 %more, label %loop, label %exit",
        "exit:",
        "  ret void",
        "}",
    ]
    return "\n".join(lines) + "\n"


def compile_elementwise(
    op: str, dtype: str, lanes: int, avx512: bool = False, cpu: str | None = None, features: str | None = None
) -> Elementwise:
    """Compile the loop for this machine, or for the subset of it that `cpu` and `features` name as LLVM does."""
    machine = target_machine(cpu, features)
    module = optimised(module_text(op, dtype, lanes, avx512), machine)
    engine = llvm.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    return Elementwise(op, dtype, lanes, engine, engine.get_function_address("run"))


def target_machine(cpu: str | None = None, features: str | None = None) -> llvm.TargetMachine:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm.Target.from_default_triple().create_target_machine(
        cpu=cpu or llvm.get_host_cpu_name(),
        features=llvm.get_host_cpu_features().flatten() if features is None else features,
        opt=3,
    )


def optimised(text: str, machine: llvm.TargetMachine) -> llvm.ModuleRef:
    """Parse, verify and optimise a module; LLVM's own vectorisers stay off."""
    module = llvm.parse_assembly(text)
    module.verify()
    options = llvm.create_pipeline_tuning_options(speed_level=3)
    options.loop_vectorization = options.slp_vectorization = False
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    return module


def host_avx512() -> bool:
    """Whether this machine has the instructions that `avx512=True` asks for."""
    features = llvm.get_host_cpu_features()
    return all(features.get(name, False) for name in ("avx512f", "avx512vl"))
