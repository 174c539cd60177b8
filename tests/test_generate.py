"""examples/generate against a model of the Llama family in numpy, in float64 and without a cache."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from examples.generate.network import generator
from graph import kept
from graph.checkpoint import Blocks, Checkpoint, CheckpointError, Config, _divisors, _gguf, _Tensor, drawn, load, quantised
from graph.generation import sampled

from .sweeps import quick

TINY = Config(layers=2, width=32, heads=4, kv_heads=2, hidden=48, vocabulary=67, room=230)
PROMPTS = [[5, 1, 66, 0, 13, 7, 9], [3], list(range(19))]


def reference(checkpoint: Checkpoint, tokens: list[int]) -> np.ndarray:
    """Scores (tokens, vocabulary) after each token."""
    c = checkpoint.config
    floats = {n: (w.floats() if isinstance(w, Blocks) else w).astype(np.float64) for n, w in checkpoint.weights.items()}

    def norm(x, name):
        return x / np.sqrt((x**2).mean(-1, keepdims=True) + c.epsilon) * floats[f"{name}.weight"]

    def linear(x, name):
        return x @ floats[f"{name}.weight"].T + floats.get(f"{name}.bias", 0)

    def turned(x):  # (tokens, heads, head)
        angles = np.arange(len(x))[:, None] * c.base ** (-np.arange(0, c.head, 2) / c.head) / floats.get("rope_freqs.weight", 1)
        a, b = (x[..., ::2], x[..., 1::2]) if c.interleaved else np.split(x, 2, axis=-1)
        turns = (a + 1j * b) * np.exp(1j * angles)[:, None]
        parts = [turns.real, turns.imag]
        return np.stack(parts, axis=-1).reshape(x.shape) if c.interleaved else np.concatenate(parts, axis=-1)

    x = floats["token_embd.weight"][tokens]
    later = np.triu(np.full((len(tokens),) * 2, -np.inf), 1)
    for n in range(c.layers):
        h = norm(x, f"blk.{n}.attn_norm")
        q, k, v = (linear(h, f"blk.{n}.attn_{p}").reshape(len(tokens), -1, c.head) for p in "qkv")
        if f"blk.{n}.attn_q_norm.weight" in floats:
            q, k = norm(q, f"blk.{n}.attn_q_norm"), norm(k, f"blk.{n}.attn_k_norm")
        q, k = turned(q), turned(k)
        found = []
        for i in range(c.heads):
            j = i // (c.heads // c.kv_heads)
            scores = np.exp(q[:, i] @ k[:, j].T / np.sqrt(c.head) + later)
            found.append(scores / scores.sum(-1, keepdims=True) @ v[:, j])
        x = x + linear(np.concatenate(found, axis=-1), f"blk.{n}.attn_output")
        h = norm(x, f"blk.{n}.ffn_norm")
        gate = linear(h, f"blk.{n}.ffn_gate")
        x = x + linear(gate / (1 + np.exp(-gate)) * linear(h, f"blk.{n}.ffn_up"), f"blk.{n}.ffn_down")
    return linear(norm(x, "output_norm"), "output" if "output.weight" in floats else "token_embd")


def continued(checkpoint: Checkpoint, prompt: list[int], tokens: int) -> list[int]:
    text = list(prompt)
    for _ in range(tokens):
        text.append(int(reference(checkpoint, text)[-1].argmax()))
    return text[len(prompt) :]


def biased(checkpoint: Checkpoint, rng: np.random.Generator) -> Checkpoint:
    """With all that a model may have beside matrices: biases, norms of queries and keys, divisors of frequencies, an output."""
    c, weights = checkpoint.config, dict(checkpoint.weights)
    for n in range(c.layers):
        weights |= {f"blk.{n}.attn_{p}.bias": rng.standard_normal(c.head * (c.heads if p == "q" else c.kv_heads)) for p in "qkv"}
        weights |= {f"blk.{n}.attn_{p}_norm.weight": rng.uniform(0.5, 1.5, c.head) for p in "qk"}
    divisors = {"rope_freqs.weight": rng.uniform(1, 8, c.head // 2)}
    return replace(checkpoint, weights=weights | divisors | {"output.weight": rng.standard_normal((c.vocabulary, c.width))})


@quick(lambda bits, variant: (bits, variant) in ((4, "halves"), (0, "pairs and biases")))
@pytest.mark.parametrize("bits", [0, 4, 8])
@pytest.mark.parametrize("variant", ["halves", "pairs and biases"])
def test_texts_of_a_batch_are_those_of_the_reference(bits: int, variant: str):
    rng = np.random.default_rng(3)
    checkpoint = drawn(TINY, rng)
    if variant != "halves":
        checkpoint = biased(drawn(replace(TINY, interleaved=True, head_width=16), rng), rng)
    if bits:
        checkpoint = checkpoint.with_weights(lambda w: quantised(w, bits, 16))
    writer = generator(checkpoint, batch=3, room=230, block=8, target="llvm -num-cores 1")
    exact = np.array([reference(checkpoint, p)[-1] for p in PROMPTS])
    scores = writer.prefill(PROMPTS)
    np.testing.assert_allclose(scores, exact, atol=1e-4 * np.abs(exact).max())
    count = 200 if not bits else 50  # beyond the length that attention reads at first
    found = np.array(list(writer.generate(PROMPTS, count)))
    for text, prompt in zip(found.T.tolist(), PROMPTS, strict=True):
        assert text == continued(checkpoint, prompt, count)


def test_a_text_ends_at_its_stop_or_where_there_is_no_room():
    checkpoint = drawn(TINY, np.random.default_rng(0))
    writer = generator(checkpoint, room=60, block=100, target="llvm -num-cores 1")  # blocks end with the room, of 64
    free = [int(t) for (t,) in writer.generate([[1, 2, 3]], 100)]
    assert len(free) == 64 - 3 + 1
    writer.stops = frozenset({free[5]})
    assert [int(t) for (t,) in writer.generate([[1, 2, 3]], 100)] == free[: free.index(free[5]) + 1]
    with pytest.raises(ValueError, match=r"^expected 1 prompts of 1 to 64 tokens, got \[0\]$"):
        writer.prefill([[]])


def test_a_model_that_is_kept_is_loaded_and_writes_the_same_text(tmp_path, monkeypatch):
    checkpoint = drawn(TINY, np.random.default_rng(0))
    for start in range(2):
        found = generator(checkpoint, room=64, block=8, target="llvm -num-cores 1", kept=tmp_path / "model")
        assert [int(t) for (t,) in found.generate(PROMPTS[:1], 20)] == continued(checkpoint, PROMPTS[0], 20)
        if not start:
            monkeypatch.setattr("examples.generate.network.network", None)  # not needed again


def test_the_name_of_a_kept_model_follows_from_its_files_and_options(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    model = tmp_path / "model.gguf"
    model.write_bytes(b"1234567")
    first = kept.kept_file(model, None, 1, 256)
    assert first is not None and first == kept.kept_file(model, "llvm", 1, 256) and first.parent.is_dir()
    others = [kept.kept_file(model, None, 1, 512), kept.kept_file(model, "llvm -mcpu haswell", 1, 256)]
    model.write_bytes(b"12345678")
    assert len({first, *others, kept.kept_file(model, None, 1, 256)}) == 4
    for n in range(kept.MAX_KEPT_MODELS + 2):
        (old := first.with_name(f"other {n}")).touch()
        os.utime(old, ns=(n, n))
    os.utime(model, ns=(0, 0))
    found = kept.kept_file(model, None, 1, 256)
    assert {f.name for f in first.parent.iterdir()} == {f"other {n}" for n in range(3, kept.MAX_KEPT_MODELS + 2)}
    found.touch()
    os.utime(found, ns=(-1, -1))  # the oldest, but the one that is asked for
    assert kept.kept_file(model, None, 1, 256) == found and found.exists()
    (tmp_path / "cache" / "tir" / "generate").chmod(0o777)
    with pytest.warns(UserWarning, match="the compiled model is not kept, and each start compiles it anew"):
        assert kept.kept_file(model, None, 1, 256) is None


def test_the_last_block_of_a_prompt_ends_with_the_room():
    checkpoint = drawn(replace(TINY, layers=1), np.random.default_rng(0))
    writer = generator(checkpoint, batch=2, room=128, block=96, target="llvm -num-cores 1")
    prompts = [np.random.default_rng(n).integers(0, 67, length).tolist() for n, length in enumerate((109, 35))]
    exact = np.array([reference(checkpoint, p)[-1] for p in prompts])
    np.testing.assert_allclose(writer.prefill(prompts), exact, atol=1e-4 * np.abs(exact).max())


def test_drawn_tokens_follow_the_softmax_of_the_largest_scores():
    scores = np.tile(np.log([8.0, 1.0, 4.0, 2.0, 4.0]), (20000, 1))
    counts = np.bincount(sampled(np.random.default_rng(0), 1.0, 3)(scores), minlength=5) / len(scores)
    wanted = np.array([8, 0, 4, 0, 4]) / 16
    assert np.abs(counts - wanted).max() < 4 * np.sqrt(0.25 / len(scores))


@pytest.mark.parametrize("kind", ["Q4_0", "Q8_0", "Q4_K", "Q6_K"])
def test_blocks_of_files_are_those_of_the_library_gguf(kind: str, tmp_path):
    gguf = pytest.importorskip("gguf")
    from graph.checkpoint import _tensor, read_gguf

    type_ = gguf.GGMLQuantizationType[kind]
    elements, nbytes = gguf.GGML_QUANT_SIZES[type_]
    raw = np.random.default_rng(5).integers(0, 256, (3, 512 // elements * nbytes), np.uint8)
    halves = raw.reshape(-1, nbytes)[:, slice(-2, None) if kind == "Q6_K" else slice(0, 4 if kind == "Q4_K" else 2)]
    halves[:, 1::2] = 0x30 + (halves[:, 1::2] & 0x0F)  # scales between 0.1 and 2
    writer = gguf.GGUFWriter(tmp_path / "x.gguf", "llama")
    writer.add_tensor("x", raw, raw_dtype=type_)
    for step in ("write_header_to_file", "write_kv_data_to_file", "write_tensors_to_file", "close"):
        getattr(writer, step)()
    _, (tensor,) = read_gguf(tmp_path / "x.gguf")
    found = _tensor(tensor)
    exact = gguf.dequantize(raw, type_)
    assert isinstance(found, Blocks) and found.shape == exact.shape
    np.testing.assert_allclose(found.floats(), exact, atol=4 * np.finfo("float32").eps * np.abs(exact).max())


def test_refusals_of_files(tmp_path):
    gguf = pytest.importorskip("gguf")
    writer = gguf.GGUFWriter(tmp_path / "x.gguf", "llama")
    writer.add_tensor("x", np.zeros((3, 64), "float32"))
    writer.add_tensor("y", np.zeros((3, 64), "float64"))
    for step in ("write_header_to_file", "write_kv_data_to_file", "write_tensors_to_file", "close"):
        getattr(writer, step)()
    whole = (tmp_path / "x.gguf").read_bytes()
    for content, message in (
        (whole, "`y` is of type 28; supported are F32, F16, BF16, Q4_0, Q8_0, Q4_K, Q6_K$"),
        (whole[:-2000], "x.gguf is cut off$"),
        (whole[:40], "x.gguf: unpack_from requires a buffer of at least "),
        (b"GGML" + whole[4:], "x.gguf: it is no GGUF file of version 2 or 3$"),
        (b"", "x.gguf: "),
    ):
        (tmp_path / "x.gguf").write_bytes(content)
        with pytest.raises(CheckpointError, match=message):
            load(tmp_path / "x.gguf")


def test_a_file_of_gguf_and_a_folder_of_safetensors_are_one_model(tmp_path):
    gguf, safetensors = pytest.importorskip("gguf"), pytest.importorskip("safetensors.numpy")
    tokenizers = pytest.importorskip("tokenizers")
    model = drawn(TINY, np.random.default_rng(1))
    letters = [*map(chr, range(97, 123)), "ab", "abc", *(f"<{n}>" for n in range(39))]
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "qwen2")
    numbers = {"block_count": 2, "context_length": 230, "embedding_length": 32, "feed_forward_length": 48, "head_count": 4,
               "head_count_kv": 2, "layer_norm_rms_eps": 1e-5}  # fmt: skip
    for name, value in numbers.items():
        getattr(writer, f"add_{name}")(value)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(letters)
    writer.add_token_merges(["a b", "ab c"])
    writer.add_eos_token_id(2)
    for name, array in model.weights.items():
        assert isinstance(array, np.ndarray)
        writer.add_tensor(name, array)
    for step in ("write_header_to_file", "write_kv_data_to_file", "write_tensors_to_file", "close"):
        getattr(writer, step)()

    folder = tmp_path / "m"
    folder.mkdir()
    theirs = {"attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
              "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj", "ffn_norm": "post_attention_layernorm",
              "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}  # fmt: skip
    whole = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight"}

    def name(ours: str) -> str:
        if ours in whole:
            return whole[ours]
        _, n, part, kind = ours.split(".")
        return f"model.layers.{n}.{theirs[part]}.{kind}"

    safetensors.save_file({name(n): a for n, a in model.weights.items()}, folder / "model.safetensors")
    config = {"model_type": "qwen2", "num_hidden_layers": 2, "hidden_size": 32, "num_attention_heads": 4, "vocab_size": 67,
              "num_key_value_heads": 2, "intermediate_size": 48, "rms_norm_eps": 1e-5, "max_position_embeddings": 230,
              "eos_token_id": 2}  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    vocabulary = {text: n for n, text in enumerate(letters)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(vocabulary, [("a", "b"), ("ab", "c")]))
    tokenizer.save(str(folder / "tokenizer.json"))

    for found in (load(tmp_path / "m.gguf"), load(folder)):
        assert replace(found.config, epsilon=1e-5) == TINY and found.stops == {2}
        assert found.weights.keys() == model.weights.keys()
        assert all(np.array_equal(found.weights[n], a) for n, a in model.weights.items())
        assert found.encode("abcb") == [27, 1] and found.decode([27, 1]).replace(" ", "") == "abcb"

    for more, message in (
        ({"model_type": "gpt_neox"}, "expected a model of one of llama, mistral, qwen2, qwen3, got gpt_neox"),
        ({"rope_scaling": {"type": "yarn"}}, "positions scaled as yarn are not supported; expected linear or llama3"),
        ({"rope_scaling": [1]}, r"rope_parameters or rope_scaling must be an object, got \[1\]"),
        ({"rope_scaling": {"type": "linear"}}, "positions scaled as linear need a positive number factor, got None"),
        ({"rope_scaling": {"type": "linear", "factor": None}}, "as linear need a positive number factor, got None"),
        ({"rope_scaling": SCALED | {"factor": 0}}, "positions scaled as llama3 need a positive number factor, got 0"),
        ({"rope_scaling": {k: v for k, v in SCALED.items() if k != "low_freq_factor"}}, "need a positive number low_freq_factor"),
        ({"rope_parameters": {"partial_rotary_factor": 0.5}}, "partial_rotary_factor=0.5 is not supported; expected 1"),
        ({"hidden_act": "gelu"}, "hidden_act=gelu is not supported; expected silu"),
    ):
        (folder / "config.json").write_text(json.dumps(config | more))
        with pytest.raises(CheckpointError, match=message):
            load(folder)
    for more, found in (({"model_type": "mistral"}, 100), ({}, 230), ({"use_sliding_window": True}, 100)):
        (folder / "config.json").write_text(json.dumps(config | {"sliding_window": 100} | more))
        assert load(folder).config.room == found
    (folder / "config.json").unlink()
    with pytest.raises(CheckpointError, match=r"has no config\.json; expected a folder with config\.json"):
        load(folder)
    with pytest.raises(CheckpointError, match="does not exist"):
        load(tmp_path / "missing.gguf")


SCALED = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 64}  # fmt: skip


def test_waves_are_slowed_by_their_length():
    """As the card of Llama 3.1 has it, wave by wave; and linear ones alike, from a folder's scaling and from that of GGUF."""
    wanted = []
    for n in range(8):
        wave = 2 * np.pi * 500.0 ** (n / 8)
        part = (64 / wave - 1) / (4 - 1)
        wanted.append(1 if wave < 64 / 4 else 8 if wave > 64 / 1 else 1 / ((1 - part) / 8 + part))
    assert {1, 8} < set(wanted)  # all three cases
    for scaling, divisors in ((SCALED, wanted), ({"type": "linear", "factor": 2.5}, [2.5] * 8)):
        (found,) = _divisors(Path("x"), scaling, 500.0, 16).values()
        np.testing.assert_allclose(found, divisors, rtol=1e-12)
    assert not _divisors(Path("x"), {"type": "none"}, 500.0, 16)
    assert not _divisors(Path("x"), {"rope_type": None}, 500.0, 16)


def test_heads_and_scales_of_gguf(monkeypatch):
    pytest.importorskip("tokenizers")
    sizes = {"block_count": 1, "embedding_length": 16, "attention.head_count": 2, "feed_forward_length": 8, "context_length": 9,
             "attention.layer_norm_rms_epsilon": 1e-5, "rope.scaling.type": "linear", "rope.scaling.factor": 2.0}  # fmt: skip
    known = {f"llama.{name}": value for name, value in sizes.items()} | {"general.architecture": "llama"}
    known |= {"tokenizer.ggml.tokens": ["a"], "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.merges": []}
    own = np.arange(1, 5, dtype="f4")
    tensors = [_Tensor("rope_freqs.weight", "F32", (4,), own.view("u1"))]

    def made(**more):
        monkeypatch.setattr("graph.checkpoint.read_gguf", lambda path: (known | more, tensors))
        return _gguf(Path("x"))

    np.testing.assert_array_equal(made().weights["rope_freqs.weight"], 2 * own)  # as llama.cpp: both slow a wave
    assert made(**{"llama.rope.dimension_count": 8, "llama.attention.value_length": 8}).config.head == 8
    for name, value in (("rope.dimension_count", 4), ("attention.value_length", 16)):
        with pytest.raises(CheckpointError, match=f"x: {name}={value} is not supported; expected 8, that of a head$"):
            made(**{f"llama.{name}": value})


@pytest.mark.parametrize(
    ("kind", "more"),
    [("Llama", {"rope_parameters": SCALED | {"rope_theta": 500.0}}),
     ("Llama", {"rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 5e5}, "attention_bias": True}),
     ("Mistral", {"head_dim": 12, "sliding_window": None}), ("Qwen2", {"tie_word_embeddings": True}), ("Qwen3", {"head_dim": 16})],
    ids=lambda p: p if isinstance(p, str) else "-".join(p),
)  # fmt: skip
def test_files_that_transformers_writes_give_its_scores(kind: str, more: dict, tmp_path):
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    torch.manual_seed(0)
    sizes = {"num_hidden_layers": 1, "hidden_size": 32, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 67,
             "intermediate_size": 48, "max_position_embeddings": 256, "initializer_range": 0.2}  # fmt: skip
    model = getattr(transformers, f"{kind}ForCausalLM")(getattr(transformers, f"{kind}Config")(**sizes | more)).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith(("bias", "norm.weight")):  # which begin as zeros and ones
                parameter.uniform_(0.5, 1.5)
        tokens = torch.randint(0, 67, (64,))
        exact = model(tokens[None]).logits[0].numpy()
    model.save_pretrained(tmp_path)
    checkpoint = load(tmp_path)
    np.testing.assert_allclose(reference(checkpoint, tokens.tolist()), exact, atol=1e-4 * np.abs(exact).max())
    writer = generator(checkpoint, batch=3, room=64, block=16, target="llvm -num-cores 1")
    scores = writer.prefill([tokens[:n].tolist() for n in (7, 33, 64)])
    np.testing.assert_allclose(scores, exact[[6, 32, 63]], atol=1e-4 * np.abs(exact).max())


def test_pieces_with_scores_become_merges():
    pytest.importorskip("tokenizers")
    from graph.checkpoint import _tokenizer

    pieces = ["<unk>", "<0x0A>", "▁", "a", "b", "▁a", "ab", "▁ab"]
    known = {"tokenizer.ggml.tokens": pieces, "tokenizer.ggml.model": "llama"}
    tokenizer = _tokenizer(Path("x"), known | {"tokenizer.ggml.scores": [0, 0, -9, -9, -9, -2, -1, -3]})
    assert tokenizer.encode("ab a\n").ids == [7, 5, 1]  # "ab" before "▁a", by its score
    assert tokenizer.decode([7, 5, 1]) == "ab a\n"


def test_texts_are_split_as_the_file_says_and_begin_with_its_first_token():
    pytest.importorskip("tokenizers")
    from graph.checkpoint import _tokenizer

    vocabulary = ["<s>", *"a1234!", "Ġ", "12", "34", "123", "Ċ", "aaa"]
    known = {"tokenizer.ggml.tokens": vocabulary, "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.bos_token_id": 0,
             "tokenizer.ggml.merges": ["1 2", "3 4", "12 3"]}  # fmt: skip
    for more, wanted in (
        ({"pre": "llama-bpe"}, ["<s>", "a", "123", "4", "!", "Ċ"]), ({"pre": "qwen2"}, ["a", *"1234", "!", "Ċ"]),
        ({}, ["a", "12", "34", "!", "Ċ"]), ({"add_bos_token": True}, ["<s>", "a", "12", "34", "!", "Ċ"]),
        ({"pre": "llama-v3"}, ["<s>", "a", "123", "4", "!", "Ċ"]),
        ({"pre": "llama-bpe", "add_bos_token": False}, ["a", "123", "4", "!", "Ċ"]),
    ):  # fmt: skip
        tokenizer = _tokenizer(Path("x"), known | {f"tokenizer.ggml.{name}": value for name, value in more.items()})
        assert tokenizer.encode("a1234!\n").tokens == wanted
        whole = str(more.get("pre")).startswith("llama")  # words of the vocabulary are taken whole, without merges
        assert tokenizer.encode("aaa").tokens[-3:] == (
            ["<s>", "aaa"][more.get("add_bos_token") is False :] if whole else [*"aaa"]
        )
        assert tokenizer.decode(tokenizer.encode("a1234!\n").ids, skip_special_tokens=True).removeprefix("<s>") == "a1234!\n"


@pytest.mark.parametrize("arguments", [["nothing.gguf"]])
def test_a_missing_file_is_an_error_of_the_command(arguments):
    done = subprocess.run([sys.executable, "-m", "examples.generate", *arguments], capture_output=True, text=True)
    assert done.returncode == 2 and done.stderr.startswith("error: nothing.gguf does not exist") and not done.stdout
