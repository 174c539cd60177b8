"""Weights and sizes of a language model of the Llama family: from a GGUF file, a folder of safetensors, or drawn at random.

Matrices stay in the bits of the file. `Blocks` is one form for all block formats of GGUF: weight = scale * (number - zero).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import inf, pi, prod
from pathlib import Path
from struct import calcsize, unpack_from
from struct import error as StructError
from typing import Any

import numpy as np

from .ir import GraphError
from .ops.unpacked import packed
from .safetensors import load_safetensors


class CheckpointError(ValueError):
    """A file that is not a model of the Llama family, or has a part that is not supported."""


@dataclass(frozen=True)
class Config:
    """Sizes of a model; `heads` of queries share `kv_heads` of keys and values."""

    layers: int = 12
    width: int = 768
    heads: int = 12
    kv_heads: int = 4
    hidden: int = 2048
    vocabulary: int = 32000
    epsilon: float = 1e-5
    base: float = 10000.0  # base of the wavelengths of rotary embeddings
    interleaved: bool = False  # elements that rotate as a pair are neighbours, not from the two halves of a head
    room: int = 2048  # positions that the model was trained for
    head_width: int | None = None  # elements of a head; by default width / heads

    @property
    def head(self) -> int:
        return self.head_width or self.width // self.heads

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of the weights by name: matrices (results, columns), and vectors of norms."""
        queries, keys, wide = ((n, self.width) for n in (self.heads * self.head, self.kv_heads * self.head, self.hidden))
        norm = (self.width,)
        layer = {"attn_norm": norm, "attn_q": queries, "attn_k": keys, "attn_v": keys, "attn_output": queries[::-1]}
        layer |= {"ffn_norm": norm, "ffn_gate": wide, "ffn_up": wide, "ffn_down": wide[::-1]}
        found = {f"blk.{n}.{name}.weight": shape for n in range(self.layers) for name, shape in layer.items()}
        return found | {"token_embd.weight": (self.vocabulary, self.width), "output_norm.weight": norm}


@dataclass(frozen=True, eq=False)
class Blocks:
    """A matrix (rows, columns) in blocks of columns, as `BlockProduct` reads it. Numbers of `bits` bits are in `words` (blocks,
    words of a block, rows); scales and zero points are (blocks, rows), zero points by default the middle number."""

    bits: int
    words: np.ndarray
    scales: np.ndarray
    zeros: np.ndarray | None = None

    @classmethod
    def of(cls, bits: int, numbers: np.ndarray, scales: np.ndarray, zeros: np.ndarray | None = None) -> Blocks:
        """The matrix of numbers (rows, columns), scales and zero points (rows, blocks)."""
        rows, columns = numbers.shape
        of_blocks = [np.ascontiguousarray(a.reshape(rows, -1).T, np.float32) for a in (scales, zeros) if a is not None]
        blocks = len(of_blocks[0])
        return cls(bits, packed(numbers.T, columns // blocks, blocks, bits), *of_blocks)

    @property
    def shape(self) -> tuple[int, ...]:
        blocks, words, rows = self.words.shape
        return rows, blocks * words * 32 // self.bits

    @property
    def operands(self) -> tuple[np.ndarray, ...]:
        return self.words, self.scales, *(() if self.zeros is None else (self.zeros,))

    def floats(self) -> np.ndarray:
        """The weights in float32."""
        places = np.arange(0, 32, self.bits, dtype=np.uint32)[:, None]
        numbers = self.words.view(np.uint32)[:, :, None] >> places & ((1 << self.bits) - 1)
        split = numbers.reshape(len(self.scales), -1, self.shape[0]).astype(np.float32)
        zeros = 1 << (self.bits - 1) if self.zeros is None else self.zeros[:, None]
        return (self.scales[:, None] * (split - zeros)).reshape(-1, self.shape[0]).T


Weight = np.ndarray | Blocks


class Unread(Mapping[str, Weight]):
    """Weights that are read from a file when they are first asked for."""

    def __init__(self, read: Mapping[str, Callable[[], Weight]]):
        self._read, self._known = read, dict[str, Weight]()

    def __getitem__(self, name: str) -> Weight:
        if name not in self._known:
            self._known[name] = self._read[name]()
        return self._known[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._read)

    def __len__(self) -> int:
        return len(self._read)


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """A model, its weights by their names in GGUF. `tokenizer` has `encode` and `decode`; without one, tokens are bytes."""

    config: Config
    weights: Mapping[str, Weight]
    tokenizer: Any = None
    stops: frozenset[int] = frozenset()  # tokens that end a text

    def encode(self, text: str) -> list[int]:
        """The tokens of a text."""
        return list(text.encode()) if self.tokenizer is None else self.tokenizer.encode(text).ids

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens; without a tokenizer, their numbers."""
        return " ".join(map(str, tokens)) if self.tokenizer is None else self.tokenizer.decode(list(tokens))

    def with_weights(self, change: Callable[[Weight], Weight]) -> Checkpoint:
        """The model with each weight changed."""
        return replace(self, weights={name: change(weight) for name, weight in self.weights.items()})


def load(path: Path) -> Checkpoint:
    """The model in a GGUF file, or in a folder with config.json, *.safetensors and tokenizer.json. Raises CheckpointError."""
    if not path.exists():
        raise CheckpointError(f"{path} does not exist; expected a .gguf file or a folder with config.json and *.safetensors")
    return _folder(path) if path.is_dir() else _gguf(path)


def drawn(config: Config, rng: np.random.Generator) -> Checkpoint:
    """A model of random weights of variance 1 / columns."""

    def weight(shape: tuple[int, ...]) -> np.ndarray:
        if len(shape) == 1:
            return np.ones(shape, np.float32)
        return rng.standard_normal(shape, np.float32) * np.float32(shape[1] ** -0.5)

    return Checkpoint(config, {name: weight(shape) for name, shape in config.shapes().items()})


def _divisors(path: Path, scaling: Mapping[str, Any], base: float, head: int) -> dict[str, np.ndarray]:
    """The divisors of the frequencies by which pairs of a head rotate, under their name in GGUF; none where nothing is scaled.

    Those of Llama 3 keep waves that the first context holds `high_freq_factor` times, and slow those that it holds less than
    `low_freq_factor` times; frequencies between are interpolated."""
    kind = scaling.get("rope_type", scaling.get("type")) or "default"
    if kind in ("default", "none"):
        return {}
    if kind not in ("linear", "llama3"):
        raise CheckpointError(f"{path}: positions scaled as {kind} are not supported; expected linear or llama3")
    names = ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings")[: 1 if kind == "linear" else 4]
    for name in names:
        if not isinstance(number := scaling.get(name), int | float) or number <= 0:
            raise CheckpointError(f"{path}: positions scaled as {kind} need a positive number {name}, got {number}")
    factor, *others = (scaling[name] for name in names)
    kept: Any = 0
    if others:
        low, high, first = others
        kept = np.clip((first / (2 * pi) * frequencies(base, head) - low) / (high - low), 0, 1)
    return {"rope_freqs.weight": 1 / (kept + (1 - kept) / factor) * np.ones(head // 2)}


def frequencies(base: float, head: int) -> np.ndarray:
    """The radians by which the pairs of a head rotate from one position to the next, unless they are scaled."""
    return base ** (-np.arange(0, head, 2) / head)


def quantised(weight: Weight, bits: int, block: int = 32) -> Weight:
    """A matrix of floats in blocks of columns, each scaled by its largest magnitude; other weights unchanged."""
    if isinstance(weight, Blocks) or weight.ndim != 2 or weight.shape[1] % block:
        return weight
    split = weight.astype(np.float32).reshape(len(weight), -1, block)
    middle = 1 << (bits - 1)
    scales = np.abs(split).max(-1) / (middle - 1)
    numbers = np.rint(split / np.where(scales, scales, 1)[..., None]) + middle
    return Blocks.of(bits, numbers.reshape(weight.shape).astype(np.uint8), scales)


# --- safetensors -------------------------------------------------------------------------------------------------------

_NAMES = {  # of Hugging Face, within model.layers.N
    "input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "post_attention_layernorm": "ffn_norm", "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down", "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
}  # fmt: skip
_WHOLE = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


def _folder(path: Path) -> Checkpoint:
    try:
        given = json.loads((path / "config.json").read_text())
    except FileNotFoundError:
        raise CheckpointError(f"{path} has no config.json; expected a folder with config.json and *.safetensors") from None
    except (OSError, json.JSONDecodeError) as error:
        raise CheckpointError(f"{path / 'config.json'}: {error}") from None
    kind = given.get("model_type")
    _need_kind(path, kind, ("llama", "mistral", "qwen2", "qwen3"))
    scaling = given.get("rope_parameters") or given.get("rope_scaling") or {}  # the former has the base, too
    if not isinstance(scaling, dict):
        raise CheckpointError(f"{path}: rope_parameters or rope_scaling must be an object, got {scaling}")
    for name, only in {"hidden_act": "silu", "partial_rotary_factor": 1}.items():
        if (other := (given | scaling).get(name, only)) != only:
            raise CheckpointError(f"{path}: {name}={other} is not supported; expected {only}")
    window = given.get("sliding_window") if given.get("use_sliding_window", kind == "mistral") else None
    config = Config(
        given["num_hidden_layers"], given["hidden_size"], given["num_attention_heads"],
        given.get("num_key_value_heads", given["num_attention_heads"]), given["intermediate_size"], given["vocab_size"],
        given["rms_norm_eps"], scaling.get("rope_theta", given.get("rope_theta", 10000.0)), head_width=given.get("head_dim"),
        room=min(given["max_position_embeddings"], window or inf),  # so far attention reads all positions
    )  # fmt: skip
    try:
        weights = {_renamed(name): array for name, array in load_safetensors(path).items()}
    except GraphError as error:
        raise CheckpointError(str(error)) from None
    tokenizer = None
    if (file := path / "tokenizer.json").exists():
        from tokenizers import Tokenizer

        tokenizer = Tokenizer.from_file(str(file))
    stops = given.get("eos_token_id")
    weights |= _divisors(path, scaling, config.base, config.head)
    return Checkpoint(config, weights, tokenizer, frozenset([stops] if isinstance(stops, int) else stops or ()))


def _renamed(name: str) -> str:
    stem, kind = name.rsplit(".", 1)
    if stem.startswith("model.layers."):
        number, part = stem.removeprefix("model.layers.").split(".", 1)
        return f"blk.{number}.{_NAMES.get(part, part)}.{kind}"
    return f"{_WHOLE.get(stem, stem)}.{kind}"


def _need_kind(path: Path, kind: Any, known: tuple[str, ...]) -> None:
    if kind not in known:
        raise CheckpointError(f"{path}: expected a model of one of {', '.join(known)}, got {kind}")


# --- GGUF --------------------------------------------------------------------------------------------------------------


_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}  # letters of struct
_TEXT, _ARRAY = 8, 9
_KINDS = {0: "F32", 1: "F16", 2: "Q4_0", 8: "Q8_0", 12: "Q4_K", 14: "Q6_K", 30: "BF16"}  # of tensors


@dataclass(frozen=True, eq=False)
class _Tensor:
    """A tensor of a file, its elements as bytes."""

    name: str
    kind: str
    shape: tuple[int, ...]
    data: np.ndarray


class _Header:
    """The values of a file, one after the other. The library gguf makes arrays of each, of 32,000 tokens 24 MB."""

    def __init__(self, memory: np.ndarray):
        self.memory, self.at = memory.data, 0

    def numbers(self, letter: str, count: int = 1) -> tuple[Any, ...]:
        found = unpack_from(f"<{count}{letter}", self.memory, self.at)
        self.at += calcsize(f"<{count}{letter}")
        return found

    def text(self) -> str:
        begin = self.at + 8
        self.at = begin + self.numbers("Q")[0]
        return bytes(self.memory[begin : self.at]).decode("utf-8", "replace")

    def value(self, kind: int) -> Any:
        if kind == _TEXT:
            return self.text()
        if kind != _ARRAY:
            return self.numbers(_NUMBERS[kind])[0]
        (of,), (count,) = self.numbers("I"), self.numbers("Q")
        return [self.value(of) for _ in range(count)] if of in (_TEXT, _ARRAY) else list(self.numbers(_NUMBERS[of], count))


def read_gguf(path: Path) -> tuple[dict[str, Any], list[_Tensor]]:
    """The values of a GGUF file of version 2 or 3 by name, and its tensors, mapped into memory. Raises CheckpointError."""
    try:
        memory = np.memmap(path, np.uint8, "r")
        header = _Header(memory)
        if bytes(header.numbers("B", 4)) != b"GGUF" or header.numbers("I")[0] not in (2, 3):
            raise ValueError("it is no GGUF file of version 2 or 3")
        tensors, values = header.numbers("Q", 2)
        known = {header.text(): header.value(*header.numbers("I")) for _ in range(values)}
        infos = []
        for _ in range(tensors):
            name, (rank,) = header.text(), header.numbers("I")
            infos.append((name, header.numbers("Q", rank)[::-1], *header.numbers("I"), *header.numbers("Q")))
    except (KeyError, OSError, StructError, ValueError) as error:
        raise CheckpointError(f"{path}: {error}") from None
    step, found = known.get("general.alignment", 32), []
    begin = -(-header.at // step) * step
    for name, shape, number, offset in infos:
        kind = _KINDS.get(number, f"of type {number}")
        if kind not in _SIZES:
            raise CheckpointError(f"{path}: `{name}` is {kind}; supported are {', '.join(_SIZES)}")
        elements, nbytes = _SIZES[kind]
        end = begin + offset + prod(shape) // elements * nbytes
        if end > len(memory):
            raise CheckpointError(f"{path} is cut off")
        found.append(_Tensor(name, kind, shape, memory[begin + offset : end]))
    return known, found


def _gguf(path: Path) -> Checkpoint:
    known, tensors = read_gguf(path)
    kind = known.get("general.architecture")
    _need_kind(path, kind, ("llama", "qwen2", "qwen3"))
    of_kind = {name.removeprefix(f"{kind}."): value for name, value in known.items()}
    heads = of_kind["attention.head_count"]
    config = Config(
        of_kind["block_count"], of_kind["embedding_length"], heads, of_kind.get("attention.head_count_kv", heads),
        of_kind["feed_forward_length"], len(known["tokenizer.ggml.tokens"]), of_kind["attention.layer_norm_rms_epsilon"],
        of_kind.get("rope.freq_base", 10000.0), kind == "llama", of_kind["context_length"], of_kind.get("attention.key_length"),
    )  # fmt: skip
    scaling = {k: of_kind[f"rope.scaling.{k}"] for k in ("type", "factor") if f"rope.scaling.{k}" in of_kind}
    for name in ("rope.dimension_count", "attention.value_length"):
        if (other := of_kind.get(name, config.head)) != config.head:
            raise CheckpointError(f"{path}: {name}={other} is not supported; expected {config.head}, that of a head")
    read: dict[str, Callable[[], Weight]] = {t.name: partial(_tensor, t) for t in tensors}
    for name, divisors in _divisors(path, scaling, config.base, config.head).items():  # they multiply those of the file
        read[name] = partial(np.array, divisors * np.asarray(read[name]() if name in read else 1))
    return Checkpoint(config, Unread(read), _tokenizer(path, known), frozenset({known.get("tokenizer.ggml.eos_token_id", -1)}))


def _tensor(tensor: _Tensor) -> Weight:
    kind, shape, data = tensor.kind, tensor.shape, tensor.data
    if kind == "BF16":
        return (data.view(np.uint16).astype(np.uint32) << 16).view(np.float32).reshape(shape)
    if kind not in _BLOCKS:
        return data.view(np.float32 if kind == "F32" else np.float16).reshape(shape)
    bits, unpack = _BLOCKS[kind]
    numbers, scales, zeros = unpack(data.reshape(-1, _SIZES[kind][1]))
    return Blocks.of(bits, numbers.reshape(shape), scales, zeros)


_Unpacked = tuple[np.ndarray, np.ndarray, np.ndarray | None]  # numbers, scales and zero points of blocks


def _halves(raw: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(raw).view(np.float16).astype(np.float32)


def _q4_0(raw: np.ndarray) -> _Unpacked:
    """A scale, then 16 bytes with the numbers n and n + 16."""
    return np.concatenate([raw[:, 2:] & 15, raw[:, 2:] >> 4], axis=1), _halves(raw[:, :2]), None


def _q8_0(raw: np.ndarray) -> _Unpacked:
    """A scale, then 32 signed bytes."""
    return raw[:, 2:] ^ 128, _halves(raw[:, :2]), None


def _q4_k(raw: np.ndarray) -> _Unpacked:
    """Eight blocks of 32 with scales and minima of 6 bits, in units of two floats. Two blocks share the bytes of numbers."""
    units, packed, numbers = _halves(raw[:, :4]), raw[:, 4:16], raw[:, 16:].reshape(-1, 4, 1, 32)
    low, high, last = packed[:, :4], packed[:, 4:8], packed[:, 8:]
    scales = np.concatenate([low & 63, (last & 15) | (low >> 6 << 4)], axis=1) * units[:, :1]
    least = np.concatenate([high & 63, (last >> 4) | (high >> 6 << 4)], axis=1) * units[:, 1:]
    flat = scales == 0  # a block of equal weights: a tiny scale keeps the zero point finite
    scales = np.where(flat, 1e-30, scales)
    return np.concatenate([numbers & 15, numbers >> 4], axis=2).reshape(len(raw), -1), scales, least / scales


def _q6_k(raw: np.ndarray) -> _Unpacked:
    """Sixteen blocks of 16: 4 low bits, 2 high bits, scales of 8 bits in units of a float."""
    low, high = raw[:, :128].reshape(-1, 2, 2, 32), raw[:, 128:192].reshape(-1, 2, 1, 32)
    nibbles = np.concatenate([low & 15, low >> 4], axis=2)
    pairs = high >> np.array([0, 2, 4, 6], np.uint8)[:, None] & 3
    scales = raw[:, 192:208].view(np.int8) * _halves(raw[:, 208:])
    return (nibbles | pairs << 4).reshape(len(raw), -1) + (128 - 32), scales, None  # the middle of 6 bits is that of 8


_BLOCKS: dict[str, tuple[int, Callable[[np.ndarray], _Unpacked]]] = {  # bits of a number
    "Q4_0": (4, _q4_0), "Q8_0": (8, _q8_0), "Q4_K": (4, _q4_k), "Q6_K": (8, _q6_k),
}  # fmt: skip
_SIZES = {  # elements and bytes of a block
    "F32": (1, 4), "F16": (1, 2), "BF16": (1, 2), "Q4_0": (32, 18), "Q8_0": (32, 34), "Q4_K": (256, 144), "Q6_K": (256, 210),
}  # fmt: skip


def _tokenizer(path: Path, known: Mapping[str, Any]) -> Any:
    """The tokenizer of a GGUF file: byte-level pairs with merges, or pairs of pieces that are merged by their scores."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors

    tokens, kind = known["tokenizer.ggml.tokens"], known["tokenizer.ggml.model"]
    vocabulary = {text: n for n, text in enumerate(tokens)}
    words = known.get("tokenizer.ggml.pre")
    words = "llama-bpe" if words in ("llama3", "llama-v3") else words
    if kind == "gpt2":
        merges = [tuple(m.split(" ")) for m in known["tokenizer.ggml.merges"]]
        made = Tokenizer(models.BPE(vocabulary, merges, ignore_merges=words == "llama-bpe"))
        bytes_ = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=words not in _WORDS)
        split = [pre_tokenizers.Split(Regex(_WORDS[words]), "isolated")] if words in _WORDS else []
        made.pre_tokenizer, made.decoder = pre_tokenizers.Sequence([*split, bytes_]), decoders.ByteLevel()
    elif kind == "llama":
        made = _by_scores(tokens, known["tokenizer.ggml.scores"], vocabulary)
    else:
        raise CheckpointError(f"{path}: the tokenizer {kind} is not supported; expected gpt2 or llama")
    first = known.get("tokenizer.ggml.bos_token_id")
    if first is not None and known.get("tokenizer.ggml.add_bos_token", kind == "llama" or words == "llama-bpe"):
        made.post_processor = processors.TemplateProcessing(single=[tokens[first], "$A"], special_tokens=[(tokens[first], first)])
    return made


_AFTER_NUMBERS = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_LETTERS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
_WORDS = {  # patterns of words, within which pairs merge, by the name of a way to split; others split as GPT-2
    "llama-bpe": rf"{_LETTERS}\p{{N}}{{1,3}}{_AFTER_NUMBERS}", "qwen2": rf"{_LETTERS}\p{{N}}{_AFTER_NUMBERS}",
}  # fmt: skip


def _by_scores(tokens: Sequence[str], scores: Sequence[float], vocabulary: dict[str, int]) -> Any:
    """The tokenizer that merges the pair of pieces whose joint piece has the largest score."""
    from tokenizers import Tokenizer, decoders, models, normalizers

    cuts = ((text, n) for text in tokens for n in range(1, len(text)))
    pairs = [(t[:n], t[n:]) for t, n in cuts if t[:n] in vocabulary and t[n:] in vocabulary]
    pairs.sort(key=lambda pair: -scores[vocabulary["".join(pair)]])
    made = Tokenizer(models.BPE(vocabulary, pairs, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    made.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    made.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return made
