"""Lessons and puzzles in a process that takes its machine for one of AArch64: `python -m tests.docs.on_aarch64 FOLDER`.

It prints as JSON the output of lessons by cells, and the verdict on the solution of each puzzle. Cells that run what they compile
are left out, since this machine is another one; cost models run in Python.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import codegen.llvm_binding

RUNS = re.compile(r'"llvm(?: -num-cores \d)?"|tir\.equivalent\(')  # a target without a processor is the machine at hand


def pretend() -> None:
    """Have LLVM describe another machine to code generation."""
    own = {
        "get_process_triple": lambda: "aarch64-unknown-linux-gnu",
        "get_host_cpu_name": lambda: "cortex-a76",
        "get_host_cpu_features": lambda: SimpleNamespace(flatten=lambda: "+neon,+fullfp16,+dotprod"),
    }
    codegen.llvm_binding.llvm = SimpleNamespace(**vars(codegen.llvm_binding.llvm) | own)
    from costmodel import recording, trees

    recording.compiled = trees.compiled = lambda function, *parameters: function


if __name__ == "__main__":
    pretend()
    from docs import lessons
    from puzzles import PUZZLES, check
    from tests.puzzles.solutions import SOLUTIONS

    folder = Path(sys.argv[1])
    sys.path.insert(0, str(folder))
    printed = {name: lessons.run(folder / f"{name}.py", lambda cell: not RUNS.search(cell.text)) for name in sys.argv[2:]}
    print(json.dumps([printed, {name: str(check(PUZZLES[name], answer)) for name, answer in SOLUTIONS.items()}]))
