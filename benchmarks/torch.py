"""Models of torch compiled by `torch.compile(model, backend="tir")`, beside eager mode and inductor.

A row is a model of `benchmarks.torch_models`: random weights, batch 1, float32. Each way of running it has a process of its own,
and they are called in turns on the same number of threads. The outputs are compared with torch's in float64 first; what is wrong
is not timed. With `--save DIR` results are kept in `DIR/torch.json` and shown in `DIR/torch.md`; a row that is there at this
commit is not measured again.

It needs the extra `networks` and timm, and g++ for inductor.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any

from codegen.runtime.timing import duration
from tir.dtypes import unit

from . import pages
from .networks import Contender, wrong
from .options import Options
from .runner import Effort, circumstances, commit, race, ratios, warm

WORDS = 1000  # of a vocabulary
TORCHVISION = (
    "resnet18", "resnet50", "resnext50_32x4d", "mobilenet_v2", "mobilenet_v3_large", "efficientnet_b0", "shufflenet_v2_x1_0",
    "squeezenet1_1", "densenet121", "mnasnet1_0", "regnet_y_400mf", "googlenet", "inception_v3", "convnext_tiny", "vit_b_16",
    "swin_t", "alexnet",
)  # fmt: skip
TIMM = (
    "mobilenetv4_conv_small", "ghostnet_100", "levit_128s", "mixer_s32_224", "resmlp_12_224", "poolformer_s12",
    "deit_tiny_patch16_224", "convmixer_768_32", "efficientformerv2_s0", "mobilevit_xxs", "repvgg_a0", "res2net50_26w_4s",
    "hrnet_w18_small", "xcit_nano_12_p16_224", "edgenext_xx_small", "lcnet_050", "fastvit_t8", "inception_next_tiny",
)  # fmt: skip
SMALL = {"vocab_size": WORDS, "hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 1024}
OF_WORDS: dict[str, tuple[str, dict[str, Any]]] = {  # by the name of a model, its class in transformers and the configuration
    "bert": ("BertModel", SMALL),
    "roberta": ("RobertaModel", SMALL),
    "distilbert": ("DistilBertModel", {"vocab_size": WORDS, "dim": 256, "n_layers": 4, "n_heads": 4, "hidden_dim": 1024}),
    "albert": ("AlbertModel", SMALL | {"embedding_size": 128}),
    "electra": ("ElectraModel", SMALL | {"embedding_size": 128}),
    "gpt2": ("GPT2LMHeadModel", {"vocab_size": WORDS, "n_embd": 256, "n_layer": 4, "n_head": 4}),
    "opt": ("OPTForCausalLM", {"vocab_size": WORDS, "hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4,
                               "ffn_dim": 1024, "word_embed_proj_dim": 256}),
    "llama": ("LlamaForCausalLM", SMALL | {"num_key_value_heads": 2}),
    "mistral": ("MistralForCausalLM", SMALL | {"num_key_value_heads": 2}),
    "qwen2": ("Qwen2ForCausalLM", SMALL | {"num_key_value_heads": 2}),
    "phi": ("PhiForCausalLM", SMALL),
    "gpt_neox": ("GPTNeoXForCausalLM", SMALL),
    "t5": ("T5EncoderModel", {"vocab_size": WORDS, "d_model": 256, "d_kv": 64, "d_ff": 1024, "num_layers": 4, "num_heads": 4}),
}  # fmt: skip

ROWS = (*TORCHVISION, *(f"timm/{name}" for name in TIMM), *(f"words/{name}" for name in OF_WORDS))
DEFAULT = ROWS
THREADED = True
MAX_OFF = 0.05  # of the root mean square, of a right result; a model off by more has no first-order bound
PEERS = ("eager", "inductor", "frozen")


def allowed(eager: dict[str, Any]) -> float:
    """The largest difference from float64 of a right result: one rounding an operation, times the root of the longest sum.

    Theorem. A sum of K independent terms of mean 0, added in order, is off by u sqrt(K / 12) of itself: partial sums have
    variances 1 to K, and each rounding is evenly spread. A result that is rounded once is off by u / sqrt(6). A sum's error is
    thus sqrt(K / 2) of a rounding; Higham and Mary (A new approach to probabilistic rounding error analysis, 2019) bound it by
    sqrt(K). To first order the network makes the same of both, so its ratio is at most that of its longest sum. The factor of
    sqrt(2) between is left for chance, as the largest elements of two random errors differ.
    """
    if eager.get("rounded") is None:
        return 0.0
    return min(MAX_OFF, math.sqrt(eager["longest"]) * max(eager["rounded"], unit("float32")))


def measure(row: str, options: Options) -> Iterator[dict[str, Any]]:
    """One result: of each way its time, error and compile time, and how many times faster ours is."""
    known = pages.known(options.save, "torch").get(f"{row}/{options.threads}")
    if known is not None and known["commit"] == commit() and not commit().endswith("+"):
        yield known
        return
    result: dict[str, Any] = {"threads": options.threads, **circumstances()}
    with ExitStack() as stack:
        ways = {
            way: stack.enter_context(Contender("benchmarks.torch_contender", way, row, str(options.threads)))
            for way in ("tir", *PEERS)
        }
        result |= {way: contender.about for way, contender in ways.items()}
        result["bound"] = most = allowed(result["eager"])
        if why := result["eager"].get("error") or wrong(result["tir"], most):
            yield {**result, "error": why}
            return
        right = {way: contender for way, contender in ways.items() if not wrong(contender.about, most)}
        timings = race(right, Effort(seconds=options.seconds, warm=warm(options.threads)))
    for way, timing in timings.items():
        result[way] = {**result[way], **timing.as_json()}
        if way != "tir":
            ratio, between = ratios(timings["tir"], timing)
            result[way] |= {"ratio": ratio, "quartiles": list(between)}
    pages.keep(options.save, "torch", row, result, write)
    yield result


# --- what is shown -----------------------------------------------------------------------------------------------------

COLUMNS = ("row", "ms", *(f"× {way}" for way in PEERS), "off", "bound", "in eager mode", "compile", "of inductor")


def cells(r: dict[str, Any]) -> tuple[str, ...]:
    """A result that has timings, in COLUMNS."""
    ours = r["tir"]
    share = f"{ours['compile_s'] / r['inductor']['compile_s']:.2f}" if "compile_s" in r["inductor"] else "-"
    return (
        r["row"], f"{1e3 * ours['median_s']:.3g}", *(f"{r[way]['ratio']:.2f}" if "ratio" in r[way] else "-" for way in PEERS),
        f"{ours['off']:.1e}", f"{r['bound']:.1e}", str(len(ours["eager"])), duration(ours["compile_s"], 3), share,
    )  # fmt: skip


def summary(results: Sequence[dict[str, Any]]) -> tuple[str, ...]:
    """The geometric means of ratios, the share of models without eager mode, and the median of the share of compile time."""
    means = [[r[way]["ratio"] for r in results if "ratio" in r[way]] for way in PEERS]
    whole = sum(not r["tir"]["eager"] for r in results) / max(1, len(results))
    shares = [r["tir"]["compile_s"] / r["inductor"]["compile_s"] for r in results if "compile_s" in r["inductor"]]
    found = [f"{pages.geometric_mean(own):.2f}" if own else "-" for own in means]
    return ("in all", "", *found, "", "", f"{whole:.0%} whole", "", f"{statistics.median(shares):.2f}" if shares else "-")


def table(results: Sequence[dict[str, Any]]) -> Any:
    """A line a result, and the summary of each number of threads."""
    rows = []
    for threads in sorted({r["threads"] for r in results}):
        own = [r for r in results if r["threads"] == threads and "error" not in r]
        failed = [r["row"] for r in results if r["threads"] == threads and "error" in r]
        rows += [(f"{threads}", *line) for line in (*map(cells, own), summary(own))]
        rows += [(f"{threads}", name, "failed", *[""] * (len(COLUMNS) - 2)) for name in failed]
    return pages.console("models of torch, batch 1, float32", ("threads", *COLUMNS), rows)


INTRODUCTION = """# Models of torch

Made by `python -m benchmarks torch --threads 1,2 --save DIR`. Random weights, batch 1, float32; nothing is searched. `ms` is
`torch.compile(model, backend="tir")`, and `× WAY` says how many times faster it is: than eager mode, than inductor, than inductor
with frozen parameters. `off` is the largest difference from float64, as a part of an output's root mean square. `bound` is the
most that it may be: what one rounding to float32 an operation causes, times the root of the terms of the longest sum. `in eager
mode` counts the parts that are not compiled; `compile` is the first call, its last column the share of what inductor takes.
"""


def section(results: Sequence[dict[str, Any]]) -> Iterator[str]:
    yield pages.table(COLUMNS, [*map(cells, results), summary(results)])


write = pages.writer("torch", INTRODUCTION, section, ROWS)
