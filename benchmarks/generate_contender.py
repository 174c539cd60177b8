"""A process in which one library writes texts with a GGUF file:

    python -m benchmarks.generate_contender LIBRARY FILE THREADS KEPT

Ours keeps the compiled model in the file KEPT, or loads it from there. The process answers on standard output with one JSON
object a line: first what loading took, the memory that it took beside the library itself, and the scores after a prompt; then,
for each request `prefill N` or `decode N` that it reads, the seconds of one of N calls, on average. A call of prefill reads the
PROMPT tokens into an empty cache, one of decode a token behind them: each of STEPS places in turn.
"""

from __future__ import annotations

import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from .network_contender import channel, resident, timed

PROMPT, STEPS = 512, 64  # tokens of the prompt, and places behind it
BLOCK = 512  # tokens of the prompt that are read at once
ROW_BITS = 8  # of rows that are multiplied by weights in blocks, by our leave, and always in llama.cpp
VOCABULARY = 300  # tokens are drawn below it


class Ours:
    """Ours: a generator of examples.generate."""

    MODULES = ("examples.generate.network", "graph.compilation", "search.policy.default_schedule", "tokenizers")

    def __init__(self, file: Path, threads: int, kept: Path):
        from examples.generate.network import generator
        from graph.checkpoint import load

        checkpoint = load(file)
        target = f"llvm -num-cores {threads}"
        sizes = {"room": PROMPT + STEPS, "block": BLOCK}
        self.generator = generator(checkpoint, **sizes, row_bits=ROW_BITS, target=target, kept=kept)
        self.about = {
            "weights_mb": self.generator.model.weights_nbytes / 1e6,
            "cache_mb": sum(cache.nbytes for cache in self.generator.caches) / 1e6,
        }

    def prefill(self, tokens: list[int]) -> np.ndarray:
        return self.generator.prefill([tokens])[0]

    def step(self, token: int, place: int) -> np.ndarray:
        return self.generator.step(np.array([[token]]), np.array([place]), np.zeros(1, np.int64))[0]


class LlamaCpp:
    """llama.cpp, by llama-cpp-python; its cache is of float16."""

    MODULES = ("llama_cpp",)

    def __init__(self, file: Path, threads: int, kept: Path):
        import llama_cpp

        self.model = llama_cpp.Llama(
            str(file),
            n_ctx=PROMPT + STEPS,
            n_batch=BLOCK,
            n_ubatch=BLOCK,
            n_threads=threads,
            n_threads_batch=threads,
            verbose=False,
        )
        self.about: dict[str, Any] = {"version": llama_cpp.__version__}

    def prefill(self, tokens: list[int]) -> np.ndarray:
        self.model.reset()
        self.model.eval(tokens)
        return self._scores()

    def step(self, token: int, place: int) -> np.ndarray:
        self.model.n_tokens = place  # what lies behind it is dropped
        self.model.eval([token])
        return self._scores()

    def _scores(self) -> np.ndarray:
        import llama_cpp

        found = llama_cpp.llama_get_logits_ith(self.model.ctx, -1)
        return np.ctypeslib.as_array(found, (self.model.n_vocab(),)).copy()


LIBRARIES = {"tir": Ours, "llama.cpp": LlamaCpp}


def main(library: str, file: str, threads: str, kept: str) -> None:
    send = channel()
    kind = LIBRARIES[library]
    tokens = np.random.default_rng(0).integers(3, VOCABULARY, PROMPT + STEPS).tolist()
    prompt, after = tokens[:PROMPT], tokens[PROMPT:]
    try:
        for module in kind.MODULES:
            import_module(module)
        before = resident()
        load_s, model = timed(lambda: kind(Path(file), int(threads), Path(kept)))
        scores = [model.prefill(prompt), *(model.step(token, PROMPT + n) for n, token in enumerate(after[:2]))]
        memory = (resident() - before) / 1e6
        send(**model.about, load_s=load_s, memory_mb=memory, scores=[row.tolist() for row in scores])
    except Exception as failure:  # the outermost frame: whatever a library cannot do is a result
        send(error=f"{type(failure).__name__}: {failure}".strip())
        return
    place = 0
    for line in sys.stdin:
        what, count = line.split()
        begin = time.perf_counter()
        for _ in range(int(count)):
            if what == "prefill":
                model.prefill(prompt)
            else:
                model.step(after[place], PROMPT + place)
                place = (place + 1) % STEPS
        send(seconds=(time.perf_counter() - begin) / int(count))


if __name__ == "__main__":
    main(*sys.argv[1:])
