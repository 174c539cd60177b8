"""The network of one step: from tokens of a batch of texts, each at its own place, to scores of the next tokens.

Two sizes are open: `tokens` of a step, and `length`, the places of the cache that attention reads. Caches of all layers are
inputs that are donated to outputs, so that a step writes its own places alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from graph import Builder, Graph, OpenGraph, Value
from graph.checkpoint import Blocks, Checkpoint, Config, frequencies
from graph.generation import WINDOW, Generator
from graph.sizes import OpenInput


def generator(checkpoint: Checkpoint, batch: int = 1, room: int | None = None, row_bits: int = 32, **options: Any) -> Generator:
    """The generator for `batch` texts of at most `room` tokens, or a few more; by default as many as the model was trained for.
    `options` are those of `Generator`."""
    most = checkpoint.config.room
    room = -(-min(room or most, most) // WINDOW) * WINDOW
    return Generator(lambda: network(checkpoint, batch, room, row_bits), stops=checkpoint.stops, **options)


def network(checkpoint: Checkpoint, batch: int, room: int, row_bits: int = 32) -> OpenGraph:
    """The graph of a step for `batch` texts of at most `room` tokens. With `row_bits` of 8, rows may be rounded to so many bits
    before they are multiplied by weights in blocks."""
    config = checkpoint.config
    inputs = [
        OpenInput("ids", (batch, "tokens"), "int64"),
        OpenInput("at", (batch,), "int64"),  # place of the first token of each text
        OpenInput("last", (batch,), "int64"),  # index in the step of the token whose scores are asked
        OpenInput("places", ("length",), "int64"),  # 0, 1, …
        *(OpenInput(name, shape, "float32") for name, shape in caches(config, batch, room).items()),
    ]
    outputs = ("scores", *donated(config).values())
    return OpenGraph("generate", tuple(inputs), outputs, lambda shapes: _step(checkpoint, inputs, shapes, row_bits))


def caches(config: Config, batch: int, room: int) -> dict[str, tuple[int, ...]]:
    """The shapes of the caches of each layer, by name. One place more than the longest length lets attention read a part at all
    lengths."""
    shape = (batch, config.kv_heads, room + 1, config.head)
    return {f"{kind}.{n}": shape for n in range(config.layers) for kind in ("keys", "values")}


def donated(config: Config) -> dict[str, str]:
    """Outputs by the caches whose memory they take."""
    return {name: f"new.{name}" for name in caches(config, 1, 0)}


def _step(checkpoint: Checkpoint, inputs: Sequence[OpenInput], shapes: Mapping[str, Sequence[int]], row_bits: int) -> Graph:
    config, weights = checkpoint.config, checkpoint.weights
    b = Builder("generate")
    ids, at, last, places, *kept = (b.input(v.name, shapes[v.name], v.dtype) for v in inputs)
    (batch, tokens), (length,) = ids.shape, places.shape
    heads, shared, head, width = config.heads, config.kv_heads, config.head, config.width

    @cache
    def operands(name: str) -> list[Value]:
        """The arrays of a matrix in blocks, the same for a table that embeds tokens and makes scores."""
        return [b.constant(a) for a in weights[f"{name}.weight"].operands]

    def linear(x: Value, name: str) -> Value:
        weight, bias = weights[f"{name}.weight"], weights.get(f"{name}.bias")
        rows = b("Reshape", x, shape=(batch * x.shape[1], x.shape[2])) if len(x.shape) == 3 else x
        if isinstance(weight, Blocks):
            made = b("BlockProduct", rows, *operands(name), bits=weight.bits, row_bits=row_bits)
        else:
            made = b("Gemm", rows, b.constant(weight, "float32"), transB=1)
        if bias is not None:
            made = b("Add", made, b.constant(bias, "float32"))
        return b("Reshape", made, shape=(*x.shape[:-1], made.shape[-1]))

    def embedded() -> Value:
        """Vectors of the tokens (batch * tokens, width)."""
        table, flat = weights["token_embd.weight"], b("Reshape", ids, shape=(-1,))
        if not isinstance(table, Blocks):
            return b("Gather", b.constant(table, "float32"), flat, axis=0)
        parts = (b("Gather", a, flat, axis=-1) for a in operands("token_embd"))
        return b("Transpose", b("UnpackBlocks", *parts, length=width, bits=table.bits), perm=(1, 0))

    def norm(x: Value, name: str) -> Value:
        scale = b.constant(weights[f"{name}.weight"], "float32")
        return b("RMSNormalization", x, scale, epsilon=config.epsilon)

    def by_head(x: Value, count: int) -> Value:
        return b("Transpose", b("Reshape", x, shape=(batch, tokens, count, head)), perm=(0, 2, 1, 3))

    own = b("Add", b("Reshape", at, shape=(batch, 1)), b.constant(np.arange(tokens)))  # place of each token (batch, tokens)
    turn = frequencies(config.base, head) / weights.get("rope_freqs.weight", 1)
    angles = np.arange(kept[0].shape[2])[:, None] * turn
    turns = [own, *(b.constant(f(angles).astype(np.float32)) for f in (np.cos, np.sin))]
    sharing = heads // shared * tokens  # queries that read the same keys, as the rows of one product
    each = b("Expand", b("Reshape", own, shape=(batch, 1, tokens)), shape=(batch, heads // shared, tokens))
    visible = b("LessOrEqual", places, b("Reshape", each, shape=(batch, 1, sharing, 1)))
    mask = b("Where", visible, b.constant(0, "float32"), b.constant(-1e30, "float32"))

    def attention(x: Value, n: int) -> tuple[Value, Value, Value]:
        name = f"blk.{n}.attn"

        def turned(which: str, count: int) -> Value:
            vectors = by_head(linear(x, f"{name}_{which}"), count)
            if f"{name}_{which}_norm.weight" in weights:
                vectors = norm(vectors, f"{name}_{which}_norm")
            return b("com.microsoft.RotaryEmbedding", vectors, *turns, interleaved=int(config.interleaved))

        query, key = turned("q", heads), turned("k", shared)
        value = by_head(linear(x, f"{name}_v"), shared)
        key = b("TensorScatter", kept[2 * n], key, at, axis=2)
        value = b("TensorScatter", kept[2 * n + 1], value, at, axis=2)
        keys, values = (b("Slice", v, starts=(0,), ends=(length,), axes=(2,)) for v in (key, value))
        query = b("Mul", query, b.constant(head**-0.5, "float32"))
        query = b("Reshape", query, shape=(batch, shared, sharing, head))
        scores = b("MatMul", query, b("Transpose", keys, perm=(0, 1, 3, 2)))
        found = b("MatMul", b("Softmax", b("Add", scores, mask), axis=-1), values)
        found = b("Transpose", b("Reshape", found, shape=(batch, heads, tokens, head)), perm=(0, 2, 1, 3))
        return linear(b("Reshape", found, shape=(batch, tokens, heads * head)), f"{name}_output"), key, value

    x = b("Reshape", embedded(), shape=(batch, tokens, width))
    made = []
    for n in range(config.layers):
        found, *rows = attention(norm(x, f"blk.{n}.attn_norm"), n)
        made += rows
        x = b("Add", x, found)
        y = norm(x, f"blk.{n}.ffn_norm")
        gate = linear(y, f"blk.{n}.ffn_gate")
        gate = b("Mul", b("Mul", gate, b("Sigmoid", gate)), linear(y, f"blk.{n}.ffn_up"))
        x = b("Add", x, linear(gate, f"blk.{n}.ffn_down"))
    index = b("Expand", b("Reshape", last, shape=(batch, 1, 1)), shape=(batch, 1, width))
    x = b("Reshape", b("GatherElements", x, index, axis=1), shape=(batch, width))
    scores = linear(norm(x, "output_norm"), "output" if "output.weight" in weights else "token_embd")
    return b.graph(scores=scores, **dict(zip(donated(config).values(), made, strict=True)))
