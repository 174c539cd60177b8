"""Which kernels the libraries that we compare with have chosen for this processor, and whether they are those of a lesser one.

Variables such as OPENBLAS_CORETYPE and ATEN_CPU_CAPABILITY can have OpenBLAS and torch take kernels for other processors.
"""

from __future__ import annotations

import sys
from pathlib import Path

# The bits of the vectors of OpenBLAS's kernels and of torch's, by their names for x86 processors; 128 of all others.
VECTOR_BITS = {
    "SkylakeX": 512, "Cooperlake": 512, "SapphireRapids": 512, "Haswell": 256, "Zen": 256, "Excavator": 256, "Steamroller": 256,
    "Piledriver": 256, "Bulldozer": 256, "Sandybridge": 256, "AVX512": 512, "AVX2": 256,
}  # fmt: skip


def kernels() -> dict[str, str]:
    """The name of the kernels that numpy's BLAS and torch run, as far as these are loaded and say it."""
    from threadpoolctl import threadpool_info

    found = {}
    for library in threadpool_info():
        if library["user_api"] == "blas" and library.get("architecture"):
            owner = "torch" if "torch" in Path(library["filepath"]).parts else "numpy"
            found[owner] = library["architecture"]
    if (torch := sys.modules.get("torch")) is not None:
        found["torch"] = torch.backends.cpu.get_cpu_capability()
    return found


def handicapped(found: dict[str, str], isa: str, vector_bits: int) -> list[str]:
    """The libraries that run kernels with shorter vectors than an x86 processor with these instructions has, in words."""
    if not isa.startswith(("avx", "sse")):
        return []
    bits = {library: VECTOR_BITS.get(name, 128) for library, name in found.items()}
    return [
        f"{library} is handicapped: it runs the kernels of {found[library]}, with vectors of {n} bits instead of {vector_bits}"
        for library, n in bits.items()
        if n < vector_bits
    ]
