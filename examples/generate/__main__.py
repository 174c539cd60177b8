"""Write a text, token by token: `python -m examples.generate model.gguf --prompt "Once upon a time"`; without a file, a model of
random weights, which shows the speed alone."""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from graph.checkpoint import CheckpointError, Config, drawn, load, quantised
from graph.generation import Sampler, greedy, sampled
from graph.kept import kept_file

from .network import generator

MIN_ROOM = 256  # tokens; rooms are powers of two, up to that of the model, so that most texts find a model that was kept


def main() -> int:
    options = _options()
    try:
        checkpoint = drawn(Config(), np.random.default_rng(options.seed)) if options.model is None else load(options.model)
    except (CheckpointError, ImportError) as error:
        hint = "; pip install 'tir-compiler[generate]'" if isinstance(error, ImportError) else ""
        print(f"error: {error}{hint}", file=sys.stderr)
        return 2
    texts = options.prompt or ["Once upon a time"]
    prompts = [checkpoint.encode(text) for text in texts]
    room = max(MIN_ROOM, 1 << (max(map(len, prompts)) + options.tokens - 1).bit_length())
    target = None if options.threads is None else f"llvm -num-cores {options.threads}"
    start = time.perf_counter()
    kept = None
    if options.model is not None:
        sizes = len(texts), min(room, checkpoint.config.room), options.bits, options.row_bits
        kept = kept_file(options.model, target, *sizes, sources=Path(__file__).parent)
    done = "loaded" if kept is not None and kept.exists() else "compiled"
    if options.bits and done == "compiled":
        checkpoint = checkpoint.with_weights(lambda weight: quantised(weight, options.bits))
    writer = generator(checkpoint, batch=len(texts), room=room, row_bits=options.row_bits, target=target, kept=kept)
    checkpoint = replace(checkpoint, weights={})  # those of the model serve
    print(f"{done} in {time.perf_counter() - start:.1f} s; weights {writer.model.weights_nbytes:,} bytes", file=sys.stderr)
    sample: Sampler = greedy
    if options.temperature > 0:
        sample = sampled(np.random.default_rng(options.seed), options.temperature, options.top)

    start = first = time.perf_counter()
    made: list[list[int]] = [[] for _ in texts]
    shown = ""
    for tokens in writer.generate(prompts, options.tokens, sample):
        first = time.perf_counter() if not made[0] else first
        for text, token in zip(made, tokens.tolist(), strict=True):
            text.append(token)
        if len(texts) == 1:  # as it comes
            whole = checkpoint.decode(made[0])
            print(whole.removeprefix(shown), end="", flush=True)
            shown = whole
    end = time.perf_counter()
    print()
    if len(texts) > 1:
        for text, more in zip(texts, made, strict=True):
            print(f"{text!r}: {checkpoint.decode(more)!r}")
    steps, read = max(len(made[0]) - 1, 0), sum(map(len, prompts))
    print(
        f"prompt: {read / (first - start):.1f} tokens/s; text: {steps * len(texts) / max(end - first, 1e-9):.1f}", file=sys.stderr
    )
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m examples.generate", description=__doc__)
    parser.add_argument("model", nargs="?", type=Path, help="a .gguf file, or a folder with config.json and *.safetensors")
    parser.add_argument("--prompt", action="append", help="the beginning of a text; several are written as a batch")
    parser.add_argument("--tokens", type=int, default=64, help="tokens to add to each text (default 64)")
    parser.add_argument("--bits", type=int, choices=(4, 8), help="quantise matrices of floats to so many bits, in blocks of 32")
    parser.add_argument(
        "--row-bits",
        type=int,
        choices=(8, 32),
        default=32,
        help="8: products by quantised matrices may round rows to so many bits",
    )
    parser.add_argument("--threads", type=int, help="threads (default: all cores)")
    parser.add_argument(
        "--temperature", type=float, default=0.0, help="0 (default) takes the likeliest token, 1 draws as trained"
    )
    parser.add_argument("--top", type=int, default=40, help="draw among so many likeliest tokens (default 40)")
    parser.add_argument("--seed", type=int, default=0, help="of the draws, and of random weights")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
