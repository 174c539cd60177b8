"""GGUF files of random weights: models of the Llama family of a stated size, in the block formats of the library gguf.

It needs the package gguf, which quantises F16, Q8_0 and Q4_0. It has no quantiser of Q4_K, whose blocks are drawn as they lie in
the file, with a least value that gives the weights a mean of about 0.
"""

from __future__ import annotations

import sys
from pathlib import Path

import gguf
import numpy as np

from graph.checkpoint import Config

SIZES = {
    "tiny": Config(layers=2, width=256, heads=4, kv_heads=2, hidden=512, vocabulary=320, room=2048),
    "100m": Config(),
    "1b": Config(layers=16, width=2048, heads=32, kv_heads=8, hidden=8192),
}
BYTE_TOKENS = 256  # after <unk>, <s> and </s>: texts of any bytes have tokens
Q4_K_SCALE = 32  # the scale and the least value of all blocks of a group, of 6 bits
NORMAL, UNKNOWN, CONTROL, BYTE = 1, 2, 3, 6  # kinds of tokens


def write(path: Path, size: str, kind: str, seed: int = 0) -> None:
    """A file with the weights of a size in one type; vectors are of float32."""
    config, rng = SIZES[size], np.random.default_rng(seed)
    part = path.with_suffix(".part")  # a file that is cut off does not pass for one
    out = gguf.GGUFWriter(part, "llama")
    numbers = {
        "block_count": config.layers, "context_length": config.room, "embedding_length": config.width,
        "feed_forward_length": config.hidden, "head_count": config.heads, "head_count_kv": config.kv_heads,
        "layer_norm_rms_eps": config.epsilon, "rope_freq_base": config.base, "rope_dimension_count": config.head,
        "vocab_size": config.vocabulary,
    }  # fmt: skip
    for name, value in numbers.items():
        getattr(out, f"add_{name}")(value)
    special = ["<unk>", "<s>", "</s>", *(f"<0x{n:02X}>" for n in range(BYTE_TOKENS))]
    kinds = [UNKNOWN, CONTROL, CONTROL, *[BYTE] * BYTE_TOKENS]
    pieces = config.vocabulary - len(special)
    out.add_tokenizer_model("llama")
    out.add_token_list([*special, *(f"t{n}" for n in range(pieces))])
    out.add_token_scores([0.0] * len(special) + [-float(n) for n in range(pieces)])
    out.add_token_types([*kinds, *[NORMAL] * pieces])
    for name, shape in config.shapes().items():
        if len(shape) == 1:
            out.add_tensor(name, np.ones(shape, np.float32))
        else:
            out.add_tensor(name, _matrix(rng, shape, kind), raw_dtype=gguf.GGMLQuantizationType[kind])
    for step in ("write_header_to_file", "write_kv_data_to_file", "write_tensors_to_file", "close"):
        getattr(out, step)()
    part.rename(path)


def _matrix(rng: np.random.Generator, shape: tuple[int, ...], kind: str) -> np.ndarray:
    """A matrix of variance 1 / columns, in the bytes of a type."""
    type_, scale = gguf.GGMLQuantizationType[kind], np.float32(shape[1] ** -0.5)
    if kind != "Q4_K":
        return gguf.quantize(rng.standard_normal(shape, np.float32) * scale, type_)
    elements, nbytes = gguf.GGML_QUANT_SIZES[type_]
    raw = rng.integers(0, 256, (shape[0], shape[1] // elements, nbytes), np.uint8)
    step = scale / 4.6  # the deviation of a number of 0 to 15
    raw[..., :4] = np.array([step / Q4_K_SCALE, 7.5 * step / Q4_K_SCALE], np.float16).view(np.uint8)
    raw[..., 4:12] = Q4_K_SCALE | Q4_K_SCALE >> 4 << 6  # the second half has its high bits here, its low ones below
    raw[..., 12:16] = (Q4_K_SCALE & 15) * 17
    return raw.reshape(shape[0], -1)


if __name__ == "__main__":
    write(Path(sys.argv[1]), *sys.argv[2:])
